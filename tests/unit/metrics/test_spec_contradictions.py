"""Drawn streams that contradict themselves, or the reference's: each is named and never passes."""

import numpy as np
import pytest

from tests.unit.metrics.spec_made import drafted, fair, pair, side
from validate.metrics.speculative_acceptance_delta import speculative_acceptance_delta
from validate.metrics.speculative_audit import speculative_audit
from validate.metrics.speculative_health import speculative_health
from validate.metrics.speculative_nonfinite import speculative_nonfinite
from validate.metrics.speculative_uniform import speculative_uniform
from validate.schema import Levels

LEVELS = Levels(low=0.999, high=0.95)
KIND = "spec-sampled"


def counted(**changes):
    """Values that cannot be, where one column of one prompt of 30 tokens is replaced."""
    streams = fair(30)
    streams["p-0"] |= changes
    found = speculative_nonfinite(pair(side({"sampled": streams})), LEVELS)
    assert found.value is not None
    return found.value / 2  # ref is the same side


class TestDomains:
    """30 wrong values each: nothing lies outside of what a law over the vocabulary can give."""

    def test_a_right_stream_has_none(self):
        assert counted() == 0

    @pytest.mark.parametrize(
        ("column", "value"), [("variance", 1e9), ("entropy", 1e3), ("edge", -5.0), ("edge", np.nan)]
    )
    def test_moments_and_distances(self, column, value):
        assert counted(**{column: np.full(30, value)}) == 30

    def test_a_chance_other_than_its_own_mass(self):
        """p says 0.5; the law's mass on the token is 0.75 or 0.25."""
        assert counted(p=np.full(30, 0.5), logprob=np.full(30, np.log(0.5))) == 30

    def test_a_token_before_the_likeliest(self):
        """0.1 of the mass stands before it, less than the likeliest id alone has."""
        falls = fair(30)["p-0"]["falls"].copy()
        falls[:, 0, 0, 0] = 0.1

        assert counted(falls=falls) == 30

    def test_a_negative_distance_of_states_is_none(self):
        streams = {f"p-{at}": drafted([1, 0, 1]) for at in range(4)}
        audit = {p: {f"spec.{KIND}.audit": np.full((3, 2), -1.0)} for p in streams}

        found = speculative_audit(pair(side({KIND: streams}, extra=audit)), LEVELS)

        assert found.value is not None
        assert np.isnan(found.value)


class TestOutcomes:
    """A first token, then steps of one draft: accepted and bonus, or resampled."""

    @pytest.mark.parametrize(
        ("at", "outcome"),
        [(0, 3), (1, 0), (1, 9), (1, 2), (2, 2), (2, 1), (3, 1), (3, 3)],
        ids=str,
    )
    def test_one_that_its_step_contradicts_is_counted(self, at, outcome):
        """Steps accept 1 and 0 drafts of 1: outcomes are 0 | 1 3 | 2."""
        streams = {f"p-{n}": drafted([1, 0]) for n in range(2)}
        assert streams["p-1"]["outcome"].tolist() == [0, 1, 3, 2]
        streams["p-1"]["outcome"] = streams["p-1"]["outcome"].copy()
        streams["p-1"]["outcome"][at] = outcome

        found = speculative_nonfinite(pair(side({KIND: streams})), LEVELS)

        assert found.breakdown[f"cand.{KIND}.outcome"] == 1.0

    def test_without_drafts_a_token_is_plain(self):
        assert counted(outcome=np.full(30, 3)) == 30


class TestBesideTheReference:
    def test_streams_without_drafts_are_asked_of_both(self):
        """Ref drew 8 prompts without drafts and with; cand drew with drafts alone."""
        both = {"sampled": fair(30), KIND: {f"p-{at}": drafted([1, 0] * 9) for at in range(8)}}

        found = speculative_uniform(
            pair(side({KIND: both[KIND]}), side(both, label="cuda")), LEVELS
        )

        assert (found.value, found.undefined_kind) == (None, "unlike")
        assert found.why_undefined == "rocm holds no sampled streams, cuda 8; capture them too"

    def test_a_prompt_that_cand_did_not_draw_is_named(self):
        own = fair(30)
        other = dict(own)
        own = {name: x for name, x in own.items() if name != "p-3"} | {
            "p-3": {name: x[:0] for name, x in own["p-3"].items()}
        }

        found = speculative_uniform(
            pair(side({"sampled": own}), side({"sampled": other}, label="cuda")), LEVELS
        )

        assert found.undefined_kind == "unlike"
        assert found.why_undefined == (
            "rocm holds 7 sampled streams, none of p-3, which cuda holds; capture the same prompts"
        )

    def test_a_kind_that_cand_left_out_hides_no_other(self):
        """Ref drew both kinds with drafts; cand has none at T = 0, and of p-1 none at all."""
        both = {f"p-{at}": drafted([1, 0] * 15) for at in range(2)}
        own = both | {"p-1": {name: x[:0] for name, x in both["p-1"].items()}}
        ref = side({"spec-greedy": both, KIND: both}, label="cuda")

        found = speculative_health(pair(side({KIND: own}), ref), LEVELS)

        assert found.undefined_kind == "unlike"
        assert found.why_undefined == (
            "rocm holds 1 spec-sampled streams, none of p-1, which cuda holds; capture the same "
            "prompts"
        )

    def test_a_greedy_stream_has_as_many_tokens_or_ends_alike(self):
        """Nine steps of an accepted draft: 19 tokens; cut to 3 of them it says nothing of the rest."""
        whole = {f"p-{at}": drafted([1] * 9) for at in range(2)}
        cut = {name: drafted([1]) for name in whole}
        for stream in (*whole.values(), *cut.values()):
            stream["tokens"] = stream["tokens"].copy()
            stream["tokens"][-1] = len(stream["tokens"]) % 2

        own, other = side({"spec-greedy": cut}), side({"spec-greedy": whole}, label="cuda")
        found = speculative_health(pair(own, other), LEVELS)
        assert "capture as many" not in str(found.why_undefined)  # they end alike, as at a stop
        for stream in cut.values():
            stream["tokens"][-1] = 0
        own = side({"spec-greedy": cut})

        found = speculative_health(pair(own, other), LEVELS)

        assert found.why_undefined == (
            "p-0 spec-greedy: cand holds 3 tokens, ref 19; capture as many"
        )

    def test_a_greedy_stream_of_as_many_tokens_may_end_otherwise(self):
        """A near-tie at the last of 41 tokens."""
        own, other = ({"p-0": drafted([1] * 20)} for _ in range(2))
        own["p-0"]["tokens"] = np.append(own["p-0"]["tokens"][:-1], 1)
        ref = side({"spec-greedy": other}, label="cuda")

        assert speculative_health(pair(side({"spec-greedy": own}), ref), LEVELS).value is not None

    def test_other_parameters_are_another_law(self):
        cand = side({"sampled": fair(30)}, temperature=0.5)
        found = speculative_uniform(pair(cand, side({"sampled": fair(30)}, label="cuda")), LEVELS)

        assert found.value is None
        assert found.undefined_kind == "unlike"
        assert found.why_undefined == (
            'p-0 sampled: ref asked for {"temperature": 1.0}, cand for {"temperature": 0.5}: '
            "samples of two laws; capture both with the same parameters"
        )

    def test_seeds_may_differ(self):
        seeds = {f"p-{at}": 100 + at for at in range(8)}
        cand, ref = side({"sampled": fair(30)}, seeds=seeds), side({"sampled": fair(30)}, label="r")

        assert speculative_uniform(pair(cand, ref), LEVELS).value is not None

    def test_another_drafter_is_not_compared(self):
        streams = {f"p-{at}": drafted([1, 0] * 10) for at in range(8)}
        cand, ref = side({KIND: streams}), side({KIND: streams}, label="cuda")
        model = ref.manifest.model.model_copy(update={"drafter_digest": "ab" * 32})
        ref.manifest = ref.manifest.model_copy(update={"model": model})

        found = speculative_acceptance_delta(pair(cand, ref), LEVELS)

        assert found.undefined_kind == "unlike"
        assert (found.why_undefined or "").startswith(
            "drafters differ: the weights of ref's are abababababab, of cand's none; "
        )


class TestCopies:
    def test_one_stream_under_two_laws_is_a_copy(self):
        """100 tokens of surprisal 69 nats, drawn again word for word where p is another."""
        streams = fair(100, zeros=0.5)
        streams["p-1"]["tokens"] = streams["p-0"]["tokens"]

        found = speculative_uniform(pair(side({"sampled": streams})), LEVELS)

        assert found.undefined_kind == "unlike"
        assert "prompts p-0 and p-1 hold the same 100 tokens (sampled) under unlike laws" in (
            found.why_undefined or ""
        )
