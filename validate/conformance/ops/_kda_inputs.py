"""Inputs of the KDA sweeps: what each coordinate of a sweep point means.

``q``, ``k``, ``v``, ``f`` and ``b`` are what the layer's projections give: the operation
itself normalises q and k, makes the log decay from f and beta from b.
"""

import zlib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from validate.conformance.captured_linear import captured
from validate.conformance.ops._packed import padded, typed
from validate.conformance.records import Axis

__all__ = ["LOWER_BOUND", "PER_TOKEN", "KdaPoint", "arguments", "axes_of", "generator"]

LOWER_BOUND = -5.0
"""Kimi K3's ``gate_lower_bound``."""
PER_TOKEN = ("q", "k", "v", "f", "b")
"""Arguments whose first axis is the token axis."""

Array = NDArray[np.float64]


@dataclass(frozen=True, slots=True, kw_only=True)
class KdaPoint:
    """One sweep point, before its numbers are drawn."""

    lengths: tuple[int, ...] = (33,)
    heads: int = 4
    key: int = 16
    value: int = 24
    dtype: str = "bfloat16"
    decay: str = "typical"
    """``typical``; ``slow``: g near 0; ``strong``: g near -5; ``mixed``: channels of both."""
    beta: str = "typical"
    """``typical``; ``zero``: nothing is written; ``one``: what is recalled is replaced."""
    keys: str = "random"
    """``random``; ``run``: one key for all tokens of a head; ``recall``: q is an earlier k;
    ``zero``: rows of zeros; ``tiny``: so short that the eps of the L2 norm counts; ``captured``:
    everything as k3-nano's last KDA layer was given it (12 heads, 16 x 16, 66 tokens)."""
    amplitude: int = 1
    """Factor of v, and of q and k (which their norm takes out again)."""
    initial: bool = False
    """A state from before, as large as values that were written."""
    poison: str = "none"
    """NaN in ``padding`` tokens, in one whole ``sequence``, or in unused state ``slots``."""
    probe: str = "plain"
    """What else is called beside the point itself: see ``_kda.check``."""
    cut: int = 0
    """Tokens of the first of two calls, for ``probe = pieces``."""
    bound: float = LOWER_BOUND
    """``lower_bound`` of the gate."""

    @property
    def id(self) -> str:
        """Readable and unique name."""
        lengths = "+".join(str(n) for n in self.lengths)
        words = [f"T{lengths}", f"H{self.heads}", f"K{self.key}", f"V{self.value}"]
        words.append({"bfloat16": "bf16", "float32": "f32"}.get(self.dtype, self.dtype))
        words += [f"{self.decay}", f"beta-{self.beta}", self.keys, f"x{self.amplitude}"]
        words += ["state"] if self.initial else []
        words += [f"nan-{self.poison}"] if self.poison != "none" else []
        words += [self.probe] if self.probe != "plain" else []
        words += [f"at{self.cut}"] if self.cut else []
        words += [f"L{-self.bound:g}"] if self.bound != LOWER_BOUND else []
        return "-".join(words)


def axes_of(point: KdaPoint) -> dict[str, Axis]:
    """Coordinates for the pattern among failures."""
    return {
        "tokens": max(point.lengths),
        "sequences": len(point.lengths),
        "heads": point.heads,
        "key": point.key,
        "value": point.value,
        "dtype": point.dtype,
        "decay": point.decay,
        "beta": point.beta,
        "keys": point.keys,
        "amplitude": point.amplitude,
        "initial": point.initial,
        "poison": point.poison,
        "probe": point.probe,
        "cut": point.cut,
        "bound": point.bound,
    }


def generator(name: str) -> np.random.Generator:
    """A generator that depends on nothing but the name."""
    return np.random.default_rng(zlib.crc32(name.encode()))


def arguments(point: KdaPoint) -> dict[str, Any]:
    """Arguments of the call but for the state; drawn from the point's own name."""
    if point.keys == "captured":
        return _poisoned(point, _captured(point))
    rng = generator(point.id)
    tokens, shape = sum(point.lengths), (sum(point.lengths), point.heads, point.key)
    a_log = rng.normal(0.3, 0.4, point.heads)
    dt_bias = rng.normal(0.0, 0.5, (point.heads, point.key))
    f = _gate_input(point, rng, shape) / np.exp(a_log)[:, None] - dt_bias
    q, k = _queries_and_keys(point, rng, shape)
    v = point.amplitude * rng.normal(size=(tokens, point.heads, point.value))
    b = {"zero": -100.0, "one": 40.0}.get(point.beta, 0.0) + rng.normal(
        0.0, 1.5, (tokens, point.heads)
    )
    wide = {"q": q, "k": k, "v": v, "f": f, "b": b}
    made: dict[str, Any] = {
        name: typed(array, "float32" if name == "b" else point.dtype)
        for name, array in wide.items()
    }
    made |= {
        "a_log": a_log.astype(np.float32),
        "dt_bias": dt_bias.astype(np.float32),
        "lower_bound": point.bound,
        "cu_seqlens": np.cumsum([0, *point.lengths], dtype=np.int64),
    }
    return _poisoned(point, made)


def _captured(point: KdaPoint) -> dict[str, Any]:
    tokens, held = sum(point.lengths), captured()
    made: dict[str, Any] = {
        name: typed(held[f"kda.{name}"][:tokens], "float32" if name == "b" else point.dtype)
        for name in PER_TOKEN
    }
    return made | {
        "a_log": held["kda.a_log"].copy(),
        "dt_bias": held["kda.dt_bias"].copy(),
        "lower_bound": point.bound,
        "cu_seqlens": np.cumsum([0, *point.lengths], dtype=np.int64),
    }


def _poisoned(point: KdaPoint, made: dict[str, Any]) -> dict[str, Any]:
    if point.poison == "padding":
        for name in PER_TOKEN:
            made[name] = padded(made[name], 7, fill=np.nan)
    if point.poison == "sequence":
        start = int(made["cu_seqlens"][1])
        for name in PER_TOKEN:
            made[name][start : int(made["cu_seqlens"][2])] = np.nan
    return made


def _gate_input(point: KdaPoint, rng: np.random.Generator, shape: tuple[int, ...]) -> Array:
    """Argument of the gate's sigmoid: the log decay is ``bound`` times the sigmoid of it."""
    centre = {"slow": -12.0, "strong": 9.0}.get(point.decay, -2.0)
    z: Array = rng.normal(centre, 0.3 if point.decay in {"slow", "strong"} else 1.5, shape)
    if point.decay == "mixed":
        fast = rng.random(shape[1:]) < 0.5  # noqa: PLR2004  half of the channels
        z = np.where(fast, rng.normal(9.0, 0.3, shape), rng.normal(-12.0, 0.3, shape))
    return z


def _queries_and_keys(
    point: KdaPoint, rng: np.random.Generator, shape: tuple[int, ...]
) -> tuple[Array, Array]:
    q, k = rng.normal(size=shape), rng.normal(size=shape)
    if point.keys == "run":
        k = np.broadcast_to(k[:1], shape).copy()
        q = k + 0.3 * q
    if point.keys == "recall":
        q = np.roll(k, 3, axis=0)
    if point.keys == "zero":
        q[::5], k[1::4] = 0.0, 0.0
    size = 2.0**-12 if point.keys == "tiny" else float(point.amplitude)
    return size * q, size * k


def initial_states(point: KdaPoint, count: int, *, like: Mapping[str, str]) -> np.ndarray | None:
    """States from before, [count, heads, key, value] or V-first, in the declared dtype."""
    if not point.initial:
        return None
    rng = generator(point.id + "-state")
    size = point.amplitude / np.sqrt(2.0)
    S = size * rng.normal(size=(count, point.heads, point.key, point.value))
    if like["layout"] == "v_first":
        S = np.ascontiguousarray(S.swapaxes(2, 3))
    return typed(S, like["state"])
