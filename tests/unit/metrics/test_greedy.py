"""Greedy metrics that need the streams alone: divergence rate, invalid ids, lengths."""

import math

import pytest

from tests.fakes import FakeSide, make_manifest, make_pair, make_prompt, make_stream
from tests.logit_cases import LEVELS, assert_why
from tests.measured import assert_measured
from validate.metrics._divergence import first_divergence
from validate.metrics.greedy_divergence_rate import greedy_divergence_rate
from validate.metrics.greedy_invalid_ids import greedy_invalid_ids
from validate.metrics.greedy_length_mismatch import greedy_length_mismatch

METRICS = [greedy_divergence_rate, greedy_invalid_ids, greedy_length_mismatch]


def streams(ref, cand):
    """Prompts ``p-0``, ``p-1``, … of three tokens with the given streams."""
    prompts = {f"p-{i}": make_prompt(f"p-{i}", [1, 2, 3]) for i in range(len(ref))}
    sides = [dict(zip(prompts, given, strict=True)) for given in (ref, cand)]
    return make_pair(
        {prompt: {} for prompt in prompts},
        {prompt: {} for prompt in prompts},
        prompts=prompts,
        ref_streams=sides[0],
        cand_streams=sides[1],
    )


REF = [[1, 2, 3, 4], [5, 6, 7, 8], [1, 1, 1, 1], [9, 9]]
CAND = [[1, 2, 3, 4], [5, 6, 9, 8], [2, 1, 1, 1], [9, 9]]


@pytest.mark.parametrize(
    ("ref", "cand", "expected"),
    [
        ([1, 2, 3], [1, 2, 3], None),
        ([1, 2, 3], [1, 2, 4], 2),
        ([1, 2, 3], [0, 2, 3], 0),
        ([1, 2, 3, 4], [1, 9, 3, 9], 1),
        ([1, 2], [1, 2, 3], None),
        ([1, 5], [1, 2, 3], 1),
        ([], [1], None),
        ([], [], None),
    ],
)
def test_first_divergence(ref, cand, expected):
    assert first_divergence(ref, cand) == expected


class TestDivergenceRate:
    def test_share_of_prompts(self):
        found = greedy_divergence_rate(streams(REF, CAND), LEVELS)

        assert (found.value, found.n, found.n_of, found.unit) == (0.5, 4, "prompts", "share")
        assert found.breakdown["diverged"] == 2.0

    def test_limits_are_exact(self):
        """Clopper-Pearson, 0 of 4: 1 - 0.05^(1/4); 4 of 4: lower limit 0.01^(1/4)."""
        none = greedy_divergence_rate(streams(REF, REF), LEVELS)
        every = greedy_divergence_rate(streams(REF, [[0] * len(s) for s in REF]), LEVELS)

        assert none.interval is not None
        assert every.interval is not None
        assert none.value == 0.0
        assert_measured(none.interval.high, 1 - 0.05**0.25, atol=0, rtol=1e-9)
        assert_measured(every.interval.low, 0.01**0.25, atol=0, rtol=1e-9)

    def test_flips_per_thousand_compared_tokens(self):
        """Compared: 4, 3 up to the divergence, 1, 2: two flips in ten tokens."""
        found = greedy_divergence_rate(streams(REF, CAND), LEVELS)

        assert found.breakdown["tokens"] == 10.0
        assert found.breakdown["flips_per_1000"] == 200.0

    def test_survival(self):
        """After 2: three of four agree. After 4: p-0 of p-0, p-1, p-2; p-3 ended before."""
        found = greedy_divergence_rate(streams(REF, CAND), LEVELS)

        assert found.breakdown["agree_after.2"] == 0.75
        assert_measured(found.breakdown["agree_after.4"], 1 / 3, atol=0, rtol=1e-15)

    def test_survival_counts_the_steps_before_the_divergence(self):
        """Parted at step 1, so the first two steps do not agree; parted at step 2, they do."""
        found = greedy_divergence_rate(streams([[1, 2], [1, 2, 3]], [[1, 0], [1, 2, 0]]), LEVELS)

        assert found.breakdown["agree_after.2"] == 0.5

    def test_worst_is_the_earliest(self):
        found = greedy_divergence_rate(streams(REF, CAND), LEVELS)

        assert found.worst is not None
        assert (found.worst.prompt, found.worst.position) == ("p-2", 3)
        assert found.worst.detail == "ref emitted 1, cand 2"
        assert found.worst.place == "stream step 0"

    def test_a_shorter_stream_is_no_divergence(self):
        found = greedy_divergence_rate(streams([[1, 2, 3]], [[1, 2]]), LEVELS)

        assert (found.value, found.worst) == (0.0, None)

    def test_empty_streams_are_no_data(self):
        found = greedy_divergence_rate(streams([[], [1]], [[], [2]]), LEVELS)

        assert (found.value, found.n) == (1.0, 1)

    def test_a_stream_that_one_side_lacks_has_nothing_to_compare(self):
        found = greedy_divergence_rate(streams([[]], [[2]]), LEVELS)

        assert (found.value, found.n) == (0.0, 1)
        assert "flips_per_1000" not in found.breakdown


class TestInvalidIds:
    def test_ids_at_or_above_the_length(self):
        """k3-nano: tokenizer length 259, so 258 is the last valid id."""
        found = greedy_invalid_ids(streams([[258, 1], [1]], [[258, 259], [271]]), LEVELS)

        assert (found.value, found.n, found.n_of, found.unit) == (2.0, 6, "tokens", "tokens")
        assert found.breakdown == {"cand": 2.0, "ref": 0.0}
        assert found.worst is not None
        assert (found.worst.prompt, found.worst.position) == ("p-0", 4)
        assert found.worst.place == "stream step 1, cand"
        assert found.worst.detail == "rocm emitted 259, tokenizer length 259"

    def test_negative_ids(self):
        assert greedy_invalid_ids(streams([[1]], [[-1]]), LEVELS).value == 1.0

    def test_ref_counts_too_but_cand_is_named_first(self):
        found = greedy_invalid_ids(streams([[300], [1]], [[1], [300]]), LEVELS)

        assert found.value == 2.0
        assert found.breakdown == {"cand": 1.0, "ref": 1.0}
        assert found.worst is not None
        assert found.worst.prompt == "p-1"

    def test_ref_alone(self):
        found = greedy_invalid_ids(streams([[300]], [[1]]), LEVELS)

        assert found.worst is not None
        assert found.worst.place == "stream step 0, ref"

    def test_each_side_has_its_own_length(self):
        model = make_manifest().model.model_copy(update={"tokenizer_length": 10})
        prompts = {"p-0": make_prompt("p-0", [1])}
        ref, cand = (
            FakeSide(
                label, {"p-0": {}}, prompts=prompts, streams={"p-0": [12]},
                manifest=make_manifest(label, model=model) if label == "rocm" else None,
            )
            for label in ("cuda", "rocm")
        )  # fmt: skip

        assert greedy_invalid_ids(make_pair(ref, cand), LEVELS).breakdown == {
            "cand": 1.0,
            "ref": 0.0,
        }

    def test_none(self):
        found = greedy_invalid_ids(streams(REF, CAND), LEVELS)

        assert (found.value, found.worst, found.interval) == (0.0, None, None)


class TestLengthMismatch:
    def test_lengths(self):
        pair = streams([[1, 2, 3], [1, 2], [1, 2]], [[1, 2], [1, 2, 3, 4, 5], [1, 2]])
        found = greedy_length_mismatch(pair, LEVELS)

        assert (found.value, found.n, found.n_of, found.unit) == (2.0, 3, "prompts", "prompts")
        assert found.breakdown == {
            "length": 2.0, "finish_reason": 0.0, "compared": 3.0, "empty": 0.0,
        }  # fmt: skip
        assert found.worst is not None
        assert (found.worst.prompt, found.worst.position, found.worst.value) == ("p-1", 5, 3.0)
        assert found.worst.detail == "ref 2 tokens (length), cand 5 tokens (length)"

    def test_finish_reasons(self):
        stopped = make_stream("p-0", [1, 2], finish_reason="stop")
        found = greedy_length_mismatch(streams([[1, 2]], [stopped]), LEVELS)

        assert found.value == 1.0
        assert found.breakdown["finish_reason"] == 1.0
        assert found.worst is not None
        assert found.worst.detail == "ref 2 tokens (length), cand 2 tokens (stop)"

    def test_both_at_once_is_one_prompt(self):
        stopped = make_stream("p-0", [1], finish_reason="stop")

        assert greedy_length_mismatch(streams([[1, 2]], [stopped]), LEVELS).value == 1.0

    def test_a_divergence_explains_another_ending(self):
        stopped = make_stream("p-0", [7], finish_reason="stop")
        found = greedy_length_mismatch(streams([[1, 2]], [stopped]), LEVELS)

        assert (found.value, found.worst) == (0.0, None)
        assert found.breakdown["compared"] == 0.0

    def test_a_lost_stream_is_a_mismatch(self):
        assert greedy_length_mismatch(streams([[1, 2]], [[]]), LEVELS).value == 1.0

    def test_empty_on_both_sides_agrees(self):
        found = greedy_length_mismatch(streams([[], [1]], [[], [1]]), LEVELS)

        assert (found.value, found.n, found.breakdown["empty"]) == (0.0, 2, 1.0)


@pytest.mark.parametrize("metric", METRICS, ids=lambda metric: metric.__name__)
def test_no_tokens_at_all(metric):
    found = metric(streams([[], []], [[], []]), LEVELS)

    assert (found.value, found.n, found.undefined_kind) == (None, 0, "no_data")
    assert_why(found, "no stream token in any of 2 prompts")


@pytest.mark.parametrize("metric", METRICS, ids=lambda metric: metric.__name__)
@pytest.mark.parametrize(("side", "label"), [("ref", "cuda"), ("cand", "rocm")])
def test_a_missing_stream(metric, side, label):
    pair = streams(REF, CAND)
    del getattr(pair, side).streams["p-1"]
    found = metric(pair, LEVELS)

    assert (found.value, found.undefined_kind) == (None, "unlike")
    assert_why(found, rf"no greedy stream in {label} prompt p-1 \(1 in all\)")


def test_near_tie_limit_plays_no_part():
    pair = streams(REF, CAND)

    assert pair.near_tie == 0.0
    assert math.isfinite(greedy_divergence_rate(pair, LEVELS).value or 0.0)
