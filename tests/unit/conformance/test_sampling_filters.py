"""Contracts of top-k, top-p and min-p: ours keep them, and each clause has its breach by hand."""

import ml_dtypes
import numpy as np
import pytest

from tests.unit.conformance.sweeping import clauses, settings_of, sweep
from validate.conformance.engines.torch_sampling import IMPLEMENTATIONS
from validate.conformance.ops import min_p, top_k_renorm_prob, top_p_renorm_prob
from validate.conformance.records import Case, Effort

TOP_K, TOP_P, MIN_P = (module.OPERATION for module in (top_k_renorm_prob, top_p_renorm_prob, min_p))
BY_OP = {one.contract.op: one for one in (TOP_K, TOP_P, MIN_P)}
OURS = [one for one in IMPLEMENTATIONS if one.op in BY_OP]
ROW = np.array([[0.35, 0.25, 0.20, 0.15, 0.05]], np.float32)
TIED = np.array([[0.1, 0.3, 0.3, 0.3], [0.4, 0.3, 0.2, 0.1]], np.float32)


def small_cases():
    """Sweep points of at most 37 entries a row; the selftest and the command run them all."""
    for case in TOP_K.cases(Effort.QUICK, settings_of(TOP_K)):
        if case.axes["vocab"] > 37:
            return
        yield case


def broken(operation, out, probs, parameter, **wanted):
    """Clauses that one answer breaks, whatever is asked; in the order given alone."""
    name = operation.contract.op.removesuffix("_renorm_prob")
    case = Case(id="hand", axes={}, inputs={"probs": probs, name: parameter})
    given = np.asarray(out, probs.dtype)

    def call(inputs):
        # Rows are told apart by their values: any order of them gets its own answers.
        rows = [int(np.flatnonzero((probs == row).all(axis=1))[0]) for row in inputs["probs"]]
        return {"out": given[rows]}

    return operation.check(case, call, settings_of(operation, **wanted))


@pytest.mark.parametrize("one", OURS, ids=[f"{one.op}-{one.name}" for one in OURS])
def test_ours_keep_the_contract(one):
    assert sweep(BY_OP[one.op], one.function, **one.settings) == {}


def test_exactly_k_breaks_ties_all_and_is_told_with_row_k_value_and_counts():
    exactly = next(
        one for one in OURS if one.name == "torch:exactly_k" and one.op == TOP_K.contract.op
    )
    found = sweep(TOP_K, exactly.function, cases=small_cases(), ties="all")

    assert clauses(found) == {"ties"}
    assert found["B1-V8-ties-f32-3,off,1"][0].what == (
        "row 0, k 3: tie at 0.114286: 1 of 2 equal entries kept, 3 kept in all; ties=all keeps 4"
    )


def test_all_ties_breaks_exactly_k():
    every = next(
        one for one in OURS if one.name == "torch:all_ties" and one.op == TOP_K.contract.op
    )
    found = sweep(TOP_K, every.function, cases=small_cases(), ties="exactly_k")
    assert clauses(found) == {"ties"}


@pytest.mark.parametrize(
    ("out", "expected"),
    [
        ([[0.35 / 0.6, 0.25 / 0.6, 0, 0, 0]], set()),
        ([[0.35 / 0.6, 0, 0.25 / 0.6, 0, 0]], {"kept-set"}),  # 0.20 kept, 0.25 dropped
        ([[1, 0, 0, 0, 0]], {"kept-set"}),
        ([[0.4375, 0.3125, 0.25, 0, 0]], {"kept-set"}),  # three of .8
        ([[0.35, 0.25, 0, 0, 0]], {"values", "sum"}),  # not divided
        ([[0.35 / 0.6 + 1e-3, 0.25 / 0.6 - 1e-3, 0, 0, 0]], {"values"}),  # sums to 1
        ([[np.nan, 0.25 / 0.6, 0, 0, 0]], {"values"}),
        ([[0, 0, 0, 0, 0]], {"kept-set"}),
    ],
)
def test_top_k_of_two_by_hand(out, expected):
    breaches = broken(TOP_K, out, ROW, np.array([2], np.int32))
    assert {breach.clause for breach in breaches} == expected


def test_ratios_see_what_a_long_sum_hides():
    """Over 163,840 entries the sum is free by 2e-4; one entry off by 1e-5 breaks its ratio."""
    vocab = 163_840
    probs = np.full((1, vocab), 1.0 / vocab, np.float32)
    out = probs / probs.astype(np.float64).sum()
    out[0, 7] *= 1 + 1e-5
    breaches = broken(TOP_K, out, probs, vocab)
    assert [breach.clause for breach in breaches] == ["ratios"]
    assert breaches[0].at == {"row": 0, "entry": 7}


def test_a_dropped_entry_that_is_not_zero():
    probs = np.array([[0.5, 0.5, 0.0]], np.float32)
    breaches = broken(TOP_K, [[0.5, 0.5, 1e-20]], probs, 3)
    assert [breach.clause for breach in breaches] == ["dropped-zero"]


def test_breach_counts_every_row():
    breaches = broken(TOP_K, [[0.25] * 4] * 2, TIED, np.array([1, 1], np.int32))
    assert breaches[0].wrong == {"row": (0, 1)}
    assert breaches[0].what.endswith("2 rows in all")


def test_low_k_is_one_or_off_or_not_asked():
    ids = {
        rule: [case.id for case in TOP_K.cases(Effort.QUICK, settings_of(TOP_K, low_k=rule))]
        for rule in ("clamp", "off", "undefined")
    }
    assert any("0,-1,5" in name for name in ids["clamp"])
    assert any("all 0" in name for name in ids["off"])
    assert not any("0,-1,5" in name or "all 0" in name for name in ids["undefined"])
    whole = broken(TOP_K, ROW, ROW, 0, low_k="off")
    assert (whole, [b.clause for b in broken(TOP_K, ROW, ROW, 0)]) == ((), ["kept-set"])


def test_top_p_needs_its_mass_and_knows_three_rules():
    """0.35 + 0.25 reaches 0.6 of a row of 1; of the row doubled, 0.6 is 0.70 alone."""
    two = [[0.35 / 0.6, 0.25 / 0.6, 0, 0, 0]]
    one = [[1, 0, 0, 0, 0]]
    p = np.array([0.59], np.float32)
    assert broken(TOP_P, two, ROW, p) == ()
    assert [b.clause for b in broken(TOP_P, one, ROW, p)] == ["kept-set"]
    assert broken(TOP_P, two, 2 * ROW, p, mass="relative") == ()
    assert broken(TOP_P, one, 2 * ROW, p, mass="absolute") == ()
    four = [[0.35 / 0.95, 0.25 / 0.95, 0.2 / 0.95, 0.15 / 0.95, 0]]
    assert broken(TOP_P, four, 2 * ROW, np.array([0.81], np.float32), mass="discarded") == ()


def test_top_p_at_its_edge_is_free_within_the_band():
    """p = 0.6 where two entries sum to 0.6 in decimals: two or three may be kept."""
    p = np.array([0.6], np.float32)
    for count in (2, 3):
        kept = np.where(np.arange(5) < count, ROW, 0)
        assert broken(TOP_P, kept / kept.sum(), ROW, p) == ()


@pytest.mark.parametrize(("p", "kept"), [(0.0, 1), (-1.0, 1), (1.0, 5), (2.0, 5)])
def test_top_p_beyond_its_ends(p, kept):
    out = np.where(np.arange(5) < kept, ROW, 0)
    assert broken(TOP_P, out / out.sum(), ROW, p) == ()


def test_min_p_threshold_is_of_the_row_as_it_came():
    """0.5 of 0.35 is 0.175: three stay."""
    out = np.where(ROW >= 0.175, ROW, 0)
    assert broken(MIN_P, out / out.sum(), ROW, np.array([0.5], np.float32)) == ()
    less = np.where(ROW >= 0.21, ROW, 0)
    breaches = broken(MIN_P, less / less.sum(), ROW, np.array([0.5], np.float32))
    assert [breach.clause for breach in breaches] == ["kept-set"]


def test_damaged_rows_are_free_or_ruled():
    probs = np.array([[np.nan, 0.5, 0.5]], np.float32)
    case = Case(id="hand", axes={}, inputs={"probs": probs, "top_k": 2})
    for rule, value, right in (
        ("any", 7.0, True),
        ("nan", np.nan, True),
        ("nan", 0.0, False),
        ("zeros", 0.0, True),
        ("zeros", np.nan, False),
    ):
        out = np.full((1, 3), value, np.float32)
        breaches = TOP_K.check(
            case, lambda _, out=out: {"out": out}, settings_of(TOP_K, damaged=rule)
        )
        assert ([b.clause for b in breaches] == []) is right


def test_repeats_are_compared_by_kept_set():
    answers = iter([[1.0, 0, 0], [1.0, 0, 0], [0, 1.0, 0]])
    probs = np.array([[0.4, 0.4, 0.2]], np.float32)
    case = Case(id="hand", axes={}, inputs={"probs": probs, "top_k": 1})
    breaches = TOP_K.check(
        case,
        lambda _: {"out": np.array([next(answers)], np.float32)},
        settings_of(TOP_K, ties="exactly_k"),
    )
    assert [breach.clause for breach in breaches] == ["repeats"]


def test_output_dtype_is_the_input_or_float32():
    probs = ROW.astype(ml_dtypes.bfloat16)
    inputs = {"probs": probs, "top_k": 1}
    assert TOP_K.outputs(inputs, settings_of(TOP_K))["out"].dtype == "bfloat16"
    assert TOP_K.outputs(inputs, settings_of(TOP_K, output="float32"))["out"].dtype == "float32"


@pytest.mark.parametrize("operation", BY_OP.values(), ids=BY_OP)
def test_sweep_has_the_hazards_that_the_contract_names(operation):
    cases = list(operation.cases(Effort.QUICK, settings_of(operation)))
    axes = {key: {case.axes[key] for case in cases} for key in ("rows", "vocab", "dtype", "hazard")}
    assert axes["rows"] >= {0, 1, 2, 3, 5}
    assert axes["vocab"] >= {8, 500, 2047, 2048, 163_840}
    assert axes["dtype"] == {"float32", "bfloat16", "float16"}
    assert axes["hazard"] == {"none", "zero-row", "nan-row", "inf-row"}
    assert sum(case.axes["vocab"] == 163_840 for case in cases) <= 2
    assert len({case.id for case in cases}) == len(cases)


def test_shrinking_gives_fewer_rows_then_fewer_columns():
    case = Case(
        id="c",
        axes={"rows": 2, "vocab": 4},
        inputs={"probs": TIED, "top_k": np.array([2, 1], np.int32)},
    )
    smaller = list(TOP_K.shrink(case))
    assert {one.inputs["probs"].shape for one in smaller} == {(1, 4), (2, 2), (2, 3)}
    assert all(len(one.inputs["top_k"]) == len(one.inputs["probs"]) for one in smaller)
    assert smaller[0].axes["rows"] == 1
