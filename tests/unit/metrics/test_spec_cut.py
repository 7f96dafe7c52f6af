"""Rows and columns of drawn streams that were cut: each is named and refused, none is judged in part."""

import numpy as np
import pytest

from tests.fakes import make_prompt
from tests.unit.metrics.spec_made import PROMPT, TWO_IDS, drafted, fair, pair, side
from validate.capture.backends.torch_speculative import FORCED, REPLAY
from validate.metrics import METRICS
from validate.metrics._spec_books import (
    BLOCK_NAMES,
    STEP_NAMES,
    TOKEN_NAMES,
    books_problem,
    columns_problem,
)
from validate.metrics._spec_inside import REPLAYED, VERIFIED
from validate.metrics.speculative_audit import speculative_audit
from validate.metrics.speculative_health import speculative_health
from validate.metrics.speculative_logprob import speculative_logprob
from validate.metrics.speculative_nonfinite import speculative_nonfinite
from validate.metrics.speculative_replay import speculative_replay
from validate.metrics.speculative_verify_kl import speculative_verify_kl
from validate.metrics.speculative_verify_logprob import speculative_verify_logprob
from validate.schema import Levels

LEVELS = Levels(low=0.999, high=0.95)
KIND = "spec-sampled"
REPLAY_ROWS, AUDIT = f"spec.{KIND}.replay", f"spec.{KIND}.audit"
VERIFY, FORCED_ROWS = f"spec.{KIND}.verify.logits", f"spec.{KIND}.forced.logits"
ALL = {name: metric for name, metric in METRICS.items() if name.startswith("speculative.")}
OF_ROWS = (speculative_verify_kl, speculative_verify_logprob, speculative_logprob)
STEPS = 20
"""Of one accepted draft each: 41 tokens."""


def whole():
    """Rows, audits and replays of two prompts, all that the format asks for."""
    rows = np.zeros((VERIFIED, 2), np.float32)
    inside = {
        REPLAY_ROWS: np.zeros(REPLAYED, np.int32),
        AUDIT: np.zeros((STEPS, 3), np.float32),
        VERIFY: rows,
        FORCED_ROWS: rows,
    }
    return {f"p-{at}": dict(inside) for at in range(2)}


def captured(extra, *, label="rocm", streams=None, tags=()):
    held = {f"p-{at}": drafted([1] * STEPS) for at in range(2)} if streams is None else streams
    made = side({KIND: held}, label=label, extra=extra, model=TWO_IDS)
    for name in tags:
        made.prompts[name] = make_prompt(name, range(1, PROMPT + 1), tags=("tensors",))
    return made


def refused(metric, cand, ref=None):
    found = metric(pair(cand, ref), LEVELS)
    assert (found.value, found.undefined_kind) == (None, "unlike"), found.value
    return found.why_undefined or ""


def test_the_numbers_are_those_of_the_path_that_runs_here():
    assert (REPLAYED, VERIFIED) == (REPLAY, FORCED)


@pytest.mark.parametrize("metric", [speculative_replay, speculative_audit, *OF_ROWS])
def test_whole_ones_are_judged(metric):
    assert metric(pair(captured(whole())), LEVELS).value is not None


class TestReplay:
    @pytest.mark.parametrize("held", [0, 1, 11])
    def test_fewer_tokens_than_the_format_asks_for(self, held):
        extra = whole()
        extra["p-1"][REPLAY_ROWS] = extra["p-1"][REPLAY_ROWS][:held]

        assert refused(speculative_replay, captured(extra)) == (
            f"rocm: p-1/{REPLAY_ROWS} holds {held} rows, and the 12 first tokens of its stream ask "
            "for one each: rows are missing; capture the prompt again, whole"
        )

    def test_a_prompt_without_it(self):
        extra = whole()
        del extra["p-0"][REPLAY_ROWS]

        assert f"rocm: p-0/{REPLAY_ROWS} holds 0 rows" in refused(
            speculative_replay, captured(extra)
        )

    def test_a_short_stream_asks_for_as_many_as_it_has(self):
        extra = {f"p-{at}": {REPLAY_ROWS: np.zeros(3, np.int32)} for at in range(2)}
        cand = captured(extra, streams={f"p-{at}": drafted([1]) for at in range(2)})

        assert speculative_replay(pair(cand), LEVELS).value == 0.0

    def test_a_stream_shorter_than_its_replay_was_cut(self):
        cand = captured(whole(), streams={f"p-{at}": drafted([1]) for at in range(2)})

        assert refused(speculative_replay, cand) == (
            f"rocm: p-0/{REPLAY_ROWS} holds 12 tokens, its stream 3, and they agree: the stream "
            "was cut; capture the prompt again, whole"
        )

    def test_one_that_parted_may_have_stopped_early(self):
        extra = whole()
        extra["p-1"][REPLAY_ROWS] = np.array([0, 0, 1])

        assert speculative_replay(pair(captured(extra)), LEVELS).value == 0.5

    def test_without_any_nothing_is_known(self):
        found = speculative_replay(pair(captured({}), captured(whole(), label="cuda")), LEVELS)

        assert (found.value, found.undefined_kind) == (None, "no_data")


class TestRows:
    @pytest.mark.parametrize("metric", OF_ROWS)
    @pytest.mark.parametrize("name", [VERIFY, FORCED_ROWS])
    def test_one_pass_alone(self, metric, name):
        extra = whole()
        del extra["p-1"][name]

        assert f"rocm: p-1/{name} holds 0 rows" in refused(metric, captured(extra))

    @pytest.mark.parametrize("metric", OF_ROWS)
    @pytest.mark.parametrize("held", [1, 23])
    def test_fewer_of_both(self, metric, held):
        extra = whole()
        for name in (VERIFY, FORCED_ROWS):
            extra["p-1"][name] = extra["p-1"][name][:held]

        assert refused(metric, captured(extra)) == (
            f"rocm: p-1/{VERIFY} holds {held} rows, and the 24 first tokens of its stream ask for "
            "one each: rows are missing; capture the prompt again, whole"
        )

    @pytest.mark.parametrize("metric", OF_ROWS)
    def test_fewer_ids_of_both(self, metric):
        extra = whole()
        for name in (VERIFY, FORCED_ROWS):
            extra["p-1"][name] = extra["p-1"][name][:, :1]

        assert "a vocabulary of 2 do not belong together" in refused(metric, captured(extra))

    @pytest.mark.parametrize("metric", OF_ROWS)
    def test_a_prompt_that_ref_holds_and_cand_does_not(self, metric):
        extra = whole()
        for name in (VERIFY, FORCED_ROWS):
            del extra["p-0"][name]
        ref = captured(whole(), label="cuda")

        assert metric(pair(captured(extra)), LEVELS).value is not None  # as for untagged prompts
        assert f"rocm: p-0/{VERIFY} holds 0 rows" in refused(metric, captured(extra), ref)
        assert f"rocm: p-0/{VERIFY} holds 0 rows" in refused(metric, captured(extra, tags=["p-0"]))


class TestAudit:
    @pytest.mark.parametrize("held", [1, 19])
    def test_fewer_steps(self, held):
        extra = whole()
        extra["p-1"][AUDIT] = extra["p-1"][AUDIT][:held]

        assert refused(speculative_audit, captured(extra)) == (
            f"rocm: p-1/{AUDIT} holds {held} rows, and the 20 first verify steps of its stream ask "
            "for one each: rows are missing; capture the prompt again, whole"
        )

    def test_a_prompt_that_ref_holds_and_cand_does_not(self):
        extra = whole()
        del extra["p-0"][AUDIT]
        ref = captured(whole(), label="cuda")

        assert speculative_audit(pair(captured(extra)), LEVELS).n == STEPS
        assert f"p-0/{AUDIT} holds 0 rows" in refused(speculative_audit, captured(extra), ref)
        tagged = captured(extra, tags=["p-0"])
        assert f"p-0/{AUDIT} holds 0 rows" in refused(speculative_audit, tagged)

    @pytest.mark.parametrize("cut", [("p-1",), ("p-0", "p-1")])
    def test_fewer_states(self, cut):
        extra = whole()
        for prompt in cut:
            extra[prompt][AUDIT] = extra[prompt][AUDIT][:, :2]
        ref = captured(whole(), label="cuda")

        assert (
            f"rocm: {cut[0]}/{AUDIT} holds 2 states, other audits of this model 3: states are missing"
        ) in refused(speculative_audit, captured(extra), ref)

    def test_states_are_counted_along_the_second_axis(self):
        """Ref tells the 5 heads of its 3 states apart; cand holds 2 states."""
        extra, finer = whole(), whole()
        for prompt in extra:
            extra[prompt][AUDIT] = extra[prompt][AUDIT][:, :2]
            finer[prompt][AUDIT] = np.zeros((STEPS, 3, 5), np.float32)

        assert "holds 2 states, other audits of this model 3: states are missing" in refused(
            speculative_audit, captured(extra), captured(finer, label="cuda")
        )


class TestColumns:
    @pytest.mark.parametrize("name", [*TOKEN_NAMES, *STEP_NAMES])
    @pytest.mark.parametrize("gone", [False, True])
    def test_one_that_is_shorter_or_not_there(self, name, gone):
        streams = {f"p-{at}": drafted([1, 0] * 15) for at in range(2)}
        streams["p-1"][name] = streams["p-1"][name][:-1]
        cand = side({KIND: streams})
        held = dict(cand._tensors["p-1"])
        if gone:
            held.pop(f"spec.{KIND}.{name}")
        cand._tensors = {**cand._tensors, "p-1": held}

        for metric in ALL.values():
            said = refused(metric, cand)
            assert "rocm: p-1 spec-sampled: spec.spec-sampled." in said
            assert "a column was cut; write every column whole" in said

    def test_a_prompt_without_its_steps(self):
        streams = {f"p-{at}": drafted([1, 0] * 15) for at in range(2)}
        streams["p-1"] = {n: x for n, x in streams["p-1"].items() if n not in STEP_NAMES}

        assert "p-1 spec-sampled: spec.spec-sampled.count is not there" in refused(
            speculative_health, side({KIND: streams})
        )

    @pytest.mark.parametrize("name", BLOCK_NAMES)
    def test_one_with_fewer_drafts(self, name):
        streams = {f"p-{at}": drafted([1, 0] * 15) for at in range(2)}
        streams["p-1"][name] = streams["p-1"][name][:, :0]

        assert "a column was cut" in refused(speculative_health, side({KIND: streams}))

    def test_a_ref_that_cannot_be_read_is_named(self):
        streams = fair(30)
        streams["p-2"]["p"] = streams["p-2"]["p"][:-1]
        ref = side({"sampled": streams}, label="cuda")

        assert refused(speculative_nonfinite, side({"sampled": fair(30)}), ref).startswith(
            "cuda: p-2 sampled: spec.sampled.p is [29], and spec.sampled.tokens asks for"
        )

    @pytest.mark.parametrize("metric", ALL.values())
    def test_no_whole_kind_is_judged_in_its_place(self, metric):
        streams = fair(30, prompts=2)
        streams["p-1"]["p"] = streams["p-1"]["p"][:-1]
        whole = {f"p-{at}": drafted([1, 0] * 15) for at in range(2)}

        assert "rocm: p-1 sampled: spec.sampled.p is [29]" in refused(
            metric, side({"sampled": streams, KIND: whole})
        )


class TestSteps:
    """Steps accept 1, 0, 1 of 1: anchors 5, 7, 8 of tokens 0 | 1 2 | 3 | 4 5."""

    def cut(self, held):
        x = drafted([1, 0, 1])
        columns = {name: x[name][held] for name in STEP_NAMES}
        return refused(speculative_health, side({KIND: {"p-0": x | columns}}))

    def test_the_last_one_cut(self):
        assert self.cut(slice(0, 2)) == (
            "rocm: p-0 spec-sampled: its tokens come from verify steps 0 to 2, and 2 steps are "
            "there, counted from 0: steps were cut; write all of them"
        )

    def test_tokens_of_a_step_that_was_cut_are_counted(self):
        """Tokens 4 and 5 were accepted and drawn in step 2: without it they come from nowhere."""
        x = drafted([1, 0, 1])
        columns = {name: x[name][:2] for name in STEP_NAMES}
        found = speculative_nonfinite(pair(side({KIND: {"p-0": x | columns}})), LEVELS)

        assert found.breakdown[f"cand.{KIND}.outcome"] == 2.0

    def test_one_dropped_and_another_told_twice(self):
        assert self.cut([0, 2, 2]) == (
            "rocm: p-0 spec-sampled: token 3 is row 0 of step 1, whose anchor is position 8, and "
            "stands at position 8: a token or a step was dropped; write all of them"
        )

    def test_a_bonus_token_that_was_dropped_between_two_steps(self):
        x = drafted([1, 0, 1])
        streams = {name: np.delete(x[name], 2, axis=0) for name in ("tokens", *TOKEN_NAMES)}

        assert (
            "token 2 is row 0 of step 1, whose anchor is position 7, and stands at position 7"
            in (refused(speculative_health, side({KIND: {"p-0": x | streams}})))
        )

    def test_steps_behind_the_end_of_the_stream_are_no_harm(self):
        x = drafted([1] * 30)
        held = {name: x[name][:-2] for name in ("tokens", *TOKEN_NAMES)}

        assert speculative_health(pair(side({KIND: {"p-0": x | held}})), LEVELS).value is not None


class TestToldTwice:
    """q is 1 and p 0.75 of each draft, of accepted tokens too."""

    @pytest.mark.parametrize(
        ("name", "value", "told"),
        [
            ("q", 0.9, "gives it 0.9, spec.spec-sampled.drafted_q 1"),
            ("drafted_q", 0.5, "gives it 1, spec.spec-sampled.drafted_q 0.5"),
            ("drafted_p", 0.5, "gives it 0.75, spec.spec-sampled.drafted_p 0.5"),
        ],
    )
    def test_another_chance_of_the_same_token(self, name, value, told):
        streams = {f"p-{at}": drafted([1, 0] * 15) for at in range(2)}
        streams["p-1"][name][4 if name == "q" else 2] = value

        for metric in [m for n, m in ALL.items() if n != "speculative.nonfinite"]:
            said = refused(metric, side({KIND: streams}))
            assert said.startswith("rocm: p-1 spec-sampled: token 4 is the draft of step 2 row 0, ")
            assert told in said
            assert "(1 of 30 such tokens differ): write both from one array" in said

    @pytest.mark.parametrize(("units", "same"), [(1, True), (3, False)])
    def test_a_rounding_of_storage_is_no_contradiction(self, units, same):
        streams = {f"p-{at}": drafted([1, 0] * 15) for at in range(2)}
        for x in streams.values():
            for name in ("q", "drafted_q"):
                x[name] = (x[name] * 0.9).astype(np.float32)
        changed = streams["p-1"]["drafted_q"]
        changed[2] += units * np.spacing(changed[2])

        found = speculative_health(pair(side({KIND: streams})), LEVELS)

        assert (found.undefined_kind != "unlike" or found.value is not None) is same

    def test_a_token_drawn_anew_has_a_q_of_its_own(self):
        """Step 1 rejects draft 0 and draws id 1, whose q is 0."""
        streams = {f"p-{at}": drafted([1, 0] * 15) for at in range(2)}
        x = streams["p-1"]
        for name, value in (("tokens", 1), ("q", 0.0), ("p", 0.25), ("logprob", np.log(0.25))):
            x[name][3] = value

        assert speculative_health(pair(side({KIND: streams})), LEVELS).value is not None

    def test_servers_without_draft_probabilities_contradict_nothing(self):
        streams = {f"p-{at}": drafted([1, 0] * 15) for at in range(2)}
        for x in streams.values():
            x["drafted_q"] = x["drafted_q"] * np.nan

        assert speculative_health(pair(side({KIND: streams})), LEVELS).value is not None


class TestBooks:
    """One stream's books alone: three steps of one draft, or one step of three."""

    def problem(self, x):
        return books_problem(side({KIND: {"p-0": x}}), KIND, "p-0")

    def three(self):
        """One step that accepts three drafts: p 0.75, q 1 of each."""
        x = drafted([1, 1])
        tokens = {name: x[name][:5].copy() for name in ("tokens", *TOKEN_NAMES)}
        tokens |= {"step": np.array([-1, 0, 0, 0, 0]), "row": np.array([0, 0, 1, 2, 3])}
        tokens["outcome"] = np.array([0, 1, 1, 1, 3])
        tokens["q"] = np.array([np.nan, 1.0, 1.0, 1.0, np.nan])
        steps = {name: x[name][:1].repeat(3, axis=1) for name in BLOCK_NAMES}
        steps |= {"place": x["place"][:1], "limit": np.array([3]), "count": np.array([3])}
        return tokens | steps

    def test_a_block_of_three_agrees(self):
        assert self.problem(self.three()) is None

    @pytest.mark.parametrize("row", [0, 1, 2])
    def test_a_contradiction_in_any_row_of_a_block(self, row):
        x = self.three()
        x["drafted_q"][0, row] = 0.5

        assert f"token {row + 1} is the draft of step 0 row {row}," in (self.problem(x) or "")

    def test_the_first_of_two_contradictions_is_told(self):
        x = self.three()
        x["drafted_q"][0, 1:] = 0.5

        said = self.problem(x) or ""
        assert "token 2 is the draft of step 0 row 1" in said
        assert "(2 of 3 such tokens differ)" in said

    @pytest.mark.parametrize(
        ("token", "draft", "fits"),
        [
            (0.0, 0.5, False),
            (0.5, 0.0, False),
            (1.5, 0.5, True),
            (0.5, 1.5, True),
            (-0.5, 0.5, True),
            (0.5, -0.5, True),
            (1e-3, 1.001e-3, False),
        ],
    )
    def test_chances_are_compared_and_what_is_none_is_damage_told_elsewhere(
        self, token, draft, fits
    ):
        x = self.three()
        x["q"][2], x["drafted_q"][0, 1] = token, draft

        assert (self.problem(x) is None) is fits

    def test_exactly_one_rounding_is_allowed(self):
        x = self.three()
        for name in ("q", "drafted_q"):
            x[name] = (x[name] / 2).astype(np.float32)
        x["q"][2] -= np.float32(np.finfo(np.float32).eps / 2)

        assert self.problem(x) is None

    def test_a_rounding_is_one_of_the_chance_and_not_of_1(self):
        x = self.three()
        for name in ("q", "drafted_q"):
            x[name] = (x[name] / 1000).astype(np.float32)
        x["q"][2] *= np.float32(1.0001)

        assert "token 2 is the draft of step 0 row 1" in (self.problem(x) or "")

    def test_the_first_prompt_says_how_many_drafts_a_step_has(self):
        streams = {f"p-{at}": drafted([1, 0] * 15) for at in range(2)}
        streams["p-1"] |= {n: streams["p-1"][n].repeat(2, axis=1) for n in BLOCK_NAMES}

        assert columns_problem(side({KIND: streams}), KIND, ["p-0", "p-1"]) == (
            "rocm: p-1 spec-sampled: spec.spec-sampled.drafts is [30, 2], and "
            "spec.spec-sampled.count asks for [30, 1]: a column was cut; write every column "
            "whole, from one run"
        )

    def test_without_the_count_no_step_is_asked_for(self):
        streams = {"p-0": drafted([1, 0])}
        del streams["p-0"]["count"]

        assert (columns_problem(side({KIND: streams}), KIND, ["p-0"]) or "").startswith(
            "rocm: p-0 spec-sampled: spec.spec-sampled.place is [2], and spec.spec-sampled.count "
            "asks for [0]:"
        )
