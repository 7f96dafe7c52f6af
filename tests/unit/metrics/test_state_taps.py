"""Convolution taps whose token a router's tie may have moved are set apart, and still bounded."""

import math
from collections.abc import Mapping, Sequence
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
from validate.metrics.state_prefill_decode import state_prefill_decode
from validate.schema import Measurement, Pair, PathProof

TOKENS, TAPS, GAP = 5, 3, 0.0625
CLEAR, NEAR, TURNED = (0.75, 0.25), (0.5, 0.4375), (0.4375, 0.5)
"""Scores of two experts, one of which is taken: no tie, one within the gap, the same the other way."""
HOWS = ("oneshot", "chunked", "decode")


def router(scores: Sequence[Any], *, mode: str, layer: int = 1) -> dict[str, Any]:
    """A router that takes the better of two experts."""
    held = np.asarray(scores, np.float32)
    at = f"{mode}.router.{layer}"
    return {
        f"{at}.scores": held,
        f"{at}.ids": held.argmax(axis=1)[:, None].astype(np.int32),
        f"{at}.weights": np.ones((len(held), 1), np.float32),
    }


def side(
    *,
    prefill: Mapping[int, Any] | None = None,
    decode: Mapping[int, Any] | None = None,
    off: Mapping[str, Mapping[int, float]] | None = None,
    layer: int = 2,
    routed: int = 1,
) -> dict[str, Any]:
    """Five tokens, the last three decoded; ``off`` moves taps of a way's state from 1."""
    tensors: dict[str, Any] = {}
    for mode, given, start in (("prefill", prefill, 0), ("decode", decode, 2)):
        scores = [(given or {}).get(at, CLEAR) for at in range(start, TOKENS)]
        tensors |= router(scores, mode=mode, layer=routed)
        tensors[f"{mode}.positions"] = np.arange(start, TOKENS, dtype=np.int32)
    for how in HOWS:
        state = np.ones((3, 4, TAPS), np.float32)
        for tap, by in (off or {}).get(how, {}).items():
            state[..., tap] += by
        tensors[f"state.{how}.conv.{layer}"] = state
    return {"p-0": tensors}


def both(ref: Mapping[str, Any], cand: Mapping[str, Any], *, chunked: str = "") -> Pair:
    """A pair; ``chunked`` names a side whose prefill took several passes."""
    made = []
    for label, tensors in (("cuda", ref), ("rocm", cand)):
        branch = "inside.prefill.chunked" if label == chunked else "inside.prefill.oneshot"
        proof = PathProof(path="reference", branches={branch: 1})
        manifest = make_manifest(label, tensors=tensors, path_proof=proof)
        made.append(FakeSide(label, tensors, manifest=manifest))
    return make_pair(made[0], made[1], route_gap=GAP)


def counted(found: Measurement) -> tuple[float | None, float | None, int, float]:
    apart = found.breakdown.get("units set apart", 0.0)
    return found.value, found.worst_value, found.n, apart


def test_a_tap_after_a_tie_that_was_seen_in_decode_is_set_apart():
    """Token 3 is tap 1 of the last three. Taps are off by 0.5 and 0.25 of 1; q, k and v alike."""
    ref = side(decode={3: NEAR})
    cand = side(decode={3: TURNED}, off={"decode": {1: 0.5, 2: 0.25}})
    m = state_conv_rel_l2(both(ref, cand), LEVELS)

    # 27 taps of three ways; one tap of q, k and v is apart.
    assert counted(m) == (0.25, 0.5, 24, 3.0)
    assert m.breakdown["worst set apart"] == 0.5
    assert m.breakdown["decode"] == 0.25
    assert m.worst is not None
    assert m.worst.place == "state.decode.conv.2 q tap 2"
    assert m.worst.detail == "set apart by ties: p-0 state.decode.conv.2 q tap 1 0.5"


def test_one_shot_follows_the_prefill_routers():
    ref = side(prefill={2: NEAR})
    cand = side(prefill={2: TURNED}, off={"oneshot": {0: 0.5}})
    m = state_conv_rel_l2(both(ref, cand), LEVELS)

    # Set apart in one-shot, where it was seen, and in chunked, where it cannot be ruled out.
    assert counted(m) == (0.0, 0.5, 21, 6.0)


@pytest.mark.parametrize(("routed", "apart"), [(1, 3.0), (2, 0.0), (3, 0.0)])
def test_a_tie_moves_later_layers_alone(routed, apart):
    """The router of a layer stands behind its convolution."""
    ref = side(decode={3: NEAR}, routed=routed)
    cand = side(decode={3: TURNED}, off={"decode": {1: 0.5}}, routed=routed)

    m = state_conv_rel_l2(both(ref, cand), LEVELS)
    assert counted(m) == (0.0 if apart else 0.5, 0.5, 27 - int(apart), apart)


def test_where_routers_were_captured_a_near_tie_that_held_sets_nothing_apart():
    """Ref's scores are near at token 3 and both sides took the same: decode and one-shot count."""
    near: dict[str, Any] = {"prefill": {3: NEAR}, "decode": {3: NEAR}}
    for how in ("oneshot", "decode"):
        m = state_conv_rel_l2(both(side(**near), side(**near, off={how: {1: 0.5}})), LEVELS)
        assert counted(m) == (0.5, 0.5, 24, 3.0)
    m = state_conv_rel_l2(both(side(**near), side(**near, off={"chunked": {1: 0.5}})), LEVELS)

    assert counted(m) == (0.0, 0.5, 24, 3.0)


@pytest.mark.parametrize("chunked", ["cuda", "rocm"])
def test_prefill_routers_of_several_passes_say_nothing_of_a_one_shot_state(chunked):
    near: dict[str, Any] = {"prefill": {3: NEAR}, "decode": {3: NEAR}}
    pair = both(side(**near), side(**near, off={"oneshot": {1: 0.5}}), chunked=chunked)

    assert counted(state_conv_rel_l2(pair, LEVELS)) == (0.0, 0.5, 21, 6.0)


@pytest.mark.parametrize(
    ("scores", "value"), [((0.5, 0.4375), 0.0), ((0.5, 0.4374), 0.5), ((0.4375, 0.5), 0.0)]
)
def test_near_is_what_route_gap_says(scores, value):
    """A lead equal to the gap is near, the next is none; which expert leads is no matter."""
    near: dict[str, Any] = {"prefill": {3: scores}}
    m = state_conv_rel_l2(both(side(**near), side(**near, off={"chunked": {1: 0.5}})), LEVELS)

    assert m.value == value


def test_ref_alone_says_what_is_near():
    """A fault that draws cand's scores together must not set its own taps apart."""
    cand = side(prefill={3: NEAR}, off={"chunked": {1: 0.5}})

    assert state_conv_rel_l2(both(side(), cand), LEVELS).value == 0.5


def test_a_set_that_differs_by_more_than_the_gap_sets_nothing_apart():
    cand = side(decode={3: (0.25, 0.75)}, off={"decode": {1: 0.5}})

    assert counted(state_conv_rel_l2(both(side(), cand), LEVELS)) == (0.5, 0.5, 27, 0.0)


def test_the_first_of_several_near_ties_counts():
    near = side(prefill={3: NEAR}, layer=6)
    for layer in (4, 8):
        near["p-0"] |= router([CLEAR, CLEAR, CLEAR, NEAR, CLEAR], mode="prefill", layer=layer)
    off = {name: array.copy() for name, array in near["p-0"].items()}
    off["state.chunked.conv.6"][..., 1] += 0.5

    assert state_conv_rel_l2(both(near, {"p-0": off}), LEVELS).value == 0.0


def test_routers_of_some_positions_speak_for_those():
    """Prefill routers of tokens 3 and 4 alone: the row of token 3 is the first."""
    ref, cand = side(), side(off={"chunked": {1: 0.5}})
    for held in (ref, cand):
        held["p-0"] |= router([NEAR, CLEAR], mode="prefill")
        held["p-0"]["prefill.positions"] = np.array([3, 4], np.int32)

    assert counted(state_conv_rel_l2(both(ref, cand), LEVELS)) == (0.0, 0.5, 24, 3.0)


def test_taps_before_the_first_token_are_nobodys():
    """Two tokens: tap 0 is before the first; it must be zero whatever routers did."""
    ref, cand = side(), side()
    for held in (ref, cand):
        for how in HOWS:
            held["p-0"][f"state.{how}.conv.2"][..., 0] = 0.0
        for mode in ("prefill", "decode"):
            held["p-0"] |= router([NEAR, NEAR], mode=mode)
            held["p-0"][f"{mode}.positions"] = np.arange(2, dtype=np.int32)
    cand["p-0"]["state.chunked.conv.2"][..., 0] = 1.0
    m = state_conv_rel_l2(both(ref, cand), LEVELS)

    # Held to the RMS norm of the nine taps, of which six are 2 and three 0: sqrt(24 / 9).
    assert m.value is not None
    assert_measured(m.value, 2 / math.sqrt(24 / 9), atol=0, rtol=1e-12)
    assert m.breakdown["units set apart"] == 6.0


def test_all_set_apart_is_undefined():
    near = dict.fromkeys(range(TOKENS), NEAR)
    turned = dict.fromkeys(range(TOKENS), TURNED)
    pair = both(side(prefill=near, decode=near), side(prefill=turned, decode=turned))
    m = state_conv_rel_l2(pair, LEVELS)

    assert m.value is None
    assert m.why_undefined == "router ties set all 27 units apart"


def test_without_routers_nothing_is_set_apart():
    ref, cand = side(), side(off={"decode": {1: 0.5}})
    for held in (ref, cand):
        for name in [name for name in held["p-0"] if ".router." in name]:
            del held["p-0"][name]

    assert counted(state_conv_rel_l2(both(ref, cand), LEVELS)) == (0.5, 0.5, 27, 0.0)


@pytest.mark.parametrize("metric", [state_prefill_decode, state_chunked_oneshot])
def test_inside_cand_near_ties_set_taps_apart(metric):
    """Whether ref and cand differ says nothing of two ways inside cand: ref's scores do."""
    how = "decode" if metric is state_prefill_decode else "chunked"
    ref = side(prefill={3: NEAR})
    cand = side(prefill={3: NEAR}, off={how: {1: 0.5, 2: 0.25}})

    assert counted(metric(both(ref, cand), LEVELS)) == (0.25, 0.5, 6, 3.0)


def test_inside_cand_a_tie_with_ref_alone_sets_nothing_apart():
    ref = side(decode={3: NEAR})
    cand = side(decode={3: TURNED}, off={"decode": {1: 0.5}})

    assert counted(state_prefill_decode(both(ref, cand), LEVELS)) == (0.5, 0.5, 9, 0.0)


@pytest.mark.parametrize(
    ("metric", "kind", "shape"),
    [(state_kda_rel_l2, "kda", (2, 3, 3)), (state_kv_rel_l2, "kv", (TOKENS, 3))],
)
def test_heads_and_caches_hold_many_tokens_and_always_count(metric, kind, shape):
    ref, cand = side(decode={3: NEAR}), side(decode={3: TURNED})
    ref["p-0"][f"state.decode.{kind}.2"] = np.ones(shape, np.float32)
    cand["p-0"][f"state.decode.{kind}.2"] = np.full(shape, 1.5, np.float32)
    m = metric(both(ref, cand), LEVELS)

    assert (m.value, m.worst_value) == (0.5, 0.5)
    assert "units set apart" not in m.breakdown


def test_the_worst_set_apart_is_the_worst_of_all_ways():
    ref = side(prefill={3: NEAR}, decode={3: NEAR})
    cand = side(
        prefill={3: TURNED}, decode={3: TURNED}, off={"oneshot": {1: 0.75}, "decode": {1: 0.5}}
    )
    m = state_conv_rel_l2(both(ref, cand), LEVELS)

    assert counted(m) == (0.0, 0.75, 18, 9.0)
    assert m.worst is not None
    assert m.worst.detail == "set apart by ties: p-0 state.oneshot.conv.2 q tap 1 0.75"
