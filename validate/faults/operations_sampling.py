"""Planted faults and controls of sampling operations: filters, draws, verifiers, formats."""

from validate.faults import _sampling_filters, _sampling_formats, _sampling_verify
from validate.faults.operations import OperationControl, OperationFault

__all__ = ["CONTROLS", "FAULTS"]

FAULTS: tuple[OperationFault, ...] = (
    *_sampling_filters.FAULTS,
    *_sampling_verify.FAULTS,
    *_sampling_formats.FAULTS,
)
CONTROLS: tuple[OperationControl, ...] = (
    *_sampling_filters.CONTROLS,
    *_sampling_verify.CONTROLS,
    *_sampling_formats.CONTROLS,
)
