"""Counts, bounds and paired differences of drawn streams, on hand-made numbers."""

import numpy as np
import pytest

from tests.fakes import make_stream
from tests.measured import assert_measured
from tests.unit.metrics.spec_made import PROMPT, TWO_IDS, drafted, fair, pair, plain, side
from validate.metrics.speculative_acceptance_delta import speculative_acceptance_delta
from validate.metrics.speculative_audit import speculative_audit
from validate.metrics.speculative_greedy_unexplained import speculative_greedy_unexplained
from validate.metrics.speculative_health import speculative_health
from validate.metrics.speculative_logprob import speculative_logprob
from validate.metrics.speculative_nonfinite import speculative_nonfinite
from validate.metrics.speculative_replay import speculative_replay
from validate.metrics.speculative_support import speculative_support
from validate.metrics.speculative_verify_kl import speculative_verify_kl
from validate.metrics.speculative_verify_logprob import speculative_verify_logprob
from validate.schema import Levels

LEVELS = Levels(low=0.999, high=0.95)
KIND = "spec-sampled"
ALL = (
    speculative_acceptance_delta,
    speculative_audit,
    speculative_greedy_unexplained,
    speculative_health,
    speculative_logprob,
    speculative_nonfinite,
    speculative_replay,
    speculative_support,
    speculative_verify_kl,
    speculative_verify_logprob,
)


def spec(accepts=(1, 0) * 15, prompts: int = 4, **changes):
    return {f"p-{at}": drafted(accepts, **changes) for at in range(prompts)}


@pytest.mark.parametrize("metric", ALL)
def test_nothing_to_measure_is_undefined(metric):
    found = metric(pair(side({"sampled": {}})), LEVELS)

    assert found.value is None
    assert found.undefined_kind == "no_data"


@pytest.mark.parametrize("metric", [m for m in ALL if m is not speculative_nonfinite])
def test_made_up_acceptance_is_refused(metric):
    cand = side({KIND: spec()}, options={"simulate_acc_len": "3"})

    found = metric(pair(cand), LEVELS)

    assert found.undefined_kind == "unlike"


class TestNonfinite:
    def test_clean(self):
        found = speculative_nonfinite(pair(side({KIND: spec(), "sampled": fair(5)})), LEVELS)

        assert found.value == 0.0
        assert found.worst is None

    @pytest.mark.parametrize(
        ("name", "value"),
        [
            ("p", np.nan),
            ("p", 1.1),
            ("p", -0.1),
            ("entropy", np.nan),
            ("variance", -0.1),
            ("logprob", 0.5),
            ("logprob", -np.inf),
            ("falls", np.nan),
        ],
    )
    def test_one_bad_value_of_a_token(self, name, value):
        streams = fair(5)
        streams["p-1"][name][3] = value

        found = speculative_nonfinite(pair(side({"sampled": streams})), LEVELS)

        assert found.value == 2.0  # ref is the same capture
        assert found.breakdown == {f"ref.sampled.{name}": 1.0, f"cand.sampled.{name}": 1.0}

    @pytest.mark.parametrize(
        ("name", "value"),
        [
            ("expected", np.nan),
            ("drafted_q", 1.5),
            ("drafted_p", np.nan),
            ("confidence", -1.0),
            ("drafts", 272),
            ("drafts", -1),
        ],
    )
    def test_one_bad_value_of_a_step(self, name, value):
        streams = spec()
        streams["p-1"][name][3, 0] = value

        found = speculative_nonfinite(
            pair(side({KIND: streams}), side({KIND: spec()}, label="cuda")), LEVELS
        )

        assert found.breakdown == {f"cand.{KIND}.{name}": 1.0}

    def test_q_of_a_judged_draft_must_be_there(self):
        streams = spec()
        streams["p-0"]["q"][:] = np.nan

        found = speculative_nonfinite(
            pair(side({KIND: streams}), side({KIND: spec()}, label="cuda")), LEVELS
        )

        assert found.breakdown == {f"cand.{KIND}.q": 30.0}

    def test_an_id_beyond_the_vocabulary(self):
        streams = fair(5)
        streams["p-0"]["tokens"][0] = 272

        found = speculative_nonfinite(pair(side({"sampled": streams})), LEVELS)

        assert found.breakdown["cand.sampled.tokens"] == 1.0


class TestSupport:
    def test_clean(self):
        found = speculative_support(pair(side({"sampled": fair(5)})), LEVELS)

        assert (found.value, found.n) == (0.0, 40)

    @pytest.mark.parametrize(
        ("edge", "temperature", "value", "inside"),
        [(0.3, 1.0, 0.0, 1.0), (0.6, 1.0, 1.0, 0.0), (0.6, 0.5, 0.0, 1.0), (np.nan, 1.0, 1.0, 0.0)],
    )
    def test_outside_by_more_than_the_band(self, edge, temperature, value, inside):
        """The band is 0.5 nats of plain logits, 1 nat at temperature 0.5."""
        streams = fair(5)
        streams["p-2"]["edge"][1], streams["p-2"]["p"][1] = edge, 0.0

        found = speculative_support(
            pair(side({"sampled": streams}, temperature=temperature), near_tie=0.5), LEVELS
        )

        assert found.value == value
        assert found.breakdown["sampled.inside_band"] == inside
        if value:
            assert found.worst is not None
            assert (found.worst.prompt, found.worst.position) == ("p-2", PROMPT + 1)

    def test_a_tie_at_the_edge_is_no_violation(self):
        streams = fair(5)
        streams["p-2"]["p"][1], streams["p-2"]["falls"][1, :, :, 1] = 0.0, 0.0

        found = speculative_support(pair(side({"sampled": streams})), LEVELS)

        assert found.value == 0.0
        assert found.breakdown["sampled.inside_band"] == 1.0

    @pytest.mark.parametrize("mass", [0.0, np.nan])
    def test_an_outcome_that_cannot_be(self, mass):
        streams = spec()
        at = int(np.flatnonzero(streams["p-0"]["outcome"] == 2)[0])
        streams["p-0"]["falls"][at, 1, :, 1] = mass

        found = speculative_support(pair(side({KIND: streams})), LEVELS)

        assert found.value == 1.0
        assert found.breakdown[f"{KIND}.against_outcome"] == 1.0
        assert found.worst is not None
        assert "resampled" in (found.worst.place or "")

    def test_unknown_draft_probabilities_are_no_violation(self):
        streams = spec()
        for tensors in streams.values():
            held = np.isfinite(tensors["q"])
            tensors["falls"][held, 1] = np.nan
            tensors["q"][:] = np.nan

        assert speculative_support(pair(side({KIND: streams})), LEVELS).value == 0.0


class TestAcceptanceDelta:
    @pytest.mark.parametrize(
        ("own", "pattern"), [(0.4, "lower than ref"), (0.6, "higher than ref")]
    )
    def test_by_hand(self, own, pattern):
        ref = side({KIND: spec(expected=0.5)}, label="cuda")

        found = speculative_acceptance_delta(pair(side({KIND: spec(expected=own)}), ref), LEVELS)

        assert_measured(found.value, 0.1, atol=1e-12, rtol=0)
        assert (found.n, found.n_of, found.pattern) == (4, "prompts", pattern)
        assert_measured(found.breakdown["signed"], own - 0.5, atol=1e-12, rtol=0)
        assert_measured(found.breakdown["draft_1"], own - 0.5, atol=1e-12, rtol=0)

    def test_itself_is_exactly_zero(self):
        found = speculative_acceptance_delta(pair(side({KIND: spec(prompts=16)})), LEVELS)

        assert found.value == 0.0
        assert found.interval is not None
        assert (found.interval.low, found.interval.high) == (0.0, 0.0)

    def test_prompts_weigh_alike(self):
        """Of three prompts one of 40 steps is off by 0.2; the median prompt by 0.1, the mean is 0.1."""
        ref = {"p-0": drafted([1] * 40), "p-1": drafted([1] * 10), "p-2": drafted([1] * 10)}
        cand = {
            "p-0": drafted([1] * 40, expected=0.7),
            "p-1": drafted([1] * 10, expected=0.6),
            "p-2": drafted([1] * 10),
        }

        found = speculative_acceptance_delta(
            pair(side({KIND: cand}), side({KIND: ref}, label="cuda")), LEVELS
        )

        assert_measured(found.value, 0.1, atol=1e-12, rtol=0)
        assert_measured(found.breakdown["mean"], 0.1, atol=1e-12, rtol=0)
        assert found.n_needed == 5
        assert found.worst is not None
        assert (found.worst.prompt, found.worst.detail) == (
            "p-0",
            "batch row 0 differs most: +0.2000",
        )

    def test_one_odd_prompt_moves_no_median(self):
        cand = spec(prompts=5)
        cand["p-0"] = drafted((1, 0) * 15, expected=1.0)

        found = speculative_acceptance_delta(
            pair(side({KIND: cand}), side({KIND: spec(prompts=5)}, label="cuda")), LEVELS
        )

        assert found.value == 0.0
        assert_measured(found.breakdown["mean"], 0.1, atol=1e-12, rtol=0)
        assert found.interval is not None
        assert found.interval.high == 0.5

    def test_steps_behind_other_tokens_are_not_compared(self):
        cand = spec(accepts=[1] * 10)
        for tensors in cand.values():
            tensors["tokens"][4:] = 1
            tensors["expected"] = np.linspace(0.5, 1.0, 10)[:, None]
        ref = side({KIND: spec(accepts=[1] * 10)}, label="cuda")

        found = speculative_acceptance_delta(pair(side({KIND: cand}), ref), LEVELS)

        assert_measured(found.value, 0.5 / 9 / 2, atol=1e-12, rtol=0)  # steps 0 and 1

    def test_other_verifiers_are_compared_by_chain_acceptance(self):
        """min(1, 0.75 / 1) on both sides, whatever they expect."""
        ref = side({KIND: spec(expected=0.75)}, label="cuda")
        cand = side({KIND: spec(expected=0.3)}, options={"verifier": "exact_match"})

        assert speculative_acceptance_delta(pair(cand, ref), LEVELS).value == 0.0

    def test_other_proposals_are_unlike(self):
        ref = side({KIND: spec()}, label="cuda", options={"draft": "on"})
        cand = side({KIND: spec()}, options={"draft": "onehot"})

        found = speculative_acceptance_delta(pair(cand, ref), LEVELS)

        assert found.undefined_kind == "unlike"
        assert "capture ref with cand's proposal" in (found.why_undefined or "")


def with_rows(verify, forced, *, tokens=None, logprob=None):
    """A side whose prompt p-0 holds verify and forced rows for its four tokens."""
    streams = spec(accepts=(1, 0), prompts=1)
    if logprob is not None:
        streams["p-0"]["logprob"] = np.resize(logprob, len(streams["p-0"]["tokens"]))
    extra = {
        "p-0": {
            f"spec.{KIND}.verify.logits": np.asarray(verify, np.float32),
            f"spec.{KIND}.forced.logits": np.asarray(forced, np.float32),
        }
    }
    return side({KIND: streams}, extra=extra, temperature=0.7, model=TWO_IDS)


EVEN, SKEW = [0.0, 0.0], [np.log(3.0), 0.0]


class TestVerifyRows:
    def test_kl_by_hand(self):
        """Rows 0, 0, 1, 0 of the window; KL((1/2, 1/2) || (3/4, 1/4)) = ln(2 / sqrt(3)) in row 1."""
        found = speculative_verify_kl(pair(with_rows([EVEN, EVEN, SKEW, EVEN], [EVEN] * 4)), LEVELS)

        assert_measured(found.value, np.log(2 / np.sqrt(3)), atol=1e-7, rtol=0)
        assert found.breakdown["row_0"] == 0.0
        assert found.worst is not None
        assert (found.worst.prompt, found.worst.position, found.worst.place) == (
            "p-0",
            PROMPT + 2,
            "row 1 of the verify window",
        )

    def test_kl_is_a_mean_by_row_index(self):
        found = speculative_verify_kl(pair(with_rows([SKEW, EVEN, EVEN, EVEN], [EVEN] * 4)), LEVELS)

        assert_measured(found.value, np.log(2 / np.sqrt(3)) / 3, atol=1e-7, rtol=0)

    def test_logprob_by_hand(self):
        """ln(1/2) - ln(1/4) = ln 2 is the largest of two differences."""
        found = speculative_verify_logprob(
            pair(with_rows([EVEN, EVEN, SKEW, EVEN], [EVEN] * 4)), LEVELS
        )

        assert_measured(found.value, np.log(2.0), atol=1e-7, rtol=0)
        assert found.n == 4

    def test_unlikely_ids_do_not_count(self):
        rare = [0.0, -20.0]

        found = speculative_verify_logprob(pair(with_rows([[0.0, -10.0]] * 4, [rare] * 4)), LEVELS)

        assert_measured(found.value, 4.54e-5, atol=1e-6, rtol=0)

    @pytest.mark.parametrize("metric", [speculative_verify_kl, speculative_verify_logprob])
    def test_nan_is_measured_as_nan(self, metric):
        found = metric(pair(with_rows([EVEN, EVEN, [np.nan, 0.0], EVEN], [EVEN] * 4)), LEVELS)

        assert found.value is not None
        assert np.isnan(found.value)

    def test_rows_that_do_not_belong_together(self):
        found = speculative_verify_kl(pair(with_rows([EVEN] * 3, [EVEN] * 4)), LEVELS)

        assert found.undefined_kind == "unlike"


class TestLogprob:
    def test_against_the_forced_pass(self):
        """Returned ln(1/2) - 0.25 where the forced pass says ln(1/2)."""
        found = speculative_logprob(
            pair(with_rows([EVEN] * 4, [EVEN] * 4, logprob=np.log(0.5) - 0.25)), LEVELS
        )

        assert_measured(found.value, 0.25, atol=1e-6, rtol=0)
        assert found.n == 4

    def test_constant_values_are_named(self):
        streams = {f"p-{at}": plain([0, 1] * 20, logprob=np.zeros(40)) for at in range(2)}

        found = speculative_logprob(pair(side({"sampled": streams})), LEVELS)

        assert_measured(found.value, np.log(4.0), atol=1e-9, rtol=0)
        assert found.pattern == "sampled: every returned log-probability is 0"

    def test_own_rows_at_temperature_1(self):
        found = speculative_logprob(pair(side({"sampled": fair(5)})), LEVELS)

        assert (found.value, found.n, found.pattern) == (0.0, 40, None)

    def test_other_temperatures_say_nothing(self):
        found = speculative_logprob(pair(side({"sampled": fair(5)}, temperature=0.7)), LEVELS)

        assert found.value is None


class TestAudit:
    def test_worst_and_by_accepted_count(self):
        audit = np.array([[0.01, 0.02], [0.0, 0.5], [0.03, 0.0], [0.01, 0.01]], np.float32)
        cand = side(
            {KIND: spec(accepts=(1, 0, 1, 1), prompts=1)},
            extra={"p-0": {f"spec.{KIND}.audit": audit}},
        )

        found = speculative_audit(pair(cand), LEVELS)

        assert (found.value, found.n) == (0.5, 4)
        assert found.worst is not None
        assert (found.worst.place, found.worst.position) == (
            "state 1 after 0 accepted drafts",
            PROMPT + 2,
        )
        assert_measured(found.breakdown["accepted_1"], 0.03, atol=1e-8, rtol=0)
        assert found.pattern == "largest after 0 accepted drafts (mean 0.5)"

    def test_nan_is_measured_as_nan(self):
        audit = np.array([[0.01, np.nan], [0.1, 0.2]], np.float32)
        cand = side(
            {KIND: spec(accepts=(1, 0), prompts=1)},
            extra={"p-0": {f"spec.{KIND}.audit": audit}},
        )

        found = speculative_audit(pair(cand), LEVELS)

        assert found.value is not None
        assert np.isnan(found.value)

    def test_one_row_a_step(self):
        cand = side(
            {KIND: spec(accepts=(1, 0), prompts=1)},
            extra={"p-0": {f"spec.{KIND}.audit": np.zeros((3, 2), np.float32)}},
        )

        assert speculative_audit(pair(cand), LEVELS).undefined_kind == "unlike"


class TestHealth:
    def varied(self, **changes):
        made = drafted((1, 0) * 15, **changes)
        made["drafts"] = made["drafts"].copy()
        return made

    def test_healthy(self):
        streams = {"p-0": self.varied()}
        streams["p-0"]["drafts"][1::2] = 1

        found = speculative_health(pair(side({KIND: streams})), LEVELS)

        assert (found.value, found.n, found.pattern) == (0.0, 30, None)

    def test_nothing_accepted(self):
        streams = {"p-0": drafted([0] * 30)}
        streams["p-0"]["drafts"] = np.arange(30)[:, None] + 1

        found = speculative_health(pair(side({KIND: streams})), LEVELS)

        assert found.value == 1.0
        assert found.pattern == f"{KIND}: nothing was accepted in 30 steps"

    def test_constant_drafts(self):
        found = speculative_health(pair(side({KIND: {"p-0": self.varied()}})), LEVELS)

        assert found.pattern == f"{KIND}: every draft is token 0"

    @pytest.mark.parametrize("shift", [-1, 1])
    def test_shifted_drafts(self, shift):
        streams = {"p-0": drafted([0] * 200)}
        tokens = np.arange(201) % 50
        streams["p-0"]["tokens"] = tokens
        streams["p-0"]["drafts"] = np.roll(tokens, -1 - shift)[:200, None]
        streams["p-0"]["accepts"][0], streams["p-0"]["count"][0] = 0, 0

        found = speculative_health(pair(side({KIND: streams})), LEVELS)

        assert f"drafts agree with the stream shifted by {shift:+d}" in (found.pattern or "")

    def test_clamped_count(self):
        streams = {"p-0": self.varied()}
        streams["p-0"]["drafts"][1::2] = 1
        streams["p-0"]["accepts"][1] = 1

        found = speculative_health(pair(side({KIND: streams})), LEVELS)

        assert found.pattern == f"{KIND}: 1 of 30 steps commit other than the drafts they accepted"

    def test_accepted_tokens_are_the_drafts(self):
        streams = {"p-0": self.varied()}
        streams["p-0"]["drafts"][::2] = 5
        streams["p-0"]["drafts"][0] = 0

        found = speculative_health(pair(side({KIND: streams})), LEVELS)

        assert "14 accepted tokens are not the drafts of their step" in (found.pattern or "")

    def test_too_few_steps(self):
        found = speculative_health(pair(side({KIND: {"p-0": drafted([1] * 19)}})), LEVELS)

        assert found.why_undefined == "no kind of rocm has 20 verify steps"


class TestGreedyUnexplained:
    def made(self, own, plain_ids, logits, near_tie=0.5):
        streams = {"p-0": drafted([0] * (len(own) - 1))}
        streams["p-0"]["tokens"] = np.asarray(own)
        cand = side(
            {"spec-greedy": streams},
            extra={"p-0": {"stream.logits": np.asarray(logits, np.float32)}},
        )
        cand.streams = {"p-0": make_stream("p-0", plain_ids)}
        return speculative_greedy_unexplained(pair(cand, near_tie=near_tie), LEVELS)

    @pytest.mark.parametrize(("gap", "value"), [(0.5, 0.0), (0.6, 1.0), (np.nan, 1.0)])
    def test_only_a_near_tie_may_part(self, gap, value):
        found = self.made([0, 1, 1], [0, 0, 0], [[1.0, 0.0], [gap, 0.0], [9.0, 0.0]])

        assert (found.value, found.n) == (value, 1)
        assert found.breakdown == {"parted": 1.0, "tokens": 2.0}
        if value:
            assert found.worst is not None
            assert (found.worst.position, found.worst.detail) == (
                PROMPT + 1,
                "greedy 0, speculative 1",
            )

    def test_equal_streams(self):
        found = self.made([0, 0], [0, 0, 0], [[1.0, 0.0]] * 3)

        assert found.value == 0.0
        assert found.breakdown == {"parted": 0.0, "tokens": 2.0}


class TestReplay:
    def test_share_of_prompts(self):
        """p-1 parts at token 2, p-0 at token 4 and ends there; the others agree."""
        streams = {f"p-{at}": drafted([1] * 10) for at in range(4)}
        again = {p: {f"spec.{KIND}.replay": np.zeros(12, int)} for p in streams}
        again["p-0"][f"spec.{KIND}.replay"] = np.array([0, 0, 0, 0, 1])
        again["p-1"][f"spec.{KIND}.replay"][[2, 4]] = 1

        found = speculative_replay(pair(side({KIND: streams}, extra=again)), LEVELS)

        assert (found.value, found.n) == (0.5, 4)
        assert found.worst is not None
        assert (found.worst.prompt, found.worst.position) == ("p-1", PROMPT + 2)
        assert found.interval is not None
        assert found.interval.method == "Clopper-Pearson"
