"""The smaller estimators at two or three units, where each output is a closed form."""

import json
import math
from fractions import Fraction
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import numpy as np
import pytest
from scipy import stats

import validate.stats.calibrate_table as calibrate_table
from tests.measured import assert_measured, known
from validate.errors import InputError
from validate.schema import Levels
from validate.stats import (
    abs_mean_limits,
    abs_median_limits,
    binomial_test,
    bootstrap,
    bootstrap_limits,
    exceedance_n_needed,
    floor_limits,
    hazard_noninferiority,
    holm,
    kaplan_meier,
    martingale_z,
    mean_limits,
    most_allowed,
    poisson_rate_limits,
    proportion_limits,
    quantile,
    quantile_limits,
    rate_excess_test,
    serial_independence,
    tail_checked,
    tail_diagnostic,
    uniformity,
    uniformity_test,
)
from validate.stats._search import least_effect, least_n
from validate.stats.calibration import Cell

HALF = Levels(low=0.5, high=0.5)
LEVELS = Levels(low=0.99, high=0.95)
REPORTS = Path(__file__).parents[3] / "golden" / "reports"


def rows(*counted: tuple[list[int], int]) -> Mock:
    """A generator that draws these resamples in this order, as many at a time as it is asked for."""
    left = iter([row for row, times in counted for _ in range(times)])

    def integers(n: int, *, size: tuple[int, int]) -> Any:
        assert size[1] == n
        return np.array([next(left) for _ in range(size[0])])

    rng = Mock(spec=np.random.Generator)
    rng.integers.side_effect = integers
    return rng


class TestBootstrap:
    def test_percentile_of_two_hundred_resamples(self) -> None:
        """Level 1/2 takes the 100th of 200 means from either end."""
        rng = rows(([0, 0], 60), ([0, 1], 39), ([0, 1], 1), ([1, 1], 100))
        found = bootstrap_limits([0.0, 1.0], levels=HALF, rng=rng, method="percentile")

        assert (found.low, found.high) == (0.5, 1.0)
        assert found.method == "percentile bootstrap, 200 resamples"

    @pytest.mark.parametrize("block", [1, 2, 7, 2_000_000])
    def test_studentised_by_hand(self, block: int, monkeypatch: pytest.MonkeyPatch) -> None:
        """Values 0, 1, 5: mean 2, error sqrt(7 / 3). The resample 0, 0, 1 has mean 1/3 and error 1/3,
        so a pivot of -5; 5, 5, 1 has mean 11/3 and error 4/3, so one of 5/4."""
        monkeypatch.setattr(bootstrap, "BLOCK", block)
        rng = rows(([2, 2, 1], 100), ([0, 0, 1], 100))
        found = bootstrap_limits([0.0, 1.0, 5.0], levels=HALF, rng=rng)
        error = math.sqrt(7 / 3)

        assert_measured(
            [known(found.low), known(found.high)],
            [2 - 1.25 * error, 2 + 5 * error],
            atol=1e-12,
            rtol=0,
        )

    def test_resamples_without_spread_lie_on_their_own_side(self) -> None:
        """0, 0 is below every pivot, 1, 1 above: half of them leaves one limit without a value."""
        mixed = ([0, 1], 100)
        below = bootstrap_limits([0.0, 1.0], levels=HALF, rng=rows(([0, 0], 100), mixed))
        above = bootstrap_limits([0.0, 1.0], levels=HALF, rng=rows(([1, 1], 100), mixed))

        assert (below.low, below.high) == (0.5, None)
        assert (above.low, above.high) == (None, 0.5)


class TestUniform:
    def test_neighbours_in_fractions(self) -> None:
        """21 values, 20 products: the first is (1/4) (-1/4), the others are 1/16."""
        found = serial_independence([0.25, *[0.75] * 20])
        total = 18 / 16
        z = total * 12 / math.sqrt(20)

        assert found.n == 20
        assert_measured(
            [known(found.statistic), known(found.estimate), known(found.p_value)],
            [z, total * 12 / 20, 2 * stats.norm.sf(z)],
            atol=1e-14,
            rtol=0,
        )
        assert serial_independence([0.25, *[0.75] * 19]).why_undefined == "19 of 20 neighbours"

    def test_five_values_are_enough(self) -> None:
        assert uniformity_test([0.0, 0.25, 0.5, 0.75, 1.0]).p_value is not None
        assert uniformity_test([0.0, 0.25, 0.5, 0.75]).why_undefined == "4 of 5 values"
        with pytest.raises(InputError, match=r"got -0.5 at 1"):
            uniformity_test([0.1, -0.5, 0.2, 0.3, 0.4])

    def test_martingale_of_small_variance(self) -> None:
        """Variances add up to 1/4: z = 0.75 / 0.5."""
        found = martingale_z([0.5, 0.25], [0.125, 0.125])

        assert (found.statistic, found.estimate) == (1.5, 0.375)
        assert_measured(known(found.p_value), 2 * stats.norm.sf(1.5), atol=1e-15, rtol=0)

    def test_probabilities_stay_in_range(self) -> None:
        assert [uniformity._clip(p) for p in (-1e-17, 0.0, 0.5, 1.0, 1.0 + 1e-15)] == [
            *(0.0, 0.0, 0.5, 1.0, 1.0)
        ]


class TestMeans:
    def test_two_units(self) -> None:
        """0 and 2: mean 1, error 1; t of one degree is tan(pi (level - 1/2))."""
        found, size = (f([0.0, 2.0], levels=LEVELS) for f in (mean_limits, abs_mean_limits))
        high = 1 + math.tan(0.45 * math.pi)

        assert_measured(
            [known(found.low), known(found.high), known(size.low), known(size.high)],
            [1 - math.tan(0.49 * math.pi), high, 0.0, high],
            atol=1e-9,
            rtol=0,
        )
        assert found.method == "t"

    def test_levels_at_the_ends_are_refused(self) -> None:
        for low in (0.0, -0.5, 1.0):
            with pytest.raises(InputError, match=r"levels.low"):
                mean_limits([0.0, 2.0], levels=Levels(low=low, high=0.95))

    def test_shape_of_three_units(self) -> None:
        """0, 0, 1 has skewness 1 / sqrt(2), over sqrt(3): 0.41; 0, 1, 2 has none; two have no shape."""
        up, down, even = [0.0, 0.0, 1.0], [0.0, 1.0, 1.0], [0.0, 1.0, 2.0]
        found = tail_diagnostic(up)
        kept, withheld, level = (
            tail_checked(mean_limits(units, levels=LEVELS), units) for units in (up, down, even)
        )

        assert_measured(
            [known(found.skewness), known(found.relative)],
            [math.sqrt(0.5), math.sqrt(1 / 6)],
            atol=1e-12,
            rtol=0,
        )
        assert known(kept.low) < 0
        assert (kept.high, withheld.low, withheld.high) == (None, None, None)
        assert level.method == "t, tail-checked"
        assert tail_diagnostic([0.0, 1.0]).skewness is None

    def test_floor_of_three_repeats(self) -> None:
        """Logarithms 0, 1, 2: mean 1, error 1 / sqrt(3), SciPy's t of two degrees."""
        found = floor_limits([1.0, math.e, math.e**2], levels=LEVELS)
        nothing = floor_limits([0.0, 0.0, 0.0], levels=LEVELS)

        assert_measured(
            np.log([known(found.low), known(found.high)]),
            [1 - stats.t.ppf(0.99, 2) / math.sqrt(3), 1 + stats.t.ppf(0.95, 2) / math.sqrt(3)],
            atol=1e-9,
            rtol=0,
        )
        assert (nothing.low, nothing.high) == (0.0, 0.0)
        with pytest.raises(InputError, match=r"got -0.25 at 2"):
            floor_limits([0.5, 0.0, -0.25], levels=LEVELS)

    def test_holm_takes_both_ends(self) -> None:
        assert holm({"a": 1.0, "b": 0.0}, alpha=0.05) == {"a": 1.0, "b": 0.0}


class TestCounts:
    def test_one_unit(self) -> None:
        """P(B(1, p) = 0) = 0.05 at 0.95; P(B(1, p) = 1) = 0.01 at 0.01."""
        none, one = (proportion_limits(k, 1, levels=LEVELS) for k in (0, 1))

        assert_measured(
            [known(none.low), known(none.high), known(one.low), known(one.high)],
            [0.0, 0.95, 0.01, 1.0],
            atol=1e-12,
            rtol=0,
        )

    def test_needed_units_up_to_ten_million(self) -> None:
        """(1 - L)^n <= 0.05 from n = ln 0.05 / ln(1 - L) on; one unit at L = 1/2 and level 1/2."""
        for limit in (4e-7, 3.2e-7):
            expected = math.ceil(math.log(0.05) / math.log1p(-limit))
            assert abs(known(exceedance_n_needed(0, limit=limit, level=0.95)) - expected) <= 1
        assert exceedance_n_needed(0, limit=2e-7, level=0.95) is None
        assert exceedance_n_needed(0, limit=0.5, level=0.5) == 1
        assert most_allowed(1, limit=0.5, level=0.5) == 0

    def test_one_order_statistic(self) -> None:
        """P(unit < median) = 1/2 is level 1/2, on either side."""
        found = quantile_limits([3.0], q=0.5, levels=HALF)

        assert (found.low, found.high, found.above) == (3.0, 3.0, ())

    def test_smallest_unit_is_a_low_quantile(self) -> None:
        assert quantile([2.0, 1.0], q=0.3) == 1.0
        assert quantile_limits([2.0, 1.0], q=0.3, levels=HALF).above == (2.0,)
        for q in (0.0, -0.5, 1.0):
            with pytest.raises(InputError, match="`q` must"):
                quantile_limits([1.0], q=q, levels=HALF)

    def test_absolute_median_about_zero(self) -> None:
        """Seven units about 0: sign tests of 1/128 give -3 to 3, so 0 to 3 without a sign."""
        found = abs_median_limits(
            [-3.0, -2.0, -1.0, 0.0, 1.0, 2.0, 3.0], levels=Levels(low=0.9, high=0.99)
        )

        assert (found.low, found.high) == (0.0, 3.0)

    def test_no_draws(self) -> None:
        found = binomial_test(0, 0, p=0.5)

        assert (found.n, found.p_value) == (0, None)

    @pytest.mark.parametrize("count", range(5))
    def test_binomial_tails_in_fractions(self, count: int) -> None:
        """Four fair draws: 1, 4, 6, 4, 1 of 16."""
        ways = [math.comb(4, k) for k in range(5)]
        found = binomial_test(count, 4, p=0.5, alternative="two-sided")
        greater = binomial_test(count, 4, p=0.5, alternative="greater")
        as_rare = sum(w for w in ways if w <= ways[count])

        assert_measured(
            [known(found.p_value), known(greater.p_value), known(found.estimate)],
            [as_rare / 16, sum(ways[count:]) / 16, count / 4],
            atol=1e-14,
            rtol=0,
        )

    def test_rates(self) -> None:
        """Two events in 4: half a chi-square quantile of 4 and of 6 degrees, over 4."""
        found = poisson_rate_limits(2, exposure=4.0, levels=LEVELS)

        assert_measured(
            [known(found.low), known(found.high)],
            [stats.chi2.ppf(0.01, 4) / 8, stats.chi2.ppf(0.95, 6) / 8],
            atol=1e-12,
            rtol=0,
        )

    @pytest.mark.parametrize(("cand", "floor"), [(0, 2), (1, 1), (2, 0), (1, 2)])
    def test_rate_excess_in_fractions(self, cand: int, floor: int) -> None:
        """A quarter of the exposure is cand's."""
        n, share = cand + floor, Fraction(1, 4)
        tail = sum(math.comb(n, k) * share**k * (1 - share) ** (n - k) for k in range(cand, n + 1))
        found = rate_excess_test(cand, floor, cand_exposure=1.0, floor_exposure=3.0)

        assert_measured(known(found.p_value), float(tail), atol=1e-14, rtol=0)
        assert (found.statistic, found.n) == (cand, n)

    def test_no_events(self) -> None:
        found = rate_excess_test(0, 0, cand_exposure=1.0, floor_exposure=3.0)

        assert (found.p_value, found.statistic, found.n) == (None, None, 0)
        assert hazard_noninferiority(0, 0, margin=2.0).n == 0

    def test_times_may_be_zero_but_not_negative(self) -> None:
        assert kaplan_meier([0, 1], [True, False]).n == 2
        with pytest.raises(InputError, match="got -2 at 2"):
            kaplan_meier([3, 0, -2], [True, True, True])


class TestSearch:
    def test_a_target_just_reached_is_reached(self) -> None:
        assert least_n(lambda n: n / 8, 0.5, start=1) == 4
        assert least_effect(lambda x: x, 1.0, low=0.0, high=1.0) == 1.0

    def test_nothing_below_the_start_is_tried(self) -> None:
        tried: list[int] = []

        def power(n: int) -> float:
            tried.append(n)
            return n / 8

        assert least_n(power, 0.25, start=3) == 3
        assert tried == [3]


def test_the_committed_report_is_written_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The committed cells give the committed files to the byte, into a folder made on the way."""
    committed = json.loads((REPORTS / "calibration.json").read_text("utf-8"))
    cells = [Cell(**row) for row in committed["cells"]]
    monkeypatch.setattr(calibrate_table, "calibrate", lambda *, seed: cells)

    for _ in range(2):
        assert calibrate_table.main(["--out", str(tmp_path / "a" / "b")]) == 0
    for name in ("calibration.json", "calibration.md"):
        assert (tmp_path / "a" / "b" / name).read_bytes() == (REPORTS / name).read_bytes()
