"""attention.propagated_ratio: err(cand) / err(ref) of hidden states against the oracle's run."""

from typing import Any

import numpy as np
import pytest

from tests.fakes import make_pair
from tests.layers import LEVELS, prefill, router
from tests.measured import assert_measured
from validate.metrics.attention_propagated_ratio import attention_propagated_ratio


def hidden(rows: Any, *more: dict[str, Any]) -> dict[str, Any]:
    made = prefill({"hidden.1": rows})
    for extra in more:
        made |= extra
    return {"p-0": made}


def test_propagated_by_hand():
    """Oracle (3, 4); ref off by 1 of 5, cand off by 2 of 5."""
    pair = make_pair(hidden([[3.0, 5.0]]), hidden([[5.0, 4.0]]), oracle=hidden([[3.0, 4.0]]))
    m = attention_propagated_ratio(pair, LEVELS)

    assert (m.value, m.worst_value, m.n) == (2.0, 2.0, 1)
    assert m.worst is not None
    assert str(m.worst.place).startswith("prefill.hidden.1")
    assert_measured(m.breakdown["prefill.hidden.1 ref"], 0.2, atol=0, rtol=1e-12)
    assert_measured(m.breakdown["prefill.hidden.1 cand"], 0.4, atol=0, rtol=1e-12)
    assert m.interval is not None
    assert m.interval.high is None  # one prompt has no spread


def test_the_worst_layer_is_looked_for_in_every_layer():
    """Oracle 4 everywhere. Layer 1: ref off by 1, cand by 1; layer 2: ref off by 1, cand by 3."""

    def side(first: float, second: float) -> dict[str, Any]:
        return {"p-0": prefill({"hidden.1": [[4.0 + first]], "hidden.2": [[4.0 + second]]})}

    m = attention_propagated_ratio(
        make_pair(side(1.0, 1.0), side(1.0, 3.0), oracle=side(0.0, 0.0)), LEVELS
    )

    assert m.value is not None
    assert_measured(m.value, np.sqrt(5.0), atol=0, rtol=1e-12)  # sqrt((1 + 9) / 2)
    assert m.worst_value == 3.0
    assert m.worst is not None
    assert str(m.worst.place).startswith("prefill.hidden.2")


def test_propagated_without_oracle_is_undefined():
    m = attention_propagated_ratio(make_pair(hidden([[1.0]]), hidden([[1.0]])), LEVELS)

    assert m.why_undefined == "no oracle capture was given; add an oracle target"


@pytest.mark.parametrize("side", ["ref", "cand", "oracle"])
def test_propagated_with_non_finite_values_on_any_side_is_undefined(side):
    sides = {name: hidden([[1.0 + i]]) for i, name in enumerate(("ref", "cand", "oracle"))}
    sides[side]["p-0"]["prefill.hidden.1"][:] = np.inf
    m = attention_propagated_ratio(
        make_pair(sides["ref"], sides["cand"], oracle=sides["oracle"]), LEVELS
    )

    assert m.value is None
    assert f"p-0 prefill.hidden.1: {side} 1 +inf" in str(m.why_undefined)


def test_one_layer_that_is_not_finite_is_told_though_others_are():
    ref, cand, truth = (
        {"p-0": prefill({"hidden.1": [[1.0 + i]], "hidden.2": [[1.0 + i]]})} for i in range(3)
    )
    cand["p-0"]["prefill.hidden.2"][:] = np.inf
    m = attention_propagated_ratio(make_pair(ref, cand, oracle=truth), LEVELS)

    assert m.value is None
    assert "p-0 prefill.hidden.2: cand 1 +inf" in str(m.why_undefined)


def test_propagated_leaves_ties_with_the_oracle_out():
    """Ref and cand agree, the oracle took the other expert for token 1: its row is set apart."""
    routes = [router([[0.5, 0.5]] * 3, [[0], [i], [0]]) for i in (0, 0, 1)]
    rows = ([[2.0], [9.0], [1.5]], [[3.0], [5.0], [2.0]], [[1.0], [1.0], [1.0]])
    ref, cand, truth = (hidden(*given) for given in zip(rows, routes, strict=True))
    m = attention_propagated_ratio(make_pair(ref, cand, oracle=truth, route_gap=0.01), LEVELS)

    # Tokens 0 and 2: ref off by 1 and 0.5, cand by 2 and 1.
    assert m.value is not None
    assert_measured(m.value, 2.0, atol=0, rtol=1e-12)
    assert (m.breakdown["rows"], m.breakdown["rows set apart by router ties"]) == (2.0, 1.0)


def test_propagated_with_more_than_half_apart_is_undefined():
    routes = [router([[0.5, 0.5]] * 3, ids) for ids in ([[0]] * 3, [[0]] * 3, [[1], [1], [0]])]
    ref, cand, truth = (hidden([[1.0]] * 3, route) for route in routes)
    m = attention_propagated_ratio(make_pair(ref, cand, oracle=truth, route_gap=0.01), LEVELS)

    assert "router ties set 2 of 3 rows apart, more than half" in str(m.why_undefined)


def test_propagated_without_hidden_states_is_undefined():
    held = {"p-0": {"logits": np.ones((2, 3), np.float32)}}
    m = attention_propagated_ratio(make_pair(held, held, oracle=held), LEVELS)

    assert "no prompt holds hidden states" in str(m.why_undefined)


def test_propagated_shows_attention_outputs_by_head():
    def sides(outputs: Any, rows: Any) -> dict[str, Any]:
        return {"p-0": prefill({"kda.0.out": outputs, "hidden.0": rows})}

    pair = make_pair(
        sides([[[1.5], [1.0]]], [[1.5]]),
        sides([[[2.0], [1.25]]], [[2.0]]),
        oracle=sides([[[1.0], [2.0]]], [[1.0]]),
    )
    m = attention_propagated_ratio(pair, LEVELS)

    # Head 0: 0.5 and 1 of 1; head 1: 1 and 0.75 of 2.
    assert_measured(m.breakdown["output prefill.kda.0 head 0 ref"], 0.5, atol=0, rtol=1e-12)
    assert_measured(m.breakdown["output prefill.kda.0 head 1 cand"], 0.375, atol=0, rtol=1e-12)
    assert m.value == 2.0


def test_oracle_in_float64_may_differ_in_dtype():
    truth = {"p-0": {**hidden([[3.0, 4.0]])["p-0"]}}
    truth["p-0"]["prefill.hidden.1"] = np.array([[3.0, 4.0]], np.float64)
    pair = make_pair(hidden([[3.0, 5.0]]), hidden([[3.0, 5.0]]), oracle=truth)

    assert attention_propagated_ratio(pair, LEVELS).value == 1.0
