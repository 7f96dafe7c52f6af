"""The text of a refusal: at most five items of a kind, the rest counted; a side named once."""

import pytest

from validate.pairing._reasons import Reason, cut, message

LABELS = {"ref": "cuda", "cand": "rocm"}


def reason(**changes):
    """A reason of cand's with one fact and no names."""
    fields = {
        "other": "cand",
        "kind": "weights",
        "headline": "hold other weights",
        "cause": "another file",
        "next_step": "capture cand anew",
        **changes,
    }
    return Reason(**fields)


@pytest.mark.parametrize(
    ("count", "told"),
    [
        (0, "(none)"),
        (1, "0"),
        (5, "0, 1, 2, 3, 4"),
        (6, "0, 1, 2, 3, 4 and 1 more"),
        (8, "0, 1, 2, 3, 4 and 3 more"),
    ],
)
def test_names_beyond_five_are_counted(count, told):
    assert cut([str(i) for i in range(count)]) == told


@pytest.mark.parametrize(
    ("count", "told"),
    [
        (5, "0; 1; 2; 3; 4"),
        (6, "0; 1; 2; 3; 4; and 1 more"),
        (8, "0; 1; 2; 3; 4; and 3 more"),
    ],
)
def test_facts_beyond_five_are_counted(count, told):
    """Facts that read the same count once."""
    facts = tuple(str(i) for i in range(count))

    lines = message(LABELS, [reason(facts=(*facts, "0"))]).splitlines()

    assert lines[1] == f"  weights     : {told}"


@pytest.mark.parametrize(
    ("only_ref", "only_other", "told"),
    [
        (None, None, ["  weights     : cand hold other weights"]),
        (("a",), None, ["  weights     : hold other weights", "  only in ref : a"]),
        (None, ("b",), ["  weights     : hold other weights", "  only in cand: b"]),
        (
            ("a",),
            (),
            ["  weights     : hold other weights", "  only in ref : a", "  only in cand: (none)"],
        ),
    ],
)
def test_a_reason_without_facts_tells_its_headline(only_ref, only_other, told):
    """The side stands before it where no line of names follows."""
    lines = message(LABELS, [reason(only_ref=only_ref, only_other=only_other)]).splitlines()

    assert lines[1:-2] == told
