"""The torch model in float64 computes what the oracle computes: two independent programs.

The oracle shares no arithmetic with ``validate.models``: NumPy, one prompt at a
time, decompressed attention by loops over heads, the recurrence token by token.
"""

from pathlib import Path

import numpy as np
import pytest
import torch

from tests.unit.models.oracle_agreement import disagreement, disagreement_of_paths
from tests.unit.models.small import ROWS, SMALL, WEIGHTS, rocm, run_prefill, small_weights
from validate import oracle
from validate.models import PathOptions, load_config, load_weights, weight_shapes

AGREE = 1e-11
"""Of the largest value of a tensor; measured 4e-14. The planted mutants differ by 0.9 and more."""

GOLDEN = Path(__file__).parents[3] / "golden/k3-nano"


def test_both_paths_agree_inside_and_out():
    """The very comparison that catches the mutants of ``tests/meta/test_models_mutation.py``."""
    assert disagreement_of_paths(WEIGHTS) <= AGREE


@pytest.mark.parametrize("pad", ["zero", "tile", "repeat"])
def test_rocm_agrees_on_longer_rows_whatever_the_padding(pad):
    options = rocm(prefill_pad="tile" if pad == "tile" else "zero", decode_pad=pad, splits=2)

    assert disagreement(WEIGHTS, options=options) <= AGREE


@pytest.mark.parametrize("chunk", [1, 5, 64])
def test_the_reference_agrees_whatever_the_chunk(chunk):
    options = PathOptions(dtype=torch.float64, kda_chunk=3)

    assert disagreement(WEIGHTS, options=options, chunk=chunk) <= AGREE


def test_many_experts_take_the_grouped_form_and_agree():
    config = SMALL.model_copy(update={"experts": 40, "experts_per_token": 5})

    assert disagreement(small_weights(config), options=rocm(), config=config) <= AGREE


@pytest.mark.parametrize(
    "change",
    [
        pytest.param({"gate_lower_bound": -2.0}, id="gate-bound"),
        pytest.param({"mla_norm_eps": 0.1}, id="mla-eps"),
        pytest.param({"rms_norm_eps": 0.1}, id="rms-eps"),
        pytest.param({"attn_res_block": 1}, id="a-block-a-layer"),
        pytest.param({"attn_res_block": 99}, id="one-block"),
        pytest.param({"conv_kernel": 2}, id="conv-kernel"),
        pytest.param({"situ_beta": 1.5, "situ_linear_beta": 3.0}, id="situ"),
        pytest.param({"heads": 3}, id="heads"),
        pytest.param({"mla_layers": (0, 3)}, id="mla-first"),
    ],
)
def test_each_number_of_the_config_is_used_as_the_oracle_uses_it(change):
    config = SMALL.model_copy(update=change)
    options = PathOptions(dtype=torch.float64)

    assert disagreement(small_weights(config), options=options, config=config) <= AGREE


def test_single_precision_is_near_the_oracle():
    """float32 (working and accumulating) stays within 2e-5 of the largest value, measured 2e-6."""
    weights = {name: w.float() for name, w in WEIGHTS.items()}
    logits, _ = run_prefill(ROWS[:1], PathOptions(dtype=torch.float32), weights=weights)
    arrays = {name: w.double().numpy() for name, w in weights.items()}
    expected = oracle.logits_of(oracle.forward(ROWS[0], arrays, SMALL).final, arrays)

    assert np.abs(logits[0].numpy() - expected).max() <= 2e-5 * np.abs(expected).max()


@pytest.mark.parametrize(
    "config", [SMALL, load_config(GOLDEN / "config.json")], ids=lambda c: c.name
)
def test_both_programs_name_the_same_weights(config):
    assert weight_shapes(config) == oracle.weight_shapes(config)


@pytest.mark.golden
def test_the_trained_weights_agree_on_a_short_prompt():
    config = load_config(GOLDEN / "config.json")
    path = GOLDEN / "weights/seed1.safetensors"
    weights = load_weights(path, config, dtype=torch.float64, device="cpu")
    prompt = (256, *b"12+30=42\n")

    error = disagreement(weights, options=rocm(splits=4), config=config, rows=[prompt])

    assert error <= AGREE
    for name, array in oracle.load_weights(path).items():
        assert np.array_equal(weights[name].numpy(), array), name
