"""Contract of ``short_conv``: causal depthwise convolution with SiLU over packed sequences."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain, product
from typing import Any

import numpy as np

from validate.conformance.captured_linear import captured
from validate.conformance.ops._kda_inputs import generator
from validate.conformance.ops._packed import bounds, padded, shrunk, typed
from validate.conformance.ops._packed_check import CLAUSES, PackedForm, check_packed
from validate.conformance.ops._rounding import Expected, roundoff_of
from validate.conformance.ops._rows import LIMITS, TINY, logistic_condition, outlier_rows
from validate.conformance.records import (
    Axis,
    Breach,
    Call,
    Case,
    Contract,
    Effort,
    Operation,
    OutputSpec,
    Settings,
)
from validate.numerics import to_float64
from validate.oracle import short_conv

__all__ = ["OPERATION", "ConvPoint", "make_case"]

RAGGED = (5, 0, 1, 17, 2, 3)
MANY = (3, 1, 0, 2, 6, 1, 4, 1, 1, 5, 2, 1, 7, 1, 3, 0, 2)
"""A batch of 17 sequences."""
_HEAD_AXES = {"x": 1, "weight": 0, "state": 1}

CONTRACT = Contract(
    op="short_conv",
    title="silu(sum_j weight[c, j] x[t - (kernel - 1) + j, c]), and the inputs to remember",
    signature="short_conv(x, weight, state, cu_seqlens) -> (y, final_state)",
    outputs=("y", "final_state"),
    clauses={
        **CLAUSES,
        "element": CLAUSES["element"]
        + " Sums are float32 and rounded once, after SiLU; final_state holds the last kernel - 1"
        " inputs of each sequence, oldest first, exactly.",
    },
)
"""x [tokens, channels] in bfloat16 or float32; weight [channels, kernel] in the dtype of x,
the last tap for the current token; cu_seqlens int64 [sequences + 1]; state None (zeros) or [sequences,
channels, kernel - 1] in the dtype of x, oldest first, read and never written. Tokens past
cu_seqlens[-1] are padding, which may hold NaN and whose outputs are not looked at. Output: y like x;
final_state like state, in fresh memory: a sequence shorter than the kernel keeps the end of its old
state in front. Oracle: ``validate.oracle.short_conv``."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ConvPoint:
    """One sweep point, before its numbers are drawn."""

    lengths: tuple[int, ...] = (9,)
    channels: int = 24
    kernel: int = 4
    dtype: str = "bfloat16"
    kind: str = "normal"
    """``outliers``: channels as in a trained stream; ``negative``: SiLU's left tail;
    ``captured``: k3-nano's keys before their convolution, 192 channels."""
    amplitude: int = 1
    initial: bool = False
    poison: str = "none"
    probe: str = "plain"
    cut: int = 0

    @property
    def id(self) -> str:
        """Readable and unique name."""
        dtype = {"bfloat16": "bf16", "float32": "f32"}[self.dtype]
        lengths = "+".join(str(n) for n in self.lengths)
        words = [f"T{lengths}", f"C{self.channels}", f"W{self.kernel}", dtype, self.kind]
        words += [f"x{self.amplitude}"]
        words += ["state"] if self.initial else []
        words += [f"nan-{self.poison}"] if self.poison != "none" else []
        words += [self.probe] if self.probe != "plain" else []
        words += [f"at{self.cut}"] if self.cut else []
        return "-".join(words)


def make_case(point: ConvPoint) -> Case:
    """The arguments of one point."""
    rng = generator(point.id)
    tokens, count = sum(point.lengths), len(point.lengths)
    x = point.amplitude * rng.normal(size=(tokens, point.channels))
    if point.kind == "outliers":
        x = outlier_rows(rng, (tokens, point.channels))
    weight = rng.normal(0.0, 0.6, (point.channels, point.kernel))
    if point.kind == "negative":
        x, weight = 12.0 + x, -np.abs(weight)
    if point.kind == "captured":
        x, weight = captured()["conv.x"][:tokens], captured()["conv.weight"]
    state = point.amplitude * rng.normal(size=(count, point.channels, point.kernel - 1))
    inputs: dict[str, Any] = {
        "x": typed(x, point.dtype),
        "weight": typed(weight, point.dtype),
        "state": typed(state, point.dtype) if point.initial else None,
        "cu_seqlens": np.cumsum([0, *point.lengths], dtype=np.int64),
    }
    if point.poison == "padding":
        inputs["x"] = padded(inputs["x"], 7, fill=np.nan)
    if point.poison == "sequence":
        inputs["x"][slice(*bounds(inputs)[1])] = np.nan
    skipped = {"lengths"}
    axes: dict[str, Axis] = {
        name: getattr(point, name) for name in point.__dataclass_fields__ if name not in skipped
    }
    axes |= {"tokens": max(point.lengths), "sequences": count}
    return Case(id=point.id, axes=axes, inputs=inputs)


def _quick() -> Iterator[ConvPoint]:
    for length, initial in product((1, 2, 3, 4, 5, 16, 64, 65), (False, True)):
        yield ConvPoint(lengths=(length,), initial=initial)
    for channels in (1, 12, 33, 1536):
        yield ConvPoint(channels=channels)
    for kernel in (2, 3, 5):
        yield ConvPoint(kernel=kernel, initial=True)
    for kind, dtype in product(("normal", "outliers", "negative"), ("bfloat16", "float32")):
        yield ConvPoint(lengths=(20, 3), kind=kind, dtype=dtype, initial=True)
    for dtype in ("bfloat16", "float32"):
        yield ConvPoint(lengths=(40, 26), channels=192, kind="captured", dtype=dtype)
    for amplitude in (4, 16):
        yield ConvPoint(amplitude=amplitude)
    for count in (1, 2, 3, 5, 6):
        yield ConvPoint(lengths=RAGGED[:count], initial=True, probe="alone")
        yield ConvPoint(lengths=RAGGED[-count:], probe="order")
    for cut in (1, 2, 3, 4):
        yield ConvPoint(lengths=(9, 2, 1), initial=True, probe="pieces", cut=cut)
    yield ConvPoint(lengths=(9, 5), probe="causal", cut=3)
    yield ConvPoint(lengths=(9, 5), probe="repeats")
    yield ConvPoint(lengths=(9, 5), initial=True, poison="padding")
    yield ConvPoint(lengths=(9, 5, 6), initial=True, poison="sequence")
    yield from _sizes()


def _sizes() -> Iterator[ConvPoint]:
    """Longer prompts and larger batches."""
    for length in (32, 48, 96, 128, 192, 256, 260):
        yield ConvPoint(lengths=(length,), channels=8, initial=True)
    for count in (7, 9, 17):
        yield ConvPoint(lengths=MANY[:count], channels=8, initial=True, probe="order")
        yield ConvPoint(lengths=MANY[-count:], channels=8)
    for count in (33, 65):
        yield ConvPoint(lengths=(1,) * count, channels=8, initial=True)


def _full() -> Iterator[ConvPoint]:
    for lengths, channels, kernel, dtype, kind, initial in product(
        ((1,), (3,), (64,), (1000,), RAGGED),
        (12, 192, 1536),
        (2, 4),
        ("bfloat16", "float32"),
        ("normal", "outliers", "negative"),
        (False, True),
    ):
        yield ConvPoint(
            lengths=lengths,
            channels=channels,
            kernel=kernel,
            dtype=dtype,
            kind=kind,
            initial=initial,
        )


def _cases(effort: Effort, _: Settings) -> Iterator[Case]:
    points = chain(_quick(), _full()) if effort is Effort.FULL else _quick()
    for point in dict.fromkeys(points):
        yield make_case(point)


def _truths(inputs: Mapping[str, Any], _: Settings) -> Sequence[Mapping[str, Expected]]:
    """Oracle of every sequence.

    The sum before SiLU errs by the roundoff of float32 times the sum of its terms' sizes; SiLU
    passes that on with a slope of 1.1 at most and adds the condition of its sigmoid.
    """
    x, weight = to_float64(inputs["x"]), to_float64(inputs["weight"])
    sums = roundoff_of("float32")
    found = []
    for n, (start, end) in enumerate(bounds(inputs)):
        state = None if inputs["state"] is None else to_float64(inputs["state"][n])
        made = short_conv(x[start:end], weight, state=state)
        total = _total(x[start:end], weight, state)
        size = _total(
            np.abs(x[start:end]), np.abs(weight), None if state is None else np.abs(state)
        )
        scale = (roundoff_of(inputs["x"]) + sums * (4.0 + logistic_condition(total))) * np.abs(
            made.y
        )
        scale = scale + 1.1 * 2.0 * sums * size + TINY * (made.y != 0)
        remembered = made.state[None]
        found.append(
            {
                "y": Expected(values=made.y, scale=scale, axes=("token", "channel")),
                "final_state": Expected(
                    values=remembered,
                    scale=np.zeros_like(remembered),
                    axes=("sequence", "channel", "tap"),
                ),
            }
        )
    return found


def _total(x: np.ndarray, weight: np.ndarray, state: np.ndarray | None) -> np.ndarray:
    """The sum before SiLU, by one product a token."""
    taps = weight.shape[1] - 1
    before = np.zeros((taps, x.shape[1])) if state is None else state.T
    window = np.concatenate([before, x])
    rows = [np.sum(window[t : t + taps + 1].T * weight, axis=1) for t in range(len(x))]
    total: np.ndarray = np.array(rows).reshape(len(x), x.shape[1])
    return total


def _outputs(inputs: Mapping[str, Any], _: Settings) -> Mapping[str, OutputSpec]:
    channels, kernel = inputs["weight"].shape
    dtype = inputs["x"].dtype.name
    count = len(inputs["cu_seqlens"]) - 1
    return {
        "y": OutputSpec(shape=inputs["x"].shape, dtype=dtype),
        "final_state": OutputSpec(shape=(count, channels, kernel - 1), dtype=dtype),
    }


_FORM = PackedForm(
    per_token=("x",),
    per_sequence=("state",),
    values="x",
    token_outputs=("y",),
    sequence_outputs=("final_state",),
    truths=_truths,
    carry=lambda inputs, got: {**inputs, "state": got["final_state"]},
    view=lambda _, array, __: array,
    multiples=LIMITS,
)


def _check(case: Case, call: Call, settings: Settings) -> tuple[Breach, ...]:
    return check_packed(case, call, settings, form=_FORM)


def _shrink(case: Case) -> Iterator[Case]:
    return shrunk(
        case,
        per_token=_FORM.per_token,
        per_sequence=_FORM.per_sequence,
        head_axes=_HEAD_AXES,
        heads="channels",
    )


OPERATION = Operation(
    contract=CONTRACT, cases=_cases, outputs=_outputs, check=_check, shrink=_shrink
)
"""``short_conv``."""
