"""Padded heads for any model of transformers whose attention is looked up by name.

Kernels built for 16 heads are given 9 (or 12) by padding; this is a second,
independent way to write that down, for models that transformers runs. Query
heads share key heads in groups, so what has to stay right is the pair: the head
that a padded slot holds, and the key head that slot reads.
"""

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal, get_args

import torch
from torch import Tensor

from validate.errors import InputError

__all__ = ["FAULTS", "PADS", "Pad", "Padding", "padded_attention", "register"]

Pad = Literal["zero", "tile", "repeat"]
PADS: tuple[Pad, ...] = get_args(Pad)

FAULTS: dict[str, str] = {
    "HD-05": "zero and tile: key heads are not spread with the queries, the kernel divides 16 by 3",
    "VX-01": "repeat: the output is read back as a prefix",
}
"""Planted faults, by what is wrong at the code site."""

_SITES = {"HD-05": ("zero", "tile"), "VX-01": ("repeat",)}
_AXES = "batch heads tokens dim"


@dataclass(frozen=True, slots=True, kw_only=True)
class Padding:
    """How heads are padded.

    ``zero`` appends zero heads and ``tile`` copies of the first heads, to
    queries, keys and values alike, after keys and values were spread to one a
    query head. ``repeat`` keeps the groups: it repeats the last head of each
    group and the last group, so that 9 heads in 3 groups become 16 in 4, and
    the real heads are no prefix.

    Raises:
        InputError: No such fault, or the fault has no site under the rule.
    """

    pad: Pad = "zero"
    count: int = 16
    """Heads the kernel takes."""
    fault: str | None = None

    def __post_init__(self) -> None:
        """Refuse what would run clean, or not at all, under a false name."""
        if self.fault is not None and self.pad not in _SITES.get(self.fault, ()):
            known = ", ".join(f"{name} (pad={'|'.join(_SITES[name])})" for name in FAULTS)
            msg = f"fault={self.fault} has no site under pad={self.pad}; known: {known}"
            raise InputError(msg)

    @property
    def name(self) -> str:
        """What transformers knows the implementation by."""
        return f"padded-{self.pad}-{self.count}" + (f"-{self.fault}" if self.fault else "")


def padded_attention(padding: Padding, counts: Counter[str]) -> Callable[..., tuple[Tensor, None]]:
    """Attention of transformers' signature whose kernel sees ``padding.count`` heads.

    Args:
        padding: The rule.
        counts: Gets what ran: ``heads.pad.RULE`` and ``attention.padded.COUNT``, one a call.

    Returns:
        A function from query (batch, heads, tokens, dim), key and value (batch,
        key heads, keys, dim) and an additive mask to (batch, tokens, heads, dim).

    Raises:
        InputError: When called: shapes that do not fit, heads that cannot be
            padded to the count, more than one query without a mask, dropout or
            an argument that would change the attention and is not read here.
    """

    def forward(
        module: torch.nn.Module,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        attention_mask: Tensor | None,
        *,
        scaling: float,
        dropout: float = 0.0,
        **unread: Any,
    ) -> tuple[Tensor, None]:
        del module
        _require(query, key, value, attention_mask, padding=padding)
        _require_plain(dropout, unread)
        heads, groups = query.shape[1], key.shape[1]
        many = _pad(query, key, value, padding=padding)
        out = _kernel(*many, mask=attention_mask, scaling=scaling)
        counts[f"heads.pad.{padding.pad}"] += 1
        counts[f"attention.padded.{padding.count}"] += 1
        real = out.index_select(1, _real(heads, groups, padding, out.device))
        return real.transpose(1, 2).contiguous(), None

    return forward


def register(padding: Padding) -> Counter[str]:
    """Make ``padding.name`` an attention implementation of transformers.

    Returns:
        Counts of what ran, filled while a model uses the implementation; a
        second registration of the name starts a new count.
    """
    from transformers import AttentionInterface, AttentionMaskInterface
    from transformers.masking_utils import eager_mask

    counts: Counter[str] = Counter()
    AttentionInterface.register(padding.name, padded_attention(padding, counts))
    AttentionMaskInterface.register(padding.name, eager_mask)
    return counts


def _pad(
    query: Tensor, key: Tensor, value: Tensor, *, padding: Padding
) -> tuple[Tensor, Tensor, Tensor]:
    """Queries, keys and values as the kernel takes them."""
    heads, groups, count = query.shape[1], key.shape[1], padding.count
    size = heads // groups
    if padding.pad == "repeat":
        slots, wide = _grouped(heads, groups, count)
        pick = torch.tensor([min(g, groups - 1) for g in range(wide)], device=key.device)
        return _take(query, slots), key.index_select(1, pick), value.index_select(1, pick)
    fit = _append_zeros if padding.pad == "zero" else _append_copies
    # The fault leaves out the next line: the kernel is given 16 query heads and 3 key heads.
    if padding.fault != "HD-05":
        key, value = (fit(x.repeat_interleave(size, dim=1), count) for x in (key, value))
    return fit(query, count), key, value


def _grouped(heads: int, groups: int, count: int) -> tuple[list[int], int]:
    """The real head that each slot holds, and the number of padded groups."""
    size = heads // groups
    for wide in range(groups, count + 1):
        if count % wide == 0 and count // wide >= size:
            deep = count // wide
            last = groups - 1
            return [
                min(slot // deep, last) * size + min(slot % deep, size - 1) for slot in range(count)
            ], wide
    msg = f"pad=repeat: {heads} heads in {groups} groups do not fit {count} heads in equal groups"
    raise InputError(msg)


def _real(heads: int, groups: int, padding: Padding, device: torch.device) -> Tensor:
    """The slot of each real head."""
    if padding.pad != "repeat" or padding.fault == "VX-01":
        return torch.arange(heads, device=device)
    size = heads // groups
    deep = padding.count // _grouped(heads, groups, padding.count)[1]
    head = torch.arange(heads, device=device)
    return head // size * deep + head % size


def _kernel(
    query: Tensor, key: Tensor, value: Tensor, *, mask: Tensor | None, scaling: float
) -> Tensor:
    """Grouped attention as a kernel does it: slot h reads key head h // ceil(heads / key heads)."""
    group = -(-query.shape[1] // key.shape[1])
    reads = torch.arange(query.shape[1], device=query.device) // group
    key, value = key.index_select(1, reads), value.index_select(1, reads)
    scores = query @ key.transpose(2, 3) * scaling
    if mask is not None:
        scores = scores + mask
    weights = torch.softmax(scores, dim=-1, dtype=torch.float32).to(query.dtype)
    return weights @ value


def _append_zeros(x: Tensor, count: int) -> Tensor:
    blank = x.new_zeros((x.shape[0], count - x.shape[1], *x.shape[2:]))
    return torch.cat([x, blank], dim=1)


def _append_copies(x: Tensor, count: int) -> Tensor:
    return _take(x, [slot % x.shape[1] for slot in range(count)])


def _take(x: Tensor, slots: list[int]) -> Tensor:
    return x.index_select(1, torch.tensor(slots, device=x.device))


def _require(
    query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None, *, padding: Padding
) -> None:
    heads, groups = query.shape[1], key.shape[1]
    if key.shape != value.shape or heads % groups:
        msg = (
            f"padded attention: query {tuple(query.shape)}, key {tuple(key.shape)}, "
            f"value {tuple(value.shape)} ({_AXES}): keys and values must be alike, "
            "and their heads divide the query heads"
        )
        raise InputError(msg)
    if heads > padding.count:
        msg = f"padded attention: {heads} heads do not fit {padding.count}"
        raise InputError(msg)
    if mask is None and query.shape[2] > 1:
        msg = (
            f"padded attention: {query.shape[2]} queries without a mask would see the future\n"
            "  do next: register the implementation's mask too (`register` does)"
        )
        raise InputError(msg)


def _require_plain(dropout: float, unread: dict[str, Any]) -> None:
    """Refuse what would change the attention: it would be ignored without a word."""
    changing = [
        name
        for name in ("sliding_window", "softcap", "position_bias", "s_aux", "head_mask")
        if unread.get(name) is not None
    ]
    if dropout != 0.0:
        changing.append("dropout")
    if changing:
        msg = f"padded attention: {', '.join(changing)}: not read here, so it is refused"
        raise InputError(msg)
