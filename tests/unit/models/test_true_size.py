"""Kimi K3 at its published dimensions: shapes, counts, and one rank's MLA layer run for real."""

import math

import numpy as np
import pytest
import torch

from tests.measured import assert_measured
from validate import oracle
from validate.models import KIMI_K3, PathOptions, Trace, weight_shapes
from validate.models.configs import KIMI_K3_TP8_HEADS
from validate.models.mla import mla_layer

SHAPES = weight_shapes(KIMI_K3)
MILLION, BILLION = 10**6, 10**9


def parameters(prefix: str) -> int:
    return sum(math.prod(shape) for name, shape in SHAPES.items() if name.startswith(prefix))


def test_layer_counts_are_those_of_the_published_config():
    """``full_attn_layers`` 4, 8, ..., 92 and 93, counted from 1; layer 0 dense, 92 with experts."""
    mla = {int(n.split(".")[1]) for n in SHAPES if ".mla.o." in n}
    kda = {int(n.split(".")[1]) for n in SHAPES if ".kda.o." in n}
    moe = {int(n.split(".")[1]) for n in SHAPES if ".moe.router." in n}

    assert len(mla) == 24
    assert len(kda) == 69
    assert mla == {*range(3, 92, 4), 92}
    assert moe == set(range(1, 93))
    assert "layers.0.mlp.gate.weight" in SHAPES


def test_residual_bank_closes_eight_blocks():
    """Layers 0, 12, ..., 84."""
    closes = [i for i in range(KIMI_K3.layers) if i % KIMI_K3.attn_res_block == 0]

    assert closes == [0, 12, 24, 36, 48, 60, 72, 84]


def test_parameters_of_an_mla_layer_by_hand():
    """q 7168 -> 1536 -> 96 x 192, kv 7168 -> 576 and 512 -> 96 x 256, gate and output 7168 x 12288."""
    by_hand = (
        1536 * 7168
        + 1536
        + 18_432 * 1536
        + 576 * 7168
        + 512
        + 24_576 * 512
        + 12_288 * 7168
        + 7168 * 12_288
    )

    assert parameters("layers.3.mla.") == by_hand == 232_196_096


def test_parameters_of_a_kda_layer_by_hand():
    """q, k, v, gate and output 7168 x 12288, three convolutions of 4, decay 7168 -> 128 -> 12288."""
    by_hand = (
        5 * 12_288 * 7168
        + 3 * 12_288 * 4
        + 128 * 7168
        + 12_288 * 128
        + 96  # A_log
        + 12_288  # dt_bias
        + 96 * 7168  # beta
        + 128  # output norm
    )

    assert parameters("layers.0.kda.") == by_hand == 443_740_384


def test_parameters_of_an_expert_layer_by_hand():
    """896 experts of 3 x 3072 x 3584 over a latent of 3584, one shared MLP of width 6144."""
    by_hand = 896 * 3 * 3072 * 3584 + 896 * 7168 + 896 + 2 * 3584 * 7168 + 3584 + 3 * 6144 * 7168

    assert parameters("layers.1.moe.") == by_hand
    assert parameters("layers.0.mlp.") == 3 * 33_792 * 7168


def test_size_is_the_quoted_one():
    """2.8T in all and 104B active as quoted; active without the embedding, which is looked up."""
    total = sum(math.prod(shape) for shape in SHAPES.values())
    experts = sum(math.prod(s) for n, s in SHAPES.items() if ".moe.experts." in n)
    active = total - experts + experts * 16 // 896 - math.prod(SHAPES["embed.weight"])

    assert round(total / BILLION, -2) == 2800
    assert round(active / BILLION) == 104


def test_attention_scale_is_that_of_the_kernel_capture():
    """``sm_scale`` 0.07216878 as captured live (ROCm/aiter#4541)."""
    assert round(KIMI_K3.attention_scale, 8) == 0.07216878
    assert KIMI_K3.qk_head_dim == 192
    assert KIMI_K3.kv_lora_rank + KIMI_K3.qk_rope_head_dim == 576


def test_k3_nano_has_the_heads_of_one_rank_of_eight():
    assert KIMI_K3.heads // 8 == KIMI_K3_TP8_HEADS == 12


def test_shapes_of_named_layers_only():
    named = weight_shapes(KIMI_K3, layers=(0, 3))

    assert named == {n: s for n, s in SHAPES.items() if n.startswith(("layers.0.", "layers.3."))}


@pytest.fixture(scope="module")
def rank():
    """One rank of eight: 12 heads, 42 million float64 weights (340 MB) and two tokens."""
    config = KIMI_K3.model_copy(update={"heads": KIMI_K3_TP8_HEADS, "name": "kimi-k3-rank"})
    rng = torch.Generator().manual_seed(9)
    weights = {}
    for name, shape in weight_shapes(config, layers=(3,)).items():
        if ".mla." in name:
            draw = torch.randn(shape, generator=rng).double()
            scale = shape[1] ** -0.5 if len(shape) == 2 else 0.3
            made = draw.mul_(scale)
            weights[name] = made if len(shape) == 2 else made.add_(1.0)
    x = torch.randn(1, 3, 7168, generator=rng).double()
    return config, weights, x


@pytest.mark.parametrize(
    "options",
    [
        pytest.param({"path": "reference"}, id="reference"),
        pytest.param({"path": "rocm", "decode_pad": "zero", "splits": 2}, id="zero-16"),
        pytest.param({"path": "rocm", "decode_pad": "tile"}, id="tile-16"),
        pytest.param({"path": "rocm", "decode_pad": "repeat", "splits": 3}, id="repeat-48"),
    ],
)
def test_a_true_size_mla_layer_of_one_rank_is_the_oracle(rank, options):
    """Two tokens of prefill, one of decode; qk 192, value 128, latent 512 + 64, hidden 7168."""
    config, weights, x = rank
    switches = PathOptions(dtype=torch.float64, **options)
    trace = Trace(wants=lambda _: True)
    inner = {name.removeprefix("layers.3.mla."): w for name, w in weights.items()}
    y, cache = [], torch.zeros(1, 0, 576, dtype=torch.float64)
    for start, part, decode in ((0, x[:, :2], False), (2, x[:, 2:], True)):
        made, cache = mla_layer(
            part,
            cache,
            torch.tensor([start]),
            torch.tensor([part.shape[1]]),
            inner,
            config=config,
            options=switches,
            decode=decode,
            place="mla",
            trace=trace,
        )
        y.append(made[0])
    expected = oracle.attention_layer(
        x[0].numpy(), {n: w.numpy() for n, w in weights.items()}, config, 3
    )

    close = {"atol": 1e-11, "rtol": 1e-10}
    assert_measured(torch.cat(y), expected.y, **close)
    assert_measured(torch.cat(trace.tensors["mla.out"], dim=1)[0], expected.out, **close)
    assert_measured(torch.cat(trace.tensors["mla.lse"], dim=1)[0], expected.lse, **close)
    assert_measured(cache[0], expected.state.kv, **close)
    assert np.asarray(expected.out).shape == (3, 12, 128)
