"""Each operation on its own inputs: exact runs err nowhere, a wrong one where it is wrong."""

import numpy as np
import pytest

from tests.exact_runs import PROMPTS, WEIGHTS, heads_lost, ran, without
from tests.unit.oracle.tiny import TINY
from validate.metrics._own_steps import MODULES, own_steps

EXACT = ran()


def errors(tensors, prompt="p-0"):
    """Relative error of each captured tensor against its operation, in order."""
    held = tensors[prompt]
    found = {}
    steps = own_steps(held.__getitem__, tuple(held), PROMPTS[prompt].token_ids, WEIGHTS, TINY)
    for step in steps:
        size = np.linalg.norm(step.truth)
        found[step.name] = float(np.linalg.norm(step.got - step.truth) / size)
    return found


def names(tensors, prompt="p-0"):
    held = tensors[prompt]
    return list(own_steps(held.__getitem__, tuple(held), PROMPTS[prompt].token_ids, WEIGHTS, TINY))


@pytest.mark.parametrize("prompt", PROMPTS)
def test_exact_run_errs_nowhere(prompt):
    """Captures hold float32: 6e-8 an element, some of it amplified by norms."""
    found = errors(EXACT, prompt)

    assert max(found.values()) < 1e-5


def test_every_captured_operation_is_looked_at():
    """All float tensors of the pass but LSEs and inputs that only lead to others."""
    looked = set(errors(EXACT))
    held = {
        name
        for name, array in EXACT["p-0"].items()
        if array.dtype.kind == "f" and not name.endswith((".lse", ".weights"))
    }

    assert held - looked == {
        "stream.logits",
        *(f"decode.prefix.attn.{layer}.in" for layer in range(TINY.layers)),
    }
    assert {step.module for step in names(EXACT)} == set(MODULES)


def test_steps_come_in_the_order_of_a_forward_pass():
    steps = [step for step in names(EXACT) if step.mode == "prefill"]

    assert [step.layer for step in steps] == sorted(step.layer for step in steps)
    assert [step.module for step in steps[:3]] == ["AttnRes", "KDA", "MLP"]
    assert (steps[-1].module, steps[-1].layer) == ("head", TINY.layers)


def test_a_wrong_head_shows_in_its_layer_alone():
    """What follows works on what the wrong head made of its input, and is right on that.

    A prefill in pieces carries a state too, and its inputs are not captured: behind the wrong layer
    its states are those of other inputs.
    """
    found = errors(ran(heads_lost([1], [2], decode=True)))
    wrong = {name for name, err in found.items() if err > 1e-4}

    assert {name for name in wrong if ".chunked." not in name} == {"decode.mla.1.out"}
    assert all(int(name.split(".")[-1]) > 1 for name in wrong if ".chunked." in name)


BENT = {
    "prefill.attn.2.in": "prefill.attn.2.in",
    "prefill.hidden.3": "prefill.hidden.3",
    "decode.router.2.scores": "decode.router.2.scores",
    "state.oneshot.kda.0": "state.oneshot.kda.0",
    "state.decode.conv.2": "state.decode.conv.2",
    "state.chunked.kv.4": "state.chunked.kv.4",
    "decode.logits": "decode.logits",
    "logits": "logits",
}


@pytest.mark.parametrize(("name", "first"), BENT.items())
def test_a_bent_tensor_is_the_first_that_errs(name, first):
    """A tensor that no operation made is wrong where it stands; what reads it may be so too."""
    bent = {**EXACT, "p-0": {**EXACT["p-0"], name: 1.1 * EXACT["p-0"][name]}}
    wrong = [key for key, err in errors(bent).items() if err > 1e-3]

    assert wrong[0] == first


def test_another_expert_is_the_routers_doing():
    """Rows whose experts are not the exact ones say nothing of the experts."""
    held = dict(EXACT["p-0"])
    ids = held["prefill.router.1.ids"].copy()
    ids[2] = [e for e in range(TINY.experts) if e not in ids[2]][: ids.shape[1]]
    held["prefill.router.1.ids"] = ids
    (moe,) = [s for s in names({"p-0": held}) if s.name == "prefill.hidden.1"]

    assert moe.positions.tolist() == [0, 1, 3, 4, 5, 6, 7]


def test_nan_is_found_where_it_arises_and_nothing_behind_it_is_judged():
    held = dict(EXACT["p-0"])
    held["prefill.mla.1.out"] = held["prefill.mla.1.out"].copy()
    held["prefill.mla.1.out"][3, 0, 0] = np.nan
    for name in list(held):
        if name.startswith("prefill.") and any(f".{n}" in name for n in (2, 3, 4)):
            held[name] = (
                np.full_like(held[name], np.nan) if held[name].dtype.kind == "f" else held[name]
            )
    looked = errors({"p-0": held})
    prefill = [name for name in looked if name.startswith("prefill.")]

    assert prefill[-1] == "prefill.mla.1.out"
    assert np.isnan(looked["prefill.mla.1.out"])


def test_steps_without_their_inputs_are_left_out():
    """Without hidden states the attention can be held against its inputs, and nothing else."""
    looked = {s.module for s in names(without(EXACT, "hidden"))}

    assert looked == {"AttnRes", "MLA", "KDA", "conv", "KV"}
    assert not names(without(EXACT, "attn.0.in"))
    assert "decode.mla.1.out" in errors(without(EXACT, "prefix"))
