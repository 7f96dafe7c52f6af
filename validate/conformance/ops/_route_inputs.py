"""Inputs of the router sweep: logits, correction bias, and what each coordinate means."""

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import product
from typing import Any

import numpy as np
from numpy.typing import NDArray

from validate.conformance.captured_linear import captured
from validate.conformance.ops._kda_inputs import generator
from validate.conformance.ops._packed import typed
from validate.conformance.ops._rows import MANY
from validate.conformance.records import Axis, Case

__all__ = ["RoutePoint", "full", "make_case", "quick"]

Array = NDArray[np.float64]


@dataclass(frozen=True, slots=True, kw_only=True)
class RoutePoint:
    """One sweep point, before its numbers are drawn."""

    rows: int = 5
    experts: int = 32
    top_k: int = 4
    dtype: str = "float32"
    kind: str = "normal"
    """``peaked``: a few experts far ahead, as trained routers have them; ``saturated``: sigmoids
    of 1 and of 0; ``underflow``: every sigmoid vanishes (0/0 without the 1e-20); ``ties``: equal
    logits in groups; ``close``: neighbours nearer than bfloat16 tells apart;
    ``every``: each expert is chosen by some row, the first and the last too, where there are rows
    enough; ``captured``: k3-nano's router (16 experts, its own bias)."""
    bias: str = "trained"
    """``zero``; ``trained``: within 0.1; ``narrow``: in [6.817, 7.063], as GLM-5.2's, where bfloat16
    has eight values; ``negative``: down to -2, so that biased scores are below 0; ``group``: equal
    in the groups of ``ties``."""
    renormalize: bool = True
    scale: float = 1.0
    padded: int = 0
    """Rows past ``valid_rows``; they hold NaN."""
    probe: str = "plain"
    poison: str = "none"

    @property
    def id(self) -> str:
        """Readable and unique name."""
        dtype = {"bfloat16": "bf16", "float32": "f32"}[self.dtype]
        words = [f"B{self.rows}", f"E{self.experts}", f"k{self.top_k}", dtype, self.kind]
        words += [f"bias-{self.bias}", f"s{self.scale:g}"]
        words += [] if self.renormalize else ["raw"]
        words += [f"pad{self.padded}"] if self.padded else []
        plain = {"plain", "nan-none"}
        words += [word for word in (self.probe, f"nan-{self.poison}") if word not in plain]
        return "-".join(words)


def make_case(point: RoutePoint) -> Case:
    """The arguments of one point."""
    rng = generator(point.id)
    logits = _logits(point, rng)
    bias = _bias(point, rng)
    if point.padded:
        logits = np.concatenate([logits, np.full((point.padded, point.experts), np.nan)])
    if point.poison == "row":
        logits[1] = np.nan
    inputs: dict[str, Any] = {
        "logits": typed(logits, point.dtype),
        "correction_bias": bias.astype(np.float32),
        "top_k": point.top_k,
        "renormalize": point.renormalize,
        "scale": point.scale,
        "valid_rows": point.rows,
    }
    axes: dict[str, Axis] = {name: getattr(point, name) for name in point.__dataclass_fields__}
    return Case(id=point.id, axes=axes, inputs=inputs)


def _logits(point: RoutePoint, rng: np.random.Generator) -> Array:
    shape = (point.rows, point.experts)
    logits: Array = rng.normal(0.0, 1.5, shape)
    if point.kind == "captured":
        logits = captured()["route.logits"][: point.rows].astype(np.float64)
    if point.kind == "peaked":
        logits = rng.normal(-3.0, 1.0, shape)
        ahead = rng.random(shape) < 2.0 * point.top_k / point.experts
        logits = np.where(ahead, rng.normal(1.5, 1.0, shape), logits)
    if point.kind == "every":
        logits = rng.normal(-6.0, 0.5, shape)
        order = np.resize(rng.permutation(point.experts), (point.rows, point.top_k))
        np.put_along_axis(logits, order, rng.normal(2.0, 1.0, order.shape), axis=1)
    if point.kind == "saturated":
        logits = 40.0 * np.sign(logits) + logits
    if point.kind == "underflow":
        logits = -200.0 + logits
    if point.kind == "ties":
        logits = np.repeat(logits[:, ::4], 4, axis=1)[:, : point.experts]
    if point.kind == "close":
        step = rng.permuted(np.tile(np.arange(point.experts), (point.rows, 1)), axis=1)
        logits = 1.0 + 1e-4 * step
    return logits


def _bias(point: RoutePoint, rng: np.random.Generator) -> Array:
    bias: Array = rng.uniform(-0.1, 0.1, point.experts)
    if point.kind == "captured":
        bias = captured()["route.bias"].astype(np.float64)
    if point.bias == "zero":
        bias = np.zeros(point.experts)
    if point.bias == "narrow":
        bias = rng.permutation(np.linspace(6.817, 7.063, point.experts))
    if point.bias == "negative":
        bias = rng.uniform(-2.0, 0.0, point.experts)
    if point.bias == "group":
        bias = np.repeat(bias[::4], 4)[: point.experts]
    return bias


def quick(*, raw: bool) -> Iterator[RoutePoint]:
    """Every axis value and every hazard once; ``raw``: weights that are not renormalised too."""
    for experts, top_k in ((8, 1), (8, 2), (8, 8), (16, 4), (60, 6), (64, 8), (256, 8), (896, 16)):
        for dtype in ("float32", "bfloat16"):
            yield RoutePoint(experts=experts, top_k=top_k, dtype=dtype)
    yield from _choices()
    for kind, bias in product(("peaked", "saturated", "underflow", "close"), ("trained", "zero")):
        yield RoutePoint(kind=kind, bias=bias)
    for bias in ("zero", "narrow", "negative"):
        yield RoutePoint(bias=bias, experts=64, rows=8)
    for bias in ("zero", "group"):
        yield RoutePoint(kind="ties", bias=bias)
    for dtype in ("bfloat16", "float32"):
        yield RoutePoint(rows=66, experts=16, kind="captured", dtype=dtype)
    for scale in (2.5, 0.5):
        yield RoutePoint(scale=scale)
    yield from _batches()
    if raw:
        for scale, dtype in product((1.0, 2.5), ("float32", "bfloat16")):
            yield RoutePoint(renormalize=False, scale=scale, dtype=dtype)


def _choices() -> Iterator[RoutePoint]:
    """Numbers of choices that are no power of two, and every expert chosen once."""
    for top_k in (3, 5, 6, 7, 10, 12):
        yield RoutePoint(experts=48, top_k=top_k)
    for experts, top_k in ((8, 2), (32, 5), (256, 8), (896, 16)):
        yield RoutePoint(rows=-(-experts // top_k), experts=experts, top_k=top_k, kind="every")


def _batches() -> Iterator[RoutePoint]:
    """Row order, rows alone, padding, poison, repeats."""
    for rows in (1, 2, 3, 5):
        yield RoutePoint(rows=rows, probe="rows")
    for rows in MANY:
        yield RoutePoint(rows=rows, experts=16)
    for rows, padded in ((1, 7), (3, 1), (7, 9), (0, 5), (65, 63)):
        yield RoutePoint(rows=rows, padded=padded)
    yield RoutePoint(poison="row")
    yield RoutePoint(probe="repeats", rows=17)


def full(*, raw: bool) -> Iterator[RoutePoint]:
    """The cross of axes."""
    for (experts, top_k), dtype, kind, bias, renormalize, rows in product(
        ((16, 4), (60, 6), (256, 8), (896, 16)),
        ("float32", "bfloat16"),
        ("normal", "peaked", "saturated", "underflow", "close"),
        ("zero", "trained", "narrow", "negative"),
        (True, False) if raw else (True,),
        (1, 33),
    ):
        yield RoutePoint(
            rows=rows,
            experts=experts,
            top_k=top_k,
            dtype=dtype,
            kind=kind,
            bias=bias,
            renormalize=renormalize,
        )
