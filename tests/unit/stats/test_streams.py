"""Survival of agreement and tests on sampled streams, against published examples."""

import math

import numpy as np
import pytest
import scipy.stats

from tests.measured import assert_measured
from validate.errors import InputError
from validate.schema import Levels
from validate.stats import (
    hazard_noninferiority,
    hazard_ratio_limits,
    kaplan_meier,
    martingale_z,
    poisson_rate_limits,
    rate_excess_test,
    serial_independence,
    uniformity_test,
)

LEVELS = Levels(low=0.975, high=0.975)


class TestKaplanMeier:
    def test_freireich(self):
        """Freireich et al. (1963), 6-MP arm; survival and Greenwood errors as in Cox and Oakes."""
        times = [6, 6, 6, 6, 7, 9, 10, 10, 11, 13, 16, 17, 19, 20, 22, 23, 25, 32, 32, 34, 35]
        diverged = [t in (7, 13, 16, 22, 23) for t in times]
        diverged[:3] = [True] * 3
        diverged[6] = True
        found = kaplan_meier(times, diverged)

        assert found.times == (6, 7, 10, 13, 16, 22, 23)
        assert found.at_risk == (21, 17, 15, 12, 11, 7, 6)
        assert found.events == (3, 1, 1, 1, 1, 1, 1)
        expected = [0.857, 0.807, 0.753, 0.690, 0.627, 0.538, 0.448]
        assert_measured(found.survival, expected, atol=5e-4, rtol=0)
        errors = [0.0764, 0.0869, 0.0963, 0.1068, 0.1141, 0.1282, 0.1346]
        assert_measured(found.error, errors, atol=5e-5, rtol=0)

    def test_no_divergence_no_steps_and_all_diverged_no_error(self):
        assert kaplan_meier([5, 5], [False, False]).times == ()
        assert kaplan_meier([], []).n == 0
        assert kaplan_meier([3, 3], [True, True]).error == (None,)

    def test_bad_input(self):
        with pytest.raises(InputError, match="`times` holds 2 streams and `diverged` 1"):
            kaplan_meier([1, 2], [True])
        with pytest.raises(InputError, match="`times` must not be negative, got -1 at 0"):
            kaplan_meier([-1], [True])


class TestHazard:
    def test_limits_are_odds_of_clopper_pearson(self):
        found = hazard_ratio_limits(9, 4, levels=LEVELS)
        ci = scipy.stats.binomtest(9, 13).proportion_ci(0.95, method="exact")
        expected = [ci.low / (1 - ci.low), ci.high / (1 - ci.high)]

        assert_measured([found.low, found.high], expected, atol=0, rtol=1e-9)

    def test_no_floor_events_no_upper_limit(self):
        assert hazard_ratio_limits(0, 0, levels=LEVELS).low is None
        assert hazard_ratio_limits(0, 0, levels=LEVELS).high is None
        assert hazard_ratio_limits(6, 0, levels=LEVELS).high is None
        assert hazard_ratio_limits(0, 6, levels=LEVELS).low == 0.0

    def test_noninferiority_by_hand(self):
        """Margin 2, cand first in 1 of 6: (1/3)^6 + 6 (2/3) (1/3)^5 = 13/729."""
        found = hazard_noninferiority(1, 5, margin=2.0)

        assert_measured(found.p_value, 13 / 729, atol=1e-12, rtol=0)
        assert found.estimate == 0.2
        assert hazard_noninferiority(0, 0, margin=2.0).p_value is None
        assert hazard_noninferiority(3, 0, margin=2.0).estimate is None

    @pytest.mark.parametrize("margin", [1.0, 0.5, 0.0, math.nan, math.inf])
    def test_bad_margin(self, margin):
        with pytest.raises(InputError, match="`margin` must be"):
            hazard_noninferiority(1, 5, margin=margin)

    def test_ratio_is_recovered_whatever_the_prompt(self):
        """Exponential times with prompt rates over four decades and ratio 3; the limits err in at
        most 2.5 % + 3.3 standard errors of 2,000 draws on each side."""
        rng = np.random.default_rng(31)
        low = high = 0
        for _ in range(2000):
            rate = 10 ** rng.uniform(-4, 0, size=40)
            cand, floor = rng.exponential(1 / (3 * rate)), rng.exponential(1 / rate)
            open_ = (cand < 1000) | (floor < 1000)
            first = int(np.count_nonzero((cand < floor) & open_))
            found = hazard_ratio_limits(first, int(np.count_nonzero(open_)) - first, levels=LEVELS)
            low += found.low is not None and found.low > 3
            high += found.high is not None and found.high < 3

        assert low / 2000 <= 0.0366
        assert high / 2000 <= 0.0366


class TestPoisson:
    @pytest.mark.parametrize(
        ("events", "low", "high"),
        [(0, 0.0, 3.689), (1, 0.0253, 5.572), (5, 1.623, 11.668), (10, 4.795, 18.390)],
    )
    def test_garwood(self, events, low, high):
        """Garwood (1936), 95 % limits of a Poisson mean."""
        found = poisson_rate_limits(events, exposure=1.0, levels=LEVELS)

        assert_measured([found.low, found.high], [low, high], atol=6e-4, rtol=0)

    def test_per_thousand_tokens(self):
        one = poisson_rate_limits(5, exposure=1.0, levels=LEVELS)
        found = poisson_rate_limits(5, exposure=2.5, levels=LEVELS)

        assert one.high is not None
        assert_measured(found.high, one.high / 2.5, atol=0, rtol=1e-12)

    def test_two_rates_as_r(self):
        """R: poisson.test(c(11, 6+8+7), c(800, 1083+1050+878)) has p = 0.07967 two-sided;
        one-sided it is P(B(32, 800/3811) >= 11)."""
        found = rate_excess_test(11, 21, cand_exposure=800.0, floor_exposure=3011.0)
        expected = scipy.stats.binom(32, 800 / 3811).sf(10)
        both = scipy.stats.binomtest(11, 32, 800 / 3811).pvalue

        assert_measured(found.p_value, expected, atol=1e-12, rtol=0)
        assert_measured(both, 0.07967, atol=5e-6, rtol=0)
        assert rate_excess_test(0, 0, cand_exposure=1.0, floor_exposure=1.0).p_value is None
        assert rate_excess_test(0, 4, cand_exposure=1.0, floor_exposure=1.0).p_value == 1.0

    def test_bad_input(self):
        for exposure in (0.0, -1.0, math.nan):
            with pytest.raises(InputError, match="`exposure` must be positive"):
                poisson_rate_limits(1, exposure=exposure, levels=LEVELS)
        with pytest.raises(InputError, match="must not be negative, got -1"):
            poisson_rate_limits(-1, exposure=1.0, levels=LEVELS)


class TestUniform:
    def test_statistic_by_hand(self):
        """1/(12 n) + sum (U_(i) - (2i-1)/(2n))^2; at the midpoints only the first term is left."""
        n = 10
        found = uniformity_test((np.arange(n) + 0.5) / n)

        assert_measured(found.statistic, 1 / 120, atol=1e-15, rtol=0)
        assert found.p_value is not None
        assert found.p_value > 0.999

    def test_a_small_lift_is_seen(self):
        u = np.random.default_rng(1).random(4000)

        assert (uniformity_test(u).p_value or 0) > 0.01
        assert (uniformity_test(u**1.15).p_value or 0) < 1e-4

    @pytest.mark.parametrize(
        ("values", "why"), [([], "0 of 5"), ([0.1] * 4, "4 of 5"), ([0.5] * 50, "all values equal")]
    )
    def test_no_p_value(self, values, why):
        found = uniformity_test(values)

        assert found.p_value is None
        assert why in (found.why_undefined or "")

    def test_bad_input(self):
        with pytest.raises(InputError, match=r"must lie in \[0, 1\], got 1.5 at 1"):
            uniformity_test([0.5, 1.5])
        with pytest.raises(InputError, match="not finite"):
            uniformity_test([0.5, math.nan])


class TestSerial:
    def test_alternation_by_hand(self):
        """0, 1, 0, 1, ... of 41 values: 40 products of -1/4, z = -10 * 12 / sqrt 40."""
        found = serial_independence([float(i % 2) for i in range(41)])

        assert_measured(found.statistic, -120 / math.sqrt(40), atol=1e-12, rtol=0)
        assert found.n == 40

    def test_a_shared_number_shows_at_its_lag(self):
        u = np.repeat(np.random.default_rng(2).random(200), 2)

        assert (serial_independence(u).p_value or 0) < 1e-6
        assert (serial_independence(u[::2]).p_value or 0) > 0.01

    def test_level(self):
        """Seeded; 4,000 draws at 40 values: 5 % within 3.3 standard errors and half a point."""
        rng = np.random.default_rng(3)
        hits = sum(
            (serial_independence(rng.random(40), lag=2).p_value or 0) <= 0.05 for _ in range(4000)
        )

        assert_measured(hits / 4000, 0.05, atol=0.0163, rtol=0)

    def test_no_p_value_and_bad_input(self):
        assert serial_independence([0.1] * 20).p_value is None
        assert serial_independence([0.5] * 90).p_value is None
        assert serial_independence([]).p_value is None
        with pytest.raises(InputError, match="`lag` must be at least 1, got 0"):
            serial_independence([0.5], lag=0)


class TestMartingale:
    def test_acceptance_by_hand(self):
        """60 of 100 accepted where 1/2 is due: z = 10 / 5."""
        found = martingale_z([0.5] * 60 + [-0.5] * 40, [0.25] * 100)

        assert_measured(found.statistic, 2.0, atol=1e-12, rtol=0)
        assert_measured(found.p_value, 0.0455003, atol=1e-7, rtol=0)

    def test_the_impossible_has_p_value_zero(self):
        found = martingale_z([0.0, -1.0, 0.3], [0.1, 0.0, 0.2])

        assert found.p_value == 0.0
        assert "step 1 has no variance and moved" in found.method

    def test_nothing_random_no_p_value(self):
        assert martingale_z([0.0, 0.0], [0.0, 0.0]).p_value is None
        assert martingale_z([], []).why_undefined == "no step has any variance"

    def test_bad_input(self):
        with pytest.raises(InputError, match=r"`variances` must not be negative, got -0.1 at 1"):
            martingale_z([0.0, 0.0], [0.0, -0.1])
        with pytest.raises(InputError, match="pairs need as many of each"):
            martingale_z([0.0], [])
        with pytest.raises(InputError, match="not finite"):
            martingale_z([math.nan], [1.0])
