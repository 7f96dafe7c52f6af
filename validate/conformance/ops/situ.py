"""Contract of ``situ``: the gated activation of Kimi K3, bounded in both branches."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import chain, product
from typing import Any

import numpy as np

from validate.conformance.captured_linear import captured
from validate.conformance.ops._kda_inputs import generator
from validate.conformance.ops._packed import typed
from validate.conformance.ops._rounding import Expected, roundoff_of
from validate.conformance.ops._rows import (
    CLAUSES,
    MANY,
    TINY,
    check_rows,
    logistic_condition,
    outlier_rows,
    poison_row,
    shrunk_rows,
)
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
from validate.oracle import sigmoid, situ

__all__ = ["OPERATION", "SituPoint", "make_case"]

_ROWS = {"gate": 0, "up": 0}
_KINDS = ("normal", "large", "huge", "tiny", "negative", "zero")

CONTRACT = Contract(
    op="situ",
    title="SiTU: beta tanh(g/beta) sigmoid(g) times linear_beta tanh(u/linear_beta)",
    signature="situ(gate, up, beta, linear_beta) -> y",
    outputs=("y",),
    clauses={
        **CLAUSES,
        "element": CLAUSES["element"] + " One rounding to the dtype of gate; inside, float32.",
    },
)
"""gate and up [rows, width] in bfloat16 or float32, finite and of any size; beta and linear_beta
above 0. Output: y like gate, fresh memory, finite for every finite input. Oracle:
``validate.oracle.situ``."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SituPoint:
    """One sweep point, before its numbers are drawn."""

    rows: int = 3
    width: int = 64
    dtype: str = "bfloat16"
    kind: str = "normal"
    """``outliers``: channels as in a trained stream; ``large`` 1e4; ``huge`` 1e38 (exponentials
    and ratios of them overflow); ``tiny`` 1e-30; ``negative``: gates where sigmoid vanishes;
    ``captured``: k3-nano's shared expert (width 96)."""
    amplitude: int = 1
    beta: float = 4.0
    linear_beta: float = 25.0
    probe: str = "plain"
    poison: str = "none"

    @property
    def id(self) -> str:
        """Readable and unique name."""
        dtype = {"bfloat16": "bf16", "float32": "f32"}[self.dtype]
        words = [f"B{self.rows}", f"D{self.width}", dtype, self.kind, f"x{self.amplitude}"]
        words += [f"b{self.beta:g}", f"l{self.linear_beta:g}"]
        words += [
            word for word in (self.probe, f"nan-{self.poison}") if word not in {"plain", "nan-none"}
        ]
        return "-".join(words)


def make_case(point: SituPoint) -> Case:
    """The arguments of one point."""
    rng = generator(point.id)
    shape = (point.rows, point.width)
    size = {"large": 1e4, "huge": 1e38, "tiny": 1e-30, "zero": 0.0}.get(point.kind, 1.0)
    gate, up = (size * point.amplitude * rng.normal(size=shape) for _ in range(2))
    if point.kind == "huge":
        gate, up = np.clip(gate, -3e38, 3e38), np.clip(up, -3e38, 3e38)
    if point.kind == "outliers":
        gate, up = outlier_rows(rng, shape), outlier_rows(rng, shape)
    if point.kind == "negative":
        gate = -rng.uniform(20.0, 110.0, shape)
    if point.kind == "captured":
        gate, up = (captured()[f"situ.{name}"][: point.rows] for name in ("gate", "up"))
    inputs: dict[str, Any] = {
        "gate": typed(gate, point.dtype),
        "up": typed(up, point.dtype),
        "beta": point.beta,
        "linear_beta": point.linear_beta,
    }
    axes: dict[str, Axis] = {name: getattr(point, name) for name in point.__dataclass_fields__}
    if point.poison == "row":
        poison_row(inputs, _ROWS)
    return Case(id=point.id, axes=axes, inputs=inputs)


def _quick() -> Iterator[SituPoint]:
    for kind, dtype in product((*_KINDS, "outliers"), ("bfloat16", "float32")):
        yield SituPoint(kind=kind, dtype=dtype)
    for dtype in ("bfloat16", "float32"):
        yield SituPoint(rows=20, width=96, kind="captured", dtype=dtype)
    for width in (1, 7, 63, 65, 3072):
        yield SituPoint(width=width)
    for amplitude in (4, 16):
        yield SituPoint(amplitude=amplitude, dtype="float32")
    for beta, linear_beta in ((1.0, 1.0), (2.5, 7.0), (25.0, 4.0)):
        yield SituPoint(amplitude=4, beta=beta, linear_beta=linear_beta)
    for rows in MANY:
        yield SituPoint(rows=rows, width=16)
    for rows in (1, 2, 3, 5):
        yield SituPoint(rows=rows, width=33, probe="rows")
    yield SituPoint(rows=3, poison="row")
    yield SituPoint(rows=3, probe="repeats")


def _full() -> Iterator[SituPoint]:
    for rows, width, kind, dtype, amplitude in product(
        (1, 2, 5, 33),
        (1, 7, 128, 3072, 6144),
        (*_KINDS, "outliers"),
        ("bfloat16", "float32"),
        (1, 4, 16),
    ):
        yield SituPoint(rows=rows, width=width, kind=kind, dtype=dtype, amplitude=amplitude)


def _cases(effort: Effort, _: Settings) -> Iterator[Case]:
    points = chain(_quick(), _full()) if effort is Effort.FULL else _quick()
    for point in dict.fromkeys(points):
        yield make_case(point)


def _expected(inputs: Mapping[str, Any]) -> Mapping[str, Expected]:
    """Oracle, and the rounding of it.

    ``sigmoid`` errs relatively by its condition; ``tanh`` may be built from exponentials and
    then errs absolutely by the roundoff of 1; three products and one store remain.
    """
    g, u = to_float64(inputs["gate"]), to_float64(inputs["up"])
    beta, linear_beta = inputs["beta"], inputs["linear_beta"]
    y = situ(g, u, beta=beta, linear_beta=linear_beta)
    sums = roundoff_of("float32")
    bounded = np.abs(beta * np.tanh(g / beta) * sigmoid(g))
    linear = np.abs(linear_beta * np.tanh(u / linear_beta))
    scale = (roundoff_of(inputs["gate"]) + sums * (4.0 + logistic_condition(g))) * np.abs(y)
    scale = scale + sums * (beta * sigmoid(g) * linear + linear_beta * bounded)
    # A sigmoid below the smallest normal number may be flushed to zero.
    scale = scale + TINY * beta * linear_beta * (y != 0)
    return {"y": Expected(values=y, scale=scale, axes=("row", "channel"))}


def _outputs(inputs: Mapping[str, Any], _: Settings) -> Mapping[str, OutputSpec]:
    gate = inputs["gate"]
    return {"y": OutputSpec(shape=gate.shape, dtype=gate.dtype.name)}


def _check(case: Case, call: Call, _: Settings) -> tuple[Breach, ...]:
    return check_rows(case, call, _expected, rows=_ROWS)


def _shrink(case: Case) -> Iterator[Case]:
    return shrunk_rows(case, rows=_ROWS, last=("gate", "up"))


OPERATION = Operation(
    contract=CONTRACT, cases=_cases, outputs=_outputs, check=_check, shrink=_shrink
)
"""``situ``."""
