"""``speculative.acceptance_delta``: does the drafter propose as well as ref's, behind equal prefixes?"""

import itertools
from dataclasses import dataclass

import numpy as np

from validate.metrics._reason import Reason, without_value
from validate.metrics._spec_figures import acceptance_figures
from validate.metrics._spec_read import spec_side
from validate.metrics._spec_streams import Column, Drawn, SpecSide
from validate.metrics._spec_tests import sound_side
from validate.metrics.speculative_nonfinite import damage
from validate.schema import Levels, Measurement, Pair, Worst
from validate.stats import abs_median_limits, quantile_n_min

__all__ = ["speculative_acceptance_delta"]

NAME = "speculative.acceptance_delta"
UNIT = "acceptance rate"
KIND = "spec-sampled"
MEDIAN = 0.5


@dataclass(frozen=True, kw_only=True)
class _Matched:
    """Rows whose committed prefix and earlier drafts are equal on both sides."""

    delta: Column
    prompt: Column
    row: Column
    place: Column
    batch_row: Column


def speculative_acceptance_delta(pair: Pair, levels: Levels) -> Measurement:
    """Median over prompts of the difference of expected acceptance, cand minus ref; absolute.

    Compared are rows of verify steps that stand behind the same committed tokens and the same
    earlier drafts on both sides, by the chance that a draft drawn there is accepted (no coin enters).
    Where the two sides declare different verifiers, by min(1, p / q) of the draft that both drew.
    A drafter that is fed wrong is coherent but lower; one that sees the future is higher.

    Args:
        pair: ``spec-sampled`` streams of both sides.
        levels: Of the limits of the absolute median over prompts (two sign tests).

    Returns:
        The absolute median, ``n`` = prompts with a row that can be compared. The breakdown holds the
        signed median, the mean, by draft index and quarter of depth, and the acceptance figures; ``worst`` names
        the batch row or prompt that differs most. Undefined without such rows; unlike where a side
        is refused or the proposals differ by declaration.

    Source:
        ``validate.stats.abs_median_limits``.
    """
    side = sound_side(pair)
    if isinstance(side, Reason):
        return without_value(NAME, side, unit=UNIT, n_of="prompts")
    ref = spec_side(pair, pair.ref)
    why = damage(ref)
    reason = _unlike(pair, ref, side) if why is None else Reason(why)
    if reason is not None:
        return without_value(NAME, reason, unit=UNIT, n_of="prompts")
    held = _matched(ref, side)
    if held is None or not len(held.delta):
        reason = Reason("no verify step stands behind the same tokens on both sides")
        return without_value(NAME, reason, unit=UNIT, n_of="prompts")
    prompts = np.unique(held.prompt)
    means = np.array([float(np.mean(held.delta[held.prompt == p])) for p in prompts])
    signed = float(np.median(means))
    needed = quantile_n_min(MEDIAN, levels.high)
    return Measurement(
        metric=NAME,
        value=abs(signed),
        unit=UNIT,
        n=len(prompts),
        n_of="prompts",
        interval=abs_median_limits(means, levels=levels),
        worst=_worst(held, pair.prompts),
        pattern=None if signed == 0.0 else f"{'higher' if signed > 0 else 'lower'} than ref",
        breakdown={
            "signed": signed,
            "mean": float(np.mean(means)),
            **_parts(held),
            **acceptance_figures(pair),
        },
        n_needed=needed if len(prompts) < needed else None,
    )


def _unlike(pair: Pair, ref: SpecSide, cand: SpecSide) -> Reason | None:
    if ref.refusal is not None:
        return Reason(ref.refusal, "unlike")
    for side in (ref, cand):
        drawn = side.kinds.get(KIND)
        if drawn is None or drawn.steps is None:
            return Reason(f"{side.label} holds no {KIND} streams with drafts")
        if len(drawn.steps) and not np.isfinite(drawn.steps.expected).any():
            return Reason(
                f"{side.label} holds no draft probabilities, so its expected acceptance is not "
                "known: capture p and q of every draft"
            )
    return _other_drafters(pair)


def _other_drafters(pair: Pair) -> Reason | None:
    digests = [s.manifest.model.drafter_digest for s in (pair.ref, pair.cand)]
    if digests[0] != digests[1]:
        short = ["none" if d is None else d[:12] for d in digests]
        return Reason(
            f"drafters differ: the weights of ref's are {short[0]}, of cand's {short[1]}; capture "
            "both with one drafter to compare what it is fed",
            "unlike",
        )
    names = ("draft", "proposal")
    said = [[s.manifest.options.get(name) for name in names] for s in (pair.ref, pair.cand)]
    if said[0] != said[1]:
        return Reason(
            f"drafts are proposed otherwise, as declared: ref {said[0]}, cand {said[1]}; capture "
            "ref with cand's proposal to compare the drafters",
            "unlike",
        )
    return None


def _matched(ref: SpecSide, cand: SpecSide) -> _Matched | None:
    parts = []
    common_rule = ref.rule == cand.rule
    a, b = ref.kinds[KIND], cand.kinds[KIND]
    for prompt in range(len(cand.prompts)):
        one, two = a.steps_of(prompt), b.steps_of(prompt)
        if one is None or two is None or not len(one) or not len(two) or two.temperature[0] == 0:
            continue
        shared = _shared_until(a, b, prompt)
        _, i, j = np.intersect1d(one.place, two.place, return_indices=True)
        held = two.place[j] < shared
        i, j = i[held], j[held]
        equal = one.drafts[i] == two.drafts[j]
        before = np.cumprod(np.c_[np.ones(len(i), int), equal[:, :-1]], axis=1) > 0
        if common_rule:
            left, right = one.expected[i], two.expected[j]
        else:
            left, right = one.chances("chain")[i], two.chances("chain")[j]
            before &= equal
        at, row = np.nonzero(before)
        if len(at):
            delta = right[at, row] - left[at, row]
            parts.append((delta, two.prompt[j][at], row, two.place[j][at], two.batch_row[j][at]))
    if not parts:
        return None
    delta, owner, row, place, batch_row = (
        np.concatenate(column) for column in zip(*parts, strict=True)
    )
    return _Matched(delta=delta, prompt=owner, row=row, place=place, batch_row=batch_row)


def _shared_until(a: Drawn, b: Drawn, prompt: int) -> int:
    """First position at which the two streams of a prompt differ, or one ends."""
    one, two = a.tokens_of(prompt), b.tokens_of(prompt)
    n = min(len(one), len(two))
    unlike = np.flatnonzero(one.token[:n] != two.token[:n])
    end = int(unlike[0]) if unlike.size else n
    start = int(two.position[0]) if len(two) else 0
    return start + end


def _parts(held: _Matched) -> dict[str, float]:
    shown = {
        f"draft_{row + 1}": float(np.mean(held.delta[held.row == row]))
        for row in np.unique(held.row)
    }
    edges = np.quantile(held.place, [0.0, 0.25, 0.5, 0.75, 1.0])
    for low, high in itertools.pairwise(edges):
        inside = (held.place >= low) & (held.place <= high)
        if inside.any():
            shown[f"depth_{low:.0f}_{high:.0f}"] = float(np.mean(held.delta[inside]))
    return shown


def _worst(held: _Matched, prompts: tuple[str, ...]) -> Worst:
    """The prompt that differs most, and the batch row and draft index that do."""
    names = np.unique(held.prompt)
    means = [float(np.mean(held.delta[held.prompt == p])) for p in names]
    at = int(np.argmax(np.abs(means)))
    rows = np.unique(held.batch_row)
    by_row = [float(np.mean(held.delta[held.batch_row == r])) for r in rows]
    worst_row = int(np.argmax(np.abs(by_row)))
    return Worst(
        prompt=prompts[int(names[at])],
        value=means[at],
        detail=f"batch row {int(rows[worst_row])} differs most: {by_row[worst_row]:+.4f}",
    )
