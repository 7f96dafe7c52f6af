"""Hand-made values of every metric of evals, and the planted faults that each must see."""

import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.lm_eval_folders import Sample, choice_samples, digest, text_samples
from tests.measured import assert_measured, known
from tests.unit.metrics.evals_made import LEVELS, beside, paired
from validate.metrics import METRICS
from validate.schema import Levels, Measurement, Pair
from validate.stats import drop_limits, mcnemar_counts

EVALS = sorted(name for name in METRICS if name.startswith("evals."))
N = 200


def measure(name: str, pair: Pair) -> Measurement:
    return METRICS[name](pair, LEVELS)


def scored(lost: int, gained: int, n: int = N) -> tuple[list[int], list[int]]:
    """Ref and cand of n items: ref right on all but the last ``gained``, cand loses the first."""
    ref = [1] * (n - gained) + [0] * gained
    cand = [0] * lost + [1] * (n - lost)
    return ref, cand


def answers(right: list[int], **changes: Any) -> list[Sample]:
    return text_samples(right, filters=["none"], **changes)


@pytest.mark.parametrize("name", EVALS)
def test_side_against_itself_measures_exactly_zero(tmp_path: Path, name: str) -> None:
    """A/A, by two folders that hold the same."""
    tasks = {"gsm8k": answers([1, 0] * 60), "arc": choice_samples(120, seed=1)}
    found = measure(name, paired(tmp_path, tasks, tasks))

    assert found.value == 0.0


@pytest.mark.parametrize("name", EVALS)
def test_capture_without_evals_is_no_data(name: str) -> None:
    """INCONCLUSIVE, never PASS; the side and the next step are named."""
    from validate.schema.evals import EvalMatch

    side: Any = object()
    pair = Pair.__new__(Pair)
    object.__setattr__(
        pair, "evals", EvalMatch(missing="no evals in cand 'x'; next: validate eval")
    )
    object.__setattr__(pair, "_cache", {})
    object.__setattr__(pair, "ref", side)

    found = METRICS[name](pair, LEVELS)

    assert found.value is None
    assert found.undefined_kind == "no_data"
    assert found.why_undefined == "no evals in cand 'x'; next: validate eval"


class TestScoreDrop:
    """Flips both ways, exact test, Holm, chance."""

    def test_drop_is_the_difference_of_flips(self, tmp_path: Path) -> None:
        """12 lost and 4 gained of 200: 4 points; limits and p are those of the counts."""
        ref, cand = scored(12, 4)
        found = measure(
            "evals.score_drop", paired(tmp_path, {"t": answers(ref)}, {"t": answers(cand)})
        )
        limits = drop_limits(12, 4, N, levels=LEVELS)

        assert found.value == 4.0
        assert (found.n, found.n_of) == (N, "items of t")
        assert found.interval is not None
        assert_measured(found.interval.low, 100 * known(limits.low), atol=1e-9, rtol=0)
        assert_measured(found.interval.high, 100 * known(limits.high), atol=1e-9, rtol=0)
        assert found.breakdown["t: lost"] == 12.0
        assert found.breakdown["t: gained"] == 4.0
        assert found.breakdown["t: p"] == mcnemar_counts(12, 4).p_value
        # (1.6449 + 0.8416) sqrt(0.08 / 200) = 0.0497
        assert_measured(found.breakdown["t: mde"], 4.97, atol=0.01, rtol=0)

    def test_every_flip_is_named_with_its_first_divergent_token(self, tmp_path: Path) -> None:
        """'step by step\\n#### 1' against '… x': token 18; the worst line names the items."""
        ref, cand = scored(2, 1)
        found = measure(
            "evals.score_drop",
            paired(
                tmp_path, {"t": answers(ref, beside=beside)}, {"t": answers(cand, beside=beside)}
            ),
        )
        flips = {key: value for key, value in found.breakdown.items() if "divergent" in key}

        assert flips == {
            "lost t doc 0 exact_match: first divergent token": 18.0,
            "lost t doc 1 exact_match: first divergent token": 18.0,
            "gained t doc 199 exact_match: first divergent token": 18.0,
        }
        assert found.worst is not None
        assert found.worst.detail == (
            "2 lost (doc 0 from token 18, doc 1 from token 18), 1 gained (doc 199 from token 18) of 200"
        )

    def test_flip_without_token_ids_has_no_token(self, tmp_path: Path) -> None:
        """A foreign folder keeps none: the item is named, the token is null."""
        ref, cand = scored(1, 0)
        found = measure(
            "evals.score_drop", paired(tmp_path, {"t": answers(ref)}, {"t": answers(cand)})
        )

        assert math.isnan(found.breakdown["lost t doc 0 exact_match: first divergent token"])

    def test_tasks_share_the_risk_of_a_fail(self, tmp_path: Path) -> None:
        """Two tasks: each lower limit at half of the risk, p-values by Holm."""
        ref, cand = scored(40, 4)
        same = [1] * N
        found = measure(
            "evals.score_drop",
            paired(
                tmp_path,
                {"a": answers(ref), "b": answers(same)},
                {"a": answers(cand), "b": answers(same)},
            ),
        )
        half = drop_limits(40, 4, N, levels=Levels(low=0.9995, high=0.95))

        assert found.interval is not None
        assert_measured(found.interval.low, 100 * known(half.low), atol=1e-9, rtol=0)
        assert found.breakdown["a: p (Holm)"] == 2 * found.breakdown["a: p"]
        assert found.pattern == "1 of 2 scores fall"

    def test_worst_is_the_part_that_lost_most_where_none_is_shown_to_drop(
        self, tmp_path: Path
    ) -> None:
        """One flip of b stands before no flip of a, whose limits are narrower."""
        ref, cand = scored(1, 0)
        found = measure(
            "evals.score_drop",
            paired(
                tmp_path,
                {"a": answers(ref), "b": answers(ref)},
                {"a": answers(ref), "b": answers(cand)},
            ),
        )

        assert found.worst is not None
        assert found.worst.place == "b"

    def test_ref_at_chance_has_nothing_to_lose(self, tmp_path: Path) -> None:
        """One of four choices right: no upper limit, so no PASS."""
        samples = choice_samples(400, seed=6, right=0.0)
        other = choice_samples(400, seed=6, right=0.0, noise=0.01)
        found = measure("evals.score_drop", paired(tmp_path, {"arc": samples}, {"arc": other}))

        assert found.interval is not None
        assert found.interval.high is None
        assert "no better than a guess (25): no drop would show" in str(found.why_open)

    def test_few_items_give_no_upper_limit(self, tmp_path: Path) -> None:
        """99 items are too few for Tango's limit."""
        same = {"t": answers([1] * 99)}
        found = measure("evals.score_drop", paired(tmp_path, same, same))

        assert found.interval is not None
        assert found.interval.high is None
        assert found.why_open == "t: 99 items are too few for the upper limit (100 needed)"

    def test_graded_scores_are_bounded_over_documents(self, tmp_path: Path) -> None:
        """F1 of 0.75 against 0.5 on half of the items: 12.5 points, inside its limits."""
        ref, cand = answers([1] * N), answers([1] * N)
        for place, (a, b) in enumerate(zip(ref, cand, strict=True)):
            a["exact_match"], b["exact_match"] = 0.75, 0.75 if place % 2 else 0.5
        found = measure("evals.score_drop", paired(tmp_path, {"t": ref}, {"t": cand}))

        assert_measured(found.value, 12.5, atol=1e-9, rtol=0)
        assert found.interval is not None
        assert found.interval.method == "betting"
        assert known(found.interval.low) < 12.5 < known(found.interval.high)

    def test_repeated_documents_are_one_unit(self, tmp_path: Path) -> None:
        """Each question asked twice: 100 documents, not 200 items."""
        ref, cand = answers(scored(20, 0)[0]), answers(scored(20, 0)[1])
        for sample in (*ref, *cand):
            sample["doc_hash"] = digest(str(sample["doc_id"] // 2))
        found = measure("evals.score_drop", paired(tmp_path, {"t": ref}, {"t": cand}))

        assert_measured(found.value, 10.0, atol=1e-9, rtol=0)
        assert found.n == 100

    def test_missing_number_of_cand_counts_as_wrong(self, tmp_path: Path) -> None:
        """'N/A' on cand's side is a lost item; on ref's nothing can be said."""
        ref, cand = answers([1] * N), answers([1] * N)
        cand[3]["exact_match"] = "N/A"
        found = measure("evals.score_drop", paired(tmp_path / "a", {"t": ref}, {"t": cand}))
        back = measure("evals.score_drop", paired(tmp_path / "b", {"t": cand}, {"t": ref}))

        assert found.value == 0.5
        assert back.why_undefined == (
            "ref has no number for 1 of 200 items of t, e.g. doc 3 ('N/A' or missing)"
        )

    def test_fall_of_one_extractor_alone_is_told(self, tmp_path: Path) -> None:
        """The strict filter misses answers that the flexible one finds: the form changed."""
        ref = text_samples([1] * N)
        cand = text_samples([1] * N)
        for sample in cand[:40]:
            sample["exact_match"], sample["filtered_resps"] = 0.0, ["[invalid]"]
        found = measure("evals.score_drop", paired(tmp_path, {"t": ref}, {"t": cand}))

        assert found.pattern == (
            "t (strict-match) falls and the flexible extractor does not: the form of answers changed"
        )


class TestLoglikDelta:
    """The 90th percentile over documents of the mean over choices."""

    def test_one_shift_is_measured_as_it_is(self, tmp_path: Path) -> None:
        """Every choice 0.25 nats lower: 0.25, the signed median is -0.25."""
        ref, cand = choice_samples(N, seed=1), choice_samples(N, seed=1)
        for sample in cand:
            sample["resps"] = [[[str(float(r[0][0]) - 0.25), "False"]] for r in sample["resps"]]
        found = measure("evals.loglik_delta", paired(tmp_path, {"arc": ref}, {"arc": cand}))

        assert_measured(found.value, 0.25, atol=1e-12, rtol=0)
        assert_measured(found.breakdown["arc: median, signed"], -0.25, atol=1e-12, rtol=0)
        assert (found.n, found.n_of) == (N, "documents of arc")

    def test_value_is_an_order_statistic(self, tmp_path: Path) -> None:
        """Documents moved by 0.01, 0.02 … 2.00 nats: rank 180 of 200 is 1.80."""
        ref, cand = choice_samples(N, seed=1), choice_samples(N, seed=1)
        for sample in cand:
            by = (sample["doc_id"] + 1) / 100
            sample["resps"] = [[[repr(float(r[0][0]) - by), "False"]] for r in sample["resps"]]
        found = measure("evals.loglik_delta", paired(tmp_path, {"arc": ref}, {"arc": cand}))

        assert_measured(found.value, 1.80, atol=1e-9, rtol=0)
        assert found.interval is not None
        assert found.interval.method == "order statistic"

    def test_number_that_is_none_is_infinite(self, tmp_path: Path) -> None:
        """A NaN of cand must FAIL, not vanish in a percentile."""
        ref, cand = choice_samples(N, seed=1), choice_samples(N, seed=1)
        cand[7]["resps"][1] = [["nan", "False"]]
        found = measure("evals.loglik_delta", paired(tmp_path, {"arc": ref}, {"arc": cand}))

        assert found.value == math.inf

    def test_generated_answers_alone_hold_none(self, tmp_path: Path) -> None:
        """GSM8K alone."""
        same = {"t": answers([1] * N)}

        found = measure("evals.loglik_delta", paired(tmp_path, same, same))
        assert found.why_undefined == "no task holds log-likelihoods"


class TestRatesAndLength:
    """What a budget or a stop string does before a score shows it."""

    def test_rise_of_unreadable_answers(self, tmp_path: Path) -> None:
        """10 of 200 more: 5 points, named by kind."""
        ref, cand = scored(10, 0)
        found = measure("evals.rates", paired(tmp_path, {"t": answers(ref)}, {"t": answers(cand)}))

        assert found.value == 5.0
        assert found.worst is not None
        assert found.worst.place == "t, unreadable"
        assert found.breakdown["t, unreadable: cand %"] == 5.0

    def test_answers_cut_by_the_budget_are_counted_where_reasons_are_kept(
        self, tmp_path: Path
    ) -> None:
        """30 of 200 end by length on cand, none on ref."""
        ref = answers([1] * N, beside=beside)
        cand = answers([1] * N, beside=beside)
        for sample in cand[:30]:
            sample["validate"]["finish_reason"] = "length"
        found = measure("evals.rates", paired(tmp_path, {"t": ref}, {"t": cand}))

        assert found.value == 15.0
        assert found.worst is not None
        assert found.worst.place == "t, cut"

    def test_lengths_that_move_both_ways_alike_are_no_surplus(self, tmp_path: Path) -> None:
        """20 shorter and 20 longer: 0 points; 20 shorter alone: 10."""
        ref, both, one = answers([1] * N), answers([1] * N), answers([1] * N)
        for sample in (*both[:20], *one[:20]):
            sample["resps"] = [[sample["resps"][0][0][:10]]]
        for sample in both[20:40]:
            sample["resps"] = [[sample["resps"][0][0] * 2]]
        even = measure("evals.length", paired(tmp_path / "a", {"t": ref}, {"t": both}))
        odd = measure("evals.length", paired(tmp_path / "b", {"t": ref}, {"t": one}))

        assert even.value == 0.0
        assert odd.value == 10.0
        assert odd.worst is not None
        assert odd.worst.place == "t, shorter"

    def test_choices_have_no_length(self, tmp_path: Path) -> None:
        """Nothing is generated."""
        same = {"arc": choice_samples(N, seed=1)}

        found = measure("evals.length", paired(tmp_path, same, same))
        assert found.why_undefined == "no task holds generated text"


class TestHygiene:
    """Causes are named before any score is looked at."""

    def test_second_bos_allows_no_comparison(self, tmp_path: Path) -> None:
        """TV-08: prompts read the same, tokens do not."""
        ref = answers([1] * N, beside=beside)
        cand = answers(
            [1] * N,
            beside=lambda doc, text: beside(
                doc, text, bos=2, prompt_tokens=10, prompt_tokens_hash=digest(f"bos {doc}")
            ),
        )
        pair = paired(tmp_path, {"t": ref}, {"t": cand})
        found = measure("evals.prompts", pair)

        assert found.undefined_kind == "unlike"
        assert found.why_undefined == (
            "prompt token ids differ on 200 of 200 items, though the prompts read the same; e.g. t "
            "doc 0: ref 9 tokens with 1 BOS, cand 10 tokens with 2 BOS: cand has BOS twice"
        )
        assert measure("evals.score_drop", pair).why_undefined == found.why_undefined

    def test_bos_twice_on_both_sides_is_counted(self, tmp_path: Path) -> None:
        """Equal hashes hide nothing: the tokenizer puts one."""
        both = answers([1] * 3, beside=lambda doc, text: beside(doc, text, bos=2))
        head = {"validate": {"bos_expected": 1}}
        found = measure(
            "evals.prompts",
            paired(tmp_path, {"t": both}, {"t": both}, ref_head=head, cand_head=head),
        )

        assert found.value == 6.0
        assert found.pattern == ("ref: t doc 0 starts with 2 BOS tokens where the tokenizer puts 1")

    def test_cut_prompts_are_counted(self, tmp_path: Path) -> None:
        """A prompt that did not fit lost its few-shot examples."""
        ref = answers([1] * 3, beside=beside)
        cand = answers([1] * 3, beside=lambda d, t: beside(d, t, truncated=d == 1))

        assert measure("evals.prompts", paired(tmp_path, {"t": ref}, {"t": cand})).value == 1.0

    def test_prompts_without_ids_are_told(self, tmp_path: Path) -> None:
        """A foreign folder: compared as texts alone."""
        same = {"t": answers([1] * 3)}

        found = measure("evals.prompts", paired(tmp_path, same, same))
        assert found.value == 0.0
        assert found.pattern == ("3 of 3 prompts compared as texts alone: no token ids were kept")

    def test_two_models_with_one_answer_share_a_cache(self, tmp_path: Path) -> None:
        """TV-03: equal to the last digit under another model id."""
        same = {"arc": choice_samples(N, seed=1)}
        pair = paired(tmp_path, same, same, model_args="pretrained=other")
        found = measure("evals.identical", pair)

        assert found.undefined_kind == "unlike"
        assert found.why_undefined == (
            "ref (hf (pretrained=toy,dtype=bfloat16)) and cand (hf (pretrained=other)) are unlike "
            "runs, yet their answers to arc agree to the last digit: one of them was served from "
            "the other's cache"
        )
        assert measure("evals.loglik_delta", pair).undefined_kind == "unlike"

    def test_equal_greedy_texts_are_no_alarm(self, tmp_path: Path) -> None:
        """Greedy answers of two stacks agree word by word when both are right."""
        same = {"t": answers([1] * N)}

        assert measure("evals.identical", paired(tmp_path, same, same, model="vllm")).value == 0.0

    def test_few_equal_numbers_are_no_alarm(self, tmp_path: Path) -> None:
        """Four documents of four choices are 16 numbers, 20 are asked for."""
        same = {"arc": choice_samples(4, seed=1)}

        assert measure("evals.identical", paired(tmp_path, same, same, model="vllm")).value == 0.0

    def test_requests_that_nobody_answered_are_counted(self, tmp_path: Path) -> None:
        """200 asked, 150 sent, 40 cached: ten answers of doubtful origin."""
        same = {"t": answers([1] * N)}
        head = {"validate": {"requests": {"asked": 200, "sent": 150, "cached": 40}}}
        found = measure("evals.identical", paired(tmp_path, same, same, cand_head=head))

        assert found.value == 10.0
        assert found.pattern == ("cand asked for 200 answers, sent 150 and took 40 from a cache")

    def test_cache_with_one_key_for_unlike_runs_allows_no_comparison(self, tmp_path: Path) -> None:
        """The key must tell the two apart; a run of the same model may be resumed from its cache."""
        same = {"t": answers([1] * N)}
        requests = {"asked": 200, "sent": 0, "cached": 200, "cache_key": "f" * 64}
        head = {"validate": {"requests": requests}}
        both = {"ref_head": head, "cand_head": head}
        found = measure("evals.identical", paired(tmp_path / "a", same, same, model="vllm", **both))
        resumed = measure("evals.identical", paired(tmp_path / "b", same, same, **both))

        assert found.undefined_kind == "unlike"
        assert found.why_undefined == (
            "ref and cand are unlike runs, yet their caches have one key (ffffffffffff) and served "
            "ref 200 of 200 answers, cand 200 of 200 answers: the key does not tell their models apart"
        )
        assert resumed.value == 0.0

    def test_empty_slices_are_counted_on_both_sides(self, tmp_path: Path) -> None:
        """TV-06: all choices exactly 0, ref and cand agree perfectly."""
        zero = choice_samples(N, seed=1)
        for sample in zero:
            sample["resps"] = [[["0.0", "False"]]] * 4
        found = measure("evals.signal", paired(tmp_path, {"arc": zero}, {"arc": zero}))

        assert found.value == 2 * N
        assert "ref arc: 200 items, log-likelihoods of exactly 0: an empty slice was summed" in str(
            found.pattern
        )

    @pytest.mark.parametrize(("value", "count"), [("-3.5", 2 * N), (None, 0)])
    def test_constant_numbers_have_no_variance(
        self, tmp_path: Path, value: str | None, count: int
    ) -> None:
        """Every log-likelihood -3.5 is an alarm, real ones are none."""
        samples = choice_samples(N, seed=1)
        for sample in samples:
            if value is not None:
                sample["resps"] = [[[value, "False"]]] * 4

        found = measure("evals.signal", paired(tmp_path, {"arc": samples}, {"arc": samples}))
        assert found.value == count

    def test_empty_responses_are_an_alarm(self, tmp_path: Path) -> None:
        """Every answer is blank on both sides."""
        samples = answers([0] * N)
        for sample in samples:
            sample["resps"] = [["  "]]

        assert (
            measure("evals.signal", paired(tmp_path, {"t": samples}, {"t": samples})).value == 400
        )

    def test_chance_is_told_by_side(self, tmp_path: Path) -> None:
        """One of four choices right is a guess."""
        samples = choice_samples(400, seed=6, right=0.0)
        found = measure("evals.signal", paired(tmp_path, {"arc": samples}, {"arc": samples}))

        assert found.breakdown["cand arc: acc at chance"] == 1.0

    def test_setup_lists_every_difference(self, tmp_path: Path) -> None:
        """Also the ones after the first, which other gates name alone."""
        pair = paired(
            tmp_path, {"t": answers([1] * 3)}, {"t": answers([1] * 3)}, version="2", fewshot=5
        )

        assert measure("evals.setup", pair).why_undefined == (
            "2 differences: task t, version: ref 1.0, cand 2; task t, few-shot count: ref 0, cand 5"
        )
        assert measure("evals.length", pair).why_undefined == (
            "the two sides ran other evals: task t, version: ref 1.0, cand 2 (and 1 more, see "
            "evals.setup)"
        )


def test_noise_of_log_likelihoods_is_seen_long_before_points(tmp_path: Path) -> None:
    """Gaussian noise of 0.05 nats: no flip, and a percentile of 0.06 to 0.07 nats a document."""
    ref = choice_samples(400, seed=2, right=1.0)
    cand = choice_samples(400, seed=2, right=1.0, noise=0.05)
    pair = paired(tmp_path, {"arc": ref}, {"arc": cand})
    rng = np.random.default_rng(0)
    expected = np.quantile(np.abs(0.05 * rng.standard_normal((100_000, 4))).mean(axis=1), 0.9)

    assert measure("evals.score_drop", pair).value == 0.0
    assert_measured(measure("evals.loglik_delta", pair).value, expected, atol=0.006, rtol=0)
