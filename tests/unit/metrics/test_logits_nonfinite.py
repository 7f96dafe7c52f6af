"""``logits.nonfinite`` counts values that are no logits, on both sides, signs told apart."""

import math

import numpy as np
import pytest

from tests.fakes import make_pair, with_positions
from tests.logit_cases import LEVELS, NONFINITE, UNPAIRED, assert_why, one
from validate.metrics.logits_nonfinite import logits_nonfinite

INF, NAN = math.inf, math.nan


def test_all_finite():
    found = logits_nonfinite(one(np.zeros((3, 4)), np.ones((3, 4))), LEVELS)

    assert (found.value, found.worst, found.n, found.n_of) == (0.0, None, 24, "values")
    assert found.interval is None


def test_every_kind_on_each_side():
    ref = [[0.0, NAN, 0.0, 0.0], [INF, 0.0, 0.0, 0.0]]
    cand = [[0.0, 0.0, NAN, NAN], [0.0, 0.0, 0.0, -INF]]
    found = logits_nonfinite(one(ref, cand), LEVELS)

    assert found.value == 5.0
    assert found.breakdown == {
        "ref.nan": 1.0, "ref.positive": 1.0, "ref.negative": 0.0,
        "cand.nan": 2.0, "cand.positive": 0.0, "cand.negative": 1.0,
    }  # fmt: skip


@pytest.mark.parametrize("value", [NAN, INF])
def test_the_same_on_both_sides_counts_twice(value):
    rows = [[0.0, value]]

    assert logits_nonfinite(one(rows, rows), LEVELS).value == 2.0


@pytest.mark.parametrize(
    ("ref", "cand", "expected"),
    [
        ([[0.0, -INF, 1.0]], [[0.0, -INF, 2.0]], 0.0),
        ([[0.0, -INF, 1.0]], [[0.0, 0.5, 2.0]], 1.0),
        ([[0.0, 0.5, 1.0]], [[0.0, -INF, 2.0]], 1.0),
        ([[0.0, -INF, 1.0]], [[0.0, INF, 2.0]], 2.0),
        ([[0.0, -INF, 1.0]], [[-INF, 0.0, 2.0]], 2.0),
        ([[-INF, -INF, -INF]], [[-INF, -INF, -INF]], 6.0),
    ],
    ids=["masked", "ref alone", "cand alone", "other sign", "other id", "no law at all"],
)
def test_minus_infinity(ref, cand, expected):
    """-inf on both sides at one place is masked vocabulary; a row of nothing else is not."""
    assert logits_nonfinite(one(ref, cand), LEVELS).value == expected


def test_worst_is_the_fullest_place_and_the_detail_names_others():
    ref = with_positions({"p-0": np.zeros((2, 3)), "p-1": np.zeros((3, 3))})
    cand = with_positions({"p-0": np.zeros((2, 3)), "p-1": np.zeros((3, 3))})
    ref["p-0"]["logits"][1, 2] = NAN
    cand["p-1"]["logits"][2, :2] = -INF
    found = logits_nonfinite(make_pair(ref, cand), LEVELS)

    assert found.worst is not None
    assert (found.worst.prompt, found.worst.position, found.worst.value) == ("p-1", 2, 2.0)
    assert found.worst.place == "logits row 2 id 0, cand"
    assert found.worst.detail == (
        "ref 'cuda' prompt p-0 logits position 1: 1 NaN, first at row 1 id 2 | "
        "cand 'rocm' prompt p-1 logits position 2: 2 -inf, first at row 2 id 0"
    )


def test_decode_rows_are_looked_at():
    tensors = [with_positions({"p-0": np.zeros((6, 2))}) for _ in range(2)]
    for side in tensors:
        side["p-0"]["decode.logits"] = np.zeros((3, 2))
        side["p-0"]["decode.positions"] = np.array([3, 4, 5], dtype=np.int32)
    tensors[1]["p-0"]["decode.logits"][2, 1] = NAN
    found = logits_nonfinite(make_pair(*tensors), LEVELS)

    assert found.value == 1.0
    assert found.worst is not None
    assert (found.worst.position, found.worst.place) == (5, "decode.logits row 2 id 1, cand")


def streams(ref_rows, cand_rows, *, ref_stream, cand_stream):
    ref, cand = (with_positions({"p-0": np.zeros((2, 3))}) for _ in range(2))
    ref["p-0"]["stream.logits"] = np.array(ref_rows)
    cand["p-0"]["stream.logits"] = np.array(cand_rows)
    return make_pair(ref, cand, ref_streams={"p-0": ref_stream}, cand_streams={"p-0": cand_stream})


ZERO = [0.0, 0.0, 0.0]
MASK = [0.0, 0.0, -INF]


@pytest.mark.parametrize(
    ("ref", "cand", "expected"),
    [
        ([ZERO] * 3, [ZERO, ZERO, [NAN, 0.0, 0.0]], 1.0),
        ([MASK] * 3, [MASK] * 3, 0.0),
        ([ZERO] * 3, [ZERO, ZERO, MASK], 1.0),
        ([ZERO, ZERO, MASK], [ZERO] * 3, 1.0),
        ([MASK, MASK, ZERO], [MASK] * 3, 0.0),
        ([ZERO] * 3, [ZERO, MASK, ZERO], 1.0),
    ],
    ids=[
        "nan after the divergence",
        "masked throughout",
        "mask that no shared row has, cand",
        "mask that no shared row has, ref",
        "mask of the shared rows goes on in cand",
        "mask of cand alone in a shared row",
    ],
)
def test_streams_to_their_ends(ref, cand, expected):
    """Streams part at step 1; from row 2 on the prefixes differ."""
    pair = streams(ref, cand, ref_stream=[0, 0, 0], cand_stream=[0, 1, 0])

    assert logits_nonfinite(pair, LEVELS).value == expected


def test_places_in_streams_are_positions_of_the_whole_sequence():
    pair = streams(
        [ZERO] * 3, [ZERO, ZERO, [0.0, NAN, 0.0]], ref_stream=[0, 0, 0], cand_stream=[0, 1, 0]
    )
    found = logits_nonfinite(pair, LEVELS)

    assert found.worst is not None
    assert (found.worst.position, found.worst.place) == (3, "stream.logits row 2 id 1, cand")


@pytest.mark.parametrize("case", sorted(NONFINITE))
def test_one_value_is_found(case):
    found = logits_nonfinite(NONFINITE[case][0](), LEVELS)

    assert found.value == 1.0
    assert found.worst is not None
    assert (found.worst.prompt, found.worst.position) == ("p-1", 1)


@pytest.mark.parametrize("case", sorted(UNPAIRED))
def test_undefined_where_nothing_can_be_paired(case):
    make, kind, why = UNPAIRED[case]
    found = logits_nonfinite(make(), LEVELS)

    assert (found.value, found.undefined_kind) == (None, kind)
    assert_why(found, why)
