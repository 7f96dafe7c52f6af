"""Gates on drawn streams: kind, draft index and strata; states by layer at the first wrong step."""

import numpy as np
import pytest

from tests.fakes import FakeSide, make_manifest, make_prompt
from tests.unit.oracle.tiny import TINY
from tests.unit.run.made import gate, run, side
from validate.run import explain_streams
from validate.run.explain_streams import audit_places, stream_rungs
from validate.run.explain_words import cause_words
from validate.schema.pair import Pair
from validate.schema.report import MeasurementReport, WorstReport

AUDIT = "spec.spec-sampled.audit"
COLUMNS = ["kv.1", "kv.4", "kda.0", "kda.2", "kda.3", "conv.0", "conv.2", "conv.3"]
"""Of ``TINY``: MLA at 1 and 4, caches first, then recurrent states, then conv histories."""


def audited(**rows):
    """A cand whose audits are ``rows`` by prompt: one dictionary of wrong states a step."""
    tensors = {}
    for name, steps in rows.items():
        audit = np.full((len(steps), len(COLUMNS)), 1e-3, np.float32)
        for at, wrong in enumerate(steps):
            for state, size in wrong.items():
                audit[at, COLUMNS.index(state)] = size
        tensors[name] = {AUDIT: audit}
    prompts = {name: make_prompt(name, [1, 2]) for name in rows}
    return FakeSide("rocm", tensors, prompts=prompts, manifest=make_manifest("rocm"))


def named(cand, **changes):
    found = audit_places(cand, list(cand.prompts), **{"config": TINY, "limit": 0.09, **changes})
    return [(place.module, place.layer, place.cand, place.prompt) for place in found]


def test_the_first_step_that_leaves_its_replay_names_the_states():
    """At later steps the caches are wrong too, for passes in between read the wrong state."""
    cand = audited(
        a=[{}, {"kda.0": 0.5, "conv.0": 0.25}, {"kv.1": 9.0, "kda.2": 8.0}],
        b=[{"kda.0": 2.0}, {"kv.4": 3.0}],
    )

    assert named(cand) == [("KDA", 0, 2.0, "b"), ("conv", 0, 0.25, "a")]


def test_states_within_the_limit_are_not_named():
    assert named(audited(a=[{"kda.0": 0.0625}])) == []
    assert named(audited(a=[{"kda.0": 0.125}])) == [("KDA", 0, 0.125, "a")]


def test_a_state_that_is_nan_is_wrong_and_has_no_number():
    assert named(audited(a=[{"kv.4": np.nan}])) == [("KV", 4, None, "a")]


def test_states_without_a_known_order_are_not_named():
    """Without a configuration, or with other columns than its own, nobody knows what is what."""
    cand = audited(a=[{"kda.0": 1.0}])
    other = TINY.model_copy(update={"layers": 6})

    assert named(cand, config=None) == []
    assert named(cand, config=other) == []


def failed(name, *, place, detail=None, pattern=None):
    """A gate that measured most at ``place``."""
    found = MeasurementReport(
        metric=name, value=1e-9, unit="p-value", n=9, n_of="tokens", pattern=pattern,
        worst=WorstReport(place=place, detail=detail),
    )  # fmt: skip
    one = gate(run(side("rocm", 3.0)), "logits.kl_p90")
    return one.model_copy(update={"name": name, "measurement": found, "alpha_share": 1e-3})


PAIR = Pair(ref=side("cuda"), cand=side("rocm"), prompts=("p-0",))


def test_a_gate_without_strata_tells_kind_place_and_finding():
    one = failed(
        "speculative.surprisal", place="spec-sampled", detail="z 14", pattern="too probable"
    )
    told = [(rung.level, rung.text) for rung in stream_rungs(one, PAIR)]

    assert told == [
        ("stream", "spec-sampled"),
        ("finding", "too probable"),
        ("strongest", "spec-sampled; z 14"),
    ]


class Named_:
    """Stands for a named test of a metric: rejects where p is below a thousandth of its weight."""

    def __init__(self, name, p_value, weight=0.1):
        self.name, self.weight = name, weight
        self.test = type("Result", (), {"p_value": p_value})()


class Kind:
    def __init__(self, kind):
        self.kind = kind


class Streams:
    def sampled(self):
        return [Kind("sampled"), Kind("spec-sampled")]


TESTS = {
    "sampled": [Named_("sampled, p falling", 0.4), Named_("sampled, depth 0 to 9, p falling", 0.5)],
    "spec-sampled": [
        Named_("spec-sampled, p falling", 1e-12),
        Named_("spec-sampled, accepted, own law, p falling", 1e-12),
        Named_("spec-sampled, resampled, own law, p falling", 0.5),
        Named_("spec-sampled, row 0, p falling", 1e-12),
        Named_("spec-sampled, row 0, q/p falling", 0.5),
        Named_("spec-sampled, row 1, p falling", 2e-4),
        Named_("spec-sampled, row 2, p falling", 5e-5),
        Named_("spec-sampled, depth 0 to 9, p falling", 1e-9),
        Named_('spec-sampled, parameters {"min_p": 0.1, "temperature": 1.0}, p falling', 1e-9),
        Named_("spec-sampled, entropy 0 to 1, p falling", None),
    ],
}


def test_strata_are_told_by_which_of_them_reject(monkeypatch):
    """A thousandth of weight 0.1 is 1e-4: row 1 at 2e-4 does not reject, row 2 at 5e-5 does."""
    monkeypatch.setattr(explain_streams, "sound_side", lambda pair: Streams())
    monkeypatch.setattr(
        explain_streams, "_TESTS", {"speculative.uniform": lambda _, drawn: TESTS[drawn.kind]}
    )
    one = failed("speculative.uniform", place="spec-sampled, p falling", pattern="greedy")
    told = {rung.level: rung.text for rung in stream_rungs(one, PAIR)}

    assert told == {
        "stream": "spec-sampled, 6 of its 10 tests reject (sampled: 0 of 2 reject)",
        "draft index": "row 0,2 (2 of 3)",
        "outcome": "accepted (1 of 2)",
        "depth": "depth 0 to 9 (1 of 1)",
        "parameters": 'parameters {"min_p": 0.1, "temperature": 1.0} (1 of 1)',
        "finding": "greedy",
        "strongest": "spec-sampled, p falling",
    }


def test_the_summary_of_streams_names_no_layer():
    one = failed("speculative.surprisal", place="spec-sampled", pattern="too probable")
    words = cause_words(one, [], streams=tuple(stream_rungs(one, PAIR)), looked=False)

    assert words == (
        "speculative.surprisal: not a layer, but the streams: stream spec-sampled; finding too probable"
    )


@pytest.mark.parametrize("name", ["speculative.uniform", "speculative.acceptance_z"])
def test_the_gates_whose_strata_are_taken_apart_exist(name):
    from validate.metrics import METRICS

    assert name in METRICS
    assert name in explain_streams._TESTS
