"""One pass over every captured state: the sums that the state metrics are made of.

A *unit* is what an error is measured over: one head of a KDA state; one of q, k, v at one
tap of a convolution state; a whole KV cache.

A tap is one token's alone, so a router's tie below it moves it by a whole expert's work, as
it moves any row of that token. Such taps are *set apart*: they raise a peak of their own.
Heads and caches hold many tokens, of which a tie moves one; their limits stand above that.
"""

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from validate.metrics._finite import Findings, look
from validate.metrics._places import Place, states
from validate.metrics._structure import ErrorMap, add_rows, find_structure, new_map
from validate.metrics._taps import taps_apart
from validate.metrics._tensors import noise_start
from validate.metrics._words import ratio
from validate.numerics import to_float64
from validate.schema import Pair, Worst

__all__ = ["HOWS", "KINDS", "Peak", "States", "state_scan", "state_structure"]

HOWS = ("oneshot", "chunked", "decode")
KINDS = ("kda", "conv", "kv")
TRANSPOSED = 4.0
"""A state is transposed when the transpose is this many times closer than the state itself."""
QKV = "qkv"

Array = NDArray[np.float64]


@dataclass(slots=True, kw_only=True)
class Peak:
    """The largest relative error seen, and where."""

    units: int = 0
    value: float = 0.0
    worst: Worst | None = None
    apart: int = 0
    """Units that a tie may have moved; neither counted nor looked at above."""
    apart_value: float = 0.0
    """The largest relative error of those."""
    apart_worst: Worst | None = None
    row: float = 0.0
    """KV only: the largest relative error of one token's row."""
    undefined: str | None = None
    """Where the denominator was all zero and the other side was not."""


@dataclass(slots=True, kw_only=True)
class States:
    """All that one pass over the states of a pair found."""

    across: dict[tuple[str, str], Peak] = field(default_factory=dict)
    """Ref against cand, by kind and how."""
    inside: dict[tuple[str, str, str], Peak] = field(default_factory=dict)
    """By (side, how, kind): ``oneshot`` against ``how`` inside one side."""
    maps: dict[tuple[int, str], ErrorMap] = field(default_factory=dict)
    """By (layer, how): KDA states, heads as heads and prompts as rows."""
    transposed2: dict[tuple[int, str], float] = field(default_factory=dict)
    """By (layer, how): squared distance of cand from ref with keys and values swapped."""
    bad: dict[str, Findings] = field(default_factory=dict)
    """By kind: states with non-finite values."""
    tensors: int = 0


def state_scan(pair: Pair) -> States:
    """Read every state of a pair once; the result stays with the pair."""
    return pair.once("state.scan", lambda: _scan(pair))


def _scan(pair: Pair) -> States:
    made = States()
    for prompt in pair.prompts:
        layers: dict[tuple[int, str], list[Place]] = {}
        for place in states(pair.ref.names(prompt)):
            layers.setdefault((place.layer, place.kind), []).append(place)
        for places in layers.values():
            _add_layer(made, pair, prompt, places)
    return made


def _add_layer(made: States, pair: Pair, prompt: str, places: list[Place]) -> None:
    """Add one layer's state of one kind, in every way it was made."""
    held: dict[str, dict[str, Array]] = {"ref": {}, "cand": {}}
    for place in places:
        made.tensors += 1
        sides = {
            "ref": pair.ref.tensor(prompt, place.name),
            "cand": pair.cand.tensor(prompt, place.name),
        }
        finding = look(prompt, place.name, sides)
        if finding is not None:
            made.bad.setdefault(place.kind, []).append(finding)
            continue
        for side, array in sides.items():
            held[side][place.mode] = to_float64(array)
        ref, cand = held["ref"][place.mode], held["cand"][place.mode]
        peak = made.across.setdefault((place.kind, place.mode), Peak())
        apart = taps_apart(pair, prompt, place, taps=ref.shape[-1])
        _raise(peak, ref, cand, prompt, place, apart)
        if place.kind == "kda":
            _add_map(made, ref, cand, place, pair.cand.manifest.batch_rows.get(prompt, 0))
    for side, by_how in held.items():
        for place in places:
            if place.mode != "oneshot" and {"oneshot", place.mode} <= set(by_how):
                peak = made.inside.setdefault((side, place.mode, place.kind), Peak())
                # Both ways inside one side: their routers are not compared with each other.
                apart = taps_apart(
                    pair, prompt, place, taps=by_how["oneshot"].shape[-1], seen=False
                )
                _raise(peak, by_how["oneshot"], by_how[place.mode], prompt, place, apart)


def _raise(
    peak: Peak,
    base: Array,
    other: Array,
    prompt: str,
    place: Place,
    apart: NDArray[np.bool_] | None = None,
) -> None:
    """Raise a peak to the worst unit of one state."""
    axes = _axes(place.kind)
    err2, base2 = (np.atleast_1d((array**2).sum(axis=axes)) for array in (other - base, base))
    # A unit that is all zero (taps before the first token) is held to the others' mean.
    errors = ratio(err2, np.where(base2 == 0, base2.mean(), base2))
    if not np.isfinite(errors).all():
        peak.undefined = peak.undefined or f"{prompt} {place.name}"
        return
    away = np.broadcast_to(False if apart is None else apart, errors.shape)
    peak.units += int(np.count_nonzero(~away))
    peak.apart += int(np.count_nonzero(away))
    free = _top(errors, ~away, prompt, place)
    if free is not None and (free[0] > peak.value or peak.worst is None):
        peak.value, peak.worst = free
    tied = _top(errors, away, prompt, place)
    if tied is not None and (tied[0] > peak.apart_value or peak.apart_worst is None):
        peak.apart_value, peak.apart_worst = tied
    if place.kind == "kv" and base.ndim > 1 and len(base):
        rows = ((other - base) ** 2).sum(axis=1), (base**2).sum(axis=1)
        peak.row = float(
            np.fmax(peak.row, ratio(rows[0], np.maximum(rows[1], rows[1].mean())).max())
        )


def _top(
    errors: Array, among: NDArray[np.bool_], prompt: str, place: Place
) -> tuple[float, Worst] | None:
    """The largest error among some units of a state, and where; None: there are none."""
    if not among.any():
        return None
    index = np.unravel_index(int(np.argmax(np.where(among, errors, -1.0))), errors.shape)
    value = float(errors[index])
    where = _unit(place.kind, tuple(int(i) for i in index))
    return value, Worst(prompt=prompt, place=f"{place.name}{where}", value=value)


def _axes(kind: str) -> tuple[int, ...]:
    """Axes within a unit: KDA (heads, key, value), conv (qkv, channels, taps), KV (tokens, latent)."""
    return {"kda": (1, 2), "conv": (1,), "kv": (0, 1)}[kind]


def _unit(kind: str, index: tuple[int, ...]) -> str:
    if kind == "kda":
        return f" head {index[0]}"
    return f" {QKV[index[0]]} tap {index[1]}" if kind == "conv" else ""


def _add_map(made: States, ref: Array, cand: Array, place: Place, batch_row: int) -> None:
    """Add a KDA state to the error map of its layer and way: one row, a head's numbers in line."""
    key = place.layer, place.mode
    heads = len(ref)
    errors = made.maps.setdefault(key, new_map(heads, buckets=1))
    flat = (side.reshape(1, heads, -1) for side in (ref, cand))
    add_rows(errors, *flat, batch_row=batch_row, positions=np.zeros(1, dtype=np.int64))
    if ref.shape[1] == ref.shape[2]:
        gap2 = float(((cand - ref.transpose(0, 2, 1)) ** 2).sum())
        made.transposed2[key] = made.transposed2.get(key, 0.0) + gap2


def state_structure(pair: Pair, found: States) -> str | None:
    """Name what is wrong in the first layer whose KDA state is, for each way of making it."""
    noise = noise_start(pair.ref, pair.cand)
    texts: dict[str, str] = {}
    for (layer, how), errors in sorted(found.maps.items()):
        if how in texts:
            continue
        text = _transposed(errors, found.transposed2.get((layer, how))) or find_structure(
            errors, noise=noise
        )
        if text is not None:
            texts[how] = f"state.{how}.kda.{layer}: {text}"
        else:
            noise = float(np.fmax(noise, ratio(errors.err2, errors.ref2).max()))
    return "; ".join(texts.values()) or None


def _transposed(errors: ErrorMap, gap2: float | None) -> str | None:
    """A state read with keys and values swapped equals ref's transpose."""
    if gap2 is None:
        return None
    own, other = (
        float(ratio(np.array(err2), np.array(errors.ref2.sum())))
        for err2 in (errors.err2.sum(), gap2)
    )
    if own > 0 and other * TRANSPOSED <= own:
        return "all heads transposed (cand[key, value] equals ref[value, key])"
    return None
