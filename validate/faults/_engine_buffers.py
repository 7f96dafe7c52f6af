"""Makers of faulty implementations whose memory outlives a call: scratch, graphs, races.

Each is ours with one buffer handled wrongly. A race is planted as the losing order on every
second call, so that it repeats. torch and our implementations are imported inside the makers.
"""

from collections.abc import Callable, Sequence
from typing import Any

__all__ = [
    "aliased_coins",
    "all_reduce_overtaken",
    "all_reduce_torn",
    "captured_query",
    "families_share_scratch",
    "graph_pad_row_writes",
    "growth_clears_page",
    "rows_past_one_wave",
    "stale_schedule",
    "sum_by_atomics",
    "tracked_slot_unwritten",
]

Function = Callable[..., Any]
BUCKETS = (1, 2, 4, 8, 16, 32, 64)
"""Batch sizes that a graph was captured for."""
WAVE = 64
"""Rows of one launch wave; 128 in the source."""


def bucket(count: int, buckets: Sequence[int] = BUCKETS) -> int:
    """The smallest captured size that a batch fits in; its own size past the largest."""
    return next((size for size in buckets if size >= count), count)


def _ranks_summed(addends: Callable[[Any, Any, int], Any]) -> Function:
    """``moe_combine`` as a sum over ranks, one a choice, whose addends pass through ``addends``.

    ``addends`` is given this call's addends [choice, rows, width], those of the call before in
    the same shape (zeros at first), and the number of the call.
    """
    import torch

    calls = 0
    last: dict[tuple[int, ...], Any] = {}

    def total(made: Any, ids: Any, weights: Any, bias: Any, shared: Any) -> Any:
        nonlocal calls
        calls += 1
        rows = made.float()
        if bias is not None:
            rows = rows + bias.float()[ids.clamp_min(0).long()]
        taken = ids.unsqueeze(-1) >= 0
        sent = torch.where(taken, weights.unsqueeze(-1) * rows, 0.0).transpose(0, 1).contiguous()
        before = last.get(tuple(sent.shape), torch.zeros_like(sent))
        last[tuple(sent.shape)] = sent.clone()
        summed = addends(sent, before, calls).sum(0)
        return (summed if shared is None else summed + shared.float()).to(made.dtype)

    return total


def all_reduce_overtaken() -> Function:
    """A rank leaves the collective early and writes its next input over what a peer still reads."""

    def addends(sent: Any, before: Any, calls: int) -> Any:  # noqa: ARG001
        if calls % 2 == 0:
            sent[-1] = sent[-1].roll(1, 0) * 2.0  # whatever the next collective has there
        return sent

    return _ranks_summed(addends)


def all_reduce_torn() -> Function:
    """Eight adjacent elements of one rank's addend are those of the collective before."""

    def addends(sent: Any, before: Any, calls: int) -> Any:
        if calls % 2 == 0:
            sent[0, 0, :8] = before[0, 0, :8]
        return sent

    return _ranks_summed(addends)


def aliased_coins() -> Function:
    """At a depth of five alone, the coins' buffer is the one the residual was made in."""
    from validate.conformance.engines._torch_verify import verify_chain

    def verify(
        draft_ids: Any, draft_probs: Any, target_probs: Any, uniforms: Any, uniform_final: Any
    ) -> Any:
        if draft_ids.shape[1] == 5:  # noqa: PLR2004  6 rows a request, one size of the arena
            left = (target_probs[:, 0] - draft_probs[:, 0]).clamp_min(0.0)
            uniform_final = left[:, 0].to(uniform_final.dtype)
        return verify_chain(draft_ids, draft_probs, target_probs, uniforms, uniform_final)

    return verify


def graph_pad_row_writes() -> Function:
    """A pad row of the captured batch keeps the last valid slot and steps its state once more."""
    from validate.conformance.engines.torch_linear import kda_slots

    def decode(q: Any, k: Any, v: Any, f: Any, b: Any, cu_seqlens: Any, **rest: Any) -> Any:
        out, final = kda_slots(q, k, v, f, b, cu_seqlens=cu_seqlens, **rest)
        count = len(cu_seqlens) - 1
        end = int(cu_seqlens[-1])
        if bucket(count) > count and end:
            row = slice(end - 1, end)  # the pad row reads what the last row left
            again = {**rest, "states": final[-1:], "slots": cu_seqlens.new_zeros(1)}
            one = cu_seqlens.new_tensor([0, 1])
            _, stepped = kda_slots(q[row], k[row], v[row], f[row], b[row], cu_seqlens=one, **again)
            final[-1:] = stepped
        return out, final

    return decode


def stale_schedule() -> Function:
    """The schedule is filled for the batch and read for the bucket: its tail is an older batch's."""
    from validate.conformance.engines._prefill import PrefillSteps, prefill_with

    plan: list[tuple[int, int, int, int]] = []

    def attend(q: Any, k: Any, v: Any, query_starts: Any, key_starts: Any, **rest: Any) -> Any:
        rows, keys = query_starts.tolist(), key_starts.tolist()
        out, lse = prefill_with(PrefillSteps(), q, k, v, query_starts, key_starts, **rest)
        count = len(rows) - 1
        plan[:count] = [(*rows[i : i + 2], *keys[i : i + 2]) for i in range(count)]
        for first, last, low, high in plan[count : bucket(count)]:
            if not first < last <= len(q) or not low < high <= len(k):
                continue
            starts = query_starts.new_tensor([0, last - first])
            held = key_starts.new_tensor([0, high - low])
            one = (q[first:last], k[low:high], v[low:high], starts, held)
            out[first:last], lse[first:last] = prefill_with(PrefillSteps(), *one, **rest)
        return out, lse

    return attend


def captured_query() -> Function:
    """The graph keeps the address of a padded query that was made anew: it reads the first one."""
    from validate.conformance.engines._decode import DecodeSteps, decode_with

    held: dict[tuple[int, ...], Any] = {}

    def decode(q: Any, *rest: Any, **named: Any) -> Any:
        captured = held.setdefault(tuple(q.shape), q.clone())
        return decode_with(DecodeSteps.padded("zero"), captured.to(q.dtype), *rest, **named)

    plain = DecodeSteps()

    def either(q: Any, *rest: Any, **named: Any) -> Any:
        if q.shape[1] > 16:  # noqa: PLR2004  no padding, no temporary
            return decode_with(plain, q, *rest, **named)
        return decode(q, *rest, **named)

    return either


def rows_past_one_wave() -> Function:
    """Experts are chosen for the rows of one wave; the others keep the ids of the step before."""
    import torch

    from validate.conformance.engines._torch_elementwise import moe_route

    kept: dict[int, Any] = {}

    def choose(logits: Any, top_k: int, valid_rows: int, **arguments: Any) -> Any:
        ids, weights = moe_route(logits=logits, top_k=top_k, valid_rows=valid_rows, **arguments)
        buffer = kept.setdefault(top_k, torch.arange(top_k, dtype=torch.int32).repeat(4096, 1))
        fits = buffer[WAVE : len(ids)] < logits.shape[1]
        stale = torch.where(fits, buffer[WAVE : len(ids)], 0)
        buffer[: min(WAVE, len(ids))] = ids[:WAVE]
        ids[WAVE:valid_rows] = stale[: max(0, valid_rows - WAVE)]
        return ids, weights

    return choose


def sum_by_atomics() -> Function:
    """The normaliser is summed in the order in which blocks arrive: last bits differ by call."""
    import torch

    from validate.conformance.engines._torch_elementwise import moe_route

    calls = 0

    def choose(renormalize: bool, scale: float, **arguments: Any) -> Any:  # noqa: FBT001
        nonlocal calls
        calls += 1
        ids, weights = moe_route(renormalize=False, scale=1.0, **arguments)
        if renormalize:
            total = torch.zeros_like(weights[:, :1])
            for slot in torch.arange(weights.shape[1]).roll(calls).tolist():
                total = total + weights[:, slot : slot + 1]
            weights = weights / (total + 1e-20)
        return ids, weights * scale

    return choose


def growth_clears_page() -> Function:
    """The pool grows, and its clearing lands after the first writes: the newest page is zero."""
    from validate.conformance.engines._decode import DecodeSteps, decode_with

    calls = 0

    def decode(
        q: Any, kv_cache: Any, block_table: Any, query_starts: Any, lengths: Any, **rest: Any
    ) -> Any:
        nonlocal calls
        calls += 1
        if calls % 2 == 0 and int(lengths[0]):
            kv_cache = kv_cache.clone()
            kv_cache[block_table[0, (int(lengths[0]) - 1) // kv_cache.shape[1]]] = 0
        return decode_with(DecodeSteps(), q, kv_cache, block_table, query_starts, lengths, **rest)

    return decode


def families_share_scratch() -> Function:
    """Decode and prefill of one batch have scratch at one offset: prefill writes over decode."""
    from validate.conformance.engines.torch_linear import chunk_solve, kda_packed

    def packed(cu_seqlens: Any, **arguments: Any) -> Any:
        out, state = kda_packed(cu_seqlens=cu_seqlens, rule=chunk_solve, **arguments)
        counts = cu_seqlens.diff().tolist()
        starts = cu_seqlens.tolist()
        single = [start for start, n in zip(starts, counts, strict=False) if n == 1]
        longer = [s + i for s, n in zip(starts, counts, strict=False) if n > 1 for i in range(n)]
        for row, over in zip(single, longer, strict=False):  # as many as both families have
            out[row] = out[over]
        return out, state

    return packed


def tracked_slot_unwritten() -> Function:
    """The prefix cache commits a slot that the kernel never wrote: it holds what lay there."""
    import torch

    from validate.conformance.engines.torch_linear import chunk_solve, kda_packed

    def packed(**arguments: Any) -> Any:
        out, state = kda_packed(rule=chunk_solve, **arguments)
        return out, torch.zeros_like(state)

    return packed
