"""attention.routing_mismatch and .routing_weight: gaps decide what is a fault and what a tie."""

from typing import Any

import numpy as np
import pytest

from tests.fakes import make_pair
from tests.layers import LEVELS, changed, prefill, router
from tests.measured import assert_measured
from validate.metrics._places import Place
from validate.metrics._routing import apart, gaps, routing, selection_gap
from validate.metrics.attention_routing_mismatch import attention_routing_mismatch
from validate.metrics.attention_routing_weight import attention_routing_weight

# One token, four experts, two taken; by ref's scores expert 1 leads expert 2 by 0.25.
SCORES = [[1.0, 0.75, 0.5, 0.0]]
CAND_SCORES = [[1.0, 0.5, 0.75, 0.0]]


def side(scores: Any, ids: Any, weights: Any = None, **more: Any) -> dict[str, Any]:
    rows = len(scores)
    return {
        "p-0": {
            **prefill({"hidden.1": np.ones((rows, 2))}, positions=range(5, 5 + rows)),
            **router(scores, ids, weights),
            **more,
        }
    }


def test_gap_is_refs_score_of_the_expert_left_out_over_the_one_taken():
    scores = np.array(SCORES * 3)
    ref = np.array([[0, 1], [0, 1], [0, 1]])
    cand = np.array([[0, 2], [1, 0], [3, 2]])

    made = gaps(scores, ref, cand)

    # Row 0: 0.75 - 0.5. Row 1: the same set in another order. Row 2: 1.0 - 0.0, the farthest swap.
    assert made[[0, 2]].tolist() == [0.25, 1.0]
    assert np.isnan(made[1])


def test_gap_has_no_sign():
    """A ref that chose against its own scores is no tie either."""
    made = gaps(np.array([[0.0, 1.0]]), np.array([[0]]), np.array([[1]]))

    assert made.tolist() == [1.0]


@pytest.mark.parametrize(
    "ids", [[[0, 0]], [[0, 4]], [[0, -1]]], ids=["twice", "beyond", "negative"]
)
@pytest.mark.parametrize("which", ["ref", "cand", "both"])
def test_a_set_that_is_none_has_an_infinite_gap(ids, which):
    good, bad = np.array([[0, 1]]), np.array(ids)

    made = gaps(np.array(SCORES), good if which == "cand" else bad, good if which == "ref" else bad)

    assert made.tolist() == [np.inf]


def test_nan_scores_have_an_infinite_gap():
    assert gaps(np.array([[np.nan, 1.0]]), np.array([[0]]), np.array([[1]])).tolist() == [np.inf]


def test_selection_gap_of_a_set():
    scores = np.array(SCORES * 3)

    # Top two; expert 1 passed over for 2 (0.75 - 0.5); one expert twice.
    assert selection_gap(scores, np.array([[1, 0], [0, 2], [0, 0]])).tolist() == [
        -0.25,
        0.25,
        np.inf,
    ]


def test_mismatch_above_the_gap_is_a_fault():
    pair = make_pair(side(SCORES, [[0, 1]]), side(CAND_SCORES, [[0, 2]]), route_gap=0.125)
    m = attention_routing_mismatch(pair, LEVELS)

    assert (m.value, m.unit, m.n, m.n_of) == (1.0, "expert sets", 1, "tokens over layers")
    assert m.worst is not None
    assert (m.worst.prompt, m.worst.position, m.worst.value) == ("p-0", 5, 0.25)
    assert m.worst.place == "prefill.router.1.ids"
    assert m.worst.detail == "ref took experts [0, 1], cand [0, 2]"
    assert m.breakdown["largest gap"] == 0.25


@pytest.mark.parametrize("route_gap", [0.25, 0.5])
def test_mismatch_within_the_gap_is_a_tie(route_gap):
    """OK-1: equal to the gap is still a tie; its size is told so that limits can be made."""
    pair = make_pair(side(SCORES, [[0, 1]]), side(CAND_SCORES, [[0, 2]]), route_gap=route_gap)
    m = attention_routing_mismatch(pair, LEVELS)

    assert m.value == 0.0
    assert (m.breakdown["ties"], m.breakdown["largest gap"]) == (1.0, 0.25)


def test_gap_is_measured_by_ref():
    """Swapped sides and unequal scores: by CAND's scores the gap is 0.5, by REF's 0.25."""
    far = side([[1.0, 0.25, 0.75, 0.0]], [[0, 2]])
    near = side(SCORES, [[0, 1]])

    assert attention_routing_mismatch(make_pair(near, far, route_gap=0.3), LEVELS).value == 0.0
    assert attention_routing_mismatch(make_pair(far, near, route_gap=0.3), LEVELS).value == 1.0


def two_layers(first: list[list[int]], second: list[list[int]]) -> dict[str, Any]:
    """Routers at layers 1 and 2 over two experts, one taken, each by its side's own scores."""
    tensors = prefill({"hidden.1": np.ones((len(first), 2))})
    for layer, chosen in ((1, first), (2, second)):
        scores = [[0.9, 0.1] if ids == [0] else [0.1, 0.9] for ids in chosen]
        tensors |= router(scores, chosen, layer=layer)
    return {"p-0": tensors}


def test_mismatches_after_a_tie_of_the_same_token_are_counted_apart():
    """Token 0 ties at layer 1 and is gone at layer 2; token 1 differs at layer 2 alone: a fault."""
    ref = two_layers([[0], [0]], [[0], [0]])
    ref["p-0"]["prefill.router.1.scores"][:] = 0.5  # a dead heat at layer 1
    cand = two_layers([[1], [0]], [[1], [1]])
    m = attention_routing_mismatch(make_pair(ref, cand, route_gap=0.01), LEVELS)

    assert m.value == 1.0
    assert (m.breakdown["ties"], m.breakdown["after a tie"]) == (1.0, 1.0)
    assert m.worst is not None
    assert (m.worst.position, m.worst.place) == (1, "prefill.router.2.ids")
    assert m.n == 4


def test_mismatches_after_a_fault_are_faults():
    ref = two_layers([[0]], [[0]])
    cand = two_layers([[1]], [[1]])

    assert attention_routing_mismatch(make_pair(ref, cand, route_gap=0.01), LEVELS).value == 2.0


def test_cand_that_chooses_against_its_own_scores_is_a_fault_even_after_a_tie():
    """TV-15: one expert replaced by a non-tied one; a token set apart hides no such thing."""
    ref = two_layers([[0]], [[0]])
    ref["p-0"]["prefill.router.1.scores"][:] = 0.5
    cand = two_layers([[1]], [[1]])
    cand["p-0"]["prefill.router.2.scores"] = np.array([[0.9, 0.1]], np.float32)
    m = attention_routing_mismatch(make_pair(ref, cand, route_gap=0.01), LEVELS)

    assert m.value == 1.0
    assert m.breakdown["cand against its own scores"] == 1.0
    assert m.breakdown["after a tie"] == 0.0


def test_ref_that_chooses_against_its_own_scores_is_told():
    """TV-12: the reference may be the broken one."""
    broken = side([[0.0, 0.75, 0.5, 1.0]], [[0, 1]])
    m = attention_routing_mismatch(make_pair(broken, broken, route_gap=0.1), LEVELS)

    assert m.breakdown["ref against its own scores"] == 1.0


def test_every_token_counts():
    ref = side(SCORES * 3, [[0, 1]] * 3)
    cand = side(SCORES + CAND_SCORES * 2, [[1, 0], [0, 2], [0, 2]])

    assert attention_routing_mismatch(make_pair(ref, cand, route_gap=0.1), LEVELS).value == 2.0


def test_equal_sides_count_zero():
    held = side(SCORES * 3, [[0, 1]] * 3)
    m = attention_routing_mismatch(make_pair(held, held, route_gap=0.0), LEVELS)

    assert (m.value, m.n, m.worst) == (0.0, 3, None)


@pytest.mark.parametrize("metric", [attention_routing_mismatch, attention_routing_weight])
@pytest.mark.parametrize("part", ["scores", "weights"])
@pytest.mark.parametrize("broken", ["ref", "cand"])
def test_non_finite_router_tensors_make_it_undefined(metric, part, broken):
    clean = side(SCORES, [[0, 1]])
    bad = {
        "p-0": changed(
            clean["p-0"],
            **{f"prefill__router__1__{part}": lambda a: np.where(a == a.max(), np.nan, a)},
        )
    }
    pair = make_pair(bad, clean) if broken == "ref" else make_pair(clean, bad)
    m = metric(pair, LEVELS)

    assert m.value is None
    assert f"p-0 prefill.router.1.{part}: {broken} " in str(m.why_undefined)


@pytest.mark.parametrize("metric", [attention_routing_mismatch, attention_routing_weight])
def test_without_routers_it_is_undefined(metric):
    held = {"p-0": prefill({"hidden.0": [[1.0]]})}

    assert "no prompt holds router tensors" in str(
        metric(make_pair(held, held), LEVELS).why_undefined
    )


def test_weights_are_matched_by_expert_not_by_rank():
    """By hand: expert 0 0.75 to 0.5, expert 1 0.25 to 0.5 in the other order: 0.25."""
    ref = side(SCORES, [[0, 1]], [[0.75, 0.25]])
    cand = side([[0.75, 1.0, 0.5, 0.0]], [[1, 0]], [[0.5, 0.5]])
    m = attention_routing_weight(make_pair(ref, cand, route_gap=0.5), LEVELS)

    assert (m.value, m.unit, m.n) == (0.25, "weight", 1)
    assert m.worst is not None
    assert m.worst.place == "prefill.router.1.weights expert 0"
    assert m.worst.detail == "ref 0.75, cand 0.5"
    assert m.worst.position == 5


def test_the_worst_weight_of_all_prompts_counts_not_the_last():
    """By hand: 0.75 to 0.25 in the first prompt is 0.5, 0.75 to 0.5 in the second 0.25."""
    ref, near = side(SCORES, [[0, 1]], [[0.75, 0.25]]), side(SCORES, [[0, 1]], [[0.5, 0.25]])
    far = side(SCORES, [[0, 1]], [[0.25, 0.25]])
    pair = make_pair(
        {"p-0": ref["p-0"], "p-1": ref["p-0"]}, {"p-0": far["p-0"], "p-1": near["p-0"]}
    )
    m = attention_routing_weight(pair, LEVELS)

    assert (m.value, m.n) == (0.5, 2)
    assert m.worst is not None
    assert m.worst.prompt == "p-0"


def test_reordered_equal_weights_measure_zero():
    ref = side(SCORES, [[0, 1]], [[0.75, 0.25]])
    cand = side([[0.75, 1.0, 0.5, 0.0]], [[1, 0]], [[0.25, 0.75]])

    assert attention_routing_weight(make_pair(ref, cand, route_gap=0.5), LEVELS).value == 0.0


def test_routed_scaling_applied_twice_shows():
    """MO-09: weights times a factor, ids right."""
    ref = side(SCORES, [[0, 1]], [[0.75, 0.25]])
    cand = side(SCORES, [[0, 1]], [[0.75 * 2.5, 0.25 * 2.5]])
    m = attention_routing_weight(make_pair(ref, cand, route_gap=0.1), LEVELS)

    assert m.value is not None
    assert_measured(m.value, 0.75 * 1.5, atol=0, rtol=1e-6)


def test_weights_of_other_sets_are_not_compared():
    ref = side(SCORES * 2, [[0, 1]] * 2, [[0.75, 0.25], [0.5, 0.5]])
    cand = side(SCORES + CAND_SCORES, [[0, 1], [0, 2]], [[0.75, 0.25], [0.0, 1.0]])
    m = attention_routing_weight(make_pair(ref, cand, route_gap=0.1), LEVELS)

    assert (m.value, m.n) == (0.0, 1)


def test_no_equal_set_is_no_data():
    pair = make_pair(side(SCORES, [[0, 1]]), side(CAND_SCORES, [[0, 2]]), route_gap=0.1)
    m = attention_routing_weight(pair, LEVELS)

    assert m.value is None
    assert m.why_undefined == ("none of 1 tokens over layers has the same experts on both sides")


def test_weights_after_a_tie_are_told_apart():
    ref = two_layers([[0]], [[0]])
    ref["p-0"]["prefill.router.1.scores"][:] = 0.5
    cand = two_layers([[1]], [[0]])
    cand["p-0"]["prefill.router.2.weights"] = np.array([[0.5]], np.float32)
    cand["p-0"] |= router([[1.0, 0.0]], [[0]], layer=0)
    ref["p-0"] |= router([[1.0, 0.0]], [[0]], layer=0)
    m = attention_routing_weight(make_pair(ref, cand, route_gap=0.01), LEVELS)

    assert (m.value, m.n) == (0.0, 1)
    assert m.breakdown["at tokens set apart by router ties"] == 0.5


def test_decode_rows_follow_prefill_routers_unless_decode_routers_were_captured():
    """Positions 1 and 2 are decoded; position 2 ties in prefill."""

    def made(ids: list[list[int]], own: list[list[int]] | None) -> dict[str, Any]:
        scores = [[0.5, 0.5]] * 3
        tensors = {
            **prefill({"hidden.1": np.ones((3, 2))}),
            **router(scores, ids),
            "decode.positions": np.array([1, 2], np.int32),
        }
        if own is not None:
            tensors |= {
                name.replace("prefill", "decode"): array
                for name, array in router([[0.5, 0.5]] * 2, own).items()
            }
        return {"p-0": tensors}

    place = Place(2, "decode", "kda", "decode.kda.2.out")
    positions = np.array([1, 2])
    without = routing(make_pair(made([[0]] * 3, None), made([[0], [0], [1]], None), route_gap=0.0))
    within = routing(
        make_pair(made([[0]] * 3, [[0], [0]]), made([[0], [0], [1]], [[1], [0]]), route_gap=0.0)
    )

    assert apart(without, "p-0", place, positions).tolist() == [False, True]
    assert apart(within, "p-0", place, positions).tolist() == [True, False]
