"""Tests of significance on drawn streams: hand-made laws, refusals, words and powers."""

import math

import numpy as np
import pytest

from tests.measured import assert_measured
from tests.unit.metrics.spec_made import ENTROPY, VARIANCE, drafted, fair, pair, plain, side
from validate.metrics.speculative_acceptance_z import speculative_acceptance_z
from validate.metrics.speculative_serial import speculative_serial
from validate.metrics.speculative_surprisal import speculative_surprisal
from validate.metrics.speculative_uniform import speculative_uniform
from validate.schema import Levels

LEVELS = Levels(low=0.999, high=0.95)
LAWS = (speculative_uniform, speculative_surprisal, speculative_serial)


def greedy(count: int = 60, prompts: int = 8):
    return {f"p-{at}": plain([0] * count) for at in range(prompts)}


def steps(accepts: float, *, n: int = 60, prompts: int = 8, expected: float = 0.5, seed: int = 5):
    rng = np.random.default_rng(seed)
    return {
        f"p-{at}": drafted((rng.random(n) < accepts).astype(int), expected=expected)
        for at in range(prompts)
    }


class TestUniform:
    def test_right_draws_are_not_rejected(self):
        found = speculative_uniform(pair(side({"sampled": fair(60)})), LEVELS)

        assert found.value is not None
        assert found.value > 0.05
        assert (found.n, found.n_of) == (480, "sampled tokens (sampled)")
        assert found.breakdown["sampled.tokens"] == 480.0

    def test_argmax_in_every_draw_is_told_in_words(self):
        found = speculative_uniform(pair(side({"sampled": greedy()})), LEVELS)

        assert found.value is not None
        assert found.value < 1e-9
        assert found.pattern is not None
        assert found.pattern.startswith("sampling is greedy: every token at T > 0 is the argmax")
        assert found.breakdown["sampled.argmax_share"] == 1.0

    def test_the_token_behind_the_prompt_is_not_the_verifiers(self):
        """It is drawn before anything is drafted, and may be any."""
        streams = {f"p-{at}": drafted([0] * 59) for at in range(8)}
        for tensors in streams.values():
            other = plain([1])
            for name in ("tokens", "falls", "p", "logprob"):
                tensors[name][0] = other[name][0]

        found = speculative_uniform(pair(side({"spec-sampled": streams})), LEVELS)

        assert found.pattern is not None
        assert found.pattern == (
            "sampling is greedy: every token at T > 0 is the argmax "
            "(spec-sampled, 472 tokens that could have been others)"
        )

    def test_one_token_that_is_not_the_argmax_is_not_called_greedy(self):
        streams = greedy()
        streams["p-0"] = plain([1] + [0] * 59)

        found = speculative_uniform(pair(side({"sampled": streams})), LEVELS)

        assert found.value is not None
        assert found.value < 1e-6
        assert "greedy" not in (found.pattern or "")

    def test_detection_follows_the_first_component(self):
        """Share e moves the mean of sqrt(2) cos(pi U) by e sqrt(2) sin(0.75 pi) / (0.75 pi) = 0.4244 e.

        Of 480 tokens, 360 are the argmax where draws are exact, so that the estimate is exact too.
        At level 0.001 x 0.6 and power 95 % the shift needed is about 5.08.
        """
        ids = np.tile([0, 0, 0, 1], 120).reshape(8, 60)
        streams = {f"p-{at}": plain(row) for at, row in enumerate(ids)}

        found = speculative_uniform(pair(side({"sampled": streams})), LEVELS)

        assert found.detection is not None
        assert_measured(
            found.detection.effect, 5.08 / (0.4244 * math.sqrt(480)), atol=0, rtol=0.005
        )
        assert_measured(found.detection.alpha, 0.001, atol=0, rtol=1e-9)
        assert found.detection.power == 0.95

    def test_power_comes_from_ref_where_it_has_streams(self):
        """sqrt(2) sin(pi p) / (pi p) is 0.4244 at 3/4 and 0.9003 at 1/2."""
        flat = {f"p-{at}": plain([0, 1] * 30, top=np.full(60, 0.5)) for at in range(8)}
        alone = speculative_uniform(pair(side({"sampled": greedy()})), LEVELS)
        beside = speculative_uniform(
            pair(side({"sampled": greedy()}), side({"sampled": flat}, label="cuda")), LEVELS
        )

        assert alone.detection is not None
        assert beside.detection is not None
        assert_measured(beside.detection.effect / alone.detection.effect, 0.4714, atol=0, rtol=1e-4)

    def test_certain_tokens_tell_nothing(self):
        sure = {
            f"p-{at}": plain([0] * 60, entropy=np.zeros(60), variance=np.zeros(60))
            for at in range(8)
        }

        found = speculative_uniform(pair(side({"sampled": sure})), LEVELS)

        assert found.value is None
        assert (found.why_undefined or "").startswith("too few units for any of its tests: 480 ")
        assert found.n == 480

    def test_the_kind_that_sees_least_tells_the_power(self):
        streams = {f"p-{at}": drafted([0] * 59) for at in range(3)}
        made = {"sampled": fair(60), "spec-sampled": streams}

        found = speculative_uniform(pair(side(made)), LEVELS)

        assert (found.n, found.n_of) == (180, "sampled tokens (spec-sampled)")

    def test_rows_whose_token_is_certain_claim_no_power(self):
        sure = plain([0] * 60, p=np.ones(60), top=np.ones(60), logprob=np.zeros(60))
        sure["falls"][:, :, 0] = [0.0, 1.0]
        streams = {f"p-{at}": sure for at in range(8)}

        found = speculative_uniform(pair(side({"sampled": streams})), LEVELS)

        assert found.detection is not None
        assert found.detection.effect > 1e6

    def test_a_kind_of_certain_tokens_alone_claims_no_power(self):
        sure = steps(0.5)
        for tensors in sure.values():
            tensors["entropy"] = 0.0 * tensors["entropy"]

        found = speculative_uniform(pair(side({"sampled": fair(60), "spec-sampled": sure})), LEVELS)

        assert found.detection is not None
        assert found.detection.effect == math.inf
        assert found.n_of == "sampled tokens (spec-sampled)"

    def test_greedy_requests_are_left_out(self):
        found = speculative_uniform(pair(side({"sampled": greedy()}, temperature=0.0)), LEVELS)

        assert found.value is None

    def test_one_stratum_alone_is_found(self):
        """All argmax in the first quarter of depth, the rest of the ids moved so that the whole is right."""
        streams = {f"p-{at}": plain([0] * 15 + [0, 0, 1] * 15) for at in range(24)}

        found = speculative_uniform(pair(side({"sampled": streams})), LEVELS)

        assert found.value is not None
        assert found.value < 0.001
        assert "depth" in (found.worst.place if found.worst and found.worst.place else "")

    def test_outcomes_are_judged_by_their_own_law(self):
        """Accepted tokens under q = (1, 0): the law of the accepted is (1, 0), so id 0 is no news."""
        streams = steps(0.5)
        for tensors in streams.values():
            held = tensors["outcome"] == 1
            tensors["falls"][held, 1, :, :] = [0.0, 1.0]
            tensors["entropy"] = np.where(held, ENTROPY, 0.0)

        found = speculative_uniform(pair(side({"spec-sampled": streams})), LEVELS)

        names = found.worst.place if found.worst else ""
        assert found.value is not None
        assert found.value < 1e-6
        assert names == "spec-sampled, p falling"


class TestSurprisal:
    def test_z_by_hand(self):
        """log p + H is ln(3)/4 for id 0 and -3 ln(3)/4 for id 1; all 480 tokens are id 0."""
        found = speculative_surprisal(pair(side({"sampled": greedy()})), LEVELS)

        z = 480 * math.log(3.0) / 4 / math.sqrt(480 * VARIANCE)
        assert_measured(found.breakdown["sampled.z"], z, atol=0, rtol=1e-9)
        assert_measured(
            found.breakdown["sampled.inverse_temperature"],
            1 + z / math.sqrt(480 * VARIANCE),
            atol=0,
            rtol=1e-9,
        )
        assert found.pattern is not None
        assert found.pattern.startswith("tokens are too probable, as at a lower temperature")

    def test_too_surprising(self):
        streams = fair(60, zeros=0.4)

        found = speculative_surprisal(pair(side({"sampled": streams})), LEVELS)

        assert found.value is not None
        assert found.value < 1e-9
        assert "as at a higher temperature" in (found.pattern or "")

    def test_right_draws_are_not_rejected(self):
        found = speculative_surprisal(pair(side({"sampled": fair(60)})), LEVELS)

        assert found.value is not None
        assert found.value > 0.05

    def test_detection_by_hand(self):
        """(z at 1 - 0.0006 / 2 plus z at 0.95) / sqrt(480 Var) = (3.432 + 1.645) / sqrt(480 Var)."""
        found = speculative_surprisal(pair(side({"sampled": fair(60)})), LEVELS)

        assert found.detection is not None
        assert_measured(
            found.detection.effect, 5.077 / math.sqrt(480 * VARIANCE), atol=0, rtol=1e-3
        )


class TestSerial:
    def test_right_draws_are_not_rejected(self):
        found = speculative_serial(pair(side({"sampled": fair(60)})), LEVELS)

        assert found.value is not None
        assert found.value > 0.05

    @pytest.mark.parametrize(
        "ids", [[[0, 1, 1, 1] * 15] * 8, [[at % 2] * 60 for at in range(8)]], ids=["seed", "number"]
    )
    def test_shared_numbers_are_found(self, ids):
        """One seed for all streams; one number for all tokens of a stream."""
        streams = {f"p-{at}": plain(row) for at, row in enumerate(ids)}

        found = speculative_serial(pair(side({"sampled": streams})), LEVELS)

        assert found.value is not None
        assert found.value < 1e-3

    def test_shared_numbers_are_found_where_neighbours_say_nothing(self):
        one = fair(60, prompts=1)["p-0"]["tokens"]
        streams = {f"p-{at}": plain(one) for at in range(24)}

        found = speculative_serial(pair(side({"sampled": streams})), LEVELS)

        assert found.value is not None
        assert found.value < 1e-12
        assert found.worst is not None
        assert (found.worst.place or "").startswith("sampled, streams at one")

    def test_detection_by_hand(self):
        """Level 0.001 x 0.4: (3.540 + 1.645) / sqrt(8 x 59 pairs)."""
        found = speculative_serial(pair(side({"sampled": fair(60)})), LEVELS)

        assert found.detection is not None
        assert_measured(found.detection.effect, 5.185 / math.sqrt(472), atol=0, rtol=1e-3)


class TestAcceptance:
    def test_z_by_hand(self):
        """480 drafts expected at one half, all accepted: z = 240 / sqrt(120)."""
        streams = {f"p-{at}": drafted([1] * 60) for at in range(8)}

        found = speculative_acceptance_z(pair(side({"spec-sampled": streams})), LEVELS)

        assert found.value is not None
        assert found.value < 1e-30
        assert found.n == 480
        assert (found.pattern or "").startswith("more drafts are accepted than their law expects")
        assert found.breakdown["cand.spec-sampled.accepted_per_step"] == 1.0
        assert found.breakdown["cand.spec-sampled.tokens_per_forward"] == 2.0
        assert_measured(
            found.breakdown["cand.spec-sampled.confidence_minus_acceptance"], 0.1, atol=1e-9, rtol=0
        )

    def test_too_few(self):
        found = speculative_acceptance_z(pair(side({"spec-sampled": steps(0.3)})), LEVELS)

        assert found.value is not None
        assert found.value < 1e-6
        assert (found.pattern or "").startswith("fewer drafts")

    def test_a_right_coin_is_not_rejected(self):
        streams = steps(0.75, expected=0.75)

        found = speculative_acceptance_z(pair(side({"spec-sampled": streams})), LEVELS)

        assert found.value is not None
        assert found.value > 0.05

    def test_detection_by_hand(self):
        """Level 0.001 x 0.99 x 0.5: (3.483 + 1.645) sqrt(480 / 4) / 480."""
        found = speculative_acceptance_z(pair(side({"spec-sampled": steps(0.5)})), LEVELS)

        assert found.detection is not None
        assert_measured(found.detection.effect, 5.128 * math.sqrt(120) / 480, atol=0, rtol=1e-3)

    @pytest.mark.parametrize(("accepts", "expected"), [(1, 0.0), (0, 1.0)])
    def test_what_cannot_be_has_p_0_even_when_greedy(self, accepts, expected):
        streams = {f"p-{at}": drafted([accepts] * 30, expected=float(accepts)) for at in range(4)}
        streams["p-0"]["expected"][3] = expected

        found = speculative_acceptance_z(pair(side({"spec-greedy": streams})), LEVELS)

        assert found.value == 0.0
        assert "against their law" in (found.pattern or "")

    def test_a_cut_draft_is_no_rejection(self):
        streams = {f"p-{at}": drafted([0] * 60) for at in range(8)}
        for tensors in streams.values():
            tensors["limit"] = np.zeros(60, np.int64)
            tensors["outcome"] = np.where(tensors["step"] >= 0, 3, 0)  # nothing was verified

        found = speculative_acceptance_z(pair(side({"spec-sampled": streams})), LEVELS)

        assert found.value is None

    def test_without_draft_probabilities_it_says_so(self):
        streams = steps(0.5)
        for tensors in streams.values():
            tensors["expected"] = tensors["expected"] * np.nan

        found = speculative_acceptance_z(pair(side({"spec-sampled": streams})), LEVELS)

        assert found.why_undefined == (
            "rocm holds no draft probabilities; only emitted tokens are tested, by "
            "speculative.uniform, surprisal, serial and support: capture p and q of every draft"
        )

    def test_without_drafts_it_says_so(self):
        found = speculative_acceptance_z(pair(side({"sampled": fair(60)})), LEVELS)

        assert found.why_undefined == "rocm holds no verify steps: nothing was drafted"


ALL = (*LAWS, speculative_acceptance_z)


class TestRefusals:
    @pytest.mark.parametrize("metric", ALL)
    def test_no_streams(self, metric):
        found = metric(pair(side({"sampled": {}}, extra={})), LEVELS)

        assert found.value is None
        assert found.undefined_kind == "no_data"
        assert "capture prompts tagged 'speculative'" in (found.why_undefined or "")

    @pytest.mark.parametrize("metric", ALL)
    def test_equal_seeds(self, metric):
        streams = steps(0.5, prompts=2)
        cand = side({"spec-sampled": streams}, seeds={"p-0": 7, "p-1": 7})

        found = metric(pair(cand), LEVELS)

        assert found.undefined_kind == "unlike"
        assert found.why_undefined == (
            "rocm: prompts p-0 and p-1 share the seed 7 (spec-sampled); samples must be "
            "independent, so give each its own"
        )

    @pytest.mark.parametrize("metric", ALL)
    def test_stripped_stop_token(self, metric):
        found = metric(pair(side({"spec-sampled": steps(0.5)}, finish="stop")), LEVELS)

        assert found.undefined_kind == "unlike"
        assert "its stop token is not there" in (found.why_undefined or "")

    @pytest.mark.parametrize("metric", ALL)
    def test_dropped_position(self, metric):
        streams = steps(0.5)
        names = ("tokens", "outcome", "row", "step", "logprob", "p", "q", "falls", "entropy")
        for name in (*names, "variance", "edge", "top"):
            streams["p-0"][name] = np.delete(streams["p-0"][name], 4, axis=0)

        found = metric(pair(side({"spec-sampled": streams})), LEVELS)

        assert found.undefined_kind == "unlike"
        assert "a position was dropped because of what was emitted" in (found.why_undefined or "")

    @pytest.mark.parametrize("metric", ALL)
    @pytest.mark.parametrize(
        ("name", "value"),
        [
            ("SGLANG_SIMULATE_ACC_LEN", "3"),
            ("ATOM_ENABLE_RELAXED_MTP", "1"),
            ("--spec-decode-acceptance-length", "2.5"),
            ("speculative-accept-threshold-single", "0.9"),
        ],
    )
    def test_acceptance_made_up(self, metric, name, value):
        found = metric(pair(side({"spec-sampled": steps(0.5)}, options={name: value})), LEVELS)

        assert found.undefined_kind == "unlike"
        assert f"rocm ran with {name} = {value}" in (found.why_undefined or "")

    def test_settings_that_are_off_do_not_refuse(self):
        options = {"SGLANG_SIMULATE_ACC_LEN": "0", "speculative-accept-threshold-acc": "1.0"}

        found = speculative_uniform(
            pair(side({"spec-sampled": steps(0.5)}, options=options)), LEVELS
        )

        assert found.why_undefined is None
