"""Faults inside a layer: what the mechanism names is wrong, what stands before it is not."""

from collections.abc import Mapping

import numpy as np
import pytest
import torch

from tests.measured import assert_measured
from tests.unit.models.small import (
    ROWS,
    SMALL,
    WEIGHTS,
    rocm,
    run_decode,
    run_prefill,
    whole_trace,
)
from validate.models import PathOptions
from validate.models.kda import scan_chunks
from validate.models.trace import SILENT

NEXT = ((7,), (1,), (8,))
CLOSES_LAST = 4
"""The layer of the small model that fills the last slot of its residual bank."""


def traced(options: PathOptions, *, rows=ROWS, chunk: int = 0, decode: bool = False):
    """Tensors of a prefill, or of one decode step behind it; and the state."""
    trace = whole_trace()
    _, state = run_prefill(rows, options, chunk=chunk, trace=SILENT if decode else trace)
    if decode:
        _, state = run_decode(NEXT[: len(rows)], state, options, trace=trace)
    return {name: torch.cat(parts, 1) for name, parts in trace.tensors.items()}, state


def both(fault: str, **how):
    clean, _ = traced(rocm(), **how)
    faulty, _ = traced(rocm(fault=fault), **how)
    return clean, faulty


def wrong(clean: Mapping[str, torch.Tensor], faulty: Mapping[str, torch.Tensor]) -> set[str]:
    return {
        name
        for name, value in clean.items()
        if not torch.allclose(value.double(), faulty[name].double(), atol=1e-9, rtol=1e-7)
    }


@pytest.mark.parametrize("fault", ["HD-08", "QU-06"])
def test_decode_faults_spare_prefill_and_begin_at_the_first_mla_layer(fault):
    assert wrong(*both(fault)) == set()
    found = wrong(*both(fault, decode=True))

    assert {"decode.mla.1.out", "decode.mla.1.lse"} <= found
    assert "decode.attn.1.in" not in found


def test_hd08_is_attention_over_the_latent_alone():
    """The log-sum-exp of a decode step whose query has zeros behind the latent, computed anew."""
    clean, state = traced(rocm(), decode=True)
    faulty, _ = traced(rocm(fault="HD-08"), decode=True)
    x = clean["decode.attn.1.in"][0, 0].double()
    w = {
        name: WEIGHTS[f"layers.1.mla.{name}.weight"] for name in ("q_a", "q_a_norm", "q_b", "kv_b")
    }
    low = w["q_a"] @ x
    low = low * torch.rsqrt(low.square().mean() + SMALL.mla_norm_eps) * w["q_a_norm"]
    q = (w["q_b"] @ low).view(SMALL.heads, -1)[:, : SMALL.qk_nope_head_dim]
    up = w["kv_b"].view(SMALL.heads, -1, SMALL.kv_lora_rank)[:, : SMALL.qk_nope_head_dim]
    keys = state.kv[1][0, : len(ROWS[0]) + 1, : SMALL.kv_lora_rank].double()
    scores = torch.einsum("hn,hnl,kl->hk", q, up, keys) * SMALL.attention_scale

    assert_measured(
        faulty["decode.mla.1.lse"][0, 0].numpy(),
        scores.logsumexp(-1).numpy(),
        atol=1e-6,
        rtol=1e-6,
    )


def test_la01_spares_the_first_chunk_and_is_the_transpose():
    clean, faulty = (
        traced(rocm(kda_chunk=4, fault=f))[0]["prefill.kda.0.out"] for f in (None, "LA-01")
    )
    transition, update = torch.zeros(1, 1, 2, 2, 2), torch.arange(8.0).view(1, 1, 2, 2, 2)

    before, last = scan_chunks(transition, update, torch.zeros(1, 1, 2, 2), fault="LA-01")

    assert torch.equal(faulty[:, :4], clean[:, :4])
    assert not torch.allclose(faulty[0, 4:], clean[0, 4:], atol=1e-6)
    assert before[0, 0, 1].tolist() == [[0.0, 2.0], [1.0, 3.0]]
    assert last[0, 0].tolist() == [[4.0, 5.0], [6.0, 7.0]]


def test_la14_spares_what_fits_in_one_pass():
    short = tuple(row[:3] for row in ROWS)
    assert wrong(*both("LA-14", chunk=0)) == set()
    assert wrong(*both("LA-14", rows=short, chunk=3)) == set()
    clean, faulty = both("LA-14", rows=(ROWS[0],), chunk=3)

    assert torch.equal(faulty["prefill.kda.0.out"][:, :3], clean["prefill.kda.0.out"][:, :3])
    assert not torch.equal(faulty["prefill.kda.0.out"][:, 3:], clean["prefill.kda.0.out"][:, 3:])


def test_nd06_spares_the_longest_row_and_a_row_alone():
    _, clean = traced(rocm())
    _, faulty = traced(rocm(fault="ND-06"))
    apart = (clean.kda[0].recurrent - faulty.kda[0].recurrent).flatten(1).abs().amax(1)

    assert apart[0] == 0
    assert (apart[1:] > 1e-6).all()
    assert wrong(*both("ND-06", rows=(ROWS[1],))) == set()


def test_nd13_is_exact_up_to_the_layer_that_fills_the_slot():
    clean, faulty = both("ND-13")
    logits = [run_prefill(ROWS, rocm(fault=f))[0] for f in (None, "ND-13")]

    assert wrong(clean, faulty) == set()  # the small model's last slot is filled by its last layer
    assert not torch.allclose(logits[0], logits[1], atol=1e-6)
    steps = [
        run_decode(NEXT, run_prefill(ROWS, rocm())[1], rocm(fault=f))[0] for f in (None, "ND-13")
    ]
    assert torch.equal(*steps)


def test_mo01_rounds_the_bias_to_steps_of_a_thirty_second():
    clean, faulty = both("MO-01")
    bias = WEIGHTS["layers.1.moe.correction_bias"].double()
    moved = (faulty["prefill.router.1.scores"] - clean["prefill.router.1.scores"])[0, 0].double()
    steps = (bias + moved + 7.0) * 32

    assert_measured(steps.numpy(), np.round(steps.numpy()), atol=1e-6, rtol=0.0)
    assert moved.abs().max() > 1e-3


@pytest.mark.parametrize("fault", ["MO-02", "QU-05"])
def test_moe_faults_begin_behind_the_router(fault):
    found = wrong(*both(fault))

    assert "prefill.hidden.1" in found
    assert {"prefill.router.1.ids", "prefill.hidden.0", "prefill.mla.1.out"} & found == set()


def test_mo02_adds_the_shared_expert_seven_times_more():
    """Against a model without shared experts the faulty one is eight times as far as the clean."""
    bare = dict(WEIGHTS)
    bare["layers.1.moe.shared.down.weight"] = 0 * bare["layers.1.moe.shared.down.weight"]
    made = {}
    for name, fault, weights in (
        ("bare", None, bare),
        ("clean", None, WEIGHTS),
        ("8", "MO-02", WEIGHTS),
    ):
        trace = whole_trace()
        run_prefill(ROWS, rocm(fault=fault), weights=weights, trace=trace)
        made[name] = trace.tensors["prefill.hidden.1"][0][0]

    assert_measured(
        (made["8"] - made["bare"]).numpy(),
        8 * (made["clean"] - made["bare"]).numpy(),
        atol=1e-9,
        rtol=1e-7,
    )


def test_tv12_swaps_the_last_choice_of_one_token_in_seven():
    clean, _ = traced(PathOptions(dtype=torch.float64))
    faulty, _ = traced(PathOptions(dtype=torch.float64, fault="TV-12"))
    ids = [x["prefill.router.1.ids"][0] for x in (clean, faulty)]
    scores = clean["prefill.router.1.scores"][0]
    order = scores.sort(dim=-1, descending=True, stable=True).indices
    k = SMALL.experts_per_token

    assert torch.equal(ids[1][:, :-1], ids[0][:, :-1])
    assert (ids[1] != ids[0]).any(-1).nonzero()[:, 0].tolist() == [0, 7]
    assert torch.equal(ids[1][::7, -1], order[::7, k])
