"""The unit law of every verifier by exact enumeration, and what breaks it.

For every pair of drafts, the coins are cut at the points where a decision changes; one coin
inside each cell stands for it, weighted with the cell's width. The tokens that a step emits are
followed by plain draws, so that the law of the first three tokens can be compared with the
target's product exactly.
"""

import itertools

import numpy as np
import pytest
import torch

from tests.measured import assert_measured
from validate.models.verify import verify

VOCAB, WIDTH = 3, 2
RNG = np.random.default_rng(7)


def law(*shape: int) -> np.ndarray:
    return RNG.dirichlet(np.ones(VOCAB), size=shape)


P0, P1, P2 = law(), law(VOCAB), law(VOCAB, VOCAB)
"""The target's law of tokens 1, 2 and 3, given those before."""
Q0, Q1 = law(), law(VOCAB)
TARGET = np.einsum("a,ab,abc->abc", P0, P1, P2)


def cells(points) -> list[tuple[float, float]]:
    """(coin, width) of every cell that the break points cut (0, 1) into."""
    edges = np.unique(np.clip([0.0, 1.0, *points], 0, 1))
    return [((a + b) / 2, b - a) for a, b in itertools.pairwise(edges) if b > a]


def final_points(p: np.ndarray, q: np.ndarray | None, draft: int | None) -> list[float]:
    """Where the token drawn from p, from (p - q)+ or from p without the draft changes."""
    candidates = [p]
    if q is not None and draft is not None:
        candidates += [np.maximum(p - q, 0), np.where(np.arange(VOCAB) == draft, 0, p)]
    points: list[float] = []
    for weights in candidates:
        if weights.sum() > 0:
            points += list(np.cumsum(weights) / weights.sum())
    return points


def emitted(verifier, *, limits=lambda d, q: WIDTH, fresh=False, drawn=None, **more) -> np.ndarray:
    """Law (a, b, c) of the first three tokens after one step and plain draws.

    ``fresh`` hands over redraws (the fault SP-07); ``drawn`` is the law that the first draft
    really comes from, where it is not q.
    """
    found = np.zeros((VOCAB,) * 3)
    for d1, d2 in itertools.product(range(VOCAB), repeat=2):
        p, q = np.stack([P0, P1[d1], P2[d1, d2]]), np.stack([Q0, Q1[d1]])
        drafts = (d1, d2)
        coin = [cells([p[i, drafts[i]] / q[i, drafts[i]], p[i, drafts[i]]]) for i in range(2)]
        ends = [final_points(p[i], q[i], drafts[i]) for i in range(2)]
        ends.append(final_points(p[2], None, None))
        again = [cells(np.cumsum(row)) if fresh else [(0.5, 1.0)] for row in p]
        grid = np.array(list(itertools.product(*coin, *map(cells, ends), *again)))
        chance = grid[:, :, 1].prod(axis=1) * (Q0 if drawn is None else drawn)[d1] * Q1[d1][d2]
        coins = torch.from_numpy(grid[:, :, 0])
        n = len(grid)
        judged = verify(
            torch.tensor([drafts] * n),
            torch.from_numpy(q).expand(n, -1, -1),
            torch.from_numpy(p).expand(n, -1, -1),
            verifier=verifier,
            coins=coins[:, :2],
            final_coins=coins[:, 2:5],
            limit=torch.full((n,), limits(drafts, q), dtype=torch.long),
            redraws=coins[:, 5:] if fresh else None,
            **more,
        )
        ended = zip(judged.taken.tolist(), judged.final.tolist(), chance, strict=True)
        for count, final, weight in ended:
            spread(found, (*drafts[:count], final), weight)
    return found


def spread(found: np.ndarray, tokens: tuple[int, ...], weight: float) -> None:
    """Add a step that emitted ``tokens``, with plain draws behind it."""
    if len(tokens) == 1:
        found[tokens[0]] += weight * P1[tokens[0]][:, None] * P2[tokens[0]]
    elif len(tokens) == 2:
        found[tokens] += weight * P2[tokens]
    else:
        found[tokens] += weight


@pytest.mark.parametrize("verifier", ["chain", "target_only", "exact_match"])
def test_the_emitted_law_is_the_targets(verifier):
    assert_measured(emitted(verifier), TARGET, atol=1e-12, rtol=0)


@pytest.mark.parametrize("verifier", ["chain", "target_only", "exact_match"])
def test_a_cut_told_from_the_prefix_and_earlier_drafts_keeps_the_law(verifier):
    def predictable(drafts, _q):
        return 1 if drafts[0] == 1 else 2

    assert_measured(emitted(verifier, limits=predictable), TARGET, atol=1e-12, rtol=0)
    assert_measured(emitted(verifier, limits=lambda d, q: 0), TARGET, atol=1e-12, rtol=0)


def test_a_cut_that_reads_the_token_breaks_the_law():
    def reading(drafts, q):
        return 0 if q[0][drafts[0]] < 0.4 else 2

    apart = np.abs(emitted("chain", limits=reading) - TARGET).sum() / 2

    assert apart > 0.01


@pytest.mark.parametrize(
    ("verifier", "fault"),
    [("chain", "VX-15"), ("target_only", "VX-15"), ("chain", "VX-16"), ("target_only", "VX-16")],
)
def test_a_planted_fault_breaks_the_law(verifier, fault):
    apart = np.abs(emitted(verifier, fault=fault) - TARGET).sum() / 2

    assert apart > 0.01


def test_a_fresh_draw_on_a_mismatch_breaks_the_law():
    """SP-07: P(x) = p(x) (q(x) + 1 - sum p q) for the first token."""
    found = emitted("exact_match", fresh=True)

    expected = P0 * (Q0 + 1 - (P0 * Q0).sum())
    assert_measured(found.sum(axis=(1, 2)), expected, atol=1e-12, rtol=0)
    assert np.abs(found - TARGET).sum() / 2 > 0.01


@pytest.mark.parametrize("verifier", ["target_only", "exact_match"])
def test_verifiers_without_a_ratio_do_not_mind_what_drafts_are_drawn_from(verifier):
    assert_measured(emitted(verifier, drawn=np.array([0.1, 0.2, 0.7])), TARGET, atol=1e-12, rtol=0)


def test_drafts_drawn_from_another_law_than_the_ratio_uses_break_the_chain():
    """SP-09: q' min(1, p/q) + (1 - sum q' min(1, p/q)) residual, for the first token."""
    drawn = np.array([0.1, 0.2, 0.7])

    found = emitted("chain", drawn=drawn).sum(axis=(1, 2))

    accepted = drawn * np.minimum(1, P0 / Q0)
    residual = np.maximum(P0 - Q0, 0) / np.maximum(P0 - Q0, 0).sum()
    expected = accepted + (1 - accepted.sum()) * residual
    assert_measured(found, expected, atol=1e-12, rtol=0)
    assert np.abs(found - P0).sum() / 2 > 0.01
