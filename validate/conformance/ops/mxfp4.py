"""Contract of ``mxfp4``: four-bit elements (e2m1), one power-of-two scale (e8m0) a block of 32."""

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from validate.conformance.ops._prob_rows import Array, as_dtype, smaller_rows, widened
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
from validate.oracle import e8m0_of, e8m0_values, mxfp4_decode, mxfp4_encode
from validate.oracle.formats import MX_BLOCK, ScaleRule

__all__ = ["OPERATION"]

FLUSHED = float(np.finfo(np.float32).tiny)
NEAR = 2.0**-20
"""A block's largest magnitude this near 1.5 * 2^k may come out either way of ``nearest``."""
KINDS = ("ties", "normal", "amplitude 16", "tiny", "zero block", "edges", "outlier")

CONTRACT = Contract(
    op="mxfp4",
    title="Encode rows to e2m1 with an e8m0 scale a block of 32, and decode them",
    signature="mxfp4(x float32 or bfloat16 [rows, n], packed uint8 [rows, m / 2], scales uint8 "
    "[rows, m / 32]) -> encoded uint8 [rows, n / 2], encoded_scales uint8 [rows, n / 32], "
    "decoded float32 [rows, m]",
    outputs=("encoded", "encoded_scales", "decoded"),
    clauses={
        "decoded": "Each of the 16 codes is its value times 2^(scale - 127), exactly; the earlier "
        "element is in the low four bits; scale 255 is NaN throughout its block. Subnormal "
        "products may be flushed.",
        "scales": "The scale is 2^(floor(log2 of the largest magnitude) - 2) (scale_rule=floor), or the "
        "nearest power, up from 1.5 * 2^k on (nearest), where either code is right within "
        "2^-20 of 1.5 * 2^k. A block of zeros may have any scale but NaN.",
        "elements": "x over the scale that was chosen is rounded to the nearest value, ties to the "
        "even code, saturating at 6: strictly, since a power of two divides exactly.",
        "row-order": "Rows in reversed order give the same codes and values.",
    },
    settings={"scale_rule": ("floor", "nearest")},
)


def _cases(effort: Effort, settings: Settings) -> Iterator[Case]:
    del settings
    for number, kind in enumerate(KINDS):
        for rows in (1, 3) if effort is Effort.QUICK else (1, 2, 3, 5):
            dtypes = ("float32", "bfloat16")
            for dtype in dtypes if effort is Effort.FULL else (dtypes[(number + rows) % 2],):
                yield _case(kind, rows, dtype)


def _case(kind: str, rows: int, dtype: str) -> Case:
    rng = np.random.default_rng([KINDS.index(kind), rows])
    x = as_dtype(_values(kind, rows, rng), dtype)
    # Every code at every scale whose products are normal float32 numbers, and the NaN scale.
    every = np.append(np.arange(4, 252), [255] * 8).astype(np.uint8)
    scales = np.stack([np.roll(every, row) for row in range(rows)])
    # No block holds its codes in its neighbour's order, so that a block read for another shows.
    packed = np.tile(
        np.concatenate([np.roll(_all_codes(), b) for b in range(len(every))]), (rows, 1)
    )
    axes: dict[str, Axis] = {"rows": rows, "kind": kind, "dtype": dtype}
    inputs = {"x": x, "packed": packed, "scales": scales}
    return Case(id=f"B{rows}-{kind.replace(' ', '')}-{dtype}", axes=axes, inputs=inputs)


def _all_codes() -> NDArray[np.uint8]:
    """One block: each code in a low and in a high half, never beside its equal."""
    low = np.arange(16, dtype=np.uint8)
    return np.asarray(low | (((low + 5) % 16) << 4), np.uint8)


def _values(kind: str, rows: int, rng: np.random.Generator) -> Array:
    x = rng.normal(size=(rows, 4, MX_BLOCK))
    if kind == "ties":
        middles = np.array([0.25, 0.75, 1.25, 1.75, 2.5, 3.5, 5.0, 6.0])
        powers = np.ldexp(1.0, np.array([0, -3, 5, -20]))
        x = np.resize(np.concatenate([middles, -middles]), (rows, 4, MX_BLOCK))
        x = x * powers[None, :, None]
    elif kind == "amplitude 16":
        x = x * 16.0
    elif kind == "tiny":
        x = x * 2.0**-100
    elif kind == "zero block":
        x[:, 1] = 0.0
    elif kind == "outlier":
        x[:, :, 7] = 1000.0 * np.array([1.0, 1.3, 1.6, 1.9])
    elif kind == "edges":
        # Largest magnitudes on, just below and just above the edges of both rules.
        x = np.clip(x, -0.9, 0.9)
        x[:, :, 0] = np.array([1.0, 1.5, 1.5 - 2.0**-8, 1.9921875])
    return np.asarray(x.reshape(rows, -1), np.float64)


def _outputs(inputs: Mapping[str, Any], settings: Settings) -> Mapping[str, OutputSpec]:
    del settings
    rows, n = inputs["x"].shape
    half = inputs["packed"].shape[1]
    return {
        "encoded": OutputSpec(shape=(rows, n // 2), dtype="uint8"),
        "encoded_scales": OutputSpec(shape=(rows, n // MX_BLOCK), dtype="uint8"),
        "decoded": OutputSpec(shape=(rows, half * 2), dtype="float32"),
    }


def _check(case: Case, call: Call, settings: Settings) -> tuple[Breach, ...]:
    rule: ScaleRule = "nearest" if settings["scale_rule"] == "nearest" else "floor"
    out = call(case.inputs)
    found = _decoded(case, out["decoded"]) + _encoded(case, out, rule)
    if found or len(case.inputs["x"]) == 1:
        return found
    turned = call({name: np.ascontiguousarray(value[::-1]) for name, value in case.inputs.items()})
    for name, value in out.items():
        differ = np.any(turned[name][::-1].view(np.uint8) != value.view(np.uint8), axis=1)
        if differ.any():
            row = int(np.argmax(differ))
            what = f"{name}: row {row} differs when the rows are reversed"
            return (Breach(clause="row-order", what=what, at={"row": row}),)
    return ()


def _decoded(case: Case, got: np.ndarray) -> tuple[Breach, ...]:
    scales = case.inputs["scales"]
    expected = mxfp4_decode(case.inputs["packed"], scales)
    values = widened(got)
    nan = np.isnan(expected)
    small = np.abs(expected) < FLUSHED
    right = (values == expected) | (nan & np.isnan(values))
    right |= small & (np.abs(values) < FLUSHED)
    if right.all():
        return ()
    row, at = (int(i) for i in np.unravel_index(int(np.argmax(~right)), right.shape))
    code = int(case.inputs["packed"][row, at // 2]) >> (4 * (at % 2)) & 15
    blocks = ~right.reshape(len(values), -1, MX_BLOCK).all(axis=2)
    what = (
        f"decoded row {row}, element {at}: code {code} with scale {scales[row, at // MX_BLOCK]} is "
        f"{values[row, at]:.6g}, oracle {expected[row, at]:.6g}; {int((~right).sum())} of "
        f"{right.size} are off, in {int(blocks.sum())} of {blocks.size} blocks"
    )
    wrong = {"scale": tuple(int(i) for i in np.unique(scales[blocks])[:256])}
    return (Breach(clause="decoded", what=what, at={"row": row, "element": at}, wrong=wrong),)


def _encoded(case: Case, out: Mapping[str, np.ndarray], rule: ScaleRule) -> tuple[Breach, ...]:
    x = widened(case.inputs["x"])
    largest = np.abs(x).reshape(len(x), -1, MX_BLOCK).max(axis=2)
    codes = out["encoded_scales"]
    low, high = e8m0_of(largest, rule=rule), e8m0_of(largest, rule=rule)
    if rule == "nearest":
        low, high = (e8m0_of(largest * (1 + side * NEAR), rule=rule) for side in (-1.0, 1.0))
    allowed = (codes == low) | (codes == high) | ((largest == 0) & (codes != 255))  # noqa: PLR2004
    if not allowed.all():
        row, block = (int(i) for i in np.unravel_index(int(np.argmax(~allowed)), allowed.shape))
        what = (
            f"row {row}, block {block}: largest magnitude {largest[row, block]:.8g} has scale code "
            f"{codes[row, block]}, oracle {low[row, block]} ({float(e8m0_values()[low[row, block]]):g}); "
            f"{int((~allowed).sum())} of {allowed.size} scales are off"
        )
        place = {"row": row, "block": block}
        return (Breach(clause="scales", what=what, at=place),)
    right = mxfp4_encode(x, scales=codes).packed
    got = out["encoded"]
    # A zero has two codes.
    differ = np.where((right & 7) | (got & 7), (right ^ got) & 15, 0) != 0
    differ |= np.where((right & 0x70) | (got & 0x70), (right ^ got) & 0xF0, 0) != 0
    if not differ.any():
        return ()
    row, at = (int(i) for i in np.unravel_index(int(np.argmax(differ)), differ.shape))
    what = (
        f"row {row}, elements {2 * at} and {2 * at + 1} ({x[row, 2 * at]:.6g}, {x[row, 2 * at + 1]:.6g}): "
        f"byte 0x{int(got[row, at]):02X}, oracle 0x{int(right[row, at]):02X}; {int(differ.sum())} of "
        f"{differ.size} bytes are off"
    )
    return (Breach(clause="elements", what=what, at={"row": row, "byte": at}),)


def _shrink(case: Case) -> Iterator[Case]:
    return smaller_rows(case, rows={"x": 0, "packed": 0, "scales": 0})


OPERATION = Operation(
    contract=CONTRACT,
    cases=_cases,
    outputs=_outputs,
    check=_check,
    shrink=_shrink,
)
