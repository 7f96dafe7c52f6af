"""Explaining a gate: what is named, what is refused, and that no verdict moves."""

import dataclasses
from functools import cache

import pytest

from tests.exact_runs import PROMPTS, WEIGHTS, heads_lost, ran, side, without
from tests.unit.oracle.tiny import TINY
from tests.unit.run.made import gate, run, side as plain, suite
from validate.errors import IncomparableError, InputError
from validate.run.explain import Scene, attach, check_gate, crashed, explain
from validate.schema.verdict import Outcome

STORED = "cand 'runs/rocm' is a stored capture and cannot be captured again here"
FAILED = run(plain("rocm", 3.0))
PASSED = run(plain("rocm", 0.1))


@cache
def scene() -> Scene:
    """Cand loses head 2 of layers 1 and 4 in decode; it is stored."""
    lost = ran(heads_lost([1, 4], [2], decode=True), noise=2)
    return Scene(
        ref=side("cuda", ran(noise=1)),
        cand=side("rocm", lost),
        prompts=tuple(PROMPTS),
        weights=WEIGHTS,
        config=TINY.model_dump(),
        why_stored=STORED,
    )


class Studio:
    """Hands out captures without making any; notes what was asked for."""

    def __init__(self) -> None:
        self.asked: list[tuple[str, dict[str, str], tuple[str, ...]]] = []

    def ref(self, prompts, options):
        self.asked.append(("ref", dict(options), tuple(p.id for p in prompts)))
        return scene().ref

    def cand(self, prompts, options, *, path=None):
        told = {**options, **({"path": path} if path else {})}
        self.asked.append(("cand", told, tuple(p.id for p in prompts)))
        return dataclasses.replace(Marked(scene().cand), options=told), None


@dataclasses.dataclass(frozen=True)
class Marked:
    """A side that remembers what it was asked to be."""

    whole: object
    options: dict[str, str] = dataclasses.field(default_factory=dict)

    def __getattr__(self, name):
        return getattr(self.whole, name)


def healed_by(key, value):
    """A comparison in which this switch heals cand."""

    def again(ref, cand, oracle):
        return PASSED if cand.options.get(key) == value else FAILED

    return again


def test_pass_layer_module_and_head_are_named_and_the_verdicts_stay():
    found = explain(FAILED, "logits.kl_p90", scene=scene())
    rungs = {rung.level: rung.text for rung in found.rungs}

    assert (found.status, found.outcome) == ("explained", Outcome.FAIL)
    assert found.summary.startswith(
        "logits.kl_p90: cand errs on its own inputs in MLA (decode), layers 1,4, heads 2 of 3"
    )
    assert rungs["gate"] == "logits.kl_p90 FAIL: 3 nats, limit 1"
    assert (rungs["pass"], rungs["layer"], rungs["head"]) == ("decode", "1,4", "2 of 3")
    assert rungs["module"] == "MLA, latent attention"
    assert rungs["error"].startswith("decode.mla.1.out: cand introduces ")
    assert found.notes == (f"no switch was tried: {STORED}",)
    with_it = attach(FAILED, found)
    assert with_it.gates == FAILED.gates
    assert (with_it.verdict, with_it.exit_code) == (Outcome.FAIL, 1)


def test_a_gate_that_passes_has_nothing_to_explain():
    found = explain(PASSED, "logits.kl_p90", scene=scene())

    assert found.status == "nothing to explain"
    assert found.summary == "logits.kl_p90 PASSes: there is nothing to explain"
    assert (found.rungs, found.places, found.switches) == ((), (), ())


def test_an_incomparable_gate_says_nothing_of_cand():
    unlike = run(plain("rocm", 0.1), oracle=plain("oracle", 9.0))
    found = explain(unlike, "logits.kl_p90", scene=scene())

    assert found.status == "not explained"
    assert found.summary.startswith(
        "logits.kl_p90 is INCOMPARABLE, so nothing may be said of cand: REF_BLAMED"
    )


def test_a_waived_and_an_inconclusive_gate_are_explained_and_called_so():
    raw = FAILED.model_dump()
    for one in raw["gates"]:
        if one["name"] == "logits.kl_p90":
            one |= {"waiver": "known, issue 12", "outcome": "INCONCLUSIVE", "reason": "too few"}
    found = explain(type(FAILED).model_validate(raw), "logits.kl_p90", scene=scene())

    assert found.status == "explained"
    assert found.notes[:2] == (
        "the gate is WAIVED and does not count: known, issue 12",
        "the gate did not FAIL, it is INCONCLUSIVE: too few",
    )


def test_a_clean_cand_is_said_to_err_nowhere():
    clean = dataclasses.replace(scene(), cand=side("rocm", ran(noise=2)))
    found = explain(FAILED, "logits.kl_p90", scene=clean)

    assert (found.status, found.places) == ("not explained", ())
    assert "no captured operation of cand errs on its own inputs more than ref's" in found.summary


def test_without_tensors_the_message_says_what_to_capture():
    bare = side("rocm", without(ran(noise=2), ".in", ".out"))
    found = explain(FAILED, "logits.kl_p90", scene=dataclasses.replace(scene(), cand=bare))

    assert found.status == "not explained"
    assert found.notes[0] == (
        f"cand was captured without `tensors` ({STORED}), so it cannot be followed to a layer; "
        "capture prompts tagged 'tensors' and 'state'"
    )


def test_without_weights_no_operation_can_be_held_against_the_exact_one():
    found = explain(FAILED, "logits.kl_p90", scene=dataclasses.replace(scene(), weights=None))

    assert found.status == "not explained"
    assert found.notes[0].startswith("no float64 weights of ref's model are at hand")


def test_the_switch_that_makes_it_vanish_is_named():
    studio = Studio()
    there = dataclasses.replace(scene(), studio=studio, again=healed_by("chunk", "0"))
    found = explain(FAILED, "logits.kl_p90", scene=there)
    told = {(one.key, one.tried): one.found for one in found.switches if one.found != "not tried"}

    assert found.summary.endswith("; it vanishes with prefill chunk (chunk=0)")
    assert told["chunk", "0"] == "vanishes"
    assert {told[key] for key in told if key != ("chunk", "0")} == {"stays"}
    assert (found.baseline, found.unit) == (3.0, "nats")
    assert [rung.text for rung in found.rungs if rung.level == "switch"] == [
        "prefill chunk (chunk) 64 -> 0: makes it vanish (measures 0.1)"
    ]


def test_each_capture_changes_one_switch_alone():
    studio = Studio()
    there = dataclasses.replace(scene(), studio=studio, again=healed_by("none", ""))
    found = explain(FAILED, "logits.kl_p90", scene=there)
    cand = [options for who, options, _ in studio.asked if who == "cand"]

    assert cand[0] == {}
    assert all(len(options) == 1 for options in cand[1:])
    assert found.summary.endswith("none of its switches makes it vanish")


def test_where_the_failure_does_not_show_again_no_switch_is_tried():
    there = dataclasses.replace(scene(), studio=Studio(), again=lambda ref, cand, oracle: PASSED)
    found = explain(FAILED, "logits.kl_p90", scene=there)

    assert found.switches == ()
    assert found.notes[-1].startswith("no switch was tried: on prompts p-0, p-1 captured again")


def test_captures_that_do_not_match_are_said_aloud():
    def unlike(ref, cand, oracle):
        msg = "ref and cand share nothing\n  do next: anything"
        raise IncomparableError(msg)

    there = dataclasses.replace(scene(), studio=Studio(), again=unlike)
    found = explain(FAILED, "logits.kl_p90", scene=there)

    assert found.notes[-1] == "no switch was tried: ref and cand share nothing"


def test_a_prompt_that_shows_no_inside_is_captured_again_with_it():
    """The gate's worst prompt, p-0, holds logits alone."""
    held = {name: scene().cand.tensor("p-1", name) for name in scene().cand.names("p-1")}
    bare = side("rocm", {"p-0": {}, "p-1": held})
    studio = Studio()
    there = dataclasses.replace(scene(), cand=bare, studio=studio, again=healed_by("none", ""))
    worst = FAILED.model_copy(
        update={"gates": tuple(g for g in FAILED.gates if g.name == "state.kda_rel_l2")}
    )
    named = worst.gates[0].model_copy(update={"name": "logits.kl_p90"})
    found = explain(worst.model_copy(update={"gates": (named,)}), "logits.kl_p90", scene=there)

    assert studio.asked[0] == ("cand", {}, ("p-0", "p-1"))
    assert found.notes[0].startswith("looked inside of prompts p-0, p-1, captured again for that")
    assert {place.layer for place in found.places if place.mode == "decode"} == {1, 4}


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("logits.kl_p9O", "the suite has no such gate; did you mean 'logits.kl_p90'?"),
        ("yardstick.aa", "only gates of attention, state, logits, greedy, speculative, renorm"),
        ("logits.kl_p50", "this run leaves the gate out (--only or --skip)"),
    ],
)
def test_gates_that_cannot_be_explained_are_refused_at_once(name, words):
    gates = suite().gates

    with pytest.raises(InputError, match=r"^--explain ") as caught:
        check_gate(
            name,
            [one for one in gates if one.name != "logits.kl_p50"],
            known=[one.name for one in gates],
        )

    assert words in str(caught.value)


def test_a_gate_that_runs_is_accepted():
    gates = suite().gates

    check_gate("logits.kl_p90", gates, known=[one.name for one in gates])


def test_an_explanation_that_breaks_off_is_no_empty_table():
    found = crashed(FAILED, "logits.kl_p90", ZeroDivisionError("division\nby zero"))

    assert found.status == "crashed"
    assert found.outcome is gate(FAILED, "logits.kl_p90").outcome
    assert found.summary == (
        "the explanation broke off with ZeroDivisionError: division by zero; no cause is named"
    )
