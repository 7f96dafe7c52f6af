"""Contract of merging attention over parts of the keys by their log-sum-exp."""

import itertools
import zlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from validate.conformance.ops._attention_judge import CLAUSES, differing, judge, under
from validate.conformance.ops._attention_truth import U_ACC, Truth, precision_of, rows_of
from validate.conformance.ops._decode_cases import HEADS
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
from validate.numerics import dtype_of, to_float64
from validate.oracle import Partial, lse_merge as oracle_merge

__all__ = ["OPERATION"]

Inputs = Mapping[str, Any]

CONTRACT = Contract(
    op="lse_merge",
    title="Merge partial attention by natural-log LSE: split keys, cached prefixes, ranks",
    signature="lse_merge(outs, lses) -> out, lse",
    outputs=("out", "lse"),
    clauses={
        **CLAUSES,
        "nan": "A NaN in the LSE of a part makes output and LSE of that row and head NaN, and of "
        "no other: it never becomes a number.",
        "repeat": "The same call twice gives the same bits (setting repeat=bits).",
        "order": "The parts may come in any order, within the limits.",
        "rows": "A row alone gives a result within the limits.",
        "heads": "What other heads hold, NaN included, moves no head.",
    },
    settings={"empty_part": ("any", "finite"), "repeat": ("bits", "values")},
)
"""outs [parts, rows, heads, value] in bfloat16, float16 or float32; lses float32 [parts, rows, heads],
natural log. A part whose LSE is -inf saw no key: it counts for nothing, whatever its output holds
(NaN included, as a kernel leaves unwritten memory; empty_part=finite: it holds finite numbers). Where every
part is empty: output 0, LSE -inf. Output: out [rows, heads, value] in the dtype of outs, lse float32."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Point:
    """Coordinates of one sweep point."""

    heads: int = 12
    parts: int = 3
    rows: int = 2
    value: int = 16
    dtype: str = "bfloat16"
    amplitude: float = 1.0
    spread: float = 1.0
    """Standard deviation of the LSE between parts, in nats."""
    level: float = 5.0
    """About where the LSE lie."""
    empty: str = "none"
    """``none``, ``some`` (parts of some rows), ``row`` (all parts of row 0)."""
    nan: bool = False


_QUICK = (
    *(Point(heads=heads) for heads in HEADS),
    *(Point(parts=parts, rows=rows) for parts, rows in ((1, 2), (2, 1), (8, 3), (16, 5))),
    *(Point(heads=6, parts=parts, rows=2, spread=0.1) for parts in (32, 64, 130)),
    Point(heads=4, rows=67),
    Point(value=512, parts=4),
    Point(parts=2, spread=4.0, dtype="float32"),
    Point(parts=2, spread=0.1, dtype="float16", amplitude=4.0),
    Point(parts=4, spread=30.0, amplitude=16.0),
    Point(level=900.0, spread=3.0),
    Point(level=-900.0, spread=3.0),
    Point(level=0.0, spread=0.5, amplitude=4.0),
    Point(empty="some", rows=5, parts=4),
    Point(empty="some", rows=3, parts=2, heads=6),
    Point(empty="row", rows=3, parts=3),
    Point(empty="row", rows=1, parts=1),
    Point(nan=True, rows=3),
)


def _cases(effort: Effort, settings: Settings) -> Iterator[Case]:
    points: Iterator[Point] = iter(_QUICK)
    if effort is Effort.FULL:
        grid = itertools.product(
            HEADS,
            (2, 3, 8),
            (1, 2, 3, 5),
            ("bfloat16", "float32"),
            (0.1, 1.0, 10.0),
            ("none", "some"),
        )
        more = (
            Point(heads=h, parts=p, rows=r, dtype=d, spread=s, empty=e) for h, p, r, d, s, e in grid
        )
        points = itertools.chain(_QUICK, more, (Point(value=512, rows=4, parts=16),))
    for point in points:
        yield _build(point, settings["empty_part"])


def _build(p: Point, fill: str) -> Case:
    name = (
        f"P{p.parts}-R{p.rows}-H{p.heads}-D{p.value}-{p.dtype}-x{p.amplitude:g}"
        f"-lse{p.level:g}+-{p.spread:g}-empty_{p.empty}{'-nan' if p.nan else ''}"
    )
    rng = np.random.default_rng(zlib.crc32(name.encode()))
    shape = (p.parts, p.rows, p.heads)
    outs = (p.amplitude * rng.standard_normal((*shape, p.value))).astype(dtype_of(p.dtype))
    lses = (p.level + p.spread * rng.standard_normal(shape)).astype(np.float32)
    gone = np.zeros(shape, dtype=bool)
    if p.empty == "some":
        gone = rng.random(shape) < 0.4  # noqa: PLR2004  some, not most
        gone[-1] = False
    elif p.empty == "row":
        gone[:, 0] = True
    lses[gone] = -np.inf
    outs[gone] = np.float32("nan" if fill == "any" else "7").astype(outs.dtype)
    if p.nan:
        lses[0, 0, 1] = np.nan
    axes: dict[str, Axis] = {
        "heads": p.heads,
        "parts": p.parts,
        "rows": p.rows,
        "value": p.value,
        "dtype": p.dtype,
        "amplitude": p.amplitude,
        "spread": p.spread,
        "level": p.level,
        "empty": p.empty,
        "nan": p.nan,
    }
    return Case(id=name, axes=axes, inputs={"outs": outs, "lses": lses})


def _truth(outs: np.ndarray, lses: np.ndarray, dtype: str) -> Truth:
    """Oracle and limits: one rounding of the result, a few of each weight, P of the sum.

    A weight ``e^(lse_i - lse)`` is off by ``(|lse_i| + |lse| + 8) u_acc``: the difference is
    formed in float32 from numbers of that size.
    """
    merged = oracle_merge([Partial(out=out, lse=lse) for out, lse in zip(outs, lses, strict=True)])
    parts = len(outs)
    held = np.where(np.isfinite(lses), lses, 0.0)
    whole = np.where(np.isfinite(merged.lse), merged.lse, 0.0)
    weight = np.where(np.isfinite(lses), np.exp(held - whole), 0.0)
    size = np.where((lses == -np.inf)[..., None], 0.0, np.abs(outs))
    slack = (np.abs(held) + np.abs(whole) + 8 + parts) * U_ACC
    share = weight * slack
    flat = np.abs(merged.out)
    summed = np.einsum("prh,prhd->rhd", share, size) + share.sum(axis=0)[..., None] * flat
    rounding = precision_of(dtype, dtype)
    element = rounding.out * flat + rounding.out_floor + summed
    variance = ((rounding.out * flat) ** 2 + rounding.out_floor**2) / 3 + summed**2
    lse_limit = share.sum(axis=0) + 2 * U_ACC * np.abs(whole)
    return Truth(
        out=merged.out, lse=merged.lse, element=element, variance=variance, lse_limit=lse_limit
    )


def _outputs(inputs: Inputs, settings: Settings) -> Mapping[str, OutputSpec]:  # noqa: ARG001
    outs = inputs["outs"]
    return {
        "out": OutputSpec(shape=outs.shape[1:], dtype=str(outs.dtype.name)),
        "lse": OutputSpec(shape=outs.shape[1:3], dtype="float32"),
    }


def _check(case: Case, call: Call, settings: Settings) -> tuple[Breach, ...]:
    inputs = case.inputs
    outs, lses = to_float64(inputs["outs"]), to_float64(inputs["lses"])
    base = call(inputs)
    sick = np.isnan(lses).any(axis=0)
    found = _nan(base, sick)
    truth = _truth(outs, np.where(sick[None], 0.0, lses), inputs["outs"].dtype.name)
    found += judge(*_healthy(base, truth, sick), truth)
    if found:
        return found  # relations between wrong results say nothing more
    if settings["repeat"] == "bits":
        found += differing("repeat", base, call(inputs), "the same call twice")
    back = {name: np.ascontiguousarray(array[::-1]) for name, array in inputs.items()}
    turned = judge(*_healthy(call(back), truth, sick), truth, call="parts in reversed order")
    found += under("order", turned)
    row = outs.shape[1] - 1
    alone = {name: np.ascontiguousarray(array[:, row:]) for name, array in inputs.items()}
    last = rows_of(truth, np.array([row]))
    single = judge(*_healthy(call(alone), last, sick[row:]), last, call=f"row {row} alone")
    found += under("rows", single)
    return found + _other_heads(inputs, call, truth, sick)


def _healthy(
    given: Mapping[str, np.ndarray], truth: Truth, sick: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Output and LSE with the truth put where a NaN is right, so that the rest can be judged."""
    out = np.where(sick[..., None], truth.out, given["out"].astype(np.float64))
    return out, np.where(sick, truth.lse, given["lse"].astype(np.float64))


def _nan(given: Mapping[str, np.ndarray], sick: np.ndarray) -> tuple[Breach, ...]:
    out = np.isnan(given["out"].astype(np.float64)).all(axis=-1)
    bad = sick & ~(out & np.isnan(given["lse"]))
    if not bad.any():
        return ()
    row, head = (int(i[0]) for i in np.nonzero(bad))
    what = (
        f"row {row} head {head} has a NaN LSE in a part; output {given['out'][row, head][0]:.4g}, "
        f"LSE {given['lse'][row, head]:.4g}, expected NaN"
    )
    return (Breach(clause="nan", what=what, at={"row": row, "head": head}),)


def _other_heads(inputs: Inputs, call: Call, truth: Truth, sick: np.ndarray) -> tuple[Breach, ...]:
    """The last head turned into NaN: the others keep their result."""
    changed = {name: array.copy() for name, array in inputs.items()}
    changed["outs"][:, :, -1] = np.float32("nan").astype(changed["outs"].dtype)
    changed["lses"][:, :, -1] = np.nan
    given = call(changed)
    sick = sick.copy()
    sick[:, -1] = True
    found = judge(*_healthy(given, truth, sick), truth, call="last head NaN")
    return under("heads", found)


def _shrink(case: Case) -> Iterator[Case]:
    outs = case.inputs["outs"]
    for axis, name in enumerate(("parts", "rows", "heads")):
        count = outs.shape[axis]
        if count < 2:  # noqa: PLR2004  nothing to halve
            continue
        for keep in (range(count // 2), range(count // 2, count)):
            cut = {
                key: np.ascontiguousarray(np.take(array, list(keep), axis=axis))
                for key, array in case.inputs.items()
            }
            yield replace(
                case,
                id=f"{case.id}/{name}{keep.start}:{keep.stop}",
                axes={**case.axes, name: len(keep)},
                inputs=cut,
            )


OPERATION = Operation(
    contract=CONTRACT, cases=_cases, outputs=_outputs, check=_check, shrink=_shrink
)
"""Merge by log-sum-exp."""
