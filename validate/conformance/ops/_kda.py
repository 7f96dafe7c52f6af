"""What ``kda_chunk`` and ``kda_recurrent`` share: settings, forms of outputs, the packed check."""

import hashlib
from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import Any

import numpy as np

from validate.conformance.ops._kda_inputs import PER_TOKEN
from validate.conformance.ops._kda_truth import Rounding, kda_truth
from validate.conformance.ops._packed_check import PackedForm
from validate.conformance.ops._rounding import Expected, Multiples
from validate.conformance.records import OutputSpec, Settings

__all__ = ["SETTINGS", "kda_form", "outputs"]

SETTINGS: Mapping[str, tuple[str, ...]] = {
    "layout": ("k_first", "v_first"),
    "state": ("float32", "bfloat16"),
    "beta": ("float32", "bfloat16"),
    "shape": ("any", "12x128"),
    "dtype": ("any", "bfloat16"),
}
"""Layout of a state, [key, value] or [value, key]; dtype in which states are stored; precision
of beta = sigmoid(b); head counts and sizes that the kernel is built for (``12x128``: 12 heads of
key and value 128, one of eight ranks of Kimi K3); dtypes that it is built for."""

LIMITS = Multiples(element=12.0, row=4.0, bulk=2.0)
"""A chunked kernel with bfloat16 operands (``torch:bfloat16-products``) reaches 8.3, 1.7 and 0.9 of
the model over the 1,972 points of the full sweep; runs of one key, whose roundings are not
independent, are what reaches 8."""

_REMEMBERED = 2**22
"""Values times key size up to which the oracle of a point is kept for the next implementation."""

Initial = Callable[[Mapping[str, Any]], np.ndarray | None]


def kda_form(
    *,
    per_sequence: tuple[str, ...],
    initial: Initial,
    carry: Callable[[Mapping[str, Any], np.ndarray], dict[str, Any]],
    rounding: Callable[[Mapping[str, Any], Settings], Rounding],
) -> PackedForm:
    """The packed form of a KDA operation.

    Args:
        per_sequence: Arguments with one row a sequence.
        initial: State before each sequence, in the contract's layout.
        carry: The arguments with the states that an earlier call gave.
        rounding: What the contract allows for these arguments.
    """

    def truths(inputs: Mapping[str, Any], settings: Settings) -> list[dict[str, Expected]]:
        before = initial(inputs)
        wide = None if before is None else _key_first(before, settings)
        job = _Job(inputs, wide, rounding(inputs, settings))
        if inputs["v"].size * inputs["q"].shape[-1] > _REMEMBERED:
            return kda_truth(inputs, wide, job.rounding)
        return list(_remembered(job))

    return PackedForm(
        per_token=PER_TOKEN,
        per_sequence=per_sequence,
        values="v",
        token_outputs=("out",),
        sequence_outputs=("final_state",),
        truths=truths,
        carry=lambda inputs, got: carry(inputs, got["final_state"]),
        view=_view,
        multiples=LIMITS,
    )


class _Job:
    """What the oracle is asked; equal when every byte of it is."""

    def __init__(
        self, inputs: Mapping[str, Any], initial: np.ndarray | None, rounding: Rounding
    ) -> None:
        self.inputs, self.initial, self.rounding = inputs, initial, rounding
        held = [inputs[name] for name in (*PER_TOKEN, "a_log", "dt_bias", "cu_seqlens")]
        digest = hashlib.sha256(repr((rounding, inputs["lower_bound"])).encode())
        for array in (*held, initial):
            if array is not None:
                digest.update(f"{array.shape}{array.dtype}".encode() + array.tobytes())
        self._digest = digest.digest()

    def __hash__(self) -> int:
        return hash(self._digest)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Job) and self._digest == other._digest


@lru_cache(maxsize=512)
def _remembered(job: _Job) -> tuple[dict[str, Expected], ...]:
    """The oracle of one job: one sweep judges many implementations on the same points."""
    return tuple(kda_truth(job.inputs, job.initial, job.rounding))


def outputs(inputs: Mapping[str, Any], settings: Settings) -> Mapping[str, OutputSpec]:
    """Shapes and dtypes of ``out`` and ``final_state``."""
    tokens, heads, key = inputs["q"].shape
    value = inputs["v"].shape[-1]
    sizes = (key, value) if settings["layout"] == "k_first" else (value, key)
    return {
        "out": OutputSpec(shape=(tokens, heads, value), dtype=inputs["v"].dtype.name),
        "final_state": OutputSpec(
            shape=(len(inputs["cu_seqlens"]) - 1, heads, *sizes), dtype=settings["state"]
        ),
    }


def _key_first(states: np.ndarray, settings: Settings) -> np.ndarray:
    """States [..., key, value], whatever the declared layout."""
    return states if settings["layout"] == "k_first" else states.swapaxes(-1, -2)


def _view(name: str, array: np.ndarray, settings: Settings) -> np.ndarray:
    """Outputs as the oracle lays them out: columns of states last."""
    if name == "out" or settings["layout"] == "v_first":
        return array
    return np.ascontiguousarray(array.swapaxes(-1, -2))
