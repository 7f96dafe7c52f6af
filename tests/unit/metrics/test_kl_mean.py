"""``logits.kl_mean`` against divergences in closed form."""

import math

import numpy as np
import pytest
import scipy.stats

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
from validate.metrics.kl_mean import kl_mean


def test_mean_of_prompt_means_not_of_rows():
    """Prompt means 10, 2 and 3 mnats: their mean is 5, their median 3, the mean of rows 3.8."""
    rows = {"p-0": (10e-3,), "p-1": (1e-3, 2e-3, 3e-3), "p-2": (3e-3,)}
    found = kl_mean(kl_pair(rows), LEVELS)

    assert_measured(found.value, 5e-3, atol=0, rtol=1e-12)
    assert (found.metric, found.unit, found.n, found.n_of) == (
        "logits.kl_mean", "nats", 3, "prompts",
    )  # fmt: skip


def test_direction_is_ref_to_cand():
    """KL((1/2, 1/2) || (0.9, 0.1)) = 1/2 ln(25/9); the other way it is 0.368."""
    found = kl_mean(one([EVEN], np.log([[0.9, 0.1]])), LEVELS)

    assert_measured(found.value, 0.5 * math.log(25 / 9), atol=0, rtol=1e-13)


def test_limits_are_those_of_the_prompt_means():
    """By SciPy: t below, and above it t at a third of the risk, corrected for skewness."""
    means = np.array([1e-4 * (i + 1) ** 2 for i in range(40)])
    found = kl_mean(kl_pair({f"p-{i}": (mean, mean) for i, mean in enumerate(means)}), LEVELS)

    error, t = scipy.stats.sem(means), scipy.stats.t.ppf(1 - 0.05 / 3, 39)
    skewed = scipy.stats.skew(means) * (1 + 2 * t**2) / (6 * math.sqrt(40))
    low = means.mean() - scipy.stats.t.ppf(0.99, 39) * error
    assert found.interval is not None
    assert_measured(
        [found.interval.low, found.interval.high],
        [low, means.mean() + error * (t + skewed)],
        atol=0,
        rtol=1e-9,
    )
    assert found.interval.method == "skewness-corrected t"
    assert found.n_needed is None


def test_few_prompts_have_no_upper_limit():
    found = kl_mean(kl_pair(ladder(29)), LEVELS)

    assert found.interval is not None
    assert found.interval.high is None
    assert found.n_needed == 30


def test_one_wild_prompt_leaves_no_upper_limit():
    found = kl_mean(kl_pair(ladder(40) | {"wild": (0.5, 0.5)}), LEVELS)

    assert found.interval is not None
    assert found.interval.high is None
    assert "one unit carries" in found.interval.method
    assert found.n_needed is None
    assert found.worst is not None
    assert (found.worst.prompt, found.worst.position) == ("wild", 0)
    assert_measured(found.worst_value, 0.5, atol=0, rtol=1e-12)


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
    found = kl_mean(make_pair(ref, cand, ref_streams=streams, cand_streams=streams), LEVELS)

    assert_measured(found.value, expected, atol=0, rtol=1e-12)


def test_equal_sides_measure_exactly_zero_with_certainty():
    logits = np.random.default_rng(1).normal(size=(5, 40))
    tensors = with_positions({"p-0": logits, "p-1": logits[:2]})
    found = kl_mean(make_pair(tensors, tensors), LEVELS)

    assert found.value == 0.0
    assert found.interval is not None
    assert (found.interval.low, found.interval.high) == (0.0, 0.0)


def test_a_trillionth_keeps_its_digits():
    found = kl_mean(one([EVEN], [row_at(1e-12)]), LEVELS)

    assert_measured(found.value, 1e-12, atol=0, rtol=1e-8)


def test_companions():
    found = kl_mean(kl_pair({"p-0": (1e-3, 3e-3)}), LEVELS)

    assert_measured(found.breakdown["row.max"], 3e-3, atol=0, rtol=1e-12)
    assert_measured(found.breakdown["batch_row.0.mean"], 2e-3, atol=0, rtol=1e-12)


@pytest.mark.parametrize("case", sorted(NONFINITE))
def test_undefined_where_values_are_no_logits(case):
    make, why = NONFINITE[case]
    found = kl_mean(make(), LEVELS)

    assert (found.value, found.interval) == (None, None)
    assert_why(found, why)


@pytest.mark.parametrize("case", sorted(UNPAIRED))
def test_undefined_where_nothing_can_be_paired(case):
    make, kind, why = UNPAIRED[case]
    found = kl_mean(make(), LEVELS)

    assert (found.value, found.undefined_kind) == (None, kind)
    assert_why(found, why)
