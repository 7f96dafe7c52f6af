"""Drawn streams that cannot be judged, or not by every test: one message each, and nothing crashes."""

import numpy as np
import pytest

from tests.unit.metrics.spec_made import drafted, fair, pair, plain, side
from validate.metrics import METRICS
from validate.metrics.speculative_acceptance_delta import speculative_acceptance_delta
from validate.metrics.speculative_acceptance_z import speculative_acceptance_z
from validate.metrics.speculative_nonfinite import speculative_nonfinite
from validate.metrics.speculative_serial import speculative_serial
from validate.metrics.speculative_support import speculative_support
from validate.metrics.speculative_surprisal import speculative_surprisal
from validate.metrics.speculative_uniform import speculative_uniform
from validate.schema import Levels, SamplingParams

LEVELS = Levels(low=0.999, high=0.95)
KIND = "spec-sampled"
ALL = {name: metric for name, metric in METRICS.items() if name.startswith("speculative.")}
LAWS = (speculative_uniform, speculative_surprisal, speculative_serial)
OF_TOKENS = ("p", "q", "top", "falls", "entropy", "variance")
OF_STEPS = ("expected", "drafted_p", "drafted_q")


def spec(*, prompts: int = 8, steps: int = 60):
    rng = np.random.default_rng(5)
    return {f"p-{at}": drafted((rng.random(steps) < 0.5).astype(int)) for at in range(prompts)}


def without_q(streams):
    """As a server gives them: what it emitted and p, and nothing of its drafter's law."""
    for x in streams.values():
        judged = (x["outcome"] == 1) | (x["outcome"] == 2)
        x["falls"] = x["falls"].copy()
        x["falls"][:, :, 1] = np.nan
        x["falls"][judged, 1] = np.nan
        for name in ("q", *OF_STEPS, "confidence"):
            x[name] = x[name] * np.nan
    return streams


class TestWithoutDraftProbabilities:
    """Emitted tokens are tested all the same; acceptance says that it is not."""

    def test_what_can_be_tested_is(self):
        cand = side({KIND: without_q(spec())})

        for metric in (*LAWS, speculative_nonfinite, speculative_support):
            assert metric(pair(cand), LEVELS).value is not None

    def test_silent_argmax_is_found(self):
        """Every token of these streams is id 0, though a quarter should be id 1."""
        found = speculative_uniform(pair(side({KIND: without_q(spec())})), LEVELS)

        assert found.value is not None
        assert found.value < 1e-9
        assert (found.pattern or "").startswith("sampling is greedy")

    def test_right_draws_are_not_rejected(self):
        """Every token and outcome as ``LAW`` wants them."""
        rng = np.random.default_rng(11)
        streams = without_q(spec())
        for x in streams.values():
            other = plain((rng.random(len(x["tokens"])) >= 0.75).astype(int))
            for name in ("tokens", "p", "logprob"):
                x[name] = other[name]
            judged = np.isnan(x["falls"][:, 1, 0, 0])
            x["falls"] = other["falls"].copy()
            x["falls"][judged, 1] = np.nan

        for metric in LAWS:
            found = metric(pair(side({KIND: streams})), LEVELS)
            assert found.value is not None
            assert found.value > 0.01

    def test_acceptance_says_what_is_missing(self):
        cand = pair(side({KIND: without_q(spec())}))

        assert speculative_acceptance_z(cand, LEVELS).why_undefined == (
            "rocm holds no draft probabilities; only emitted tokens are tested, by "
            "speculative.uniform, surprisal, serial and support: capture p and q of every draft"
        )
        assert speculative_acceptance_delta(cand, LEVELS).why_undefined == (
            "rocm holds no draft probabilities, so its expected acceptance is not known: "
            "capture p and q of every draft"
        )

    def test_ref_without_them_is_named(self):
        found = speculative_acceptance_delta(
            pair(side({KIND: spec()}), side({KIND: without_q(spec())}, label="cuda")), LEVELS
        )

        assert (found.why_undefined or "").startswith("cuda holds no draft probabilities")


class TestNumbers:
    @pytest.mark.parametrize("bad", [np.nan, np.inf])
    @pytest.mark.parametrize("name", [*OF_TOKENS, *OF_STEPS])
    def test_one_that_is_none_is_counted_and_nothing_rests_on_it(self, name, bad):
        streams = spec()
        streams["p-2"][name] = streams["p-2"][name].astype(np.float64)
        at = 7 if name != "q" else int(np.flatnonzero(streams["p-2"]["outcome"] == 1)[3])
        streams["p-2"][name][at] = bad
        cand = pair(side({KIND: streams}), side({KIND: spec()}, label="cuda"))
        unit = "token" if name in OF_TOKENS else "verify step"

        counted = speculative_nonfinite(cand, LEVELS)

        assert counted.value == 1.0
        assert counted.breakdown[f"cand.{KIND}.{name}"] == 1.0
        for metric in (*LAWS, speculative_acceptance_z, speculative_acceptance_delta):
            found = metric(cand, LEVELS)
            assert (found.value, found.undefined_kind) == (None, "no_data")
            assert (found.why_undefined or "").startswith("rocm: 1 of ")
            assert (
                f"values of {KIND}.{name} are no chances, no numbers or contradict others, the first in {unit} {at} "
                in (found.why_undefined or "")
            )
            assert "of p-2; speculative.nonfinite counts them" in (found.why_undefined or "")

    @pytest.mark.parametrize("name", [*OF_TOKENS, *OF_STEPS, "logprob", "confidence", "edge"])
    def test_no_metric_crashes(self, name):
        streams = spec()
        streams["p-2"][name] = streams["p-2"][name] * np.nan

        for metric in ALL.values():
            found = metric(pair(side({KIND: streams})), LEVELS)
            assert (found.value is None) == (found.why_undefined is not None)

    def test_a_damaged_ref_is_named(self):
        broken = spec()
        broken["p-0"]["expected"][3] = np.nan

        found = speculative_acceptance_delta(
            pair(side({KIND: spec()}), side({KIND: broken}, label="cuda")), LEVELS
        )

        assert (found.why_undefined or "").startswith("cuda: 1 of 480 values of")


class TestIds:
    """The fakes' vocabulary and tokenizer: see ``tests.fakes.make_manifest``."""

    def test_a_draft_beyond_the_vocabulary_is_counted(self):
        streams = spec()
        streams["p-0"]["drafts"][3] = 10**6
        streams["p-1"]["drafts"][3] = -1

        found = speculative_nonfinite(
            pair(side({KIND: streams}), side({KIND: spec()}, label="cuda")), LEVELS
        )

        assert found.value == 2.0
        assert found.worst is not None
        assert found.worst.place == f"cand.{KIND}.drafts"

    def test_beyond_the_tokenizer_is_shown_at_a_temperature_and_counted_without(self):
        streams, cold = spec(), spec(prompts=2)
        cand = side({KIND: streams})
        model = cand.manifest.model
        assert model.tokenizer_length < model.vocab_size
        streams["p-0"]["drafts"][3] = model.tokenizer_length
        warm = speculative_nonfinite(pair(side({KIND: streams})), LEVELS)
        for x in cold.values():
            x["tokens"][5] = model.tokenizer_length
        greedy = speculative_nonfinite(pair(side({"spec-greedy": cold})), LEVELS)

        assert warm.value == 0.0
        assert warm.breakdown[f"cand.{KIND}.drafts_beyond_tokenizer"] == 1.0
        assert (warm.pattern or "").startswith("not counted: 1 ")
        assert greedy.breakdown["cand.spec-greedy.greedy_tokens_beyond_tokenizer"] == 2.0
        assert greedy.value is not None
        assert greedy.value >= 2.0


class TestSizes:
    def test_one_empty_stream_is_no_harm(self):
        streams = spec()
        streams["p-0"] = {name: x[:0] for name, x in streams["p-0"].items()}

        for metric in ALL.values():
            found = metric(pair(side({KIND: streams})), LEVELS)
            assert (found.value is None) == (found.why_undefined is not None)

    @pytest.mark.parametrize("metric", LAWS)
    def test_no_token_and_a_few_tokens_tell_the_number(self, metric):
        for count, said in ((0, "0 sampled tokens"), (2, "4 sampled tokens")):
            found = metric(pair(side({"sampled": fair(count, prompts=2)})), LEVELS)

            assert found.value is None
            assert found.n_needed == 20
            assert found.why_undefined == (
                f"too few units for any of its tests: {said}, at least 20 that could have been "
                "others are needed"
            )


def test_greedy_requests_among_sampled_ones_are_left_out():
    """T = 0 mixed with T > 0 in one kind: the law of the former is a point."""
    streams = {p: plain(x["tokens"]) for p, x in fair(60).items()}
    cand = side({"sampled": streams})
    for prompt in ("p-0", "p-1"):
        held = cand.drawn["sampled"][prompt]
        cold = held.model_copy(update={"params": SamplingParams(temperature=0.0)})
        cand.drawn["sampled"][prompt] = cold

    for metric in LAWS:
        found = metric(pair(cand), LEVELS)
        assert found.n == 360
        assert found.value is not None
        assert found.value > 0.01
