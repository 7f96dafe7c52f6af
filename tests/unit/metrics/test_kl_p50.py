"""``logits.kl_p50`` against divergences in closed form."""

import math

import numpy as np
import pytest

from tests.fakes import make_pair, with_positions
from tests.logit_cases import (
    EVEN,
    LEVELS,
    NONFINITE,
    UNPAIRED,
    assert_why,
    kl_pair,
    ladder,
    one,
    row_at,
)
from tests.measured import assert_measured
from validate.metrics.kl_p50 import kl_p50


def test_median_of_prompt_means_not_of_rows():
    """Prompt means 10, 2 and 4 mnats: their median is 4, that of the rows 3."""
    rows = {"p-0": (10e-3,), "p-1": (1e-3, 2e-3, 3e-3), "p-2": (4e-3,)}
    found = kl_p50(kl_pair(rows), LEVELS)

    assert_measured(found.value, 4e-3, atol=0, rtol=1e-12)
    assert (found.metric, found.unit, found.n, found.n_of) == (
        "logits.kl_p50", "nats", 3, "prompts",
    )  # fmt: skip


def test_fifth_of_ten_prompt_means():
    """Means are 1 to 10 mnats; the order statistic of rank ceil(10 / 2) is 5 mnats, not 5.5."""
    found = kl_p50(kl_pair(ladder(10)), LEVELS)

    assert_measured(found.value, 5e-3, atol=0, rtol=1e-12)


def test_direction_is_ref_to_cand():
    """KL((1/2, 1/2) || (0.9, 0.1)) = 1/2 ln(25/9); the other way it is 0.368."""
    found = kl_p50(one([EVEN], np.log([[0.9, 0.1]])), LEVELS)

    assert_measured(found.value, 0.5 * math.log(25 / 9), atol=0, rtol=1e-13)


def test_limits_of_ten_prompts():
    """P(B(10, 1/2) <= 8) = 0.9893 >= 0.95 > P(<= 7) = 0.9453: the ninth mean.

    P(B(10, 1/2) >= 1) = 0.9990 >= 0.99 > P(>= 2) = 0.9893: the least.
    """
    found = kl_p50(kl_pair(ladder(10)), LEVELS)

    assert found.interval is not None
    assert_measured([found.interval.low, found.interval.high], [1e-3, 9e-3], atol=0, rtol=1e-12)
    assert (found.interval.low_level, found.interval.high_level) == (0.99, 0.95)
    assert found.interval.method == "order statistic"
    assert found.n_needed is None


def test_limits_of_five_prompts():
    """1 - 1/2^5 = 0.969 >= 0.95: the greatest mean; below 0.99, so no lower limit."""
    found = kl_p50(kl_pair(ladder(5)), LEVELS)

    assert found.interval is not None
    assert found.interval.low is None
    assert_measured(found.interval.high, 5e-3, atol=0, rtol=1e-12)
    assert found.n_needed is None


def test_four_prompts_have_no_upper_limit():
    """1 - 1/2^4 = 0.9375 < 0.95."""
    found = kl_p50(kl_pair(ladder(4)), LEVELS)

    assert found.interval is not None
    assert found.interval.high is None
    assert found.n_needed == 5


def test_one_wild_prompt_moves_the_mean_and_not_the_median():
    """Of 41 the rank is 21; P(B(41, 1/2) <= 25) = 0.941, <= 26 = 0.970: the upper rank is 27.

    The mean is (1 + ... + 40 + 500) / 41 mnats.
    """
    found = kl_p50(kl_pair(ladder(40) | {"wild": (0.5, 0.5)}), LEVELS)

    assert found.interval is not None
    assert_measured([found.value, found.interval.high], [21e-3, 27e-3], atol=0, rtol=1e-12)
    assert found.worst is not None
    assert (found.worst.prompt, found.worst.position) == ("wild", 0)
    assert_measured(found.worst_value, 0.5, atol=0, rtol=1e-12)
    assert_measured(found.breakdown["mean"], 1.32 / 41, atol=0, rtol=1e-12)


@pytest.mark.parametrize(("decoded", "expected"), [(1e-3, 2e-3), (4e-3, 4e-3)])
def test_a_prompt_counts_by_its_worse_path(decoded, expected):
    """Prefill means 2 mnats; streams never enter."""
    ref = with_positions({"p-0": [EVEN, EVEN]})
    cand = with_positions({"p-0": [row_at(1e-3), row_at(3e-3)]})
    for tensors, row, streamed in ((ref, EVEN, EVEN), (cand, row_at(decoded), row_at(1.0))):
        tensors["p-0"]["decode.logits"] = np.array([row])
        tensors["p-0"]["decode.positions"] = np.array([1], dtype=np.int32)
        tensors["p-0"]["stream.logits"] = np.array([streamed])
    streams = {"p-0": [0]}
    found = kl_p50(make_pair(ref, cand, ref_streams=streams, cand_streams=streams), LEVELS)

    assert_measured(found.value, expected, atol=0, rtol=1e-12)
    assert_measured(found.breakdown["mean"], expected, atol=0, rtol=1e-12)


def test_equal_sides_measure_exactly_zero():
    """Seven prompts: 1 - 1/2^7 = 0.992 gives both limits."""
    logits = np.random.default_rng(1).normal(size=(5, 40))
    tensors = with_positions({f"p-{i}": logits for i in range(7)})
    found = kl_p50(make_pair(tensors, tensors), LEVELS)

    assert found.value == 0.0
    assert found.interval is not None
    assert (found.interval.low, found.interval.high) == (0.0, 0.0)


def test_a_trillionth_keeps_its_digits():
    found = kl_p50(one([EVEN], [row_at(1e-12)]), LEVELS)

    assert_measured(found.value, 1e-12, atol=0, rtol=1e-8)


def test_companions():
    """Prompt means 2 and 5 mnats: their mean is 3.5, that of the rows 3."""
    found = kl_p50(kl_pair({"p-0": (1e-3, 3e-3), "p-1": (5e-3,)}), LEVELS)

    assert_measured(found.breakdown["mean"], 3.5e-3, atol=0, rtol=1e-12)
    assert_measured(found.breakdown["row.max"], 5e-3, atol=0, rtol=1e-12)
    assert_measured(found.breakdown["batch_row.0.mean"], 2e-3, atol=0, rtol=1e-12)


@pytest.mark.parametrize("case", sorted(NONFINITE))
def test_undefined_where_values_are_no_logits(case):
    make, why = NONFINITE[case]
    found = kl_p50(make(), LEVELS)

    assert (found.value, found.interval) == (None, None)
    assert_why(found, why)


@pytest.mark.parametrize("case", sorted(UNPAIRED))
def test_undefined_where_nothing_can_be_paired(case):
    make, kind, why = UNPAIRED[case]
    found = kl_p50(make(), LEVELS)

    assert (found.value, found.undefined_kind) == (None, kind)
    assert_why(found, why)
