"""Adapters of foreign attention kernels, against stand-ins with the published signatures."""

import sys
import types

import pytest
import torch

from tests.unit.conformance.sweeping import settings_of, sweep
from validate.conformance.engines import (
    foreign_aiter,
    foreign_sgl_kernel,
    foreign_vllm,
    triton_attention,
)
from validate.conformance.engines.torch_attention import eager_decode, eager_merge, eager_prefill
from validate.conformance.ops import lse_merge, mla_decode, mla_prefill
from validate.conformance.records import Effort

DECODE = list(mla_decode.OPERATION.cases(Effort.QUICK, settings_of(mla_decode.OPERATION)))
PREFILL = list(mla_prefill.OPERATION.cases(Effort.QUICK, settings_of(mla_prefill.OPERATION)))


def planted(monkeypatch, name, **members):
    """A stand-in module and its parents."""
    parts = name.split(".")
    for end in range(1, len(parts) + 1):
        module = types.ModuleType(".".join(parts[:end]))
        monkeypatch.setitem(sys.modules, module.__name__, module)
    for key, member in members.items():
        setattr(sys.modules[name], key, member)


@pytest.mark.parametrize("module", [foreign_aiter, foreign_vllm, foreign_sgl_kernel])
def test_what_is_not_installed_says_so(module):
    assert "not installed" in module.available()
    assert all(one.devices == ("cuda",) for one in module.IMPLEMENTATIONS)


def test_triton_is_said_to_be_written_for_rocm_and_unrun_there():
    assert all("unrun there" in one.title for one in triton_attention.IMPLEMENTATIONS)


def test_aiter_decode_adapter(monkeypatch):
    def mla_decode_fwd(
        q, kv_buffer, o, qo_indptr, kv_indptr, kv_indices, kv_last_page_lens, max_seqlen_q,
        page_size=1, nhead_kv=1, sm_scale=None, q_scale=None, kv_scale=None, return_lse=False,
    ):  # fmt: skip
        assert page_size == 1
        assert return_lse
        assert (kv_last_page_lens == 1).all()
        assert max_seqlen_q == int(qo_indptr.diff().max())
        lengths = kv_indptr.diff()
        most = max(1, int(lengths.max()))
        table = torch.zeros((len(lengths), most), dtype=torch.int32)
        for i, count in enumerate(lengths.tolist()):
            table[i, :count] = kv_indices[kv_indptr[i] : kv_indptr[i + 1]]
        scale = 1.0 if kv_scale is None else float(kv_scale)
        out, lse = eager_decode(
            q.to(o.dtype), kv_buffer.flatten(2), table, qo_indptr, lengths, o.shape[2],
            sm_scale, 1, scale,
        )  # fmt: skip
        o.copy_(out)
        return None, lse

    planted(monkeypatch, "aiter.mla", mla_decode_fwd=mla_decode_fwd)
    plain = [case for case in DECODE if case.axes["cache"] != "float8_e4m3fn"][::3]
    assert sweep(mla_decode.OPERATION, foreign_aiter.decode, cases=plain) == {}


def test_aiter_prefill_adapter(monkeypatch):
    def varlen(
        q, k, v, cu_seqlens_q, cu_seqlens_k, max_seqlen_q, max_seqlen_k, softmax_scale=None,
        causal=False, return_lse=False,
    ):  # fmt: skip
        assert return_lse
        assert max_seqlen_q == int(cu_seqlens_q.diff().max())
        assert max_seqlen_k == int(cu_seqlens_k.diff().max())
        out, lse = eager_prefill(
            q, k, v, cu_seqlens_q, cu_seqlens_k, softmax_scale, causal, 1.0, 1.0, 1.0
        )
        return out, lse.T

    planted(monkeypatch, "aiter", flash_attn_varlen_func=varlen)
    assert sweep(mla_prefill.OPERATION, foreign_aiter.prefill, cases=PREFILL[::3]) == {}


def test_vllm_decode_adapter(monkeypatch):
    def decode_attention_fwd(
        q, k_buffer, v_buffer, o, lse, req_to_token, b_seq_len, attn_logits, num_kv_splits,
        sm_scale, page_size=1, logit_cap=0.0, k_scale=None, v_scale=None,
    ):  # fmt: skip
        assert attn_logits.shape == (*q.shape[:2], num_kv_splits, o.shape[2] + 1)
        assert v_buffer.shape[-1] == o.shape[2]
        assert page_size == k_buffer.shape[1]
        assert k_scale is v_scale
        starts = torch.arange(len(q) + 1, dtype=torch.int32)
        scale = 1.0 if k_scale is None else float(k_scale)
        out, logs = eager_decode(
            q, k_buffer[:, :, 0], req_to_token, starts, b_seq_len, o.shape[2], sm_scale, 1, scale
        )
        o.copy_(out)
        lse.copy_(logs)

    planted(
        monkeypatch,
        "vllm.v1.attention.ops.triton_decode_attention",
        decode_attention_fwd=decode_attention_fwd,
    )
    assert sweep(mla_decode.OPERATION, foreign_vllm.decode, cases=DECODE[2::4]) == {}


def test_vllm_merge_adapter(monkeypatch):
    def merge_attn_states(
        output, prefix_output, prefix_lse, suffix_output, suffix_lse, output_lse=None
    ):
        outs = torch.stack([prefix_output, suffix_output])
        out, lse = eager_merge(outs, torch.stack([prefix_lse, suffix_lse]).transpose(1, 2))
        output.copy_(out)
        output_lse.copy_(lse.T)

    planted(
        monkeypatch,
        "vllm.v1.attention.ops.merge_attn_states",
        merge_attn_states=merge_attn_states,
    )
    cases = merges()
    assert sweep(lse_merge.OPERATION, foreign_vllm.merge, cases=cases) == {}


def test_sgl_kernel_merge_adapter(monkeypatch):
    def merge_state_v2(v_a, s_a, v_b, s_b):
        return eager_merge(torch.stack([v_a, v_b]), torch.stack([s_a, s_b]))

    planted(monkeypatch, "sgl_kernel", merge_state_v2=merge_state_v2)
    assert sweep(lse_merge.OPERATION, foreign_sgl_kernel.merge, cases=merges()) == {}


def merges():
    """Every second point."""
    settings = settings_of(lse_merge.OPERATION)
    return list(lse_merge.OPERATION.cases(Effort.QUICK, settings))[::2]
