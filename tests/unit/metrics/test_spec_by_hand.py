"""Counts and figures of drawn streams where several prompts or kinds stand beside each other."""

from typing import Any

import numpy as np
import pytest

from tests.fakes import make_stream
from tests.measured import assert_measured, known
from tests.unit.metrics.spec_made import PROMPT, drafted, fair, pair, plain, side
from validate.metrics import METRICS
from validate.metrics._spec_books import STEP_NAMES, TOKEN_NAMES
from validate.metrics._spec_figures import acceptance_figures
from validate.metrics._spec_read import spec_side
from validate.metrics.speculative_acceptance_delta import speculative_acceptance_delta
from validate.metrics.speculative_audit import speculative_audit
from validate.metrics.speculative_greedy_unexplained import speculative_greedy_unexplained
from validate.metrics.speculative_health import speculative_health
from validate.metrics.speculative_logprob import speculative_logprob
from validate.metrics.speculative_nonfinite import speculative_nonfinite
from validate.metrics.speculative_support import speculative_support
from validate.schema import Levels, Measurement, SamplingParams

LEVELS = Levels(low=0.999, high=0.95)
KIND = "spec-sampled"


def spec(accepts: Any = (1, 0) * 15, prompts: int = 4, **changes: Any) -> dict[str, Any]:
    return {f"p-{at}": drafted(accepts, **changes) for at in range(prompts)}


def warmed(made: Any, kind: str, temperatures: dict[str, float]) -> Any:
    """The side with other temperatures of some prompts."""
    for prompt, warm in temperatures.items():
        held = made.drawn[kind][prompt]
        seed = held.params.seed
        made.drawn[kind][prompt] = held.model_copy(
            update={"params": SamplingParams(temperature=warm, seed=seed)}
        )
    return made


def test_figures_of_both_sides() -> None:
    """Three steps accept 1, 0, 1 at confidence 0.6 where 0.5 is expected; plain streams have none."""
    cand = side({"sampled": {"p-0": plain([0])}, KIND: {"p-0": drafted([1, 0, 1])}})
    ref = side({KIND: {"p-0": drafted([0, 0, 0])}}, label="cuda")
    found = acceptance_figures(pair(cand, ref))

    assert list(found) == [
        f"{role}.{KIND}.{name}"
        for role in ("cand", "ref")
        for name in (
            "accepted_per_step",
            "tokens_per_forward",
            "draft_1",
            "confidence_minus_acceptance",
        )
    ]
    assert_measured(
        list(found.values()), [2 / 3, 5 / 3, 2 / 3, 0.1, 0.0, 1.0, 0.0, 0.1], atol=1e-12, rtol=0
    )


def test_figures_of_a_draft_that_was_never_reached() -> None:
    x = drafted([0, 0])
    x["limit"] = np.zeros(2, np.int64)
    found = acceptance_figures(pair(side({KIND: {"p-0": x}})))

    assert list(found)[:2] == [f"cand.{KIND}.accepted_per_step", f"cand.{KIND}.tokens_per_forward"]
    assert len(found) == 4


class TestReading:
    def gap(self, **changes: Any) -> str | None:
        x = drafted([1, 0, 1])  # steps -1 0 0 1 2 2, rows 0 0 1 0 0 1
        made = side({KIND: {"p-0": {**x, **{k: np.asarray(v) for k, v in changes.items()}}}})
        return spec_side(pair(made), made).refusal

    def test_whole_stream(self) -> None:
        assert self.gap() is None

    @pytest.mark.parametrize(
        ("step", "first", "many"),
        [
            ([-1, 0, 0, -1, 1, 1], 3, 1),
            ([-1, 0, 0, 1, 1, -1], 5, 1),
            ([-1, -1, 0, 0, 1, 1], 1, 1),
            ([-1] * 6, 1, 5),
        ],
    )
    def test_plain_tokens_behind_the_first(self, step: list[int], first: int, many: int) -> None:
        """Every token of a drafted stream but its first comes from a step, so a relabelled one lies."""
        assert (
            f"p-0 spec-sampled: token {first} comes from no verify step ({many} of 6 such tokens; "
            "3 steps are there), and in a stream of drafts every token but the first does"
        ) in (self.gap(step=step) or "")

    @pytest.mark.parametrize("kind", ["spec-sampled", "spec-greedy"])
    def test_a_drafted_stream_without_any_step(self, kind: str) -> None:
        """Relabelled as plain and its columns of steps emptied: its drafts cannot be judged."""
        none = {name: drafted([1])[name][:0] for name in STEP_NAMES}
        streams = {"p-0": drafted([1, 0, 1]), "p-1": {**plain([0] * 6), **none}}
        made = side({kind: streams})

        assert spec_side(pair(made), made).refusal == (
            f"rocm: p-1 {kind}: token 1 comes from no verify step (5 of 6 such tokens; 0 steps are "
            "there), and in a stream of drafts every token but the first does: write all steps, and "
            "the step and row of each token"
        )

    @pytest.mark.parametrize("kind", ["spec-sampled", "spec-greedy"])
    def test_a_drafted_kind_without_columns_of_steps(self, kind: str) -> None:
        made = side({kind: {"p-0": plain([0] * 6)}})

        assert spec_side(pair(made), made).refusal == (
            f"rocm: p-0 {kind}: spec.{kind}.count is not there: a drafted stream has its verify "
            "steps; write them"
        )

    def test_one_token_needs_no_step(self) -> None:
        first = {name: column[:1] for name, column in plain([0]).items()}
        none = {name: drafted([1])[name][:0] for name in STEP_NAMES}
        made = side({KIND: {"p-0": {**first, **none}}})

        assert spec_side(pair(made), made).refusal is None

    @pytest.mark.parametrize(
        ("step", "row", "told"),
        [
            ([-1, 0, 0, 1, 2, 2], [0, 1, 2, 0, 0, 1], "step 0 row 1"),
            ([-1, 0, 0, 1, 2, 2], [0, 0, 2, 0, 0, 1], "step 0 row 2"),
            ([-1, 0, 0, 2, 3, 3], [0, 0, 1, 0, 0, 1], "step 2 row 0"),
            ([-1, 0, 0, 1, 2, 2], [0, 0, 1, 1, 0, 1], "step 1 row 1"),
            ([-1, 0, 0, 1, 2, 2], [0, 0, 1, 0, 0, 0], "step 2 row 0"),
        ],
    )
    def test_dropped_position(self, step: list[int], row: list[int], told: str) -> None:
        assert f"p-0 spec-sampled: {told} does not follow what stands before it" in (
            self.gap(step=step, row=row) or ""
        )

    def test_a_drop_before_the_first_verified_token_alone(self) -> None:
        """Step 0 may begin at the first token: nothing was emitted before it."""
        steps = {
            name: column
            for name, column in drafted([1, 0, 1, 0]).items()
            if name in ("drafts", "accepts", "limit", "count", "expected", "confidence")
            or name.startswith("drafted_")
        }
        place = [PROMPT - 1, PROMPT + 1, PROMPT + 2, PROMPT + 4]
        step, row = [0, 0, 1, 2, 2, 3], [0, 1, 0, 0, 1, 0]
        assert self.gap(step=step, row=row, place=place, **steps) is None

    def test_a_stream_that_does_not_say_what_was_asked_for(self) -> None:
        made = side({"sampled": {"p-0": plain([0] * 5)}})
        held = made.drawn["sampled"]
        held["p-0"] = held["p-0"].model_copy(update={"params": None})

        assert spec_side(pair(made), made).refusal == (
            "rocm holds p-0/spec.sampled and its stream has no params, so neither seed nor "
            "parameters are known"
        )

    @pytest.mark.parametrize(("last", "refused"), [(257, False), (258, True), (0, True)])
    def test_stop_token_must_end_a_stream_that_stopped(self, last: int, refused: bool) -> None:
        """257 is <eos> of the byte tokenizer."""
        x = plain([0] * 5)
        x["tokens"][-1] = last
        made = side({"sampled": {"p-0": x}}, finish="stop")

        why = spec_side(pair(made), made).refusal
        assert ("its stop token is not there" in (why or "")) == refused

    def test_stop_token_inside_does_not_end_a_stream(self) -> None:
        x = plain([0] * 5)
        x["tokens"][0] = 257
        made = side({"sampled": {"p-0": x}}, finish="stop")

        assert "its stop token is not there" in (spec_side(pair(made), made).refusal or "")

    def test_the_first_token_that_is_told_otherwise_is_named(self) -> None:
        """Five tokens 0 as a tensor; their stream holds 1 at three places."""
        made = side({"sampled": {"p-0": plain([0] * 5)}})
        held = made.drawn["sampled"]
        held["p-0"] = held["p-0"].model_copy(update={"token_ids": (0, 1, 1, 0, 1)})

        assert spec_side(pair(made), made).refusal == (
            "rocm: p-0/spec.sampled.tokens holds 0 at token 1, its stream 1 (3 of 5 tokens "
            "differ): write both from one array"
        )


class TestNonfinite:
    def test_ids_beyond_the_tokenizer_of_two_temperatures_in_one_kind(self) -> None:
        """p-0 asks for T = 0: 1 token is counted, 2 drafts are shown; p-1 for T = 1: 2 and 1 shown."""
        streams = spec(prompts=2)
        streams["p-0"]["tokens"][3] = 259
        streams["p-0"]["drafts"][[3, 4], 0] = 259
        streams["p-1"]["tokens"][[3, 4]] = 259
        streams["p-1"]["drafts"][3, 0] = 259
        cand = side({KIND: streams})
        cold = cand.drawn[KIND]["p-0"].model_copy(update={"params": SamplingParams(temperature=0)})
        cand.drawn[KIND]["p-0"] = cold

        found = speculative_nonfinite(pair(cand, side({KIND: spec()}, label="cuda")), LEVELS)

        assert found.value == 1.0
        assert found.breakdown == {
            f"cand.{KIND}.greedy_tokens_beyond_tokenizer": 1.0,
            f"cand.{KIND}.tokens_beyond_tokenizer": 2.0,
            f"cand.{KIND}.drafts_beyond_tokenizer": 1.0,
            f"cand.{KIND}.greedy_drafts_beyond_tokenizer": 2.0,
        }

    def test_ids_beyond_the_tokenizer_by_kind_of_id(self) -> None:
        """259 of 272 ids are the tokenizer's: 2 tokens and 3 drafts at T = 1, and 1 beyond all."""
        streams = spec()
        streams["p-0"]["tokens"][[3, 4]] = 259, 271
        streams["p-1"]["tokens"][3] = 258
        streams["p-1"]["drafts"][[3, 4, 5, 6], 0] = 259, 260, 271, 272
        found = speculative_nonfinite(
            pair(side({KIND: streams}), side({KIND: spec()}, label="cuda")), LEVELS
        )

        assert found.value == 1.0
        assert found.breakdown == {
            f"cand.{KIND}.drafts": 1.0,
            f"cand.{KIND}.tokens_beyond_tokenizer": 2.0,
            f"cand.{KIND}.drafts_beyond_tokenizer": 3.0,
        }
        assert found.worst is not None
        assert (found.worst.place, found.worst.value) == (f"cand.{KIND}.drafts", 1.0)

    def test_streams_without_drafts_have_no_draft_beyond_the_tokenizer(self) -> None:
        x = plain([0] * 5)
        x["tokens"][0] = 259
        found = speculative_nonfinite(pair(side({"sampled": {"p-0": x}})), LEVELS)

        assert list(found.breakdown) == [
            "ref.sampled.tokens_beyond_tokenizer",
            "cand.sampled.tokens_beyond_tokenizer",
        ]

    def test_values_looked_at(self) -> None:
        """Five tokens have nine columns of their own and no cold ids; both sides are counted."""
        found = speculative_nonfinite(pair(side({"sampled": {"p-0": plain([0] * 5)}})), LEVELS)

        assert (found.value, found.n) == (0.0, 90)


class TestSupport:
    @pytest.mark.parametrize(("edge", "outside"), [(0.4, 0.0), (0.6, 1.0)])
    def test_band_of_greedy_tokens_is_that_of_logits(self, edge: float, outside: float) -> None:
        """At T = 0 the band of 0.5 nats is not scaled."""
        x = plain([0] * 5)
        x["edge"][2], x["p"][2] = edge, 0.0
        found = speculative_support(
            pair(side({"sampled": {"p-0": x}}, temperature=0.0), near_tie=0.5), LEVELS
        )

        assert found.breakdown["sampled.outside"] == outside
        assert found.breakdown["sampled.inside_band"] == 1.0 - outside

    def test_worst_is_the_furthest_of_the_first_kind(self) -> None:
        """0.6 and 0.9 nats outside in one kind, 2 in the next."""
        x, y = plain([0] * 5), drafted([1] * 4)
        x["edge"][[1, 3]], y["edge"][2] = (0.6, 0.9), 2.0
        found = speculative_support(
            pair(side({"sampled": {"p-0": x}, KIND: {"p-0": y}}), near_tie=0.5), LEVELS
        )

        assert (found.value, found.n) == (3.0, 14)
        assert found.worst is not None
        assert (found.worst.place, found.worst.position, found.worst.value) == (
            "sampled token 0, plain",
            PROMPT + 3,
            0.9,
        )


class TestAcceptanceDelta:
    def test_a_prompt_asked_at_zero_is_left_out(self) -> None:
        """Of three prompts p-0 is cold; the others differ by 0.1."""
        ref = warmed(side({KIND: spec(prompts=3)}, label="cuda"), KIND, {"p-0": 0.0})
        cand = warmed(side({KIND: spec(prompts=3, expected=0.6)}), KIND, {"p-0": 0.0})
        found = speculative_acceptance_delta(pair(cand, ref), LEVELS)

        assert_measured(found.value, 0.1, atol=1e-12, rtol=0)
        assert found.n == 2

    def test_a_prompt_that_ref_lacks_is_left_out(self) -> None:
        """An empty stream of ref: three of four prompts are compared."""
        own, other = spec(expected=0.6), spec()
        other["p-1"] = {name: x[:0] for name, x in other["p-1"].items()}
        found = speculative_acceptance_delta(
            pair(side({KIND: own}), side({KIND: other}, label="cuda")), LEVELS
        )

        assert found.n == 3
        assert_measured(found.value, 0.1, atol=1e-12, rtol=0)

    def test_a_prompt_that_cand_ended_before_any_step_is_left_out(self) -> None:
        """A single token of cand: three of four prompts are compared."""
        own = spec(expected=0.6) | {"p-1": drafted([])}
        found = speculative_acceptance_delta(
            pair(side({KIND: own}), side({KIND: spec()}, label="cuda")), LEVELS
        )

        assert found.n == 3
        assert_measured(found.value, 0.1, atol=1e-12, rtol=0)

    def test_depth_by_quarters(self) -> None:
        """Five steps anchored at 5, 7, 9, 11, 13 differ by 0.1 to 0.5; quarters share their edges."""
        own = drafted([1] * 5)
        own["expected"] = 0.5 + 0.1 * np.arange(1, 6)[:, None]
        found = speculative_acceptance_delta(
            pair(side({KIND: {"p-0": own}}), side({KIND: {"p-0": drafted([1] * 5)}}, label="cuda")),
            LEVELS,
        )
        depths = {name: value for name, value in found.breakdown.items() if "depth" in name}

        assert list(depths) == ["depth_5_7", "depth_7_9", "depth_9_11", "depth_11_13"]
        assert_measured(list(depths.values()), [0.15, 0.25, 0.35, 0.45], atol=1e-12, rtol=0)
        assert_measured(found.value, 0.3, atol=1e-12, rtol=0)
        assert found.worst is not None
        assert_measured(known(found.worst.value), 0.3, atol=1e-12, rtol=0)

    def test_a_difference_downwards_may_be_the_worst(self) -> None:
        own = {**spec(prompts=3), "p-1": drafted((1, 0) * 15, expected=0.1)}
        own["p-2"] = drafted((1, 0) * 15, expected=0.7)
        found = speculative_acceptance_delta(
            pair(side({KIND: own}), side({KIND: spec(prompts=3)}, label="cuda")), LEVELS
        )

        assert found.worst is not None
        assert (found.worst.prompt, found.worst.detail) == (
            "p-1",
            "batch row 1 differs most: -0.4000",
        )


class TestAudit:
    def audited(self, *audits: Any, accepts: Any = (1, 0)) -> Measurement:
        """One prompt an audit; None: a prompt without one."""
        made = side(
            {KIND: spec(accepts=accepts, prompts=len(audits))},
            extra={
                f"p-{at}": {f"spec.{KIND}.audit": np.asarray(audit, np.float64)}
                for at, audit in enumerate(audits)
                if audit is not None
            },
        )
        return speculative_audit(pair(made), LEVELS)

    def test_a_prompt_without_an_audit_stands_before_others(self) -> None:
        found = self.audited(None, [[0.1, 0.2], [0.4, 0.3]], [[0.6, 0.2], [0.1, 0.1]])

        assert (found.value, found.n) == (0.6, 4)
        assert found.worst is not None
        assert (found.worst.prompt, found.worst.position) == ("p-2", PROMPT)
        assert found.worst.place == "state 0 after 1 accepted drafts"
        assert found.breakdown == {
            "accepted_0": 0.4,
            "accepted_0.mean": 0.25,
            "accepted_1": 0.6,
            "accepted_1.mean": 0.4,
        }
        assert found.pattern == "largest after 1 accepted drafts (mean 0.4)"

    def test_one_accepted_count_sets_nothing_apart(self) -> None:
        assert self.audited([[0.1], [0.2]], accepts=(1, 1)).pattern is None

    def test_nan_sets_nothing_apart(self) -> None:
        assert self.audited([[0.1], [np.nan]]).pattern is None


class TestGreedyUnexplained:
    def made(
        self, owns: list[Any], gaps: list[float], *, bare: tuple[int, ...] = ()
    ) -> Measurement:
        """Greedy streams 0 0 0 of row (gap, 0) at every token; ``bare`` prompts have no logits."""
        streams = {}
        for at, own in enumerate(owns):
            streams[f"p-{at}"] = drafted([0] * (len(own) - 1))
            streams[f"p-{at}"]["tokens"] = np.asarray(own)
        rows = {
            f"p-{at}": {"stream.logits": np.asarray([[gap, 0.0]] * 3, np.float32)}
            for at, gap in enumerate(gaps)
            if at not in bare
        }
        cand = side({"spec-greedy": streams}, extra=rows)
        cand.streams = {name: make_stream(name, [0, 0, 0]) for name in streams}
        return speculative_greedy_unexplained(pair(cand, near_tie=0.5), LEVELS)

    def test_prompts_beside_each_other(self) -> None:
        """p-0 has no logits, p-1 is equal, p-2 parts in a near-tie; p-3 and p-4 beyond it."""
        found = self.made(
            [[0, 1, 0], [0, 0, 0], [0, 1, 0], [0, 0, 1], [1, 0, 0]],
            [0.0, 9.0, 0.25, 2.0, 1.0],
            bare=(0,),
        )

        assert (found.value, found.n) == (2.0, 4)
        assert found.breakdown == {"parted": 3.0, "tokens": 9.0}  # 3 + 2 + 3 + 1
        assert found.worst is not None
        assert (found.worst.prompt, found.worst.position, found.worst.value) == (
            "p-3",
            PROMPT + 2,
            2.0,
        )

    @pytest.mark.parametrize(("gaps", "prompt"), [([1.0, 2.0], "p-1"), ([2.0, 2.0], "p-0")])
    def test_worst_is_the_first_of_the_widest(self, gaps: list[float], prompt: str) -> None:
        found = self.made([[0, 1], [0, 1]], gaps)

        assert found.worst is not None
        assert found.worst.prompt == prompt


class TestLogprob:
    def test_kinds_of_other_temperatures_stand_before_others(self) -> None:
        """Plain tokens at T = 0.7 say nothing; of drafted ones one returned 0.25 nats too much."""
        x = drafted([1] * 4)
        x["logprob"] = x["logprob"] - np.where(np.arange(9) == 3, 0.25, 0.0)
        made = side({"sampled": {"p-0": plain([0, 1] * 5)}, KIND: {"p-0": x}})
        found = speculative_logprob(pair(warmed(made, "sampled", {"p-0": 0.7})), LEVELS)

        assert_measured(found.value, 0.25, atol=1e-9, rtol=0)
        assert (found.n, list(found.breakdown)) == (9, [f"{KIND}.against_own_row"])
        assert found.worst is not None
        assert (found.worst.position, found.worst.place) == (PROMPT + 3, f"{KIND}, own row")

    def test_a_token_without_mass_has_no_logarithm_to_compare_with(self) -> None:
        """Another metric counts it."""
        x = plain([0] * 5)
        x["p"][2] = 0.0
        found = speculative_logprob(pair(side({"sampled": {"p-0": x}})), LEVELS)

        assert (found.value, found.n) == (0.0, 4)

    def test_worst_of_two_kinds(self) -> None:
        x, y = plain([0] * 5), drafted([1] * 4)
        x["logprob"], y["logprob"] = x["logprob"] - 0.5, y["logprob"] - 0.25
        found = speculative_logprob(pair(side({"sampled": {"p-0": x}, KIND: {"p-0": y}})), LEVELS)

        assert_measured(found.value, 0.5, atol=1e-9, rtol=0)
        assert found.n == 14

    @pytest.mark.parametrize(("n", "told"), [(19, False), (20, True)])
    def test_twenty_equal_values_are_named(self, n: int, told: bool) -> None:
        found = speculative_logprob(pair(side({"sampled": {"p-0": plain([0] * n)}})), LEVELS)

        assert (found.pattern == "sampled: every returned log-probability is -0.2877") == told


class TestHealth:
    def test_agreement_at_each_shift(self) -> None:
        """Tokens 0, 1, 2 … 21 and drafts of the very token: 1 in place, 0 one place beside it.

        Every draft was rejected; the last one, and at +1 the last two, have no token in their place.
        """
        x = drafted([0] * 21)
        x["tokens"] = np.arange(22)
        x["drafts"] = np.arange(1, 22)[:, None]
        found = speculative_health(pair(side({KIND: {"p-0": x}})), LEVELS)

        shown = {name: value for name, value in found.breakdown.items() if "agreement" in name}
        assert shown == {
            f"{KIND}.agreement_-1": 0.0,
            f"{KIND}.agreement_+0": 1.0,
            f"{KIND}.agreement_+1": 0.0,
        }
        assert found.pattern == f"{KIND}: nothing was accepted in 21 steps"

    def test_places_behind_the_end_do_not_count(self) -> None:
        """Twenty steps; of shifts to +1 the last has no token: 1 of 19 drafts, 1/19."""
        x = drafted([0] * 20)
        x["tokens"] = np.arange(21) + 100
        x["drafts"] = np.arange(20)[:, None]
        x["drafts"][3] = 105
        found = speculative_health(pair(side({KIND: {"p-0": x}})), LEVELS)

        assert_measured(found.breakdown[f"{KIND}.agreement_+1"], 1 / 19, atol=1e-12, rtol=0)
        assert found.breakdown[f"{KIND}.agreement_+0"] == 0.0

    def test_drafts_equal_to_the_last_but_not_to_the_first_are_not_constant(self) -> None:
        x = drafted([0] * 20)
        x["drafts"] = np.full((20, 1), 7)
        x["drafts"][0] = 8
        found = speculative_health(pair(side({KIND: {"p-0": x}})), LEVELS)

        assert "every draft" not in (found.pattern or "")

    @pytest.mark.parametrize(("hits", "told"), [(12, True), (8, False)])
    def test_four_standard_errors_of_a_shift(self, hits: int, told: bool) -> None:
        """25 steps, 24 of them with a token behind theirs: 12 of 24 is 0.5, four errors are
        4 sqrt(0.25 / 24) = 0.408; 8 of 24 is 0.333 and four errors are 0.385.
        """
        x = drafted([0] * 25)
        x["tokens"] = np.arange(26) + 100
        x["drafts"] = np.arange(25)[:, None]
        x["drafts"][:hits, 0] = np.arange(hits) + 102
        found = speculative_health(pair(side({KIND: {"p-0": x}})), LEVELS)

        assert ("shifted by +1" in (found.pattern or "")) == told

    def test_steps_behind_the_end_of_every_stream_tell_no_shift(self) -> None:
        """Twenty streams of one token 0, and a step behind each that drafts 1 to 20."""
        held = {}
        for at in range(20):
            x = drafted([1])
            held[f"p-{at}"] = x | {name: x[name][:1] for name in ("tokens", *TOKEN_NAMES)}
            held[f"p-{at}"]["drafts"] = np.array([[at + 1]])
        found = speculative_health(pair(side({KIND: held})), LEVELS)

        assert (found.value, found.n) == (0.0, 20)

    def test_steps_of_kinds_add_up_and_small_kinds_are_left_out(self) -> None:
        kinds = {"spec-greedy": spec(accepts=[1] * 19, prompts=1), KIND: spec(prompts=1)}
        found = speculative_health(pair(side(kinds)), LEVELS)

        assert found.n == 30
        assert not any("greedy.agreement" in name for name in found.breakdown)


def test_fair_streams_have_no_ailment_to_count() -> None:
    """Plain streams have no verify steps at all."""
    found = speculative_health(pair(side({"sampled": fair(5)})), LEVELS)

    assert found.why_undefined == "no kind of rocm has 20 verify steps"


def test_twenty_argmax_tokens_may_be_chance() -> None:
    """Id 0 has 3/4: twenty of them come in 0.3 %, and at a risk of 0.1 % nothing is said of it."""
    found = METRICS["speculative.uniform"](
        pair(side({"sampled": {"p-0": plain([0] * 20)}})), LEVELS
    )

    assert known(found.value) > 0.001
    assert "greedy" not in (found.pattern or "")


class TestRemarks:
    """20 steps are the fewest that are looked at."""

    def test_a_constant_confidence_is_told_and_not_counted(self) -> None:
        drawn = spec(confidence=np.full((30, 1), 0.6))
        found = speculative_health(pair(side({KIND: drawn})), LEVELS)

        told = f"not counted: every confidence of {KIND} is 0.6"
        assert told in (found.pattern or "").split("; ")
        assert known(found.value) == len((found.pattern or "").split("; ")) - 1

    def test_of_too_few_steps_nothing_is_told(self) -> None:
        few = drafted([1, 0] * 9, confidence=np.full((18, 1), 0.6))
        made = side({KIND: spec(confidence=np.full((30, 1), 0.6)), "spec-greedy": {"p-0": few}})
        pattern = speculative_health(pair(made), LEVELS).pattern or ""

        assert "confidence of spec-greedy" not in pattern
        assert f"confidence of {KIND}" in pattern

    def test_of_twenty_steps_it_is_told(self) -> None:
        drawn = {"p-0": drafted([1, 0] * 10, confidence=np.full((20, 1), 0.6))}
        pattern = speculative_health(pair(side({KIND: drawn})), LEVELS).pattern or ""

        assert f"every confidence of {KIND} is 0.6" in pattern

    def test_one_that_moves_is_not(self) -> None:
        drawn = spec(confidence=np.full((30, 1), 0.6))
        drawn["p-3"]["confidence"] = drawn["p-3"]["confidence"].copy()
        drawn["p-3"]["confidence"][-1, 0] = 0.61
        pattern = speculative_health(pair(side({KIND: drawn})), LEVELS).pattern

        assert "confidence" not in (pattern or "")

    def test_states_that_equal_their_replay_everywhere(self) -> None:
        drawn = {"p-0": drafted([1, 0, 1])}
        audit = np.zeros((3, 2), np.float32)
        same = side({KIND: drawn}, extra={"p-0": {f"spec.{KIND}.audit": audit}})
        found = speculative_audit(pair(same), LEVELS)

        assert found.value == 0.0
        assert (
            found.pattern
            == "every distance is exactly 0, as of states that are held against themselves"
        )
