"""``logits.kl_max`` finds the one row that is lost, wherever it is."""

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
    one,
    row_at,
)
from tests.measured import assert_measured
from validate.metrics.kl_max import kl_max


def test_worst_position_of_all():
    found = kl_max(kl_pair({"p-0": (0.1, 0.1, 0.1), "p-1": (0.0, 0.7), "p-2": (0.2,)}), LEVELS)

    assert_measured([found.value, found.worst_value], [0.7, 0.7], atol=0, rtol=1e-12)
    assert found.worst is not None
    assert (found.worst.prompt, found.worst.position) == ("p-1", 1)
    assert found.worst.place == "logits row 1"
    assert (found.n, found.n_of, found.unit) == (6, "positions", "nats")
    assert found.interval is None


def test_detail_shows_both_sides():
    ref = np.log([[0.1, 0.2, 0.3, 0.4]])
    cand = np.log([[0.7, 0.1, 0.15, 0.05]])
    found = kl_max(one(ref, cand), LEVELS)

    assert found.worst is not None
    assert found.worst.detail == (
        "top-1 ref 3 (p 0.4), cand 0 (p 0.7); top-3 ref 3 2 1, cand 0 2 1"
    )


def test_direction_is_ref_to_cand():
    """KL((1/2, 1/2) || (0.9, 0.1)) = 1/2 ln(25/9); the other way it is 0.368."""
    found = kl_max(one([EVEN], np.log([[0.9, 0.1]])), LEVELS)

    assert_measured(found.value, 0.5 * math.log(25 / 9), atol=0, rtol=1e-13)


def test_the_last_row_counts():
    found = kl_max(kl_pair({"p-0": (0.0, 0.0, 0.3)}), LEVELS)

    assert_measured(found.value, 0.3, atol=0, rtol=1e-12)


def test_the_decode_path_counts():
    ref, cand = (with_positions({"p-0": [EVEN] * 6}) for _ in range(2))
    for tensors, row in ((ref, EVEN), (cand, row_at(0.4))):
        tensors["p-0"]["decode.logits"] = np.array([EVEN, row])
        tensors["p-0"]["decode.positions"] = np.array([4, 5], dtype=np.int32)
    found = kl_max(make_pair(ref, cand), LEVELS)

    assert_measured(found.value, 0.4, atol=0, rtol=1e-12)
    assert found.worst is not None
    assert (found.worst.place, found.worst.position) == ("decode.logits row 1", 5)
    assert found.n == 8


def stream_pair(kls, *, ref_stream, cand_stream):
    """Prompt of three tokens; KL of each stream row given, ref rows first."""
    ref, cand = (with_positions({"p-0": [EVEN] * 3}) for _ in range(2))
    ref["p-0"]["stream.logits"] = np.array([EVEN] * len(ref_stream)).reshape(-1, 2)
    cand["p-0"]["stream.logits"] = np.array([row_at(kl) for kl in kls]).reshape(-1, 2)
    return make_pair(ref, cand, ref_streams={"p-0": ref_stream}, cand_streams={"p-0": cand_stream})


def test_stream_rows_count_up_to_the_first_divergence():
    """Row 1 holds the divergence: its prefix is still the same; row 2 has another prefix."""
    pair = stream_pair([0.1, 0.2, 0.9], ref_stream=[0, 1, 0], cand_stream=[0, 0, 0])
    found = kl_max(pair, LEVELS)

    assert_measured(found.value, 0.2, atol=0, rtol=1e-12)
    assert found.worst is not None
    assert (found.worst.place, found.worst.position) == ("stream.logits row 1", 3)
    assert found.n == 5


def test_all_stream_rows_count_without_divergence():
    pair = stream_pair([0.1, 0.2, 0.9], ref_stream=[0, 1, 0], cand_stream=[0, 1, 0])

    assert_measured(kl_max(pair, LEVELS).value, 0.9, atol=0, rtol=1e-12)


def test_streams_of_unlike_length_count_as_far_as_both_go():
    pair = stream_pair([0.1, 0.2, 0.9], ref_stream=[0, 1], cand_stream=[0, 1, 0])

    assert_measured(kl_max(pair, LEVELS).value, 0.2, atol=0, rtol=1e-12)


def test_an_empty_stream_adds_nothing():
    pair = stream_pair([0.5], ref_stream=[], cand_stream=[1])

    assert kl_max(pair, LEVELS).value == 0.0


def test_masked_vocabulary_is_no_difference():
    """-inf on both sides at the same id: KL is that of the ids that are left."""
    ref = [[0.0, 0.0, -math.inf]]
    cand = [[*np.log([0.9, 0.1]), -math.inf]]

    assert_measured(
        kl_max(one(ref, cand), LEVELS).value, 0.5 * math.log(25 / 9), atol=0, rtol=1e-13
    )


def test_a_stride_keeps_its_positions():
    """With a stride of 8 and 34 tokens, positions 0, 8, 16 and the last sixteen are scored."""
    prompt = make_prompt("p-0", [1] * 34).model_copy(update={"score_stride": 8})
    at = np.array(prompt.scored_positions(), dtype=np.int32)
    assert at.tolist() == [0, 8, 16, *range(18, 34)]
    ref, cand = (
        {"p-0": {"logits": np.array([EVEN] * 19), "logits.positions": at}} for _ in range(2)
    )
    cand["p-0"]["logits"][2] = row_at(0.3)
    found = kl_max(make_pair(ref, cand, prompts={"p-0": prompt}), LEVELS)

    assert found.worst is not None
    assert (found.worst.position, found.worst.place) == (16, "logits row 2")


def test_logits_are_read_once_for_all_metrics():
    pair = kl_pair({"p-0": (0.1,), "p-1": (0.2,)})
    kl_max(pair, LEVELS)
    kl_max(pair, LEVELS)

    reads = pair.cand.reads  # type: ignore[attr-defined]
    assert reads.count("p-0/logits") == reads.count("p-1/logits") == 1


@pytest.mark.parametrize("case", sorted(NONFINITE))
def test_undefined_where_values_are_no_logits(case):
    make, why = NONFINITE[case]
    found = kl_max(make(), LEVELS)

    assert found.value is None
    assert_why(found, why)


@pytest.mark.parametrize("case", sorted(UNPAIRED))
def test_undefined_where_nothing_can_be_paired(case):
    make, kind, why = UNPAIRED[case]
    found = kl_max(make(), LEVELS)

    assert (found.value, found.undefined_kind) == (None, kind)
    assert_why(found, why)
