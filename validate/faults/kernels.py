"""Every planted operation fault and every control, gathered from the areas."""

from validate.faults.operations import OperationControl, OperationFault

__all__ = ["OPERATION_CONTROLS", "OPERATION_FAULTS"]

OPERATION_FAULTS: tuple[OperationFault, ...] = ()
"""Faults that conformance must catch, by area and operation."""

OPERATION_CONTROLS: tuple[OperationControl, ...] = ()
"""Implementations that conformance must not flag."""
