"""attention.introduced_ratio: err(cand) / err(ref) of attention itself, each side on its own inputs."""

import dataclasses
import math
from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from tests.fakes import make_pair, make_prompt
from tests.layers import LEVELS, changed, decode, prefill
from tests.measured import assert_measured
from validate import oracle
from validate.metrics._three_way import Ways, add_errors, measure_ways
from validate.metrics.attention_introduced_ratio import attention_introduced_ratio
from validate.oracle import (
    LayerOutput,
    LayerState,
    attention_layer,
    run_prompt,
    weight_shapes,
)
from validate.schema import Measurement, ModelConfig

CONFIG = ModelConfig(
    name="tiny",
    vocab_size=16,
    tokenizer_length=16,
    hidden_size=8,
    layers=3,
    heads=3,
    mla_layers=(1,),
    q_lora_rank=4,
    kv_lora_rank=4,
    qk_nope_head_dim=4,
    qk_rope_head_dim=2,
    v_head_dim=4,
    kda_head_dim=4,
    kda_gate_rank=2,
    attn_res_block=2,
    dense_intermediate=8,
    experts=4,
    experts_per_token=2,
    latent_size=4,
    expert_intermediate=4,
    shared_intermediate=4,
)


def doubling(
    x: NDArray[Any],
    weights: Mapping[str, NDArray[Any]],
    config: ModelConfig,
    layer: int,
    *,
    state: LayerState | None = None,
) -> LayerOutput:
    """A layer whose exact output is twice its input, as one head."""
    wide = np.asarray(x).astype(np.float64)
    return LayerOutput(out=2 * wide[:, None, :], lse=None, y=wide, state=LayerState())


def introduced(ref: Any, cand: Any, **settings: Any) -> Measurement:
    """The metric with ``doubling`` in the place of the oracle's layer."""
    pair = make_pair(ref, cand, **{"weights": {}, "config": CONFIG.model_dump(), **settings})
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(oracle, "attention_layer", doubling)
        return attention_introduced_ratio(pair, LEVELS)


def one_layer(inputs: Any, outputs: Any) -> dict[str, NDArray[Any]]:
    return prefill({"attn.0.in": inputs, "kda.0.out": outputs})


# By hand, truth = 2 x. p-0: ref x = (3, 4), truth norm 10, off by 1: 0.1; cand x = (6, 8), truth
# norm 20, off by 4: 0.2: ratio 2. p-1: ref off by 1 of 10: 0.1, cand off by 8 of 10: 0.8: ratio 8.
REF = {
    "p-0": one_layer([[3.0, 4.0]], [[[6.0, 9.0]]]),
    "p-1": one_layer([[3.0, 4.0]], [[[7.0, 8.0]]]),
}
CAND = {
    "p-0": one_layer([[6.0, 8.0]], [[[12.0, 20.0]]]),
    "p-1": one_layer([[3.0, 4.0]], [[[6.0, 0.0]]]),
}


def test_introduced_is_the_third_quartile_of_ratios_on_own_inputs():
    m = introduced(REF, CAND)

    assert m.value is not None
    assert_measured(m.value, 8.0, atol=0, rtol=1e-12)  # of 2 and 8
    assert (m.unit, m.n, m.n_of) == ("err(cand) / err(ref)", 2, "prompts")
    assert m.n_needed == 11


def test_value_and_limits_are_order_statistics_of_the_prompts_ratios():
    """Truth 2; ref off by 1/8, cand by (i + 1)/8. Ranks 9, 5 and 12 of 12, as in test_attention_rel_l2."""
    ways = Ways()
    for i in range(12):
        sides = [(np.full((1, 1, 1), 2.0 + off / 8), np.full((1, 1, 1), 2.0)) for off in (1, i + 1)]
        add_errors(
            ways, "prefill.kda.0.out", prompt=f"p-{i}", positions=np.arange(1),
            ref=sides[0], cand=sides[1],
        )  # fmt: skip
    m = measure_ways("attention.introduced_ratio", ways, LEVELS, shown={"": ways}, extra={})

    assert m.interval is not None
    assert_measured(
        [m.value, m.interval.low, m.interval.high], [9.0, 5.0, 12.0], atol=0, rtol=1e-12
    )
    assert m.interval.method == "order statistic"
    assert (m.n_needed, m.pooled) == (None, 12)
    shown = [m.breakdown[f"prefill.kda.0 {key}"] for key in ("ratio", "ratio low", "ratio high")]
    assert_measured(shown, [9.0, 5.0, 12.0], atol=0, rtol=1e-12)


def test_introduced_worst_unit_and_breakdown():
    """The one head pooled: ref sqrt(2 / 200) = 0.1, cand sqrt(80 / 500) = 0.4; worst rows 1 and 8."""
    m = introduced(REF, CAND)

    assert m.worst_value == 8.0
    assert m.worst is not None
    assert (m.worst.place, m.worst.prompt, m.worst.position) == (
        "prefill.kda.0.out worst row",
        "p-1",
        0,
    )
    assert m.worst.detail == "error of ref 1, of cand 8"
    assert_measured(m.breakdown["prefill.kda.0 ref"], 0.1, atol=0, rtol=1e-12)
    assert_measured(m.breakdown["prefill.kda.0 cand"], 0.4, atol=0, rtol=1e-12)
    assert_measured(m.breakdown["prefill.kda.0 ratio"], 8.0, atol=0, rtol=1e-12)
    assert "prefill.kda.0 ratio high" not in m.breakdown


def test_a_single_wrong_head_is_the_worst_unit():
    """Truth 2 on every head and row. Head 0 is off by 1 on both sides; head 1 by 0.125 and by 0.5.

    Head 1: ratio 4. Rows: sqrt(1.25) over sqrt(1.015625), 1.109.
    """

    def side(wrong: float) -> tuple[NDArray[Any], NDArray[Any]]:
        return np.array([[[3.0], [2.0 + wrong]]] * 2), np.full((2, 2, 1), 2.0)

    ways = Ways()
    add_errors(
        ways,
        "prefill.kda.0.out",
        prompt="p-0",
        positions=np.arange(2),
        ref=side(0.125),
        cand=side(0.5),
    )
    m = measure_ways("attention.introduced_ratio", ways, LEVELS, shown={}, extra={})

    assert m.worst_value == 4.0
    assert m.worst is not None
    assert m.worst.place == "prefill.kda.0.out head 1"


def test_the_worst_row_is_named_whichever_prompt_comes_first():
    """The same two prompts the other way round."""
    turned = [dict(reversed(side.items())) for side in (REF, CAND)]
    m = introduced(*turned)

    assert list(turned[0]) == ["p-1", "p-0"]
    assert m.worst is not None
    assert (m.worst.prompt, m.worst.position) == ("p-1", 0)


def test_swapped_sides_invert_the_ratio():
    m = introduced(CAND, REF)

    assert m.value is not None
    assert_measured(m.value, 0.5, atol=0, rtol=1e-12)  # of 1/2 and 1/8


def test_equal_sides_give_exactly_one():
    """Exactly, so that A/A passes at any number of prompts that has limits."""
    many = {f"{prompt}-{i}": held for i in range(6) for prompt, held in REF.items()}
    m = introduced(many, many)

    assert (m.value, m.worst_value, m.n) == (1.0, 1.0, 12)
    assert m.interval is not None
    assert (m.interval.low, m.interval.high) == (1.0, 1.0)


def test_every_layer_weighs_the_same():
    """A layer a million times as large does not drown the fault of the small one.

    Per layer (ref, cand): small 0.1 and 0.3, large 0.1 and 0.1; sqrt((0.09 + 0.01) / 2) over 0.1.
    """
    big = [[3e6, 4e6]], [[[6e6, 9e6]]]
    ref = {
        "p-0": prefill(
            {
                "attn.0.in": [[3.0, 4.0]],
                "kda.0.out": [[[6.0, 9.0]]],
                "attn.2.in": big[0],
                "kda.2.out": big[1],
            }
        )
    }
    cand = {"p-0": changed(ref["p-0"], prefill__kda__0__out=np.array([[[6.0, 11.0]]], np.float32))}
    m = introduced(ref, cand)

    assert m.value is not None
    assert_measured(m.value, math.sqrt(0.05) / 0.1, atol=0, rtol=1e-6)


def test_ref_error_of_exactly_zero_is_undefined():
    exact = {"p-0": one_layer([[3.0, 4.0]], [[[6.0, 8.0]]])}
    off = {"p-0": one_layer([[3.0, 4.0]], [[[6.0, 9.0]]])}

    for m, side in ((introduced(exact, off), "ref"), (introduced(off, exact), "cand")):
        assert m.value is None
        assert m.why_undefined == (
            f"the error of {side} is exactly 0 in prompt p-0: nothing to divide"
        )


def test_a_unit_exact_in_ref_alone_is_undefined_and_exact_in_both_is_counted():
    """Layer 2 is exact on both sides (counted), then only on ref's (undefined)."""
    base = {"attn.0.in": [[3.0, 4.0]], "kda.0.out": [[[6.0, 9.0]]], "attn.2.in": [[1.0, 0.0]]}
    ref = {"p-0": prefill({**base, "kda.2.out": [[[2.0, 0.0]]]})}
    cand = {"p-0": prefill({**base, "kda.2.out": [[[2.5, 0.0]]]})}
    both = introduced(ref, ref)
    alone = introduced(ref, cand)

    assert both.value == 1.0
    assert both.breakdown["units exact on both sides"] == 2  # the head and the worst row of kda.2
    assert alone.why_undefined == (
        "the error of ref is exactly 0 at prefill.kda.2.out and that of cand is not"
    )


def test_without_weights_it_is_undefined():
    m = attention_introduced_ratio(make_pair(REF, CAND), LEVELS)

    assert m.value is None
    assert "no weights are at hand for the oracle" in str(m.why_undefined)


def test_missing_inputs_and_no_outputs_are_undefined():
    held = {"p-0": prefill({"kda.0.out": [[[6.0, 9.0]]]})}
    nothing = {"p-0": {"logits": np.ones((2, 3), np.float32)}}

    assert introduced(held, held).why_undefined == (
        "prompt p-0 holds prefill.kda.0.out but not prefill.attn.0.in"
    )
    assert "no prompt holds attention outputs" in str(introduced(nothing, nothing).why_undefined)


@pytest.mark.parametrize("name", ["prefill.attn.0.in", "prefill.kda.0.out"])
def test_non_finite_inputs_or_outputs_make_introduced_undefined(name):
    broken = {
        **CAND,
        "p-1": changed(CAND["p-1"], **{name.replace(".", "__"): lambda a: a * np.nan}),
    }
    m = introduced(REF, broken)

    assert m.value is None
    assert f"p-1 {name}: cand 2 NaN" in str(m.why_undefined)


def test_decode_positions_that_do_not_continue_are_undefined():
    held = {
        "p-0": {
            **one_layer([[3.0, 4.0]] * 3, [[[6.0, 9.0]]] * 3),
            **decode({"attn.0.in": [[3.0, 4.0]] * 2, "kda.0.out": [[[6.0, 9.0]]] * 2}, start=1),
        }
    }
    held["p-0"]["decode.positions"] = np.array([1, 1], np.int32)
    m = introduced(held, held)

    assert m.value is None
    assert "decode.positions must continue the prompt one by one" in str(m.why_undefined)


def weights() -> dict[str, NDArray[np.float64]]:
    rng = np.random.default_rng(4)
    return {
        name: (np.ones(shape) if name.endswith("norm.weight") else rng.normal(size=shape) * 0.4)
        for name, shape in weight_shapes(CONFIG).items()
    }


def captured(prompt_id: str, seed: int, *, noise: float, tokens: int = 7) -> dict[str, Any]:
    """The oracle's own run with relative noise on every attention output."""
    rng = np.random.default_rng(seed)
    ids = [
        int(token) for token in np.random.default_rng(ord(prompt_id[-1])).integers(0, 16, tokens)
    ]
    prompt = make_prompt(prompt_id, ids, tags=["tensors"])
    run = run_prompt(prompt, weights(), CONFIG, stream_tokens=1, chunk=4)
    made = {name: named.array.copy() for name, named in run.tensors.items()}
    for name, array in made.items():
        if name.endswith(".out"):
            made[name] = (array * (1 + noise * rng.normal(size=array.shape))).astype(np.float32)
    return made


def real_pair(noise: float = 0.004, fault: Any = None, **settings: Any) -> Any:
    ref = {f"p-{i}": captured(f"p-{i}", i, noise=0.004) for i in range(3)}
    cand = {f"p-{i}": captured(f"p-{i}", 100 + i, noise=noise) for i in range(3)}
    if fault is not None:
        for tensors in cand.values():
            fault(tensors)
    return make_pair(ref, cand, weights=weights(), config=CONFIG.model_dump(), **settings)


def test_real_oracle_finds_equal_noise_equal_in_every_mode_and_layer():
    m = attention_introduced_ratio(real_pair(), LEVELS)

    assert m.value is not None
    assert 0.7 < m.value < 1.6  # the greatest of three
    for place in ("prefill.kda.0", "decode.mla.1", "decode.kda.2"):
        # Multiplicative noise of 0.004 is a relative error of 0.004: seven rows of 12 values.
        assert 0.002 < m.breakdown[f"{place} ref"] < 0.006
        assert 0.002 < m.breakdown[f"{place} cand"] < 0.006
    assert m.breakdown["lse ref"] < 1e-6  # float32 storage of values near 1


def test_real_oracle_localises_a_wrong_head():
    def swap(tensors: dict[str, Any]) -> None:
        out = tensors["decode.mla.1.out"]
        tensors["decode.mla.1.out"] = out[:, [0, 2, 2]]

    m = attention_introduced_ratio(real_pair(fault=swap), LEVELS)

    assert m.worst is not None
    assert str(m.worst.place).startswith("decode.mla.1.out")
    assert m.worst_value is not None
    assert m.worst_value > 30
    assert m.breakdown["decode.mla.1 head 1 cand"] > 0.3
    assert m.breakdown["decode.mla.1 head 0 cand"] < 0.01
    assert m.breakdown["decode.kda.2 cand"] < 0.01


def test_decode_rows_run_on_the_sides_own_decode_inputs():
    """Outputs recomputed for perturbed decode inputs are exact again: nothing was introduced."""

    def upstream(tensors: dict[str, Any]) -> None:
        rng = np.random.default_rng(8)
        x = tensors["decode.attn.1.in"] = (
            tensors["decode.attn.1.in"] + rng.normal(size=tensors["decode.attn.1.in"].shape)
        ).astype(np.float32)
        start = int(tensors["decode.positions"][0])
        whole = np.concatenate([tensors["prefill.attn.1.in"][:start], x])
        exact = attention_layer(whole, weights(), CONFIG, 1)
        noise = 1 + 0.004 * rng.normal(size=exact.out[start:].shape)
        tensors["decode.mla.1.out"] = (exact.out[start:] * noise).astype(np.float32)
        assert exact.lse is not None
        tensors["decode.mla.1.lse"] = exact.lse[start:].astype(np.float32)

    m = attention_introduced_ratio(real_pair(fault=upstream), LEVELS)

    assert m.breakdown["decode.mla.1 cand"] < 0.006
    assert m.breakdown["lse cand"] < 1e-6


def test_decode_prefix_is_the_one_of_the_decode_run_where_it_was_captured():
    """The half prefill of the decode run saw other rows than the whole prefill did."""

    def moved(tensors: dict[str, Any]) -> None:
        rng = np.random.default_rng(8)
        start = int(tensors["decode.positions"][0])
        before = rng.normal(size=(start, 8)).astype(np.float32)
        tensors["decode.prefix.attn.1.in"] = before
        whole = np.concatenate([before, tensors["decode.attn.1.in"]])
        exact = attention_layer(whole, weights(), CONFIG, 1)
        noise = 1 + 0.004 * rng.normal(size=exact.out[start:].shape)
        tensors["decode.mla.1.out"] = (exact.out[start:] * noise).astype(np.float32)

    m = attention_introduced_ratio(real_pair(fault=moved), LEVELS)

    assert m.breakdown["decode.mla.1 cand"] < 0.006


def test_the_oracle_runs_once_a_side_in_pairs_that_share_it():
    """Ref against cand, then ref against itself: the second pair needs no layer at all."""
    calls = []

    def counted(x: Any, *rest: Any, **more: Any) -> LayerOutput:
        calls.append(len(x))
        return doubling(x, *rest, **more)

    first = make_pair(REF, CAND, weights={}, config=CONFIG.model_dump())
    itself = dataclasses.replace(first, cand=first.ref, _cache={})
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(oracle, "attention_layer", counted)
        apart = attention_introduced_ratio(first, LEVELS)
        ran = len(calls)
        same = attention_introduced_ratio(itself, LEVELS)

    assert ran == 4  # two sides, two prompts
    assert len(calls) == ran
    assert (apart.value, same.value) == (introduced(REF, CAND).value, 1.0)
