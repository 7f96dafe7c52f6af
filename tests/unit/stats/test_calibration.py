"""The simulation behind ``n_min``: its laws, its counts and its decision, by hand."""

import json
import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from unittest.mock import Mock, call

import numpy as np
import pytest
from scipy import stats

import validate.stats.calibration as calibration
from tests.measured import assert_measured
from validate.schema import Interval, Levels
from validate.stats import N_MIN, n_min
from validate.stats._laws import LAWS, Draw, Law
from validate.stats.calibration import Cell, calibrate, decide_n_min, most

COMMITTED = json.loads(
    (Path(__file__).parents[3] / "golden" / "reports" / "calibration.json").read_text("utf-8")
)
REAL = "normal", "clustered", "lognormal sigma 1", "lognormal sigma 2", "zero-inflated"
POSITIVE = "lognormal sigma 1", "lognormal sigma 2"
APPLIES = {
    "t": REAL,
    "t, tail-checked": REAL,
    "clustered t": ("clustered",),
    "t over tokens": ("clustered",),
    "studentised bootstrap": REAL,
    "percentile bootstrap": REAL,
    "empirical Bernstein": ("zero-inflated",),
    "betting": ("zero-inflated",),
    "t on the log": POSITIVE,
    "order statistic": REAL,
    "Clopper-Pearson": REAL,
}


def scripted(**draws: list[Any]) -> Mock:
    """A generator whose draws were written down beforehand, by name of the method."""
    rng = Mock(spec=np.random.Generator)
    for name, values in draws.items():
        getattr(rng, name).side_effect = [np.asarray(value) for value in values]
    return rng


def cell(method: str, data: str, n: int, *, fails: bool) -> Cell:
    rates = {"coverage": 0.95, "false_pass": 0.05, "false_fail": 0.025, "undefined": 0.0}
    return Cell(method=method, data=data, n=n, draws=8, fails=fails, **rates)


class TestLaws:
    def test_means_and_quantiles_are_those_of_scipy(self) -> None:
        """``scipy.stats``: norm, lognorm, and beta(1, 4) for a fifth of the units."""
        logs = [stats.lognorm(s=1.0), stats.lognorm(s=2.0)]
        found = [LAWS[name] for name in ("normal", *POSITIVE, "zero-inflated")]

        assert_measured(
            [law.mean for law in found],
            [0.0, logs[0].mean(), logs[1].mean(), 0.2 * stats.beta(1, 4).mean()],
            atol=1e-15,
            rtol=1e-12,
        )
        assert_measured(
            [law.quantile for law in found],
            [stats.norm.ppf(0.9), logs[0].ppf(0.9), logs[1].ppf(0.9), stats.beta(1, 4).ppf(0.5)],
            atol=0,
            rtol=1e-12,
        )

    def test_quantile_of_cluster_means(self) -> None:
        """A mean of m units has variance 1 + 1 / m; m is 1 to 16, each as often."""
        law = LAWS["clustered"]
        below = [stats.norm.cdf(law.quantile, scale=math.sqrt(1 + 1 / m)) for m in range(1, 17)]

        assert law.mean == 0.0
        assert_measured(math.fsum(below) / 16, 0.9, atol=1e-14, rtol=0)

    def test_kinds(self) -> None:
        assert {name: (law.light, law.kind, law.clustered) for name, law in LAWS.items()} == {
            "normal": (True, "real", False),
            "clustered": (True, "real", True),
            "lognormal sigma 1": (False, "positive", False),
            "lognormal sigma 2": (False, "positive", False),
            "zero-inflated": (False, "unit", False),
        }

    def test_clusters_share_their_first_number(self) -> None:
        """Sizes 1 and 2; shared 10 and 20, own 1, 2 and 4: tokens 11, 22, 24, means 11 and 23."""
        rng = scripted(integers=[[1, 2]], normal=[[10.0, 20.0], [1.0, 2.0, 4.0]])
        found = LAWS["clustered"].draw(rng, 2)

        assert rng.mock_calls == [
            *(call.integers(1, 17, size=2), call.normal(size=2), call.normal(size=3))
        ]
        assert found.tokens.tolist() == [11.0, 22.0, 24.0]
        assert found.units.tolist() == [11.0, 23.0]
        assert found.clusters.tolist() == [0, 1, 1]

    def test_logarithms_are_scaled(self) -> None:
        for name, sigma in zip(POSITIVE, (1.0, 2.0), strict=True):
            found = LAWS[name].draw(scripted(normal=[[0.0, 1.5, -1.0]]), 3)
            assert_measured(
                found.units, [1.0, math.exp(1.5 * sigma), math.exp(-sigma)], atol=0, rtol=1e-14
            )
            assert found.tokens.tolist() == found.units.tolist()
            assert found.clusters.tolist() == [0, 1, 2]

    def test_four_fifths_are_zero(self) -> None:
        rng = scripted(random=[[0.19, 0.2, 0.9]], beta=[[0.5, 0.6, 0.7]])
        found = LAWS["zero-inflated"].draw(rng, 3)

        assert found.units.tolist() == [0.5, 0.0, 0.0]
        assert rng.mock_calls == [call.random(3), call.beta(1.0, 4.0, size=3)]


class TestTable:
    def test_every_cell_has_its_place_truth_and_draws(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """The place among all methods, laws and sizes seeds the cell, measured or not."""
        seen: list[Any] = []

        def note(*given: Any) -> Cell:
            seen.append((*given[:5], given[5].bit_generator.seed_seq.entropy))
            return cell(*given[:3], fails=False)

        monkeypatch.setattr(calibration, "_cell", note)
        calibrate(seed=7)
        expected, place = [], 0
        for method, laws in APPLIES.items():
            for name in REAL:
                law = LAWS[name]
                truth = {
                    "t on the log": 1.0,
                    "order statistic": law.quantile,
                    "Clopper-Pearson": 0.1,
                }.get(method, law.mean)
                for n in (8, 32, 128):
                    place += 1
                    draws = 1000 if "bootstrap" in method and n == 128 else 2000
                    if name in laws:
                        expected.append((method, name, n, truth, draws, [7, place]))

        assert len(expected) == 108
        assert_measured([row[3] for row in seen], [row[3] for row in expected], atol=1e-15, rtol=0)
        assert [(*r[:3], *r[4:]) for r in seen] == [(*r[:3], *r[4:]) for r in expected]
        places = [
            (row["method"], row["data"], row["n"], row["draws"]) for row in COMMITTED["cells"]
        ]
        assert [(*r[:3], r[4]) for r in seen] == places

    def test_one_cell_alone_and_fewer_draws(self, monkeypatch: pytest.MonkeyPatch) -> None:
        seen: list[Any] = []

        def note(*given: Any) -> Cell:
            seen.append(given)
            return cell(*given[:3], fails=False)

        monkeypatch.setattr(calibration, "_cell", note)
        calibrate(seed=7, draws=50, only=("percentile bootstrap", "normal", 128))

        ((*place, _, draws, rng),) = seen
        assert (*place, draws) == ("percentile bootstrap", "normal", 128, 50)
        assert rng.bit_generator.seed_seq.entropy == [7, 5 * 15 + 3]

    def test_levels_and_largest_rates(self) -> None:
        """0.05 + 3.09 sqrt(0.05 * 0.95 / 2000) and so on, by hand."""
        assert vars_of(calibration.LEVELS) == (0.975, 0.95) == tuple(COMMITTED["levels"].values())
        assert_measured(
            [most(0.05, 2000), most(0.025, 2000), most(0.5, 4)],
            [0.0650588, 0.0357874, 0.5 + 3.09 / 4],
            atol=1e-7,
            rtol=0,
        )


def vars_of(levels: Levels) -> tuple[float, float]:
    return levels.low, levels.high


def made(low: float | None, high: float | None) -> Interval:
    return Interval(low=low, low_level=0.975, high=high, high_level=0.95, method="t")


TRUE = 1.0
HELD, MISSED_ABOVE, MISSED_BELOW = made(0.0, 2.0), made(1.5, 2.0), made(0.0, 0.5)


class TestCell:
    @pytest.fixture
    def counted(self, monkeypatch: pytest.MonkeyPatch) -> Any:
        """Cells from intervals written down; two misses of eight on high and one on low are let by."""

        def explained(rate: float, draws: int) -> float:
            assert draws == 8
            assert min(abs(rate - 0.05), abs(rate - 0.025)) < 1e-12
            return 0.25 if rate > 0.03 else 0.125

        def count(*script: Interval) -> Cell:
            left: Iterator[Interval] = iter(script)
            nothing = Draw(units=np.zeros(1), tokens=np.zeros(1), clusters=np.zeros(1, np.intp))
            law = Law(draw=lambda _rng, _n: nothing, mean=TRUE, quantile=0.0, light=True)
            monkeypatch.setattr(calibration, "LAWS", {"law": law})
            monkeypatch.setattr(calibration, "METHODS", {"t": lambda _draw, _rng: next(left)})
            found = calibration._cell("t", "law", 32, TRUE, 8, np.random.default_rng(0))
            assert next(left, None) is None
            return found

        monkeypatch.setattr(calibration, "most", explained)
        return count

    def test_misses_on_either_side_are_counted(self, counted: Any) -> None:
        """Limits at the truth hold it; a limit of None misses nothing but is undefined."""
        found = counted(
            MISSED_BELOW,
            MISSED_BELOW,
            MISSED_ABOVE,
            made(TRUE, TRUE),
            made(None, 2.0),
            made(0.0, None),
            made(None, None),
            HELD,
        )

        assert found == Cell(
            method="t",
            data="law",
            n=32,
            draws=8,
            coverage=0.75,
            false_pass=0.25,
            false_fail=0.125,
            undefined=0.375,
            fails=False,
        )

    def test_one_more_miss_on_either_side_fails(self, counted: Any) -> None:
        assert counted(*[MISSED_BELOW] * 3, *[HELD] * 5).fails
        assert counted(*[MISSED_ABOVE] * 2, *[HELD] * 6).fails
        assert not counted(*[HELD] * 8).fails

    def test_shares_are_compared_with_one_less_the_quantile(self) -> None:
        """Exact limits of a share hold the truth 0.1 that far more often than not."""
        (found,) = calibrate(seed=3, draws=40, only=("Clopper-Pearson", "normal", 8))

        assert (found.method, found.data, found.n, found.draws) == (
            *("Clopper-Pearson", "normal", 8, 40),
        )
        assert (found.coverage, found.undefined, found.fails) == (1.0, 0.0, False)


class TestDecision:
    def test_the_committed_table_decides_what_gates_go_by(self) -> None:
        cells = [Cell(**row) for row in COMMITTED["cells"]]

        assert decide_n_min(cells) == COMMITTED["n_min"] == {m: dict(r) for m, r in N_MIN.items()}

    def test_every_larger_size_must_hold_too(self) -> None:
        """Light fails at 32 alone: 128. Heavy holds at 8 but not at 128: never."""
        light = [cell("t", "normal", n, fails=n == 32) for n in (8, 32, 128)]
        heavy = [cell("t", "zero-inflated", n, fails=n == 128) for n in (128, 32, 8)]
        other = [cell("betting", "zero-inflated", n, fails=n == 8) for n in (8, 32, 128)]
        logs = [cell("t on the log", "lognormal sigma 2", n, fails=False) for n in (32, 8)]

        assert decide_n_min([*light, *heavy, *other, *logs]) == {
            "t": {"light": 128, "heavy": None},
            "betting": {"light": 32, "heavy": 32},
            "t on the log": {"light": 8, "heavy": None},
        }

    def test_exact_methods_are_right_from_one_unit(self) -> None:
        for method in ("order statistic", "Clopper-Pearson", "empirical Bernstein", "betting"):
            assert [n_min(method, heavy=heavy) for heavy in (True, False)] == [1, 1]
