"""Gate, convolution, mix, router, sum, activation, norm: ours keep the contracts; oracles by hand."""

import importlib
from itertools import product

import ml_dtypes
import numpy as np
import pytest

from tests.measured import assert_measured
from tests.unit.conformance.sweeping import clauses, settings_of, sweep
from validate.conformance.captured_linear import TOKENS, captured
from validate.conformance.engines.torch_linear import IMPLEMENTATIONS
from validate.conformance.ops import attn_res, moe_route, rms_norm, short_conv, situ
from validate.conformance.ops._route_inputs import RoutePoint, make_case
from validate.conformance.ops.moe_combine import combine
from validate.conformance.records import Effort

NAMES = ("kda_gate", "short_conv", "attn_res", "moe_route", "moe_combine", "situ", "rms_norm")
OPERATIONS = {
    name: importlib.import_module(f"validate.conformance.ops.{name}").OPERATION for name in NAMES
}
OURS = [one for one in IMPLEMENTATIONS if one.op in NAMES]


def ours(op):
    return next(one.function for one in OURS if one.op == op)


@pytest.mark.parametrize("one", OURS, ids=[f"{one.op}-{one.name}" for one in OURS])
def test_ours_keep_the_contract(one):
    assert sweep(OPERATIONS[one.op], one.function, **one.settings) == {}


def test_the_gated_norm_keeps_its_contract():
    assert sweep(OPERATIONS["rms_norm"], ours("rms_norm"), gate="sigmoid") == {}


@pytest.mark.parametrize("op", NAMES)
def test_points_have_unique_ids(op):
    operation = OPERATIONS[op]
    for effort in (Effort.QUICK, Effort.FULL) if op in {"situ", "kda_gate"} else (Effort.QUICK,):
        ids = [case.id for case in operation.cases(effort, settings_of(operation))]
        assert len(set(ids)) == len(ids)


@pytest.mark.parametrize("op", NAMES)
def test_smaller_cases_are_smaller_and_well_formed(op):
    operation = OPERATIONS[op]
    settings = settings_of(operation)
    cases = list(operation.cases(Effort.QUICK, settings))[:8]
    smaller = [one for case in cases for one in operation.shrink(case)][:60]

    assert smaller
    assert sweep(operation, ours(op), cases=smaller) == {}


@pytest.mark.parametrize("op", NAMES)
def test_every_axis_value_that_is_promised_is_swept(op):
    operation = OPERATIONS[op]
    cases = list(operation.cases(Effort.QUICK, settings_of(operation)))
    axes = {name: {case.axes[name] for case in cases} for name in cases[0].axes}

    assert {"bfloat16", "float32"} <= axes["dtype"]
    assert "repeats" in axes["probe"]
    if "rows" in axes:
        assert {1, 2, 3, 5} <= axes["rows"]
        assert "row" in axes["poison"]
    if op in {"kda_gate", "rms_norm"}:
        assert {4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128} <= axes["heads"]
    if op == "moe_route":
        assert (896, 16) in {(case.axes["experts"], case.axes["top_k"]) for case in cases}


def _truth(module, **inputs):
    return module._expected(inputs)


def test_situ_by_hand():
    """g = 0 gives 0; g = 8, u = 50 at betas 4 and 25: 4 tanh 2 sigmoid 8 times 25 tanh 2."""
    gate = np.array([[0.0, 8.0]], dtype=np.float32)
    up = np.array([[1.0, 50.0]], dtype=np.float32)

    (y,) = _truth(situ, gate=gate, up=up, beta=4.0, linear_beta=25.0).values()

    expected = [0.0, 4 * np.tanh(2) / (1 + np.exp(-8)) * 25 * np.tanh(2)]
    assert_measured(y.values[0], expected, atol=0, rtol=1e-12)
    assert y.scale[0, 0] < 1e-5


def test_rms_norm_by_hand():
    """(3, 4): mean square 12.5; with eps 12.5 divided by 5; gate 0 halves it."""
    x = np.array([[[3.0, 4.0]]], dtype=np.float32)
    weight = np.array([1.0, 2.0], dtype=np.float32)

    (y,) = _truth(rms_norm, x=x, weight=weight, eps=12.5, gate=np.zeros_like(x)).values()

    assert_measured(y.values[0, 0], [0.3, 0.8], atol=0, rtol=1e-12)
    # One store in float32 and 4 + sqrt(2) roundoffs inside.
    assert_measured(y.scale[0, 0], np.array([0.3, 0.8]) * 2**-24 * (5 + 2**0.5), atol=0, rtol=1e-9)


def test_short_conv_by_hand():
    """Kernel (1, 2): y_1 = silu(x_0 + 2 x_1); the state of a sequence is its last input."""
    inputs = {
        "x": np.array([[1.0], [2.0], [5.0]], dtype=np.float32),
        "weight": np.array([[1.0, 2.0]], dtype=np.float32),
        "state": np.array([[[0.0]], [[-1.0]]], dtype=np.float32),
        "cu_seqlens": np.array([0, 2, 3]),
    }

    one, two = short_conv._truths(inputs, {})

    def silu(z):
        return z / (1 + np.exp(-z))

    assert_measured(one["y"].values[:, 0], [silu(2.0), silu(5.0)], atol=0, rtol=1e-12)
    assert_measured(two["y"].values[:, 0], [silu(9.0)], atol=0, rtol=1e-12)
    assert one["final_state"].values.tolist() == [[[2.0]]]
    assert not one["final_state"].scale.any()


def test_attn_res_with_an_empty_bank_wants_the_prefix_bit_for_bit():
    prefix = np.array([[1.5, -2.0]], dtype=np.float32)
    inputs = {
        "bank": np.zeros((0, 1, 2), dtype=np.float32),
        "prefix": prefix,
        "norm": np.ones(2, dtype=np.float32),
        "proj": np.ones(2, dtype=np.float32),
        "eps": 1e-5,
    }

    (mixed,) = attn_res._expected(inputs, {"weights": "float32"}).values()

    assert mixed.values.tolist() == prefix.tolist()
    assert not mixed.scale.any()


def test_combine_by_hand():
    """0.25 (4 + 1) + 0.75 (8 + 2) + 1 = 9.75; the slot with id -1 holds NaN and is not read."""
    made = np.array([[[4.0], [8.0], [np.nan]]])
    ids, weights = np.array([[0, 1, -1]]), np.array([[0.25, 0.75, 0.0]])

    y = combine(made, ids, weights, bias=np.array([[1.0], [2.0]]), shared=np.array([[1.0]]))

    assert y.tolist() == [[9.75]]


def _routed(ids, weights, **changes):
    """Breaches of one answer to one row: logits 2, 1, 0, 0 of four experts, top 2."""
    inputs = {
        "logits": np.array([[2.0, 1.0, 0.0, 0.0]], dtype=np.float32),
        "correction_bias": np.zeros(4, dtype=np.float32),
        "top_k": 2,
        "renormalize": True,
        "scale": 1.0,
        "valid_rows": 1,
    } | changes
    got = {
        "ids": np.array(ids, dtype=np.int32),
        "weights": np.array(weights, dtype=np.float32),
    }
    settings = settings_of(OPERATIONS["moe_route"], ties="lowest_index")
    found = moe_route._judged(inputs, got, settings, np.arange(1))
    return {one.clause for one in found}


def test_router_clauses_by_hand():
    s2, s1, s0 = 1 / (1 + np.exp(-2.0)), 1 / (1 + np.exp(-1.0)), 0.5
    right = [s2 / (s2 + s1), s1 / (s2 + s1)]

    assert _routed([[0, 1]], [right]) == set()
    assert _routed([[1, 0]], [right[::-1]]) == {"falling"}
    assert _routed([[0, 2]], [[s2 / (s2 + s0), s0 / (s2 + s0)]]) == {"choice"}
    assert _routed([[0, 0]], [right]) == {"ids"}
    assert _routed([[0, 4]], [right]) == {"ids"}
    assert "element" in _routed([[0, 1]], [[s2, s1]])
    assert _routed([[0, 1]], [[np.nan, right[1]]]) == {"finite"}


def test_a_tie_is_free_unless_the_lowest_index_is_declared():
    tied = {"logits": np.array([[2.0, 0.0, 0.0, 0.0]], dtype=np.float32)}
    s2 = 1 / (1 + np.exp(-2.0))
    weights = [[s2 / (s2 + 0.5), 0.5 / (s2 + 0.5)]]

    assert _routed([[0, 1]], weights, **tied) == set()
    assert _routed([[0, 3]], weights, **tied) == {"tie"}


def test_narrow_bias_collapses_in_bfloat16_as_in_the_public_report():
    """Biases in [6.817, 7.063] have at most nine bfloat16 values (sgl-project/sglang#31213)."""
    bias = make_case(RoutePoint(bias="narrow", experts=64)).inputs["correction_bias"]

    assert len(np.unique(bias)) == 64
    assert len(np.unique(bias.astype(ml_dtypes.bfloat16).astype(np.float32))) <= 9


def test_no_allowance_hides_a_silent_no_op():
    """An implementation that returns zeros fails every operation."""
    import torch

    def zeros(op):
        def function(**inputs):
            specs = OPERATIONS[op].outputs(
                {name: _array(value) for name, value in inputs.items()}, settings_of(OPERATIONS[op])
            )
            made = [
                torch.zeros(one.shape, dtype=getattr(torch, one.dtype)) for one in specs.values()
            ]
            return tuple(made) if len(made) > 1 else made[0]

        return function

    def _array(value):
        from validate.conformance.arrays import to_numpy

        return to_numpy(value) if isinstance(value, torch.Tensor) else value

    for op in NAMES:
        found = sweep(OPERATIONS[op], zeros(op), enough=3)
        assert len(found) == 3, op
        assert clauses(found)


def test_captured_activations_are_those_of_twelve_heads():
    held = captured()

    assert held["kda.q"].shape == (TOKENS, 12, 16)
    assert held["mix.bank"].shape == (3, TOKENS, 256)
    assert held["kda.q"].dtype.name == "bfloat16"
    for name, array in product(("kda.b", "route.logits"), (held,)):
        assert array[name].dtype == np.float32
    assert all(np.isfinite(array.astype(np.float64)).all() for array in held.values())
