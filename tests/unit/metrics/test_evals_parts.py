"""Score drops and log-likelihoods by item: parts, their order, what is shown of each."""

import math
from typing import Any

import numpy as np
import pytest

from tests.measured import assert_measured, known
from tests.unit.metrics.evals_items import eval_pair, eval_side, matched
from tests.unit.metrics.evals_made import LEVELS
from validate.metrics import METRICS
from validate.metrics._evals_parts import (
    Part,
    binary_part,
    bounded_part,
    combine,
    shared_levels,
)
from validate.metrics._evals_scale import unjudged
from validate.schema import Levels, Measurement, Pair
from validate.schema.evals import EvalSet
from validate.stats import betting_limits, mcnemar_counts

RIGHT: dict[str, Any] = {"scores": {"acc": 1.0}}
WRONG: dict[str, Any] = {"scores": {"acc": 0.0}}


def measure(name: str, pair: Pair) -> Measurement:
    return METRICS[name](pair, LEVELS)


def part(name: str, value: float, low: float | None, high: float | None, **changes: Any) -> Part:
    return Part(name=name, value=value, n=100, low=low, high=high, method="betting", **changes)


def scored(acc: float) -> EvalSet:
    """One item of task t on one side."""
    one = eval_pair([{"scores": {"acc": acc}}], [])
    return EvalSet(model="m", tasks={"t": one.task}, items=one.ref)


def together(*parts: Part) -> Measurement:
    return combine("evals.score_drop", parts, levels=LEVELS, breakdown={})


class TestParts:
    def test_risk_of_a_fail_is_split_and_that_of_a_pass_is_not(self) -> None:
        """0.001 over four parts is 0.00025."""
        found = shared_levels(LEVELS, 4)

        assert_measured(known(found.low), 0.99975, atol=1e-12, rtol=0)
        assert found.high == 0.95

    @pytest.mark.parametrize(("n", "blind"), [(100, False), (99, True)])
    def test_binary_part_needs_a_hundred_items(self, n: int, blind: bool) -> None:
        found = binary_part("t", 0, 0, n, levels=LEVELS)

        assert (found.high is None) == blind
        assert (found.blind is not None) == blind
        assert found.p_value == 1.0
        assert found.detail == f"0 lost and 0 gained of {n}"

    def test_bounded_part_counts_both_ways(self) -> None:
        """Drops 0.5, 0.25, -0.25 and nine zeros: a mean of 0.5 / 12; limits of (1 + drop) / 2."""
        drops = np.array([0.5, 0.25, -0.25, *[0.0] * 9])
        found = bounded_part("t", drops, levels=LEVELS)
        limits = betting_limits((1 + drops) / 2, levels=LEVELS)

        assert_measured(found.value, 50 / 12, atol=1e-9, rtol=0)
        assert found.n == 12
        assert found.shown == {"worse": 2.0, "better": 1.0}
        assert found.detail == "2 worse and 1 better of 12 documents"
        assert_measured(known(found.low), 200 * known(limits.low) - 100, atol=1e-9, rtol=0)
        assert_measured(known(found.high), 200 * known(limits.high) - 100, atol=1e-9, rtol=0)
        assert known(found.low) < 0.0

    def test_equal_documents_have_lost_nothing_for_certain(self) -> None:
        found = bounded_part("t", np.zeros(50), levels=LEVELS)

        assert (found.value, found.low) == (0.0, 0.0)
        assert found.shown == {"worse": 0.0, "better": 0.0}

    @pytest.mark.parametrize("drop", [0.5, -0.5])
    def test_one_document_that_moved_is_not_equal(self, drop: float) -> None:
        found = bounded_part("t", np.array([drop, *[0.0] * 49]), levels=LEVELS)

        assert known(found.low) < 0.0

    def test_greatest_value_and_limits_are_of_their_own_parts(self) -> None:
        """a drops most for certain, b has the highest limit, c the greatest value."""
        found = together(
            part("a", 3.0, 2.0, 4.0), part("b", 1.0, -5.0, 9.0), part("c", 4.0, None, 5.0)
        )

        assert found.value == 4.0
        assert found.interval is not None
        assert (found.interval.low, found.interval.high) == (2.0, 9.0)
        assert found.worst is not None
        assert (found.worst.place, found.worst.value) == ("a", 3.0)
        assert (found.n_of, found.worst_value, found.why_open) == ("items of b", 1.0, None)

    def test_worst_without_a_drop_that_is_shown_is_the_greatest(self) -> None:
        """Lower limits at or below 0, and none at all, show nothing: the value decides."""
        found = together(
            part("a", 0.5, -0.5, 4.0), part("b", 1.0, None, 4.0), part("c", 0.2, 0.0, 4.0)
        )

        assert found.worst is not None
        assert found.worst.place == "b"

    def test_a_small_drop_that_is_shown_comes_first(self) -> None:
        found = together(part("a", 9.0, -1.0, 20.0), part("b", 1.0, 0.5, 2.0))

        assert found.worst is not None
        assert found.worst.place == "b"

    def test_blind_part_leaves_the_upper_limit_open(self) -> None:
        found = together(
            part("a", 1.0, 0.0, 9.0), part("b", 0.0, 0.0, None, blind="b: sees nothing")
        )

        assert found.interval is not None
        assert found.interval.high is None
        assert (found.n_of, found.why_open) == ("items of b", "b: sees nothing")

    def test_adjusted_p_values_of_parts_that_have_one(self) -> None:
        """Holm of 0.01, 0.04 and 0.03: 0.03, then 0.06 for both of the others."""
        found = together(
            part("a", 1.0, 0.0, 2.0, p_value=0.01),
            part("b", 1.0, 0.0, 2.0, p_value=0.04),
            part("c", 1.0, 0.0, 2.0, p_value=0.03),
            part("d", 1.0, 0.0, 2.0, shown={"worse": 2.0}),
        )

        assert_measured(
            [found.breakdown[f"{name}: p (Holm)"] for name in "abc"],
            [0.03, 0.06, 0.06],
            atol=1e-12,
            rtol=0,
        )
        assert "d: p" not in found.breakdown
        assert found.breakdown["d: worse"] == 2.0
        assert found.breakdown["d: drop"] == 1.0


class TestScoreDrop:
    def test_lower_is_better_is_turned_round(self) -> None:
        """Cand errs on 2 of 4 where ref errs on none: 50 points lost; ref scores 100, not 0."""
        one = eval_pair([WRONG] * 4, [RIGHT, RIGHT, WRONG, WRONG], metrics={"acc": False})
        found = measure("evals.score_drop", matched(one))

        assert found.value == 50.0
        assert (found.breakdown["t: lost"], found.breakdown["t: gained"]) == (2.0, 0.0)
        assert found.breakdown["t: p"] == mcnemar_counts(2, 0).p_value

    @pytest.mark.parametrize("value", [-0.5, 1.5])
    def test_metric_outside_of_0_and_1_is_no_score(self, value: float) -> None:
        """A perplexity stands beside an accuracy; alone there is nothing to lose points of."""
        odd = {"scores": {"acc": 1.0, "ppl": value}}
        both = eval_pair([odd] * 2, [odd] * 2, metrics={"acc": True, "ppl": False})
        alone = eval_pair([odd] * 2, [odd] * 2, metrics={"ppl": False})
        found = measure("evals.score_drop", matched(both))

        assert [name for name in found.breakdown if name.endswith("drop")] == ["t acc: drop"]
        undefined = measure("evals.score_drop", matched(alone))
        assert undefined.undefined_kind == "no_data"
        assert undefined.why_undefined == (
            f"task t, metric ppl: scores are on another scale than [0, 1] (ref {value} to {value}, "
            f"cand {value} to {value}), which no limit in points fits; next: score it by a metric in "
            "[0, 1], e.g. a share of 100"
        )

    def test_task_on_another_scale_leaves_no_upper_limit(self) -> None:
        """Task u in bleu of 0 to 100 beside a judged task t: t may still FAIL, nothing may PASS."""
        bleu = eval_pair(
            [{"scores": {"bleu": 0.0}}, {"scores": {"bleu": 40.0}}],
            [{"scores": {"bleu": 0.5}}, {"scores": {"bleu": 2.0}}],
            name="u",
            metrics={"bleu": True},
        )
        found = measure("evals.score_drop", matched(eval_pair([RIGHT] * 200, [RIGHT] * 200), bleu))

        assert found.interval is not None
        assert found.interval.high is None
        assert str(found.why_open).startswith(
            "task u, metric bleu: scores are on another scale than [0, 1] (ref 0 to 40, cand 0.5 to 2)"
        )

    def test_task_without_any_metric_is_not_forgotten(self) -> None:
        """Generated answers that nobody scored; log-likelihoods are left to evals.loglik_delta."""
        none: dict[str, Any] = {"scores": {}}
        texts = eval_pair([none] * 2, [none] * 2, name="u", metrics={})
        logs = eval_pair([none | {"loglikelihoods": (-1.0,)}] * 2, [none] * 2, name="v", metrics={})
        judged = eval_pair([RIGHT] * 200, [RIGHT] * 200)

        assert measure("evals.score_drop", matched(judged, texts)).why_open == (
            "task u has no score of any item on either side; next: run it with a metric that "
            "lm-eval writes for each sample"
        )
        assert measure("evals.score_drop", matched(judged, logs)).why_open is None
        assert measure("evals.score_drop", matched(logs)).why_undefined == (
            "no task has a score in [0, 1]: evals.loglik_delta alone can tell"
        )

    def test_the_first_of_two_tasks_without_any_metric_is_named(self) -> None:
        none: dict[str, Any] = {"scores": {}}
        u, v = (eval_pair([none], [none], name=name, metrics={}) for name in "uv")
        judged = eval_pair([RIGHT] * 200, [RIGHT] * 200)

        for why in (
            measure("evals.score_drop", matched(u, v)).why_undefined,
            measure("evals.score_drop", matched(judged, u, v)).why_open,
        ):
            assert str(why).startswith("task u has no score of any item on either side")

    @pytest.mark.parametrize("value", [1.001, -0.001, 7.0])
    @pytest.mark.parametrize("role", ["ref", "cand"])
    def test_score_astray_on_one_side_is_unlike(self, role: str, value: float) -> None:
        """One of 500 outside [0, 1] where cand lost all others: the metric was left out once."""
        odd = [*[RIGHT] * 499, {"scores": {"acc": value}}]
        sides = (odd, [WRONG] * 500) if role == "ref" else ([RIGHT] * 500, odd)
        found = measure("evals.score_drop", matched(eval_pair(*sides)))
        other = "cand" if role == "ref" else "ref"

        assert found.undefined_kind == "unlike"
        assert found.why_undefined == (
            f"{role} holds 1 of 500 scores outside [0, 1] in t, e.g. doc 499: acc {value:g}, where "
            f"{other}'s are all inside: the sides are scored by other rules, or samples are damaged; "
            "next: score both sides anew by one version of lm-eval"
        )

    @pytest.mark.parametrize(("rounded", "whole"), [(1.0000001, RIGHT), (-1e-7, WRONG)])
    def test_rounding_beyond_0_and_1_is_cut(self, rounded: float, whole: dict[str, Any]) -> None:
        """A mean of ones in float32 may be 1.0000001, a difference of equal ones -1e-7."""
        one = eval_pair([{"scores": {"acc": rounded}}] * 4, [whole] * 4)

        assert measure("evals.score_drop", matched(one)).value == 0.0

    def test_the_first_of_two_scores_astray_is_named(self) -> None:
        odd = [RIGHT, {"scores": {"acc": 7.0}}, RIGHT, {"scores": {"acc": 8.0}}]
        found = measure("evals.score_drop", matched(eval_pair([RIGHT] * 4, odd)))

        assert "cand holds 2 of 4 scores outside [0, 1] in t, e.g. doc 1: acc 7, where" in str(
            found.why_undefined
        )

    def test_score_without_a_number_on_either_side(self) -> None:
        """'N/A' throughout is no PASS."""
        bare: dict[str, Any] = {"scores": {"acc": float("nan")}}
        found = measure("evals.score_drop", matched(eval_pair([bare] * 3, [bare] * 3)))

        assert found.undefined_kind == "no_data"
        assert found.why_undefined == (
            "neither side has a number for any of 3 items of t, metric acc ('N/A' or missing); "
            "next: score it, or leave it out on both sides"
        )

    def test_a_cand_without_any_number_has_lost_all(self) -> None:
        """Ref is right on 3 of 4: 75 points, as if cand had answered nothing."""
        bare: dict[str, Any] = {"scores": {"acc": math.nan}}
        found = measure("evals.score_drop", matched(eval_pair([RIGHT] * 3 + [WRONG], [bare] * 4)))

        assert (found.value, found.breakdown["t: cand"]) == (75.0, 0.0)

    def test_a_ref_without_any_number_is_named_alone(self) -> None:
        found = measure("evals.score_drop", matched(eval_pair([{"scores": {}}] * 3, [RIGHT] * 3)))

        assert found.why_undefined == (
            "ref has no number for 3 of 3 items of t, e.g. doc 0 ('N/A' or missing)"
        )

    def test_metric_on_another_scale_is_told_as_not_tested(self) -> None:
        """Beside a judged metric of the same task; four of them are three and a count."""
        scores = {"acc": 1.0, "a": 2.0, "b": 40.0, "c": -1.0, "d": 3.0}
        one = eval_pair(
            [{"scores": scores}], [{"scores": scores}], metrics=dict.fromkeys(scores, True)
        )
        side = EvalSet(model="m", tasks={"t": one.task}, items=one.ref)

        assert unjudged(side, side) == [
            "metric a of t: scores are on another scale than [0, 1] (ref 2 to 2, cand 2 to 2)",
            "metric b of t: scores are on another scale than [0, 1] (ref 40 to 40, cand 40 to 40)",
            "metric c of t: scores are on another scale than [0, 1] (ref -1 to -1, cand -1 to -1)",
            "1 more metrics on another scale",
        ]

    def test_three_metrics_on_another_scale_are_all(self) -> None:
        scores = {"a": 2.0, "b": 40.0, "c": -1.0}
        one = eval_pair(
            [{"scores": scores}], [{"scores": scores}], metrics=dict.fromkeys(scores, True)
        )
        side = EvalSet(model="m", tasks={"t": one.task}, items=one.ref)

        assert [told.split(":")[0] for told in unjudged(side, side)] == [
            f"metric {name} of t" for name in scores
        ]

    def test_each_side_is_told_by_its_own_scores(self) -> None:
        assert unjudged(scored(2.0), scored(7.0)) == [
            "metric acc of t: scores are on another scale than [0, 1] (ref 2 to 2, cand 7 to 7)"
        ]

    @pytest.mark.parametrize(("ref", "cand"), [(2.0, 1.0), (1.0, 7.0)])
    def test_scores_astray_on_one_side_are_not_left_untested(self, ref: float, cand: float) -> None:
        """The gate refuses them."""
        assert unjudged(scored(ref), scored(cand)) == []

    def test_score_without_a_number_on_ref(self) -> None:
        """Items 1 and 2 of three."""
        bare: dict[str, Any] = {"scores": {}}
        one = eval_pair([RIGHT, bare, bare], [RIGHT] * 3)

        assert measure("evals.score_drop", matched(one)).why_undefined == (
            "ref has no number for 2 of 3 items of t, e.g. doc 1 ('N/A' or missing)"
        )

    def test_ref_at_chance_is_told_with_its_score(self) -> None:
        """60 of 200 right against a guess of 1/4; nothing right where no guess is known."""
        held = [RIGHT] * 60 + [WRONG] * 140
        guess = measure("evals.score_drop", matched(eval_pair(held, held, chance=0.25)))
        zero = measure("evals.score_drop", matched(eval_pair([WRONG] * 200, [WRONG] * 200)))

        assert guess.why_open == (
            "t: ref scores 30 points, no better than a guess (25): no drop would show"
        )
        assert zero.why_open == "t: ref scores 0 points, no better than 0: no drop would show"

    def test_three_flips_each_way_are_named(self) -> None:
        """Ref is right on the first five of ten, cand on the next three, both on the last."""
        one = eval_pair(
            [RIGHT] * 5 + [WRONG] * 4 + [RIGHT], [WRONG] * 5 + [RIGHT] * 3 + [WRONG, RIGHT]
        )
        found = measure("evals.score_drop", matched(one))

        assert found.worst is not None
        assert found.worst.detail == (
            "5 lost (doc 0, doc 1, doc 2 and 2 more), 3 gained (doc 5, doc 6, doc 7) of 10"
        )

    def test_first_hundred_flips_are_listed(self) -> None:
        found = measure("evals.score_drop", matched(eval_pair([RIGHT] * 120, [WRONG] * 120)))
        listed = [name for name in found.breakdown if "divergent" in name]

        assert len(listed) == 100
        assert listed[-1] == "lost t doc 99 acc: first divergent token"

    @pytest.mark.parametrize("fell", ["strict-match", "flexible-extract", "both", "none"])
    def test_words_of_two_extractors(self, fell: str) -> None:
        """60 of 200 lost is a drop for certain."""
        ref, cand = [RIGHT] * 200, [WRONG] * 60 + [RIGHT] * 140
        pairs = [
            eval_pair(ref, cand if fell in (through, "both") else ref, through=through)
            for through in ("strict-match", "flexible-extract")
        ]
        told = {
            "strict-match": "t (strict-match) falls and the flexible extractor does not: the form of "
            "answers changed",
            "flexible-extract": "1 of 2 scores fall",
            "both": "2 of 2 scores fall",
            "none": None,
        }

        assert measure("evals.score_drop", matched(*pairs)).pattern == told[fell]

    @pytest.mark.parametrize(("ref", "cand"), [(1.0, 0.5), (0.5, 0.5)])
    def test_grades_on_one_side_are_no_right_and_wrong(self, ref: float, cand: float) -> None:
        """Half a point lost of every item, or none: over documents, and equal ones do not fall."""
        held = [[{"scores": {"acc": value}}] * 150 for value in (ref, cand)]
        found = measure("evals.score_drop", matched(eval_pair(*held)))

        assert found.value == 100 * (ref - cand)
        assert known(found.interval).method == "betting"
        assert (known(found.interval).low == 0.0) == (ref == cand)
        assert found.pattern == (None if ref == cand else "1 of 1 scores fall")


@pytest.mark.parametrize("name", ["score_drop", "loglik_delta", "length", "rates"])
@pytest.mark.parametrize("cause", ["prompts", "cache"])
def test_no_score_is_looked_at_where_hygiene_forbids_it(name: str, cause: str) -> None:
    """Other prompt tokens, or twenty numbers that are equal under other weights."""
    held = [
        {"loglikelihoods": (-1.0 - at,), "response": "a", "prompt_tokens_hash": "h"}
        for at in range(20)
    ]
    other = [{**one, "prompt_tokens_hash": "x", "loglikelihoods": (-0.5,)} for one in held]
    pair = (
        matched(eval_pair(held, other))
        if cause == "prompts"
        else matched(eval_pair(held, held), cand=eval_side("rocm", weights="other"))
    )

    assert measure(f"evals.{name}", pair).undefined_kind == "unlike"


def shifted(by: list[float], choices: int = 1) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """Documents whose every log-likelihood falls by ``by`` on cand."""
    ref = [{"loglikelihoods": (-1.0 - at,) * choices} for at in range(len(by))]
    cand = [{"loglikelihoods": (-1.0 - at - move,) * choices} for at, move in enumerate(by)]
    return ref, cand


class TestLoglikDelta:
    def test_two_tasks_and_their_figures(self) -> None:
        """a: 1..10 hundredths, rank 9 of 10 is 0.09; b: eight zeros, 0.5 and 0.75, rank 9 is 0.5; c: 0."""
        a = eval_pair(*shifted([at / 100 for at in range(1, 11)]), name="a")
        b = eval_pair(*shifted([0.0] * 8 + [-0.5, 0.75]), name="b")
        c = eval_pair(*shifted([0.0] * 10), name="c")
        found = measure("evals.loglik_delta", matched(a, b, c))

        assert_measured(known(found.value), 0.5, atol=1e-12, rtol=0)
        assert (found.n, found.n_of) == (10, "documents of a")
        assert found.worst is not None
        assert found.worst.place == "b"
        assert_measured(known(found.worst.value), 0.75, atol=1e-12, rtol=0)
        assert_measured(known(found.worst_value), 0.75, atol=1e-12, rtol=0)
        assert_measured(
            list(found.breakdown.values()),
            [0.09, -0.055, 0.10, 0.5, 0.0, 0.75, 0.0, 0.0, 0.0],
            atol=1e-12,
            rtol=0,
        )
        assert list(found.breakdown) == [
            f"{task}: {figure}"
            for task in "abc"
            for figure in ("p90", "median, signed", "greatest")
        ]
        # ln(0.05) / ln(0.9) = 28.43
        assert found.n_needed == 29

    @pytest.mark.parametrize(("n", "needed"), [(28, 29), (29, None), (40, None)])
    def test_documents_needed_for_an_upper_limit(self, n: int, needed: int | None) -> None:
        found = measure("evals.loglik_delta", matched(eval_pair(*shifted([0.1] * n))))

        assert found.n_needed == needed
        assert found.interval is not None
        assert (found.interval.high is None) == (needed is not None)

    def test_mean_over_the_choices_of_a_document(self) -> None:
        """Two documents of 2 and 3 choices: (0.1 + 0.3) / 2 = 0.2 and 0.6 / 3 = 0.2; signed 0.1, -0.2."""
        ref: list[dict[str, Any]] = [
            {"loglikelihoods": (-1.0, -2.0)},
            {"loglikelihoods": (-3.0, -4.0, -5.0)},
        ]
        cand: list[dict[str, Any]] = [
            {"loglikelihoods": (-1.1, -1.7)},
            {"loglikelihoods": (-3.0, -4.0, -5.6)},
        ]
        found = measure("evals.loglik_delta", matched(eval_pair(ref, cand)))

        assert_measured(
            list(found.breakdown.values()), [0.2, (0.1 - 0.2) / 2, 0.2], atol=1e-12, rtol=0
        )

    @pytest.mark.parametrize(
        ("kind", "tokens", "value"),
        [
            ("loglikelihood_rolling", (4, 10), 0.25),
            ("loglikelihood_rolling", (4, None), 1.0),
            ("loglikelihood_rolling", (4, 0), 1.0),
            ("multiple_choice", (4, 10), 1.0),
        ],
    )
    def test_whole_texts_are_taken_per_token(
        self, kind: str, tokens: tuple[Any, Any], value: float
    ) -> None:
        """A text of 4 tokens moves by 1 nat, one of 10 by 0.5."""
        ref, cand = shifted([1.0, 0.5])
        held = [{**one, "prompt_tokens": n} for one, n in zip(ref, tokens, strict=True)]
        found = measure("evals.loglik_delta", matched(eval_pair(held, cand, output_type=kind)))

        assert_measured(known(found.value), value, atol=1e-12, rtol=0)

    def test_lower_limits_share_the_risk(self) -> None:
        """200 documents of 0.1 and of 0.2 nats: the greatest lower limit is b's, at half of the risk."""
        a = eval_pair(*shifted([0.1] * 200), name="a")
        b = eval_pair(*shifted([0.2] * 200), name="b")
        found = measure("evals.loglik_delta", matched(a, b))

        assert found.interval is not None
        assert_measured(
            [known(found.interval.low), known(found.interval.high)], [0.2, 0.2], atol=1e-12, rtol=0
        )
        assert found.n_of == "documents of b"
        assert (found.interval.low_level, found.interval.high_level) == (0.999, 0.95)

    def test_numbers_that_are_none_are_counted(self) -> None:
        """NaN against NaN, and infinity against a number; equal infinities have not moved."""
        nan, inf = math.nan, -math.inf
        ref = [{"loglikelihoods": (value,)} for value in (nan, -1.0, inf, -1.0)]
        cand = [{"loglikelihoods": (value,)} for value in (nan, inf, inf, -1.0)]
        found = measure("evals.loglik_delta", matched(eval_pair(ref, cand)))

        assert found.value == math.inf
        assert found.worst is not None
        assert found.worst.detail == "2 log-likelihoods are no numbers"
        assert (found.n, found.n_of) == (4, "documents of t")

    def test_task_with_one_item_without_numbers_is_left_out(self) -> None:
        ref, cand = shifted([0.1, 0.2])
        one = eval_pair([ref[0], {}], cand)

        assert measure("evals.loglik_delta", matched(one)).why_undefined == (
            "no task holds log-likelihoods"
        )


def test_levels_of_one_part_are_the_given_ones() -> None:
    assert shared_levels(Levels(low=0.99, high=0.9), 1) == Levels(low=0.99, high=0.9)
