"""The contract that both eight-bit formats share; each format is one module beside this."""

from collections.abc import Iterator, Mapping
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from validate.conformance.ops._prob_rows import U32, Array, as_dtype, smaller_rows, widened
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
from validate.oracle import float8_decode, float8_encode, float8_values
from validate.oracle.formats import Float8, Overflow

__all__ = ["float8_operation"]

FLUSHED = float(np.finfo(np.float32).tiny)
REQUANTISED = 2.0**-4
"""One rounding to a format of four significand bits."""
SCALES: Mapping[str, tuple[float, ...]] = {
    "one": (1.0,),
    "powers": (1.0, 0.5, 2.0, 0.0625, 256.0),
    "any": (0.3, 1.7, 0.011, 3.0, 117.0),
    "mixed": (1.0, 0.3, 2.0),
}
KINDS = ("ties", "spread", "amplitude 1", "amplitude 200", "amplitude 1000", "damaged")


def float8_operation(fmt: Float8, *, title: str) -> Operation:
    """Contract, sweep and judge of one format."""
    contract = Contract(
        op=fmt,
        title=title,
        signature=f"{fmt}(x float32 or bfloat16 [rows, n], scale float32 [rows], codes uint8 "
        "[rows, 256]) -> encoded uint8 [rows, n], decoded float32 [rows, 256]",
        outputs=("encoded", "decoded"),
        clauses={
            "decoded": "Each of the 256 codes is its value times its row's scale, within 2 u of "
            "float32; NaN codes are NaN. decoded=requantised allows one more rounding of four "
            "significand bits, a declared deviation.",
            "encoded": "x / scale is rounded to the nearest value, ties to the even fraction: strictly where "
            "the quotient is exact, else free within 4 u of a midpoint. The sign of 0 is free.",
            "overflow": "What rounds beyond the largest value, infinities included, is the largest "
            "(overflow=saturate) or NaN (overflow=nan); NaN stays NaN.",
            "scale": "A row's values have least-squares factor 1 to the oracle's, within 1 % (1/16 "
            "once requantised): the scale that was given is the one in force.",
            "row-order": "Rows in reversed order give the same codes and values.",
        },
        settings={"overflow": ("saturate", "nan"), "decoded": ("exact", "requantised")},
    )
    return Operation(
        contract=contract,
        cases=partial(_cases, fmt),
        outputs=_outputs,
        check=partial(_check, fmt),
        shrink=lambda case: smaller_rows(
            case, rows={"x": 0, "scale": 0, "codes": 0}, columns={"x": 1}
        ),
    )


def _cases(fmt: Float8, effort: Effort, settings: Settings) -> Iterator[Case]:
    del settings
    dtypes = ("float32", "bfloat16")
    for number, (label, scales) in enumerate(SCALES.items()):
        for turn, kind in enumerate(KINDS):
            chosen = dtypes if effort is Effort.FULL else (dtypes[(number + turn) % 2],)
            for dtype in chosen:
                yield _case(fmt, label, scales, kind, dtype)


def _case(fmt: Float8, label: str, scales: tuple[float, ...], kind: str, dtype: str) -> Case:
    scale = np.array(scales, np.float32)
    rng = np.random.default_rng([KINDS.index(kind), len(scales)])
    rows = np.stack([_row(fmt, kind, rng) for _ in scales])
    x = as_dtype(rows * scale.astype(np.float64)[:, None], dtype)
    codes = np.tile(np.arange(256, dtype=np.uint8), (len(scales), 1))
    axes: dict[str, Axis] = {"rows": len(scales), "scales": label, "kind": kind, "dtype": dtype}
    inputs = {"x": x, "scale": scale, "codes": codes}
    return Case(id=f"{kind.replace(' ', '')}-{label}-{dtype}", axes=axes, inputs=inputs)


def _row(fmt: Float8, kind: str, rng: np.random.Generator) -> Array:
    """What x / scale holds."""
    table = float8_values(fmt)
    finite = np.sort(table[np.isfinite(table)])
    if kind == "ties":
        return np.asarray((finite[1:] + finite[:-1]) / 2, np.float64)
    if kind == "spread":
        return np.concatenate([np.linspace(-finite[-1], finite[-1], 401), finite])
    if kind == "damaged":
        row = rng.normal(size=64)
        row[[3, 17, 31]] = (np.nan, np.inf, -np.inf)
        return np.asarray(row, np.float64)
    return np.asarray(rng.normal(size=256) * float(kind.split()[1]), np.float64)


def _outputs(inputs: Mapping[str, Any], settings: Settings) -> Mapping[str, OutputSpec]:
    del settings
    return {
        "encoded": OutputSpec(shape=inputs["x"].shape, dtype="uint8"),
        "decoded": OutputSpec(shape=inputs["codes"].shape, dtype="float32"),
    }


def _check(fmt: Float8, case: Case, call: Call, settings: Settings) -> tuple[Breach, ...]:
    out = call(case.inputs)
    found = _decoded(fmt, case, out["decoded"], settings) + _encoded(fmt, case, out, settings)
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


def _decoded(fmt: Float8, case: Case, got: np.ndarray, settings: Settings) -> tuple[Breach, ...]:
    scale = case.inputs["scale"].astype(np.float64)[:, None]
    expected = float8_decode(case.inputs["codes"], fmt) * scale
    values = widened(got)
    factor = _factors(values, expected)
    once = settings["decoded"] == "requantised"
    off = ~(np.abs(factor - 1.0) <= (REQUANTISED if once else 0.01))
    if off.any():
        row = int(np.argmax(off))
        what = (
            f"decoded row {row} is {factor[row]:.4g} times what it has to be, "
            f"scale {scale[row, 0]:g}"
        )
        wrong = {"row": tuple(int(i) for i in np.flatnonzero(off))}
        return (Breach(clause="scale", what=what, at={"row": row}, wrong=wrong),)
    nan = np.isnan(expected)
    limit = 2 * U32 * np.abs(np.where(nan, 0.0, expected)) + FLUSHED
    if once:
        finest = np.nanmin(np.where(expected > 0, expected, np.nan), axis=1)[:, None]
        limit = REQUANTISED * np.abs(np.where(nan, 0.0, expected)) + finest
    err = np.where(nan, 0.0, np.abs(values - np.where(nan, 0.0, expected)))
    wrong_nan = np.isnan(values) != nan
    bad = ~(err <= limit) | wrong_nan
    if not bad.any():
        return ()
    row, at = (int(i) for i in np.unravel_index(int(np.argmax(bad)), bad.shape))
    code = int(case.inputs["codes"][row, at])
    what = (
        f"decoded row {row}: code 0x{code:02X} is {values[row, at]:.6g}, oracle {expected[row, at]:.6g} "
        f"(scale {scale[row, 0]:g}); {int(bad.sum())} of {bad.size} codes are off"
    )
    wrong = {"code": tuple(int(i) for i in np.unique(case.inputs["codes"][bad])[:256])}
    return (Breach(clause="decoded", what=what, at={"row": row, "code": code}, wrong=wrong),)


def _factors(values: Array, expected: Array) -> Array:
    """Least-squares factor of each row over entries finite on both sides; NaN when none are."""
    both = np.isfinite(values) & np.isfinite(expected)
    a, b = np.where(both, values, 0.0), np.where(both, expected, 0.0)
    with np.errstate(invalid="ignore", divide="ignore"):
        return np.asarray(np.sum(a * b, axis=1) / np.sum(b * b, axis=1), np.float64)


def _encoded(
    fmt: Float8, case: Case, out: Mapping[str, np.ndarray], settings: Settings
) -> tuple[Breach, ...]:
    overflow: Overflow = "nan" if settings["overflow"] == "nan" else "saturate"
    scale = case.inputs["scale"].astype(np.float64)[:, None]
    exact = np.frexp(scale)[0] == 0.5  # noqa: PLR2004  a power of two divides exactly
    with np.errstate(invalid="ignore"):
        quotient = widened(case.inputs["x"]) / scale
    slack = np.where(exact, 0.0, 4 * U32)
    values = float8_values(fmt)[out["encoded"]]
    low, high = (
        float8_values(fmt)[float8_encode(quotient * (1 + side * slack), fmt, overflow=overflow)]
        for side in (-1.0, 1.0)
    )
    right = (values == low) | (values == high)
    right |= np.isnan(values) & (np.isnan(low) | np.isnan(high))
    if right.all():
        return ()
    table = float8_values(fmt)
    beyond = ~right & ~(np.abs(quotient) <= np.nanmax(table))
    found = []
    for clause, mask in (("overflow", beyond), ("encoded", ~right & ~beyond)):
        if mask.any():
            row, at = (int(i) for i in np.unravel_index(int(np.argmax(mask)), mask.shape))
            what = (
                f"encoded row {row}, element {at}: {quotient[row, at]:.8g} (scale {scale[row, 0]:g}) "
                f"is code 0x{int(out['encoded'][row, at]):02X} ({values[row, at]:g}), oracle "
                f"{low[row, at]:g}; {int(mask.sum())} of {mask.size} are off"
            )
            wrong = {"row": _rows(mask)}
            found.append(Breach(clause=clause, what=what, at={"row": row}, wrong=wrong))
    return tuple(found)


def _rows(mask: NDArray[np.bool_]) -> tuple[int, ...]:
    return tuple(int(i) for i in np.flatnonzero(mask.any(axis=1)))
