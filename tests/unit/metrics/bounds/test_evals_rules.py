"""Rules of the metrics of evals that one case told from its neighbour: each on the smallest items."""

import math
from typing import Any

import pytest

from tests.measured import assert_measured, known
from tests.unit.metrics.evals_items import eval_pair, eval_side, items, matched
from tests.unit.metrics.evals_made import LEVELS
from validate.metrics import METRICS
from validate.metrics._evals import unlike_runs, unscored
from validate.metrics._evals_parts import Part, binary_part, combine, shared_levels
from validate.metrics.evals_score_drop import _pattern
from validate.metrics.evals_signal import at_chance
from validate.schema import Measurement, Pair
from validate.schema.evals import EvalMatch, EvalPair

RIGHT: dict[str, Any] = {"scores": {"acc": 1.0}}
WRONG: dict[str, Any] = {"scores": {"acc": 0.0}}


def measure(name: str, pair: Pair) -> Measurement:
    return METRICS[name](pair, LEVELS)


def logliks(moves: list[float], **task: Any) -> EvalPair:
    """Items with one log-likelihood each, -9 on ref; cand's moves by that much."""
    ref = [{"loglikelihoods": (-9.0,)} for _ in moves]
    return eval_pair(ref, [{"loglikelihoods": (-9.0 + by,)} for by in moves], **task)


def test_one_side_against_itself_is_no_unlike_run() -> None:
    made = matched(ref=eval_side("cuda", weights="seed1"), cand=eval_side("rocm", weights="seed2"))
    assert unlike_runs(made)

    object.__setattr__(made, "evals", EvalMatch(same=True))
    assert not unlike_runs(made)


@pytest.mark.parametrize(
    ("count", "told"),
    [
        (3, "3 items have no score (t doc 0, t doc 1, t doc 2)"),
        (4, "4 items have no score (t doc 0, t doc 1, t doc 2 and 1 more)"),
    ],
)
def test_three_items_without_a_score_are_all(count: int, told: str) -> None:
    assert unscored(items([{"scores": {"acc": math.nan}}] * count)) == told


def test_lower_limits_below_nothing_are_alike() -> None:
    """Limits of -0.5 and -0.3 points show no drop; the greater drop, 5 against 1, is the worst."""
    parts = [
        Part(name=name, value=value, n=100, low=low, high=9.0, method="betting")
        for name, value, low in (("a", 5.0, -0.5), ("b", 1.0, -0.3))
    ]

    found = combine("evals.score_drop", parts, levels=LEVELS, breakdown={})

    assert known(found.worst).place == "a"


def test_length_shares_its_level_over_tasks_and_directions() -> None:
    """Of each of two tasks 20 of 100 answers became shorter: four parts, 0.001 / 4 each."""
    ref = [{"response": "ten tokens"}] * 100
    cand = [{"response": "ten"}] * 20 + [{"response": "ten tokens"}] * 80
    found = measure("evals.length", matched(eval_pair(ref, cand), eval_pair(ref, cand, name="u")))

    alone = binary_part("t, shorter", 20, 0, 100, levels=shared_levels(LEVELS, 4))
    assert found.value == 20.0
    assert_measured(known(found.interval).low, known(alone.low), atol=1e-12, rtol=0)


class TestLoglikDelta:
    def test_the_worst_task_is_that_of_the_greatest_move_either_way(self) -> None:
        """t falls by 1, u rises by 1/2."""
        found = measure(
            "evals.loglik_delta", matched(logliks([-1.0] * 40), logliks([0.5] * 40, name="u"))
        )

        assert (found.value, found.worst_value, known(found.worst).place) == (1.0, 1.0, "t")

    def test_a_task_that_did_not_move_does_not_decide(self) -> None:
        """Upper limits 0 over 60 documents and 1/2 over 40."""
        found = measure(
            "evals.loglik_delta", matched(logliks([0.0] * 60), logliks([0.5] * 40, name="u"))
        )

        assert (found.n, known(found.interval).high) == (40, 0.5)

    def test_infinite_ones_are_counted(self) -> None:
        found = measure("evals.loglik_delta", matched(logliks([0.0, -math.inf, 0.0])))

        assert (found.value, found.n) == (math.inf, 3)
        assert known(found.worst).detail == "1 log-likelihoods are no numbers"


def test_wrong_prompts_are_counted_by_side() -> None:
    """Cand's second prompt of three starts with BOS twice."""
    ref = [{"bos": 1}] * 3
    found = measure("evals.prompts", matched(eval_pair(ref, [{"bos": 1}, {"bos": 2}, {"bos": 1}])))

    assert (found.value, found.n) == (1.0, 3)
    assert found.breakdown["wrong in ref"] == 0.0
    assert found.breakdown["wrong in cand"] == 1.0


def test_prompts_that_all_kept_their_ids_leave_nothing_to_say() -> None:
    same = [{"prompt_tokens_hash": name} for name in "ab"]

    assert measure("evals.prompts", matched(eval_pair(same, same))).pattern is None


class TestScoreDrop:
    def test_a_score_beyond_one_hides_no_other(self) -> None:
        """Perplexity first, accuracy behind it: 1 of 4 lost is 25 points."""
        ref = [{"scores": {"ppl": 7.0, "acc": 1.0}}] * 4
        cand = [*ref[:3], {"scores": {"ppl": 7.0, "acc": 0.0}}]
        found = measure(
            "evals.score_drop",
            matched(eval_pair(ref, cand, metrics={"ppl": False, "acc": True})),
        )

        assert found.value == 25.0

    def test_where_less_is_better_scores_are_turned_round(self) -> None:
        """Errors 0 0 0 1 become 0 0 1 1: 75 points become 50."""
        errors = [
            [{"scores": {"err": float(e)}} for e in row] for row in ((0, 0, 0, 1), (0, 0, 1, 1))
        ]
        found = measure("evals.score_drop", matched(eval_pair(*errors, metrics={"err": False})))

        assert found.value == 25.0
        assert [found.breakdown[f"t: {role}"] for role in ("ref", "cand")] == [75.0, 50.0]

    def test_as_many_lost_as_gained_are_named_all_the_same(self) -> None:
        found = measure("evals.score_drop", matched(eval_pair([RIGHT, WRONG], [WRONG, RIGHT])))

        assert known(found.worst).detail == "1 lost (doc 0), 1 gained (doc 1) of 2"

    @pytest.mark.parametrize(
        ("lost", "told"),
        [(3, "3 lost (doc 0, doc 1, doc 2)"), (4, "4 lost (doc 0, doc 1, doc 2 and 1 more)")],
    )
    def test_three_flips_are_named(self, lost: int, told: str) -> None:
        cand = [WRONG] * lost + [RIGHT] * (9 - lost)
        found = measure("evals.score_drop", matched(eval_pair([RIGHT] * 9, cand)))

        assert known(found.worst).detail == f"{told}, 0 gained of 9"

    def test_a_score_that_cand_lacks_counts_as_none(self) -> None:
        """One of four: 75 points are left, and 25 lost."""
        cand = [RIGHT, RIGHT, RIGHT, {"scores": {"acc": math.nan}}]
        found = measure("evals.score_drop", matched(eval_pair([RIGHT] * 4, cand)))

        assert (found.value, found.breakdown["t: cand"]) == (25.0, 75.0)

    def test_half_a_point_that_is_shown_is_a_fall(self) -> None:
        parts = [
            Part(name="t", value=2.0, n=100, low=low, high=9.0, method="betting")
            for low in (0.5, 0.0)
        ]

        assert _pattern(parts) == "1 of 2 scores fall"


class TestSignal:
    def test_the_worst_alarm_is_the_most_frequent(self) -> None:
        """Task a: three empty sums, task b: one; both on cand alone."""
        empty: dict[str, Any] = {"loglikelihoods": (0.0, 0.0)}
        full: dict[str, Any] = {"loglikelihoods": (-1.0, -2.0)}
        found = measure(
            "evals.signal",
            matched(
                eval_pair([full] * 3, [empty] * 3, name="b"),
                eval_pair([full] * 3, [empty, empty, full], name="c"),
                eval_pair([full] * 6, [empty] * 5 + [full], name="a"),
                eval_pair([full] * 3, [empty, full, full], name="d"),
            ),
        )

        assert found.value == 11.0
        assert (known(found.worst).place, known(found.worst).value) == ("cand: a", 5.0)
        assert [part.split(":")[0] for part in str(found.pattern).split("; ")] == [
            "cand b",
            "cand c",
            "cand a",
        ]

    def test_an_item_without_the_score_is_not_right(self) -> None:
        assert at_chance(items([{"scores": {}}] * 3), metric="acc", chance=None)
