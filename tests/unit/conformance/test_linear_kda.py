"""KDA contracts: our implementations keep them, the oracle and its error model by hand."""

import numpy as np
import pytest

from tests.measured import assert_measured
from tests.unit.conformance.sweeping import settings_of, sweep
from validate.conformance.engines.torch_linear import IMPLEMENTATIONS
from validate.conformance.ops import kda_chunk, kda_recurrent
from validate.conformance.ops._kda_inputs import KdaPoint
from validate.conformance.ops._kda_truth import Rounding, kda_truth, merge_heads, of_head
from validate.conformance.ops._packed import bounds, piece, take
from validate.conformance.records import Effort
from validate.numerics import rel_l2
from validate.oracle import kda_chunk as oracle_chunk

MODULES = {"kda_chunk": kda_chunk, "kda_recurrent": kda_recurrent}
OURS = [one for one in IMPLEMENTATIONS if one.op in MODULES]
EXACT = Rounding(operands=2.0**-24, sums=2.0**-24, out=2.0**-24, state=0.0, chunk=1, state_every=1)


@pytest.mark.parametrize("ours", OURS, ids=[f"{one.op}-{one.name}" for one in OURS])
def test_ours_keep_the_contract(ours):
    assert sweep(MODULES[ours.op].OPERATION, ours.function, **ours.settings) == {}


@pytest.mark.parametrize("op", MODULES)
def test_points_have_unique_ids_and_every_hazard(op):
    operation = MODULES[op].OPERATION
    cases = list(operation.cases(Effort.QUICK, settings_of(operation)))

    assert len({case.id for case in cases}) == len(cases)
    assert {case.axes["heads"] for case in cases} >= {6, 8, 12, 24, 48, 96, 128}
    assert {case.axes["decay"] for case in cases} == {"typical", "slow", "strong", "mixed"}
    assert {"run", "recall", "zero", "tiny", "captured"} <= {case.axes["keys"] for case in cases}
    assert {1, 2, 3, 5} <= {case.axes["sequences"] for case in cases}
    assert {"padding", "sequence", "none"} <= {case.axes["poison"] for case in cases}
    probes = {case.axes["probe"] for case in cases}
    assert probes == {"plain", "alone", "order", "pieces", "repeats", "causal"}
    lengths = {case.axes["tokens"] for case in cases}
    wanted = {1, 2, 15, 16, 17, 63, 64, 65} if op == "kda_chunk" else {1, 2, 4, 8}
    assert wanted <= lengths


@pytest.mark.parametrize("op", MODULES)
def test_a_kernel_of_one_shape_and_dtype_sees_no_other(op):
    operation = MODULES[op].OPERATION
    settings = settings_of(operation, shape="12x128", dtype="bfloat16")

    for case in operation.cases(Effort.QUICK, settings):
        assert case.inputs["q"].shape[1:] == (12, 128)
        assert case.inputs["v"].shape[1:] == (12, 128)
        assert case.inputs["v"].dtype.name == "bfloat16"


def _one_token(**changes):
    """One head, key 2, value 1: k = (1, 0), so that everything can be done by hand."""
    one = {
        "q": [[[3.0, 4.0]]],
        "k": [[[2.0, 0.0]]],
        "v": [[[10.0]]],
        "f": [[[0.0, 0.0]]],
        "b": [[0.0]],
    }
    made = {name: np.array(value, dtype=np.float32) for name, value in (one | changes).items()}
    return made | {
        "a_log": np.zeros(1, dtype=np.float32),
        "dt_bias": np.zeros((1, 2), dtype=np.float32),
        "lower_bound": -2.0,
        "cu_seqlens": np.array([0, 1]),
    }


def test_the_oracle_of_one_token_by_hand():
    """g = -2 sigmoid(0) = -1; S = e^-1 (8, 6) first; beta = 1/2: S_0 = (8/e + 10)/2, S_1 = 6/e;
    o = (3 S_0 + 4 S_1) / 5 / sqrt(2)."""
    state = np.array([[[[8.0], [6.0]]]])

    (truth,) = kda_truth(_one_token(), state, EXACT)

    s = [(8 / np.e + 10) / 2, 6 / np.e]
    assert_measured(truth["final_state"].values[0, 0, 0], s, atol=0, rtol=1e-6)
    out = (3 * s[0] + 4 * s[1]) / 5 / np.sqrt(2)
    assert_measured(truth["out"].values[0, 0], [out], atol=0, rtol=1e-6)


def test_the_error_of_one_write_by_hand():
    """From zeros, operands of roundoff u alone: variance (u beta)^2 (2 v^2), so sqrt(2) u 5."""
    u = 2.0**-8
    only = Rounding(operands=u, sums=0.0, out=0.0, state=0.0, chunk=1, state_every=1)

    (truth,) = kda_truth(_one_token(), None, only)

    # The write, again for a chunk of one, and the stored operand u |S|.
    written = np.sqrt(2.0) * u * 0.5 * 10.0
    expected = np.sqrt(2.0) * written + u * 5.0
    assert_measured(truth["final_state"].scale[0, 0, 0, 0], expected, atol=0, rtol=1e-5)


def test_oracle_agrees_with_the_chunked_derivation_and_heads_stand_alone():
    point = KdaPoint(lengths=(37, 5), heads=3, key=8, value=6, dtype="float32", initial=True)
    settings = settings_of(kda_chunk.OPERATION)
    inputs = kda_chunk.make_case(point, settings).inputs
    wide = {name: inputs[name].astype(np.float64) for name in ("q", "k", "v", "f", "b")}

    found = kda_truth(inputs, inputs["initial_state"], EXACT)

    for n, (start, end) in enumerate(bounds(inputs)):
        second = oracle_chunk(
            **{name: array[start:end] for name, array in wide.items()},
            a_log=inputs["a_log"].astype(np.float64),
            dt_bias=inputs["dt_bias"].astype(np.float64),
            lower_bound=-5.0,
            state=inputs["initial_state"][n].astype(np.float64),
        )
        assert float(rel_l2(second.out, found[n]["out"].values)) < 1e-12
    alone = [of_head(inputs, inputs["initial_state"], head) for head in range(3)]
    merged = merge_heads([kda_truth(*one, EXACT) for one in alone])
    for one, other in zip(found, merged, strict=True):
        for name, truth in one.items():
            assert_measured(other[name].values, truth.values, atol=1e-15, rtol=1e-12)
            assert_measured(other[name].scale, truth.scale, atol=1e-30, rtol=1e-9)


def test_repacking_keeps_every_sequence_whole():
    inputs = {
        "x": np.arange(6.0),
        "cu_seqlens": np.array([0, 2, 2, 5]),  # token 5 is padding
        "state": np.array([10.0, 11.0, 12.0]),
    }
    names = {"per_token": ("x",), "per_sequence": ("state",)}

    moved = take(inputs, [2, 0, 1], **names)

    assert moved["x"].tolist() == [2.0, 3.0, 4.0, 0.0, 1.0]
    assert moved["cu_seqlens"].tolist() == [0, 3, 5, 5]
    assert moved["state"].tolist() == [12.0, 10.0, 11.0]
    head, tail = (piece(inputs, 1, first=first, per_token=("x",)) for first in (True, False))
    assert (head["x"].tolist(), head["cu_seqlens"].tolist()) == ([0.0, 2.0], [0, 1, 1, 2])
    assert (tail["x"].tolist(), tail["cu_seqlens"].tolist()) == ([1.0, 3.0, 4.0], [0, 1, 1, 3])


@pytest.mark.parametrize("op", MODULES)
def test_smaller_cases_are_smaller_and_well_formed(op):
    operation = MODULES[op].OPERATION
    settings = settings_of(operation)
    ours = next(one for one in OURS if one.op == op)
    point = KdaPoint(lengths=(9, 0, 4), heads=5, initial=True)
    case = MODULES[op].make_case(point, settings)

    smaller = list(operation.shrink(case))

    assert {one.axes["heads"] for one in smaller} >= {2, 3, 4}
    assert {one.axes["sequences"] for one in smaller} == {1, 3}
    assert {one.axes["tokens"] for one in smaller} >= {4, 8}
    assert sweep(operation, ours.function, cases=smaller) == {}


def test_states_of_the_pool_are_found_by_slot_and_the_rest_is_nan():
    point = KdaPoint(lengths=(1, 1, 1), initial=True, poison="slots")
    inputs = kda_recurrent.make_case(point, settings_of(kda_recurrent.OPERATION)).inputs

    assert inputs["states"].shape[0] == 7
    unused = np.setdiff1d(np.arange(7), inputs["slots"])
    assert np.isnan(inputs["states"][unused]).all()
    assert np.isfinite(inputs["states"][inputs["slots"]]).all()
