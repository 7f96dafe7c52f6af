"""Contract of ``kda_chunk``: Kimi Delta Attention over a packed batch of prompts, for prefill."""

import itertools
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from validate.conformance.ops._kda import SETTINGS, kda_form, outputs
from validate.conformance.ops._kda_inputs import (
    PER_TOKEN,
    KdaPoint,
    arguments,
    axes_of,
    initial_states,
)
from validate.conformance.ops._kda_truth import WINDOW, Rounding
from validate.conformance.ops._packed import shrunk
from validate.conformance.ops._packed_check import CLAUSES, check_packed
from validate.conformance.ops._rounding import roundoff_of
from validate.conformance.records import (
    Breach,
    Call,
    Case,
    Contract,
    Effort,
    Operation,
    Settings,
)

__all__ = ["FORM", "INITIAL", "OPERATION", "ROUNDING", "k3_points", "make_case"]

HEADS = (4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128)
CAPTURED: dict[str, Any] = {"heads": 12, "key": 16, "value": 16, "keys": "captured"}
LENGTHS = (1, 2, 15, 16, 17, 63, 64, 65)
LONG = (32, 48, 96, 128, 192, 256, 300)
"""Whole chunks of every usual size, and past the last of them."""
RAGGED = (17, 0, 1, 65, 2)
MANY = (3, 1, 18, 0, 2, 6, 1, 17, 1, 1, 5, 2, 1, 7, 1, 3, 2)
"""A batch of 17 sequences."""
BOUNDS = (-1.0, -4.0)
TF32 = 2.0**-11
"""Unit roundoff of TF32, which tensor cores make of float32 operands."""
_HEAD_AXES = {"q": 1, "k": 1, "v": 1, "f": 1, "b": 1, "a_log": 0, "dt_bias": 0, "initial_state": 1}

CONTRACT = Contract(
    op="kda_chunk",
    title="Kimi Delta Attention of prompts, chunk by chunk, with gate, beta and L2 norm inside",
    signature=(
        "kda_chunk(q, k, v, f, b, a_log, dt_bias, lower_bound, initial_state, cu_seqlens)"
        " -> (out, final_state)"
    ),
    outputs=("out", "final_state"),
    clauses={
        **CLAUSES,
        "element": CLAUSES["element"]
        + " Products may round their operands to the dtype of v; sums are float32.",
    },
    settings={**SETTINGS, "products": ("input", "tf32", "bfloat16")},
)
"""q, k [tokens, heads, key], v [tokens, heads, value] and f [tokens, heads, key] in bfloat16 or
float32, as the projections and the short convolution give them; b float32 [tokens, heads]; a_log
float32 [heads]; dt_bias float32 [heads, key]; lower_bound below 0. The kernel itself divides q and
k by ``sqrt(sum x^2 + 1e-6)``, scales q by key^-0.5, and makes ``g = lower_bound sigmoid(exp(a_log)
(f + dt_bias))`` and ``beta = sigmoid(b)``. Sequences are packed: cu_seqlens int64 [sequences + 1];
a sequence may have no token and then keeps its state; tokens past cu_seqlens[-1] are padding, which
may hold NaN and whose outputs are not looked at. initial_state is None (zeros) or [sequences, heads, key,
value] in the declared layout and dtype; it is read, never written, and final_state is fresh memory
of the same form. Output: out [tokens, heads, value] in the dtype of v. Oracle: ``validate.oracle.kda``,
token by token in float64. A lower_bound of 0 or more is outside the contract."""


def make_case(point: KdaPoint, settings: Settings) -> Case:
    """The arguments of one point."""
    inputs = arguments(point)
    inputs["initial_state"] = initial_states(point, len(point.lengths), like=settings)
    return Case(id=point.id, axes=axes_of(point), inputs=inputs)


def _quick(base: dict[str, Any], *, fixed: bool) -> Iterator[KdaPoint]:
    """Every axis value and every hazard once."""
    for length in LENGTHS:
        yield KdaPoint(**base, lengths=(length,))
    if not fixed:
        for heads in HEADS:
            yield KdaPoint(lengths=(18,), heads=heads, key=8, value=8)
        for key, value in ((32, 16), (32, 32), (64, 64), (16, 128), (128, 16)):
            yield KdaPoint(lengths=(33,), heads=6, key=key, value=value)
        yield KdaPoint(lengths=(18,), heads=12, key=128, value=128, initial=True)
        for dtype in ("bfloat16", "float32"):
            yield KdaPoint(**CAPTURED, lengths=(40, 26), dtype=dtype)
    yield from _sizes(base, fixed=fixed)
    yield from _hazards(base)
    yield from _probes(base)


def _sizes(base: dict[str, Any], *, fixed: bool) -> Iterator[KdaPoint]:
    """Longer prompts, larger batches, other lower bounds; fewer where every state is large."""
    base = base if fixed else {"heads": 2, "key": 8, "value": 8}
    for length in (48, 128, 256) if fixed else LONG:
        yield KdaPoint(**base, lengths=(length,), decay="slow", initial=True)
    for count in (9,) if fixed else (7, 9, 17):
        yield KdaPoint(**base, lengths=MANY[:count], initial=True, probe="order")
    yield KdaPoint(**base, lengths=(2,) * (8 if fixed else 33), initial=True)
    for bound, decay in itertools.product(BOUNDS, ("typical", "strong")):
        yield KdaPoint(**base, lengths=(33, 5), bound=bound, decay=decay, initial=True)


def _hazards(base: dict[str, Any]) -> Iterator[KdaPoint]:
    """Gates, keys, sizes and dtypes where kernels have gone wrong."""
    for decay, beta in itertools.product(("slow", "strong", "mixed"), ("typical", "one")):
        yield KdaPoint(**base, lengths=(70, 33), decay=decay, beta=beta, initial=True)
    yield KdaPoint(**base, beta="zero", initial=True)
    for keys in ("run", "recall", "zero", "tiny"):
        yield KdaPoint(**base, lengths=(66,), keys=keys, decay="slow")
    for amplitude in (4, 16):
        yield KdaPoint(**base, lengths=(40,), amplitude=amplitude, initial=True)
    wide = {**base, "dtype": "float32"}
    yield KdaPoint(**wide, lengths=(65,), initial=True)
    yield KdaPoint(**wide, lengths=(65,), decay="mixed", initial=True)
    for beta in ("typical", "one"):
        yield KdaPoint(**wide, lengths=(65,), decay="slow", keys="run", beta=beta)


def _probes(base: dict[str, Any]) -> Iterator[KdaPoint]:
    """Batches, poison, carried states, causality."""
    for count in (1, 2, 3, 5):
        yield KdaPoint(**base, lengths=RAGGED[-count:], initial=True, probe="alone")
        yield KdaPoint(**base, lengths=RAGGED[:count], probe="order")
    yield KdaPoint(**base, lengths=RAGGED, initial=True, poison="padding")
    yield KdaPoint(**base, lengths=(20, 30, 17), initial=True, poison="sequence")
    for cut in (1, 16, 17, 64):
        yield KdaPoint(**base, lengths=(66, 40), initial=True, probe="pieces", cut=cut)
    yield KdaPoint(**base, lengths=(50,), probe="repeats")
    for cut in (15, 33, 48):
        yield KdaPoint(**base, lengths=(64,), decay="slow", probe="causal", cut=cut)
    wide = {**base, "dtype": "float32"}
    yield KdaPoint(**wide, lengths=(130, 17), decay="slow", initial=True, probe="pieces", cut=32)


def _full(base: dict[str, Any], *, fixed: bool) -> Iterator[KdaPoint]:
    """The cross of axes."""
    heads = (12,) if fixed else (4, 6, 12, 48)
    for lengths, h, dtype, decay, keys, initial in itertools.product(
        ((1,), (2,), (15,), (16,), (17,), (63,), (64,), (65,), (129,), RAGGED),
        heads,
        ("bfloat16", "float32"),
        ("typical", "slow", "strong", "mixed"),
        ("random", "run", "recall"),
        (False, True),
    ):
        sizes = {**base, "heads": h, "dtype": dtype}
        yield KdaPoint(**sizes, lengths=lengths, decay=decay, keys=keys, initial=initial)
    for key, value in () if fixed else ((16, 64), (64, 16), (128, 128), (128, 64)):
        yield KdaPoint(lengths=(70, 17), heads=12, key=key, value=value, initial=True)
    yield KdaPoint(**base, lengths=(1000, 24), decay="slow", initial=True)
    yield KdaPoint(**base, lengths=(1025,), decay="slow", initial=True, probe="pieces", cut=512)


def _cases(effort: Effort, settings: Settings) -> Iterator[Case]:
    fixed = settings["shape"] == "12x128"
    base = {"heads": 12, "key": 128, "value": 128} if fixed else {}
    seen = set()
    points = _quick(base, fixed=fixed)
    if effort is Effort.FULL:
        points = itertools.chain(points, _full(base, fixed=fixed))
    dtypes = ("bfloat16", "float32") if settings["dtype"] == "any" else (settings["dtype"],)
    for point in points:
        if point.id not in seen and point.dtype in dtypes:
            seen.add(point.id)
            yield make_case(point, settings)


def k3_points() -> tuple[KdaPoint, ...]:
    """Kimi K3's shape on one of eight ranks at prompt lengths of practice."""
    shape: dict[str, Any] = {"heads": 12, "key": 128, "value": 128}
    return (
        KdaPoint(**shape, lengths=(1024,)),
        KdaPoint(**shape, lengths=(1024,), decay="slow", initial=True),
        KdaPoint(**shape, lengths=(8192,), decay="slow", initial=True),
    )


def _rounding(inputs: Mapping[str, Any], settings: Settings) -> Rounding:
    dtype = inputs["v"].dtype.name
    # A product sums `key` terms in float32: roundings grow like the root of their number.
    sums = roundoff_of("float32") * float(np.sqrt(inputs["q"].shape[-1]))
    narrowest = {"input": roundoff_of(dtype), "tf32": TF32, "bfloat16": roundoff_of("bfloat16")}
    operands = max(sums, roundoff_of(dtype), narrowest[settings["products"]])
    if settings["beta"] == "bfloat16":
        operands = max(operands, roundoff_of("bfloat16"))
    return Rounding(
        operands=operands,
        sums=roundoff_of("float32"),
        out=roundoff_of(dtype),
        state=roundoff_of(settings["state"]),
        chunk=WINDOW,
        state_every=16,
    )


def _initial(inputs: Mapping[str, Any]) -> np.ndarray | None:
    states: np.ndarray | None = inputs["initial_state"]
    return states


def _carry(inputs: Mapping[str, Any], states: np.ndarray) -> dict[str, Any]:
    return {**inputs, "initial_state": states}


INITIAL = _initial
"""States before each sequence, in the contract's layout."""
ROUNDING = _rounding
"""What the contract allows."""
FORM = kda_form(
    per_sequence=("initial_state",),
    initial=INITIAL,
    carry=_carry,
    rounding=_rounding,
)


def _check(case: Case, call: Call, settings: Settings) -> tuple[Breach, ...]:
    return check_packed(case, call, settings, form=FORM)


def _shrink(case: Case) -> Iterator[Case]:
    return shrunk(case, per_token=PER_TOKEN, per_sequence=FORM.per_sequence, head_axes=_HEAD_AXES)


OPERATION = Operation(
    contract=CONTRACT, cases=_cases, outputs=outputs, check=_check, shrink=_shrink
)
"""``kda_chunk``."""
