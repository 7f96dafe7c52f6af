"""Head padding: what makes 12 heads acceptable to kernels built for 4, 8 and multiples of 16.

One rule pads and the matching rule unpads output and log-sum-exp alike; a
prefix unpad of a `repeat` pad, or a packed read of a padded row, is a fault
that is silent on the first head or the first row.
"""

from typing import Literal

import torch
from torch import Tensor

from validate.errors import InputError

__all__ = ["ACCEPTED_HEADS", "PadRule", "accepted", "pad_heads", "padded_count", "unpad_heads"]

PadRule = Literal["zero", "tile", "repeat"]

ACCEPTED_HEADS: frozenset[int] = frozenset({4, 8, *range(16, 129, 16)})
"""Head counts of AITER's ``mla_decode_fwd`` as sglang asserts them (sglang#36356)."""


def accepted(heads: int) -> int:
    """Return ``heads`` if the kernels take that many, else raise as the host-side check does."""
    if heads not in ACCEPTED_HEADS:
        known = ", ".join(str(n) for n in sorted(ACCEPTED_HEADS))
        msg = f"MLA kernel: {heads} heads have no kernel; accepted: {known}. Pad the heads first"
        raise InputError(msg)
    return heads


def padded_count(heads: int, rule: PadRule) -> int:
    """Head count after padding.

    ``zero`` and ``tile`` go to the next accepted count (12 -> 16); ``repeat``
    interleaves whole copies, so it needs a multiple of ``heads`` (12 -> 48).
    """
    for count in sorted(ACCEPTED_HEADS):
        if count >= heads and (rule != "repeat" or count % heads == 0):
            return count
    msg = f"pad={rule}: no accepted head count for {heads} heads (at most {max(ACCEPTED_HEADS)})"
    raise InputError(msg)


def pad_heads(x: Tensor, rule: PadRule) -> Tensor:
    """Pad axis -2 of (..., heads, dim) to an accepted count; contiguous.

    ``zero`` appends zero heads, ``tile`` appends copies of the first heads,
    ``repeat`` writes every head ``count / heads`` times in a row.
    """
    heads = x.shape[-2]
    count = padded_count(heads, rule)
    if rule == "zero":
        return torch.cat([x, x.new_zeros((*x.shape[:-2], count - heads, x.shape[-1]))], dim=-2)
    if rule == "tile":
        index = torch.arange(count, device=x.device) % heads
    else:
        index = torch.arange(count, device=x.device) // (count // heads)
    return x.index_select(-2, index).contiguous()


def unpad_heads(
    x: Tensor, heads: int, rule: PadRule, *, axis: int, fault: str | None = None
) -> Tensor:
    """Read the real heads back: a prefix for ``zero`` and ``tile``, a stride for ``repeat``.

    Args:
        x: kernel output (..., padded heads, dim) with ``axis`` -2, or LSE with ``axis`` -1.
        heads: real heads.
        rule: the rule that padded.
        axis: the head axis, from the end.
        fault: ``VX-01`` reads a prefix whatever the rule; ``VX-02`` reads the
            padded rows packed, with the stride of ``heads`` instead of the padded count.

    Returns:
        (..., heads, dim) or (..., heads); contiguous.
    """
    count = x.shape[axis]
    if fault == "VX-02" and axis == -2:  # noqa: PLR2004
        lead = x.shape[:-2]
        flat = x.contiguous().flatten()
        return flat[: lead.numel() * heads * x.shape[-1]].view(*lead, heads, x.shape[-1])
    if rule == "repeat" and fault != "VX-01":
        index = torch.arange(heads, device=x.device) * (count // heads)
        return x.index_select(axis, index)
    return x.narrow(axis, 0, heads).contiguous()
