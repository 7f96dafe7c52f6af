"""``logits.top1_flips`` counts first choices changed across more than the hard cap."""

import numpy as np
import pytest

from tests.fakes import make_pair, with_positions
from tests.logit_cases import LEVELS, NONFINITE, UNPAIRED, assert_why, one
from tests.measured import assert_measured
from validate.metrics.top1_flips import top1_flips

REF = [[3.0, 2.5, 0.0], [3.0, 2.0, 0.0], [3.0, 2.0, 0.0], [2.0, 2.0, 0.0], [3.0, 2.0, 1.0]]
CAND = [[2.0, 2.1, 0.0], [2.0, 2.1, 0.0], [3.0, 2.9, 0.0], [1.0, 2.0, 2.0], [0.0, 1.0, 2.0]]
# Row 0 flips across a ref gap of 0.5, row 1 of 1, row 2 not, row 3 shares id 1 of its
# ties, row 4 flips to ref's third choice across a gap of 2.


@pytest.mark.parametrize(
    ("near_tie", "flips", "near"),
    [(0.0, 3, 0), (0.5, 2, 1), (0.75, 2, 1), (1.0, 1, 2), (2.0, 0, 3)],
)
def test_flips_beyond_the_near_tie_limit(near_tie, flips, near):
    """A gap equal to the limit is a near-tie."""
    found = top1_flips(one(REF, CAND, near_tie=near_tie), LEVELS)

    assert (found.breakdown["beyond_near_tie"], found.breakdown["near_ties"]) == (flips, near)
    assert found.breakdown["top1_agreement"] == 0.4
    assert found.breakdown["flips_per_1000"] == 200.0 * flips
    assert found.breakdown["tied_rows"] == 1.0
    assert (found.n, found.n_of, found.unit, found.interval) == (5, "positions", "positions", None)


@pytest.mark.parametrize(
    ("near_tie", "value"), [(0.0, 3), (0.0625, 2), (0.125, 1), (0.2, 1), (0.25, 0), (0.5, 0)]
)
def test_a_flip_counts_beyond_eight_limits(near_tie, value):
    """Gaps 0.5, 1 and 2 (each exact in binary) against caps 0, 0.5, 1, 1.6, 2, 4; the cap itself
    is no fault."""
    found = top1_flips(one(REF, CAND, near_tie=near_tie), LEVELS)

    assert (found.value, found.breakdown["hard_cap"]) == (value, 8 * near_tie)


def test_near_ties_that_the_limit_predicts():
    """Margins 0.5, 1, 1, 0, 1 under a limit of 1: (1/2 + 0 + 0 + 1 + 0) / 2; none under 0."""
    found = top1_flips(one(REF, CAND, near_tie=1.0), LEVELS)

    assert found.breakdown["near_ties.predicted"] == 0.75
    half = top1_flips(one(REF, CAND, near_tie=0.5), LEVELS)
    assert half.breakdown["near_ties.predicted"] == 0.5
    assert top1_flips(one(REF, CAND), LEVELS).breakdown["near_ties.predicted"] == 0.0


def test_three_prompts_of_four_shift_no_further():
    """Rows 0, 1 and 2 shift margins 0.5, 1, 1 to -0.1, -0.1, 0.1: by 0.6, 1.1, 0.9; row 4 by 2."""
    ref = with_positions({f"p-{i}": [REF[i]] for i in (0, 1, 2, 4)})
    cand = with_positions({f"p-{i}": [CAND[i]] for i in (0, 1, 2, 4)})
    found = top1_flips(make_pair(ref, cand), LEVELS)

    assert_measured(found.breakdown["margin_shift.p75"], 1.1, atol=1e-12, rtol=0)
    assert_measured(found.breakdown["margin_shift.max"], 2.0, atol=1e-12, rtol=0)


def test_the_gap_is_that_of_ref():
    """Row 0: cand prefers its own choice by 0.1 only, yet ref's gap of 0.5 decides."""
    one_way = top1_flips(one(REF[:1], CAND[:1], near_tie=0.2), LEVELS)
    other = top1_flips(one(CAND[:1], REF[:1], near_tie=0.2), LEVELS)

    assert (one_way.breakdown["beyond_near_tie"], other.breakdown["beyond_near_tie"]) == (1, 0)


def test_worst_is_the_widest_gap():
    found = top1_flips(one(REF, CAND, near_tie=0.75), LEVELS)

    assert found.worst is not None
    assert (found.worst.prompt, found.worst.position) == ("p-0", 4)
    assert (found.worst.value, found.worst_value) == (2.0, 2.0)
    assert found.worst.place == "logits row 4"
    assert found.worst.detail is not None
    assert found.worst.detail.startswith("ref gap 2 nats; top-1 ref 0 (p 0.6652), cand 2 (p 0.66")


def test_the_widest_of_all_prompts():
    ref = with_positions({"p-0": REF[:2], "p-1": REF[4:], "p-2": REF[:1]})
    cand = with_positions({"p-0": CAND[:2], "p-1": CAND[4:], "p-2": CAND[:1]})
    found = top1_flips(make_pair(ref, cand), LEVELS)

    assert found.value == 4
    assert found.worst is not None
    assert (found.worst.prompt, found.worst.value) == ("p-1", 2.0)


def test_greatest_shift_between_refs_first_two_choices():
    """Margins 0.5, 1, 1, 0, 1 become -0.1, -0.1, 0.1, 1 and -1: row 4 moves by 2."""
    found = top1_flips(one(REF, CAND, near_tie=9.0), LEVELS)

    assert_measured(found.breakdown["margin_shift.max"], 2.0, atol=0, rtol=1e-12)
    assert top1_flips(one(REF, np.array(REF) + 3.0), LEVELS).breakdown["margin_shift.max"] == 0.0


def test_no_flip_has_no_worst():
    found = top1_flips(one(REF, REF), LEVELS)

    assert (found.value, found.worst, found.worst_value) == (0.0, None, 0.0)
    assert found.breakdown["top1_agreement"] == 1.0


def test_decode_and_stream_rows_count():
    """Two forced rows, one decode row and two stream rows before the divergence; one flip each."""
    ref = with_positions({"p-0": [REF[1], REF[2]]})
    cand = with_positions({"p-0": [CAND[1], CAND[2]]})
    for tensors, rows in ((ref, REF), (cand, CAND)):
        tensors["p-0"]["decode.logits"] = np.array([rows[4]])
        tensors["p-0"]["decode.positions"] = np.array([1], dtype=np.int32)
        tensors["p-0"]["stream.logits"] = np.array([rows[2], rows[0], rows[4]])
    pair = make_pair(ref, cand, ref_streams={"p-0": [0, 0, 0]}, cand_streams={"p-0": [0, 1, 2]})
    found = top1_flips(pair, LEVELS)

    assert (found.value, found.breakdown["beyond_near_tie"]) == (3, 3)
    sections = {name: found.breakdown[f"{name}.flips"] for name in (
        "logits", "decode.logits", "stream.logits"
    )}  # fmt: skip
    assert sections == {"logits": 1.0, "decode.logits": 1.0, "stream.logits": 1.0}
    assert found.n == 5


def test_shifted_logits_are_the_same_choice():
    found = top1_flips(one(REF, np.array(REF) + 7.0), LEVELS)

    assert_measured(found.value, 0.0, atol=0, rtol=0)


@pytest.mark.parametrize("case", sorted(NONFINITE))
def test_undefined_where_values_are_no_logits(case):
    make, why = NONFINITE[case]
    found = top1_flips(make(), LEVELS)

    assert found.value is None
    assert_why(found, why)


@pytest.mark.parametrize("case", sorted(UNPAIRED))
def test_undefined_where_nothing_can_be_paired(case):
    make, kind, why = UNPAIRED[case]
    found = top1_flips(make(), LEVELS)

    assert (found.value, found.undefined_kind) == (None, kind)
    assert_why(found, why)
