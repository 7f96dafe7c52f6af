"""Planted faults and controls of the filters and of drawing: top-k, top-p, min-p, sample."""

from collections.abc import Callable
from typing import Any

from validate.faults.operations import OperationControl, OperationFault

__all__ = ["CONTROLS", "FAULTS"]

Function = Callable[..., Any]


def _sa_02() -> Function:
    from validate.conformance.engines.torch_sampling import divided, sorted_top_p

    kernel: Any = None  # the name that the platform's import left unbound

    def top_p(probs: Any, top_p: Any) -> Any:
        if bool((top_p < 1).any() if hasattr(top_p, "any") else top_p < 1):
            return kernel(probs, top_p)
        return divided(probs.float(), sorted_top_p(probs, top_p) > 0).to(probs.dtype)

    return top_p


def _sa_04() -> Function:
    import torch

    from validate.conformance.engines.torch_sampling import per_row
    from validate.models.renorm import top_k_renorm_prob

    def top_k(probs: Any, top_k: Any) -> Any:
        k = per_row(top_k, probs, torch.int32).squeeze(1)
        fault = "SA-04" if len(probs) else None
        out = top_k_renorm_prob(probs.float(), k, rule="exactly_k", fault=fault)
        return out.to(probs.dtype)

    return top_k


def _sa_05() -> Function:
    from validate.conformance.engines.torch_sampling import sample

    return sample  # top-p counts the mass that top-k left, divided anew


def _sa_06() -> Function:
    import torch

    from validate.conformance.engines.torch_sampling import divided, per_row

    def top_p(probs: Any, top_p: Any) -> Any:
        rows = probs.float()
        p = per_row(top_p, rows, torch.float32).clamp(0.0, 1.0)
        falling = rows.sort(dim=1, descending=True).values
        inside = falling.cumsum(1) < p * rows.sum(1, keepdim=True)  # the "+ 1" is missing
        last = torch.where(p >= 1, rows.shape[1], inside.sum(1, keepdim=True)).clamp(1) - 1
        return divided(rows, rows >= falling.gather(1, last)).to(probs.dtype)

    return top_p


def _sa_08() -> Function:
    import torch

    from validate.conformance.engines.torch_sampling import divided, per_row

    calls = 0

    def top_k(probs: Any, top_k: Any) -> Any:
        nonlocal calls
        calls += 1
        rows = probs.float()
        k = per_row(top_k, rows, torch.int64).clamp(1, rows.shape[1])
        bits = rows.contiguous().view(torch.int32)
        parts = bits.tensor_split(4, dim=1)
        pivot = torch.zeros_like(bits[:, :1])
        for bit in range(30, -1, -1):
            trial = pivot | (1 << bit)
            counts = [(part >= trial).sum(1, keepdim=True) for part in parts]
            if calls % 2 == 0:  # read before the last block's adds are visible
                counts = counts[:-1]
            pivot = torch.where(sum(counts) >= k, trial, pivot)
        return divided(rows, bits >= pivot).to(probs.dtype)

    return top_k


def _sa_09() -> Function:
    import torch

    from validate.conformance.engines.torch_sampling import divided, per_row

    calls = 0

    def top_k(probs: Any, top_k: Any) -> Any:
        nonlocal calls
        calls += 1
        rows, vocab = probs.float(), probs.shape[1]
        k = per_row(top_k, rows, torch.int64).clamp(1, vocab)
        ids = probs.sort(dim=1, descending=True, stable=True).indices
        rank = torch.arange(vocab, device=probs.device).expand_as(ids)
        if probs.element_size() == 2 and vocab > 256 and calls % 2:  # noqa: PLR2004
            # Which of the k-th and the next lands first is a race of two wavefronts.
            rank = torch.where(rank == k - 1, k, torch.where(rank == k, k - 1, rank))
        kept = torch.zeros_like(rows, dtype=torch.bool).scatter(1, ids, rank < k)
        return divided(rows, kept).to(probs.dtype)

    return top_k


def _sa_12() -> Function:
    import torch

    from validate.conformance.engines.torch_sampling import sample

    def one(probs: Any, top_k: Any, top_p: Any, min_p: Any, **coins: Any) -> Any:
        return sample(probs, torch.where(top_k <= 0, 1, top_k), top_p, min_p, **coins)

    return one


def _sa_13() -> Function:
    import torch

    from validate.conformance.engines.torch_sampling import sample

    def batch(probs: Any, top_k: Any, top_p: Any, min_p: Any, *, seeds: Any, step: int) -> Any:
        if bool((seeds < 0).any()):  # one row without a generator: the batch is drawn at once
            seeds = torch.full_like(seeds, -1)
        return sample(probs, top_k, top_p, min_p, seeds=seeds, step=step)

    return batch


def _sa_14() -> Function:
    import torch

    from validate.conformance.engines.torch_sampling import divided, per_row

    def top_p(probs: Any, top_p: Any) -> Any:
        rows = probs.float()
        p = per_row(top_p, rows, torch.float32).clamp(0.0, 1.0)
        falling, ids = rows.sort(dim=1, descending=True)
        gone = falling.cumsum(1) > p * rows.sum(1, keepdim=True)  # index 0 is not excepted
        kept = torch.zeros_like(rows, dtype=torch.bool).scatter(1, ids, ~gone | (p >= 1))
        return divided(rows, kept).to(probs.dtype)

    return top_p


def _sa_15() -> Function:
    import torch

    from validate.conformance.engines.torch_sampling import (
        invert,
        per_row,
        sorted_top_k,
        sorted_top_p,
    )

    def late(probs: Any, top_k: Any, top_p: Any, min_p: Any, uniforms: Any) -> Any:
        left = sorted_top_p(sorted_top_k(probs, top_k, off=True), top_p)
        # The threshold is read after the renorm wrote the row; the values before it.
        threshold = per_row(min_p, left, torch.float32) * left.amax(1, keepdim=True)
        rows = probs.float()
        return invert(torch.where((left > 0) & (rows >= threshold), rows, 0.0), uniforms)

    return late


def _vx_80() -> Function:
    from validate.conformance.engines.torch_sampling import per_row

    def in_place(probs: Any, min_p: Any) -> Any:
        share = per_row(min_p, probs, probs.dtype).clamp(0.0, 1.0)
        probs.masked_fill_(probs < share * probs.amax(1, keepdim=True), 0.0)  # the caller's rows
        return (probs.float() / probs.float().sum(1, keepdim=True)).to(probs.dtype)

    return in_place


def _vx_81() -> Function:
    from validate.conformance.engines.torch_sampling import filters, invert

    def one_coin(probs: Any, top_k: Any, top_p: Any, min_p: Any, *, seed: int) -> Any:
        import torch

        generator = torch.Generator(probs.device).manual_seed(seed)
        coin = torch.rand(1, generator=generator, device=probs.device)  # one for the batch
        return invert(filters(probs, top_k, top_p, min_p), coin.expand(len(probs)))

    return one_coin


def _vx_82() -> Function:
    import torch

    from validate.conformance.engines.torch_sampling import sample

    def no_step(probs: Any, top_k: Any, top_p: Any, min_p: Any, *, seeds: Any, step: int) -> Any:
        del step  # the generator is made anew in every step
        ids: torch.Tensor = sample(probs, top_k, top_p, min_p, seeds=seeds, step=0)
        return ids

    return no_step


FAULTS: tuple[OperationFault, ...] = (
    OperationFault(
        id="SA-02",
        op="top_p_renorm_prob",
        title="The kernel for top_p < 1 is bound to None on this platform",
        source="sgl-project/sglang#32569, #32630: dies at the first request with top_p < 1. "
        "Planted in the dispatch.",
        make=_sa_02,
    ),
    OperationFault(
        id="SA-04",
        op="top_k_renorm_prob",
        title="Scratch of 50 entries a row from the scalar, written by each row's own k",
        source="ROCm/aiter#5192. Planted where the chosen ids pass through scratch: a row without "
        "top-k writes over those after it.",
        settings={"ties": "exactly_k"},
        make=_sa_04,
    ),
    OperationFault(
        id="SA-05",
        op="sample",
        title="Top-p counts the mass that top-k left, where both should look at the whole row",
        source="sgl-project/sglang#36173. Planted as the division between the two filters.",
        settings={"order": "joint"},
        make=_sa_05,
    ),
    OperationFault(
        id="SA-06",
        op="top_p_renorm_prob",
        title="The token that crosses p is dropped",
        source="flashinfer-ai/flashinfer#2202: kept mass below p. Planted as a prefix by inclusive "
        "sums without the one more.",
        make=_sa_06,
    ),
    OperationFault(
        id="SA-08",
        op="top_k_renorm_prob",
        title="The pivot is chosen before one block's counts are visible",
        source="flashinfer-ai/flashinfer#4126, #5251. Planted in the count behind the pivot search: "
        "every other call lacks the last quarter of the row.",
        make=_sa_08,
    ),
    OperationFault(
        id="SA-09",
        op="top_k_renorm_prob",
        title="torch.topk swaps the k-th and the next entry for half types wider than 256",
        source="pytorch/pytorch#196177. Planted in the ranks, in every other call.",
        settings={"ties": "exactly_k"},
        make=_sa_09,
    ),
    OperationFault(
        id="SA-12",
        op="sample",
        title="top_k <= 0, which is off, becomes 1",
        source="vllm-project/tpu-inference#1386. Planted in the parameter.",
        make=_sa_12,
    ),
    OperationFault(
        id="SA-13",
        op="sample",
        title="A row's seed is ignored when a batchmate has none",
        source="vllm-project/vllm#51226. Planted where the batch is drawn at once.",
        settings={"random": "row_seeds"},
        make=_sa_13,
    ),
    OperationFault(
        id="SA-14",
        op="top_p_renorm_prob",
        title="The mask takes the first token too when it alone exceeds p",
        source="alibaba/rtp-llm#932. Planted as cum > p without the shift by one.",
        make=_sa_14,
    ),
    OperationFault(
        id="SA-15",
        op="sample",
        title="Min-p's threshold is read from the row that the renorm wrote, its values from the old one",
        source="sgl-project/sglang#15648. Planted in the threshold.",
        make=_sa_15,
    ),
    OperationFault(
        id="VX-80",
        op="min_p",
        title="The filter writes into the caller's probabilities",
        source="Same class as sgl-project/sglang#15648. Planted as an in-place mask.",
        make=_vx_80,
    ),
    OperationFault(
        id="VX-81",
        op="sample",
        title="One coin for the whole batch",
        source="Shared random numbers under speculation (design of the lossless tests). Planted "
        "where the coin is drawn: each row's law is right, rows are not independent.",
        settings={"random": "call_seed"},
        make=_vx_81,
    ),
    OperationFault(
        id="VX-82",
        op="sample",
        title="The generator is seeded anew in every step",
        source="Same class as vllm-project/vllm#51226. Planted where the step enters the coin: each "
        "step's law is right, steps are equal.",
        settings={"random": "row_seeds"},
        make=_vx_82,
    ),
)


def _ok_1() -> Function:
    import torch

    from validate.conformance.engines.torch_sampling import per_row

    def batched(probs: Any, top_k: Any) -> Any:
        rows = probs.float()
        k = per_row(top_k, rows, torch.int64)
        pivot = rows.sort(dim=1, descending=True).values.gather(1, k.clamp(1, rows.shape[1]) - 1)
        left = torch.where(rows >= pivot, rows, 0.0)
        parts = left.tensor_split(max(len(rows), 1), dim=1)  # as many partial sums as rows
        total = torch.stack([part.sum(1) for part in parts], 1).sum(1, keepdim=True)
        return torch.where(total > 0, left * (1.0 / total), 0.0).to(probs.dtype)

    return batched


def _ok_6() -> Function:
    import torch

    from validate.conformance.engines.torch_sampling import divided, per_row

    def last_index(probs: Any, top_k: Any) -> Any:
        rows = probs.float().flip(1)
        k = per_row(top_k, rows, torch.int64).clamp(1, rows.shape[1])
        ids = rows.sort(dim=1, descending=True, stable=True).indices
        rank = torch.arange(rows.shape[1], device=rows.device).expand_as(ids)
        kept = torch.zeros_like(rows, dtype=torch.bool).scatter(1, ids, rank < k)
        return divided(rows, kept).flip(1).to(probs.dtype)

    return last_index


def _ok_6_sample() -> Function:
    from validate.conformance.engines.torch_sampling import filters

    def searched(probs: Any, top_k: Any, top_p: Any, min_p: Any, uniforms: Any) -> Any:
        import torch

        through = filters(probs, top_k, top_p, min_p).double().cumsum(1)
        goal = uniforms.double().unsqueeze(1) * through[:, -1:]
        ids = torch.searchsorted(through, goal, right=True).squeeze(1)
        return ids.clamp(max=probs.shape[1] - 1)

    return searched


CONTROLS: tuple[OperationControl, ...] = (
    OperationControl(
        id="OK-1",
        op="top_k_renorm_prob",
        title="The sum of a row has as many parts as the batch has rows",
        source="deepseek-ai/FlashMLA#212: a row moves by an ulp or two with its batchmates.",
        make=_ok_1,
    ),
    OperationControl(
        id="OK-6",
        op="top_k_renorm_prob",
        title="Ties at the k-th value are broken by the highest index",
        source="vllm-project/vllm#15478 (comment), pytorch/pytorch#150012.",
        settings={"ties": "exactly_k"},
        make=_ok_6,
    ),
    OperationControl(
        id="OK-VX-80",
        op="sample",
        title="Inversion in float64 by binary search",
        source="Another accumulator and another search; coins within the band of an edge may differ.",
        make=_ok_6_sample,
    ),
)
