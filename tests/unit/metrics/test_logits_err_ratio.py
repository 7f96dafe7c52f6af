"""``logits.err_ratio`` against errors made by hand on both sides of an oracle."""

import math

import numpy as np
import pytest

from tests.fakes import make_pair, with_positions
from tests.logit_cases import LEVELS, NONFINITE, UNPAIRED, assert_why
from tests.measured import assert_measured
from validate.metrics.logits_err_ratio import logits_err_ratio

ORACLE = np.array([[1.0, 2.0, 3.0, 4.0], [0.0, 1.0, 0.0, 1.0]])
SHAPE = np.array([[1.0, -1.0, 1.0, -1.0], [1.0, 1.0, -1.0, -1.0]])
"""Zero-mean errors of RMS 1 in each row."""


def triple(ref_sizes, cand_sizes, **settings):
    """Prompt p of two rows; the errors of row i have RMS ``sizes[p][i]``."""
    prompts = [f"p-{i}" for i in range(len(ref_sizes))]
    sides = [
        with_positions(
            {
                p: ORACLE + np.array(size)[:, None] * SHAPE
                for p, size in zip(prompts, sizes, strict=True)
            }
        )
        for sizes in (ref_sizes, cand_sizes)
    ]
    return make_pair(*sides, oracle=with_positions(dict.fromkeys(prompts, ORACLE)), **settings)


def test_third_quartile_of_prompt_ratios():
    """RMS over rows: ref sqrt((3^2 + 4^2)/2) = 5/sqrt 2, cand 10/sqrt 2: ratio 2; then 1/2 and 4."""
    pair = triple([(3, 4), (1, 1), (1, 1), (1, 1)], [(6, 8), (0.5, 0.5), (4, 4), (0.25, 0.25)])
    found = logits_err_ratio(pair, LEVELS)

    assert_measured(found.value, 2.0, atol=0, rtol=1e-12)
    assert_measured(found.breakdown["geometric mean"], 1.0, atol=0, rtol=1e-12)
    assert (found.unit, found.n, found.n_of) == ("ratio", 4, "prompts")
    assert (found.n_needed, found.pooled) == (11, 4)
    assert_measured(found.breakdown["prompt.max"], 4.0, atol=0, rtol=1e-12)
    assert_measured(found.breakdown["prompt.p50"], 1.25, atol=0, rtol=1e-12)


def test_limits_are_order_statistics():
    """Ratios 1 to 12: ranks 9, 5 and 12, as in test_attention_rel_l2."""
    sizes = [(i + 1.0, i + 1.0) for i in range(12)]
    found = logits_err_ratio(triple([(1, 1)] * 12, sizes), LEVELS)

    assert found.interval is not None
    assert_measured(
        [found.value, found.interval.low, found.interval.high], [9, 5, 12], atol=0, rtol=1e-12
    )
    assert found.n_needed is None


def test_pooled_over_rows_by_squares():
    """ref (1, 7): sqrt(25) = 5; cand (5, 5): 5. The mean of row ratios would be 2.9."""
    found = logits_err_ratio(triple([(1, 7)], [(5, 5)]), LEVELS)

    assert_measured(found.value, 1.0, atol=0, rtol=1e-12)


def test_worst_row_is_over_the_largest_of_row_prompt_and_median_prompt():
    """Ref RMS 5, 1, 1, median 1. Ratios: 10/5, 14/7; 1/1, 3/1; 2/1 over the median, 0.1/1."""
    pair = triple([(1, 7), (1, 1), (0.1, 0.1), (1, 1)], [(10, 14), (1, 3), (2, 0.1), (1, 1)])
    found = logits_err_ratio(pair, LEVELS)

    assert_measured(found.worst_value, 3.0, atol=0, rtol=1e-12)
    assert found.worst is not None
    assert (found.worst.prompt, found.worst.position) == ("p-1", 1)
    assert found.worst.place == "logits row 1"
    assert found.worst.detail == (
        "error of cand 3, of ref 1; of ref over the prompt 1, over the median prompt 1 (logits, RMS)"
    )


def test_a_lucky_prompt_of_ref_is_not_held_against_cand():
    """Ref errs by 0.01 on one prompt of three and by 1 on the others; cand by 1.5 there."""
    pair = triple([(1, 1), (0.01, 0.01), (1, 1)], [(1, 1), (1.5, 1), (1, 1)])

    assert_measured(logits_err_ratio(pair, LEVELS).worst_value, 1.5, atol=0, rtol=1e-12)


def with_decode(size, **oracle_changes):
    """One prompt: prefill errors of 1 on both sides; the decode row errs by 1 in ref, ``size`` in cand."""
    pair = triple([(1, 1)], [(1, 1)])
    sides = []
    for side, error in ((pair.ref, 1.0), (pair.cand, size), (pair.oracle, 0.0)):
        assert side is not None
        tensors = {name: side.tensor("p-0", name) for name in side.names("p-0")}
        tensors["decode.logits"] = ORACLE[:1] + error * SHAPE[:1]
        tensors["decode.positions"] = np.array([1], dtype=np.int32)
        sides.append({"p-0": tensors})
    sides[2]["p-0"] |= oracle_changes
    for name in [name for name, value in sides[2]["p-0"].items() if value is None]:
        del sides[2]["p-0"][name]
    return make_pair(sides[0], sides[1], oracle=sides[2])


def test_decode_rows_are_pooled_with_prefill_rows():
    """Cand: squares 1, 1 and 49 over three rows: RMS sqrt 17; ref 1. Worst row 7."""
    found = logits_err_ratio(with_decode(7.0), LEVELS)

    assert_measured([found.value, found.worst_value], [math.sqrt(17), 7.0], atol=0, rtol=1e-12)
    assert found.worst is not None
    assert (found.worst.place, found.worst.position) == ("decode.logits row 0", 1)


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({"decode.logits": None}, "oracle 'oracle' holds no decode.logits of prompt p-0"),
        (
            {"decode.positions": np.array([0], dtype=np.int32)},
            "decode.logits .* at other positions",
        ),
    ],
    ids=["missing", "shifted"],
)
def test_an_oracle_whose_decode_rows_do_not_fit(changes, why):
    found = logits_err_ratio(with_decode(1.0, **changes), LEVELS)

    assert (found.value, found.undefined_kind) == (None, "unlike")
    assert_why(found, why)


def test_a_lucky_row_of_ref_is_not_held_against_cand():
    found = logits_err_ratio(triple([(1e-9, 1)], [(1, 1)]), LEVELS)

    assert found.worst_value is not None
    assert_measured(found.worst_value, math.sqrt(2), atol=0, rtol=1e-6)


def test_equal_sides_measure_exactly_one():
    sizes = [(3, 4), (1, 2)] * 6
    found = logits_err_ratio(triple(sizes, sizes), LEVELS)

    assert (found.value, found.worst_value) == (1.0, 1.0)
    assert found.interval is not None
    assert (found.interval.low, found.interval.high) == (1.0, 1.0)


def test_a_shift_of_all_logits_is_no_error():
    pair = triple([(1, 1)], [(2, 2)])
    shifted = with_positions({"p-0": pair.cand.tensor("p-0", "logits") + 5.0})
    oracle = with_positions({"p-0": ORACLE})
    found = logits_err_ratio(make_pair(pair.ref, shifted, oracle=oracle), LEVELS)

    assert_measured(found.value, 2.0, atol=0, rtol=1e-12)


def test_masked_vocabulary_is_left_out():
    masked = np.full((2, 1), -math.inf)
    pair = triple([(1, 1)], [(2, 2)])
    sides = [
        with_positions({"p-0": np.hstack([side.tensor("p-0", "logits"), masked])})
        for side in (pair.ref, pair.cand)
    ]
    oracle = with_positions({"p-0": np.hstack([ORACLE, masked])})
    found = logits_err_ratio(make_pair(*sides, oracle=oracle), LEVELS)

    assert_measured(found.value, 2.0, atol=0, rtol=1e-12)
    assert_measured(found.breakdown["cand_rms"], 2.0, atol=0, rtol=1e-12)


def test_one_prompt_has_no_limits():
    found = logits_err_ratio(triple([(1, 1)], [(2, 2)]), LEVELS)

    assert found.interval is not None
    assert found.interval.high is None
    assert found.n_needed == 11


def test_no_oracle():
    pair = triple([(1, 1)], [(2, 2)])
    found = logits_err_ratio(make_pair(pair.ref, pair.cand), LEVELS)

    assert (found.value, found.undefined_kind) == (None, "no_data")
    assert_why(found, "no oracle capture to measure either side against")


@pytest.mark.parametrize(("side", "label"), [(0, "cuda"), (1, "rocm")])
def test_a_side_that_is_the_oracle(side, label):
    sizes = [[(1, 1), (1, 1)], [(1, 1), (1, 1)]]
    sizes[side][1] = (0, 0)
    found = logits_err_ratio(triple(*sizes), LEVELS)

    assert found.value is None
    assert_why(found, f"{label} equals the oracle exactly on prompt p-1: no ratio")


@pytest.mark.parametrize(
    ("oracle", "kind", "why"),
    [
        ({}, "unlike", "oracle 'oracle' holds no logits of prompt p-0"),
        (with_positions({"p-0": ORACLE[:1]}), "unlike", r"logits \(1, 4\) at other positions"),
        (
            with_positions({"p-0": ORACLE * np.array([[1, 1, 1, np.nan]])}),
            "no_data",
            "oracle 'oracle' and ref 'cuda' prompt p-0 logits: 2 NaN, first at row 0 id 3",
        ),
    ],
    ids=["missing", "short", "nan"],
)
def test_an_oracle_that_does_not_fit(oracle, kind, why):
    pair = triple([(1, 1)], [(2, 2)])
    found = logits_err_ratio(make_pair(pair.ref, pair.cand, oracle=oracle), LEVELS)

    assert (found.value, found.undefined_kind) == (None, kind)
    assert_why(found, why)


@pytest.mark.parametrize("case", sorted(NONFINITE))
def test_undefined_where_values_are_no_logits(case):
    make, why = NONFINITE[case]
    pair = make()
    found = logits_err_ratio(make_pair(pair.ref, pair.cand, oracle=pair.ref), LEVELS)

    assert found.value is None
    assert_why(found, why)


@pytest.mark.parametrize("case", sorted(UNPAIRED))
def test_undefined_where_nothing_can_be_paired(case):
    make, kind, why = UNPAIRED[case]
    pair = make()
    found = logits_err_ratio(make_pair(pair.ref, pair.cand, oracle=pair.ref), LEVELS)

    assert (found.value, found.undefined_kind) == (None, kind)
    assert_why(found, why)
