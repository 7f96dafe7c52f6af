"""attention.rel_l2 and attention.hidden_rel_l2: pooled by prompt, averaged over prompts."""

import math
from typing import Any

import numpy as np
import pytest

from tests.fakes import make_pair
from tests.layers import LEVELS, changed, decode, drawn, prefill, router
from tests.measured import assert_measured
from validate.metrics.attention_hidden_rel_l2 import attention_hidden_rel_l2
from validate.metrics.attention_rel_l2 import attention_rel_l2

# By hand. p-0: ref 3, 4 | 0, 5 in prefill (sum of squares 50) and 5, 5 in decode (50); cand is off
# by 1 and by 2: (1 + 4) / 100, so sqrt(0.05). p-1: ref 2 and cand off by 1: sqrt(1 / 4) = 0.5.
REF = {
    "p-0": {
        **prefill({"kda.0.out": [[[3.0, 4.0]], [[0.0, 5.0]]]}),
        **decode({"kda.0.out": [[[5.0, 5.0]]]}, start=1),
    },
    "p-1": prefill({"mla.1.out": [[[2.0]]]}),
}
CAND = {
    "p-0": {
        **prefill({"kda.0.out": [[[3.0, 4.0]], [[1.0, 5.0]]]}),
        **decode({"kda.0.out": [[[5.0, 7.0]]]}, start=1),
    },
    "p-1": prefill({"mla.1.out": [[[3.0]]]}),
}


def test_rows_are_pooled_by_prompt():
    """Of two prompts the third quartile is the greater."""
    m = attention_rel_l2(make_pair(REF, CAND), LEVELS)

    assert_measured(m.value, 0.5, atol=0, rtol=1e-12)
    assert_measured(m.breakdown["mean"], (math.sqrt(0.05) + 0.5) / 2, atol=0, rtol=1e-12)
    assert (m.metric, m.unit, m.n, m.n_of) == ("attention.rel_l2", "rel-L2", 2, "prompts")
    assert m.worst is not None
    assert m.worst.prompt == "p-1"
    assert m.worst_value == 0.5
    assert m.n_needed == 11


def ladder(prompts: int) -> tuple[dict[str, Any], dict[str, Any]]:
    """Prompt i of n is off by (i + 1) / 16 of its norm."""
    sides: tuple[dict[str, Any], dict[str, Any]] = ({}, {})
    for i in range(prompts):
        for side, value in zip(sides, (16.0, 17.0 + i), strict=True):
            side[f"p-{i:02d}"] = prefill({"mla.1.out": [[[value]]]})
    return sides


def test_value_and_limits_are_order_statistics_over_prompts():
    """Rank 9 of 12. B(12, 3/4): P(<= 11) = 0.968, P(>= 5) = 0.9972, P(>= 6) = 0.986 (SciPy)."""
    m = attention_rel_l2(make_pair(*ladder(12)), LEVELS)

    assert m.value == 9 / 16
    assert m.interval is not None
    assert (m.interval.low, m.interval.high) == (5 / 16, 12 / 16)
    assert (m.interval.low_level, m.interval.high_level) == (0.99, 0.95)
    assert m.interval.method == "order statistic"
    assert m.n_needed is None


def test_ten_prompts_have_no_upper_limit():
    """0.75^10 > 0.05 > 0.75^11."""
    ten, eleven = (attention_rel_l2(make_pair(*ladder(n)), LEVELS) for n in (10, 11))

    assert ten.interval is not None
    assert eleven.interval is not None
    assert (ten.interval.high, ten.n_needed) == (None, 11)
    assert (eleven.interval.high, eleven.n_needed) == (11 / 16, None)


def test_breakdown_by_mode_and_layer():
    m = attention_rel_l2(make_pair(REF, CAND), LEVELS)

    assert_measured(m.breakdown["prefill.kda.0"], math.sqrt(1 / 50), atol=0, rtol=1e-12)
    assert_measured(m.breakdown["decode.kda.0"], math.sqrt(4 / 50), atol=0, rtol=1e-12)
    assert_measured(m.breakdown["prefill.mla.1"], 0.5, atol=0, rtol=1e-12)
    assert m.breakdown["rows"] == 4
    assert m.breakdown["rows set apart by router ties"] == 0


def test_sides_are_not_symmetric():
    """Swapped sides divide by cand's norm: p-1 would be 1/3."""
    m = attention_rel_l2(make_pair(CAND, REF), LEVELS)

    assert m.worst_value is not None
    assert_measured(m.worst_value, 1 / 3, atol=0, rtol=1e-12)


def test_hidden_states_are_measured_apart_from_outputs():
    # By hand: diff 3 on a row of norm 5.
    ref = {"p-0": prefill({"hidden.0": [[3.0, 4.0]], "kda.0.out": [[[1.0]]]})}
    cand = {"p-0": prefill({"hidden.0": [[3.0, 1.0]], "kda.0.out": [[[9.0]]]})}
    m = attention_hidden_rel_l2(make_pair(ref, cand), LEVELS)

    assert (m.metric, m.value, m.n) == ("attention.hidden_rel_l2", 0.6, 1)
    assert m.interval is not None
    assert m.interval.high is None


def test_equal_sides_measure_exactly_zero():
    held = {f"p-{i}": drawn(seed=i) for i in range(11)}

    for metric in (attention_rel_l2, attention_hidden_rel_l2):
        m = metric(make_pair(held, held), LEVELS)
        assert m.value == 0.0
        assert m.interval is not None
        assert (m.interval.low, m.interval.high) == (0.0, 0.0)
        assert m.pattern is None


def tied(layer_1_ids: list[list[int]], gap: float) -> dict[str, Any]:
    """Two tokens, experts 0..2, one taken; scores of experts 0 and 1 are ``gap`` apart."""
    return {
        "p-0": {
            **prefill(
                {
                    "kda.0.out": [[[1.0]], [[1.0]]],
                    "kda.1.out": [[[1.0]], [[1.0]]],
                    "kda.2.out": [[[1.0]], [[1.0]]],
                    "hidden.0": [[1.0], [1.0]],
                    "hidden.1": [[1.0], [1.0]],
                }
            ),
            **router([[0.5 + gap, 0.5, 0.0]] * 2, layer_1_ids),
        }
    }


def test_rows_of_a_tie_never_enter_the_bulk():
    """Token 1 ties at layer 1: its rows of layer 2 and of hidden.1 are set apart, no other."""
    ref = tied([[0], [0]], 0.0078125)
    cand = {
        "p-0": changed(
            tied([[0], [1]], 0.0078125)["p-0"],
            prefill__router__1__scores=np.array([[0.6, 0.5, 0.0], [0.5, 0.6, 0.0]], np.float32),
            prefill__kda__2__out=np.array([[[1.0]], [[3.0]]], np.float32),
            prefill__hidden__1=np.array([[1.0], [5.0]], np.float32),
        )
    }
    out = attention_rel_l2(make_pair(ref, cand, route_gap=0.01), LEVELS)
    hidden = attention_hidden_rel_l2(make_pair(ref, cand, route_gap=0.01), LEVELS)

    assert (out.value, hidden.value) == (0.0, 0.0)
    assert out.breakdown["rows"] == 5
    assert out.breakdown["rows set apart by router ties"] == 1
    assert out.breakdown["rel-L2 of rows set apart"] == 2.0  # (3 - 1) / 1
    assert hidden.breakdown["rel-L2 of rows set apart"] == 4.0  # (5 - 1) / 1


def test_a_gross_mismatch_sets_nothing_apart():
    """The same with a gap above the limit: a fault, so its rows stay in the bulk."""
    ref = tied([[0], [0]], 0.25)
    cand = {
        "p-0": changed(
            tied([[0], [1]], 0.25)["p-0"],
            prefill__router__1__scores=np.array([[0.6, 0.5, 0.0], [0.5, 0.6, 0.0]], np.float32),
            prefill__kda__2__out=np.array([[[1.0]], [[3.0]]], np.float32),
        )
    }
    m = attention_rel_l2(make_pair(ref, cand, route_gap=0.01), LEVELS)

    assert m.value is not None
    assert_measured(m.value, math.sqrt(4 / 6), atol=0, rtol=1e-12)  # one of six rows off by 2
    assert m.breakdown["rows set apart by router ties"] == 0


def test_exactly_half_set_apart_is_still_bulk():
    """Both tokens tie at layer 1: of outputs of layers 1 and 2 (4 rows) those of layer 2 are apart."""
    sides = [
        {
            "p-0": {
                **prefill({f"kda.{i}.out": [[[1.0]], [[1.0]]] for i in (1, 2)}),
                **router([[0.5, 0.5]] * 2, chosen),
            }
        }
        for chosen in ([[0], [0]], [[1], [1]])
    ]
    m = attention_rel_l2(make_pair(*sides, route_gap=0.01), LEVELS)

    assert m.value == 0.0
    assert m.breakdown["rows"] == m.breakdown["rows set apart by router ties"] == 2


def test_more_than_half_set_apart_is_no_bulk():
    """Both tokens tie at layer 1; of outputs of layers 1..3 (6 rows) layers 2 and 3 are apart."""
    ids = {"ref": [[0], [0]], "cand": [[1], [1]]}
    sides = {
        side: {
            "p-0": {
                **prefill({f"kda.{i}.out": [[[1.0]], [[1.0]]] for i in (1, 2, 3)}),
                **router([[0.5, 0.5]] * 2, chosen),
            }
        }
        for side, chosen in ids.items()
    }
    m = attention_rel_l2(make_pair(sides["ref"], sides["cand"], route_gap=0.01), LEVELS)

    assert m.value is None
    assert m.why_undefined == (
        "router ties set 4 of 6 rows apart, more than half: what is left is no bulk; "
        "look at attention.routing_mismatch first"
    )


@pytest.mark.parametrize("side", ["ref", "cand", "both"])
def test_non_finite_values_make_it_undefined(side):
    clean, broken = (
        {"p-0": drawn(seed=1)},
        {"p-0": changed(drawn(seed=1), decode__mla__1__out=poisoned)},
    )
    pair = make_pair(
        clean if side == "cand" else broken, clean if side == "ref" else broken, route_gap=0.0
    )
    m = attention_rel_l2(pair, LEVELS)

    assert m.value is None
    assert "p-0 decode.mla.1.out" in str(m.why_undefined)
    assert "1 NaN, 1 -inf, first at (1, 2, 3)" in str(m.why_undefined)
    assert attention_hidden_rel_l2(pair, LEVELS).value is not None


def poisoned(array: np.ndarray) -> np.ndarray:
    array[1, 2, 3] = np.nan
    array[2, 0, 0] = -np.inf
    return array


def test_no_tensors_is_undefined():
    held = {"p-0": {"logits": np.ones((2, 3), np.float32)}}
    m = attention_rel_l2(make_pair(held, held), LEVELS)

    assert m.value is None
    assert m.why_undefined == (
        "no prompt holds attention outputs; capture prompts tagged for them, with every tensor that "
        "docs/capture-format.md lists for the tag"
    )


def test_zero_ref_is_undefined_never_a_division():
    ref = {"p-0": prefill({"kda.0.out": [[[0.0]]]})}
    cand = {"p-0": prefill({"kda.0.out": [[[1.0]]]})}
    m = attention_rel_l2(make_pair(ref, cand), LEVELS)

    assert m.value is None
    assert "ref is all zero and cand is not in 1 prompts, the first is p-0" in str(m.why_undefined)


def test_zero_on_both_sides_is_no_error():
    held = {"p-0": prefill({"kda.0.out": [[[0.0]]]})}

    assert attention_rel_l2(make_pair(held, held), LEVELS).value == 0.0


def test_small_errors_survive_on_large_values():
    """1e-12 on 1.0 in float64: a metric that rounded to float32 would see 0."""
    ref = {"p-0": prefill({"kda.0.out": [[[1.0]]]})}
    cand = {"p-0": dict(ref["p-0"])}
    ref["p-0"]["prefill.kda.0.out"] = np.array([[[1.0]]])
    cand["p-0"]["prefill.kda.0.out"] = np.array([[[1.0 + 1e-12]]])

    m = attention_rel_l2(make_pair(ref, cand), LEVELS)

    assert_measured(m.value, 1e-12, atol=1e-16, rtol=0)  # spacing of 1 + 1e-12 is 2.2e-16


def test_each_tensor_is_read_once_for_all_metrics_of_the_scan():
    held = {"p-0": drawn(seed=1)}
    pair = make_pair(held, held)
    attention_rel_l2(pair, LEVELS)
    attention_hidden_rel_l2(pair, LEVELS)

    reads = [name for name in pair.cand.reads if "positions" not in name]  # type: ignore[attr-defined]
    assert len(reads) == len(set(reads))
    assert "p-0/decode.mla.1.out" in reads
