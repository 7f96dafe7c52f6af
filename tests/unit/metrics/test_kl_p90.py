"""``logits.kl_p90`` against divergences in closed form."""

import math

import numpy as np
import pytest

from tests.fakes import make_pair, make_prompt, with_positions
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
from validate.metrics.kl_p90 import kl_p90


def test_ninth_of_ten_prompt_means():
    """Means are 1 to 10 mnats; the order statistic of rank ceil(10 * 0.9) is 9 mnats."""
    found = kl_p90(kl_pair(ladder(10)), LEVELS)

    assert_measured(found.value, 9e-3, atol=0, rtol=1e-12)
    assert (found.metric, found.unit, found.n, found.n_of) == (
        "logits.kl_p90", "nats", 10, "prompts",
    )  # fmt: skip


def test_limits_of_ten_prompts():
    """P(B(10, 0.9) >= 6) = 0.9984 >= 0.99 > P(>= 7) = 0.987; no upper limit below 29."""
    found = kl_p90(kl_pair(ladder(10)), LEVELS)

    assert found.interval is not None
    assert_measured(found.interval.low, 6e-3, atol=0, rtol=1e-12)
    assert found.interval.high is None
    assert found.n_needed == 29
    assert (found.interval.low_level, found.interval.high_level) == (0.99, 0.95)


def test_limits_of_thirty_prompts():
    """1 - 0.9^30 = 0.958 >= 0.95 > P(B(30, 0.9) <= 28) = 0.816: the greatest mean."""
    found = kl_p90(kl_pair(ladder(30)), LEVELS)

    assert found.interval is not None
    assert_measured(found.value, 27e-3, atol=0, rtol=1e-12)
    assert_measured(found.interval.high, 30e-3, atol=0, rtol=1e-12)
    assert found.n_needed is None


def test_direction_is_ref_to_cand():
    """KL((1/2, 1/2) || (0.9, 0.1)) = 1/2 ln(25/9); the other way it is 0.368."""
    found = kl_p90(one([EVEN], np.log([[0.9, 0.1]])), LEVELS)

    assert_measured(found.value, 0.5 * math.log(25 / 9), atol=0, rtol=1e-13)


def test_equal_sides_measure_exactly_zero():
    logits = np.random.default_rng(1).normal(size=(5, 40))
    found = kl_p90(one(logits, logits), LEVELS)

    assert found.value == 0.0
    assert found.worst_value == 0.0


def test_a_trillionth_keeps_its_digits():
    """Float32 cannot hold logits that differ by 1e-6."""
    found = kl_p90(one([EVEN], [row_at(1e-12)]), LEVELS)

    assert_measured(found.value, 1e-12, atol=0, rtol=1e-8)


def with_decode(row):
    """Prefill rows of 1 and 3 mnats, one decode row and one stream row of 1 nat."""
    ref = with_positions({"p-0": [EVEN, EVEN]})
    cand = with_positions({"p-0": [row_at(1e-3), row_at(3e-3)]})
    for tensors, decoded, streamed in ((ref, EVEN, EVEN), (cand, row, row_at(1.0))):
        tensors["p-0"]["decode.logits"] = np.array([decoded])
        tensors["p-0"]["decode.positions"] = np.array([1], dtype=np.int32)
        tensors["p-0"]["stream.logits"] = np.array([streamed])
    return make_pair(ref, cand, ref_streams={"p-0": [0]}, cand_streams={"p-0": [0]})


@pytest.mark.parametrize(("decoded", "expected"), [(1e-3, 2e-3), (4e-3, 4e-3)])
def test_a_prompt_counts_by_its_worse_path(decoded, expected):
    """Prefill means 2 mnats; streams never enter."""
    found = kl_p90(with_decode(row_at(decoded)), LEVELS)

    assert_measured(found.value, expected, atol=0, rtol=1e-12)
    assert_measured(found.breakdown["decode.logits.mean"], decoded, atol=0, rtol=1e-12)
    assert_measured(found.breakdown["stream.logits.mean"], 1.0, atol=0, rtol=1e-12)
    assert_measured(found.breakdown["row.max"], 3e-3, atol=0, rtol=1e-12)
    assert_measured(found.breakdown["mean"], expected, atol=0, rtol=1e-12)


def test_the_worse_path_is_named():
    found = kl_p90(with_decode(row_at(4e-3)), LEVELS)

    assert found.worst is not None
    assert (found.worst.place, found.worst.position) == ("decode.logits row 0", 1)


def test_worst_names_the_prompt_and_its_position():
    found = kl_p90(kl_pair({"p-0": (0.1, 0.1), "p-1": (0.0, 0.5), "p-2": (0.2, 0.2)}), LEVELS)

    assert found.worst is not None
    assert (found.worst.prompt, found.worst.position) == ("p-1", 1)
    assert found.worst.place == "logits row 1"
    assert_measured([found.worst.value, found.worst_value], [0.25, 0.25], atol=0, rtol=1e-12)
    assert found.worst.detail is not None
    assert found.worst.detail.startswith(
        "KL 0.5 nats at the position; top-1 ref 0 (p 0.5), cand 0 (p 0.8975); top-3"
    )


def test_breakdown_over_rows():
    """Rows 1, 2, 3, 4 mnats in one prompt: quantiles by rank, slope 1 mnat a position."""
    found = kl_p90(kl_pair({"p-0": (1e-3, 2e-3, 3e-3, 4e-3)}), LEVELS)

    expected = {"row.p50": 2e-3, "row.p90": 4e-3, "row.p99.9": 4e-3, "row.max": 4e-3}
    for name, value in expected.items():
        assert_measured(found.breakdown[name], value, atol=0, rtol=1e-12)
    assert_measured(found.breakdown["slope_per_1000_positions"], 1.0, atol=0, rtol=1e-12)
    assert found.breakdown["top1_agreement"] == 1.0
    assert found.breakdown["tied_rows"] == 4.0


def test_breakdown_by_tag():
    prompts = {
        "p-0": make_prompt("p-0", [1], tags=["long", "tools"]),
        "p-1": make_prompt("p-1", [1], tags=["long"]),
    }
    found = kl_p90(kl_pair({"p-0": (0.1,), "p-1": (0.3,)}, prompts=prompts), LEVELS)

    assert_measured(found.breakdown["tag.long.mean"], 0.2, atol=0, rtol=1e-12)
    assert_measured(found.breakdown["tag.tools.mean"], 0.1, atol=0, rtol=1e-12)


def test_batch_rows_that_stand_out_are_named():
    """Fakes put prompt i in batch row i mod 4; rows 1 and 3 are a hundred times worse."""
    rows = {f"p-{i:02d}": (1e-3 if i % 2 == 0 else 1e-1,) for i in range(12)}
    found = kl_p90(kl_pair(rows), LEVELS)

    assert found.pattern == "batch rows 1,3"
    assert_measured(found.breakdown["batch_row.3.mean"], 1e-1, atol=0, rtol=1e-12)
    assert kl_p90(kl_pair(ladder(12)), LEVELS).pattern is None


@pytest.mark.parametrize("case", sorted(NONFINITE))
def test_undefined_where_values_are_no_logits(case):
    make, why = NONFINITE[case]
    found = kl_p90(make(), LEVELS)

    assert (found.value, found.interval, found.undefined_kind) == (None, None, "no_data")
    assert_why(found, why)


@pytest.mark.parametrize("case", sorted(UNPAIRED))
def test_undefined_where_nothing_can_be_paired(case):
    make, kind, why = UNPAIRED[case]
    found = kl_p90(make(), LEVELS)

    assert (found.value, found.n, found.undefined_kind) == (None, 0, kind)
    assert_why(found, why)
