"""``greedy.flips_per_1000`` and ``greedy.hazard_ratio``: when streams part, beside ref's repeats."""

from typing import Any

import pytest

from tests.fakes import FakeSide, make_pair, make_prompt
from tests.logit_cases import LEVELS, assert_why
from tests.measured import assert_measured
from validate.metrics.greedy_flips_per_1000 import greedy_flips_per_1000
from validate.metrics.greedy_hazard_ratio import greedy_hazard_ratio
from validate.stats import hazard_ratio_limits

REF = [1, 2, 3, 4, 5, 6, 7, 8]


def parted(step):
    """Ref's stream with another id from ``step`` on; None: ref's own."""
    return REF if step is None else [*REF[:step], *(9 for _ in REF[step:])]


def pair_of(cand, *repeats, ref=None):
    """Streams by the step at which they leave ref's; a list is taken as it is."""
    ids = [f"p-{i:02d}" for i in range(len(cand))]
    prompts = {p: make_prompt(p, [1, 2, 1]) for p in ids}
    tensors: dict[str, dict[str, Any]] = {p: {} for p in ids}

    def streams(steps):
        return {
            p: step if isinstance(step, list) else parted(step)
            for p, step in zip(ids, steps, strict=True)
        }

    return make_pair(
        tensors,
        tensors,
        prompts=prompts,
        ref_streams=streams(ref or [None] * len(cand)),
        cand_streams=streams(cand),
        repeats=tuple(
            FakeSide(f"repeat-{i}", tensors, prompts=prompts, streams=streams(steps))
            for i, steps in enumerate(repeats)
        ),
    )


def test_flips_by_tokens_compared():
    """Parted at steps 1 and 3 and not at all twice: 2 flips in 2 + 4 + 8 + 8 tokens.

    Garwood for 2 events: upper at 95 % 6.2958, lower at 99 % 0.1486 (chi-squared tables, halved).
    """
    found = greedy_flips_per_1000(pair_of([1, 3, None, None]), LEVELS)

    assert_measured(found.value, 1000 * 2 / 22, atol=0, rtol=1e-15)
    assert (found.n, found.n_of, found.unit) == (4, "prompts", "flips per 1,000 tokens")
    assert (found.breakdown["flips"], found.breakdown["tokens"]) == (2.0, 22.0)
    assert found.interval is not None
    assert_measured(found.interval.high, 6.2958 / 0.022, atol=0.005, rtol=0)
    assert_measured(found.interval.low, 0.1486 / 0.022, atol=0.005, rtol=0)
    assert found.worst is not None
    assert (found.worst.prompt, found.worst.position, found.worst.value) == ("p-00", 4, 1.0)
    assert found.worst.detail == "ref emitted 2, cand 9"


def test_the_end_of_the_shorter_stream_is_no_flip():
    found = greedy_flips_per_1000(pair_of([REF[:3], None]), LEVELS)

    assert (found.value, found.worst, found.breakdown["tokens"]) == (0.0, None, 11.0)


def test_kaplan_meier_of_cand_and_repeats():
    """Cand: parted after 2 and 4 of 8 tokens, one stream ends at 3, one never parts.

    4 at risk at 2, so 3/4; then one is censored at 3 and 2 are at risk at 4: 3/4 x 1/2. The
    two repeats: 8 streams, one parted as its third token, so 7/8 from then on.
    """
    pair = pair_of([1, 3, REF[:3], None], [2, None, None, None], [None] * 4)
    for metric in (greedy_flips_per_1000, greedy_hazard_ratio):
        shown = metric(pair, LEVELS).breakdown

        cand = [shown[f"cand.survival.{n}"] for n in (2, 4, 8)]
        assert cand == [0.75, 0.375, 0.375]
        assert [shown[f"floor.survival.{n}"] for n in (2, 4, 8)] == [1.0, 0.875, 0.875]
        assert "cand.survival.16" not in shown


def test_no_survival_of_a_floor_without_repeats():
    shown = greedy_flips_per_1000(pair_of([1, 3]), LEVELS).breakdown

    assert not [name for name in shown if name.startswith("floor")]


def test_the_ratio_is_of_prompts_where_one_parts_first():
    """Cand first on 5 prompts, the repeat on 10, both at step 2 on one, neither on one.

    Clopper-Pearson of 5 of 15: upper at 95 % 0.5774 (binomial tables), as odds 1.366; lower
    at 99 % 0.0944 (sum over k >= 5 of C(15, k) p^k (1 - p)^(15 - k) = 0.01), as odds 0.1042.
    """
    cand = [0, 1, 2, 3, 4] + [None] * 5 + [7] * 5 + [2, None]
    floor = [1, 2, 3, None, None] + [3] * 10 + [2, None]
    found = greedy_hazard_ratio(pair_of(cand, floor), LEVELS)

    assert (found.value, found.n, found.n_of, found.unit) == (0.5, 17, "prompts", "ratio")
    assert (found.breakdown["cand_first"], found.breakdown["floor_first"]) == (5.0, 10.0)
    assert found.breakdown["floor_flips"] == 14.0
    assert found.interval is not None
    assert_measured(found.interval.high, 1.3665, atol=5e-4, rtol=0)
    assert_measured(found.interval.low, 0.1042, atol=5e-5, rtol=0)
    assert found.worst is not None
    assert (found.worst.prompt, found.worst.value) == ("p-00", 0.0)


def test_the_ratio_stands_beside_the_rate_however_few_events_there_are():
    """As above with 3 and 2 prompts: no gate could rest on it, a reader may look at it."""
    pair = pair_of([0, 1, 2, None, None, None], [1, 2, None, 3, 3, None])
    shown = greedy_flips_per_1000(pair, LEVELS).breakdown
    ratio = hazard_ratio_limits(3, 2, levels=LEVELS)

    assert greedy_hazard_ratio(pair, LEVELS).value is None
    assert [shown[f"hazard.{name}"] for name in ("cand_first", "floor_first")] == [3.0, 2.0]
    assert shown["hazard.ratio"] == 1.5
    assert [shown["hazard.ratio low"], shown["hazard.ratio high"]] == [ratio.low, ratio.high]
    assert "hazard.ratio" not in greedy_flips_per_1000(pair_of([1], [None]), LEVELS).breakdown


def test_what_comes_after_the_end_of_a_stream_tells_nothing():
    """The repeat ends at 3 before cand parts at 5; cand ends at 3 before the repeat parts at 5."""
    ends = REF[:3]
    found = greedy_hazard_ratio(pair_of([5, ends, *[None] * 10], [ends, 5, *[1] * 10]), LEVELS)

    assert (found.breakdown["cand_first"], found.breakdown["floor_first"]) == (0.0, 10.0)
    assert found.value == 0.0


def test_too_few_events_of_the_floor():
    """Nine of 20 prompts: 20 x 10 / 9 are about 23; with ten there is a ratio."""
    found = greedy_hazard_ratio(pair_of([None] * 19 + [1], [2] * 9 + [None] * 11), LEVELS)

    assert (found.value, found.undefined_kind, found.n_needed) == (None, "no_data", 23)
    assert_why(found, "^ref's repeats part first on 9 prompts, 10 needed$")
    assert greedy_hazard_ratio(
        pair_of([None] * 19 + [1], [2] * 10 + [None] * 10), LEVELS
    ).value == 0.1  # fmt: skip
    none = greedy_hazard_ratio(pair_of([1], [None]), LEVELS)
    assert (none.value, none.n_needed) == (None, None)


def test_each_prompt_meets_one_repeat_by_its_id():
    """The first 8 bytes of SHA-256 are even for 3 of these ids (p-00, p-01, p-02)."""
    pair = pair_of([None] * 4, [0] * 4, [None] * 4)
    found = greedy_hazard_ratio(pair, LEVELS)

    assert found.breakdown["floor_first"] == 3.0
    assert found.value == 0.0


def test_undefined_without_repeats_or_with_a_stream_missing():
    assert_why(greedy_hazard_ratio(pair_of([1]), LEVELS), "^no repeat of ref holds every stream$")
    pair = pair_of([1], [1])
    del pair.repeats[0].streams["p-00"]
    assert_why(greedy_hazard_ratio(pair, LEVELS), "^no repeat of ref holds every stream$")


@pytest.mark.parametrize("metric", [greedy_flips_per_1000, greedy_hazard_ratio])
def test_undefined_without_streams(metric):
    pair = pair_of([1], [1])
    del pair.cand.streams["p-00"]
    found = metric(pair, LEVELS)

    assert (found.value, found.undefined_kind) == (None, "unlike")
    assert_why(found, "no greedy stream in rocm prompt p-00")


def test_undefined_without_a_shared_token():
    found = greedy_flips_per_1000(pair_of([[]]), LEVELS)

    assert found.value is None
    assert_why(found, "no stream token of 1 prompts is held by both sides")
