"""Waivers keep the outcome, cover FAIL and INCONCLUSIVE alone, and are told when they hide nothing."""

import datetime as dt

import pytest

from tests.unit.gates.made import limit, measured, verdict
from validate.errors import SuiteError
from validate.gates import gravest, overall, waive
from validate.schema.suite import Waiver
from validate.schema.verdict import Outcome

LIMIT = limit(1.0)
PASSES = verdict("bound", measured(0.5), LIMIT)
FAILS = verdict("bound", measured(2.0), LIMIT)
OPEN = verdict("bound", measured(None, why_undefined="no data"), LIMIT)
UNLIKE = verdict("bound", measured(None, why_undefined="no twin", undefined_kind="unlike"), LIMIT)


def waiver(**changes):
    """A waiver of logits.kl_p90 for everything that calls itself rocm."""
    fields = {
        "gate": "logits.kl_p90",
        "cand": "rocm*",
        "reason": "kernel under repair",
        "issue": "K-12",
        "expires": dt.date(2030, 1, 31),
    }
    return Waiver(**{**fields, **changes})


@pytest.mark.parametrize("found", [FAILS, OPEN])
def test_a_waived_gate_keeps_its_outcome_and_says_by_whose_word(found):
    """Reason, issue, last day and scope."""
    (waived,) = waive([found], [waiver()], cand="rocm:pad=tile")

    assert waived.outcome is found.outcome
    assert waived.reason == found.reason
    assert waived.waiver == "kernel under repair (K-12; until 2030-01-31, cand rocm*)"


@pytest.mark.parametrize(
    ("changes", "cand"),
    [({}, "cuda-repeat"), ({"gate": "logits.kl_max"}, "rocm"), ({"cand": "ROCM"}, "rocm")],
)
def test_a_waiver_for_others_says_nothing(changes, cand):
    """Other candidates, other gates, other case: neither used nor unused."""
    assert waive([FAILS, PASSES], [waiver(**changes)], cand=cand) == [FAILS, PASSES]


def test_incomparable_is_never_waived():
    """Nothing was found about cand, so there is nothing to forgive; nor is the waiver unused."""
    assert waive([UNLIKE], [waiver()], cand="rocm") == [UNLIKE]


def test_an_unused_waiver_is_an_error():
    """A waiver that outlives its cause would hide the next one."""
    with pytest.raises(SuiteError) as caught:
        waive([PASSES], [waiver()], cand="rocm")

    assert str(caught.value) == (
        "unused waiver: logits.kl_p90 is PASS for cand 'rocm', so the waiver (kernel under repair "
        "(K-12; until 2030-01-31, cand rocm*)) hides nothing; delete it"
    )


def test_two_waivers_of_one_gate_contradict_each_other():
    """Which of two reasons holds is not guessed, even when both would forgive."""
    with pytest.raises(SuiteError) as caught:
        waive([FAILS], [waiver(), waiver(cand="*")], cand="rocm")

    assert str(caught.value) == (
        "contradictory waivers of logits.kl_p90: 'rocm*' and '*' both cover cand 'rocm'; "
        "keep one of them"
    )


def test_waived_outcomes_do_not_count():
    """The rest does, and nothing left is no PASS."""
    (waived,) = waive([FAILS], [waiver()], cand="rocm")

    assert overall([PASSES, waived]) == (Outcome.PASS,)
    assert gravest(overall([waived, OPEN, PASSES])) is Outcome.INCONCLUSIVE
    assert overall([FAILS]) == (Outcome.FAIL,)
    with pytest.raises(ValueError, match="every gate that ran is waived: nothing was judged"):
        overall([waived])
