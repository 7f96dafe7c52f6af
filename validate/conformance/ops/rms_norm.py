"""Contract of ``rms_norm``: RMSNorm of every head, with or without a sigmoid output gate."""

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
from validate.oracle import rms_norm, sigmoid

__all__ = ["OPERATION", "NormPoint", "make_case"]

_ROWS = {"x": 0, "gate": 0}
HEADS = (1, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128)

CONTRACT = Contract(
    op="rms_norm",
    title="RMSNorm over the last axis, each row and head by itself, times sigmoid(gate) if gated",
    signature="rms_norm(x, weight, eps, gate) -> y",
    outputs=("y",),
    clauses={
        **CLAUSES,
        "element": CLAUSES["element"]
        + " Sums are float32; eps stands inside the root. Rounding to the dtype of x is allowed"
        " before the weight and before the gate, besides that of y.",
    },
    settings={"gate": ("both", "none", "sigmoid")},
)
"""x [rows, heads, width] in bfloat16 or float32; weight [width] in the dtype of x, one for all
heads; eps above 0, added to the mean square; gate None, or like x: the result is then multiplied
by sigmoid(gate). Both are swept; ``gate=none`` and ``gate=sigmoid`` declare a kernel that knows one of
them. Output: y like x, fresh memory; a row of zeros gives
zeros. Oracle: ``validate.oracle.rms_norm``."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NormPoint:
    """One sweep point, before its numbers are drawn."""

    rows: int = 3
    heads: int = 2
    width: int = 64
    dtype: str = "bfloat16"
    kind: str = "normal"
    """``outliers``: channels as in a trained stream; ``zero``: some rows are zero; ``small``
    1e-4, where eps counts; ``large`` 1e4, where half-precision squares overflow; ``uneven``:
    heads of very different size; ``captured``: k3-nano's KDA outputs (12 heads x 16)."""
    amplitude: int = 1
    eps: float = 1e-5
    gated: bool = False
    probe: str = "plain"
    poison: str = "none"

    @property
    def id(self) -> str:
        """Readable and unique name."""
        dtype = {"bfloat16": "bf16", "float32": "f32"}[self.dtype]
        words = [f"B{self.rows}", f"H{self.heads}", f"D{self.width}", dtype, self.kind]
        words += [f"x{self.amplitude}", f"eps{self.eps:g}"]
        words += ["gated"] if self.gated else []
        words += [
            word for word in (self.probe, f"nan-{self.poison}") if word not in {"plain", "nan-none"}
        ]
        return "-".join(words)


def make_case(point: NormPoint) -> Case:
    """The arguments of one point."""
    rng = generator(point.id)
    shape = (point.rows, point.heads, point.width)
    size = {"small": 1e-4, "large": 1e4}.get(point.kind, 1.0)
    x = size * point.amplitude * rng.normal(size=shape)
    if point.kind == "outliers":
        x = outlier_rows(rng, shape)
    if point.kind == "zero":
        x[::2] = 0.0
    if point.kind == "uneven":
        x = x * np.exp2(rng.integers(-6, 7, (point.rows, point.heads, 1)))
    weight = np.exp(rng.normal(0.0, 0.4, point.width))
    gate = typed(rng.normal(0.0, 2.0, shape), point.dtype) if point.gated else None
    inputs: dict[str, Any] = {
        "x": typed(x, point.dtype),
        "weight": typed(weight, point.dtype),
        "eps": point.eps,
        "gate": gate,
    }
    if point.kind == "captured":
        held, rows = captured(), slice(0, point.rows)
        inputs["x"] = typed(held["norm.x"][rows], point.dtype)
        inputs["weight"] = typed(held["norm.weight"], point.dtype)
        inputs["gate"] = typed(held["norm.gate"][rows], point.dtype) if point.gated else None
    axes: dict[str, Axis] = {name: getattr(point, name) for name in point.__dataclass_fields__}
    if point.poison == "row":
        poison_row(inputs, _ROWS)
    return Case(id=point.id, axes=axes, inputs=inputs)


def _quick(*, gated: bool) -> Iterator[NormPoint]:
    kinds = ("normal", "outliers", "zero", "small", "large", "uneven")
    for kind, dtype in product(kinds, ("bfloat16", "float32")):
        yield NormPoint(kind=kind, dtype=dtype, gated=gated)
    for dtype in ("bfloat16", "float32"):
        yield NormPoint(rows=20, heads=12, width=16, kind="captured", dtype=dtype, gated=gated)
    for width in (1, 7, 63, 65, 128, 576, 7168):
        yield NormPoint(width=width, gated=gated)
    for heads in HEADS:
        yield NormPoint(heads=heads, width=16, kind="uneven", gated=gated)
    for amplitude in (4, 16):
        yield NormPoint(amplitude=amplitude, dtype="float32", gated=gated)
    for eps in (1e-6, 1e-2):
        yield NormPoint(eps=eps, kind="small", dtype="float32", gated=gated)
    for rows in MANY:
        yield NormPoint(rows=rows, heads=1, width=16, gated=gated)
    yield NormPoint(rows=65, heads=12, width=8, gated=gated)
    for rows in (1, 2, 3, 5):
        yield NormPoint(rows=rows, width=33, probe="rows", gated=gated)
    yield NormPoint(poison="row", gated=gated)
    yield NormPoint(probe="repeats", gated=gated)


def _full(*, gated: bool) -> Iterator[NormPoint]:
    for rows, heads, width, kind, dtype, eps in product(
        (1, 5),
        (1, 6, 12, 96),
        (7, 128, 3584),
        ("normal", "outliers", "zero", "small", "large", "uneven"),
        ("bfloat16", "float32"),
        (1e-5, 1e-6),
    ):
        yield NormPoint(
            rows=rows, heads=heads, width=width, kind=kind, dtype=dtype, eps=eps, gated=gated
        )


def _cases(effort: Effort, settings: Settings) -> Iterator[Case]:
    asked = {"both": (False, True), "none": (False,), "sigmoid": (True,)}[settings["gate"]]
    parts = [_quick(gated=gated) for gated in asked]
    if effort is Effort.FULL:
        parts += [_full(gated=gated) for gated in asked]
    for point in dict.fromkeys(chain(*parts)):
        yield make_case(point)


def _expected(inputs: Mapping[str, Any]) -> Mapping[str, Expected]:
    """Oracle, and the rounding of it: a sum of ``width`` squares, a root, products, one store."""
    x, width = to_float64(inputs["x"]), inputs["x"].shape[-1]
    y = rms_norm(x, to_float64(inputs["weight"]), eps=inputs["eps"])
    sums = roundoff_of("float32") * (4.0 + np.sqrt(width))
    relative: Any = roundoff_of(inputs["x"]) + sums
    if inputs["gate"] is not None:
        gate = to_float64(inputs["gate"])
        y = y * sigmoid(gate)
        relative = relative + roundoff_of("float32") * logistic_condition(gate)
    scale = relative * np.abs(y) + TINY * (y != 0)
    return {"y": Expected(values=y, scale=scale, axes=("row", "head", "channel"))}


def _outputs(inputs: Mapping[str, Any], _: Settings) -> Mapping[str, OutputSpec]:
    return {"y": OutputSpec(shape=inputs["x"].shape, dtype=inputs["x"].dtype.name)}


def _check(case: Case, call: Call, _: Settings) -> tuple[Breach, ...]:
    rows = {name: axis for name, axis in _ROWS.items() if case.inputs[name] is not None}
    return check_rows(case, call, _expected, rows=rows)


def _shrink(case: Case) -> Iterator[Case]:
    return shrunk_rows(case, rows=_ROWS, last=("x", "weight", "gate"))


OPERATION = Operation(
    contract=CONTRACT, cases=_cases, outputs=_outputs, check=_check, shrink=_shrink
)
"""``rms_norm``."""
