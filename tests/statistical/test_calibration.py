"""The committed calibration table: still what the code gives, and what gates go by."""

import json
import re
from pathlib import Path

import numpy as np
import pytest

from validate import stats
from validate.gates.outcome import MIN_POOLED
from validate.metrics._quartile import Q as QUARTILE
from validate.metrics.kl_p90 import Q as P90
from validate.stats import N_MIN, quantile_n_min, trusted
from validate.stats.calibrate_table import SEED, markdown
from validate.stats.calibration import Cell, calibrate, decide_n_min

pytestmark = [pytest.mark.statistical, pytest.mark.golden]

REPORTS = Path(__file__).parents[2] / "golden" / "reports"


@pytest.fixture(scope="module")
def committed():
    return json.loads((REPORTS / "calibration.json").read_text("utf-8"))


@pytest.fixture(scope="module")
def cells(committed):
    return [Cell(**row) for row in committed["cells"]]


def cell(cells, method, data, n):
    (found,) = [c for c in cells if (c.method, c.data, c.n) == (method, data, n)]
    return found


@pytest.mark.parametrize(
    ("method", "data", "n"),
    [
        ("percentile bootstrap", "lognormal sigma 2", 8),
        ("t", "lognormal sigma 2", 32),
        ("order statistic", "zero-inflated", 128),
        ("clustered t", "clustered", 32),
    ],
)
def test_a_cell_is_reproduced(cells, method, data, n):
    """Another seed, 600 draws; four standard errors of the difference: false alarms under 1e-4."""
    old = cell(cells, method, data, n)
    (new,) = calibrate(seed=SEED + 1, draws=600, only=(method, data, n))
    p = old.coverage
    error = np.sqrt(p * (1 - p) * (1 / old.draws + 1 / new.draws))

    assert abs(new.coverage - p) <= 4 * error


def test_the_same_seed_gives_the_same_cell(cells):
    place = ("Clopper-Pearson", "zero-inflated", 32)

    assert calibrate(seed=SEED, only=place) == [cell(cells, *place)]


def test_a_percentile_bootstrap_of_a_heavy_tail_is_shown_to_fail(cells):
    """About 51 % at n = 8 and 76 % at n = 128 where 95 % is claimed."""
    few = cell(cells, "percentile bootstrap", "lognormal sigma 2", 8)
    many = cell(cells, "percentile bootstrap", "lognormal sigma 2", 128)

    assert few.fails
    assert many.fails
    assert abs(few.coverage - 0.51) <= 0.04
    assert abs(many.coverage - 0.76) <= 0.04


def test_light_tails_are_nominal_from_32_clusters(cells):
    sound = [
        c
        for c in cells
        if c.data in ("normal", "clustered") and c.n >= 32
        and c.method in ("t", "t, tail-checked", "clustered t", "studentised bootstrap")
    ]  # fmt: skip

    assert len(sound) == 14
    assert not [c for c in sound if c.fails]


def test_n_min_is_what_the_table_decides(committed, cells):
    assert committed["n_min"] == decide_n_min(cells)
    assert {method: dict(row) for method, row in N_MIN.items()} == committed["n_min"]


def test_the_page_is_the_table(cells):
    assert (REPORTS / "calibration.md").read_text("utf-8") == markdown(cells)


def test_marks_follow_the_rates(cells):
    for c in cells:
        passes = 0.05 + 3.09 * np.sqrt(0.05 * 0.95 / c.draws)
        fails = 0.025 + 3.09 * np.sqrt(0.025 * 0.975 / c.draws)
        assert c.fails is bool(c.false_pass > passes or c.false_fail > fails)


ESTIMATORS = {
    "abs_median_limits": "order statistic",
    "cluster_mean_limits": "clustered t",
    "cluster_ratio_limits": "clustered t",
    "exceedance_limits": "Clopper-Pearson",
    "drop_limits": None,
    "floor_limits": "t on the log",
    "hazard_ratio_limits": "Clopper-Pearson",
    "poisson_rate_limits": None,
    "proportion_limits": "Clopper-Pearson",
    "quantile_limits": "order statistic",
    "betting_limits": "betting",
    "bernstein_limits": "empirical Bernstein",
    "paired_proportion_limits": None,
}
"""What a metric or gate may take its limits from; None: exact or enumerated in its own tests. No t
limit and no bootstrap is among them: the tails of clean pairs are too heavy."""


ROOM = Path(__file__).parents[2]
INSIDE = {"_quartile"}
"""Modules whose limits are also taken over the prompts tagged ``tensors`` alone."""


def used(*, inside):
    """Estimators by the module of ``metrics`` or ``gates`` that names them."""
    found = {}
    for path in sorted((ROOM / "validate").glob("[mg]*s/*.py")):
        if path.parent.name in ("metrics", "gates") and (path.stem in INSIDE) is inside:
            words = set(re.findall(r"\b(\w+_limits)\b", path.read_text("utf-8")))
            found.update(dict.fromkeys(words & set(stats.__all__), path.stem))
    return found


def prompts(tag):
    lines = (ROOM / "suites/prompts/default.jsonl").read_text("utf-8").splitlines()
    return sum(tag is None or tag in json.loads(line)["tags"] for line in lines)


@pytest.mark.parametrize(
    ("inside", "tag"), [(False, None), (True, "tensors")], ids=["all prompts", "tensors"]
)
def test_no_metric_or_gate_uses_a_method_below_its_n_min(inside, tag):
    """Estimators that metrics and gates use, at the prompts of the default suite they look at."""
    names = used(inside=inside)
    n = prompts(tag)

    assert names
    assert set(names) <= set(ESTIMATORS), f"not calibrated: {set(names) - set(ESTIMATORS)}"
    rows = {name: ESTIMATORS[name] for name in names if name != "floor_limits"}
    below = {
        name: names[name]
        for name, row in rows.items()
        if row is not None and not trusted(row, n=n, heavy=False)
    }
    assert not below, f"below n_min at {n} prompts: {below}"


def test_the_default_prompts_are_enough_for_every_quantile_and_pooled_unit():
    """Eleven tensors prompts give the third quartile an upper limit; 29 the 90th percentile."""
    assert prompts("tensors") >= quantile_n_min(QUARTILE, 0.95) == 11
    assert prompts("tensors") >= MIN_POOLED
    assert prompts(None) >= quantile_n_min(P90, 0.95) == 29
