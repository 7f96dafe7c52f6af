"""``speculative.acceptance_z``: are as many drafts accepted as the verifier's rule expects?"""

import itertools
import math

import numpy as np

from validate.metrics._reason import Reason, without_value
from validate.metrics._spec_figures import acceptance_figures
from validate.metrics._spec_streams import Column, Drawn, SpecSide, Steps
from validate.metrics._spec_tests import MIN_STRATUM, Named, Seen, family, settled, sound_side
from validate.schema import Levels, Measurement, Pair
from validate.stats import SignificanceTest, cvm_test, skewed_z, z_shift_needed

__all__ = ["speculative_acceptance_z"]

NAME = "speculative.acceptance_z"
N_OF = "judged drafts"
POOLED, BY_ROW, BY_DEPTH, COINS = 0.5, 0.2, 0.1, 0.2
CERTAIN = 0.01
"""Share of the level for drafts that did what they could not; their p-value is 0."""
QUARTERS = (0.25, 0.5, 0.75)


def speculative_acceptance_z(pair: Pair, levels: Levels) -> Measurement:
    """P-value that drafts are accepted as often as their law says.

    A draft of row r is accepted with chance sum q(x) a(x), given the drafts before it: sum min(p, q)
    for chain rejection, sum p q for target-only and exact match, 0 or 1 at T = 0. Observed minus
    expected is a martingale over the rows that were reached and verified. Pooled, by row and by
    depth; and the coins themselves are uniform.

    Args:
        pair: The candidate's speculative streams.
        levels: 1 - alpha of all tests together, and the power asked for.

    Returns:
        The p-value, ``n`` = drafts that were reached and verified at T > 0. ``detection.effect`` is an
        absolute difference of the acceptance rate, in either direction: too high is a fault too.
        0 where a draft did what it could not. The breakdown shows acceptance length and tokens per
        target forward of both sides. Undefined without drafts; unlike as ``speculative.uniform``.

    Source:
        Leviathan, Kalman and Matias 2023 (acceptance of chain rejection); Brown 1971.
    """
    side = sound_side(pair)
    if isinstance(side, Reason):
        return without_value(NAME, side, unit="p-value", n_of=N_OF)
    drafted = [d for d in side.kinds.values() if d.steps is not None and len(d.steps)]
    if not drafted:
        reason = Reason(f"{side.label} holds no verify steps: nothing was drafted")
        return without_value(NAME, reason, unit="p-value", n_of=N_OF)
    if any(not np.isfinite(_steps(d).expected).any() for d in drafted):
        reason = Reason(
            f"{side.label} holds no draft probabilities; only emitted tokens are tested, by "
            "speculative.uniform, surprisal, serial and support: capture p and q of every draft"
        )
        return without_value(NAME, reason, unit="p-value", n_of=N_OF)
    found: list[Named] = []
    seen: list[Seen] = []
    warm = [d for d in drafted if (_steps(d).temperature > 0).any()]
    for drawn in drafted:
        impossible = _impossible(_steps(drawn), drawn.kind)
        if impossible is not None:
            found.append(Named(*impossible, CERTAIN / len(drafted)))
    for drawn in warm:
        weight = (1.0 - CERTAIN) / len(warm)
        sampled = _steps(drawn).where(_steps(drawn).temperature > 0)
        found += _tests(side, drawn.kind, sampled, weight)
        seen.append(_seen(drawn.kind, sampled, weight, levels))
    return settled(
        NAME,
        found,
        seen,
        levels=levels,
        n_of=N_OF,
        method="normal law of the martingale z",
        pattern=_words(found),
        breakdown=acceptance_figures(pair),
    )


def _steps(drawn: Drawn) -> Steps:
    if drawn.steps is None:
        msg = f"{drawn.kind}: no verify steps reached a metric that needs them"
        raise ValueError(msg)
    return drawn.steps


def _expected(steps: Steps) -> Column:
    return np.asarray(np.clip(steps.expected, 0.0, 1.0))


def _impossible(steps: Steps, kind: str) -> tuple[str, SignificanceTest] | None:
    """Drafts accepted that could not be, or rejected that could not be."""
    expected = _expected(steps)
    accepted = steps.accepts > 0
    wrong = steps.judged & (((expected == 0.0) & accepted) | ((expected == 1.0) & ~accepted))
    if not wrong.any():
        return None
    count, n = int(np.count_nonzero(wrong)), int(np.count_nonzero(steps.judged))
    test = SignificanceTest(
        p_value=0.0,
        statistic=float(count),
        n=n,
        n_of="drafts",
        method="drafts that did what they could not",
        estimate=count / n,
    )
    return f"{kind}, impossible decisions", test


def _tests(side: SpecSide, kind: str, steps: Steps, weight: float) -> list[Named]:
    judged = steps.judged
    rows = np.broadcast_to(np.arange(judged.shape[1]), judged.shape)
    depth = np.broadcast_to(steps.place[:, None], judged.shape)
    made = list(family(weight * POOLED, [_one(steps, judged, kind)]))
    by_row = [
        _one(steps, judged & (rows == r), f"{kind}, draft {r + 1}") for r in range(judged.shape[1])
    ]
    edges = [-math.inf, *np.quantile(steps.place, QUARTERS).tolist(), math.inf]
    by_depth = [
        _one(steps, judged & (depth > a) & (depth <= b), f"{kind}, depth {a:.3g} to {b:.3g}")
        for a, b in itertools.pairwise(edges)
    ]
    made += family(weight * BY_ROW, by_row)
    made += family(weight * BY_DEPTH, by_depth)
    chance = steps.chances(side.rule)
    coins = steps.coins(side.key, side.rule)[judged & (chance > 0.0) & (chance < 1.0)]
    made += family(weight * COINS, [(f"{kind}, coins", cvm_test(coins[np.isfinite(coins)]))])
    return made


def _one(steps: Steps, held: Column, name: str) -> tuple[str, SignificanceTest]:
    expected = _expected(steps)[held]
    moved = steps.accepts[held] - expected
    spread = expected * (1.0 - expected)
    if np.count_nonzero(held) < MIN_STRATUM:
        return name, skewed_z([0.0], [0.0], 0.0)
    return name, skewed_z(moved, spread, float(np.sum(spread * (1.0 - 2.0 * expected))))


def _seen(kind: str, steps: Steps, weight: float, levels: Levels) -> Seen:
    expected = _expected(steps)[steps.judged]
    shift = z_shift_needed(alpha=(1.0 - levels.low) * weight * POOLED, power=levels.high)
    total = float(np.sum(expected * (1.0 - expected)))
    effect = shift * math.sqrt(total) / len(expected) if total > 0 else math.inf
    return Seen(kind=kind, n=len(expected), effect=effect)


def _words(found: list[Named]) -> str | None:
    held = [one for one in found if one.test.estimate is not None]
    if not held:
        return None
    worst = min(held, key=lambda one: float(one.test.p_value or 0.0) / one.weight)
    if worst.name.endswith("impossible decisions"):
        return f"drafts were accepted or rejected against their law; {worst.name}"
    way = "more" if (worst.test.statistic or 0.0) > 0 else "fewer"
    return f"{way} drafts are accepted than their law expects; most in {worst.name}"
