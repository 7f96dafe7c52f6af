"""Renorm metrics: cand's rows on their own inputs, ref looked at first."""

import math
from functools import partial

import ml_dtypes
import numpy as np
import pytest

from tests.measured import assert_measured
from tests.unit.metrics.renorm_made import (
    LEVELS,
    OFF,
    ROW,
    TIED,
    artifact,
    divided,
    engine,
    first,
    made_pair,
    side,
)
from validate.metrics.renorm_input_unchanged import renorm_input_unchanged
from validate.metrics.renorm_kept_mass import renorm_kept_mass
from validate.metrics.renorm_kept_set import renorm_kept_set
from validate.metrics.renorm_nonfinite import renorm_nonfinite
from validate.metrics.renorm_sum_error import renorm_sum_error
from validate.metrics.renorm_value_error import renorm_value_error

NAMES = ("nonfinite", "kept_set", "kept_mass", "sum_error", "value_error", "input_unchanged")
ROWS, K, P = (ROW, ROW, TIED, ROW), (3, OFF, 2, 4), (1.0, 0.7, 1.0, 0.82)
REF = side("cuda", {"a": artifact(ROWS, K, P)})


def measure(name, cand, ref=REF):
    metric = {
        "nonfinite": renorm_nonfinite,
        "kept_set": renorm_kept_set,
        "kept_mass": renorm_kept_mass,
        "sum_error": renorm_sum_error,
        "value_error": renorm_value_error,
        "input_unchanged": renorm_input_unchanged,
    }[name]
    return metric(made_pair(ref, cand), LEVELS)


def cand(by=engine, *, rows=ROWS, k=K, p=P, ties="all", **changes):
    return side("rocm", {"a": artifact(rows, k, p, by=by, **changes)}, ties)


def test_clean_rows_measure_nothing_but_rounding():
    found = {name: measure(name, cand()) for name in NAMES}
    assert {name: one.n for name, one in found.items()} == {
        name: 1 if name == "input_unchanged" else 4 for name in NAMES
    }
    for name in ("nonfinite", "kept_set", "input_unchanged", "kept_mass"):
        assert found[name].value == 0.0
    for name in ("sum_error", "value_error"):
        assert found[name].value is not None
        assert 0 <= found[name].value <= 4 * 2**-24
    assert all(one.interval is None for one in found.values())


def test_either_tie_rule_is_right_where_it_is_declared():
    exactly = partial(engine, ties="exactly_k")
    assert measure("kept_set", cand(exactly, ties="exactly_k")).value == 0.0
    other = measure("kept_set", cand(exactly, ties="all"))
    assert other.value == 1.0
    assert other.worst is not None
    assert other.worst.detail == "keeps 2 entries, the oracle 3 (k=2, p=1, ties all)"
    assert measure("kept_set", cand(ties="exactly_k")).value == 1.0
    assert measure("kept_set", cand()).breakdown["decided by the tie rule"] == 1.0


def test_exactly_k_keeps_no_tie_that_p_does_not_ask_for():
    """.3 and .3 of .1 .3 .3 .3 reach .5: a third .3 is right under the rule ``all`` alone."""
    k, p = (OFF,) * 4, (0.5,) * 4
    given = {"rows": (TIED,) * 4, "k": k, "p": p}
    ref = side("cuda", {"a": artifact(ROWS, k, p)})
    assert measure("kept_set", cand(ties="exactly_k", **given), ref).value == 4.0
    assert measure("kept_set", cand(ties="all", **given), ref).value == 0.0


def test_exactly_k_leaves_open_which_of_the_tied_entries_are_kept():
    def last(row, k, p):  # the highest index of a tie
        return engine(row[::-1], k, p, ties="exactly_k")[::-1]

    assert measure("kept_set", cand(last, ties="exactly_k")).value == 0.0


def test_a_dropped_top_k_is_seen():
    found = measure("kept_set", cand(lambda row, k, p: engine(row, OFF, p)))
    assert found.value == 3.0  # .35 .25 .20 of k = 4 reach .82 of .95, without k it takes .15 too
    assert found.breakdown["keeps too many"] == 3.0
    assert found.pattern is None


def test_mass_before_the_division_is_seen_where_both_filters_bind():
    def before(row, k, p):
        kept = np.where(first(row, min(k, 5), "all"), row, 0)
        if p >= 1:
            return divided(row, kept > 0)
        reached = np.cumsum(np.sort(kept)[::-1]) >= p
        count = int(np.argmax(reached)) + 1 if reached.any() else len(row)
        return divided(row, first(kept, count, "all") & (kept > 0))

    rows = ((0.35, 0.25, 0.20, 0.051, 0.05, 0.05, 0.049),) * 3
    right = side("cuda", {"a": artifact(rows, (4, 4, OFF), (0.82, 1.0, 0.82))})
    wrong = cand(before, rows=rows, k=(4, 4, OFF), p=(0.82, 1.0, 0.82))
    found = measure("kept_set", wrong, right)
    assert found.value == 1.0
    assert found.worst is not None
    assert found.worst.detail == "keeps 4 entries, the oracle 3 (k=4, p=0.82, ties all)"
    assert found.worst.position == 0
    assert found.pattern == "only rows with top-k and top-p"
    assert found.breakdown["wrong: top-k and top-p"] == 1.0
    alone = side("rocm", {"a": artifact(rows[:1], (4,), (0.82,), by=before)})
    one = side("cuda", {"a": artifact(rows[:1], (4,), (0.82,))})
    assert measure("kept_set", alone, one).pattern is None  # there is no other kind of row


def test_the_next_rows_parameters_are_seen():
    rows, k, p = (ROW,) * 4, (1, 2, 3, 4), (1.0,) * 4
    held = artifact(rows, k, p, out=artifact(rows, (2, 3, 4, 1), p)["renorm.out"])
    found = measure(
        "kept_set", side("rocm", {"a": held}), side("cuda", {"a": artifact(rows, k, p)})
    )
    assert found.value == 4.0
    assert found.worst is not None
    assert found.worst.detail == "keeps 1 entries, the oracle 4 (k=4, p=1, ties all)"


def test_a_dropped_boundary_token_falls_short_of_p():
    def short(row, k, p):
        out = engine(row, k, p)
        return out if p >= 1 else divided(row, (out > 0) & (row > row[out > 0].min()))

    found = measure("kept_mass", cand(short))
    # Row 1: .35 + .25 of 1 for p = .7; row 3: .6 / .95 for .82 is short by .1884.
    expected = float(np.float32(0.82)) - 0.6 / 0.95
    assert_measured(np.array(found.value), np.array(expected), atol=1e-7, rtol=0)
    assert found.worst is not None
    assert (found.worst.prompt, found.worst.position) == ("a", 3)
    assert measure("kept_set", cand(short)).breakdown["keeps too few"] == 2.0


def test_another_entry_in_the_place_of_a_larger_one_is_seen():
    out = artifact(ROWS, K, P)["renorm.out"].copy()
    out[0] = divided(np.asarray(ROW, np.float32), np.array([1, 1, 0, 1, 0], bool))
    found = measure("kept_set", cand(out=out))
    assert found.value == 1.0
    assert found.worst is not None
    assert found.worst.detail == "keeps id 3 (0.15) and not id 2 (0.2) (k=3, p=1, ties all)"


def test_probability_from_nothing_is_seen():
    out = artifact(ROWS, K, P)["renorm.out"].copy()
    out[2, 4] = 1e-3
    found = measure("kept_set", cand(out=out))
    assert found.worst is not None
    assert found.worst.detail == "id 4 has probability 0 before and 0.001 after"


def test_mass_that_meets_p_within_the_band_may_fall_either_way():
    rows, k = ((0.5, 0.25, 0.25 - 2**-20, 2**-20, 0.0),), (OFF,)
    for p in (0.5 - 2**-23, 0.5, 0.5 + 2**-23):  # float32 neighbours of the mass itself
        ref = side("cuda", {"a": artifact(rows, k, (p,))})
        for count in (1, 2):
            by = lambda row, k, p, count=count: divided(row, first(row, count, "all"))  # noqa: E731
            found = measure("kept_set", cand(by, rows=rows, k=k, p=(p,)), ref)
            assert found.value == 0.0
            assert found.breakdown["within the tie band"] == 1.0
    far = cand(lambda row, k, p: divided(row, first(row, 2, "all")), rows=rows, k=k, p=(0.499,))
    assert measure("kept_set", far, side("cuda", {"a": artifact(rows, k, (0.499,))})).value == 1.0


def test_a_tie_is_whole_even_within_the_band():
    rows, k, p = ((0.5, 0.25, 0.25, 0.0, 0.0),), (OFF,), (0.5,)
    ref = side("cuda", {"a": artifact(rows, k, p)})
    two = lambda row, k, p: divided(row, first(row, 2, "exactly_k"))  # noqa: E731
    found = measure("kept_set", cand(two, rows=rows, k=k, p=p), ref)
    assert found.worst is not None
    assert found.worst.detail == (
        "keeps id 1 (0.25) and not id 2 (0.25) (k=1073741824, p=0.5, ties all)"
    )
    free = cand(two, rows=rows, k=k, p=p, ties="exactly_k")
    assert measure("kept_set", free, ref).value == 0.0


def test_p_of_one_keeps_the_last_crumb():
    """The second row has a token to remove, so that the filter is tested at all."""
    crumb = ((1 - 2**-22, 2**-22, 0.0, 0.0, 0.0), (0.75, 0.25, 0.0, 0.0, 0.0))
    ref = side("cuda", {"a": artifact(crumb, (OFF, 1), (1.0, 1.0))})
    lost = cand(lambda row, k, p: divided(row, row > 0.5), rows=crumb, k=(OFF, 1), p=(1.0, 1.0))
    assert measure("kept_set", lost, ref).value == 1.0


def test_rows_without_the_division_are_off_in_sum_and_values():
    plain = cand(lambda row, k, p: np.where(engine(row, k, p) > 0, row, 0))
    # Rows 1 and 3 keep 3 of 5: .35 + .25 + .20 = .8; rows 0 too; row 2 keeps .9.
    assert_measured(np.array(measure("sum_error", plain).value), np.array(0.2), atol=1e-7, rtol=0)
    assert_measured(np.array(measure("value_error", plain).value), np.array(0.2), atol=1e-7, rtol=0)
    assert measure("kept_set", plain).value == 0.0


def test_a_bent_ratio_is_off_in_values_alone():
    out = artifact(ROWS, K, P)["renorm.out"].copy()
    out[1, 0] += np.float32(0.01)
    out[1, 1] -= np.float32(0.01)
    found = measure("value_error", cand(out=out))
    share = 0.25 / 0.8
    assert_measured(np.array(found.value), np.array(0.01 / share), atol=1e-6, rtol=0)
    assert found.worst is not None
    assert found.worst.position == 1
    assert measure("sum_error", cand(out=out)).value < 1e-6


def test_an_empty_row_is_no_row():
    out = artifact(ROWS, K, P)["renorm.out"].copy()
    out[0] = 0
    assert measure("kept_set", cand(out=out)).value == 1.0
    assert measure("sum_error", cand(out=out)).value == 1.0
    assert measure("kept_mass", cand(out=out)).value == 1.0
    assert measure("value_error", cand(out=out)).value == math.inf


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf, -0.1])
@pytest.mark.parametrize("name", ["in", "out"])
def test_values_that_are_no_probabilities_are_counted_and_spoil_the_rest(value, name):
    held = artifact(ROWS, K, P)
    bent = held[f"renorm.{name}"].copy()
    bent[1, 2] = value
    held[f"renorm.{name}"] = bent
    wrong = side("rocm", {"a": held})
    found = measure("nonfinite", wrong)
    assert found.value == 1.0
    assert found.worst is not None
    assert found.worst.place == "a position 1 (renorm row 1)"
    for other in ("kept_set", "kept_mass", "sum_error", "value_error"):
        one = measure(other, wrong)
        assert one.value is None
        assert "1 values in 1 of cand's 4 renorm rows are NaN" in str(one.why_undefined)


def test_rows_of_zeros_stay_zeros():
    zero = ((0.0,) * 5, ROW)
    held = artifact((ROW, ROW), (2, 2), (0.9, 0.9))
    held |= {"renorm.in": np.asarray(zero, np.float32)}
    held["renorm.out"] = held["renorm.out"].copy()
    held["renorm.out"][0] = 0
    good, ref = (
        side("rocm", {"a": held}),
        side("cuda", {"a": artifact((ROW, ROW), (2, 2), (0.9, 0.9))}),
    )
    assert measure("kept_set", good, ref).value == 0.0
    assert measure("sum_error", good, ref).value < 1e-6
    held = held | {"renorm.out": np.full((2, 5), 0.2, np.float32)}
    bad = measure("kept_set", side("rocm", {"a": held}), ref)
    assert bad.worst is not None
    assert "a row of zeros gives 1" in str(bad.worst.detail) or bad.value == 2.0


def test_an_input_that_the_op_wrote_is_seen():
    held = artifact(ROWS, K, P, in_after_sha256=np.zeros(32, np.uint8))
    found = measure(
        "input_unchanged",
        side("rocm", {"a": held, "b": artifact(ROWS, K, P)}),
        ref=side("cuda", {"a": artifact(ROWS, K, P), "b": artifact(ROWS, K, P)}),
    )
    assert (found.value, found.n) == (1.0, 2)
    assert found.worst is not None
    assert found.worst.prompt == "a"


def test_each_side_is_judged_on_its_own_rows():
    other = cand(rows=((0.5, 0.2, 0.1, 0.1, 0.1), TIED), k=(1, 3), p=(0.3, 1.0))
    ref = side("cuda", {"a": artifact((ROW, ROW), (1, 3), (0.3, 1.0))})
    assert [measure(name, other, ref).value for name in ("kept_set", "nonfinite")] == [0.0, 0.0]


def test_narrow_outputs_round_once_more():
    def narrow(row, k, p):
        return engine(row, k, p).astype(ml_dtypes.bfloat16).astype(np.float32)

    held = artifact(ROWS, K, P, by=narrow)
    held["renorm.out"] = held["renorm.out"].astype(ml_dtypes.bfloat16)
    found = measure("value_error", side("rocm", {"a": held}))
    assert found.value is not None
    assert 1e-4 < found.value <= 2**-8
    assert measure("kept_set", side("rocm", {"a": held})).value == 0.0
    assert measure("kept_set", cand(), ref=side("cuda", {"a": held})).value == 0.0


def broken_out():
    out = artifact(ROWS, K, P)["renorm.out"].copy()
    out[1, 2] = 0
    return out


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ({"out": broken_out()}, "a position 1 (renorm row 1) keeps 2 entries, the oracle 3"),
        ({"out": np.full((4, 5), np.nan, np.float32)}, "holds 5 values that are no probabilities"),
        ({"out": artifact(ROWS, K, P)["renorm.out"] * np.float32(0.9)}, "is off by 0.1 in its sum"),
        ({"in_after_sha256": np.zeros(32, np.uint8)}, "the input of a was another after the call"),
    ],
)
def test_a_ref_that_breaks_its_own_rows_is_blamed(name, changes, told):
    found = measure(name, cand(), ref=side("cuda", {"a": artifact(ROWS, K, P, **changes)}))
    assert found.value is None
    assert found.undefined_kind == "unlike"
    assert str(found.why_undefined).startswith("REF_BLAMED: ref 'cuda' breaks its own rows: ")
    assert told in str(found.why_undefined)


@pytest.mark.parametrize("name", NAMES)
def test_without_rows_nothing_is_measured(name):
    bare = side("rocm", {"a": {"logits": np.zeros((2, 5), np.float32)}})
    for ref, other in ((REF, bare), (bare, cand())):
        found = measure(name, other, ref=ref)
        assert found.value is None
        assert "holds no renorm rows; capture it with them" in str(found.why_undefined)


@pytest.mark.parametrize("ties", [None, "guess"])
def test_a_tie_rule_is_declared_not_guessed(ties):
    found = measure("kept_set", cand(ties=ties))
    assert found.undefined_kind == "unlike"
    assert "cand 'rocm' declares no tie rule" in str(found.why_undefined)
    assert "known are all and exactly_k" in str(found.why_undefined)


def test_rows_of_other_prompts_are_unlike():
    more = side("rocm", {"a": artifact(ROWS, K, P), "b": artifact(ROWS, K, P)})
    ref = side("cuda", {"a": artifact(ROWS, K, P), "b": {"logits": np.zeros((2, 5), np.float32)}})
    found = measure("kept_set", more, ref=ref)
    assert found.undefined_kind == "unlike"
    assert "ref holds renorm rows of 1 prompts and cand of 2; b is one of 1" in str(
        found.why_undefined
    )


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ({"out": np.zeros((3, 5), np.float32)}, "renorm.in (4, 5) and renorm.out (3, 5) are not"),
        (
            {"top_k": np.array([1, 2], np.int32)},
            "renorm.top_k (2,) is not one number for each of 4",
        ),
        ({"top_k": np.ones(4, np.float32)}, "renorm.top_k holds float32, not integers"),
        ({"out": np.zeros((4, 5), np.int32)}, "renorm.out holds int32, not a float format"),
        ({"top_p": np.full(4, np.nan, np.float32)}, "renorm.top_p holds NaN"),
        ({"in_after_sha256": np.zeros(31, np.uint8)}, "is uint8 (31,), not 32 bytes"),
        (
            {"in": np.zeros((4, 0), np.float32), "out": np.zeros((4, 0), np.float32)},
            "renorm.in (4, 0) and renorm.out (4, 0) are not",
        ),
    ],
)
def test_misshapen_rows_are_named(changes, told):
    found = measure("kept_set", side("rocm", {"a": artifact(ROWS, K, P, **changes)}))
    assert found.undefined_kind == "unlike"
    assert told in str(found.why_undefined)


def test_lacking_tensors_are_named():
    held = artifact(ROWS, K, P)
    del held["renorm.out"]
    found = measure("kept_set", side("rocm", {"a": held}))
    assert "cand 'rocm' a holds renorm rows without renorm.out" in str(found.why_undefined)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ({"k": (3, OFF, 2, OFF)}, "row 3 (position 3): top_k is 4 in ref, 1.07374182e+09 in cand"),
        (
            {"p": (1.0, 1.0, 1.0, 0.82)},
            "row 1 (position 1): top_p is 0.699999988 in ref, 1 in cand",
        ),
        ({"positions": np.array([0, 1, 3, 2])}, "row 2 (position 2): position is 2 in ref, 3 in"),
        ({"rows": ROWS[:3], "k": K[:3], "p": P[:3]}, "a renorm row 3 is in ref alone"),
    ],
)
def test_a_cand_that_was_asked_otherwise_is_unlike(name, changes, told):
    found = measure(name, cand(**changes))
    assert found.value is None
    assert found.undefined_kind == "unlike"
    assert "ref and cand did not filter the same rows alike: a renorm row " in found.why_undefined
    assert told in found.why_undefined


def test_a_k_that_keeps_all_is_one_question_whatever_its_size():
    assert measure("kept_set", cand(k=(3, 5, 2, 4))).value == 0.0
    assert measure("kept_set", cand(k=(3, 4, 2, 4))).value is None


@pytest.mark.parametrize("name", NAMES)
def test_filters_that_are_off_everywhere_test_nothing(name):
    off = artifact(ROWS, (OFF,) * 4, (1.0,) * 4)
    found = measure(name, side("rocm", {"a": off}), side("cuda", {"a": off}))
    assert found.value is None
    assert found.undefined_kind == "no_data"
    assert "none of the 4 renorm rows of ref 'cuda' has a token to remove" in found.why_undefined


def with_logits(rows=ROWS, given=None, places=(0, 1, 2, 3)):
    """Rows beside the logits, by log, that they come from; a probability of 0 is -inf."""
    with np.errstate(divide="ignore"):
        logits = np.log(np.asarray(rows, np.float64)).astype(np.float32) + np.float32(3)
    held = artifact(ROWS if given is None else given, K, P)
    held["renorm.positions"] = np.asarray((0, 1, 2, 3), np.int32)
    return held | {"logits": logits, "logits.positions": np.asarray(places, np.int32)}


def test_rows_are_the_softmax_of_their_own_logits():
    ref = side("cuda", {"a": with_logits()})
    assert measure("kept_set", side("rocm", {"a": with_logits()}), ref).value == 0.0
    rolled = (ROW, np.roll(ROW, 1).tolist(), TIED, ROW)
    found = measure("kept_set", side("rocm", {"a": with_logits(given=rolled)}), ref)
    assert found.undefined_kind == "unlike"
    assert (
        "cand 'rocm' a: renorm.in row 1 (position 1) is not the softmax of its own logits: "
        "id 0 has probability 0.05, its logits give 0.35 (5 of 5 ids differ)"
    ) in found.why_undefined
    apart = with_logits(given=rolled, places=(0, 7, 2, 3))  # no logits of position 1
    assert measure("kept_set", side("rocm", {"a": apart}), ref).value == 0.0


def test_logits_that_are_no_numbers_are_left_to_their_own_gate():
    ref = side("cuda", {"a": with_logits()})
    for bad in (np.nan, np.inf):
        held = with_logits()
        held["logits"] = held["logits"].copy()
        held["logits"][1, 2] = bad
        assert measure("kept_set", side("rocm", {"a": held}), ref).value == 0.0


def test_a_softmax_may_be_off_by_rounding_alone():
    ref = side("cuda", {"a": with_logits()})
    for off, right in ((5e-6, True), (2e-5, False)):
        bent = (tuple(x * (1 + off * (-1) ** i) for i, x in enumerate(ROW)), *ROWS[1:])
        found = measure("kept_set", side("rocm", {"a": with_logits(given=bent)}), ref)
        assert (found.value is not None) is right
