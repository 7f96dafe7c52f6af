"""Planted faults: exactly the heads and rows that the mechanism names are wrong, and no others.

The first MLA layer is looked at, for its input is the same with and without the
fault. What a fault makes of it is computed anew in NumPy from the layer's
input, its cache and its weights: latent attention head by head, then the wrong
read by its index rule.
"""

import itertools
import math
from typing import NamedTuple

import numpy as np
import pytest
import torch

from tests.measured import assert_measured
from tests.unit.models.small import (
    F64,
    SMALL,
    WEIGHTS,
    Array,
    rocm,
    run_decode,
    run_prefill,
    whole_trace,
)
from validate import faults, oracle
from validate.errors import InputError
from validate.models import FAULTS, REFERENCE_FAULTS, PathOptions

LAYER = 1
HEADS, LATENT = SMALL.heads, SMALL.kv_lora_rank
PROMPTS: tuple[tuple[int, ...], ...] = ((3, 1, 4, 1, 5, 9), (2, 6, 5, 3, 5, 8), (9, 7, 9, 3, 2, 3))
NEXT: tuple[tuple[int, ...], ...] = ((7,), (1,), (8,))
EXACT = {"atol": 1e-12, "rtol": 1e-11}


class Seen(NamedTuple):
    """The first MLA layer at one decode step of every row."""

    x: Array
    out: Array
    lse: Array
    cache: Array


def decode_step(options, *, rows: slice = slice(None)) -> Seen:
    trace = whole_trace()
    _, state = run_prefill(PROMPTS[rows], options)
    _, state = run_decode(NEXT[rows], state, options, trace=trace)
    x, out, lse = (
        trace.tensors[f"decode.{name}"][0][:, 0].numpy()
        for name in (f"attn.{LAYER}.in", f"mla.{LAYER}.out", f"mla.{LAYER}.lse")
    )
    return Seen(x, out, lse, state.kv[LAYER].numpy())


def layer_weight(name: str) -> Array:
    return np.asarray(WEIGHTS[f"layers.{LAYER}.mla.{name}"])


def latent_attention(x: Array, cache: Array, *, part=slice(None)) -> tuple[Array, Array]:
    """Latent output (heads, latent) and LSE (heads) of one row over a part of its keys."""
    nope, wide = SMALL.qk_nope_head_dim, SMALL.qk_head_dim
    low = oracle.rms_norm(
        (layer_weight("q_a.weight") @ x)[None], layer_weight("q_a_norm.weight"), eps=1e-6
    )[0]
    q = (layer_weight("q_b.weight") @ low).reshape(HEADS, wide)
    keys = cache[part]
    out, lse = [], []
    for head in range(HEADS):
        up = layer_weight("kv_b.weight").reshape(HEADS, -1, LATENT)[head, :nope]
        score = keys[:, :LATENT] @ (up.T @ q[head, :nope]) + keys[:, LATENT:] @ q[head, nope:]
        score = score * wide**-0.5
        lse.append(np.log(np.exp(score).sum()))
        out.append(np.exp(score - lse[-1]) @ keys[:, :LATENT])
    return np.stack(out), np.array(lse)


def values(latent: Array) -> Array:
    """Head h's value rows applied to whatever latent was read for head h."""
    up = layer_weight("kv_b.weight").reshape(HEADS, -1, LATENT)[:, SMALL.qk_nope_head_dim :]
    return np.asarray(np.einsum("hvl,hl->hv", up, latent))


def wrong_heads(faulty: Seen, clean: Seen) -> list[list[int]]:
    """For each row the heads whose output is off by more than a thousandth of the largest value."""
    off = np.abs(faulty.out - clean.out).max(-1) > 1e-3 * np.abs(clean.out).max()
    return [np.flatnonzero(row).tolist() for row in off]


def test_the_hand_made_attention_is_the_clean_layer():
    clean = decode_step(rocm(decode_pad="repeat", splits=2))

    for row in range(3):
        latent, lse = latent_attention(clean.x[row], clean.cache[row])
        assert_measured(clean.out[row], values(latent), **EXACT)
        assert_measured(clean.lse[row], lse, **EXACT)


def test_vx01_reads_head_h_from_the_copy_of_head_h_over_four():
    clean = decode_step(rocm(decode_pad="repeat"))
    faulty = decode_step(rocm(decode_pad="repeat", fault="VX-01"))

    assert np.array_equal(faulty.x, clean.x)
    for row in range(3):
        latent, lse = latent_attention(clean.x[row], clean.cache[row])
        read = [head // 4 for head in range(HEADS)]
        assert_measured(faulty.out[row], values(latent[read]), **EXACT)
        assert_measured(faulty.lse[row], lse[read], **EXACT)
    assert wrong_heads(faulty, clean) == [list(range(1, 12))] * 3


@pytest.mark.parametrize("pad", ["zero", "tile"])
def test_vx01_has_no_site_without_repeated_heads(pad):
    """Zero and tile are read back by prefix anyway."""
    clean = decode_step(rocm(prefill_pad=pad, decode_pad=pad))
    faulty = decode_step(rocm(prefill_pad=pad, decode_pad=pad, fault="VX-01"))

    assert all(np.array_equal(a, b) for a, b in zip(faulty, clean, strict=True))


@pytest.mark.parametrize("pad", ["zero", "tile"])
def test_vx02_reads_padded_rows_packed(pad):
    """Head h of row b comes from place 12 b + h of the rows of 16; places 12..15 are padding.

    A zero query attends to all keys alike: its latent is their mean.
    """
    clean = decode_step(rocm(prefill_pad=pad, decode_pad=pad))
    faulty = decode_step(rocm(prefill_pad=pad, decode_pad=pad, fault="VX-02"))
    padded = np.zeros((3, 16, LATENT))
    for row in range(3):
        padded[row, :HEADS], _ = latent_attention(clean.x[row], clean.cache[row])
        mean = clean.cache[row][:, :LATENT].mean(0)
        padded[row, HEADS:] = mean if pad == "zero" else padded[row, :4]
    packed = padded.reshape(48, LATENT)[:36].reshape(3, HEADS, LATENT)

    assert np.array_equal(faulty.x, clean.x)
    for row in range(3):
        assert_measured(faulty.out[row], values(packed[row]), **EXACT)
    assert np.array_equal(faulty.out[0], clean.out[0])
    assert wrong_heads(faulty, clean) == [[], list(range(12)), list(range(12))]
    assert np.array_equal(faulty.lse, clean.lse)


def test_vx02_is_silent_at_batch_size_one():
    for row in range(3):
        one = slice(row, row + 1)
        clean = decode_step(rocm(), rows=one)
        faulty = decode_step(rocm(fault="VX-02"), rows=one)
        assert all(np.array_equal(a, b) for a, b in zip(faulty, clean, strict=True))


@pytest.mark.parametrize("splits", [2, 3])
def test_lc01_merges_base_two_numbers_in_base_e(splits):
    """Weights exp(lse / ln 2) instead of exp(lse), and a merged LSE in the same wrong base."""
    clean = decode_step(rocm(splits=splits))
    faulty = decode_step(rocm(splits=splits, fault="LC-01"))
    bounds = [7 * i // splits for i in range(splits + 1)]

    assert np.array_equal(faulty.x, clean.x)
    for row in range(3):
        parts = [
            latent_attention(clean.x[row], clean.cache[row], part=slice(a, b))
            for a, b in itertools.pairwise(bounds)
        ]
        weights = np.exp(np.stack([lse for _, lse in parts]) / math.log(2))
        latent = np.einsum("ph,phl->hl", weights, np.stack([out for out, _ in parts]))
        assert_measured(faulty.out[row], values(latent / weights.sum(0)[:, None]), **EXACT)
        assert_measured(faulty.lse[row], np.log(weights.sum(0)), **EXACT)
    assert wrong_heads(faulty, clean) == [list(range(12))] * 3


def test_lc01_has_no_site_without_a_split():
    clean, faulty = decode_step(rocm()), decode_step(rocm(fault="LC-01"))

    assert all(np.array_equal(a, b) for a, b in zip(faulty, clean, strict=True))


def test_lc01_spares_the_output_where_one_part_holds_all_keys():
    """The first token decoded from nothing: one key, three parts without any."""
    options = rocm(splits=4), rocm(splits=4, fault="LC-01")
    traces = [whole_trace() for _ in options]
    for switches, trace in zip(options, traces, strict=True):
        _, empty = run_prefill([[3]], switches)
        state = type(empty)(
            lengths=empty.lengths * 0,
            kv={layer: cache[:, :0] for layer, cache in empty.kv.items()},
            kda={n: type(k)(k.recurrent * 0, k.conv * 0) for n, k in empty.kda.items()},
        )
        run_decode([[3]], state, switches, trace=trace)
    clean, faulty = (t.tensors for t in traces)

    assert torch.equal(faulty["decode.mla.1.out"][0], clean["decode.mla.1.out"][0])
    assert_measured(
        faulty["decode.mla.1.lse"][0], clean["decode.mla.1.lse"][0] / math.log(2), **EXACT
    )


def test_lc01_reaches_the_prefill_of_a_later_chunk_and_spares_the_first():
    traces = {}
    for fault in (None, "LC-01"):
        traces[fault] = whole_trace()
        run_prefill(PROMPTS, rocm(fault=fault), chunk=3, trace=traces[fault])
    clean, faulty = (traces[f].tensors["prefill.mla.1.out"] for f in (None, "LC-01"))

    assert torch.equal(faulty[0], clean[0])
    assert not torch.equal(faulty[1], clean[1])
    assert torch.equal(*(traces[f].tensors["prefill.attn.1.in"][1] for f in (None, "LC-01")))


@pytest.mark.parametrize("fault", ["VX-01", "VX-02"])
def test_decode_faults_leave_prefill_alone(fault):
    """The two unpad faults sit in the decode unpad only."""
    pad = "repeat" if fault == "VX-01" else "zero"
    for chunk in (0, 2):
        clean, clean_state = run_prefill(PROMPTS, rocm(decode_pad=pad), chunk=chunk)
        faulty, state = run_prefill(PROMPTS, rocm(decode_pad=pad, fault=fault), chunk=chunk)
        assert torch.equal(faulty, clean)
        assert all(torch.equal(state.kv[n], clean_state.kv[n]) for n in clean_state.kv)


@pytest.mark.parametrize("fault", sorted({*FAULTS} - {*REFERENCE_FAULTS}))
def test_the_reference_path_has_no_site(fault):
    with pytest.raises(InputError, match=rf"^fault={fault}: path 'reference' has no"):
        PathOptions(dtype=torch.float64, splits=3, fault=fault)


@pytest.mark.parametrize(
    "options",
    [
        rocm(),
        rocm(prefill_pad="tile", decode_pad="tile", splits=2),
        rocm(decode_pad="repeat", splits=3),
    ],
    ids=["zero", "tile", "repeat"],
)
def test_without_the_switch_the_padded_paths_are_the_reference(options):
    clean, other = decode_step(F64), decode_step(options)

    assert_measured(other.out, clean.out, **EXACT)
    assert_measured(other.lse, clean.lse, **EXACT)


def test_every_switch_is_a_fault_of_the_catalogue():
    sides = {fault: "ref" if fault in REFERENCE_FAULTS else "cand" for fault in FAULTS}

    assert {fault: faults.FAULTS[fault].where for fault in FAULTS} == sides
