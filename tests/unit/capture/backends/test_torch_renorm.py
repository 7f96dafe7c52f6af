"""The renorm artifact: which rows, which parameters, what is stored."""

import hashlib

import numpy as np
import pytest
import torch

from tests.measured import assert_measured
from validate.capture.backends import torch_renorm
from validate.capture.backends.torch_renorm import GRID, renorm_artifact, renorm_positions
from validate.models import Trace
from validate.schema import Prompt

PROMPTS = [
    Prompt(id=f"p-{n}", token_ids=tuple(range(n + 1)), prompt_length=max(1, n // 2))
    for n in range(6)
]
VOCAB = 272
NAMES = {
    "renorm.positions": ("int32", ("rows",)),
    "renorm.in": ("float32", ("rows", "vocab")),
    "renorm.top_k": ("int32", ("rows",)),
    "renorm.top_p": ("float32", ("rows",)),
    "renorm.out": ("float32", ("rows", "vocab")),
    "renorm.in_after_sha256": ("uint8", ("bytes",)),
}


def logits(prompts=PROMPTS, seed=1):
    shape = (len(prompts), 6, VOCAB)
    made = np.random.default_rng(seed).normal(size=shape) * 2
    return torch.tensor(made, dtype=torch.float32).to(torch.bfloat16)


def made(prompts=PROMPTS, values=None, **options):
    trace = Trace(wants=lambda _: False)
    values = logits(prompts) if values is None else values
    given = renorm_artifact(prompts, values, rule="all", trace=trace, **options)
    return given, trace


def test_names_dtypes_and_axes():
    given, trace = made()
    assert len(given) == len(PROMPTS)
    for tensors in given:
        assert {k: (str(t.array.dtype), t.axes) for k, t in tensors.items()} == NAMES
    assert trace.branches == {"renorm.all": 1}


def test_rows_are_the_start_of_the_answer_and_the_end():
    assert renorm_positions(Prompt(id="a", token_ids=(1, 2, 3, 4), prompt_length=2)) == (1, 3)
    assert renorm_positions(Prompt(id="a", token_ids=(1,), prompt_length=1)) == (0,)


def test_probabilities_in_are_a_float32_softmax_of_those_rows():
    values = logits()
    given, _ = made(values=values)
    for row, (prompt, tensors) in enumerate(zip(PROMPTS, given, strict=True)):
        wide = values[row, list(renorm_positions(prompt))].double()
        expected = torch.softmax(wide, dim=1).numpy()
        assert_measured(tensors["renorm.in"].array, expected, atol=1e-9, rtol=1e-6)
        assert tensors["renorm.positions"].array.tolist() == list(renorm_positions(prompt))


def test_parameters_depend_on_the_prompt_alone_and_take_turns():
    together, _ = made()
    for row, prompt in enumerate(PROMPTS):
        alone, _ = made([prompt], logits()[row : row + 1])
        for name in ("renorm.top_k", "renorm.top_p", "renorm.out"):
            assert np.array_equal(alone[0][name].array, together[row][name].array), name
    many = [Prompt(id=f"q-{n}", token_ids=(1, 2), prompt_length=1) for n in range(60)]
    taken = {
        (int(k), float(p))
        for tensors in made(many, torch.zeros((60, 2, VOCAB)))[0]
        for k, p in zip(tensors["renorm.top_k"].array, tensors["renorm.top_p"].array, strict=True)
    }
    assert taken == {(k, float(np.float32(p))) for k, p in GRID}


def test_digest_is_of_the_input_after_the_call():
    for tensors in made()[0]:
        digest = hashlib.sha256(tensors["renorm.in"].array.tobytes()).digest()
        assert tensors["renorm.in_after_sha256"].array.tobytes() == digest


def test_a_call_that_writes_its_input_is_seen(monkeypatch):
    def in_place(probs, top_k, top_p, *, rule, fault):
        return probs.mul_(0.5)

    monkeypatch.setattr(torch_renorm, "renorm", in_place)
    for tensors in made()[0]:
        digest = hashlib.sha256(tensors["renorm.in"].array.tobytes()).digest()
        assert tensors["renorm.in_after_sha256"].array.tobytes() != digest
        assert_measured(
            tensors["renorm.in"].array.sum(1),
            np.ones(len(tensors["renorm.in"].array)),
            atol=1e-6,
            rtol=0,
        )


@pytest.mark.parametrize("fault", ["SA-04", "SA-05"])
def test_faults_change_what_comes_out_and_nothing_else(fault):
    trace = Trace(wants=lambda _: False)
    clean = renorm_artifact(PROMPTS, logits(), rule="exactly_k", trace=trace)
    faulty = renorm_artifact(PROMPTS, logits(), rule="exactly_k", fault=fault, trace=trace)
    differ = {
        name
        for a, b in zip(clean, faulty, strict=True)
        for name in a
        if not np.array_equal(a[name].array, b[name].array)
    }
    assert differ == {"renorm.out"}
    other = renorm_artifact(PROMPTS, logits(), rule="exactly_k", fault="VX-01", trace=trace)
    assert all(
        np.array_equal(a[name].array, b[name].array)
        for a, b in zip(clean, other, strict=True)
        for name in a
    )
