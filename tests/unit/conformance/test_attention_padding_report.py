"""The head-padding measurement: its oracle, its paddings, what it writes when a kernel fails."""

import json

import numpy as np
import pytest
import torch

from tests.measured import assert_measured
from validate.conformance.head_padding import __main__ as program
from validate.conformance.head_padding.kernels import DECODE, PREFILL, SCALE, Kernel
from validate.conformance.head_padding.measure import (
    Point,
    measure,
    operands,
    rounded,
    sampled_rows,
    truth_of,
)
from validate.conformance.head_padding.padding import PADDINGS
from validate.conformance.head_padding.report import markdown, summary
from validate.conformance.head_padding.truth import numpy_truth, rows_truth
from validate.oracle import causal_attention, latent_attention


def test_blocked_truth_is_the_dense_oracle(monkeypatch):
    monkeypatch.setattr("validate.conformance.head_padding.truth.BLOCK", 7)
    rng = np.random.default_rng(3)
    q, k, v = (rng.standard_normal((20, 3, w)) for w in (6, 6, 4))
    part = causal_attention(q, k, v, scale=0.4, first=0)
    rows = torch.tensor([0, 5, 19])
    wide = [torch.from_numpy(x) for x in (q, k, v)]
    truth = rows_truth(wide[0][rows], wide[1], wide[2], visible=rows + 1, scale=0.4)
    assert_measured(truth.out.numpy(), part.out[rows], atol=1e-14, rtol=0)
    assert_measured(truth.lse.numpy(), part.lse[rows], atol=1e-14, rtol=0)


def test_blocked_truth_is_the_absorbed_oracle(monkeypatch):
    monkeypatch.setattr("validate.conformance.head_padding.truth.BLOCK", 7)
    rng = np.random.default_rng(4)
    q, kv = rng.standard_normal((2, 3, 6)), rng.standard_normal((20, 6))
    part = latent_attention(q, kv, latent=4, scale=0.4, first=18)
    shared = torch.from_numpy(kv).unsqueeze(1)
    truth = rows_truth(
        torch.from_numpy(q), shared, shared[..., :4], visible=torch.tensor([19, 20]), scale=0.4
    )
    assert_measured(truth.out.numpy(), part.out, atol=1e-14, rtol=0)
    out, lse = numpy_truth(q, kv[:, None], kv[:, None, :4], visible=np.array([19, 20]), scale=0.4)
    assert_measured(out, part.out, atol=1e-14, rtol=0)
    assert_measured(lse, part.lse, atol=1e-14, rtol=0)


@pytest.mark.parametrize("name", sorted(PADDINGS))
def test_padding_gives_the_twelve_heads_back(name):
    x = torch.arange(2 * 12 * 3, dtype=torch.float32).view(2, 12, 3)
    padding = PADDINGS[name]
    padded = padding.pad(x, axis=1)
    assert padded.shape == (2, padding.count, 3)
    assert padded.is_contiguous()
    assert (padding.unpad(padded, axis=1) == x).all()
    for place, source in enumerate(padding.source):
        if source >= 0:
            assert (padded[:, place] == x[:, source]).all()
        else:
            assert padded[:, place].isnan().all() if source == -2 else not padded[:, place].any()


def test_rounding_to_float8_saturates_and_counts():
    # 1.0625 lies between the float8_e4m3fn values 1 and 1.125 and is rounded to the even one.
    x = torch.tensor([1.0, 1.0625, 500.0, -1000.0], dtype=torch.bfloat16)
    found, beyond = rounded(x)
    assert found.tolist() == [1.0, 1.0, 448.0, -448.0]
    assert beyond == 2


def test_sampled_rows_hold_both_ends_and_the_boundaries():
    point = Point(phase="prefill", context=172032, queries=172032, dtype="bfloat16")
    rows = sampled_rows(point)
    assert {0, 1, 127, 128, 172031} <= set(rows)
    assert rows == sorted(set(rows))
    assert 40 <= len(rows) <= 48
    assert sampled_rows(Point(phase="decode", context=9, queries=8, dtype="x")) == list(range(8))


def test_scores_have_the_stated_spread():
    point = Point(phase="decode", context=4096, queries=1, dtype="bfloat16")
    data = operands(point, device="cpu", seed=1)
    scores = (data.q[0].float() @ data.k.float().T) * SCALE
    assert 1.8 < float(scores.std()) < 2.2


def test_program_writes_a_whole_report_without_a_gpu(tmp_path, monkeypatch):
    monkeypatch.setattr(program, "QUICK", (24,))

    def broken(q, k, v):
        msg = "no kernel for 12 heads"
        raise RuntimeError(msg)

    kernel = Kernel(name="broken", title="It fails.", devices=("cpu",), run=broken)
    monkeypatch.setattr(program, "DECODE", {**DECODE, "broken": kernel})
    assert program.main(["--device", "cpu", "--quick", "--out", str(tmp_path)]) == 0
    report = json.loads((tmp_path / "k3-head-padding.json").read_text())
    failed = [row for row in report["results"] if "failed" in row]
    assert {row["kernel"] for row in failed} == {"broken"}
    assert failed[0]["failed"] == "RuntimeError: no kernel for 12 heads"
    good = [row for row in report["results"] if "failed" not in row]
    assert {row["phase"] for row in good} == {"prefill", "decode"}
    assert {row["dtype"] for row in good} == {"bfloat16", "float8_e4m3fn"}
    for row in good:
        assert len(row["unpadded"]["kernel"]["rel_l2_by_head"]) == 12
        assert max(row["unpadded"]["kernel"]["rel_l2_by_head"]) < 0.01
        names = {"zero", "tile"} | ({"repeat"} if row["phase"] == "decode" else set())
        assert set(row["variants"]) == names
        assert row["zero_against_nan_heads"]["differ"] == 0
    assert report["oracle_check"] < 1e-12
    page = (tmp_path / "k3-head-padding.md").read_text()
    assert "No ROCm hardware and no AITER kernel was measured" in page
    assert "broken: RuntimeError: no kernel for 12 heads" in page
    assert "python -m validate.conformance.head_padding" in page


def test_a_spent_budget_is_said_and_nothing_measured_is_exit_1(tmp_path):
    options = ["--device", "cpu", "--quick", "--budget", "0", "--out", str(tmp_path)]
    assert program.main(options) == 1
    report = json.loads((tmp_path / "k3-head-padding.json").read_text())
    assert all("the time budget of 0 s" in row["failed"] for row in report["results"])
    assert report["sentences"] == ["Nothing was measured: every kernel failed."]


def test_a_mixed_up_unpad_would_show_in_errors_and_bits():
    """A kernel that mixes heads by their count is seen: the measurement can fail."""

    def mixes(q, k, v):
        out, lse = PREFILL["eager"].run(q, k, v)
        return (out.roll(1, dims=1), lse) if q.shape[1] == 16 else (out, lse)

    point = Point(phase="prefill", context=30, queries=30, dtype="bfloat16")
    data = operands(point, device="cpu", seed=5)
    rows = sampled_rows(point)
    kernel = Kernel(name="mixes", title="", devices=("cpu",), run=mixes)
    found = measure(
        kernel, point, data, truths={"kernel": truth_of(point, data, rows)}, rows=rows,
        device="cpu", timed=False,
    )  # fmt: skip
    zero = found["variants"]["zero"]
    assert zero["against_unpadded"]["differ"] > 0
    row = {"phase": "prefill", "context": 30, "queries": 30, "dtype": "bfloat16", "kernel": "mixes"}
    entry = summary([{**row, **found}])["prefill zero"]
    assert entry["bit_identical"] == 0
    assert entry["head_error_ratio"]["high"] > 100


def test_nan_of_a_kernel_is_counted_not_averaged():
    def nan_heads(q, k, v):
        out, lse = PREFILL["eager"].run(q, k, v)
        out = out.clone()
        out[:, 3] = torch.nan
        return out, lse

    point = Point(phase="prefill", context=10, queries=10, dtype="bfloat16")
    data = operands(point, device="cpu", seed=5)
    truths = {"kernel": truth_of(point, data, [9])}
    kernel = Kernel(name="nan", title="", devices=("cpu",), run=nan_heads)
    found = measure(kernel, point, data, truths=truths, rows=[9], device="cpu", timed=False)
    assert found["unpadded"]["kernel"] == {"nonfinite": 128}
    row = {"phase": "prefill", "context": 10, "queries": 10, "dtype": "bfloat16", "kernel": "nan"}
    report = {
        "title": "t", "command": "c", "date": "d", "card": "x", "oracle_check": 0.0,
        "results": [{**row, **found}], "not_shown": [], "kernels": {},
    }  # fmt: skip
    assert "128 not finite" in markdown(report)
