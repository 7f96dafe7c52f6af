"""Narrow formats: one rounding of a wide sum, saturation of float8, storage of the state."""

import math

import pytest
import torch

from tests.measured import assert_measured
from tests.unit.models.small import (
    BF16,
    ROWS,
    SMALL,
    WEIGHTS,
    run_decode,
    run_prefill,
    whole_trace,
)
from validate.models import PathOptions, empty_state, mla
from validate.models.attention import attend
from validate.models.mla import AttentionCall, padded_prefill
from validate.models.ops import attention_residual_mix, linear, linear_accumulate, rms_norm
from validate.models.trace import SILENT, Trace

BF = torch.bfloat16
HELD = {name: w.to(BF).float() for name, w in WEIGHTS.items()}
"""bfloat16 values in float32, as ``load_weights`` holds them on a CPU."""


def bf16(*values):
    return torch.tensor(values, dtype=BF)


def test_linear_rounds_the_exact_product_once():
    """Small integers over 16: float32 sums are exact, so the float64 product rounded once is right."""
    rng = torch.Generator().manual_seed(1)
    x, w = (torch.randint(-99, 100, s, generator=rng).to(BF) / 16 for s in ((40, 31), (50, 31)))

    made = linear(x, w.float())

    exact = x.double() @ w.double().T
    assert made.dtype is BF
    assert torch.equal(made, exact.to(BF))
    assert not torch.equal(made.double(), exact)  # it does round


@pytest.mark.parametrize("held", [BF, torch.float32], ids=["bfloat16", "float32"])
def test_linear_does_not_care_how_bfloat16_weights_are_held(held):
    x = torch.randn(4, 6, generator=torch.Generator().manual_seed(2)).to(BF)
    w = torch.randn(5, 6, generator=torch.Generator().manual_seed(3)).to(BF)

    assert torch.equal(linear(x, w.to(held)), linear(x, w))


def test_linear_adds_in_float32():
    """256 + 16 times 1 is 272; a bfloat16 sum stays at 256, for 257 rounds to 256."""
    x = bf16(256, *[1] * 16)
    stuck = bf16(0)
    for value in x:
        stuck = stuck + value

    assert stuck.item() == 256
    assert linear(x[None], torch.ones(1, 17)).item() == 272


def test_router_and_beta_products_stay_wide():
    """257 has no bfloat16; the wide product keeps it."""
    made = linear_accumulate(bf16(256, 1)[None], torch.ones(1, 2), dtype=torch.float32)

    assert made.dtype is torch.float32
    assert made.item() == 257


def test_rms_norm_adds_squares_in_float32():
    """One 16 and 256 ones: mean square 512 / 257, so 16 becomes 16 / sqrt(512/257) = 11.336."""
    made = rms_norm(bf16(16, *[1] * 256), torch.ones(257), eps=0.0, accumulate=torch.float32)

    assert made.dtype is BF
    assert made[0].item() == torch.tensor(16 / math.sqrt(512 / 257)).to(BF).item()
    assert made[1].item() == torch.tensor(1 / math.sqrt(512 / 257)).to(BF).item()


def test_rms_norm_has_eps_inside_the_root():
    """x = 3, eps = 7: 3 / sqrt(9 + 7) * 2."""
    x, weight = torch.tensor([3.0], dtype=torch.float64), torch.tensor([2.0], dtype=torch.float64)

    made = rms_norm(x, weight, eps=7.0, accumulate=torch.float64)

    assert_measured(made, [1.5], atol=0, rtol=1e-15)


def test_attention_sums_exponentials_in_float32():
    """513 equal keys of value 1: a bfloat16 count would stop at 256."""
    keys = 513
    part = attend(
        torch.zeros(1, 1, 1, 1, dtype=BF),
        torch.zeros(1, keys, 1, 1, dtype=BF),
        torch.ones(1, keys, 1, 1, dtype=BF),
        torch.ones(1, 1, keys, dtype=torch.bool),
        scale=1.0,
        accumulate=torch.float32,
        round_weights=True,
    )

    assert part.out.dtype is torch.float32
    assert_measured(part.out.flatten(), [1.0], atol=0, rtol=1e-6)
    assert_measured(part.lse.flatten(), [math.log(keys)], atol=0, rtol=1e-6)


def test_residual_mix_by_hand():
    """Score of c is mean-square-normed c times proj: +1 and -1 with weights e^2 : 1."""
    up, down = torch.full((1, 1, 1), 5.0), torch.full((1, 1, 1), -3.0)
    one = torch.ones(1)

    made = attention_residual_mix([up, down], one, one, eps=0.0, accumulate=torch.float32)

    share = math.e**2 / (math.e**2 + 1)
    assert_measured(made.flatten(), [5 * share - 3 * (1 - share)], atol=0, rtol=1e-6)


def test_residual_mix_multiplies_norm_and_proj_in_float32():
    """norm 1 + 2^-7 and proj 1 - 2^-8 are bfloat16 numbers, their product 1.0038757 is not: rounded
    to bfloat16 it is 1 (a step there is 2^-7), and the score of 64 channels of +-1 with it.
    """
    norm, proj = bf16(1 + 2.0**-7), bf16(1 - 2.0**-8)
    product = (1 + 2.0**-7) * (1 - 2.0**-8)
    up, down = torch.ones(1, 1, 1), -torch.ones(1, 1, 1)

    made = attention_residual_mix([up, down], norm, proj, eps=0.0, accumulate=torch.float32)

    assert (norm * proj).item() == 1.0
    assert_measured(made.flatten(), [math.tanh(product)], atol=0, rtol=1e-6)


def test_residual_mix_of_one_candidate_is_that_candidate():
    only = torch.randn(1, 2, 3).to(BF)

    mixed = attention_residual_mix(
        [only], torch.ones(3), torch.ones(3), eps=1e-5, accumulate=torch.float32
    )

    assert mixed is only


def test_residual_mix_of_bfloat16_is_mixed_in_float32():
    """Equal scores: 256 and 1 mix to 128.5, which is rounded once to 128 (tie to even)."""
    zero = torch.zeros(1)
    made = attention_residual_mix(
        [bf16(256).view(1, 1, 1), bf16(1).view(1, 1, 1)],
        zero,
        zero,
        eps=1e-5,
        accumulate=torch.float32,
    )

    assert made.dtype is BF
    assert made.item() == 128


def test_accumulation_is_float32_under_bfloat16_and_the_dtype_itself_else():
    assert BF16.accumulate is torch.float32
    assert PathOptions(dtype=torch.float32).accumulate is torch.float32
    assert PathOptions(dtype=torch.float64).accumulate is torch.float64


@pytest.mark.parametrize("path", ["reference", "rocm"])
def test_what_is_wide_and_what_is_narrow_in_a_bfloat16_pass(path):
    trace = whole_trace()
    logits, state = run_prefill(ROWS, PathOptions(path=path), weights=HELD, trace=trace)

    wide = {n for n, made in trace.tensors.items() if made[0].dtype is torch.float32}
    assert logits.dtype is BF
    assert wide == {n for n in trace.tensors if n.endswith((".lse", ".scores", ".weights"))}
    assert {made[0].dtype for n, made in trace.tensors.items() if n.endswith(".ids")} == {
        torch.int64
    }
    assert {k.recurrent.dtype for k in state.kda.values()} == {torch.float32}
    assert {k.conv.dtype for k in state.kda.values()} == {BF}
    assert {kv.dtype for kv in state.kv.values()} == {BF}


@pytest.mark.parametrize("path", ["reference", "rocm"])
def test_bfloat16_is_near_float64(path):
    """Median rel-L2 of a row of logits: measured 0.018. Single rows are off by up to 0.14, where
    two experts are nearly tied.
    """
    exact, _ = run_prefill(ROWS[:1], weights={n: w.double() for n, w in HELD.items()})
    made, _ = run_prefill(ROWS[:1], PathOptions(path=path), weights=HELD)

    relative = (made.double() - exact).norm(dim=-1) / exact.norm(dim=-1)
    assert relative.median() <= 0.05
    assert relative.max() <= 0.5


@pytest.mark.parametrize(
    ("form", "largest", "dtype"),
    [
        ("fp8", 448.0, torch.float8_e4m3fn),
        ("fp8-fnuz", 240.0, torch.float8_e4m3fnuz),
    ],
)
def test_float8_saturates_and_rounds_to_three_bits(form, largest, dtype):
    """By the two formats' tables: largest finite 448 and 240; 1.0625 is a tie, to even: 1."""
    x = bf16(1e6, -1e6, largest, largest / 2 + 1, 1.0625, 1.1875, 0.0)

    made = mla._float8(x, form)

    assert made.dtype is dtype
    assert made.tolist() == [largest, -largest, largest, largest / 2, 1.0, 1.25, 0.0]
    assert torch.finfo(dtype).max == largest


@pytest.mark.parametrize("form", ["fp8", "fp8-fnuz"])
def test_float8_keeps_nan(form):
    assert torch.isnan(mla._float8(bf16(math.nan), form).float()).all()


def prefill_call(q):
    """Two keys whose latent goes unchanged into keys and values of 12 heads of width 1."""
    config = SMALL.model_copy(
        update={"kv_lora_rank": 2, "qk_nope_head_dim": 1, "qk_rope_head_dim": 1, "v_head_dim": 1}
    )
    call = AttentionCall(
        q=torch.full((1, 2, 12, 2), q, dtype=BF),
        cache=torch.tensor([[[1.0, 300.0, 0.0], [1.0, 1000.0, 0.0]]], dtype=BF),
        first_new=0,
        mask=torch.ones(1, 2, 2, dtype=torch.bool),
        kv_b=torch.eye(2).repeat(12, 1),
    )
    return call, config


@pytest.mark.parametrize(
    ("form", "expected"), [("bf16", 650.0), ("fp8", (288 + 448) / 2), ("fp8-fnuz", 240.0)]
)
def test_prefill_values_saturate_in_float8(form, expected):
    """Equal scores, values 300 and 1000: in e4m3fn 288 (step 32, tie to even at 304) and 448; in
    e4m3fnuz both 240.
    """
    call, config = prefill_call(1.0)
    trace = Trace(wants=lambda _: False)

    made = padded_prefill(
        call, config=config, options=PathOptions(path="rocm", prefill=form), trace=trace
    )

    assert_measured(made.out.flatten(), [expected] * 24, atol=0, rtol=1e-6)
    assert set(trace.branches) == {"mla.prefill.padded.zero"} | (
        set() if form == "bf16" else {f"mla.prefill.fp8.{str(mla.FLOAT8_DTYPE[form])[6:]}"}
    )


@pytest.mark.parametrize("form", ["fp8", "fp8-fnuz"])
def test_prefill_queries_saturate_in_float8(form):
    """q = 1000 on keys of 1: the score is scale * largest, not scale * 1000."""
    call, config = prefill_call(1000.0)

    made = padded_prefill(
        call, config=config, options=PathOptions(path="rocm", prefill=form), trace=SILENT
    )

    expected = mla.FLOAT8_MAX[form] * config.attention_scale + math.log(2)
    assert_measured(made.lse.flatten(), [expected] * 24, atol=0, rtol=1e-6)


@pytest.mark.parametrize("form", ["fp8", "fp8-fnuz"])
def test_float8_touches_prefill_only(form):
    plain, narrow = (PathOptions(path="rocm", prefill=f) for f in ("bf16", form))
    before, state = run_prefill(ROWS, plain, weights=HELD)
    after, _ = run_prefill(ROWS, narrow, weights=HELD)

    assert not torch.equal(before, after)
    assert torch.equal(
        run_decode(ROWS, state, plain, weights=HELD)[0],
        run_decode(ROWS, state, narrow, weights=HELD)[0],
    )


def test_a_bfloat16_state_is_stored_in_bfloat16_and_computed_in_float32():
    options = PathOptions(state="bf16")
    _, wide = run_prefill(ROWS, weights=HELD, options=BF16)
    _, narrow = run_prefill(ROWS, weights=HELD, options=options)
    _, after = run_decode(ROWS, narrow, options, weights=HELD)

    for state in (empty_state(SMALL, options, batch=2, device="cpu"), narrow, after):
        assert {k.recurrent.dtype for k in state.kda.values()} == {BF}
    assert torch.equal(narrow.kda[0].recurrent, wide.kda[0].recurrent.to(BF))  # rounded once
    assert torch.equal(narrow.kda[0].conv, wide.kda[0].conv)
