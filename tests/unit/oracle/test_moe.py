"""Router and latent mixture of experts: by hand, ties, against a dense twin."""

from typing import Any

import numpy as np
import pytest

from tests.measured import assert_measured
from tests.unit.oracle.second import moe_dense
from tests.unit.oracle.tiny import TINY, random_weights
from validate.oracle import moe, moe_weights, route

LN3 = np.log(3.0)


def test_router_by_hand():
    """Logits ln 3, 0, -ln 3: sigmoids 3/4, 1/2, 1/4; bias (-0.6, 0, 0.2): scores .15, .5, .45.

    Chosen: 1 then 2, by score; weights by bare sigmoid: 2/3 and 1/3.
    """
    r = route(
        np.ones((1, 1)),
        router=np.array([[LN3], [0.0], [-LN3]]),
        correction_bias=np.array([-0.6, 0.0, 0.2]),
        experts_per_token=2,
    )

    assert_measured(r.scores, [[0.15, 0.5, 0.45]], atol=0.0, rtol=1e-14)
    assert r.ids.tolist() == [[1, 2]]
    assert r.ids.dtype == np.int32
    assert_measured(r.weights, [[2 / 3, 1 / 3]], atol=0.0, rtol=1e-14)


def test_the_lowest_index_wins_a_tie():
    """Scores 0.5 for all but expert 3 (3/4): 3 first, then 0 and 1."""
    r = route(
        np.ones((1, 1)),
        router=np.array([[0.0], [0.0], [0.0], [LN3], [0.0]]),
        correction_bias=np.zeros(5),
        experts_per_token=3,
    )

    assert r.ids.tolist() == [[3, 0, 1]]


def test_underflowed_sigmoids_give_zero_weights_not_nan():
    """All sigmoids 0 (logits -800): 0 / (0 + 1e-20) = 0."""
    r = route(
        np.ones((1, 1)),
        router=np.full((2, 1), -800.0),
        correction_bias=np.zeros(2),
        experts_per_token=2,
    )

    assert r.weights.tolist() == [[0.0, 0.0]]


def _dense(x, weights, k):
    w = moe_weights(weights, 1)
    return moe_dense(
        x,
        router=w.router,
        correction_bias=w.correction_bias,
        down=w.down,
        gate=w.expert_gate,
        up=w.expert_up,
        out=w.expert_down,
        norm=w.norm,
        expand=w.up,
        shared=(w.shared_gate, w.shared_up, w.shared_down),
        k=k,
        eps=1e-3,
        beta=4.0,
        linear_beta=25.0,
    )


@pytest.mark.parametrize("k", [1, 2, 6])
@pytest.mark.parametrize("rows", [1, 13])
def test_moe_equals_its_dense_twin(rows, k):
    weights = random_weights(TINY, seed=k)
    x = np.random.default_rng(rows).standard_normal((rows, TINY.hidden_size))

    result = moe(
        x,
        moe_weights(weights, 1),
        experts_per_token=k,
        eps=1e-3,
        beta=4.0,
        linear_beta=25.0,
    )
    y, share = _dense(x, weights, k)

    assert_measured(result.y, y, atol=1e-14, rtol=1e-11)
    scattered = np.zeros_like(share)
    np.put_along_axis(scattered, result.routing.ids.astype(np.int64), result.routing.weights, 1)
    assert_measured(scattered, share, atol=1e-15, rtol=1e-12)


def test_moe_twin_agrees_on_ties():
    """A zero router makes every score equal: both must take experts 0 and 1."""
    weights = random_weights(TINY)
    weights["layers.1.moe.router.weight"][:] = 0.0
    weights["layers.1.moe.correction_bias"][:] = 0.0
    x = np.random.default_rng(0).standard_normal((3, TINY.hidden_size))

    result = moe(
        x, moe_weights(weights, 1), experts_per_token=2, eps=1e-3, beta=4.0, linear_beta=25.0
    )
    y, share = _dense(x, weights, 2)

    assert result.routing.ids.tolist() == [[0, 1]] * 3
    assert share.tolist() == [[0.5, 0.5, 0.0, 0.0, 0.0, 0.0]] * 3
    assert_measured(result.y, y, atol=1e-14, rtol=1e-11)


def test_rows_do_not_mix():
    weights = moe_weights(random_weights(TINY), 1)
    x = np.random.default_rng(0).standard_normal((4, TINY.hidden_size))
    options: dict[str, Any] = {
        "experts_per_token": 2,
        "eps": 1e-3,
        "beta": 4.0,
        "linear_beta": 25.0,
    }

    together = moe(x, weights, **options)
    alone = np.concatenate([moe(row[None], weights, **options).y for row in x])

    assert_measured(together.y, alone, atol=1e-15, rtol=1e-12)


def test_the_divisor_of_the_weights_has_its_term_added():
    """Two sigmoids of 1e-20 each: 1 / (1 + 1 + 1) of the weight, where 1e-20 is added."""
    found = route(
        np.ones((1, 1)),
        router=np.full((2, 1), np.log(1e-20)),
        correction_bias=np.zeros(2),
        experts_per_token=2,
    )

    assert_measured(found.weights, [[1 / 3, 1 / 3]], atol=0, rtol=1e-12)
