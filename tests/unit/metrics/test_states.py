"""State metrics: the worst head, tap or cache, across the sides and inside cand."""

import math
from typing import Any

import numpy as np
import pytest

from tests.fakes import FakeSide, make_manifest, make_pair
from tests.layers import LEVELS
from tests.measured import assert_measured
from validate.metrics.state_chunked_oneshot import state_chunked_oneshot
from validate.metrics.state_conv_rel_l2 import state_conv_rel_l2
from validate.metrics.state_kda_rel_l2 import state_kda_rel_l2
from validate.metrics.state_kv_rel_l2 import state_kv_rel_l2
from validate.metrics.state_nonfinite import state_nonfinite
from validate.metrics.state_prefill_decode import state_prefill_decode

ACROSS = (state_kda_rel_l2, state_conv_rel_l2, state_kv_rel_l2)
INSIDE = (state_prefill_decode, state_chunked_oneshot)
HOWS = ("oneshot", "chunked", "decode")


def one(name: str, array: Any) -> dict[str, Any]:
    return {"p-0": {f"state.{name}": np.asarray(array, np.float32)}}


def drawn(seed: int, *, prompts: int = 2, heads: int = 4, dim: int = 8) -> dict[str, Any]:
    """States of three ways, equal up to float32, for a KDA layer 0 and an MLA layer 1."""
    rng = np.random.default_rng(seed)
    made: dict[str, Any] = {}
    for i in range(prompts):
        kda, conv, kv = (
            rng.normal(size=shape).astype(np.float32)
            for shape in ((heads, dim, dim), (3, heads * dim, 3), (6, 10))
        )
        made[f"p-{i}"] = {
            f"state.{how}.{name}": array.copy()
            for how in HOWS
            for name, array in (("kda.0", kda), ("conv.0", conv), ("kv.1", kv))
        }
    return made


def test_kda_worst_head_by_hand():
    """Head 0: ref (3, 4), off by 1: 1 / 5. Head 1: ref (0, 2), off by 1: 1 / 2."""
    ref = one("oneshot.kda.4", [[[3.0, 4.0]], [[0.0, 2.0]]])
    cand = one("oneshot.kda.4", [[[3.0, 5.0]], [[1.0, 2.0]]])
    m = state_kda_rel_l2(make_pair(ref, cand), LEVELS)

    assert (m.value, m.unit, m.n) == (0.5, "rel-L2", 2)
    assert m.n_of == "heads over prompts, layers and ways"
    assert m.worst is not None
    assert (m.worst.prompt, m.worst.place) == ("p-0", "state.oneshot.kda.4 head 1")
    assert m.breakdown == {"oneshot": 0.5}


def test_kda_errors_divide_by_ref():
    ref = one("decode.kda.4", [[[1.0]]])
    cand = one("decode.kda.4", [[[2.0]]])

    assert state_kda_rel_l2(make_pair(ref, cand), LEVELS).value == 1.0
    assert state_kda_rel_l2(make_pair(cand, ref), LEVELS).value == 0.5


def test_conv_worst_tap_by_hand():
    """q, k, v with two channels and two taps; tap 1 of k: ref (1, 2, 2 over channels..), off by 3."""
    ref = np.ones((3, 2, 2))
    ref[1, :, 1] = (3.0, 4.0)
    cand = ref.copy()
    cand[1, :, 1] = (3.0, 7.0)
    cand[2, :, 0] = (1.0, 1.5)
    m = state_conv_rel_l2(
        make_pair(one("chunked.conv.2", ref), one("chunked.conv.2", cand)), LEVELS
    )

    # 3 / 5 at k tap 1; 0.5 / sqrt(2) = 0.354 at v tap 0.
    assert m.value is not None
    assert_measured(m.value, 0.6, atol=0, rtol=1e-12)
    assert m.worst is not None
    assert m.worst.place == "state.chunked.conv.2 k tap 1"
    assert m.n == 6


def test_a_tap_before_the_first_token_must_stay_zero():
    """One token: taps 0 and 1 are zero in ref; garbage there is held to the other taps' RMS norm."""
    ref = np.zeros((3, 1, 3))
    ref[:, :, 2] = 2.0
    cand = ref.copy()
    cand[0, 0, 0] = 1.0
    m = state_conv_rel_l2(
        make_pair(one("oneshot.conv.0", ref), one("oneshot.conv.0", cand)), LEVELS
    )

    # Squared norms of the nine taps: three of 4, six of 0: mean 4 / 3; error 1 / sqrt(4 / 3).
    assert m.value is not None
    assert_measured(m.value, math.sqrt(3 / 4), atol=0, rtol=1e-12)
    assert m.worst is not None
    assert m.worst.place == "state.oneshot.conv.0 q tap 0"


def test_kv_is_pooled_over_tokens_and_tells_its_worst_row():
    """Rows (3, 4) and (0, 5), the second off by 5: sqrt(25 / 50), its row 5 / 5."""
    ref = one("decode.kv.3", [[3.0, 4.0], [0.0, 5.0]])
    cand = one("decode.kv.3", [[3.0, 4.0], [0.0, 0.0]])
    m = state_kv_rel_l2(make_pair(ref, cand), LEVELS)

    assert m.value is not None
    assert_measured(m.value, math.sqrt(0.5), atol=0, rtol=1e-12)
    assert m.breakdown["decode worst token row"] == 1.0
    assert m.worst is not None
    assert (m.worst.place, m.n) == ("state.decode.kv.3", 1)


@pytest.mark.parametrize("how", HOWS)
def test_every_way_is_looked_at(how):
    ref, cand = drawn(1), drawn(1)
    for kind in ("kda.0", "conv.0", "kv.1"):
        cand["p-1"][f"state.{how}.{kind}"] += 1.0
    pair = make_pair(ref, cand)

    for metric in ACROSS:
        m = metric(pair, LEVELS)
        assert m.worst is not None
        assert m.worst.prompt == "p-1"
        assert str(m.worst.place).startswith(f"state.{how}.")
        assert m.breakdown[how] == m.value


@pytest.mark.parametrize("metric", [*ACROSS, *INSIDE])
def test_equal_sides_measure_exactly_zero(metric):
    held = drawn(1)
    m = metric(make_pair(held, held), LEVELS)

    assert m.value == 0.0
    assert m.pattern is None
    assert m.interval is None


@pytest.mark.parametrize(
    ("metric", "how"), [(state_prefill_decode, "decode"), (state_chunked_oneshot, "chunked")]
)
def test_inside_cand_by_hand(metric, how):
    """Cand: one-shot 4, other way 5: 1 / 4. Ref: 2 and 3: 1 / 2, shown and not the value."""
    ref = one("oneshot.kda.0", [[[2.0]]])
    cand = one("oneshot.kda.0", [[[4.0]]])
    ref["p-0"] |= one(f"{how}.kda.0", [[[3.0]]])["p-0"]
    cand["p-0"] |= one(f"{how}.kda.0", [[[5.0]]])["p-0"]
    m = metric(make_pair(ref, cand), LEVELS)

    assert m.value == 0.25
    assert m.breakdown == {"cand kda": 0.25, "ref kda": 0.5}
    assert m.worst is not None
    assert m.worst.place == f"state.{how}.kda.0 head 0"
    assert (m.n, m.n_of) == (1, "heads, taps and caches over prompts and layers")


@pytest.mark.parametrize("kind", ["kda.0", "conv.0", "kv.1"])
def test_inside_cand_looks_at_every_kind(kind):
    ref, cand = drawn(1), drawn(1)
    cand["p-1"][f"state.decode.{kind}"] *= np.float32(1.5)
    pair = make_pair(ref, cand)

    m = state_prefill_decode(pair, LEVELS)
    assert m.value is not None
    assert_measured(m.value, 0.5, atol=0, rtol=1e-6)
    assert m.breakdown[f"cand {kind.partition('.')[0]}"] == m.value
    assert state_chunked_oneshot(pair, LEVELS).value == 0.0


def test_inside_needs_no_agreement_with_ref():
    """Ref and cand differ everywhere, but cand's ways agree."""
    pair = make_pair(drawn(1), drawn(2))

    assert state_prefill_decode(pair, LEVELS).value == 0.0


@pytest.mark.parametrize("metric", [*ACROSS, *INSIDE, state_nonfinite])
def test_no_states_are_undefined(metric):
    held = {"p-0": {"logits": np.ones((2, 3), np.float32)}}
    m = metric(make_pair(held, held), LEVELS)

    assert m.value is None
    assert "no prompt holds" in str(m.why_undefined)


@pytest.mark.parametrize("metric", INSIDE)
def test_inside_without_the_other_way_is_undefined(metric):
    held = one("oneshot.kda.0", [[[2.0]]])

    assert "no prompt holds states made both oneshot and" in str(
        metric(make_pair(held, held), LEVELS).why_undefined
    )


@pytest.mark.parametrize("metric", [*ACROSS, *INSIDE])
@pytest.mark.parametrize("side", ["ref", "cand"])
def test_non_finite_states_are_undefined(metric, side):
    clean, broken = drawn(1), drawn(1)
    for kind in ("kda.0", "conv.0", "kv.1"):
        broken["p-0"][f"state.decode.{kind}"].flat[0] = np.inf
    pair = make_pair(broken, clean) if side == "ref" else make_pair(clean, broken)
    m = metric(pair, LEVELS)

    assert m.value is None
    assert f": {side} 1 +inf, first at (0, 0" in str(m.why_undefined)


@pytest.mark.parametrize("metric", ACROSS)
def test_other_kinds_stay_defined(metric):
    broken = drawn(1)
    for name, array in broken["p-0"].items():
        if metric is state_kv_rel_l2 and ".kda." in name:
            array.flat[0] = np.nan
        if metric is not state_kv_rel_l2 and ".kv." in name:
            array.flat[0] = np.nan

    assert metric(make_pair(drawn(1), broken), LEVELS).value == 0.0


def test_nonfinite_counts_both_sides_and_names_the_place():
    ref, cand = drawn(1), drawn(1)
    ref["p-0"]["state.oneshot.kv.1"][2, 3] = np.nan
    cand["p-0"]["state.oneshot.kv.1"][2, 3] = np.nan
    cand["p-1"]["state.decode.kda.0"][1] = -np.inf
    m = state_nonfinite(make_pair(ref, cand), LEVELS)

    assert (m.value, m.unit) == (2 + 64, "values")
    # Two prompts, three ways, three kinds.
    assert (m.n, m.n_of) == (18, "tensors")
    assert m.worst is not None
    assert (m.worst.prompt, m.worst.place) == ("p-1", "state.decode.kda.0 index (1, 0, 0)")
    assert m.worst.detail == "cand 64 -inf"
    assert m.breakdown == {"ref": 1.0, "cand": 65.0, "places unlike on the two sides": 65.0}


def test_all_zero_states():
    zero, nonzero = one("oneshot.kda.0", [[[0.0]]]), one("oneshot.kda.0", [[[1.0]]])

    assert state_kda_rel_l2(make_pair(zero, zero), LEVELS).value == 0.0
    m = state_kda_rel_l2(make_pair(zero, nonzero), LEVELS)
    assert m.value is None
    assert "one side is all zero and the other is not in 1 states" in str(m.why_undefined)


def test_transposed_states_are_recognised():
    """Serving kernels store the state value-first; a wrong flag reads it transposed (LA-01)."""
    ref, cand = drawn(1), drawn(1)
    for held in cand.values():
        held["state.chunked.kda.0"] = held["state.chunked.kda.0"].transpose(0, 2, 1).copy()
    m = state_kda_rel_l2(make_pair(ref, cand), LEVELS)

    assert m.pattern == (
        "state.chunked.kda.0: all heads transposed (cand[key, value] equals ref[value, key])"
    )


def test_wrong_heads_and_permuted_heads_are_recognised():
    ref, wrong, moved = drawn(1), drawn(1), drawn(1)
    for held in wrong.values():
        held["state.decode.kda.0"][2:] += 1.0
    for held in moved.values():
        held["state.oneshot.kda.0"] = held["state.oneshot.kda.0"][[1, 0, 2, 3]]

    assert state_kda_rel_l2(make_pair(ref, wrong), LEVELS).pattern == (
        "state.decode.kda.0: heads 2,3 wrong, others exact"
    )
    assert state_kda_rel_l2(make_pair(ref, moved), LEVELS).pattern == (
        "state.oneshot.kda.0: heads permuted (cand head h equals ref head m: 0→1, 1→0, 2→2, 3→3)"
    )


def test_wrong_batch_rows_are_recognised():
    ref, cand = drawn(1, prompts=4), drawn(1, prompts=4)
    for prompt in ("p-1", "p-2", "p-3"):
        cand[prompt]["state.decode.kda.0"] += 1.0
    manifest = make_manifest(
        "rocm", tensors=cand, batch_rows={f"p-{i}": i for i in range(4)}, dtype="bfloat16"
    )
    pair = make_pair(ref, FakeSide("rocm", cand, manifest=manifest))

    assert state_kda_rel_l2(pair, LEVELS).pattern == (
        "state.decode.kda.0: all heads, only batch rows >= 1 wrong (row 0 exact)"
    )


def test_each_state_is_read_once_for_all_state_metrics():
    held = drawn(1)
    pair = make_pair(held, held)
    for metric in (*ACROSS, *INSIDE, state_nonfinite):
        metric(pair, LEVELS)

    reads = pair.cand.reads  # type: ignore[attr-defined]
    assert len(reads) == len(set(reads)) == 18
