"""The mixture of experts: routing, the two forms of the experts, SiTU."""

import itertools
import math

import numpy as np
import pytest
import torch

from tests.measured import assert_measured
from tests.unit.models.small import BF16, F32, F64, SMALL, WEIGHTS
from validate.models.model import layer_weights
from validate.models.moe import experts_dense, experts_grouped, moe_layer, route
from validate.models.ops import situ
from validate.models.trace import SILENT

EXACT = {"atol": 1e-13, "rtol": 1e-11}
LAYER = layer_weights(WEIGHTS, "layers.1.moe.")
K = SMALL.experts_per_token


def tokens(count=9, *, width=SMALL.hidden_size, seed=0, dtype=torch.float64):
    rng = torch.Generator().manual_seed(seed)
    return torch.randn(1, count, width, generator=rng, dtype=torch.float64).to(dtype)


def router(logits, bias, *, k=2, options=F64):
    """Route one token whose router logits are given, by an identity router."""
    size = len(logits)
    config = SMALL.model_copy(update={"experts": size, "experts_per_token": k})
    weights = {
        "router.weight": torch.eye(size, dtype=options.dtype),
        "correction_bias": torch.tensor(bias, dtype=options.accumulate),
    }
    x = torch.tensor([logits], dtype=options.dtype)
    return route(x, weights, config=config, options=options)


def logit(p):
    return math.log(p / (1 - p))


def test_routing_by_hand():
    """Sigmoids 0.2, 0.6, 0.3: experts 1 and 2 in this order, shares 2/3 and 1/3."""
    routing = router([logit(0.2), logit(0.6), logit(0.3)], [0.0, 0.0, 0.0])

    assert routing.ids.tolist() == [[1, 2]]
    assert_measured(routing.scores, [[0.2, 0.6, 0.3]], **EXACT)
    assert_measured(routing.weights, [[2 / 3, 1 / 3]], **EXACT)


def test_the_correction_bias_chooses_and_does_not_weigh():
    """The bias 1 lifts expert 0 to the first place; its weight stays 0.2 of 0.2 + 0.6."""
    routing = router([logit(0.2), logit(0.6), logit(0.3)], [1.0, 0.0, 0.0])

    assert routing.ids.tolist() == [[0, 1]]
    assert_measured(routing.scores, [[1.2, 0.6, 0.3]], **EXACT)
    assert_measured(routing.weights, [[0.25, 0.75]], **EXACT)


@pytest.mark.parametrize(
    ("logits", "expected"),
    [([1, 1, 1, 1], [0, 1]), ([0, 3, 3, 3], [1, 2]), ([3, 0, 5, 3], [2, 0])],
)
def test_the_lowest_index_wins_a_tie(logits, expected):
    assert router([float(x) for x in logits], [0.0] * 4).ids.tolist() == [expected]


def test_many_tied_experts_keep_their_order():
    """896 equal scores, as an unstable sort would shuffle them."""
    assert router([0.0] * 896, [0.0] * 896, k=16).ids.tolist() == [list(range(16))]


def test_sigmoids_that_underflow_give_zero_shares_not_nan():
    """sigmoid(-200) is 0 in float32: 0 / (0 + 1e-20)."""
    routing = router([-200.0] * 3, [0.0] * 3, options=F32)

    assert routing.weights.tolist() == [[0.0, 0.0]]


def test_bfloat16_inputs_are_routed_in_float32():
    """Logits 1 and 1 + 2^-10, both bfloat16 sums of exact products, differ in the score."""
    weights = {
        "router.weight": torch.tensor([[1.0, 0.0], [1.0, 2.0**-10]]),
        "correction_bias": torch.zeros(2),
    }
    config = SMALL.model_copy(update={"experts": 2, "experts_per_token": 1})

    routing = route(torch.ones(1, 2, dtype=torch.bfloat16), weights, config=config, options=BF16)

    assert routing.scores.dtype is torch.float32
    assert routing.ids.tolist() == [[1]]


def both_forms(options, *, seed=0):
    held = {n: w.to(options.dtype).to(options.accumulate) for n, w in LAYER.items()}
    x = tokens(seed=seed, dtype=options.dtype)[0]
    routing = route(x, held, config=SMALL, options=options)
    z = tokens(width=SMALL.latent_size, seed=seed + 1, dtype=options.dtype)[0]
    return [
        form(z, routing, held, config=SMALL, options=options)
        for form in (experts_dense, experts_grouped)
    ]


@pytest.mark.parametrize("seed", range(5))
def test_all_experts_at_once_are_the_experts_one_by_one(seed):
    dense, grouped = both_forms(F64, seed=seed)

    assert_measured(dense, grouped, **EXACT)


@pytest.mark.parametrize(
    ("options", "atol"),
    [pytest.param(F32, 1e-6, id="float32"), pytest.param(BF16, 2.0**-9, id="bfloat16")],
)
def test_the_two_forms_agree_in_float32_sums(options, atol):
    """Measured 4e-8 in both. In bfloat16 one expert's output may fall on the other side of a tie."""
    dense, grouped = both_forms(options)

    assert dense.dtype is grouped.dtype is torch.float32
    assert_measured(dense, grouped, atol=atol, rtol=1e-5)


def test_an_expert_nobody_chose_has_no_part():
    """In the grouped form its weights are not even read."""
    routing = route(tokens(2)[0], LAYER, config=SMALL, options=F64)
    idle = sorted(set(range(SMALL.experts)) - set(routing.ids.flatten().tolist()))
    z = tokens(2, width=SMALL.latent_size)[0]
    broken = {name: w.clone() for name, w in LAYER.items()}
    for name in ("gate", "up", "down"):
        broken[f"experts.{name}"][idle] *= 1e3
    assert idle

    for form in (experts_dense, experts_grouped):
        before = form(z, routing, LAYER, config=SMALL, options=F64)
        assert_measured(form(z, routing, broken, config=SMALL, options=F64), before, **EXACT)
        for name, bad in itertools.product(("gate", "up", "down"), (math.nan, math.inf)):
            worse = {n: w.clone() for n, w in LAYER.items()}
            worse[f"experts.{name}"][idle] = bad
            assert_measured(form(z, routing, worse, config=SMALL, options=F64), before, **EXACT)


def test_a_chosen_expert_that_is_not_finite_shows_in_the_tokens_that_chose_it():
    routing = route(tokens(9)[0], LAYER, config=SMALL, options=F64)
    z = tokens(9, width=SMALL.latent_size)[0]
    expert = int(routing.ids[0, 0])
    broken = {n: w.clone() for n, w in LAYER.items()}
    broken["experts.down"][expert] = math.nan
    chose = (routing.ids == expert).any(-1)

    for form in (experts_dense, experts_grouped):
        made = form(z, routing, broken, config=SMALL, options=F64)
        assert torch.equal(torch.isnan(made).any(-1), chose)


def test_the_norm_of_the_routed_sum_makes_it_blind_to_scale():
    """Routed latents are normed before they go up: experts a thousand times as large change little."""
    large = dict(LAYER)
    large["experts.down"] = LAYER["experts.down"] * 1e3
    x = tokens()

    plain, scaled = (
        moe_layer(x, w, config=SMALL, options=F64, place="x", trace=SILENT) for w in (LAYER, large)
    )

    assert_measured(scaled, plain, atol=1e-3, rtol=1e-3)
    assert not torch.equal(scaled, plain)


def one_situ(gate, up, *, beta=4.0, linear_beta=25.0):
    return situ(
        torch.tensor(gate, dtype=torch.float64),
        torch.tensor(up, dtype=torch.float64),
        beta=beta,
        linear_beta=linear_beta,
        accumulate=torch.float64,
    )


def test_situ_by_hand():
    """tanh(ln 2) = 3/5: g = 4 ln 2 gives 4 * 3/5 * 16/17, u = 25 ln 2 gives 25 * 3/5."""
    assert_measured(
        one_situ(4 * math.log(2), 25 * math.log(2)), 4 * 0.6 * 16 / 17 * 15, atol=0, rtol=1e-14
    )


def test_situ_limits():
    """Large arguments saturate at 4 * 25; a closed gate is 0; small ones are g * sigmoid(g) * u."""
    assert_measured(one_situ(1e4, 1e4), 100.0, atol=0, rtol=1e-15)
    assert_measured(one_situ(1e4, -1e4), -100.0, atol=0, rtol=1e-15)
    assert one_situ(-1e4, 3.0) == 0.0
    assert one_situ(0.0, 5.0) == 0.0
    assert one_situ(5.0, 0.0) == 0.0
    assert_measured(one_situ(1e-6, 1e-6), 0.5e-12, atol=0, rtol=1e-5)


def test_situ_turns_into_swiglu_as_its_betas_grow():
    """beta tanh(x / beta) -> x: g sigmoid(g) u."""
    g, u = np.linspace(-3, 3, 7), np.linspace(-2, 4, 7)

    made = one_situ(g.tolist(), u.tolist(), beta=1e6, linear_beta=1e6)

    assert_measured(made, g / (1 + np.exp(-g)) * u, atol=1e-9, rtol=1e-9)


def test_situ_is_rounded_once():
    """bfloat16 in, float32 inside: the result is the rounding of the float64 value."""
    gate = torch.linspace(-6, 6, 200).to(torch.bfloat16)
    up = torch.linspace(-50, 50, 200).to(torch.bfloat16)

    made = situ(gate, up, beta=4.0, linear_beta=25.0, accumulate=torch.float32)

    exact = one_situ(gate.double().tolist(), up.double().tolist())
    assert made.dtype is torch.bfloat16
    assert (
        made != exact.to(torch.bfloat16)
    ).sum() <= 1  # float32 may sit on the other side of a tie
