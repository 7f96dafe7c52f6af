"""``logits.nll_delta`` against negative log-likelihoods in closed form."""

import math

import numpy as np
import pytest

from tests.fakes import make_pair, make_prompt, with_positions
from tests.logit_cases import EVEN, LEVELS, NONFINITE, UNPAIRED, assert_why
from tests.measured import assert_measured
from validate.metrics.nll_delta import nll_delta


def target_pair(shares, *, tags=()):
    """Prompts whose every target has p = 1/2 in ref and the given share in cand.

    A prompt of k shares has k + 1 tokens, all of them 1; the last row predicts nothing
    and is far off, so that counting it would show.
    """
    prompts = {
        prompt: make_prompt(prompt, [1] * (len(given) + 1), tags=tags)
        for prompt, given in shares.items()
    }
    ref = with_positions({prompt: [EVEN] * (len(given) + 1) for prompt, given in shares.items()})
    cand = with_positions(
        {
            prompt: [*(np.log([1 - share, share]) for share in given), np.log([0.999, 0.001])]
            for prompt, given in shares.items()
        }
    )
    return make_pair(ref, cand, prompts=prompts)


def delta(*shares):
    """Mean of -ln q + ln 1/2."""
    return float(np.mean([-math.log(share) - math.log(2) for share in shares]))


SHARES = {"p-0": (0.4, 0.3), "p-1": (0.6,), "p-2": (0.2, 0.6, 0.4)}
"""Cand is worse on two prompts and better on one."""


def test_median_of_prompt_means():
    found = nll_delta(target_pair(SHARES), LEVELS)

    deltas = [delta(*given) for given in SHARES.values()]
    assert_measured(found.value, sorted(deltas)[1], atol=0, rtol=1e-12)
    assert_measured(found.breakdown["signed"], sorted(deltas)[1], atol=0, rtol=1e-12)
    assert_measured(found.breakdown["mean"], np.mean(deltas), atol=0, rtol=1e-12)
    assert (found.unit, found.n, found.n_of) == ("nats", 3, "prompts")


def test_limits_are_those_of_two_sign_tests():
    """Eleven prompts. B(11, 1/2): P(>= 9) = 0.0327, P(>= 8) = 0.113: rank 9 from either end for 95 %;
    P(0) = 0.0005 <= 0.005 < P(<= 1) = 0.0059: rank 1 for the half of 1 %, where 1 % has rank 2.
    """
    shares = {f"p-{i:02d}": (0.48 - 0.01 * i,) for i in range(10)} | {"p-10": (0.99,)}
    shares["p-11"] = (0.3,)
    del shares["p-00"]
    found = nll_delta(target_pair(shares), LEVELS)

    ordered = sorted(delta(*given) for given in shares.values())
    assert found.interval is not None
    assert_measured(found.value, ordered[5], atol=0, rtol=1e-12)
    assert ordered[0] < 0
    assert_measured(
        [found.interval.low, found.interval.high], [0.0, ordered[8]], atol=0, rtol=1e-12
    )
    assert found.interval.method == "order statistic on the absolute median"


def test_the_lower_limit_shares_its_risk_between_the_two_directions():
    """As above, all on one side: the least of eleven."""
    shares = {f"p-{i:02d}": (0.48 - 0.01 * i,) for i in range(11)}
    found = nll_delta(target_pair(shares), LEVELS)

    assert found.interval is not None
    assert_measured(found.interval.low, delta(0.48), atol=0, rtol=1e-12)


def test_one_prompt_far_off_moves_no_limit():
    """What made limits of the mean untrue: a tail, on either side."""
    shares = {f"p-{i:02d}": (0.48 - 0.01 * i,) for i in range(12)}
    far = shares | {"p-11": (1e-12,)}
    near, off = (nll_delta(target_pair(given), LEVELS) for given in (shares, far))

    assert near.interval is not None
    assert off.interval is not None
    assert (near.value, near.interval.low, near.interval.high) == (
        off.value,
        off.interval.low,
        off.interval.high,
    )


def test_a_better_candidate_is_a_difference_too():
    found = nll_delta(target_pair({"p-0": (0.9,), "p-1": (0.9,)}), LEVELS)

    assert_measured(found.value, -delta(0.9), atol=0, rtol=1e-12)
    assert_measured(found.breakdown["signed"], delta(0.9), atol=0, rtol=1e-12)


def test_errors_of_either_sign_cancel():
    """-ln q averages to ln 2 for q = 1/4 and 1."""
    pair = target_pair({"p-0": (0.25, 1 - 1e-16), "p-1": (0.25, 1 - 1e-16)})
    found = nll_delta(pair, LEVELS)

    assert_measured(found.value, 0.0, atol=1e-12, rtol=0)


def test_companions():
    found = nll_delta(target_pair({"p-0": (0.4,), "p-1": (0.4,)}, tags=["tools"]), LEVELS)

    assert_measured(found.breakdown["nll_ref"], math.log(2), atol=0, rtol=1e-12)
    assert_measured(found.breakdown["nll_cand"], -math.log(0.4), atol=0, rtol=1e-12)
    assert_measured(found.breakdown["ppl_ratio"], 0.5 / 0.4, atol=0, rtol=1e-12)
    assert_measured(found.breakdown["tag.tools"], delta(0.4), atol=0, rtol=1e-12)


def test_tags_are_told_apart():
    pair = target_pair({"p-0": (0.4,), "p-1": (0.3,)}, tags=["tools"])
    pair.ref.prompts["p-1"] = make_prompt("p-1", [1, 1], tags=["long"])
    found = nll_delta(pair, LEVELS)

    assert_measured(found.breakdown["tag.tools"], delta(0.4), atol=0, rtol=1e-12)
    assert_measured(found.breakdown["tag.long"], delta(0.3), atol=0, rtol=1e-12)


def test_worst_prompt_keeps_its_sign():
    found = nll_delta(target_pair({"p-0": (0.4,), "p-1": (0.99,), "p-2": (0.45,)}), LEVELS)

    assert found.worst is not None
    assert found.worst.prompt == "p-1"
    assert_measured(found.worst.value, delta(0.99), atol=0, rtol=1e-12)
    assert_measured(found.worst_value, -delta(0.99), atol=0, rtol=1e-12)
    assert found.worst.place == "logits, mean over 1 tokens"


def test_the_next_token_is_the_target():
    """Tokens 1, 0: row 0 predicts token 0, of which cand gives 0.2."""
    ref = with_positions({"p-0": [EVEN, EVEN]})
    cand = with_positions({"p-0": [np.log([0.2, 0.8]), EVEN]})
    prompts = {"p-0": make_prompt("p-0", [1, 0])}
    found = nll_delta(make_pair(ref, cand, prompts=prompts), LEVELS)

    assert_measured(found.breakdown["signed"], delta(0.2), atol=0, rtol=1e-12)


def test_equal_sides_measure_exactly_zero():
    logits = np.random.default_rng(1).normal(size=(5, 9))
    tensors = with_positions({f"p-{i}": logits[i % 2 :] for i in range(9)})
    found = nll_delta(make_pair(tensors, tensors), LEVELS)

    assert found.value == 0.0
    assert found.interval is not None
    assert (found.interval.low, found.interval.high) == (0.0, 0.0)


def test_one_prompt_has_no_limits():
    found = nll_delta(target_pair({"p-0": (0.4,)}), LEVELS)

    assert_measured(found.value, delta(0.4), atol=0, rtol=1e-12)
    assert found.interval is not None
    assert (found.interval.low, found.interval.high) == (None, None)
    assert found.n_needed == 5


def test_one_token_prompts_do_not_count():
    found = nll_delta(target_pair({"p-0": (0.4,), "p-1": ()}), LEVELS)

    assert found.n == 1
    assert_measured(found.value, delta(0.4), atol=0, rtol=1e-12)


def test_no_target_at_all_is_undefined():
    found = nll_delta(target_pair({"p-0": (), "p-1": ()}), LEVELS)

    assert (found.value, found.undefined_kind) == (None, "no_data")
    assert_why(found, "no target token in any of 2 prompts")


def test_a_target_masked_on_both_sides_is_undefined():
    rows = [[0.0, -math.inf, 0.0], [0.0, -math.inf, 0.0]]
    tensors = with_positions({"p-0": rows})
    prompts = {"p-0": make_prompt("p-0", [0, 1])}
    found = nll_delta(make_pair(tensors, tensors, prompts=prompts), LEVELS)

    assert found.value is None
    assert_why(found, r"both sides mask \(-inf\) a token that prompt p-0 holds")


@pytest.mark.parametrize("case", sorted(NONFINITE))
def test_undefined_where_values_are_no_logits(case):
    make, why = NONFINITE[case]
    found = nll_delta(make(), LEVELS)

    assert (found.value, found.interval) == (None, None)
    assert_why(found, why)


@pytest.mark.parametrize("case", sorted(UNPAIRED))
def test_undefined_where_nothing_can_be_paired(case):
    make, kind, why = UNPAIRED[case]
    found = nll_delta(make(), LEVELS)

    assert (found.value, found.undefined_kind) == (None, kind)
    assert_why(found, why)
