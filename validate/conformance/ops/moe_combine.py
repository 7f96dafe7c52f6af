"""Contract of ``moe_combine``: the experts of a row summed by their weights, and the shared expert."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import chain, product
from typing import Any

import numpy as np

from validate.conformance.ops._kda_inputs import generator
from validate.conformance.ops._packed import typed
from validate.conformance.ops._rounding import Expected, roundoff_of
from validate.conformance.ops._rows import (
    CLAUSES,
    MANY,
    TINY,
    check_rows,
    outlier_rows,
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

__all__ = ["OPERATION", "CombinePoint", "combine", "make_case"]

_ROWS = {"made": 0, "ids": 0, "weights": 0, "shared": 0}

CONTRACT = Contract(
    op="moe_combine",
    title="sum_j weights[j] (made[j] + bias[ids[j]]) + shared; slots with id -1 give nothing",
    signature="moe_combine(made, ids, weights, bias, shared) -> y",
    outputs=("y",),
    clauses={
        **CLAUSES,
        "element": CLAUSES["element"] + " Sums are float32; one store.",
        "padding": "A slot with id -1 gives nothing, whatever it holds.",
    },
)
"""made [rows, choice, width] in bfloat16 or float32, what each expert gave; ids int32 [rows,
choice], -1 where a slot is empty, which may hold NaN or infinities; weights float32 [rows, choice]; bias
None or [experts, width], an expert's output bias, weighted like what it made; shared None or [rows,
width], added once. Output: y [rows, width] in the dtype of made, fresh memory. Oracle: ``combine``
beside this contract, slot by slot in float64."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CombinePoint:
    """One sweep point, before its numbers are drawn."""

    rows: int = 3
    top_k: int = 4
    width: int = 64
    experts: int = 16
    dtype: str = "bfloat16"
    kind: str = "normal"
    amplitude: int = 1
    bias: bool = False
    shared: bool = True
    empty: str = "none"
    """What the last slot of every second row holds under id -1: ``nan``, ``inf``."""
    probe: str = "plain"
    poison: str = "none"

    @property
    def id(self) -> str:
        """Readable and unique name."""
        dtype = {"bfloat16": "bf16", "float32": "f32"}[self.dtype]
        words = [f"B{self.rows}", f"k{self.top_k}", f"D{self.width}", dtype, self.kind]
        words += [f"x{self.amplitude}"]
        words += [name for name in ("bias", "shared") if getattr(self, name)]
        words += [f"empty-{self.empty}"] if self.empty != "none" else []
        plain = {"plain", "nan-none"}
        words += [word for word in (self.probe, f"nan-{self.poison}") if word not in plain]
        return "-".join(words)


def make_case(point: CombinePoint) -> Case:
    """The arguments of one point."""
    rng = generator(point.id)
    shape = (point.rows, point.top_k, point.width)
    made = point.amplitude * rng.normal(size=shape)
    if point.kind == "outliers":
        made = outlier_rows(rng, shape)
    ids = np.stack([rng.permutation(point.experts)[: point.top_k] for _ in range(point.rows)])
    weights = rng.dirichlet(np.ones(point.top_k), point.rows)
    if point.empty != "none":
        ids[::2, -1], weights[::2, -1] = -1, 0.0
        made[::2, -1] = np.nan if point.empty == "nan" else np.inf
    if point.poison == "row":
        made[1] = np.nan
    shared = typed(point.amplitude * rng.normal(size=(point.rows, point.width)), point.dtype)
    bias = typed(rng.normal(0.0, 1.0, (point.experts, point.width)), point.dtype)
    inputs: dict[str, Any] = {
        "made": typed(made, point.dtype),
        "ids": ids.astype(np.int32),
        "weights": weights.astype(np.float32),
        "bias": bias if point.bias else None,
        "shared": shared if point.shared else None,
    }
    axes: dict[str, Axis] = {name: getattr(point, name) for name in point.__dataclass_fields__}
    return Case(id=point.id, axes=axes, inputs=inputs)


def _quick() -> Iterator[CombinePoint]:
    for kind, dtype in product(("normal", "outliers"), ("bfloat16", "float32")):
        yield CombinePoint(kind=kind, dtype=dtype)
    for top_k in (1, 2, 8, 16):
        yield CombinePoint(top_k=top_k, shared=False)
    for width in (1, 7, 65, 3584):
        yield CombinePoint(width=width)
    for amplitude in (4, 16):
        yield CombinePoint(amplitude=amplitude, bias=True)
    for bias, shared in product((False, True), (False, True)):
        yield CombinePoint(bias=bias, shared=shared, dtype="float32")
    for empty in ("nan", "inf"):
        yield CombinePoint(rows=5, empty=empty, bias=True)
    for rows in MANY:
        yield CombinePoint(rows=rows, width=16)
    for rows in (1, 2, 3, 5):
        yield CombinePoint(rows=rows, width=33, probe="rows")
    yield CombinePoint(poison="row")
    yield CombinePoint(probe="repeats")


def _full() -> Iterator[CombinePoint]:
    for rows, top_k, width, dtype, kind, bias, shared in product(
        (1, 5, 33),
        (1, 8, 16),
        (7, 3584),
        ("bfloat16", "float32"),
        ("normal", "outliers"),
        (False, True),
        (False, True),
    ):
        yield CombinePoint(
            rows=rows,
            top_k=top_k,
            width=width,
            dtype=dtype,
            kind=kind,
            bias=bias,
            shared=shared,
        )


def _cases(effort: Effort, _: Settings) -> Iterator[Case]:
    points = chain(_quick(), _full()) if effort is Effort.FULL else _quick()
    for point in dict.fromkeys(points):
        yield make_case(point)


def combine(
    made: np.ndarray,
    ids: np.ndarray,
    weights: np.ndarray,
    *,
    bias: np.ndarray | None,
    shared: np.ndarray | None,
) -> np.ndarray:
    """The weighted sum in float64, slot by slot; a slot with id -1 is not read.

    Args:
        made: What each expert gave, [rows, choice, width].
        ids: Expert of each slot, -1 for none, [rows, choice].
        weights: Routing weights, [rows, choice].
        bias: Output bias of each expert, [experts, width], weighted like what it made.
        shared: What the shared expert gave, [rows, width], added once.

    Source:
        The sum inside ``validate.oracle.moe``, with the expert's output bias of gpt-oss.
    """
    total = np.zeros((made.shape[0], made.shape[2]))
    for row, slot in np.argwhere(ids >= 0):
        given = made[row, slot] if bias is None else made[row, slot] + bias[ids[row, slot]]
        total[row] += weights[row, slot] * given
    return total if shared is None else total + shared


def _expected(inputs: Mapping[str, Any]) -> Mapping[str, Expected]:
    """Oracle; the sum errs by root(k) roundoffs of float32 of its terms' sizes, then one store."""
    made, weights = to_float64(inputs["made"]), to_float64(inputs["weights"])
    bias, shared = (
        None if inputs[name] is None else to_float64(inputs[name]) for name in ("bias", "shared")
    )
    y = combine(made, inputs["ids"], weights, bias=bias, shared=shared)
    size = combine(
        np.abs(made),
        inputs["ids"],
        weights,
        bias=None if bias is None else np.abs(bias),
        shared=None if shared is None else np.abs(shared),
    )
    sums = roundoff_of("float32") * (3.0 + np.sqrt(inputs["ids"].shape[1]))
    scale = roundoff_of(inputs["made"]) * np.abs(y) + sums * size + TINY * (size > 0)
    return {"y": Expected(values=y, scale=scale, axes=("row", "channel"))}


def _outputs(inputs: Mapping[str, Any], _: Settings) -> Mapping[str, OutputSpec]:
    made = inputs["made"]
    return {"y": OutputSpec(shape=(made.shape[0], made.shape[2]), dtype=made.dtype.name)}


def _check(case: Case, call: Call, _: Settings) -> tuple[Breach, ...]:
    rows = {name: axis for name, axis in _ROWS.items() if case.inputs[name] is not None}
    return check_rows(case, call, _expected, rows=rows)


def _shrink(case: Case) -> Iterator[Case]:
    return shrunk_rows(case, rows=_ROWS, last=("made", "bias", "shared"))


OPERATION = Operation(
    contract=CONTRACT, cases=_cases, outputs=_outputs, check=_check, shrink=_shrink
)
"""``moe_combine``."""
