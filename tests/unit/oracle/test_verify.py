"""Verifiers by hand, and their laws: what one step emits follows p exactly."""

import itertools
from fractions import Fraction

import numpy as np
import pytest

from tests.measured import assert_measured
from validate.oracle import (
    residual,
    verify_chain,
    verify_exact_match,
    verify_greedy,
    verify_target_only,
)

Q = np.array([0.5, 0.25, 0.25, 0.0])
P = np.array([0.25, 0.25, 0.25, 0.25])
COINS = (np.arange(16) + 0.5) / 16
"""Middles of a lattice on which every edge of P and Q lies: sums over it are exact integrals."""


def test_chain_is_strict():
    """u q = p exactly: 1/2 * 1/2 = 1/4 is not smaller, so the draft is rejected."""
    q, p = Q[None, None], np.stack([P, P])[None]
    for u, accepted in ((0.5, 0), (np.nextafter(0.5, 0), 1)):
        out = verify_chain(
            np.array([[0]]), q, p, uniforms=np.array([[u]]), uniform_final=np.array([0.0])
        )
        assert out.accepted.tolist() == [accepted]


def test_chain_draws_the_residual_of_the_rejected_row_and_the_bonus_of_the_last():
    p = np.stack([P, np.array([0.0, 0.0, 0.0, 1.0]), np.array([0.0, 1.0, 0.0, 0.0])])[None]
    q = np.stack([Q, Q])[None]
    drafts = np.array([[1, 0]])

    rejected = verify_chain(
        drafts, q, p, uniforms=np.array([[0.0, 0.0]]), uniform_final=np.array([0.9])
    )
    assert rejected.ids.tolist() == [[1, 3, -1]]  # p of row 1 gives draft 0 nothing

    p[0, 1] = [0.5, 0.0, 0.0, 0.5]
    all_taken = verify_chain(
        drafts, q, p, uniforms=np.array([[0.0, 0.0]]), uniform_final=np.array([0.9])
    )
    assert all_taken.ids.tolist() == [[1, 0, 1]]


def test_residual_by_hand():
    assert residual(P, Q).tolist() == [0.0, 0.0, 0.0, 0.25]


def test_law_of_chain_is_the_target():
    """All drafts by q, all coins of the lattice: the emitted ids have weight p, as fractions."""
    law = [Fraction(0)] * 4
    for draft, u, final in itertools.product(range(4), COINS, COINS):
        out = verify_chain(
            np.array([[draft]]),
            Q[None, None],
            np.stack([P, P])[None],
            uniforms=np.array([[u]]),
            uniform_final=np.array([final]),
        )
        law[int(out.ids[0, 0])] += Fraction(Q[draft]) / 256
    assert law == [Fraction(value) for value in P]


@pytest.mark.parametrize("draft", range(4))
def test_law_of_target_only_is_the_target_for_any_draft(draft):
    p = np.array([0.5, 0.25, 0.25, 0.0])
    law = np.zeros(4)
    # without the draft 3/4 or 1/2 remains: 48 coins hold its edges
    finals = (np.arange(48) + 0.5) / 48
    for u, final in itertools.product(COINS, finals):
        out = verify_target_only(
            np.array([[draft]]),
            np.stack([p, p])[None],
            uniforms=np.array([[u]]),
            uniform_final=np.array([final]),
        )
        law[out.ids[0, 0]] += 1 / (16 * 48)
    assert_measured(law, p, atol=1e-12, rtol=0.0)


def test_target_only_accepts_at_equality_and_above_the_single_threshold():
    p = np.stack([P, P])[None]

    def accepted(u, **thresholds):
        out = verify_target_only(
            np.array([[2]]),
            p,
            uniforms=np.array([[u]]),
            uniform_final=np.array([0.0]),
            **thresholds,
        )
        return int(out.accepted[0])

    assert (accepted(0.25), accepted(0.2501)) == (1, 0)
    assert accepted(0.49, threshold_acc=0.5) == 1
    assert accepted(0.99, threshold_single=0.25) == 1


def test_exact_match_emits_the_draw_that_broke_the_run():
    p = np.stack([P, P, P])[None]
    out = verify_exact_match(np.array([[0, 3]]), p, uniforms=np.array([[0.1, 0.6, 0.9]]))
    assert (out.accepted.tolist(), out.ids.tolist()) == ([1], [[0, 2, -1]])


def test_greedy_stops_at_the_first_difference_and_at_the_length():
    logits = np.full((1, 4, 6), -5.0)
    logits[0, [0, 1, 2, 3], [3, 1, 0, 2]] = -1.0
    logits[:, :, 4:] = 7.0  # padding columns
    drafts = np.array([[3, 1, 2]])
    for length, expected in ((3, [3, 1, 0, -1]), (1, [3, 1, -1, -1]), (0, [3, -1, -1, -1])):
        out = verify_greedy(drafts, logits, vocab=4, draft_len=np.array([length]))
        assert out.ids.tolist() == [expected]


def test_greedy_takes_the_lowest_index_of_a_tie():
    out = verify_greedy(np.array([[2]]), np.zeros((1, 2, 3)), vocab=3, draft_len=np.array([1]))
    assert out.ids.tolist() == [[0, -1]]


def test_target_only_takes_a_certain_draft_whatever_the_divisor():
    """p(x) = 1 reaches the single threshold; its coin 0.9 is above 1 / 2."""
    p = np.array([[[0.0, 1.0], [1.0, 0.0]]])

    out = verify_target_only(
        np.array([[1]]),
        p,
        uniforms=np.array([[0.9]]),
        uniform_final=np.array([0.3]),
        threshold_acc=2.0,
    )

    assert out.ids.tolist() == [[1, 0]]


def test_exact_match_takes_more_drafts_than_there_are_requests():
    p = np.array([[[0.0, 1.0], [1.0, 0.0], [0.0, 1.0]]])

    out = verify_exact_match(np.array([[1, 0]]), p, uniforms=np.full((1, 3), 0.5))

    assert (out.accepted.tolist(), out.ids.tolist()) == ([2], [[1, 0, 1]])


def test_a_run_of_matches_is_counted_within_one_request():
    """Argmax 1, 0, 1 of both; the first request misses its first draft, the second none."""
    logits = np.array([[[0.0, 2.0], [2.0, 0.0], [0.0, 2.0]]] * 2)

    out = verify_greedy(np.array([[0, 0], [1, 0]]), logits, vocab=2, draft_len=np.array([2, 2]))

    assert out.accepted.tolist() == [0, 2]
    assert out.ids.tolist() == [[1, -1, -1], [1, 0, 1]]
