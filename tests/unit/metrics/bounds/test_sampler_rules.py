"""Rules of the speculative metrics that one case told from its neighbour, on hand-made streams."""

import dataclasses
import math
from statistics import NormalDist
from typing import Any

import numpy as np
import pytest

from tests.fakes import make_manifest, make_stream
from tests.measured import assert_measured, known
from tests.unit.metrics.bounds.test_law_tests import (
    SIDE,
    counted,
    made,
    steps,
)
from tests.unit.metrics.spec_made import (
    ENTROPY,
    PROMPT,
    TWO_IDS,
    VARIANCE,
    all_stepped,
    drafted,
    fair,
    pair,
    plain,
    side,
    stepped,
)
from tests.unit.metrics.test_spec_by_hand import warmed
from validate.metrics._spec_read import spec_side
from validate.metrics._spec_streams import Drawn, SpecSide, Steps, Tokens
from validate.metrics.speculative_acceptance_delta import _matched, speculative_acceptance_delta
from validate.metrics.speculative_acceptance_z import (
    _seen,
    _tests as acceptance_tests,
    speculative_acceptance_z,
)
from validate.metrics.speculative_audit import speculative_audit
from validate.metrics.speculative_greedy_unexplained import speculative_greedy_unexplained
from validate.metrics.speculative_health import _agreement, _ailments
from validate.metrics.speculative_logprob import speculative_logprob
from validate.metrics.speculative_nonfinite import damage, speculative_nonfinite
from validate.metrics.speculative_replay import speculative_replay
from validate.metrics.speculative_serial import _coins, speculative_serial
from validate.metrics.speculative_surprisal import _one, speculative_surprisal
from validate.metrics.speculative_uniform import _told, speculative_uniform
from validate.metrics.speculative_verify_logprob import speculative_verify_logprob
from validate.schema import Levels, Measurement
from validate.stats import cvm_shift_needed

KIND = "spec-sampled"
LEVELS = Levels(low=0.999, high=0.95)


def shift_of_z(share: float) -> float:
    """Shift that a two-sided z sees in 95 of 100 at this share of 0.001."""
    law = NormalDist()
    return law.inv_cdf(1 - 0.001 * share / 2) + law.inv_cdf(0.95)


class TestAcceptanceDelta:
    def streams(self, prompts: int, accepts: Any = (1, 0)) -> dict[str, Any]:
        return {f"p-{at}": drafted(accepts) for at in range(prompts)}

    @pytest.mark.parametrize(("prompts", "needed"), [(4, 5), (5, None)])
    def test_equal_sides_have_no_direction(self, prompts: int, needed: int | None) -> None:
        """All five prompts lie on one side of the median once in 2^5 = 32, below 0.05."""
        found = speculative_acceptance_delta(pair(side({KIND: self.streams(prompts)})), LEVELS)

        assert (found.value, found.pattern) == (0.0, None)
        assert (found.n, found.n_needed) == (prompts, needed)

    def test_one_step_a_prompt(self) -> None:
        found = speculative_acceptance_delta(pair(side({KIND: self.streams(5, [1])})), LEVELS)

        assert (found.value, found.n) == (0.0, 5)

    def test_streams_that_part_at_once_share_nothing(self) -> None:
        other = self.streams(5)
        for stream in other.values():
            stream["tokens"] = stream["tokens"] + 1
        found = speculative_acceptance_delta(
            pair(side({KIND: other}), side({KIND: self.streams(5)}, label="cuda")), LEVELS
        )

        assert found.undefined_kind == "no_data"
        assert "no verify step stands behind the same tokens" in str(found.why_undefined)

    def test_a_ref_without_drafts(self) -> None:
        plain = {"sampled": fair(5, prompts=2)}
        ref = side(plain, label="cuda")
        found = speculative_acceptance_delta(
            pair(side({**plain, KIND: self.streams(2)}), ref), LEVELS
        )

        assert found.undefined_kind == "no_data"
        assert f"cuda holds no {KIND} streams with drafts" in str(found.why_undefined)

    def test_rows_behind_equal_drafts_are_compared(self) -> None:
        """Drafts part at row 1, at row 0 and nowhere; the row that parts is still behind equal ones."""
        drafts = np.array([[1, 2, 3], [4, 5, 6], [7, 8, 9]])
        other = np.array([[1, 9, 3], [9, 5, 6], [7, 8, 9]])
        gains = np.arange(9).reshape(3, 3) / 100

        def held(ids: np.ndarray, expected: np.ndarray) -> SpecSide:
            emitted = made(Tokens, 9, prompt=[0] * 9, token=[0] * 9, position=PROMPT + np.arange(9))
            judged = made(
                Steps,
                3,
                prompt=[0] * 3,
                place=[5, 7, 9],
                drafts=ids,
                expected=expected,
                temperature=np.ones(3),
            )
            drawn = Drawn(kind=KIND, tokens=emitted, steps=judged, groups=())
            return dataclasses.replace(SIDE, prompts=("p-0",), kinds={KIND: drawn})

        found = known(_matched(held(drafts, np.zeros((3, 3))), held(other, gains)))

        assert found.row.tolist() == [0, 1, 0, 0, 1, 2]
        assert found.place.tolist() == [5, 5, 7, 9, 9, 9]
        assert found.delta.tolist() == [0.0, 0.01, 0.03, 0.06, 0.07, 0.08]


class TestAcceptanceZ:
    def test_two_kinds_share_the_level(self) -> None:
        """Each has 0.99 / 2, half of it pooled; deviation of a rate of 120 fair coins."""
        stream = {"p-0": drafted((1, 0) * 60)}
        found = speculative_acceptance_z(pair(side({"sampled": stream, KIND: stream})), LEVELS)

        expected = shift_of_z(0.495 * 0.5) * math.sqrt(30) / 120
        assert_measured(known(found.detection).effect, expected, atol=0, rtol=1e-6)

    def test_two_kinds_that_did_what_they_could_not(self) -> None:
        """A draft of chance 0 accepted at T = 1, one of chance 1 rejected at T = 0."""
        warm, cold = drafted((1, 0) * 120), drafted([1] * 9 + [0], expected=1.0)
        warm["expected"][0] = 0.0
        found = speculative_acceptance_z(
            pair(side({KIND: {"p-0": warm}, "spec-greedy": {"p-0": cold}})), LEVELS
        )

        assert found.value == 0.0
        assert "impossible decisions" in str(known(found.worst).place)

    def test_greedy_prompts_among_the_others_are_no_draws(self) -> None:
        cand = side({KIND: {f"p-{at}": drafted((1, 0) * 30) for at in range(2)}})
        found = speculative_acceptance_z(pair(warmed(cand, KIND, {"p-1": 0.0})), LEVELS)

        assert found.n == 60

    def test_fifty_drafts_are_enough(self) -> None:
        found = counted(acceptance_tests(SIDE, "spec", steps(50), 1.0))

        assert found["spec, draft 1"] == 50

    def test_three_drafts_see_little_but_something(self) -> None:
        """Variance 3/4 in all."""
        found = _seen("spec", steps(2), 1.0, LEVELS)

        assert found.n == 3
        assert_measured(found.effect, shift_of_z(0.5) * math.sqrt(0.75) / 3, atol=0, rtol=1e-6)


def test_plain_streams_have_no_audit() -> None:
    found = speculative_audit(pair(side({"sampled": fair(5)})), LEVELS)

    assert found.undefined_kind == "no_data"


class TestGreedyUnexplained:
    def cand(self, kind: str, own: list[int]) -> Any:
        """p-0 with a plain stream alone, p-1 with ``own`` of ``kind``; greedy emits 0 by 2 nats."""
        made = side(
            {"sampled": {"p-0": plain([0, 0])}, kind: {"p-1": stepped(plain(own))}},
            extra={
                f"p-{at}": {"stream.logits": np.array([[3.0, 1.0]] * 2, np.float32)}
                for at in range(2)
            },
        )
        made.streams = {f"p-{at}": make_stream(f"p-{at}", [0, 0]) for at in range(2)}
        return made

    def test_a_prompt_without_hides_no_other(self) -> None:
        found = speculative_greedy_unexplained(
            pair(self.cand("spec-greedy", [0, 1]), near_tie=0.5), LEVELS
        )

        assert (found.value, found.n) == (1.0, 1)
        assert (known(found.worst).prompt, known(found.worst).value) == ("p-1", 2.0)

    def test_without_greedy_speculation(self) -> None:
        found = speculative_greedy_unexplained(pair(self.cand(KIND, [0, 1])), LEVELS)

        assert found.undefined_kind == "no_data"


class TestHealth:
    def told(self, own: tuple[float, int], later: tuple[float, int]) -> bool:
        none = made(Tokens, 0, prompt=np.zeros(0, int), step=np.zeros(0, int), row=np.zeros(0, int))
        held = steps(20, drafts=np.arange(40).reshape(20, 2))
        drawn = Drawn(kind=KIND, tokens=none, steps=held, groups=())
        found = list(_ailments(drawn, held, {-1: (0.0, 20), 0: own, 1: later}))
        return any("shifted by +1" in words for words in found)

    @pytest.mark.parametrize(
        ("own", "later", "told"),
        [
            # 0.9 - 0.5 = 0.4; four errors of the greater variance, 1/4: 0.447 of 20, 0.365 of 30.
            ((0.5, 20), (0.9, 20), False),
            ((0.5, 30), (0.9, 30), True),
            # 0.9 against 4 sqrt(0.09 / 1) = 1.2 of a single place.
            ((0.0, 1), (0.9, 20), False),
        ],
    )
    def test_four_errors(self, own: Any, later: Any, told: bool) -> None:
        assert self.told(own, later) is told

    def agreement(self, emitted: list[int], drafts: list[int]) -> Any:
        """Tokens from position 5 on, and one step of three drafts behind position 5."""
        n = len(emitted)
        held = Drawn(
            kind=KIND,
            tokens=made(Tokens, n, prompt=[0] * n, token=emitted, position=PROMPT + np.arange(n)),
            steps=None,
            groups=(),
        )
        return _agreement(held, made(Steps, 1, prompt=[0], place=[5], drafts=np.array([drafts])))

    def test_each_draft_beside_its_own_place(self) -> None:
        """1 2 9 beside 1 2 3; shifted beside 0 1 2 and 2 3 4."""
        assert self.agreement([0, 1, 2, 3, 4], [1, 2, 9]) == {
            -1: (0.0, 3),
            0: (2 / 3, 3),
            1: (0.0, 3),
        }

    def test_a_stream_that_ends_at_its_anchor(self) -> None:
        """Token 0 is a token: one place is known, that of the draft shifted by -1."""
        assert self.agreement([0], [0, 1, 2]) == {-1: (1.0, 1), 0: (0.0, 0), 1: (0.0, 0)}


def test_an_exact_kind_is_not_the_worst() -> None:
    """Sampled returns log p itself, the other 0.5 less."""
    other = {"p-0": drafted([1, 0])}
    other["p-0"]["logprob"] = other["p-0"]["logprob"] - 0.5
    found = speculative_logprob(
        pair(side({"sampled": {"p-0": plain([0, 1])}, KIND: other})), LEVELS
    )

    assert_measured(known(found.value), 0.5, atol=1e-9, rtol=0)


class TestNonfinite:
    def test_each_side_has_its_own_tokenizer(self) -> None:
        """Id 260 at T = 0: cand's tokenizer has 259 ids, ref's 265."""
        streams = all_stepped(fair(5, prompts=1))
        streams["p-0"]["tokens"][2] = 260
        wide = make_manifest().model.model_copy(update={"tokenizer_length": 265})
        ref = side({"spec-greedy": streams}, label="cuda", model=wide)
        found = speculative_nonfinite(pair(side({"spec-greedy": streams}), ref), LEVELS)

        assert found.value == 1.0
        assert found.breakdown == {"cand.spec-greedy.greedy_tokens_beyond_tokenizer": 1.0}
        assert found.pattern is None

    @pytest.mark.parametrize(
        ("name", "value", "count"),
        [
            ("edge", -0.5, 1),
            ("entropy", math.log(272), 0),
            # -log p is at most ln 272 where the entropy weighs it; the rest adds less than 1.
            ("variance", math.log(272) ** 2 + 1.0, 0),
            ("variance", math.log(272) ** 2 + 1.0 + 1e-6, 1),
        ],
    )
    def test_bounds_of_a_law_over_272_ids(self, name: str, value: float, count: int) -> None:
        streams = fair(5)
        streams["p-1"][name][3] = value
        ref = side({"sampled": fair(5)}, label="cuda")

        assert speculative_nonfinite(pair(side({"sampled": streams}), ref), LEVELS).value == count

    def test_a_place_beyond_one(self) -> None:
        """Chance 1/2 from 0.9 on."""
        streams = fair(5)
        streams["p-1"]["p"][3] = 0.5
        streams["p-1"]["falls"][3, :, 0] = (0.9, 0.5)
        ref = side({"sampled": fair(5)}, label="cuda")
        found = speculative_nonfinite(pair(side({"sampled": streams}), ref), LEVELS)

        assert found.breakdown == {"cand.sampled.falls": 1.0}

    def test_a_kind_without_drafts_hides_no_other(self) -> None:
        bad = drafted([1, 0, 1])
        bad["expected"][2] = 1.5
        cand = side({"sampled": fair(5, prompts=1), KIND: {"p-0": bad}})

        assert speculative_nonfinite(pair(cand), LEVELS).breakdown == {
            f"ref.{KIND}.expected": 1.0,
            f"cand.{KIND}.expected": 1.0,
        }

    def test_damage_in_a_block_of_two(self) -> None:
        bad = drafted([1, 0, 1])
        for name in ("drafts", "accepts", "expected", "drafted_p", "drafted_q", "confidence"):
            bad[name] = np.repeat(bad[name], 2, axis=1)
        bad["expected"][2, 1] = 1.5
        cand = side({KIND: {"p-0": bad}})

        assert f"1 of 6 values of {KIND}.expected" in str(damage(spec_side(pair(cand), cand)))
        assert "in verify step 2 of p-0" in str(damage(spec_side(pair(cand), cand)))


class TestReplay:
    def again(self, changes: dict[int, tuple[int, ...]], *, empty: int = 0) -> Measurement:
        """Prompts drawn again, with other ids at ``changes``; the first ones emitted nothing."""
        streams = fair(10, prompts=5)
        extra = {}
        for at in range(5):
            if at < empty:
                streams[f"p-{at}"] = {name: x[:0] for name, x in streams[f"p-{at}"].items()}
            ids = np.asarray(streams[f"p-{at}"]["tokens"]).copy()
            ids[list(changes.get(at, ()))] += 1
            extra[f"p-{at}"] = {f"spec.{KIND}.replay": ids}
        return speculative_replay(pair(side({KIND: all_stepped(streams)}, extra=extra)), LEVELS)

    def test_share_and_first_place(self) -> None:
        """Of p-2, p-3 and p-4 two part at token 3, one of them again at 7."""
        found = self.again({2: (3, 7), 3: (3,)}, empty=2)

        assert (found.n, found.value) == (3, 2 / 3)
        worst = known(found.worst)
        assert (worst.prompt, worst.position, worst.value) == ("p-2", PROMPT + 3, 3.0)

    def test_the_first_of_two_that_part_at_once(self) -> None:
        found = self.again({0: (0,), 1: (0,)})

        assert (found.n, found.value) == (5, 0.4)
        assert (known(found.worst).prompt, known(found.worst).value) == ("p-0", 0.0)


def odd_ones() -> dict[str, Any]:
    """Streams of ``fair`` with a token of chance 0 in p-0 and a nearly certain one in p-1."""
    streams = fair(60)
    streams["p-0"]["p"][30] = 0.0
    streams["p-0"]["falls"][30, :, 0] = (1.0, 0.0)
    streams["p-1"]["entropy"][30] = 0.01
    return streams


class TestSerial:
    def test_tokens_that_say_nothing_have_no_neighbours(self) -> None:
        """8 x 59 neighbours less four."""
        found = speculative_serial(pair(side({"sampled": odd_ones()})), LEVELS)

        expected = shift_of_z(0.4) / math.sqrt(468)
        assert_measured(known(found.detection).effect, expected, atol=0, rtol=1e-6)

    def test_coins_across_a_missing_step_are_no_pair(self) -> None:
        """Steps 0, 1 and 3 of two streams: one pair each."""
        held = made(
            Steps,
            6,
            prompt=[0, 0, 0, 1, 1, 1],
            step=[0, 1, 3, 0, 1, 3],
            place=[5, 6, 8, 5, 6, 8],
            accepts=np.zeros((6, 1), int),
            limit=np.ones(6, int),
            count=np.zeros(6, int),
            drafted_p=np.full((6, 1), 0.5),
            drafted_q=np.ones((6, 1)),
            label=[7, 7, 7, 8, 8, 8],
        )
        drawn = Drawn(kind=KIND, tokens=made(Tokens, 0), steps=held, groups=())

        assert _coins(SIDE, drawn)[1][1].n == 2


class TestSurprisal:
    def test_without_any_choice_nothing_is_seen(self) -> None:
        streams = fair(60)
        for stream in streams.values():
            stream["variance"] = np.zeros(60)
        found = speculative_surprisal(pair(side({"sampled": streams})), LEVELS)

        assert (found.value, found.breakdown) == (None, {})

    def test_little_variance_is_some(self) -> None:
        """480 tokens of variance 0.0016 each, 0.768 in all; surprisal off by 0.04 either way."""
        ids = np.arange(60) % 2
        entropy = math.log(2) + np.where(np.arange(60) < 30, 0.04, -0.04)
        falls = np.zeros((60, 2, 2, 2))
        falls[:, :, 0, 0], falls[:, :, 0, 1] = 0.5 * ids[:, None], 0.5
        falls[:, :, 1] = np.nan
        half = np.full(60, 0.5)
        stream = plain(
            ids, p=half, top=half, falls=falls, entropy=entropy, variance=np.full(60, 0.0016)
        )
        cand = side({"sampled": {f"p-{at}": stream for at in range(8)}})
        found = speculative_surprisal(pair(cand), LEVELS)

        assert found.n == 480
        expected = shift_of_z(0.6) / math.sqrt(0.768)
        assert_measured(known(found.detection).effect, expected, atol=0, rtol=1e-6)
        assert_measured(found.breakdown["sampled.inverse_temperature"], 1.0, atol=1e-9, rtol=0)

    def test_the_third_moment_is_that_of_what_was_drawn(self) -> None:
        """Three of four ids 0: z is 0, and p is 2 Phi(-|g| / 6) with g the skewness of the sum."""
        held = made(
            Tokens,
            400,
            p=np.where(np.arange(400) % 4 == 3, 0.25, 0.75),
            entropy=np.full(400, ENTROPY),
            variance=np.full(400, VARIANCE),
        )
        likely, rare = math.log(0.75) + ENTROPY, math.log(0.25) + ENTROPY
        skew = (300 * likely**3 + 100 * rare**3) / (400 * VARIANCE) ** 1.5

        _, test = _one(held, "sampled")

        assert_measured(skew, -0.0577, atol=1e-4, rtol=0)
        expected = 2 * NormalDist().cdf(-abs(skew) / 6)
        assert_measured(known(test.p_value), expected, atol=1e-9, rtol=0)


class TestUniform:
    def test_two_kinds_share_the_level(self) -> None:
        """Tokens of top 3/4: sqrt(2) sin(3 pi / 4) / (3 pi / 4) = 1 / (3 pi / 4) each.

        The drafted kind sees less: half of its pooled share goes to tests in the order of q / p.
        """
        two = pair(side({"sampled": fair(60), KIND: all_stepped(fair(60, seed=4))}))
        found = speculative_uniform(two, LEVELS)

        shift = cvm_shift_needed(alpha=0.001 * 0.5 * 0.6 * 0.5, power=0.95)
        expected = shift * 0.75 * math.pi / math.sqrt(480)
        assert_measured(known(found.detection).effect, expected, atol=0, rtol=1e-9)

    def test_little_information_is_some(self) -> None:
        """Law (0.99, 0.01): sqrt(480) x sqrt(2) sin(0.99 pi) / (0.99 pi) = 0.313."""
        falls = np.full((60, 2, 2, 2), np.nan)
        falls[:, :, 0] = (0.0, 0.99)
        high = np.full(60, 0.99)
        stream = plain(np.zeros(60, int), p=high, top=high, falls=falls, entropy=np.full(60, 0.056))
        cand = side({"sampled": {f"p-{at}": stream for at in range(8)}})
        found = speculative_uniform(pair(cand), LEVELS)

        scale = math.sqrt(960) * math.sin(0.99 * math.pi) / (0.99 * math.pi)
        assert_measured(scale, 0.313, atol=1e-3, rtol=0)
        expected = cvm_shift_needed(alpha=0.001 * 0.6, power=0.95) / scale
        assert_measured(known(found.detection).effect, expected, atol=0, rtol=1e-9)

    def test_tokens_that_say_nothing_are_left_out(self) -> None:
        found = speculative_uniform(pair(side({"sampled": odd_ones()})), LEVELS)

        assert found.breakdown["sampled.tokens"] == 478.0

    def test_certain_tokens_alone(self) -> None:
        streams = fair(60)
        for stream in streams.values():
            stream["entropy"] = np.zeros(60)
        found = speculative_uniform(pair(side({"sampled": streams})), LEVELS)

        assert (found.value, found.breakdown) == (None, {"sampled.tokens": 0.0})

    @pytest.mark.parametrize(("n", "told"), [(19, False), (20, True)])
    def test_twenty_argmaxes_are_greedy(self, n: int, told: bool) -> None:
        held = made(Tokens, n, p=np.full(n, 0.5), entropy=np.ones(n), falls=np.zeros((n, 2, 2, 2)))
        measured = speculative_uniform(pair(side({"sampled": fair(60)})), LEVELS)

        found = _told(measured, [Drawn(kind="sampled", tokens=held, steps=None, groups=())])

        assert str(found.pattern).startswith("sampling is greedy") is told


def test_the_largest_difference_by_row_of_the_window() -> None:
    """First token, rows 0 and 1 of step 0, row 0 of step 1; ln 2 in row 1 alone."""
    forced = np.zeros((4, 2), np.float32)
    verify = forced.copy()
    verify[2, 0] = math.log(3.0)
    extra = {f"spec.{KIND}.verify.logits": verify, f"spec.{KIND}.forced.logits": forced}
    cand = side({KIND: {"p-0": drafted([1, 0])}}, extra={"p-0": extra}, model=TWO_IDS)
    found = speculative_verify_logprob(pair(cand), LEVELS)

    assert found.breakdown["row_0"] == 0.0
    assert_measured(found.breakdown["row_1"], math.log(2.0), atol=1e-6, rtol=0)
