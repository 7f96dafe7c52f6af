"""Planted faults of what surrounds a kernel: graphs, scratch, races, hand-over, layouts.

And two public alarms that were none, as controls.
"""

from collections.abc import Callable
from typing import Any

from validate.faults import _engine_buffers as buffers, _engine_rows as rows
from validate.faults.operations import OperationControl, OperationFault

__all__ = ["CONTROLS", "FAULTS"]

Maker = Callable[[], Callable[..., Any]]


def _fault(id_: str, op: str, make: Maker, source: str, **settings: str) -> OperationFault:
    title = (make.__doc__ or "").strip().removesuffix(".")
    return OperationFault(id=id_, op=op, title=title, source=source, settings=settings, make=make)


def _control(id_: str, op: str, make: Maker, source: str) -> OperationControl:
    title = (make.__doc__ or "").strip().removesuffix(".")
    return OperationControl(id=id_, op=op, title=title, source=source, make=make)


FAULTS: tuple[OperationFault, ...] = (
    _fault(
        "HD-06",
        "mla_prefill",
        rows.first_key_head_alone,
        "vllm-project/vllm#52516: unlike TP sizes copy one head of the cached prompt. Planted in "
        "the keys and values before the first new token.",
    ),
    _fault(
        "ND-07",
        "mla_prefill",
        buffers.stale_schedule,
        "xLLM-AI/xllm#1939, flashinfer-ai/flashinfer#5015. Planted in the work list: entries past "
        "the batch are those of the last larger one, and write.",
    ),
    _fault(
        "ND-08",
        "mla_decode",
        buffers.captured_query,
        "ROCm/aiter#2585 (comment): padded heads, right in eager mode, wrong in a graph. Planted "
        "in the pointer of the padded query.",
    ),
    _fault(
        "ND-11",
        "mla_decode",
        buffers.growth_clears_page,
        "kekzl/imp#1709. Planted in the page of the newest key of the first request.",
    ),
    _fault(
        "ND-06",
        "kda_recurrent",
        buffers.graph_pad_row_writes,
        "local-inference-lab/vllm#621. Planted in the slot of the pad row: batches as large as a "
        "captured size are exact.",
    ),
    _fault(
        "LA-02",
        "kda_chunk",
        buffers.tracked_slot_unwritten,
        "sgl-project/sglang#30862. Planted in the final state: outputs of the cold run stay right.",
    ),
    _fault(
        "ND-12",
        "kda_chunk",
        buffers.families_share_scratch,
        "vllm-project/vllm#41834 (comment). Planted in the outputs of one-token sequences, in "
        "batches that hold longer ones too.",
    ),
    _fault(
        "LC-06",
        "short_conv",
        rows.window_one_wider,
        "huggingface/transformers#39408, vllm-project/vllm#3385: W against W + 1. The convolution "
        "has the only window of this model. Planted in its taps.",
    ),
    _fault(
        "ND-09",
        "moe_route",
        buffers.rows_past_one_wave,
        "ROCm/ATOM#1593. Planted in the ids of rows past 64 (128 in the source).",
    ),
    _fault(
        "TV-15",
        "moe_route",
        rows.one_expert_in_twelve_rows,
        "tenstorrent/tt-metal#51009 (review): a recall of 0.9 passes it. Planted in the last "
        "choice of 8 % of the rows.",
    ),
    _fault(
        "ND-01",
        "moe_combine",
        buffers.all_reduce_overtaken,
        "ROCm/aiter#3514, #3515. Planted in the addend of the last rank, every second call.",
    ),
    _fault(
        "ND-02",
        "moe_combine",
        buffers.all_reduce_torn,
        "vllm-project/vllm#57059. Planted in the addend of the first rank, every second call.",
    ),
    _fault(
        "SA-11",
        "min_p",
        rows.clears_by_logit,
        "sgl-project/sglang-jax#1563: the second of two selectable samplers. Planted in the mask.",
    ),
    _fault(
        "ND-10",
        "moe_route",
        buffers.sum_by_atomics,
        "flashinfer-ai/flashinfer#5034: the choice is right, last bits differ in every call; harmless "
        "alone, not between ranks. Planted in the order of the normaliser's sum.",
    ),
    _fault(
        "ND-05",
        "verify_chain",
        buffers.aliased_coins,
        "sgl-project/sglang#34021, #33800: depth 5 corrupt, its neighbours clean. Planted in the "
        "buffer of the last coin.",
    ),
    _fault(
        "QU-05",
        "mxfp4",
        rows.tiles_shuffled,
        "sgl-project/sglang#26884, ROCm/ATOM#632. Planted in the order of the 16-byte tiles.",
    ),
    _fault(
        "QU-13",
        "float8_e4m3fn",
        rows.scratch_without_scale,
        "vllm-project/vllm#55670: real, and yet not what cost the score. Planted behind the decode.",
    ),
)

CONTROLS: tuple[OperationControl, ...] = (
    _control(
        "TV-14",
        "moe_combine",
        rows.summed_in_reverse,
        "sgl-project/sglang#35795, HazyResearch/HipKittens#64: a tolerance below one ulp flags two "
        "right orders of one sum.",
    ),
    _control(
        "TV-17",
        "mla_decode",
        rows.splits_by_batch,
        "vllm-project/vllm#39146 (comment): concurrent replay differs by the order of sums, and was "
        "taken for a corrupted cache.",
    ),
)
