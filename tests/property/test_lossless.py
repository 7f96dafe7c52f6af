"""Properties of outcome laws, falls and p-values that hold for every law."""

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

from tests.measured import assert_measured
from validate.gates.lossless import needed
from validate.oracle.lossless import expected_acceptance, fall, outcome_law
from validate.schema.measurement import Detection, Measurement
from validate.stats import combined_p, cvm_power, cvm_test, z_power

WEIGHTS = st.lists(st.floats(0.01, 1.0), min_size=6, max_size=6)
RULES = ("chain", "target_only", "exact_match")


def law(weights):
    array = np.asarray(weights)
    return array / array.sum()


@pytest.mark.parametrize("rule", RULES)
@given(p=WEIGHTS, q=WEIGHTS)
@settings(max_examples=50, deadline=None)
def test_outcome_laws_add_up_to_the_requested_law(rule, p, q):
    """P(accepted) law(accepted) + P(resampled) law(resampled) = p: the verifier is lossless."""
    p, q = law(p), law(q)
    chance = expected_acceptance(rule, p, q)
    rejected = outcome_law("resampled", rule, p, q)
    rest = np.where(np.isfinite(rejected), rejected, 0.0)

    whole = chance * outcome_law("accepted", rule, p, q) + (1 - chance) * rest

    assert_measured(whole, p, atol=1e-12, rtol=1e-9)


@pytest.mark.parametrize("order", ["falling_p", "falling_ratio"])
@given(p=WEIGHTS, q=WEIGHTS)
@settings(max_examples=50, deadline=None)
def test_falls_of_all_ids_tile_the_unit_interval(order, p, q):
    p, q = law(p), law(q)

    spans = sorted(fall(p, x, order=order, p=p, q=q) for x in range(len(p)))

    ends = np.cumsum([span.mass for span in spans])
    assert_measured(
        [span.below for span in spans], ends - [s.mass for s in spans], atol=1e-12, rtol=0
    )
    assert_measured(ends[-1], 1.0, atol=1e-12, rtol=0)


@given(st.lists(st.integers(0, 1000).map(lambda n: n / 1000), min_size=20, max_size=60))
@settings(max_examples=50, deadline=None)
def test_a_p_value_does_not_know_the_order_or_the_direction(values):
    there, back = cvm_test(np.array(values)), cvm_test(1.0 - np.array(values)[::-1])

    assert (there.p_value is None) == (back.p_value is None)
    if there.p_value is not None and back.p_value is not None:
        assert_measured(there.p_value, back.p_value, atol=1e-9, rtol=1e-6)


@given(st.floats(0, 8), st.floats(1e-6, 0.2))
@settings(max_examples=50, deadline=None)
def test_power_grows_with_the_shift_and_is_never_below_the_level(shift, alpha):
    for power in (cvm_power, z_power):
        assert power(shift, alpha=alpha) >= alpha * (1 - 1e-6)
        assert power(shift + 0.5, alpha=alpha) >= power(shift, alpha=alpha) - 1e-12


@given(st.lists(st.floats(0, 1), min_size=1, max_size=8))
def test_bonferroni_is_a_p_value_no_smaller_than_any(p_values):
    found = combined_p(p_values, [1 / len(p_values)] * len(p_values))

    assert min(p_values) <= found <= 1


@given(st.integers(20, 10_000), st.floats(0.01, 2.0), st.floats(0.01, 2.0))
def test_the_number_needed_is_enough_by_the_root_law(n, seen, effect):
    found = Measurement(
        metric="a.b",
        value=0.5,
        unit="p-value",
        n=n,
        n_of="tokens",
        detection=Detection(effect=seen, alpha=0.01, power=0.95, method="z"),
    )

    count = needed(found, effect)

    assert count is not None
    assert seen * (n / count) ** 0.5 <= effect
