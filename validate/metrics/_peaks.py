"""The worst state of several peaks, as a measurement."""

from collections.abc import Mapping
from dataclasses import replace

import numpy as np

from validate.metrics._states import HOWS, KINDS, Peak, States, state_scan
from validate.metrics._unmeasured import no_tensors, not_finite, undefined
from validate.schema import Measurement, Pair, Worst

__all__ = ["measure_across", "measure_inside"]

UNIT = "rel-L2"


def measure_across(
    pair: Pair, kind: str, *, metric: str, n_of: str, pattern: str | None = None
) -> Measurement:
    """The worst state of one kind, ref against cand, over prompts, layers and ways.

    Args:
        pair: Ref and cand.
        kind: ``kda``, ``conv`` or ``kv``.
        metric: Name of the metric.
        n_of: What the units are.
        pattern: Structure found, if any.
    """
    found = state_scan(pair)
    peaks = {how: found.across[kind, how] for how in HOWS if (kind, how) in found.across}
    breakdown = {how: peak.value for how, peak in peaks.items()} | _set_apart(peaks)
    if kind == "kv":
        breakdown |= {f"{how} worst token row": peak.row for how, peak in peaks.items()}
    why = not_finite(found.bad, kind)
    return _measured(
        metric,
        peaks,
        why=why,
        what=f"{kind} states",
        n_of=n_of,
        breakdown=breakdown,
        pattern=pattern,
    )


def measure_inside(pair: Pair, how: str, *, metric: str) -> Measurement:
    """The worst state of any kind inside cand, one-shot prefill against another way.

    Args:
        pair: Ref and cand; ref's own worst stands in the breakdown.
        how: ``decode`` or ``chunked``.
        metric: Name of the metric.
    """
    found = state_scan(pair)
    peaks = _inside(found, "cand", how)
    breakdown = {f"cand {kind}": peak.value for kind, peak in peaks.items()} | _set_apart(peaks)
    breakdown |= {f"ref {kind}": peak.value for kind, peak in _inside(found, "ref", how).items()}
    why = not_finite(found.bad, *KINDS)
    return _measured(
        metric,
        peaks,
        why=why,
        what=f"states made both oneshot and {how}",
        n_of="heads, taps and caches over prompts and layers",
        breakdown=breakdown,
    )


def _inside(found: States, side: str, how: str) -> dict[str, Peak]:
    return {
        kind: found.inside[side, how, kind] for kind in KINDS if (side, how, kind) in found.inside
    }


def _set_apart(peaks: Mapping[str, Peak]) -> dict[str, float]:
    """How many units ties have set apart, and the largest error among them; empty without any."""
    apart = sum(peak.apart for peak in peaks.values())
    if apart == 0:
        return {}
    return {"units set apart": float(apart), "worst set apart": _worst_apart(peaks)}


def _worst_apart(peaks: Mapping[str, Peak]) -> float:
    return float(np.max([peak.apart_value for peak in peaks.values()], initial=0.0))


def _named(worst: Worst | None, peaks: Mapping[str, Peak]) -> Worst | None:
    """The worst unit; beside it the worst of those that were set apart."""
    away = [peak.apart_worst for peak in peaks.values() if peak.apart_worst is not None]
    if worst is None or not away:
        return worst
    most = max(away, key=lambda one: one.value or 0.0)
    told = f"set apart by ties: {most.prompt} {most.place} {most.value:.4g}"
    return replace(worst, detail=told)


def _measured(
    metric: str,
    peaks: Mapping[str, Peak],
    *,
    why: str | None,
    what: str,
    n_of: str,
    breakdown: Mapping[str, float],
    pattern: str | None = None,
) -> Measurement:
    n = sum(peak.units for peak in peaks.values())
    if why is None and not peaks:
        why = no_tensors(what)
    zero = [peak.undefined for peak in peaks.values() if peak.undefined is not None]
    if why is None and zero:
        why = f"one side is all zero and the other is not in {len(zero)} states, the first is {zero[0]}"
    if why is None and n == 0:
        why = f"router ties set all {sum(peak.apart for peak in peaks.values())} units apart"
    if why is not None:
        return undefined(metric, why, unit=UNIT, n_of=n_of, n=n, breakdown=breakdown)
    top = list(peaks.values())[int(np.argmax([peak.value for peak in peaks.values()]))]
    return Measurement(
        metric=metric,
        value=top.value,
        unit=UNIT,
        n=n,
        n_of=n_of,
        worst=_named(top.worst, peaks),
        worst_value=float(np.maximum(top.value, _worst_apart(peaks))),
        pattern=pattern,
        breakdown=dict(breakdown),
    )
