"""Triton kernels of top-k renorm, top-p renorm and chain verification; importing this needs triton.

One program works on one row (one request). Nothing here names a vendor: it is written for
ROCm too, where it has not been run.

Arguments of a kernel carry no annotation: the compiler of Triton looks every name up.
"""

# mypy: disable-error-code="no-untyped-def"

import importlib
from typing import Any

import torch

# Imported by name: the type checker needs no triton, and a machine without it may lint this.
triton: Any = importlib.import_module("triton")
tl: Any = importlib.import_module("triton.language")

__all__ = ["top_k", "top_p", "verify_chain"]

BLOCK = 4096
"""Entries a program reads at once."""
WARPS = 8
BINS = 256


@triton.jit
def _positive(row_ptr, at, vocab):
    """Entries as float32, everything that is not a positive number as 0 (NaN too)."""
    value = tl.load(row_ptr + at, mask=at < vocab, other=0.0).to(tl.float32)
    return tl.where(value > 0.0, value, 0.0)


@triton.jit  # type: ignore[untyped-decorator]
def _divide_row(row_ptr, out_ptr, vocab, pivot, BLOCK: tl.constexpr):
    """Entries whose bits reach the pivot over their sum, 0 for the others."""
    sums = tl.zeros((BLOCK,), tl.float32)
    for start in range(0, vocab, BLOCK):
        at = start + tl.arange(0, BLOCK)
        value = _positive(row_ptr, at, vocab)
        sums += tl.where(value.to(tl.int32, bitcast=True) >= pivot, value, 0.0)
    total = tl.sum(sums, 0)
    safe = tl.where(total > 0.0, total, 1.0)
    for start in range(0, vocab, BLOCK):
        at = start + tl.arange(0, BLOCK)
        value = _positive(row_ptr, at, vocab)
        kept = tl.where(value.to(tl.int32, bitcast=True) >= pivot, value / safe, 0.0)
        tl.store(out_ptr + at, kept.to(out_ptr.dtype.element_ty), mask=at < vocab)


@triton.jit  # type: ignore[untyped-decorator]
def _top_k_kernel(probs_ptr, k_ptr, out_ptr, vocab, BLOCK: tl.constexpr, BINS: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    row_ptr = probs_ptr + row * vocab
    wanted = tl.load(k_ptr + row)
    wanted = tl.minimum(tl.maximum(wanted, 1), vocab)
    bins = tl.arange(0, BINS)
    pivot = 0
    for turn in tl.static_range(4):
        shift = 24 - 8 * turn
        counts = tl.zeros((BINS,), tl.int32)
        for start in range(0, vocab, BLOCK):
            at = start + tl.arange(0, BLOCK)
            bits = _positive(row_ptr, at, vocab).to(tl.int32, bitcast=True)
            inside = at < vocab
            if turn > 0:
                # Only entries that agree with the digits found so far.
                inside = inside & ((bits >> (shift + 8)) == (pivot >> (shift + 8)))
            counts += tl.histogram((bits >> shift) & (BINS - 1), BINS, mask=inside)
        reaching = tl.cumsum(counts, 0, reverse=True)  # entries at or above each digit
        digit = tl.sum((reaching >= wanted).to(tl.int32), 0) - 1
        wanted -= tl.sum(tl.where(bins > digit, counts, 0), 0)
        pivot = pivot | (digit << shift)
    _divide_row(row_ptr, out_ptr + row * vocab, vocab, pivot, BLOCK)


@triton.jit  # type: ignore[untyped-decorator]
def _top_p_kernel(
    probs_ptr,
    p_ptr,
    out_ptr,
    vocab,
    RELATIVE: tl.constexpr,
    BLOCK: tl.constexpr,
):
    row = tl.program_id(0).to(tl.int64)
    row_ptr = probs_ptr + row * vocab
    p = tl.load(p_ptr + row)
    target = p
    if RELATIVE:
        sums = tl.zeros((BLOCK,), tl.float32)
        for start in range(0, vocab, BLOCK):
            sums += _positive(row_ptr, start + tl.arange(0, BLOCK), vocab)
        target = p * tl.sum(sums, 0)
    pivot = vocab * 0
    if p < 1.0:
        # The largest threshold that still keeps the mass, bit by bit.
        for turn in range(31):
            trial = pivot | (1 << (30 - turn))
            sums = tl.zeros((BLOCK,), tl.float32)
            for start in range(0, vocab, BLOCK):
                value = _positive(row_ptr, start + tl.arange(0, BLOCK), vocab)
                sums += tl.where(value.to(tl.int32, bitcast=True) >= trial, value, 0.0)
            mass = tl.sum(sums, 0)
            pivot = tl.where((mass >= target) & (mass > 0.0), trial, pivot)
    _divide_row(row_ptr, out_ptr + row * vocab, vocab, pivot, BLOCK)


@triton.jit
def _left(p_ptr, q_ptr, at, vocab, bonus):
    """What the last draw is made from: ``(p - q)+``, or p after the last draft."""
    p = tl.load(p_ptr + at, mask=at < vocab, other=0.0).to(tl.float32)
    q = tl.load(q_ptr + at, mask=(at < vocab) & (bonus == 0), other=0.0).to(tl.float32)
    return tl.where(p > q, p - q, 0.0)


@triton.jit  # type: ignore[untyped-decorator]
def _chain_kernel(
    draft_ptr,
    q_ptr,
    p_ptr,
    coin_ptr,
    final_ptr,
    accepted_ptr,
    ids_ptr,
    drafts,
    vocab,
    BLOCK: tl.constexpr,
):
    request = tl.program_id(0).to(tl.int64)
    q_rows = q_ptr + request * drafts * vocab
    p_rows = p_ptr + request * (drafts + 1) * vocab
    running = 1
    accepted = 0
    for i in range(drafts):
        draft = tl.load(draft_ptr + request * drafts + i)
        q = tl.load(q_rows + i * vocab + draft).to(tl.float32)
        p = tl.load(p_rows + i * vocab + draft).to(tl.float32)
        coin = tl.load(coin_ptr + request * drafts + i)
        running = tl.where(coin * q < p, running, 0)
        accepted += running
    bonus = tl.where(accepted == drafts, 1, 0)
    p_row = p_rows + accepted * vocab
    q_row = q_rows + tl.minimum(accepted, drafts - 1) * vocab
    sums = tl.zeros((BLOCK,), tl.float32)
    last = vocab * 0 - 1
    for start in range(0, vocab, BLOCK):
        at = start + tl.arange(0, BLOCK)
        left = _left(p_row, q_row, at, vocab, bonus)
        sums += left
        last = tl.maximum(last, tl.max(tl.where(left > 0.0, at, -1), 0))
    goal = tl.load(final_ptr + request) * tl.sum(sums, 0)
    before = 0.0
    drawn = vocab
    for start in range(0, vocab, BLOCK):
        at = start + tl.arange(0, BLOCK)
        left = _left(p_row, q_row, at, vocab, bonus)
        beyond = ((before + tl.cumsum(left, 0)) > goal) & (left > 0.0)
        drawn = tl.minimum(drawn, tl.min(tl.where(beyond, at, vocab), 0))
        before += tl.sum(left, 0)
    # Rounding may leave the coin beyond the sum: the last id with weight. An empty row: the last.
    drawn = tl.where(drawn == vocab, tl.where(last >= 0, last, vocab - 1), drawn)
    for i in range(drafts + 1):
        draft = tl.load(draft_ptr + request * drafts + i, mask=i < accepted, other=-1)
        tl.store(ids_ptr + request * (drafts + 1) + i, tl.where(i == accepted, drawn, draft))
    tl.store(accepted_ptr + request, accepted)


def top_k(probs: torch.Tensor, k: torch.Tensor) -> torch.Tensor:
    """Keep the k largest of each row, ties included, and divide; k int32 [rows]."""
    out = torch.empty_like(probs)
    rows, vocab = probs.shape
    if rows:
        _top_k_kernel[(rows,)](probs, k, out, vocab, BLOCK=BLOCK, BINS=BINS, num_warps=WARPS)
    return out


def top_p(probs: torch.Tensor, p: torch.Tensor, *, relative: bool) -> torch.Tensor:
    """Keep the fewest largest whose mass reaches p, ties included, and divide; p float32 [rows]."""
    out = torch.empty_like(probs)
    rows, vocab = probs.shape
    if rows:
        _top_p_kernel[(rows,)](
            probs, p, out, vocab, RELATIVE=relative, BLOCK=BLOCK, num_warps=WARPS
        )
    return out


def verify_chain(
    draft_ids: torch.Tensor,
    draft_probs: torch.Tensor,
    target_probs: torch.Tensor,
    uniforms: torch.Tensor,
    uniform_final: torch.Tensor,
) -> tuple[torch.Tensor, torch.Tensor]:
    """Accepted count and emitted ids, int64."""
    batch, drafts = draft_ids.shape
    accepted = torch.empty(batch, dtype=torch.int64, device=draft_ids.device)
    ids = torch.empty((batch, drafts + 1), dtype=torch.int64, device=draft_ids.device)
    _chain_kernel[(batch,)](
        draft_ids,
        draft_probs,
        target_probs,
        uniforms,
        uniform_final,
        accepted,
        ids,
        drafts,
        target_probs.shape[2],
        BLOCK=1024,
        num_warps=4,
    )
    return accepted, ids
