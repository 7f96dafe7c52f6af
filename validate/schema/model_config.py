"""The dimensions of a Kimi-K3-shaped text model; shared by the oracle and the models."""

from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field, model_validator

__all__ = ["ModelConfig"]

Size = Annotated[int, Field(ge=1)]


class ModelConfig(BaseModel):
    """All that fixes the architecture; weights are named in ``docs/model.md``."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    name: str
    vocab_size: Size
    tokenizer_length: Size
    """Ids at or above it are padding rows that no tokenizer emits."""
    hidden_size: Size
    layers: Size
    heads: Size
    """Attention heads of MLA and of KDA alike (one tensor-parallel rank's share)."""
    mla_layers: tuple[int, ...]
    """0-based layers with MLA; all others are KDA."""
    q_lora_rank: Size
    kv_lora_rank: Size
    qk_nope_head_dim: Size
    qk_rope_head_dim: Size
    """Plain extra dimensions: K3 is NoPE, nothing is rotated."""
    v_head_dim: Size
    mla_norm_eps: float = 1e-6
    """Eps of the q_a and kv_a norms; serving stacks disagree (1e-6 or ``rms_norm_eps``)."""
    kda_head_dim: Size
    """Key and value width of a KDA head."""
    kda_gate_rank: Size
    conv_kernel: Size = 4
    gate_lower_bound: float = -5.0
    rms_norm_eps: float = 1e-5
    attn_res_block: Size
    """The residual bank takes the prefix at every layer whose index it divides."""
    dense_intermediate: Size
    """Width of the dense MLP of layer 0."""
    experts: Size
    experts_per_token: Size
    latent_size: Size
    expert_intermediate: Size
    shared_intermediate: Size
    situ_beta: float = 4.0
    situ_linear_beta: float = 25.0

    @model_validator(mode="after")
    def _consistent(self) -> "ModelConfig":
        outside = [layer for layer in self.mla_layers if not 0 <= layer < self.layers]
        if outside:
            msg = f"mla_layers {outside} are outside 0..{self.layers - 1}"
            raise ValueError(msg)
        if self.tokenizer_length > self.vocab_size:
            msg = f"tokenizer_length {self.tokenizer_length} exceeds vocab_size {self.vocab_size}"
            raise ValueError(msg)
        if self.experts_per_token > self.experts:
            msg = f"experts_per_token {self.experts_per_token} exceeds experts {self.experts}"
            raise ValueError(msg)
        return self

    @property
    def qk_head_dim(self) -> int:
        """Width of a query or decompressed key head."""
        return self.qk_nope_head_dim + self.qk_rope_head_dim

    @property
    def attention_scale(self) -> float:
        """Softmax scale, ``qk_head_dim ** -0.5``."""
        return float(self.qk_head_dim**-0.5)
