"""The planted-fault catalogue: what to switch, where, and what a comparison must say.

A fault is the mechanism at its code site (the wrong stride, index or base),
never added noise. The switch itself stands in ``validate.models``; this room
says what it means.
"""

from validate.faults.attention import ATTENTION_FAULTS
from validate.faults.capture_records import CAPTURE_FAULTS
from validate.faults.evals import EVAL_FAULTS
from validate.faults.layers import LAYER_FAULTS
from validate.faults.renorm import RENORM_FAULTS
from validate.faults.speculative import SPECULATIVE_FAULTS
from validate.schema.fault import Fault

__all__ = ["FAULTS", "FAULT_SIDES"]

FAULTS: dict[str, Fault] = {
    fault.id: fault
    for fault in (
        *ATTENTION_FAULTS,
        *RENORM_FAULTS,
        *SPECULATIVE_FAULTS,
        *LAYER_FAULTS,
        *CAPTURE_FAULTS,
        *EVAL_FAULTS,
    )
}
"""Every fault by id."""

FAULT_SIDES: dict[str, str] = {fault.id: fault.where for fault in FAULTS.values()}
"""Fault id to the side it is planted on, as targets need it."""
