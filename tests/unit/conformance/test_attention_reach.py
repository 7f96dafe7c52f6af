"""Kernels that are right at the usual sizes alone: the quick sweeps go beyond them."""

import math
from functools import partial

import pytest
import torch

from tests.unit.conformance.sweeping import settings_of, sweep
from validate.conformance.engines._decode import (
    DecodeSteps,
    decode_with,
    flat_slots,
    part_bounds,
)
from validate.conformance.engines.torch_attention import eager_merge
from validate.conformance.ops import lse_merge, mla_decode
from validate.conformance.records import Effort

DECODE, MERGE = mla_decode.OPERATION, lse_merge.OPERATION
POINTS = list(DECODE.cases(Effort.QUICK, settings_of(DECODE)))
BEYOND = POINTS[-7:]
"""Points with other pages, long rows, many parts, huge scores and the widths of K3."""


def with_steps(**steps):
    return partial(decode_with, DecodeSteps(**steps))


def wrong_page(wrong):
    def slots(table, length, page):
        return (
            flat_slots(table, length, page).flip(0)
            if page == wrong
            else flat_slots(table, length, page)
        )

    return with_steps(slots=slots)


def keys_up_to(most):
    def bound(queries, length, *, device):
        seen = length - queries + 1 + torch.arange(queries, device=device)
        return seen.clamp(max=most)

    return with_steps(bound=bound)


def parts_below(most):
    def parts(length, splits):
        return part_bounds(length, splits)[:most]

    return with_steps(parts=parts)


def table_of(bits):
    def slots(table, length, page):
        span = 2**bits
        narrow = table.long() % span
        narrow = torch.where(narrow >= span // 2, narrow - span, narrow) if bits == 16 else narrow
        return flat_slots(narrow.clamp(min=0), length, page)

    return with_steps(slots=slots)


def merge_unshifted(outs, lses):
    weight = lses.exp()
    total = weight.sum(0)
    counted = outs.float().masked_fill((lses == -math.inf).unsqueeze(-1), 0.0)
    out = (weight.unsqueeze(-1) * counted).sum(0) / total.masked_fill(total == 0, 1.0)[..., None]
    return out.to(outs.dtype), total.log()


def wrong_at_width(latent):
    right = with_steps()

    def decode(q, kv_cache, block_table, query_starts, lengths, latent_, scale, *rest):
        scale = 1.01 * scale if latent_ == latent and q.shape[1] == 12 else scale
        return right(q, kv_cache, block_table, query_starts, lengths, latent_, scale, *rest)

    def named(**given):
        names = ("q", "kv_cache", "block_table", "query_starts", "lengths", "latent", "scale")
        return decode(*(given[n] for n in (*names, "num_splits", "kv_scale")))

    return named


WRONG = {
    "pages of 1": wrong_page(1),
    "pages of 64": wrong_page(64),
    "keys beyond 272": keys_up_to(272),
    "keys beyond 1024": keys_up_to(1024),
    "keys beyond 4096": keys_up_to(4096),
    "more than 15 parts": parts_below(15),
    "more than 31 parts": parts_below(31),
    "block table as int16": table_of(16),
    "merge without the shift": with_steps(merge=merge_unshifted),
    "widths of K3": wrong_at_width(512),
}


def test_a_right_kernel_passes_beyond_the_usual_sizes():
    assert sweep(DECODE, with_steps(), cases=BEYOND) == {}


@pytest.mark.parametrize("name", WRONG)
def test_decode_that_is_wrong_beyond_the_usual_sizes_is_caught(name):
    usual = [POINTS[3], POINTS[11], POINTS[16]]
    some = usual if name != "merge without the shift" else usual[:1]
    assert sweep(DECODE, WRONG[name], cases=some) == {}, "it is right at the usual sizes"
    assert sweep(DECODE, WRONG[name], cases=BEYOND, enough=1)


def test_page_ids_pass_what_16_bits_hold():
    (case,) = [one for one in POINTS if one.axes["far"] and one.axes["page"] == 1]
    used = case.inputs["block_table"][case.inputs["block_table"] > 0]
    assert used.min() > 2**16
    assert case.inputs["kv_cache"].nbytes < 4 << 20


def test_merge_points_reach_many_parts_rows_and_the_latent_width():
    points = list(MERGE.cases(Effort.QUICK, settings_of(MERGE)))
    assert {one.axes["parts"] for one in points} >= {32, 64, 130}
    assert {one.axes["value"] for one in points} == {16, 512}
    assert 67 in {one.axes["rows"] for one in points}

    def cut(outs, lses, *, parts=None, rows=None, value=None):
        out, lse = eager_merge(outs[:parts], lses[:parts])
        if rows is not None:
            out[rows:] = 0
        if value is not None:
            out[..., value:] = 0
        return out, lse

    for wrong in ({"parts": 16}, {"parts": 64}, {"rows": 64}, {"value": 256}):
        found = sweep(MERGE, partial(cut, **wrong), cases=points, enough=1)
        assert found, f"no point sees the merge end at {wrong}"
