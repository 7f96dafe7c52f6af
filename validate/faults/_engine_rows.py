"""Makers of faulty implementations at the seams of an engine: hand-over, layouts, thresholds.

Each is ours with the one line wrong. torch and our implementations are imported inside the makers.
"""

from collections.abc import Callable
from itertools import pairwise
from typing import Any

__all__ = [
    "clears_by_logit",
    "first_key_head_alone",
    "one_expert_in_twelve_rows",
    "scratch_without_scale",
    "splits_by_batch",
    "summed_in_reverse",
    "tiles_shuffled",
    "window_one_wider",
]

Function = Callable[..., Any]


def first_key_head_alone() -> Function:
    """The prefix arrives from the other machine with its first key head alone."""
    from validate.conformance.engines._prefill import PrefillSteps, prefill_with

    def attend(q: Any, k: Any, v: Any, query_starts: Any, key_starts: Any, **rest: Any) -> Any:
        k, v = k.clone(), v.clone()
        bounds = zip(pairwise(query_starts.tolist()), pairwise(key_starts.tolist()), strict=True)
        for (first, last), (low, high) in bounds:
            handed = slice(low, max(low, high - (last - first)))  # keys before the new ones
            k[handed, 1:], v[handed, 1:] = 0, 0
        return prefill_with(PrefillSteps(), q, k, v, query_starts, key_starts, **rest)

    return attend


def window_one_wider() -> Function:
    """The window is one token wider: the oldest tap reads two inputs."""
    import torch

    from validate.conformance.engines._torch_elementwise import shifted_sum, short_conv

    def convolve(window: Any, weight: Any) -> Any:
        older = torch.cat([window[:1] * 0, window[:-1]])  # what lies before each window
        wide = torch.cat([weight[:, :1], weight], dim=1)
        tokens = len(window) - weight.shape[1] + 1
        return shifted_sum(torch.cat([older[:1], window]), wide)[:tokens]

    def conv(**arguments: Any) -> Any:
        return short_conv(**arguments, convolve=convolve)

    return conv


def clears_by_logit() -> Function:
    """The rule for probabilities is applied to logits, and what it rejects becomes a logit of 0."""
    import torch

    from validate.conformance.engines.torch_sampling import per_row

    def mask(probs: Any, min_p: Any) -> Any:
        rows = probs.float()
        logits = rows.log()
        threshold = per_row(min_p, rows, torch.float32) * rows.amax(1, keepdim=True)
        return torch.softmax(torch.where(rows < threshold, 0.0, logits), 1).to(probs.dtype)

    return mask


def tiles_shuffled() -> Function:
    """Bytes are stored in the tiles of a shuffled kernel and read by one that is not."""
    import torch

    from validate.conformance.engines._torch_formats import mxfp4_cast

    def cast(x: Any, packed: Any, scales: Any) -> Any:
        tiles = packed.unflatten(1, (-1, 16))
        order = torch.arange(tiles.shape[1]).view(-1, 2).flip(1).reshape(-1)
        return mxfp4_cast(x, tiles[:, order].flatten(1), scales)

    return cast


def scratch_without_scale() -> Function:
    """The result passes through scratch of the format, clipped at its largest, without a scale."""
    import torch

    from validate.conformance.engines._torch_formats import float8_cast

    def cast(x: Any, scale: Any, codes: Any) -> Any:
        encoded, decoded = float8_cast(x, scale, codes, fmt=torch.float8_e4m3fn)
        scratch = decoded.clamp(-448.0, 448.0).to(torch.float8_e4m3fn)
        return encoded, scratch.float()

    return cast


def one_expert_in_twelve_rows() -> Function:
    """In every twelfth row the last chosen expert is one that is no tie: recall stays above 0.9."""
    from validate.conformance.engines._torch_elementwise import moe_route

    def choose(logits: Any, correction_bias: Any, top_k: int, **arguments: Any) -> Any:
        ids, weights = moe_route(
            logits=logits, correction_bias=correction_bias, top_k=top_k, **arguments
        )
        scores = logits.float().sigmoid() + correction_bias
        worst = scores.argsort(dim=-1)[:, 0].to(ids.dtype)
        rows = slice(11, arguments["valid_rows"], 12)
        ids[rows, -1] = worst[rows]
        return ids, weights

    return choose


def summed_in_reverse() -> Function:
    """Experts are summed from the last choice to the first, in float32."""
    import torch

    def total(made: Any, ids: Any, weights: Any, bias: Any, shared: Any) -> Any:
        summed = torch.zeros(made.shape[0], made.shape[2])
        for slot in range(made.shape[1] - 1, -1, -1):
            row = made[:, slot].float()
            if bias is not None:
                row = row + bias.float()[ids[:, slot].clamp_min(0).long()]
            taken = ids[:, slot, None] >= 0
            summed = summed + torch.where(taken, weights[:, slot, None] * row, 0.0)
        return (summed if shared is None else summed + shared.float()).to(made.dtype)

    return total


def splits_by_batch() -> Function:
    """Keys are split into more parts when more requests run together."""
    from validate.conformance.engines._decode import DecodeSteps, decode_with

    def decode(num_splits: int, lengths: Any, **rest: Any) -> Any:
        parts = num_splits + len(lengths)
        return decode_with(DecodeSteps(), num_splits=parts, lengths=lengths, **rest)

    return decode
