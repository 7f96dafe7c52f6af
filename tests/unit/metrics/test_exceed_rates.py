"""``logits.flip_rate`` and ``logits.kl_exceed_rate``: shares of prompts, each prompt once."""

import pytest

from tests.fakes import make_pair, with_positions
from tests.logit_cases import LEVELS, NONFINITE, UNPAIRED, assert_why, kl_pair, one
from tests.measured import assert_measured
from validate.metrics.flip_rate import flip_rate
from validate.metrics.kl_exceed_rate import kl_exceed_rate

FIRST = [2.0, 0.0, 0.0]
CLOSE = [2.0, 1.75, 0.0]
TURNED = [1.75, 2.0, 0.0]


def flips_of(ref, cand, **settings):
    """Each side a list of prompts, each a list of rows."""
    sides = [
        with_positions({f"p-{i}": rows for i, rows in enumerate(given)}) for given in (ref, cand)
    ]
    return make_pair(*sides, **settings)


@pytest.mark.parametrize(("near_tie", "share"), [(0.0, 0.5), (0.2, 0.5), (0.25, 0.25), (2.0, 0.0)])
def test_flips_count_by_prompt_beyond_the_limit(near_tie, share):
    """p-0 flips twice across 2, p-1 once across a quarter, p-2 and p-3 not; a limit met is a tie."""
    pair = flips_of(
        [[FIRST, FIRST], [CLOSE, FIRST], [FIRST], [CLOSE]],
        [[TURNED, TURNED], [TURNED, FIRST], [FIRST], [CLOSE]],
        near_tie=near_tie,
    )
    found = flip_rate(pair, LEVELS)

    assert (found.value, found.n, found.n_of, found.unit) == (share, 4, "prompts", "share")
    assert found.breakdown["prompts"] == 4 * share
    assert found.breakdown["near_tie_limit"] == near_tie


def test_the_widest_flip_is_named_and_all_are_counted():
    pair = flips_of([[CLOSE], [FIRST, FIRST]], [[TURNED], [TURNED, TURNED]], near_tie=0.1)
    found = flip_rate(pair, LEVELS)

    assert found.worst is not None
    assert (found.worst.prompt, found.worst.value, found.worst_value) == ("p-1", 2.0, 2.0)
    assert found.breakdown["flips"] == 3.0


def test_a_flip_of_any_pass_counts():
    """The one flip is a decode row."""
    ref, cand = with_positions({"p-0": [FIRST]}), with_positions({"p-0": [FIRST]})
    for tensors, rows in ((ref, [FIRST]), (cand, [TURNED])):
        with_decode = with_positions({"p-0": rows})["p-0"]
        tensors["p-0"]["decode.logits"] = with_decode["logits"]
        tensors["p-0"]["decode.positions"] = with_decode["logits.positions"]

    assert flip_rate(make_pair(ref, cand, near_tie=0.5), LEVELS).value == 1.0
    assert kl_exceed_rate(make_pair(ref, cand), LEVELS).value == 1.0


def test_limits_of_one_prompt_of_four():
    """Clopper-Pearson for 1 of 4: upper at 95 % 0.7514 (binomial tables, (1 - p)^4 +
    4 p (1 - p)^3 = 0.05), lower at 99 % 1 - 0.99^(1/4) = 0.002509.
    """
    flips = flips_of(
        [[FIRST], [FIRST], [FIRST], [FIRST]], [[TURNED], [FIRST], [FIRST], [FIRST]], near_tie=0.5
    )
    high = {"p-0": (0.2,), "p-1": (0.02,), "p-2": (0.01,), "p-3": (0.01,)}
    for found in (flip_rate(flips, LEVELS), kl_exceed_rate(kl_pair(high), LEVELS)):
        assert found.value == 0.25
        assert found.interval is not None
        assert_measured(found.interval.high, 0.7514, atol=5e-5, rtol=0)
        assert_measured(found.interval.low, 0.002509, atol=5e-7, rtol=0)


def test_prompts_whose_worst_row_exceeds_a_tenth_of_a_nat():
    """p-0 twice, p-1 in one row of three, p-2 in its mean only as 0.09, p-3 just below."""
    rows = {"p-0": (0.3, 0.2), "p-1": (0.0, 0.11, 0.0), "p-2": (0.09, 0.09), "p-3": (0.0999,)}
    found = kl_exceed_rate(kl_pair(rows), LEVELS)

    assert (found.value, found.n, found.n_of, found.unit) == (0.5, 4, "prompts", "share")
    assert found.worst is not None
    assert (found.worst.prompt, found.worst.position) == ("p-0", 0)
    assert_measured(found.worst_value, 0.3, atol=1e-9, rtol=0)
    assert found.breakdown == {"prompts": 2.0, "stated": 0.1}


def test_the_divergence_is_that_from_ref():
    """KL(even || (0.9, 0.1)) is 0.5108 and KL((0.9, 0.1) || even) 0.3681; both count, value tells."""
    even, uneven = [[0.0, 0.0]], [[2.1972245773362196, 0.0]]

    assert_measured(
        kl_exceed_rate(one(even, uneven), LEVELS).worst_value, 0.5108, atol=5e-5, rtol=0
    )
    assert_measured(
        kl_exceed_rate(one(uneven, even), LEVELS).worst_value, 0.3681, atol=5e-5, rtol=0
    )


@pytest.mark.parametrize("metric", [flip_rate, kl_exceed_rate], ids=["flips", "kl"])
@pytest.mark.parametrize("case", sorted(NONFINITE))
def test_undefined_where_values_are_no_logits(case, metric):
    make, why = NONFINITE[case]
    found = metric(make(), LEVELS)

    assert found.value is None
    assert_why(found, why)


@pytest.mark.parametrize("metric", [flip_rate, kl_exceed_rate], ids=["flips", "kl"])
@pytest.mark.parametrize("case", sorted(UNPAIRED))
def test_undefined_where_nothing_can_be_paired(case, metric):
    make, kind, why = UNPAIRED[case]
    found = metric(make(), LEVELS)

    assert (found.value, found.undefined_kind) == (None, kind)
    assert_why(found, why)
