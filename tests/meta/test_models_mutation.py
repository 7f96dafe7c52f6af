"""The torch model is mutated one text at a time; agreement with the oracle must break.

A mutant is the source of ``validate.models`` with one piece replaced, executed
beside the real package. It must run without an exception and differ from the
oracle by more than 1e-4 of the largest value, where the source differs by 3e-14.
"""

import importlib
import re
import sys
from pathlib import Path
from types import ModuleType
from typing import NamedTuple

import numpy as np
import pytest

from tests.unit.models.oracle_agreement import disagreement_of_paths
from tests.unit.models.small import WEIGHTS

pytestmark = pytest.mark.meta

ROOM = Path(__file__).parents[2] / "validate/models"
MODULES = ("ops", "heads", "attention", "mla", "kda", "moe", "model")
"""In the order of their imports; switches, traces and loops are not mutated."""

AGREE = 1e-11
CAUGHT = 1e-4


class Mutant(NamedTuple):
    """One fault: its title, its module, the text it replaces (once there), and what it puts there."""

    title: str
    module: str
    old: str
    new: str


# One fault a line.
# fmt: off
MUTANTS = [
    Mutant("scale dropped", "attention", ".permute(0, 2, 3, 1)\n    scores = (q.to(accumulate).transpose(1, 2) @ wide_k) * scale", ".permute(0, 2, 3, 1)\n    scores = (q.to(accumulate).transpose(1, 2) @ wide_k)"),
    Mutant("mask one key too far", "mla", "<= position.unsqueeze(-1)", "<= position.unsqueeze(-1) + 1"),
    Mutant("mask hides the current token", "mla", "<= position.unsqueeze(-1)", "< position.unsqueeze(-1).clamp(min=1)"),
    Mutant("first new key off by one", "mla", "[slice(0, call.first_new), slice(call.first_new, keys)]", "[slice(0, call.first_new - 1), slice(call.first_new, keys)]"),
    Mutant("base-2 merge", "attention", "weight = (lse - safe).exp()", "weight = (lse - safe).exp2()"),
    Mutant("base-2 lse of a part", "attention", "lse = (top + total.log()).squeeze(-1)", "lse = (top + total.log2()).squeeze(-1)"),
    Mutant("merge without weights", "attention", "(weight.unsqueeze(-1) * out).sum(0) / total", "(total.unsqueeze(0).unsqueeze(-1) * out).mean(0) / total"),
    Mutant("repeated heads unpadded by prefix", "heads", 'if rule == "repeat" and fault != "VX-01":', 'if rule == "never":'),
    Mutant("heads tiled, unpadded by stride", "heads", "index = torch.arange(count, device=x.device) // (count // heads)", "index = torch.arange(count, device=x.device) % heads"),
    Mutant("padded rows read packed", "heads", 'if fault == "VX-02" and axis == -2:', "if axis == -2:"),
    Mutant("mla gate missing", "mla", "gated = (out.flatten(2).to(acc) * gate).to(x.dtype)", "gated = out.flatten(2).to(x.dtype)"),
    Mutant("value rows before key rows", "mla", "w_key, w_value = up.split([config.qk_nope_head_dim, config.v_head_dim], dim=1)", "w_value, w_key = up.split([config.v_head_dim, config.qk_nope_head_dim], dim=1)"),
    Mutant("latent cached without its norm", "mla", 'latent = rms_norm(latent, weights["kv_a_norm.weight"], eps=eps, accumulate=acc)', "latent = latent * 1.0"),
    Mutant("cache written one place late", "mla", "(start.unsqueeze(1) + offsets)[real]] = new[real]", "(start.unsqueeze(1) + offsets).sub(1).clamp(min=0)[real]] = new[real]"),
    Mutant("decay after the update", "kda", "        state = state * inputs.log_decay[:, :, t].exp().unsqueeze(-1)\n        missing = inputs.v[:, :, t] - (state * k).sum(-2)\n        state = state + k * (inputs.beta[:, :, t, None] * missing).unsqueeze(-2)", "        missing = inputs.v[:, :, t] - (state * k).sum(-2)\n        state = state + k * (inputs.beta[:, :, t, None] * missing).unsqueeze(-2)\n        state = state * inputs.log_decay[:, :, t].exp().unsqueeze(-1)"),
    Mutant("chunk forgets its own decay", "kda", "transition = torch.diag_embed(last.squeeze(-2).exp())", "transition = torch.diag_embed(torch.ones_like(last.squeeze(-2)))"),
    Mutant("chunk sees the next token", "kda", "(q_rise @ k_fall.mT).tril() @ corrected", "(q_rise @ k_fall.mT).tril(1) @ corrected"),
    Mutant("convolution taps reversed", "kda", "padded[:, j : j + tokens] * weight[:, j]", "padded[:, j : j + tokens] * weight[:, weight.shape[1] - 1 - j]"),
    Mutant("convolution history one token old", "kda", "index = lengths.unsqueeze(1) + torch.arange(taps, device=x.device)", "index = (lengths.unsqueeze(1) - 1).clamp(min=0) + torch.arange(taps, device=x.device)"),
    Mutant("padding tokens touch the state", "kda", "beta = beta * valid[..., None]", "beta = beta * 1.0"),
    Mutant("kda gate missing", "kda", "gated = (normed.flatten(2) * gate).to(x.dtype)", "gated = normed.flatten(2).to(x.dtype)"),
    Mutant("gate bound wrong in sign", "kda", "return bound * torch.sigmoid(", "return -bound * torch.sigmoid(-"),
    Mutant("bias in the weights of experts", "moe", "picked = sigmoid.gather(-1, ids)", "picked = scores.gather(-1, ids)"),
    Mutant("routed experts one per cent too large", "moe", 'return linear(routed, weights["up.weight"]) + shared', 'return linear(routed * 1.01, weights["up.weight"]) + shared'),
    Mutant("eps outside the root", "ops", "scale = torch.rsqrt(wide.square().mean(-1, keepdim=True) + eps)", "scale = 1 / (wide.square().mean(-1, keepdim=True).sqrt() + eps)"),
    Mutant("mix of normed candidates", "ops", "(weights.unsqueeze(-1) * wide).sum(0)", "(weights.unsqueeze(-1) * wide * scale.unsqueeze(-1)).sum(0)"),
    Mutant("bank takes the prefix too late", "model", "self.bank.append(prefix)\n            prefix = attended", "self.bank.append(attended)\n            prefix = attended"),
]
# fmt: on


def mutated(monkeypatch: pytest.MonkeyPatch, mutant: Mutant | None) -> ModuleType:
    """``validate.models.model`` of a fresh copy of the room, with one text replaced in it."""
    made = ModuleType("nothing")
    for name in MODULES:
        source = (ROOM / f"{name}.py").read_text(encoding="utf-8")
        if mutant is not None and mutant.module == name:
            times = source.count(mutant.old)
            assert times == 1, f"{name}.py: {mutant.old!r} occurs {times} times, not once"
            source = source.replace(mutant.old, mutant.new)
        made = ModuleType(f"validate.models.{name}")
        monkeypatch.setitem(sys.modules, made.__name__, made)
        exec(compile(source, str(ROOM / f"{name}.py"), "exec"), made.__dict__)
    return made


def test_the_copy_of_the_source_agrees(monkeypatch):
    assert disagreement_of_paths(WEIGHTS, mutated(monkeypatch, None)) <= AGREE


@pytest.mark.parametrize(
    "mutant", [pytest.param(m, id=re.sub("[^A-Za-z0-9]+", "-", m.title)) for m in MUTANTS]
)
def test_a_mutant_is_caught_by_the_oracle(monkeypatch, mutant):
    with np.errstate(all="ignore"):
        error = disagreement_of_paths(WEIGHTS, mutated(monkeypatch, mutant))

    assert error > CAUGHT, f"{mutant.title}: differs by {error:.1e} only"


def test_a_mutant_that_changes_nothing_would_be_noticed(monkeypatch):
    """The meta test can fail: the factors swapped leave the error where it was."""
    harmless = Mutant(
        "same", "mla", "out.flatten(2).to(acc) * gate", "gate * out.flatten(2).to(acc)"
    )

    assert not disagreement_of_paths(WEIGHTS, mutated(monkeypatch, harmless)) > CAUGHT


def test_a_replacement_that_no_longer_fits_the_source_is_an_error(monkeypatch):
    with pytest.raises(AssertionError, match=r"kda\.py: 'no such text' occurs 0 times, not once"):
        mutated(monkeypatch, Mutant("none", "kda", "no such text", "x"))


def test_the_real_package_comes_back():
    real = importlib.import_module("validate.models.mla")

    assert sys.modules["validate.models.mla"] is real
    assert real.mla_layer.__module__ == "validate.models.mla"
