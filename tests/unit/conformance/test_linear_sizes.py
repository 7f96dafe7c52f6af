"""Sizes at which a wrong kernel used to pass the quick sweeps: each is caught now."""

import pytest

from tests.unit.conformance.sweeping import clauses, settings_of, sweep
from validate.conformance.engines.torch_linear import IMPLEMENTATIONS
from validate.conformance.ops import (
    attn_res,
    kda_chunk,
    kda_gate,
    moe_combine,
    moe_route,
    rms_norm,
    short_conv,
    situ,
)
from validate.conformance.records import Effort
from validate.faults import _linear_rows as rows, _linear_sizes as sizes

ROWS = {
    "rms_norm": rms_norm,
    "situ": situ,
    "attn_res": attn_res,
    "kda_gate": kda_gate,
    "moe_combine": moe_combine,
    "moe_route": moe_route,
}


def ours(op):
    return next(one.function for one in IMPLEMENTATIONS if one.op == op)


@pytest.mark.parametrize("length", [48, 96, 128, 192, 256])
def test_a_chunked_kernel_wrong_at_one_length_is_caught(length):
    wrong = sizes.spoilt_chunk(lambda step: step == length)

    found = sweep(kda_chunk.OPERATION, wrong, enough=1)

    assert {"element", "bulk"} <= clauses(found)


@pytest.mark.parametrize("op", ROWS)
@pytest.mark.parametrize("first", [8, 64, 67, 128, 256])
def test_rows_from_some_row_on_are_looked_at(op, first):
    right = ours(op)

    def wrong(**arguments):
        made = right(**arguments)
        for one in made if isinstance(made, tuple) else (made,):
            one[first:] = 0
        return made

    assert sweep(ROWS[op].OPERATION, wrong, enough=1)


def test_the_gate_of_a_norm_is_swept_unasked():
    found = sweep(rms_norm.OPERATION, rows.silu_output_gate())

    assert found
    assert all("gated" in name for name in found)


@pytest.mark.parametrize(("gate", "given"), [("none", {False}), ("sigmoid", {True})])
def test_a_norm_of_one_form_is_given_that_form(gate, given):
    settings = settings_of(rms_norm.OPERATION, gate=gate)
    cases = rms_norm.OPERATION.cases(Effort.QUICK, settings)

    assert {case.inputs["gate"] is not None for case in cases} == given


def test_every_expert_is_chosen_by_some_row():
    """Of 896 experts, by 56 rows of 16 choices: each exactly once."""
    operation = moe_route.OPERATION
    cases = operation.cases(Effort.QUICK, settings_of(operation))
    case = next(one for one in cases if one.id.startswith("B56-E896-k16") and "every" in one.id)

    arguments = {name: _tensor(value) for name, value in case.inputs.items()}
    ids, _ = ours("moe_route")(**arguments)

    assert sorted(ids.reshape(-1).tolist()) == list(range(896))


def _tensor(value):
    import numpy as np
    import torch

    return torch.from_numpy(value) if isinstance(value, np.ndarray) else value


def test_a_batch_of_padding_alone_is_swept():
    operation = moe_route.OPERATION
    cases = operation.cases(Effort.QUICK, settings_of(operation))

    assert any(case.inputs["valid_rows"] == 0 < len(case.inputs["logits"]) for case in cases)


def test_convolutions_see_a_sequence_of_every_usual_tile():
    operation = short_conv.OPERATION
    cases = list(operation.cases(Effort.QUICK, settings_of(operation)))

    assert {64, 128, 256} <= {case.axes["tokens"] for case in cases}
    assert {7, 9, 17, 33, 65} <= {case.axes["sequences"] for case in cases}
