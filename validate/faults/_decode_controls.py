"""Right decodes that differ from ours for a legitimate reason: none may be flagged."""

from typing import Any

from validate.faults._decode_steps import Function, padded, with_steps
from validate.faults.operations import OperationControl

__all__ = ["CONTROLS"]


def _ok_1() -> Function:
    from validate.conformance.engines._decode import part_bounds

    by_batch: dict[str, int] = {"batch": 1}

    def parts(length: int, splits: int) -> Any:
        return part_bounds(length, max(1, splits - 1 + by_batch["batch"] % 3))

    right = with_steps(parts=parts)

    def split_by_batch(q: Any, kv_cache: Any, block_table: Any, **rest: Any) -> Any:
        by_batch["batch"] = len(block_table)
        return right(q, kv_cache, block_table, **rest)

    return split_by_batch


def _ok_5() -> Function:
    return padded("zero")


def _ok_vx_31() -> Function:
    from validate.conformance.engines._decode import merge_parts

    def merge(outs: Any, lses: Any) -> Any:
        out, lse = outs[-1], lses[-1]
        for part in range(len(outs) - 2, -1, -1):
            pair = outs.new_zeros((2, *out.shape)), lses.new_zeros((2, *lse.shape))
            pair[0][0], pair[0][1], pair[1][0], pair[1][1] = out, outs[part], lse, lses[part]
            out, lse = merge_parts(*pair)
        return out, lse

    return with_steps(merge=merge)


def _ok_vx_32() -> Function:
    from dataclasses import replace
    from functools import partial

    from validate.conformance.engines._decode import DecodeSteps, folded_decode

    return partial(folded_decode, replace(DecodeSteps(), parts=lambda length, _: [(0, length)]))


CONTROLS = tuple(
    OperationControl(id=id_, op="mla_decode", title=title, source=source, make=make)
    for id_, title, source, make in (
        (
            "OK-1",
            "The split count follows the batch size: low bits change with batchmates",
            "deepseek-ai/FlashMLA#212, lightseekorg/tokenspeed#904; each result is within the limits",
            _ok_1,
        ),
        (
            "OK-5",
            "Zero query heads 12 to 16 and slice back",
            "vllm-project/vllm#50371, #50578; exact for each head",
            _ok_5,
        ),
        (
            "OK-VX-31",
            "Parts merged two at a time, the last first",
            "another order of the same sum",
            _ok_vx_31,
        ),
        (
            "OK-VX-32",
            "Folded heads, keys never split",
            "num_splits is a hint; a kernel may take one pass",
            _ok_vx_32,
        ),
    )
)
"""Right decodes that differ."""
