"""Every planted operation fault and every control, gathered from the areas."""

from validate.faults import (
    operations_attention,
    operations_engine,
    operations_linear,
    operations_sampling,
)
from validate.faults.operations import OperationControl, OperationFault

__all__ = ["OPERATION_CONTROLS", "OPERATION_FAULTS"]

OPERATION_FAULTS: tuple[OperationFault, ...] = (
    *operations_attention.FAULTS,
    *operations_linear.FAULTS,
    *operations_sampling.FAULTS,
    *operations_engine.FAULTS,
)
"""Faults that conformance must catch, by area and operation."""

OPERATION_CONTROLS: tuple[OperationControl, ...] = (
    *operations_attention.CONTROLS,
    *operations_linear.CONTROLS,
    *operations_sampling.CONTROLS,
    *operations_engine.CONTROLS,
)
"""Implementations that conformance must not flag."""
