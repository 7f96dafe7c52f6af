"""``greedy.unexplained`` and its rate: near-ties by both sides' rows, tokens off their own argmax."""

import dataclasses
import math

import ml_dtypes
import numpy as np
import pytest

from tests.fakes import make_pair, make_prompt
from tests.logit_cases import LEVELS, assert_why
from tests.measured import assert_measured
from validate.metrics.greedy_unexplained import greedy_unexplained
from validate.metrics.greedy_unexplained_rate import greedy_unexplained_rate

FIRST = [2.0, 0.0, 0.0]
"""Id 0 leads by 2."""
CLOSE = [2.0, 1.75, 0.0]
"""Id 0 leads id 1 by a quarter."""
TURNED = [1.75, 2.0, 0.0]
"""Id 1 leads id 0 by a quarter."""


def pair_of(ref, cand, **settings):
    """Prompts of three tokens; each side is a list of (stream, rows)."""
    prompts = {f"p-{i}": make_prompt(f"p-{i}", [1, 2, 1]) for i in range(len(ref))}
    tensors = [
        {p: {"stream.logits": np.array(rows)} for p, (_, rows) in zip(prompts, given, strict=True)}
        for given in (ref, cand)
    ]
    streams = [
        {p: stream for p, (stream, _) in zip(prompts, given, strict=True)} for given in (ref, cand)
    ]
    return make_pair(
        *tensors, prompts=prompts, ref_streams=streams[0], cand_streams=streams[1], **settings
    )


def counts(found):
    kinds = ("divergences.unexplained", "divergences.near_tie", "off_argmax.ref", "off_argmax.cand")
    return tuple(found.breakdown[kind] for kind in kinds)


def test_agreement():
    side = [([0, 0], [FIRST, CLOSE]), ([1], [TURNED])]
    found = greedy_unexplained(pair_of(side, side), LEVELS)

    assert (found.value, found.worst, found.n, found.n_of) == (0.0, None, 2, "prompts")
    assert found.worst_value == 0.0
    assert counts(found) == (0, 0, 0, 0)


@pytest.mark.parametrize(("near_tie", "unexplained"), [(0.3, 0), (0.25, 0), (0.2, 1)])
def test_a_near_tie_is_explained_up_to_the_limit(near_tie, unexplained):
    """Ref rates the two ids 0.25 apart; cand's id is the top of cand's own row."""
    pair = pair_of([([0, 0], [FIRST, CLOSE])], [([0, 1], [FIRST, TURNED])], near_tie=near_tie)
    found = greedy_unexplained(pair, LEVELS)

    assert counts(found) == (unexplained, 1 - unexplained, 0, 0)
    assert greedy_unexplained_rate(pair, LEVELS).value == unexplained
    assert found.value == 0.0


@pytest.mark.parametrize(("near_tie", "value"), [(0.2, 1), (0.25, 0), (0.3, 0)])
def test_a_divergence_counts_beyond_eight_limits(near_tie, value):
    """Ref rates the ids 2 apart; the caps are 1.6, 2 and 2.4, and the cap itself is no fault."""
    pair = pair_of([([0], [FIRST])], [([1], [TURNED])], near_tie=near_tie)
    found = greedy_unexplained(pair, LEVELS)

    assert (found.value, found.breakdown["divergences.beyond_cap"]) == (value, value)
    assert found.breakdown["hard_cap"] == 8 * near_tie
    assert counts(found) == (1, 0, 0, 0)
    assert (found.worst is None) == (value == 0)


def test_rows_as_captures_store_them():
    """2, 1.75 and -inf are bfloat16 values: the near-tie limit itself is met exactly."""
    ref = np.array([[2.0, 1.75, -math.inf]], dtype=ml_dtypes.bfloat16)
    cand = np.array([[1.75, 2.0, -math.inf]], dtype=ml_dtypes.bfloat16)
    found = greedy_unexplained(pair_of([([0], ref)], [([1], cand)], near_tie=0.25), LEVELS)

    assert counts(found) == (0, 1, 0, 0)
    assert found.breakdown["near_tie_rows"] == 1.0


def test_ref_must_rate_the_ids_close():
    """Cand's row is sure of its id, ref's of the other by 2: no rounding does that."""
    pair = pair_of([([0, 0], [FIRST, FIRST])], [([0, 1], [FIRST, TURNED])], near_tie=0.5)
    found = greedy_unexplained_rate(pair, LEVELS)

    assert counts(greedy_unexplained(pair, LEVELS)) == (1, 0, 0, 0)
    assert found.value == 1.0
    assert found.worst is not None
    assert (found.worst.prompt, found.worst.position, found.worst.value) == ("p-0", 4, 2.0)
    assert found.worst_value == 2.0
    assert found.worst.place == "stream step 1, first divergence"
    assert found.worst.detail == (
        "ref emitted 0, cand 1; ref rates them 2 nats apart, cand's id is 0 nats below the top of "
        "cand's own row; limit 0.5"
    )


def test_cands_id_must_be_the_top_of_its_own_row():
    """Ref rates the ids close, but cand's own row says id 0 by 2: the decode path is at fault."""
    pair = pair_of([([0, 0], [CLOSE, FIRST])], [([1, 0], [FIRST, FIRST])], near_tie=0.5)
    found = greedy_unexplained(pair, LEVELS)

    assert counts(found) == (1, 0, 0, 1)
    assert found.value == 1.0


def test_a_token_off_its_own_row_counts_where_both_sides_agree():
    """Both emit id 1; cand's teacher-forced row gives it 2 less than id 0."""
    pair = pair_of([([1, 0], [TURNED, FIRST])], [([1, 0], [FIRST, FIRST])], near_tie=0.5)
    found = greedy_unexplained(pair, LEVELS)

    assert (found.value, counts(found)) == (1.0, (0, 0, 0, 1))
    assert found.worst is not None
    assert found.worst.place == "stream step 0, cand against its own row"
    assert found.worst.detail == (
        "rocm emitted 1, 2 nats below the top of its own teacher-forced row; limit 0.5"
    )


def test_ref_is_held_to_its_own_rows_too():
    pair = pair_of([([1], [FIRST])], [([1], [TURNED])], near_tie=0.5)
    found = greedy_unexplained(pair, LEVELS)

    assert (found.value, counts(found)) == (1.0, (0, 0, 1, 0))
    assert found.worst is not None
    assert found.worst.place == "stream step 0, ref against its own row"


def test_own_rows_count_after_the_divergence():
    pair = pair_of(
        [([0, 0, 0], [CLOSE, FIRST, FIRST])], [([1, 0, 2], [TURNED, FIRST, FIRST])], near_tie=0.25
    )
    found = greedy_unexplained(pair, LEVELS)

    assert (found.value, counts(found)) == (1.0, (0, 1, 0, 1))
    assert found.worst is not None
    assert found.worst.position == 5


def test_both_sides_off_are_two_tokens():
    side = [([2], [FIRST])]

    assert greedy_unexplained(pair_of(side, side, near_tie=0.5), LEVELS).value == 2.0


def test_later_divergences_are_not_counted():
    """From step 1 on the prefixes differ, so other ids say nothing."""
    pair = pair_of(
        [([0, 0, 0], [CLOSE, FIRST, FIRST])], [([1, 1, 1], [TURNED, TURNED, TURNED])], near_tie=0.25
    )

    assert greedy_unexplained(pair, LEVELS).value == 0.0


def test_the_limit_is_that_of_the_file_not_cands_noise():
    pair = pair_of([([0], [CLOSE])], [([1], [TURNED])])
    found = greedy_unexplained(pair, LEVELS)

    assert (found.value, found.breakdown["near_tie_limit"]) == (1.0, 0.0)


def test_an_exact_tie_needs_no_limit():
    tie = [2.0, 2.0, 0.0]

    assert greedy_unexplained(pair_of([([0], [tie])], [([1], [tie])]), LEVELS).value == 0.0


@pytest.mark.parametrize("token", [3, -1])
def test_an_id_outside_the_vocabulary_is_never_explained(token):
    pair = pair_of([([0], [FIRST])], [([token], [FIRST])], near_tie=100.0)
    found = greedy_unexplained(pair, LEVELS)

    assert (found.value, counts(found)) == (1.0, (1, 0, 0, 1))
    assert found.worst is not None
    assert (found.worst.value, found.worst_value) == (None, None)


def test_a_masked_id_is_never_explained():
    masked = [2.0, -math.inf, 0.0]
    pair = pair_of([([0], [masked])], [([1], [masked])], near_tie=100.0)

    assert counts(greedy_unexplained(pair, LEVELS)) == (1, 0, 0, 1)


def test_rows_where_a_near_tie_could_happen():
    """Of the compared rows, step 1 has a ref margin of 0.25; step 2 comes after the divergence."""
    pair = pair_of(
        [([0, 0, 0], [FIRST, CLOSE, CLOSE])], [([0, 1, 0], [FIRST, TURNED, FIRST])], near_tie=0.25
    )

    assert greedy_unexplained(pair, LEVELS).breakdown["near_tie_rows"] == 1.0


def test_the_widest_of_all_is_named():
    pair = pair_of(
        [([0], [FIRST]), ([0], [[5.0, 0.0, 0.0]])],
        [([1], [TURNED]), ([1], [TURNED])],
        near_tie=0.125,
    )
    found = greedy_unexplained(pair, LEVELS)

    assert found.value == 2.0
    assert found.worst is not None
    assert (found.worst.prompt, found.worst.value) == ("p-1", 5.0)


def test_near_ties_that_the_limit_predicts():
    """Margins 2, 0.25 and 0.25 under a limit of 1, the last after the divergence: 0.75 / 2."""
    pair = pair_of(
        [([0, 0, 0], [FIRST, CLOSE, CLOSE])], [([0, 1, 0], [FIRST, TURNED, FIRST])], near_tie=1.0
    )
    count = greedy_unexplained(pair, LEVELS).breakdown["divergences.near_tie.predicted"]

    assert count == 0.375
    assert greedy_unexplained_rate(pair, LEVELS).breakdown["near_ties.predicted"] == 0.375


def test_the_rate_is_over_prompts():
    """Of 4 prompts one parts at 2 nats, one has two tokens off their rows, one is a near-tie.

    Clopper-Pearson for 1 of 4: upper at 95 % 0.7514 (binomial tables, (1 - p)^4 +
    4 p (1 - p)^3 = 0.05), lower at 99 % 1 - 0.99^(1/4) = 0.002509.
    """
    pair = pair_of(
        [([0], [FIRST]), ([0, 0], [FIRST, FIRST]), ([0], [CLOSE]), ([0], [FIRST])],
        [([1], [TURNED]), ([0, 0], [TURNED, TURNED]), ([1], [TURNED]), ([0], [FIRST])],
        near_tie=0.25,
    )
    found = greedy_unexplained_rate(pair, LEVELS)
    strict = greedy_unexplained_rate(dataclasses.replace(pair, near_tie=0.2, _cache={}), LEVELS)

    assert (found.value, found.n, found.n_of, found.unit) == (0.25, 4, "prompts", "share")
    assert (found.breakdown["prompts"], found.breakdown["near_ties"]) == (1.0, 1.0)
    assert strict.value == 0.75
    assert found.worst is not None
    assert (found.worst.prompt, found.worst_value) == ("p-0", 2.0)
    assert found.interval is not None
    assert_measured(found.interval.high, 0.7514, atol=5e-5, rtol=0)
    assert_measured(found.interval.low, 0.002509, atol=5e-7, rtol=0)


def test_the_rate_of_agreement():
    side = [([0, 0], [FIRST, CLOSE]), ([1], [TURNED])]
    found = greedy_unexplained_rate(pair_of(side, side), LEVELS)

    assert (found.value, found.worst, found.worst_value) == (0.0, None, 0.0)


def test_one_side_empty():
    found = greedy_unexplained(
        pair_of([([], np.zeros((0, 3)))], [([0], [FIRST])], near_tie=0.25), LEVELS
    )

    assert (found.value, found.n) == (0.0, 1)


@pytest.mark.parametrize(
    ("ref", "cand", "kind", "why"),
    [
        (([0, 0], [FIRST]), ([0, 0], [FIRST, FIRST]), "unlike", r"cuda prompt p-0: stream.logits has 1 rows for a stream of 2 tokens"),
        (([0], [FIRST]), ([0], [FIRST, FIRST]), "unlike", r"rocm prompt p-0: stream.logits has 2 rows for a stream of 1 tokens"),
        (([0], [FIRST]), ([0], [[1.0, 0.0]]), "unlike", r"prompt p-0 stream.logits: ref has shape \(1, 3\), cand \(1, 2\)"),
        (([0], [FIRST]), ([0], [[2.0, math.nan, 0.0]]), "no_data", r"cand 'rocm' prompt p-0 stream.logits: 1 NaN, first at row 0 id 1"),
        (([0], [[2.0, math.nan, 0.0]]), ([0], [FIRST]), "no_data", r"ref 'cuda' prompt p-0 stream.logits: 1 NaN, first at row 0 id 1"),
        (([0], [FIRST]), ([0], [[2.0, -math.inf, 0.0]]), "no_data", r"cand 'rocm' .* 1 -inf, first at row 0 id 1"),
    ],
    ids=["short", "long", "vocabulary", "nan in cand", "nan in ref", "mask in cand"],
)  # fmt: skip
def test_undefined(ref, cand, kind, why):
    for metric in (greedy_unexplained, greedy_unexplained_rate):
        found = metric(pair_of([ref], [cand], near_tie=1.0), LEVELS)

        assert (found.value, found.undefined_kind) == (None, kind)
        assert_why(found, why)


@pytest.mark.parametrize(("side", "label"), [("ref", "cuda"), ("cand", "rocm")])
def test_missing_rows(side, label):
    pair = pair_of([([0], [FIRST])], [([0], [FIRST])])
    del getattr(pair, side)._tensors["p-0"]["stream.logits"]
    found = greedy_unexplained(pair, LEVELS)

    assert (found.value, found.undefined_kind) == (None, "unlike")
    assert_why(found, f"{label} prompt p-0 holds no stream.logits")


def test_missing_and_empty_streams():
    pair = pair_of([([0], [FIRST])], [([0], [FIRST])])
    del pair.cand.streams["p-0"]
    assert_why(greedy_unexplained(pair, LEVELS), "no greedy stream in rocm prompt p-0")

    empty: tuple[list[int], np.ndarray] = ([], np.zeros((0, 3)))
    assert_why(greedy_unexplained(pair_of([empty], [empty]), LEVELS), "no stream token")
