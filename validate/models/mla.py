"""Multi-head latent attention (NoPE, output gate): the reference form and the two ROCm forms."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from validate.models.attention import Partial, attend, key_parts, merge_partials
from validate.models.heads import PadRule, accepted, pad_heads, unpad_heads
from validate.models.ops import linear, rms_norm
from validate.models.options import PathOptions
from validate.models.trace import Silent, Trace
from validate.schema import ModelConfig

__all__ = ["AttentionCall", "mla_layer"]

FLOAT8_MAX = {"fp8": 448.0, "fp8-fnuz": 240.0}
FLOAT8_DTYPE = {"fp8": torch.float8_e4m3fn, "fp8-fnuz": torch.float8_e4m3fnuz}
_K_SCALE = 0.06
"""Of the checkpoint in the source of ``QU-06``."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AttentionCall:
    """One layer's attention: queries, the latent cache, and who sees what."""

    q: Tensor
    """(batch, queries, heads, nope + rope)."""
    cache: Tensor
    """(batch, keys, latent + rope): normed latent, then the shared extra key dims."""
    first_new: int
    """Index of the first key that this pass wrote for the shortest prefix in the batch."""
    mask: Tensor
    """(batch, queries, keys)."""
    kv_b: Tensor
    """(heads * (nope + value), latent)."""


def append_cache(cache: Tensor, new: Tensor, start: Tensor, lengths: Tensor) -> Tensor:
    """Write ``lengths[b]`` rows of ``new`` at ``start[b]`` into a cache grown to hold them.

    Args:
        cache: (batch, keys, dim).
        new: (batch, tokens, dim).
        start: (batch,) tokens already stored.
        lengths: (batch,) tokens to store.
    """
    need = int((start + lengths).max())
    grown = cache.new_zeros(cache.shape[0], max(need, cache.shape[1]), cache.shape[2])
    grown[:, : cache.shape[1]] = cache
    offsets = torch.arange(new.shape[1], device=new.device)
    real = offsets < lengths.unsqueeze(1)
    rows = torch.arange(cache.shape[0], device=new.device).unsqueeze(1).expand_as(real)
    grown[rows[real], (start.unsqueeze(1) + offsets)[real]] = new[real]
    return grown


def decompress(call: AttentionCall, part: slice, config: ModelConfig) -> tuple[Tensor, Tensor]:
    """Per-head keys (batch, keys, heads, nope + rope) and values of a part of the cache."""
    latent, extra = call.cache[:, part].split(
        [config.kv_lora_rank, config.qk_rope_head_dim], dim=-1
    )
    per_head = linear(latent, call.kv_b).unflatten(-1, (config.heads, -1))
    k_nope, v = per_head.split([config.qk_nope_head_dim, config.v_head_dim], dim=-1)
    return torch.cat([k_nope, extra.unsqueeze(2).expand(-1, -1, config.heads, -1)], dim=-1), v


def _over_parts(
    one: Callable[[slice], Partial], parts: list[slice], *, trace: Trace | Silent, fault: str | None
) -> Partial:
    partials = [one(part) for part in parts]
    if len(partials) == 1:
        return partials[0]
    trace.branch("lse_merge")
    return merge_partials(partials, fault=fault)


def reference_attention(
    call: AttentionCall,
    *,
    config: ModelConfig,
    options: PathOptions,
    decode: bool,
    trace: Trace | Silent,
) -> Partial:
    """Decompressed heads, plain softmax, wide arithmetic on both products."""

    def one(part: slice) -> Partial:
        k, v = decompress(call, part, config)
        return attend(
            call.q,
            k,
            v,
            call.mask[:, :, part],
            scale=config.attention_scale,
            accumulate=options.accumulate,
            round_weights=False,
        )

    trace.branch(f"mla.{'decode' if decode else 'prefill'}.decompressed")
    return _over_parts(one, key_parts(call.cache.shape[1], options.splits), trace=trace, fault=None)


def _float8(x: Tensor, form: str) -> Tensor:
    limit = FLOAT8_MAX[form]
    return x.float().clamp(-limit, limit).to(FLOAT8_DTYPE[form])


def _dtype_of(tensors: Sequence[Tensor]) -> str:
    """The dtype that all ``tensors`` really have, as a path proof spells it."""
    (name,) = {str(x.dtype).removeprefix("torch.") for x in tensors}
    return name


def padded_prefill(
    call: AttentionCall, *, config: ModelConfig, options: PathOptions, trace: Trace | Silent
) -> Partial:
    """ROCm prefill: q, k and v decompressed and padded alike; cached prefix and new tokens merged."""
    rule: PadRule = options.prefill_pad

    def one(part: slice) -> Partial:
        operands = [call.q, *decompress(call, part, config)]
        if options.prefill != "bf16":
            narrow = [_float8(x, options.prefill) for x in operands]
            trace.branch(f"mla.prefill.fp8.{_dtype_of(narrow)}")
            operands = [n.to(x.dtype) for n, x in zip(narrow, operands, strict=True)]
        q, k, v = (pad_heads(x, rule) for x in operands)
        accepted(q.shape[-2])
        raw = attend(
            q,
            k,
            v,
            call.mask[:, :, part],
            scale=config.attention_scale,
            accumulate=options.accumulate,
            round_weights=True,
        )
        return Partial(
            unpad_heads(raw.out, config.heads, rule, axis=-2),
            unpad_heads(raw.lse, config.heads, rule, axis=-1),
        )

    trace.branch(f"mla.prefill.padded.{rule}")
    keys = call.cache.shape[1]
    parts = (
        [slice(0, call.first_new), slice(call.first_new, keys)]
        if call.first_new
        else [slice(0, keys)]
    )
    return _over_parts(one, parts, trace=trace, fault=options.fault)


def absorbed_decode(
    call: AttentionCall, *, config: ModelConfig, options: PathOptions, trace: Trace | Silent
) -> Partial:
    """ROCm decode: contractions over the latent, q padded, split keys, natural-log merge.

    No per-head key exists here: every head reads the one cached row of
    latent + rope numbers, whose first ``kv_lora_rank`` are the values too.
    """
    rule: PadRule = options.decode_pad
    up = call.kv_b.to(call.q.dtype).unflatten(0, (config.heads, -1))
    w_key, w_value = up.split([config.qk_nope_head_dim, config.v_head_dim], dim=1)
    acc = options.accumulate
    q_nope, q_extra = call.q.split([config.qk_nope_head_dim, config.qk_rope_head_dim], dim=-1)
    q_latent = torch.einsum("bqhn,hnl->bqhl", q_nope.to(acc), w_key.to(acc)).to(call.q.dtype)
    if options.fault == "HD-08":  # the kernel takes a layer without rotation for one without it
        q_extra = torch.zeros_like(q_extra)
    scale = config.attention_scale
    if options.fault == "QU-06":  # the checkpoint's k_scale, though the cache is not quantised
        scale *= _K_SCALE
    q = pad_heads(torch.cat([q_latent, q_extra], dim=-1), rule)
    accepted(q.shape[-2])

    def one(part: slice) -> Partial:
        shared = call.cache[:, part].unsqueeze(2)
        if shared.shape[2] != 1:
            msg = (
                f"absorbed decode: keys carry {shared.shape[2]} heads, expected the one latent row"
            )
            raise ValueError(msg)
        return attend(
            q,
            shared,
            shared[..., : config.kv_lora_rank],
            call.mask[:, :, part],
            scale=scale,
            accumulate=acc,
            round_weights=True,
        )

    raw = _over_parts(
        one, key_parts(call.cache.shape[1], options.splits), trace=trace, fault=options.fault
    )
    latent = unpad_heads(raw.out.to(call.q.dtype), config.heads, rule, axis=-2, fault=options.fault)
    lse = unpad_heads(raw.lse, config.heads, rule, axis=-1, fault=options.fault)
    trace.branch("mla.decode.absorbed")
    trace.branch(f"mla.decode.pad.{rule}")
    out = torch.einsum("bqhl,hvl->bqhv", latent.to(acc), w_value.to(acc))
    return Partial(out, lse)


def mla_layer(
    x: Tensor,
    cache: Tensor,
    start: Tensor,
    lengths: Tensor,
    weights: Mapping[str, Tensor],
    *,
    config: ModelConfig,
    options: PathOptions,
    decode: bool,
    place: str,
    trace: Trace | Silent,
) -> tuple[Tensor, Tensor]:
    """One MLA layer on (batch, tokens, hidden) after ``start[b]`` cached tokens.

    Args:
        x: normed layer input.
        cache: (batch, keys, latent + rope) before this pass.
        start: (batch,) tokens cached.
        lengths: (batch,) real tokens in ``x``.
        weights: this layer's weights, names after ``mla.``.
        config: dimensions.
        options: path and form.
        decode: True for the decode form.
        place: prefix of emitted tensors.
        trace: records branches and tensors.

    Returns:
        The layer's output (batch, tokens, hidden) and the grown cache.
    """
    acc, eps = options.accumulate, config.mla_norm_eps
    q_low = rms_norm(
        linear(x, weights["q_a.weight"]), weights["q_a_norm.weight"], eps=eps, accumulate=acc
    )
    q = linear(q_low, weights["q_b.weight"]).unflatten(-1, (config.heads, -1))
    latent, extra = linear(x, weights["kv_a.weight"]).split(
        [config.kv_lora_rank, config.qk_rope_head_dim], dim=-1
    )
    latent = rms_norm(latent, weights["kv_a_norm.weight"], eps=eps, accumulate=acc)
    cache = append_cache(cache, torch.cat([latent, extra], dim=-1), start, lengths)
    position = start.unsqueeze(1) + torch.arange(x.shape[1], device=x.device)
    if decode and options.fault == "SP-14":  # every row of a window has the bound of its last
        position = position[:, -1:].expand_as(position)
    mask = torch.arange(cache.shape[1], device=x.device) <= position.unsqueeze(-1)
    call = AttentionCall(
        q=q, cache=cache, first_new=int(start.min()), mask=mask, kv_b=weights["kv_b.weight"]
    )
    if options.path == "reference":
        result = reference_attention(
            call, config=config, options=options, decode=decode, trace=trace
        )
    elif decode:
        result = absorbed_decode(call, config=config, options=options, trace=trace)
    else:
        result = padded_prefill(call, config=config, options=options, trace=trace)
    out = result.out.to(x.dtype)
    trace.emit(f"{place}.out", out)
    trace.emit(f"{place}.lse", result.lse)
    gate = torch.sigmoid(linear(x, weights["g.weight"]).to(acc))
    gated = (out.flatten(2).to(acc) * gate).to(x.dtype)
    return linear(gated, weights["o.weight"]), cache
