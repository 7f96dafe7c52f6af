"""Contract of ``kda_recurrent``: Kimi Delta Attention over states in a pool, for decode and verify.

States live in a pool that the engine owns; ``slots`` says which one each sequence reads.
The pool is never written: a kernel that updates in place is wrapped by cloning the pool,
calling, and gathering the slots.
"""

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
    generator,
    initial_states,
)
from validate.conformance.ops._kda_truth import Rounding
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
QUERIES = (1, 2, 4, 8)
"""Tokens a step: plain decode, and verify windows."""
RAGGED = (4, 1, 0, 8, 2)
MANY = (1, 2, 1, 0, 1, 4, 1, 1, 2, 1, 1, 1, 3, 1, 0, 1, 2)
"""A batch of 17 sequences."""
BOUNDS = (-1.0, -4.0)
_HEAD_AXES = {"q": 1, "k": 1, "v": 1, "f": 1, "b": 1, "a_log": 0, "dt_bias": 0, "states": 1}

CONTRACT = Contract(
    op="kda_recurrent",
    title="Kimi Delta Attention token by token over pooled states, with gate, beta and L2 norm inside",
    signature=(
        "kda_recurrent(q, k, v, f, b, a_log, dt_bias, lower_bound, states, slots, cu_seqlens)"
        " -> (out, final_state)"
    ),
    outputs=("out", "final_state"),
    clauses={
        **CLAUSES,
        "element": CLAUSES["element"]
        + " Everything inside is float32; only what is stored may be narrower.",
    },
    settings=SETTINGS,
)
"""q, k [tokens, heads, key], v [tokens, heads, value] and f [tokens, heads, key] in bfloat16 or
float32, as the projections and the short convolution give them; b float32 [tokens, heads]; a_log
float32 [heads]; dt_bias float32 [heads, key]; lower_bound below 0. The kernel itself divides q and
k by ``sqrt(sum x^2 + 1e-6)``, scales q by key^-0.5, and makes ``g = lower_bound sigmoid(exp(a_log)
(f + dt_bias))`` and ``beta = sigmoid(b)``. Sequences are packed: cu_seqlens int64 [sequences + 1];
a sequence may have no token and then keeps its state; tokens past cu_seqlens[-1] are padding, which
may hold NaN and whose outputs are not looked at. states is None (zeros) or a pool [slots, heads, key,
value] in the declared layout and dtype, slots int64 [sequences] the place of each sequence's state;
other slots may hold NaN. The pool belongs to the caller and is never written: wrap a kernel that
updates in place by cloning it and gathering the slots. Output: out [tokens, heads, value] in the dtype
of v; final_state [sequences, heads, key, value], fresh memory. Oracle: ``validate.oracle.kda``, token
by token in float64. A slot twice, or outside the pool, is outside the contract."""


def make_case(point: KdaPoint, settings: Settings) -> Case:
    """The arguments of one point; the pool has unused slots before, between and after."""
    inputs = arguments(point)
    count = len(point.lengths)
    drawn = initial_states(point, count, like=settings)
    inputs["states"] = inputs["slots"] = None
    if drawn is not None:
        slots = generator(point.id + "-slots").permutation(2 * count + 1)[:count]
        unused = np.nan if point.poison == "slots" else 1.0
        pool = np.full((2 * count + 1, *drawn.shape[1:]), unused, dtype=drawn.dtype)
        pool[slots] = drawn
        inputs["states"], inputs["slots"] = pool, slots.astype(np.int64)
    return Case(id=point.id, axes=axes_of(point), inputs=inputs)


def _quick(base: dict[str, Any], *, fixed: bool) -> Iterator[KdaPoint]:
    """Every axis value and every hazard once."""
    for queries, count in itertools.product(QUERIES, (1, 3)):
        yield KdaPoint(**base, lengths=(queries,) * count, initial=True)
    if not fixed:
        for heads in HEADS:
            yield KdaPoint(lengths=(1, 2), heads=heads, key=8, value=8, initial=True)
        for key, value in ((32, 16), (64, 64), (16, 128), (128, 16)):
            yield KdaPoint(lengths=(4, 1), heads=6, key=key, value=value, initial=True)
        yield KdaPoint(lengths=(2, 1), heads=12, key=128, value=128, initial=True)
        for dtype in ("bfloat16", "float32"):
            yield KdaPoint(**CAPTURED, lengths=(8, 4, 1), dtype=dtype, initial=True)
    for count in (1, 2, 3, 5):
        yield KdaPoint(**base, lengths=RAGGED[-count:], initial=True, probe="alone")
        yield KdaPoint(**base, lengths=RAGGED[:count], initial=True, probe="order")
    yield from _batches(base, fixed=fixed)
    yield from _hazards(base)


def _batches(base: dict[str, Any], *, fixed: bool) -> Iterator[KdaPoint]:
    """Larger batches, and other lower bounds; fewer where every state is large."""
    base = base if fixed else {"heads": 2, "key": 8, "value": 8}
    for count in (9,) if fixed else (7, 9, 17):
        yield KdaPoint(**base, lengths=MANY[:count], initial=True, probe="order")
    for count in (6, 8) if fixed else (6, 8, 33, 65):
        yield KdaPoint(**base, lengths=(1,) * count, initial=True)
    for bound, decay in itertools.product(BOUNDS, ("typical", "strong")):
        yield KdaPoint(**base, lengths=(4, 1), bound=bound, decay=decay, initial=True)


def _hazards(base: dict[str, Any]) -> Iterator[KdaPoint]:
    """Gates, keys, poison, carried states, dtypes."""
    for decay, beta in itertools.product(("slow", "strong", "mixed"), ("typical", "zero", "one")):
        yield KdaPoint(**base, lengths=(8, 3), decay=decay, beta=beta, initial=True)
    for keys in ("run", "recall", "zero", "tiny"):
        yield KdaPoint(**base, lengths=(24,), keys=keys, decay="slow", initial=keys == "tiny")
    for amplitude in (4, 16):
        yield KdaPoint(**base, lengths=(4, 4), amplitude=amplitude, initial=True)
    for poison in ("padding", "slots", "sequence"):
        yield KdaPoint(**base, lengths=(4, 2, 1), initial=True, poison=poison)
    for cut in (1, 3, 4):
        yield KdaPoint(**base, lengths=(8, 4, 1), initial=True, probe="pieces", cut=cut)
    yield KdaPoint(**base, lengths=(8, 4), probe="pieces", cut=2)
    yield KdaPoint(**base, lengths=(4, 4), initial=True, probe="repeats")
    yield KdaPoint(**base, lengths=(8,), decay="slow", initial=True, probe="causal", cut=4)
    wide = {**base, "dtype": "float32"}
    yield KdaPoint(**wide, lengths=(4, 1), initial=True)
    yield KdaPoint(**wide, lengths=(100,), decay="slow", initial=True)


def _full(base: dict[str, Any], *, fixed: bool) -> Iterator[KdaPoint]:
    """The cross of axes."""
    heads = (12,) if fixed else (4, 6, 12, 48, 96)
    for lengths, h, dtype, decay, keys, initial in itertools.product(
        ((1,), (2,), (4,), (8,), (1,) * 5, (4, 1, 8), RAGGED),
        heads,
        ("bfloat16", "float32"),
        ("typical", "slow", "strong", "mixed"),
        ("random", "run", "recall"),
        (False, True),
    ):
        sizes = {**base, "heads": h, "dtype": dtype}
        yield KdaPoint(**sizes, lengths=lengths, decay=decay, keys=keys, initial=initial)
    for key, value in () if fixed else ((16, 64), (64, 16), (128, 128), (128, 64)):
        yield KdaPoint(lengths=(4, 1), heads=12, key=key, value=value, initial=True)
    yield KdaPoint(**base, lengths=(1000, 24), decay="slow", initial=True)


def _cases(effort: Effort, settings: Settings) -> Iterator[Case]:
    fixed = settings["shape"] == "12x128"
    base = {"heads": 12, "key": 128, "value": 128} if fixed else {}
    points = _quick(base, fixed=fixed)
    if effort is Effort.FULL:
        points = itertools.chain(points, _full(base, fixed=fixed))
    seen = set()
    dtypes = ("bfloat16", "float32") if settings["dtype"] == "any" else (settings["dtype"],)
    for point in points:
        if point.id not in seen and point.dtype in dtypes:
            seen.add(point.id)
            yield make_case(point, settings)


def k3_points() -> tuple[KdaPoint, ...]:
    """Kimi K3's shape on one of eight ranks: decode of 8 requests, verify of 4, a long replay."""
    shape: dict[str, Any] = {"heads": 12, "key": 128, "value": 128}
    return (
        KdaPoint(**shape, lengths=(1,) * 8, decay="slow", initial=True),
        KdaPoint(**shape, lengths=(8,) * 4, decay="slow", initial=True),
        KdaPoint(**shape, lengths=(1024,), decay="slow", initial=True),
    )


def _rounding(inputs: Mapping[str, Any], settings: Settings) -> Rounding:
    # Sums over the key axis in float32: roundings grow like the root of their number.
    operands = roundoff_of("float32") * float(np.sqrt(inputs["q"].shape[-1]))
    if settings["beta"] == "bfloat16":
        operands = roundoff_of("bfloat16")
    return Rounding(
        operands=operands,
        sums=roundoff_of("float32"),
        out=roundoff_of(inputs["v"]),
        state=roundoff_of(settings["state"]),
        chunk=1,
        state_every=1,
    )


def _initial(inputs: Mapping[str, Any]) -> np.ndarray | None:
    if inputs["states"] is None:
        return None
    gathered: np.ndarray = inputs["states"][inputs["slots"]]
    return gathered


def _carry(inputs: Mapping[str, Any], states: np.ndarray) -> dict[str, Any]:
    return {**inputs, "states": states, "slots": np.arange(len(states), dtype=np.int64)}


INITIAL = _initial
"""States before each sequence, in the contract's layout."""
ROUNDING = _rounding
"""What the contract allows."""
FORM = kda_form(per_sequence=("slots",), initial=INITIAL, carry=_carry, rounding=_rounding)


def _check(case: Case, call: Call, settings: Settings) -> tuple[Breach, ...]:
    return check_packed(case, call, settings, form=FORM)


def _shrink(case: Case) -> Iterator[Case]:
    return shrunk(case, per_token=PER_TOKEN, per_sequence=FORM.per_sequence, head_axes=_HEAD_AXES)


OPERATION = Operation(
    contract=CONTRACT, cases=_cases, outputs=outputs, check=_check, shrink=_shrink
)
"""``kda_recurrent``."""
