"""attention.head_rel_l2, .scale and .row_rel_l2: deterministic worsts that name their place."""

import math
from typing import Any

import numpy as np
import pytest

from tests.fakes import FakeSide, make_manifest, make_pair
from tests.layers import LEVELS, changed, decode, drawn, prefill, router
from tests.measured import assert_measured
from validate.metrics.attention_head_rel_l2 import attention_head_rel_l2
from validate.metrics.attention_row_rel_l2 import attention_row_rel_l2
from validate.metrics.attention_scale import attention_scale

METRICS = (attention_head_rel_l2, attention_scale, attention_row_rel_l2)

# By hand. Head 0 of kda.0: ref (3, 0) and (0, 4) over two prompts, cand off by 0 and 1:
# sqrt(1 / 25) = 0.2. Head 1: ref (1, 1) and (1, 1), cand off by 1 in one place: sqrt(1 / 4) = 0.5.
REF = {
    "p-0": prefill({"kda.0.out": [[[3.0, 0.0], [1.0, 1.0]]]}),
    "p-1": prefill({"kda.0.out": [[[0.0, 4.0], [1.0, 1.0]]]}),
}
CAND = {
    "p-0": prefill({"kda.0.out": [[[3.0, 0.0], [1.0, 2.0]]]}),
    "p-1": prefill({"kda.0.out": [[[1.0, 4.0], [1.0, 1.0]]]}),
}


def test_worst_head_is_pooled_over_prompts_and_named():
    m = attention_head_rel_l2(make_pair(REF, CAND), LEVELS)

    assert m.value == 0.5
    assert (m.n, m.n_of, m.interval) == (2, "heads over modes and layers", None)
    assert m.pooled == len(REF)
    assert m.worst is not None
    assert m.worst.place == "prefill.kda.0.out head 1"
    assert m.breakdown == {"prefill.kda.0": 0.5}


def test_head_errors_divide_by_ref():
    """Swapped, head 1 would be sqrt(1 / (1 + 4 + 1 + 1)), 0.378."""
    m = attention_head_rel_l2(make_pair(CAND, REF), LEVELS)

    assert m.value is not None
    assert_measured(m.value, math.sqrt(1 / 7), atol=0, rtol=1e-12)


def test_scale_of_the_worst_head():
    """By hand: head 1 of REF against CAND: sum (c - r) r / sum r^2 = 1 / 4; head 0: 0 / 25."""
    m = attention_scale(make_pair(REF, CAND), LEVELS)

    assert (m.value, m.unit) == (0.25, "|alpha - 1|")
    assert m.worst is not None
    assert m.worst.place == "prefill.kda.0.out head 1"


def test_scale_sees_what_cosine_hides():
    """TV-02: three times the reference has cosine 1; alpha is 3."""
    ref = {"p-0": prefill({"mla.0.out": [[[1.0, -2.0]], [[0.5, 4.0]]]})}
    cand = {"p-0": prefill({"mla.0.out": [[[3.0, -6.0]], [[1.5, 12.0]]]})}
    m = attention_scale(make_pair(ref, cand), LEVELS)

    assert m.value == 2.0
    assert m.pattern == "prefill.mla.0.out: all heads scaled by 3"


def test_a_shrunken_head_counts_as_much_as_a_grown_one():
    ref = {"p-0": prefill({"mla.0.out": [[[2.0]], [[4.0]]]})}
    cand = {"p-0": prefill({"mla.0.out": [[[1.0]], [[2.0]]]})}

    assert attention_scale(make_pair(ref, cand), LEVELS).value == 0.5


def test_worst_row_by_hand():
    """Norms 3, 4 and 0.001 in ref; the tiny row is held to the RMS norm, the big one to its own.

    RMS norm: sqrt((9 + 16 + 1e-6) / 3) = 2.8868. Errors 0.3, 0.8 and 0.5: 0.3 / 3 = 0.1,
    0.8 / 4 = 0.2, 0.5 / 2.8868 = 0.17321.
    """
    ref = {"p-0": prefill({"hidden.2": [[3.0, 0.0], [0.0, 4.0], [0.001, 0.0]]})}
    cand = {"p-0": prefill({"hidden.2": [[3.3, 0.0], [0.0, 4.8], [0.001, 0.5]]})}
    m = attention_row_rel_l2(make_pair(ref, cand), LEVELS)

    assert m.value is not None
    assert_measured(m.value, 0.2, atol=0, rtol=1e-6)  # float32 inputs
    assert m.worst is not None
    assert (m.worst.prompt, m.worst.position, m.worst.place) == ("p-0", 1, "prefill.hidden.2")
    assert (m.n, m.n_of) == (3, "rows over tensors")


@pytest.mark.parametrize("worst", [0, 1])
def test_the_worst_row_is_looked_for_in_every_prompt(worst):
    """Off by 0.5 in one prompt and by 0.25 in the other, whichever comes first."""
    ref = {f"p-{i}": prefill({"hidden.1": [[1.0]]}) for i in range(2)}
    cand = {f"p-{i}": prefill({"hidden.1": [[1.5 if i == worst else 1.25]]}) for i in range(2)}
    m = attention_row_rel_l2(make_pair(ref, cand), LEVELS)

    assert m.value == 0.5
    assert m.worst is not None
    assert m.worst.prompt == f"p-{worst}"


def test_the_worst_row_is_looked_for_in_every_tensor():
    """By hand: 0.25 in the output of layer 0, 0.5 in hidden.1, 0.125 in hidden.2, all of norm 1."""
    ref = prefill({"kda.0.out": [[[1.0]]], "hidden.1": [[1.0]], "hidden.2": [[1.0]]})
    cand = prefill({"kda.0.out": [[[1.25]]], "hidden.1": [[0.5]], "hidden.2": [[1.125]]})
    m = attention_row_rel_l2(make_pair({"p-0": ref}, {"p-0": cand}), LEVELS)

    assert (m.value, m.n) == (0.5, 3)
    assert m.worst is not None
    assert m.worst.place == "prefill.hidden.1"
    assert m.breakdown == {
        "prefill.kda.0": 0.25,
        "prefill.hidden.1": 0.5,
        "prefill.hidden.2": 0.125,
    }


def test_a_tiny_row_does_not_explode():
    ref = {"p-0": prefill({"hidden.2": [[1.0], [1e-30]]})}
    cand = {"p-0": prefill({"hidden.2": [[1.0], [0.1]]})}
    m = attention_row_rel_l2(make_pair(ref, cand), LEVELS)

    # RMS row norm sqrt((1 + 0) / 2); 0.1 / 0.70711.
    assert m.value is not None
    assert_measured(m.value, 0.1 * math.sqrt(2), atol=0, rtol=1e-6)


def test_one_lost_row_of_many_is_the_worst_row():
    """Trap 15: one row of 4,000 set to zero is 1.6 % in the bulk and 100 % in its row."""
    ref = {"p-0": prefill({"kda.0.out": np.ones((4000, 1, 4))})}
    cand = {"p-0": prefill({"kda.0.out": np.ones((4000, 1, 4))})}
    cand["p-0"]["prefill.kda.0.out"][1234] = 0.0
    m = attention_row_rel_l2(make_pair(ref, cand), LEVELS)

    assert m.value == 1.0
    assert m.worst is not None
    assert m.worst.position == 1234


def test_decode_rows_tell_their_own_positions():
    ref = {"p-0": decode({"kda.0.out": [[[1.0]], [[1.0]]]}, start=7)}
    cand = {"p-0": decode({"kda.0.out": [[[1.0]], [[1.5]]]}, start=7)}
    m = attention_row_rel_l2(make_pair(ref, cand), LEVELS)

    assert m.worst is not None
    assert (m.worst.position, m.worst.place) == (8, "decode.kda.0.out")


@pytest.mark.parametrize("metric", METRICS)
def test_equal_sides_measure_exactly_zero(metric):
    held = {f"p-{i}": drawn(seed=i) for i in range(3)}
    m = metric(make_pair(held, held), LEVELS)

    assert m.value == 0.0
    assert m.pattern is None
    assert m.interval is None


@pytest.mark.parametrize("metric", METRICS)
def test_no_tensors_non_finite_and_zero_ref_are_undefined(metric):
    nothing = {"p-0": {"logits": np.ones((2, 3), np.float32)}}
    clean = {"p-0": drawn(seed=1)}
    broken = {"p-0": changed(drawn(seed=1), prefill__kda__0__out=lambda a: a * np.nan)}
    zero = {"p-0": prefill({"kda.0.out": [[[0.0]]]})}
    one = {"p-0": prefill({"kda.0.out": [[[1.0]]]})}

    assert "no prompt holds" in str(metric(make_pair(nothing, nothing), LEVELS).why_undefined)
    for pair in (make_pair(clean, broken), make_pair(broken, clean), make_pair(broken, broken)):
        m = metric(pair, LEVELS)
        assert m.value is None
        assert "values are not finite in 1 tensors: p-0 prefill.kda.0.out" in str(m.why_undefined)
    m = metric(make_pair(zero, one), LEVELS)
    assert m.value is None
    assert "ref is all zero and cand is not in prefill.kda.0.out" in str(m.why_undefined)


def flipped(chosen: list[list[int]]) -> dict[str, Any]:
    """One token, one expert of two, scores 0.01 apart, outputs before and after the router."""
    return {
        **prefill({"kda.1.out": [[[1.0]]], "kda.2.out": [[[1.0]]], "hidden.0": [[1.0]]}),
        **router([[0.5, 0.5]], chosen),
    }


@pytest.mark.parametrize("metric", METRICS)
def test_a_layer_without_rows_left_is_no_data(metric):
    pair = make_pair({"p-0": flipped([[0]])}, {"p-0": flipped([[1]])}, route_gap=0.01)
    m = metric(pair, LEVELS)

    assert m.value is None
    assert "router ties set every row of 1 tensors apart, the first is prefill.kda.2.out" in str(
        m.why_undefined
    )


def wide(seed: int, rows: int = 8) -> dict[str, Any]:
    return drawn(seed=seed, tokens=2 * rows, heads=12, layers=("kda.0", "kda.1", "kda.2", "mla.3"))


def noisy(tensors: dict[str, Any], seed: int) -> dict[str, Any]:
    """bfloat16-sized relative noise on every float tensor."""
    rng = np.random.default_rng(seed)
    return {
        name: array
        if name.endswith("positions")
        else (array * (1 + 0.003 * rng.normal(size=array.shape))).astype(np.float32)
        for name, array in tensors.items()
    }


def packed_read(sides: dict[str, dict[str, Any]], name: str) -> None:
    """VX-02 at its code site: [steps][B, 16, D] read with a 12-head stride, in place."""
    ids = list(sides)
    batch = np.stack([sides[prompt][name] for prompt in ids], axis=1)
    steps, rows, heads, value = batch.shape
    padded = np.concatenate([batch, np.zeros((steps, rows, 4, value), batch.dtype)], axis=2)
    read = padded.reshape(steps, -1)[:, : rows * heads * value].reshape(batch.shape)
    for row, prompt in enumerate(ids):
        sides[prompt][name] = read[:, row]


def test_pattern_names_the_rows_of_a_packed_read():
    ref = {f"p-{i}": wide(i) for i in range(4)}
    cand = {prompt: noisy(held, 50 + i) for i, (prompt, held) in enumerate(ref.items())}
    packed_read(cand, "decode.mla.3.out")
    m = attention_head_rel_l2(make_pair(ref, cand), LEVELS)

    assert str(m.pattern).startswith(
        "decode.mla.3.out: all heads, only batch rows >= 1 wrong (row 0 within 0.00"
    )
    assert m.value is not None
    assert m.value > 0.5
    assert str(m.worst.place).startswith("decode.mla.3.out head")  # type: ignore[union-attr]


def test_pattern_names_the_head_map_of_a_prefix_unpad():
    """VX-01 on output and LSE: head h is read from column h of heads repeated four times."""
    ref = {f"p-{i}": wide(i) for i in range(3)}
    cand = {prompt: noisy(held, 50 + i) for i, (prompt, held) in enumerate(ref.items())}
    rng = np.random.default_rng(9)
    mix = rng.normal(size=(12, 8, 8)).astype(np.float32)
    for held in (ref, cand):
        for tensors in held.values():
            latent, lse = tensors["decode.mla.3.out"], tensors["decode.mla.3.lse"]
            if held is cand:
                latent = np.repeat(latent, 4, axis=1)[:, :12]
                tensors["decode.mla.3.lse"] = np.repeat(lse, 4, axis=1)[:, :12]
            tensors["decode.mla.3.out"] = np.einsum("rhv,hvw->rhw", latent, mix)
    m = attention_head_rel_l2(make_pair(ref, cand), LEVELS)

    assert str(m.pattern) == (
        "decode.mla.3.out: heads permuted (cand head h equals ref head m = h // 4, as a prefix read "
        "of repeated heads gives: 0→0, 1→0, 2→0, 3→0, 4→1, 5→1, 6→1, 7→1, 8→2, 9→2, 10→2, 11→2), "
        "told by their LSE"
    )


def test_pattern_is_that_of_the_first_wrong_layer_of_each_mode():
    ref = {f"p-{i}": wide(i) for i in range(3)}
    cand = {prompt: noisy(held, 50 + i) for i, (prompt, held) in enumerate(ref.items())}
    for tensors in cand.values():
        tensors["prefill.kda.1.out"][:, 8:] += 1.0
        tensors["prefill.kda.2.out"] += 1.0
        tensors["decode.kda.2.out"][:, 3] += 1.0
    m = attention_head_rel_l2(make_pair(ref, cand), LEVELS)

    texts = str(m.pattern).split("; ")
    assert [text.split(" wrong")[0] for text in texts] == [
        "prefill.kda.1.out: heads 8-11",
        "decode.kda.2.out: head 3",
    ]


def test_clean_noise_has_no_pattern():
    ref = {f"p-{i}": wide(i) for i in range(3)}
    cand = {prompt: noisy(held, 50 + i) for i, (prompt, held) in enumerate(ref.items())}
    m = attention_head_rel_l2(make_pair(ref, cand), LEVELS)

    assert m.pattern is None
    assert m.value is not None
    assert 0.002 < m.value < 0.005


def test_batch_rows_come_from_the_manifest_of_cand():
    """Prompts p-0 and p-2 ran in row 0, p-1 and p-3 in row 1, which is wrong."""
    ref = {f"p-{i}": wide(i) for i in range(4)}
    cand = {prompt: noisy(held, 50 + i) for i, (prompt, held) in enumerate(ref.items())}
    for prompt in ("p-1", "p-3"):
        cand[prompt]["decode.kda.1.out"] += 1.0
    manifest = make_manifest(
        "rocm", tensors=cand, batch_rows={"p-0": 0, "p-1": 1, "p-2": 0, "p-3": 1}
    )
    m = attention_head_rel_l2(make_pair(ref, FakeSide("rocm", cand, manifest=manifest)), LEVELS)

    assert "only batch rows >= 1 wrong (row 0 within" in str(m.pattern)


def test_chunk_length_comes_from_the_manifest_of_cand():
    ref = {f"p-{i}": wide(i) for i in range(3)}
    cand = {prompt: noisy(held, 50 + i) for i, (prompt, held) in enumerate(ref.items())}
    for tensors in cand.values():
        tensors["prefill.kda.1.out"][8:] += 1.0
    manifest = make_manifest("rocm", tensors=cand, options={"chunk": "8"})
    m = attention_head_rel_l2(make_pair(ref, FakeSide("rocm", cand, manifest=manifest)), LEVELS)

    assert m.pattern == "prefill.kda.1.out: all heads, from position 8 on, a chunk boundary"
