"""Many rows at once against one at a time, and a few numbers by hand."""

from fractions import Fraction

import numpy as np
import pytest

from tests.measured import assert_measured
from validate.errors import InputError
from validate.oracle import lossless
from validate.oracle.lossless import Asked, Order
from validate.oracle.lossless_rows import (
    OUTCOMES,
    AskedRows,
    edge_distances,
    falls,
    outcome_laws,
    requested_laws,
    surprisal_moments_of,
)

VOCAB = 12
ORDERS: tuple[Order, Order] = ("falling_p", "falling_ratio")
ASKED = [
    Asked(temperature=t, top_k=k, top_p=p, min_p=m, ties=ties)
    for ties in ("all",)
    for t, k, p, m in (
        (1.0, 0, 1.0, 0.0),
        (0.0, 3, 0.5, 0.1),
        (0.7, 4, 1.0, 0.0),
        (1.3, 0, 0.8, 0.0),
        (1.0, 5, 0.6, 0.0),
        (2.0, 0, 1.0, 0.3),
        (0.9, 6, 0.9, 0.05),
        (1.0, 12, 1.0, 0.0),
        (1.0, 1, 0.1, 0.9),
    )
] * 4


def tied_rows(seed: int, rows: int) -> np.ndarray:
    """Logits on a coarse grid: many entries tie, at the edges too."""
    return np.random.default_rng(seed).integers(-4, 5, (rows, VOCAB)) / 2.0


@pytest.mark.parametrize("ties", ["all", "exactly_k"])
def test_laws_are_those_of_one_row(ties):
    logits = tied_rows(1, len(ASKED))

    found = requested_laws(logits, AskedRows.of(ASKED, ties=ties))

    for row, one in enumerate(ASKED):
        alone = Asked(
            temperature=one.temperature,
            top_k=one.top_k,
            top_p=one.top_p,
            min_p=one.min_p,
            ties=ties,
        )
        expected = lossless.requested_law(logits[row], alone)
        assert np.array_equal(found[row] > 0, expected > 0)
        assert_measured(found[row], expected, atol=0, rtol=1e-14)


@pytest.mark.parametrize("rule", ["chain", "target_only", "exact_match"])
def test_outcomes_falls_moments_and_distances_are_those_of_one_row(rule):
    asked = AskedRows.of(ASKED, ties="all")
    logits = tied_rows(2, len(ASKED))
    p = requested_laws(logits, asked)
    q = requested_laws(tied_rows(3, len(ASKED)), asked.unfiltered())
    ids = np.random.default_rng(4).integers(0, VOCAB, len(ASKED))
    outcomes = np.arange(len(ASKED)) % 4
    laws = outcome_laws(outcomes, rule, p, q)
    moments = surprisal_moments_of(p)
    ratio = np.where(p > 0, q / np.where(p > 0, p, 1.0), -1.0)
    by_p, by_ratio = falls(laws, ids, key=p), falls(laws, ids, key=ratio)
    away = edge_distances(logits, p, ids, asked.temperature)

    for row, x in enumerate(ids.tolist()):
        expected = lossless.outcome_law(OUTCOMES[outcomes[row]], rule, p[row], q[row])
        assert np.array_equal(np.isnan(laws[row]), np.isnan(expected))
        if np.isnan(expected).any():
            continue
        assert_measured(laws[row], expected, atol=1e-15, rtol=1e-14)
        for order, found in zip(ORDERS, (by_p, by_ratio), strict=True):
            fall = lossless.fall(expected, x, order=order, p=p[row], q=q[row])
            assert_measured(found[row], fall, atol=1e-14, rtol=0)
        both = lossless.surprisal_moments(p[row])
        assert_measured((moments.entropy[row], moments.variance[row]), both, atol=1e-13, rtol=0)
        distance = lossless.edge_distance(logits[row], p[row], x, float(asked.temperature[row]))
        assert_measured(away[row], distance, atol=0, rtol=1e-15)


def test_a_row_by_hand():
    """[0.5, 0.3, 0.2], top-2: 0.625 and 0.375; the third lies ln 1.5 below the edge."""
    logits = np.log(np.array([[0.5, 0.3, 0.2]]))
    law = requested_laws(logits, AskedRows.of([Asked(temperature=1.0, top_k=2)], ties="all"))

    assert_measured(law, [[0.625, 0.375, 0.0]], atol=1e-15, rtol=0)
    assert_measured(falls(law, np.array([1]), key=law), [[0.625, 0.375]], atol=1e-15, rtol=0)
    away = edge_distances(logits, law, np.array([2]), np.array([1.0]))
    assert_measured(away, [np.log(1.5)], atol=1e-15, rtol=0)


@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_a_row_without_a_law_is_refused(bad):
    logits = tied_rows(5, 3)
    logits[1, 2] = bad

    with pytest.raises(InputError, match=r"1 of 3 rows of logits hold NaN .* row 1 first"):
        requested_laws(logits, AskedRows.of(ASKED[:3], ties="all"))


def laws(logits, *asked, ties="all"):
    return requested_laws(np.atleast_2d(logits), AskedRows.of(list(asked), ties=ties))


def test_top_one_alone_and_edges_that_are_met_exactly():
    """Four ids of 1/4 each: half the mass is two of them, and all four reach the largest."""
    even = np.zeros((4, 4))
    found = laws(
        even,
        Asked(temperature=1.0, top_k=1),
        Asked(temperature=1.0, top_p=0.5),
        Asked(temperature=1.0, top_p=0.75),
        Asked(temperature=1.0, min_p=1.0),
        ties="exactly_k",
    )

    assert found[:2].tolist() == [[1.0, 0.0, 0.0, 0.0], [0.5, 0.5, 0.0, 0.0]]
    assert_measured(found[2], [1 / 3, 1 / 3, 1 / 3, 0.0], atol=0, rtol=1e-15)
    assert found[3].tolist() == [0.25] * 4


def test_a_filter_that_is_off_leaves_every_bit():
    """Laws that miss a sum of 1 by a rounding: dividing them again would show."""
    rows = np.random.default_rng(0).standard_normal((64, 11))
    expected = np.exp(rows - rows.max(axis=1, keepdims=True))
    expected /= expected.sum(axis=1, keepdims=True)
    again = expected / expected.sum(axis=1, keepdims=True)
    assert np.count_nonzero(np.any(again != expected, axis=1)) > 5

    for off in (Asked(temperature=1.0), Asked(temperature=1.0, top_k=11)):
        assert np.array_equal(laws(rows, *[off] * 64), expected)


def plain_law(row):
    weights = np.exp(row - row.max())
    return weights / weights.sum()


@pytest.mark.parametrize("ties", ["all", "exactly_k"])
def test_a_mass_that_rounding_keeps_out_of_reach_keeps_all_that_there_is(ties):
    """24 ids, one of them barred; p is one rounding below 1, their falling sum is more below.

    Which rows do that is a matter of the machine's exponential; about one in five does.
    """
    nearly = float(np.nextafter(1.0, 0.0))
    tried = 0
    for seed in range(50):
        row = np.random.default_rng(seed).integers(-8, 9, 24) / 4.0
        row[5] = -np.inf
        law = plain_law(row)
        if not np.cumsum(np.sort(law)[::-1])[-1] < nearly * law.sum():
            continue
        tried += 1
        found = laws(row, Asked(temperature=1.0, top_p=nearly), ties=ties)
        assert_measured(found[0], law, atol=0, rtol=1e-15)
    assert tried > 3


def test_a_row_wider_than_a_part_is_taken_alone():
    """Two rows of 131,073 ids: all mass on the last of one, half on each end of the other."""
    logits = np.full((2, (1 << 17) + 1), -np.inf)
    logits[0, -1] = logits[1, 0] = logits[1, -1] = 3.0

    found = laws(logits, *[Asked(temperature=1.0)] * 2)

    assert found[:, [0, 1, -1]].tolist() == [[0.0, 0.0, 1.0], [0.5, 0.0, 0.5]]


def test_no_rows_of_one_id_have_no_laws():
    assert requested_laws(np.empty((0, 1)), AskedRows.of([], ties="all")).shape == (0, 1)


def test_the_mass_to_reach_is_a_share_of_what_the_row_sums_to():
    """Sums roundings below 1, and a p between: five ids hold p times the sum, not p over it.

    That they hold it is settled in exact fractions; they are then enough, and fewer are not.
    """
    tried = 0
    for row in np.random.default_rng(1).standard_normal((200, 12)):
        law = plain_law(row)
        falling, total = np.sort(law)[::-1], float(law.sum())
        five = float(np.cumsum(falling)[4])
        p = five / total
        exact = Fraction(p) * sum(map(Fraction, law.tolist())) <= sum(
            map(Fraction, falling[:5].tolist())
        )
        if exact and p * total <= five < p / total:
            tried += 1
            found = laws(row, Asked(temperature=1.0, top_p=p))
            assert np.count_nonzero(found) == 5
    assert tried > 3
