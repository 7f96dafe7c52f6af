"""Each derivation of the oracle is mutated alone; its sibling must see it.

A mutant is the module's source with one piece of text replaced, executed in
place of the module. The unmutated pair agrees to 1e-11; every mutant must
differ by more than 1e-4 of the largest value, on a run without an exception:
silent wrong numbers are what the sibling is there for.
"""

import re
from collections.abc import Callable, Mapping
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple

import numpy as np
import pytest

from tests.meta.oracle_mutants import ATTENTION, MUTANTS, Mutant
from tests.unit.oracle.tiny import (
    TINY,
    Array,
    kda_inputs,
    mla_inputs,
    random_weights,
    worst_error,
)
from validate.oracle import MlaWeights, Partial, moe_weights

pytestmark = pytest.mark.meta

ROOT = Path(__file__).parents[2]
ORACLE = "validate/oracle"
SECOND = "tests/unit/oracle/second.py"
SECOND_MODEL = "tests/unit/oracle/second_model.py"
AGREE = 1e-11
CAUGHT = 1e-4
RNG_SEED = 8


def load(path: str, old: str = "", new: str = "") -> ModuleType:
    """Execute a module of ours from its source text, with ``old`` replaced by ``new``."""
    source = (ROOT / path).read_text(encoding="utf-8")
    if old:
        assert source.count(old) == 1, f"{path}: {old!r} occurs {source.count(old)} times, not once"
        source = source.replace(old, new)
    module = ModuleType(path.removesuffix(".py").replace("/", "."))
    exec(compile(source, str(ROOT / path), "exec"), module.__dict__)
    return module


def compare_kda(first: ModuleType, second: ModuleType) -> float:
    inputs = kda_inputs(RNG_SEED, key=4, value=4)  # square, so that a transposed state runs
    a = first.kda(**inputs, lower_bound=-5.0)
    b = second.kda_chunk(**inputs, lower_bound=-5.0, chunk=4)
    return worst_error({"out": a.out, "state": a.state}, {"out": b.out, "state": b.state})


def compare_mla(first: ModuleType, second: ModuleType) -> float:
    x, weights, past = mla_inputs(RNG_SEED)
    options: dict[str, Any] = {
        "heads": 3,
        "nope": TINY.qk_nope_head_dim,
        "rope": TINY.qk_rope_head_dim,
        "eps": 1e-6,
        "past": past,
    }
    a = first.mla(x, MlaWeights(**weights), **options)
    b = second.mla_absorbed(x, MlaWeights(**weights), **options)
    names = ("out", "lse", "y", "kv")
    return worst_error(
        {name: getattr(a, name) for name in names}, {name: getattr(b, name) for name in names}
    )


def compare_attention(first: ModuleType, second: ModuleType) -> float:
    rng = np.random.default_rng(RNG_SEED)
    q, k, v = (rng.standard_normal((n, 2, d)) for n, d in ((5, 4), (9, 4), (9, 3)))
    part = first.causal_attention(q, k, v, scale=0.6, first=4)
    out, lse = second.attend_by_loops(q, k, v, scale=0.6, first=4)
    return worst_error({"out": part.out, "lse": part.lse}, {"out": out, "lse": lse})


def compare_merge(first: ModuleType, second: ModuleType) -> float:
    rng = np.random.default_rng(RNG_SEED)
    outs, lses = list(rng.standard_normal((3, 4, 2, 5))), list(rng.standard_normal((3, 4, 2)))
    outs[1][2], lses[1][2] = np.nan, -np.inf
    merged = first.lse_merge([Partial(out=o, lse=s) for o, s in zip(outs, lses, strict=True)])
    out, lse = second.merge_by_sums(outs, lses)
    return worst_error({"out": merged.out, "lse": merged.lse}, {"out": out, "lse": lse})


def compare_conv(first: ModuleType, second: ModuleType) -> float:
    rng = np.random.default_rng(RNG_SEED)
    x, weight, state = (rng.standard_normal(s) for s in ((7, 3), (3, 4), (3, 3)))
    conv = first.short_conv(x, weight, state=state)
    y, last = second.conv_by_channel(x, weight, state=state)
    return worst_error({"y": conv.y, "state": conv.state}, {"y": y, "state": last})


def compare_situ(first: ModuleType, second: ModuleType) -> float:
    rng = np.random.default_rng(RNG_SEED)
    gate, up = 3 * rng.standard_normal(40), 20 * rng.standard_normal(40)
    a = first.situ(gate, up, beta=4.0, linear_beta=25.0)
    b = second.situ_by_exponentials(gate, up, beta=4.0, linear_beta=25.0)
    return worst_error({"y": a}, {"y": b})


def compare_norm(first: ModuleType, second: ModuleType) -> float:
    rng = np.random.default_rng(RNG_SEED)
    x, weight = rng.standard_normal((4, 6)), rng.standard_normal(6)
    x[1] *= 1e-3
    a = first.rms_norm(x, weight, eps=1e-5)
    return worst_error({"y": a}, {"y": second.norm_by_length(x, weight, eps=1e-5)})


def compare_sigmoid(first: ModuleType, second: ModuleType) -> float:
    x = np.linspace(-20, 20, 41)
    return worst_error({"y": first.sigmoid(x)}, {"y": second.logistic(x)})


def compare_mix(first: ModuleType, second: ModuleType) -> float:
    rng = np.random.default_rng(RNG_SEED)
    *bank, prefix = rng.standard_normal((3, 5, 6))
    norm, proj = rng.standard_normal((2, 6))
    options: dict[str, Any] = {"norm": norm, "proj": proj, "eps": 1e-5}
    bank[0][2] *= 1e-3
    a = first.attn_res(bank, prefix, **options)
    return worst_error({"h": a}, {"h": second.mix_by_rows(bank, prefix, **options)})


def compare_moe(first: ModuleType, second: ModuleType) -> float:
    """Random rows, then rows on which experts tie."""
    w = moe_weights(random_weights(TINY, seed=RNG_SEED), 1)
    w.router[4] = w.router[1]
    w.correction_bias[4] = w.correction_bias[1] = 0.9
    w.down[:] *= 1e-2  # makes the eps of the latent norm count
    x = np.random.default_rng(RNG_SEED).standard_normal((9, TINY.hidden_size))
    options: dict[str, Any] = {"eps": 1e-5, "beta": 4.0, "linear_beta": 25.0}
    pairs: list[tuple[Array, Array]] = []
    for k in (1, 3):
        a = first.moe(x, w, experts_per_token=k, **options)
        y, share = second.moe_dense(
            x,
            router=w.router,
            correction_bias=w.correction_bias,
            down=w.down,
            gate=w.expert_gate,
            up=w.expert_up,
            out=w.expert_down,
            norm=w.norm,
            expand=w.up,
            shared=(w.shared_gate, w.shared_up, w.shared_down),
            k=k,
            **options,
        )
        scattered = np.zeros_like(share)
        ids = a.routing.ids.astype(np.int64)
        np.put_along_axis(scattered, ids, a.routing.weights, axis=1)
        pairs += [(a.y, y), (scattered, share)]
    return worst_error(
        {str(i): a for i, (a, _) in enumerate(pairs)},
        {str(i): b for i, (_, b) in enumerate(pairs)},
    )


def compare_model(first: ModuleType, second: ModuleType) -> float:
    """``first`` is ``model`` with ``attention`` inside it, either of them mutated."""
    weights = random_weights(TINY, seed=RNG_SEED)
    ids = (3, 1, 4, 1, 5, 9, 2)
    a = first.forward(ids, weights, TINY)
    b = second.second_forward(ids, weights, TINY)
    ours = {"logits": first.logits_of(a.final, weights)}
    other = {"logits": b.logits}
    for i, trace in enumerate(a.layers):
        ours |= {f"in {i}": trace.attn_in, f"out {i}": trace.out, f"hidden {i}": trace.hidden}
        other |= {f"in {i}": b.attn_in[i], f"out {i}": b.out[i], f"hidden {i}": b.hidden[i]}
        for name, states in (("kda", b.kda), ("conv", b.conv), ("kv", b.kv)):
            state = getattr(a.state[i], name)
            assert (state is None) == (i not in states)
            if state is not None:
                ours[f"{name} {i}"], other[f"{name} {i}"] = state, states[i]
    return worst_error(ours, other)


class Pairing(NamedTuple):
    """Two derivations of one operation and what compares them."""

    first: str
    second: str
    compare: Callable[[ModuleType, ModuleType], float]


PAIRINGS: Mapping[str, Pairing] = {
    "kda": Pairing(f"{ORACLE}/kda.py", f"{ORACLE}/kda_chunk.py", compare_kda),
    "mla": Pairing(f"{ORACLE}/mla.py", f"{ORACLE}/mla_absorbed.py", compare_mla),
    "attention": Pairing(f"{ORACLE}/mla.py", SECOND, compare_attention),
    "merge": Pairing(f"{ORACLE}/lse_merge.py", SECOND, compare_merge),
    "conv": Pairing(f"{ORACLE}/short_conv.py", SECOND, compare_conv),
    "situ": Pairing(f"{ORACLE}/situ.py", SECOND, compare_situ),
    "norm": Pairing(f"{ORACLE}/rms_norm.py", SECOND, compare_norm),
    "sigmoid": Pairing(f"{ORACLE}/sigmoid.py", SECOND, compare_sigmoid),
    "mix": Pairing(f"{ORACLE}/attn_res.py", SECOND, compare_mix),
    "moe": Pairing(f"{ORACLE}/moe.py", SECOND, compare_moe),
    "model": Pairing(f"{ORACLE}/model.py", SECOND_MODEL, compare_model),
}


def model_with_attention(old: str = "", new: str = "") -> ModuleType:
    """A fresh ``model`` whose layers come from a (mutated) ``attention``."""
    model: Any = load(f"{ORACLE}/model.py")
    model.attention_layer = load(f"{ORACLE}/attention.py", old, new).attention_layer
    return model  # type: ignore[no-any-return]


def run(name: str, side: str, mutant: Mutant) -> float:
    """Error between the mutated side and its unmutated sibling."""
    pairing = PAIRINGS[name]
    change = (mutant.old, mutant.new)
    first = load(pairing.first, *(change if side == "first" else ()))
    second = load(pairing.second, *(change if side == "second" else ()))
    with np.errstate(all="ignore"):
        return pairing.compare(first, second)


@pytest.mark.parametrize("name", list(PAIRINGS))
def test_the_unmutated_siblings_agree(name):
    pairing = PAIRINGS[name]

    error = pairing.compare(load(pairing.first), load(pairing.second))

    assert error <= AGREE


def test_the_unmutated_attention_agrees():
    assert compare_model(model_with_attention(), load(SECOND_MODEL)) <= AGREE


CASES = [
    pytest.param(
        name, side, mutant, id=f"{name}-{side}-{re.sub('[^A-Za-z0-9]+', '-', mutant.title)}"
    )
    for (name, side), mutants in MUTANTS.items()
    for mutant in mutants
]


@pytest.mark.parametrize(("name", "side", "mutant"), CASES)
def test_a_mutant_is_caught_by_its_sibling(name, side, mutant):
    error = run(name, side, mutant)

    assert error > CAUGHT, f"{mutant.title}: differs by {error:.1e} only"


@pytest.mark.parametrize("mutant", [pytest.param(m, id=m.title) for m in ATTENTION])
def test_a_mutant_of_the_attention_layer_is_caught(mutant):
    with np.errstate(all="ignore"):
        error = compare_model(model_with_attention(mutant.old, mutant.new), load(SECOND_MODEL))

    assert error > CAUGHT, f"{mutant.title}: differs by {error:.1e} only"


def test_both_sides_of_every_pairing_are_mutated():
    assert set(MUTANTS) == {(name, side) for name in PAIRINGS for side in ("first", "second")}


def test_a_mutant_that_changes_nothing_would_be_noticed():
    """The meta test can fail: the summands swapped leave the error where it was."""
    harmless = Mutant("same", "(1.0 + small)", "(small + 1.0)")

    assert not run("sigmoid", "first", harmless) > CAUGHT


def test_a_replacement_that_no_longer_fits_the_source_is_an_error():
    with pytest.raises(AssertionError, match=r"kda\.py: 'no such text' occurs 0 times"):
        load(f"{ORACLE}/kda.py", "no such text", "x")
