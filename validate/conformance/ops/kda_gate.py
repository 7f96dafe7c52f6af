"""Contract of ``kda_gate``: log decay and beta of Kimi Delta Attention."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import chain, product
from typing import Any

import numpy as np

from validate.conformance.captured_linear import captured
from validate.conformance.ops._kda_inputs import LOWER_BOUND, generator
from validate.conformance.ops._packed import typed
from validate.conformance.ops._rounding import Expected, roundoff_of
from validate.conformance.ops._rows import (
    CLAUSES,
    MANY,
    TINY,
    check_rows,
    logistic_condition,
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
from validate.oracle import lower_bound_gate, sigmoid

__all__ = ["OPERATION", "GatePoint", "make_case"]

_ROWS = {"f": 0, "b": 0}
HEADS = (4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128)

CONTRACT = Contract(
    op="kda_gate",
    title="KDA gate: g = L sigmoid(exp(A_log) (f + dt_bias)) and beta = sigmoid(b)",
    signature="kda_gate(f, b, a_log, dt_bias, lower_bound) -> (g, beta)",
    outputs=("g", "beta"),
    clauses={
        **CLAUSES,
        "element": CLAUSES["element"] + " Both outputs are float32 and made in float32.",
        "range": "g lies in [lower_bound, 0], beta in [0, 1].",
    },
    settings={"beta": ("float32", "bfloat16")},
)
"""f [tokens, heads, key] in bfloat16 or float32; b float32 [tokens, heads]; a_log float32
[heads]; dt_bias float32 [heads, key]; lower_bound below 0. Both outputs are fresh float32 memory. f and
b of any size saturate: g is then lower_bound or 0, exactly or nearly, never NaN. Oracle:
``validate.oracle.lower_bound_gate`` and ``sigmoid``. The quantities are per token: rows know nothing of
each other."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GatePoint:
    """One sweep point, before its numbers are drawn."""

    rows: int = 3
    heads: int = 4
    key: int = 16
    dtype: str = "bfloat16"
    kind: str = "normal"
    """``slow``: g near 0; ``strong``: g near the bound; ``saturated``: f of 1e4 either way;
    ``steep``: A_log from -3 to 4; ``captured``: k3-nano's last KDA layer (12 heads x 16)."""
    bound: float = LOWER_BOUND
    amplitude: int = 1
    probe: str = "plain"
    poison: str = "none"

    @property
    def id(self) -> str:
        """Readable and unique name."""
        dtype = {"bfloat16": "bf16", "float32": "f32"}[self.dtype]
        words = [f"B{self.rows}", f"H{self.heads}", f"K{self.key}", dtype, self.kind]
        words += [f"L{-self.bound:g}", f"x{self.amplitude}"]
        words += [
            word for word in (self.probe, f"nan-{self.poison}") if word not in {"plain", "nan-none"}
        ]
        return "-".join(words)


def make_case(point: GatePoint) -> Case:
    """The arguments of one point."""
    rng = generator(point.id)
    shape = (point.rows, point.heads, point.key)
    f = point.amplitude * rng.normal(
        {"slow": -9.0, "strong": 7.0}.get(point.kind, -0.5), 1.0, shape
    )
    b = point.amplitude * rng.normal(0.0, 2.0, shape[:2])
    a_log = rng.normal(0.3, 0.4, point.heads)
    if point.kind == "saturated":
        f, b = 1e4 * np.sign(f + 0.5), 1e3 * np.sign(b)
    if point.kind == "steep":
        a_log = np.linspace(-3.0, 4.0, point.heads)
    inputs: dict[str, Any] = {
        "f": typed(f, point.dtype),
        "b": typed(b, "float32"),
        "a_log": a_log.astype(np.float32),
        "dt_bias": rng.normal(0.0, 0.8, shape[1:]).astype(np.float32),
        "lower_bound": point.bound,
    }
    if point.kind == "captured":
        held, rows = captured(), slice(0, point.rows)
        inputs |= {name: held[f"kda.{name}"].copy() for name in ("a_log", "dt_bias")}
        inputs["f"] = typed(held["kda.f"][rows], point.dtype)
        inputs["b"] = held["kda.b"][rows].copy()
    axes: dict[str, Axis] = {name: getattr(point, name) for name in point.__dataclass_fields__}
    if point.poison == "row":
        poison_row(inputs, _ROWS)
    return Case(id=point.id, axes=axes, inputs=inputs)


def _quick() -> Iterator[GatePoint]:
    for kind, dtype in product(
        ("normal", "slow", "strong", "saturated", "steep"), ("bfloat16", "float32")
    ):
        yield GatePoint(kind=kind, dtype=dtype)
    for dtype in ("bfloat16", "float32"):
        yield GatePoint(rows=20, heads=12, kind="captured", dtype=dtype)
    for heads in HEADS:
        yield GatePoint(heads=heads)
    for key in (1, 7, 32, 64, 128):
        yield GatePoint(key=key)
    yield GatePoint(heads=12, key=128)
    for bound, dtype in product((-1.0, -4.0, -8.0), ("bfloat16", "float32")):
        yield GatePoint(bound=bound, dtype=dtype)
    for rows in MANY:
        yield GatePoint(rows=rows, heads=2, key=8)
    for amplitude in (4, 16):
        yield GatePoint(amplitude=amplitude)
    for rows in (1, 2, 3, 5):
        yield GatePoint(rows=rows, probe="rows")
    yield GatePoint(poison="row")
    yield GatePoint(probe="repeats")


def _full() -> Iterator[GatePoint]:
    for rows, heads, key, dtype, kind, amplitude in product(
        (1, 65),
        (6, 12, 96),
        (16, 128),
        ("bfloat16", "float32"),
        ("normal", "slow", "strong", "saturated", "steep"),
        (1, 4, 16),
    ):
        yield GatePoint(
            rows=rows, heads=heads, key=key, dtype=dtype, kind=kind, amplitude=amplitude
        )


def _cases(effort: Effort, _: Settings) -> Iterator[Case]:
    points = chain(_quick(), _full()) if effort is Effort.FULL else _quick()
    for point in dict.fromkeys(points):
        yield make_case(point)


def _expected(inputs: Mapping[str, Any], settings: Settings) -> Mapping[str, Expected]:
    """Oracle, and the rounding of it.

    z = exp(A_log)(f + dt_bias) errs relatively by a few roundoffs and by |A_log| more through
    the exponential; sigmoid passes that on by its condition.
    """
    f, b = to_float64(inputs["f"]), to_float64(inputs["b"])
    a_log, dt_bias = to_float64(inputs["a_log"]), to_float64(inputs["dt_bias"])
    bound = float(inputs["lower_bound"])
    g = lower_bound_gate(f, a_log=a_log, dt_bias=dt_bias, lower_bound=bound)
    z = np.exp(a_log)[:, None] * (f + dt_bias)
    sums = roundoff_of("float32")
    steep = 4.0 + np.abs(a_log)[:, None]
    g_scale = sums * np.abs(g) * (4.0 + steep * logistic_condition(z)) + TINY
    beta = sigmoid(b)
    beta_scale = sums * beta * (4.0 + logistic_condition(b)) + TINY
    beta_scale = beta_scale + roundoff_of(settings["beta"]) * beta
    return {
        "g": Expected(values=g, scale=g_scale, axes=("row", "head", "key")),
        "beta": Expected(values=beta, scale=beta_scale, axes=("row", "head")),
    }


def _outputs(inputs: Mapping[str, Any], _: Settings) -> Mapping[str, OutputSpec]:
    return {
        "g": OutputSpec(shape=inputs["f"].shape, dtype="float32"),
        "beta": OutputSpec(shape=inputs["b"].shape, dtype="float32"),
    }


def _check(case: Case, call: Call, settings: Settings) -> tuple[Breach, ...]:
    def within(inputs: Mapping[str, Any]) -> Mapping[str, np.ndarray]:
        got.update(call(inputs))
        return dict(got)

    got: dict[str, np.ndarray] = {}
    found = check_rows(case, within, lambda inputs: _expected(inputs, settings), rows=_ROWS)
    return found or _in_range(got, float(case.inputs["lower_bound"]))


def _in_range(got: Mapping[str, np.ndarray], bound: float) -> tuple[Breach, ...]:
    for name, low, high in (("g", bound, 0.0), ("beta", 0.0, 1.0)):
        outside = (got[name] < low) | (got[name] > high)
        if outside.any():
            at = tuple(int(i) for i in np.argwhere(outside)[0])
            what = f"output '{name}' at {at} is {got[name][at]:.9g}, outside [{low:g}, {high:g}]"
            return (Breach(clause="range", what=what),)
    return ()


def _shrink(case: Case) -> Iterator[Case]:
    return shrunk_rows(case, rows=_ROWS)


OPERATION = Operation(
    contract=CONTRACT, cases=_cases, outputs=_outputs, check=_check, shrink=_shrink
)
"""``kda_gate``."""
