"""The float64 truth, its limits, and what the judge says of a result."""

import math

import numpy as np
import pytest

from tests.measured import assert_measured
from validate.conformance.ops._attention_judge import differing, judge, under
from validate.conformance.ops._attention_truth import (
    absorbed_truth,
    dense_truth,
    no_keys,
    precision_of,
    rows_of,
    stack,
)

BF16 = precision_of("bfloat16", "bfloat16")


def test_absorbed_truth_of_two_keys_is_the_hand_made_one():
    # Closed form: scores 0 and ln 3, weights 1/4 and 3/4, values 8 and 4.
    q = np.array([[[1.0, 0.0]]])
    kv = np.array([[0.0, 8.0], [math.log(3.0), 4.0]])
    truth = absorbed_truth(q, kv, latent=2, scale=1.0, first=1, precision=BF16)
    assert_measured(truth.out[0, 0], [0.75 * math.log(3.0), 5.0], atol=1e-15, rtol=0)
    assert_measured(truth.lse, [[math.log(4.0)]], atol=1e-15, rtol=0)


def test_dense_truth_masks_the_future_and_keeps_heads_apart():
    # Closed form: row 0 sees key 0 alone; row 1 weighs 1/4 and 3/4.
    q = np.ones((2, 2, 1))
    k = np.array([[[0.0], [5.0]], [[math.log(3.0)], [5.0]]])
    v = np.array([[[8.0], [1.0]], [[4.0], [3.0]]])
    truth = dense_truth(q, k, v, scale=1.0, first=0, precision=BF16)
    assert_measured(truth.out[:, :, 0], [[8.0, 1.0], [5.0, 2.0]], atol=1e-14, rtol=0)


def test_limit_of_one_key_is_the_rounding_of_its_value():
    # One key: weight 1 exactly but for 2 u of its format; the result is rounded once by u.
    truth = dense_truth(
        np.zeros((1, 1, 1)), np.zeros((1, 1, 1)), np.full((1, 1, 1), 2.0),
        scale=1.0, first=0, precision=BF16,
    )  # fmt: skip
    assert_measured(truth.element[0, 0, 0], 3 * 2.0**-8 * 2.0, atol=1e-4, rtol=0)


def test_precision_names_the_weights_of_float8_operands():
    assert precision_of("float8_e4m3fn", "bfloat16").weights == 2.0**-4
    assert precision_of("float8_e4m3fn", "bfloat16").floor == 2.0**-10
    assert precision_of("float16", "float16").out_floor == 2.0**-25


def truth_and_result(seed=0, rows=3, heads=5):
    rng = np.random.default_rng(seed)
    q, k, v = (rng.standard_normal((n, heads, w)) for n, w in ((rows, 8), (40, 8), (40, 6)))
    truth = dense_truth(q, k, v, scale=0.3, first=40, precision=BF16)
    return truth, truth.out.copy(), truth.lse.astype(np.float32)


def test_the_truth_itself_passes():
    truth, out, lse = truth_and_result()
    assert judge(out, lse, truth) == ()


def test_one_wrong_element_is_named():
    truth, out, lse = truth_and_result()
    out[1, 4, 2] += 1.0
    clauses = {b.clause: b for b in judge(out, lse, truth)}
    assert set(clauses) == {"out", "out-row", "out-bulk"}
    assert clauses["out"].at == {"row": 1, "head": 4, "column": 2}
    assert clauses["out-row"].wrong == {"row": (1,), "head": (4,)}
    assert (clauses["out"].ratio or 0) > 10


def test_an_error_in_every_element_below_its_bound_fails_the_rows_and_the_bulk():
    truth, out, lse = truth_and_result(heads=40)
    broken = {b.clause for b in judge(out + 0.99 * truth.element, lse, truth)}
    assert broken == {"out-row", "out-bulk"}


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_a_number_that_is_not_finite_never_passes(value):
    truth, out, lse = truth_and_result()
    out[2, 0, 0] = value
    (breach,) = judge(out, lse, truth)
    assert breach.clause == "finite"
    assert breach.at == {"row": 2, "head": 0}
    lse[0, 1] = value
    assert "2 of" not in judge(truth.out, lse, truth)[0].what
    assert judge(truth.out, lse, truth)[0].clause == "finite"


def test_base_2_is_told():
    truth, out, lse = truth_and_result()
    (breach,) = judge(out, (lse / np.float32(math.log(2.0))), truth)
    assert breach.clause == "lse"
    assert "this is a base-2 log" in breach.what


@pytest.mark.parametrize(
    ("out", "lse"), [(0.0, np.inf), (0.0, 0.0), (1.0, -np.inf), (np.nan, -np.inf)]
)
def test_a_row_without_a_key_is_zero_and_minus_infinity(out, lse):
    truth = no_keys(1, 1, 2)
    assert judge(np.zeros((1, 1, 2)), np.full((1, 1), -np.inf), truth) == ()
    (breach,) = judge(np.full((1, 1, 2), out), np.full((1, 1), lse), truth)
    assert breach.clause == "empty"
    assert "expected -inf" in breach.what


def test_bits_that_differ_are_placed_and_nan_equals_itself():
    one = {"out": np.array([[[1.0, np.nan]]], dtype=np.float32)}
    assert differing("repeat", one, {"out": one["out"].copy()}, "twice") == ()
    other = {"out": np.array([[[np.nextafter(np.float32(1), np.float32(2)), np.nan]]], np.float32)}
    (breach,) = differing("repeat", one, other, "twice")
    assert breach.what == ("twice: bits differ in 1 of 1 rows and heads, the first at row 0 head 0")
    assert under("batch", (breach,))[0].what.startswith("repeat: twice")


def test_rows_can_be_stacked_and_picked():
    truth, _, _ = truth_and_result()
    both = stack([truth, no_keys(1, 5, 6)])
    assert both.out.shape == (4, 5, 6)
    assert rows_of(both, np.array([3])).lse[0, 0] == -np.inf
