"""Known configurations: the true Kimi K3 text dimensions, and k3-nano from its file."""

from pathlib import Path

from pydantic import ValidationError

from validate.errors import InputError
from validate.schema import ModelConfig

__all__ = ["KIMI_K3", "KIMI_K3_TP8_HEADS", "load_config"]

KIMI_K3 = ModelConfig(
    name="kimi-k3",
    vocab_size=163_840,
    tokenizer_length=163_840,
    hidden_size=7168,
    layers=93,
    heads=96,
    mla_layers=(*range(3, 92, 4), 92),
    q_lora_rank=1536,
    kv_lora_rank=512,
    qk_nope_head_dim=128,
    qk_rope_head_dim=64,
    v_head_dim=128,
    kda_head_dim=128,
    kda_gate_rank=128,
    attn_res_block=12,
    dense_intermediate=33_792,
    experts=896,
    experts_per_token=16,
    latent_size=3584,
    expert_intermediate=3072,
    shared_intermediate=6144,
)
"""Published ``config.json`` of moonshotai/Kimi-K3 (text part)."""

KIMI_K3_TP8_HEADS = 12
"""Heads of one rank of eight."""


def load_config(path: Path) -> ModelConfig:
    """Read a configuration file.

    Raises:
        InputError: the file is missing or does not describe a model.
    """
    try:
        return ModelConfig.model_validate_json(path.read_bytes())
    except (OSError, ValidationError) as error:
        msg = f"model config {path}: {error}"
        raise InputError(msg) from error
