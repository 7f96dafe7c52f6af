"""The laws that emitted tokens are judged by, in whole numbers: every expected value is a fraction."""

from fractions import Fraction

import numpy as np
import pytest

from tests.measured import assert_measured
from validate.errors import InputError
from validate.oracle.lossless import (
    Asked,
    Outcome,
    Rule,
    edge_distance,
    expected_acceptance,
    fall,
    outcome_law,
    requested_law,
    surprisal_moments,
)

WEIGHTS = (1, 4, 2, 4, 0, 2, 2)
"""At temperature 2 the mass of each id in fifteenths; two ids tie for first, three for third."""
with np.errstate(divide="ignore"):
    LOGITS = 2.0 * np.log(np.array(WEIGHTS, np.float64))

P = np.array([4, 3, 2, 1, 0]) / 10
Q = np.array([1, 4, 0, 2, 3]) / 10
LN2 = float(np.log(2.0))


def shares(*weights):
    """Whole numbers over their sum."""
    return [float(Fraction(one, sum(weights))) for one in weights]


def close(actual, expected):
    assert_measured(actual, expected, atol=1e-15, rtol=1e-14)


def test_what_is_not_asked_for_is_off():
    assert Asked(temperature=1.0) == Asked(
        temperature=1.0, top_k=0, top_p=1.0, min_p=0.0, ties="all"
    )


@pytest.mark.parametrize(
    ("asked", "expected"),
    [
        ({}, (1, 4, 2, 4, 0, 2, 2)),
        # The first of two equal ids alone, or both.
        ({"top_k": 1, "ties": "exactly_k"}, (0, 1, 0, 0, 0, 0, 0)),
        ({"top_k": 1}, (0, 1, 0, 1, 0, 0, 0)),
        ({"top_k": 3}, (0, 4, 2, 4, 0, 2, 2)),
        ({"top_k": 3, "ties": "exactly_k"}, (0, 4, 2, 4, 0, 0, 0)),
        ({"top_k": 6}, (1, 4, 2, 4, 0, 2, 2)),
        ({"top_k": 7}, (1, 4, 2, 4, 0, 2, 2)),
        # 8/15 = 0.533 falls short of 0.6, 10/15 does not.
        ({"top_p": 0.6}, (0, 4, 2, 4, 0, 2, 2)),
        ({"top_p": 0.6, "ties": "exactly_k"}, (0, 4, 2, 4, 0, 0, 0)),
        ({"top_p": 0.95}, (1, 4, 2, 4, 0, 2, 2)),
        # Masses are 1, 1/2 and 1/4 of the largest.
        ({"min_p": 0.3}, (0, 4, 2, 4, 0, 2, 2)),
        ({"min_p": 0.2}, (1, 4, 2, 4, 0, 2, 2)),
        ({"min_p": 0.6}, (0, 1, 0, 1, 0, 0, 0)),
        # Top-4 leaves 4, 4, 2, 2 of 12: two ids have 0.667, three 0.833 (of fifteen: 0.667).
        ({"top_k": 4, "top_p": 0.8, "ties": "exactly_k"}, (0, 4, 2, 4, 0, 0, 0)),
        # All ties: 4, 4, 2, 2, 2 of 14 after top-k, 0.571 and 0.714, and all three 2 stay.
        ({"top_k": 4, "top_p": 0.7}, (0, 4, 2, 4, 0, 2, 2)),
        ({"top_k": 4, "top_p": 0.57}, (0, 1, 0, 1, 0, 0, 0)),
        ({"top_k": 4, "top_p": 0.8, "min_p": 0.6, "ties": "exactly_k"}, (0, 1, 0, 1, 0, 0, 0)),
    ],
)
def test_the_law_asked_for_is_a_row_of_fractions(asked, expected):
    law = requested_law(LOGITS, Asked(temperature=2.0, **asked))

    close(law, shares(*expected))


def test_temperature_is_a_power_of_the_weights():
    """(1, 2, 3) to the powers 1, 2 and 1/2 (of their squares)."""
    row = np.log(np.array([1.0, 2.0, 3.0]))

    close(requested_law(row, Asked(temperature=1.0)), shares(1, 2, 3))
    close(requested_law(row, Asked(temperature=0.5)), shares(1, 4, 9))
    close(requested_law(2 * row, Asked(temperature=2.0)), shares(1, 2, 3))


def test_temperature_zero_takes_the_lowest_of_the_largest_whatever_else_was_asked():
    law = requested_law(LOGITS, Asked(temperature=0.0, top_k=3, top_p=0.5, min_p=0.1))

    assert law.tolist() == [0.0, 1.0, 0.0, 0.0, 0.0, 0.0, 0.0]


@pytest.mark.parametrize("shift", [-1024.0, 1024.0])
def test_large_logits_neither_overflow_nor_vanish(shift):
    """Multiples of 1/4 keep all their bits at 1024."""
    row = np.array([0.0, 0.25, -1.5])

    shifted = requested_law(row + shift, Asked(temperature=1.0))

    assert shifted.tolist() == requested_law(row, Asked(temperature=1.0)).tolist()


def test_a_filter_that_is_off_leaves_every_bit():
    """Laws that miss a sum of 1 by a rounding: dividing them again would show."""
    rows = np.random.default_rng(0).standard_normal((64, 11))
    moved = 0
    for row in rows:
        weights = np.exp(row - row.max())
        law = weights / weights.sum()
        moved += not np.array_equal(law / law.sum(), law)
        for off in (Asked(temperature=1.0), Asked(temperature=1.0, top_k=11)):
            assert requested_law(row, off).tolist() == law.tolist()
    assert moved > 5


@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_a_row_with_nan_has_no_law(temperature):
    with pytest.raises(InputError, match="a row of logits has 2 NaN: no law"):
        requested_law(np.array([1.0, np.nan, np.nan]), Asked(temperature=temperature))


@pytest.mark.parametrize(
    ("row", "top"), [([0.0, np.inf, 1.0], "inf"), ([-np.inf, -np.inf, -np.inf], "-inf")]
)
def test_a_row_without_a_finite_maximum_has_no_law(row, top):
    with pytest.raises(InputError, match=f"logits has the maximum {top}: no law"):
        requested_law(np.array(row), Asked(temperature=1.0))


def test_acceptance_by_hand():
    """Least of each pair 1 + 3 + 0 + 1 + 0 = 5 tenths; products 4 + 12 + 0 + 2 + 0 hundredths."""
    close(expected_acceptance("chain", P, Q), 0.5)
    close(expected_acceptance("target_only", P, Q), 0.18)
    close(expected_acceptance("exact_match", P, Q), 0.18)


@pytest.mark.parametrize(
    ("outcome", "rule", "weights"),
    [
        ("accepted", "chain", (1, 3, 0, 1, 0)),
        ("resampled", "chain", (3, 0, 2, 0, 0)),
        ("accepted", "target_only", (4, 12, 0, 2, 0)),
        ("accepted", "exact_match", (4, 12, 0, 2, 0)),
        ("resampled", "target_only", (36, 18, 20, 8, 0)),  # p (1 - q) in hundredths
        ("resampled", "exact_match", (36, 18, 20, 8, 0)),
    ],
)
def test_laws_of_outcomes_by_hand(outcome, rule, weights):
    close(outcome_law(outcome, rule, P, Q), shares(*weights))


RULES: tuple[Rule, ...] = ("chain", "target_only", "exact_match")


@pytest.mark.parametrize("rule", RULES)
def test_a_token_without_a_draft_follows_the_requested_law(rule):
    undrafted: tuple[Outcome, ...] = ("plain", "bonus")
    for outcome in undrafted:
        for q in (Q, None):
            assert outcome_law(outcome, rule, P, q).tolist() == P.tolist()
    drafted: tuple[Outcome, ...] = ("accepted", "resampled")
    for outcome in drafted:
        with pytest.raises(InputError, match=rf"outcome '{outcome}' needs the drafter's law q"):
            outcome_law(outcome, rule, P, None)


@pytest.mark.parametrize("rule", RULES)
def test_the_outcomes_together_give_the_requested_law(rule):
    """Chain: p exactly. Target only: a rejected id is drawn anew from the rest, p q + p (1 - q)."""
    chance = expected_acceptance(rule, P, Q)

    mixed = chance * outcome_law("accepted", rule, P, Q)
    mixed = mixed + (1 - chance) * outcome_law("resampled", rule, P, Q)

    close(mixed, P)


@pytest.mark.parametrize("rule", RULES)
def test_an_outcome_without_mass_has_no_law(rule):
    """A draft that p holds for certain is never rejected, one without mass never accepted."""
    sure, other = np.array([1.0, 0.0, 0.0]), np.array([0.0, 0.0, 1.0])

    assert np.isnan(outcome_law("resampled", rule, sure, sure)).tolist() == [True] * 3
    assert np.isnan(outcome_law("accepted", rule, sure, other)).tolist() == [True] * 3
    assert outcome_law("resampled", rule, sure, other).tolist() == [1.0, 0.0, 0.0]
    assert outcome_law("accepted", rule, sure, sure).tolist() == [1.0, 0.0, 0.0]


BITS = np.array([1, 2, 4, 8, 16, 32, 64]) / 127
"""A law whose sums name the ids that they were made of."""


@pytest.mark.parametrize(
    ("order", "ranks"),
    [
        ("falling_p", [3, 1, 2, 4, 5, 0, 6]),
        # q / p is 3 at id 2, 1/2 at 1, 3 and 4, 0 at 5; ids 0 and 6 have no p.
        ("falling_ratio", [2, 1, 3, 4, 5, 0, 6]),
    ],
)
def test_an_id_falls_behind_those_before_it_in_the_order(order, ranks):
    p = np.array([0, 4, 2, 6, 2, 2, 0]) / 16
    q = np.array([4, 2, 6, 3, 1, 0, 0]) / 16
    before = 0
    for x in ranks:
        close(fall(BITS, x, order=order, p=p, q=q), (before / 127, 2**x / 127))
        before += 2**x


def test_the_order_by_ratio_needs_the_drafters_law():
    with pytest.raises(InputError, match="order 'falling_ratio' needs the drafter's law q"):
        fall(P, 0, order="falling_ratio", p=P)
    close(fall(P, 1, order="falling_p", p=P), (0.4, 0.3))


@pytest.mark.parametrize(
    ("law", "entropy", "variance"),
    [
        # Surprisals of 1, 2, 3, 3 bits: 7/4 bits, and 1/2 9/16 + 1/4 1/16 + 1/4 25/16 = 11/16.
        ([1 / 8, 0.0, 1 / 2, 1 / 4, 1 / 8], 1.75, 11 / 16),
        ([0.25] * 4, 2.0, 0.0),
        ([0.0, 1.0], 0.0, 0.0),
    ],
)
def test_moments_of_the_surprisal_in_bits(law, entropy, variance):
    close(surprisal_moments(np.array(law)), (entropy * LN2, variance * LN2**2))


@pytest.mark.parametrize(
    ("temperature", "scale"), [(1.0, 1.0), (0.5, 2.0), (4.0, 0.25), (0.0, 1.0)]
)
def test_distance_from_the_edge_by_hand(temperature, scale):
    """Kept: 5, 3 and 2.5. 1 lies 1.5 below, -1 lies 3.5, and 4, which was cut by mistake, -1.5."""
    logits = np.array([5.0, 1.0, 3.0, -1.0, 2.5, 4.0])
    law = np.array([0.5, 0.0, 0.25, 0.0, 0.25, 0.0])

    found = [edge_distance(logits, law, x, temperature) for x in range(6)]

    assert found == [0.0, 1.5 * scale, 0.0, 3.5 * scale, 0.0, -1.5 * scale]
