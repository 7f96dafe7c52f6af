"""The tail diagnostic and the smallest n of each method."""

import math

import numpy as np
import pytest

from tests.measured import assert_measured
from validate.errors import InputError
from validate.schema import Levels
from validate.stats import (
    N_MIN,
    abs_mean_limits,
    bernstein_limits,
    betting_limits,
    bootstrap_limits,
    cluster_mean_limits,
    cluster_ratio_limits,
    exceedance_limits,
    mean_limits,
    n_min,
    quantile_limits,
    ratio_limits,
    tail_checked,
    tail_diagnostic,
    trusted,
)

LEVELS = Levels(low=0.9, high=0.9)


class TestDiagnostic:
    def test_two_points_by_hand(self):
        """A share p of ones has skewness (1 - 2p) / sqrt(p (1 - p)): 1.5 at p = 1/5."""
        found = tail_diagnostic([1.0] * 20 + [0.0] * 80)

        assert_measured(found.skewness, 1.5, atol=1e-12, rtol=0)
        assert_measured(found.relative, 0.15, atol=1e-12, rtol=0)

    def test_fires_beyond_and_not_within(self):
        assert tail_diagnostic([1.0] * 19 + [0.0] * 81).fires
        assert not tail_diagnostic([1.0] * 21 + [0.0] * 79).fires
        assert tail_diagnostic([-1.0] * 19 + [0.0] * 81).fires

    def test_scale_does_not_matter(self):
        x = np.exp(np.random.default_rng(1).normal(size=50))
        expected = tail_diagnostic(x).relative

        for factor in (1e-200, 1e200):
            assert_measured(tail_diagnostic(x * factor).relative, expected, atol=0, rtol=1e-9)

    @pytest.mark.parametrize("values", [[], [1.0], [1.0, 2.0], [3.0] * 40])
    def test_what_shows_no_tail_is_not_trusted(self, values):
        found = tail_diagnostic(values)

        assert found.fires
        assert found.skewness is None

    def test_nan(self):
        with pytest.raises(InputError, match="not finite"):
            tail_diagnostic([1.0, math.nan, 2.0])


class TestChecked:
    def test_light_units_keep_their_limits(self):
        x = np.random.default_rng(1).normal(size=64)
        given = mean_limits(x, levels=LEVELS)

        found = tail_checked(given, x)

        assert (found.low, found.high) == (given.low, given.high)
        assert found.method == "t, tail-checked"
        assert n_min(found.method, heavy=True) == 32

    def test_a_tail_up_withholds_the_upper_limit_alone(self):
        x = [0.1] * 30 + [9.0]
        given = mean_limits(x, levels=LEVELS)
        found = tail_checked(given, x)

        assert (found.low, found.high) == (given.low, None)
        assert found.method == "t (upper limit withheld: skewness 5.3 of 31 units)"

    def test_a_tail_down_withholds_both(self):
        x = [-0.1] * 30 + [-9.0]
        found = tail_checked(mean_limits(x, levels=LEVELS), x)

        assert (found.low, found.high) == (None, None)
        assert "limits withheld: skewness -5.3" in found.method

    def test_equal_units_show_no_shape(self):
        found = tail_checked(mean_limits([0.0] * 8, levels=LEVELS), [0.0] * 8)

        assert (found.low, found.high) == (None, None)
        assert found.method == "t (all values equal) (limits withheld: 8 units without a shape)"
        assert n_min(found.method, heavy=False) == n_min("t", heavy=False)


class TestNMin:
    def test_a_percentile_bootstrap_of_a_heavy_tail_is_never_trusted(self):
        assert n_min("percentile bootstrap", heavy=True) is None
        assert not trusted("percentile bootstrap, 2000 resamples", n=10**6, heavy=True)

    def test_edges(self):
        assert not trusted("clustered t", n=31, heavy=False)
        assert trusted("clustered t", n=32, heavy=False)

    def test_every_estimator_writes_a_method_that_is_known(self):
        rng = np.random.default_rng(0)
        x = rng.random(12)
        found = [
            mean_limits(x, levels=LEVELS),
            mean_limits([1.0, 1.0], levels=LEVELS),
            mean_limits([], levels=LEVELS),
            abs_mean_limits(x, levels=LEVELS),
            ratio_limits(x, x[::-1], levels=LEVELS),
            ratio_limits([1.0, 1.0], [1.0, 1.0], levels=LEVELS),
            quantile_limits(x, q=0.9, levels=LEVELS),
            exceedance_limits(x, threshold=0.5, levels=LEVELS),
            cluster_mean_limits(x, clusters=list(range(12)), levels=LEVELS),
            cluster_ratio_limits(x, x[::-1], levels=LEVELS),
            bernstein_limits(x, levels=LEVELS),
            betting_limits(x, levels=LEVELS),
            bootstrap_limits(x, levels=LEVELS, rng=rng),
            bootstrap_limits(x, levels=LEVELS, rng=rng, method="percentile"),
            bootstrap_limits([1.0, 1.0], levels=LEVELS, rng=rng),
        ]

        for one in found:
            n_min(one.method, heavy=False)

    def test_unknown_method(self):
        with pytest.raises(
            InputError, match="no calibration of interval method 'magic'; calibrated"
        ):
            n_min("magic", heavy=False)

    def test_light_is_never_harder_than_heavy(self):
        for row in N_MIN.values():
            if row["heavy"] is not None:
                assert row["light"] is not None
                assert row["light"] <= row["heavy"]
