"""Sampling: ours keep the contract, draws by hand, and tests with their level and power."""

import numpy as np
import pytest
from scipy import stats

from tests.measured import assert_measured
from tests.unit.conformance.sweeping import clauses, settings_of, sweep
from validate.conformance.engines.torch_sampling import IMPLEMENTATIONS, sample as ours
from validate.conformance.ops import sample
from validate.conformance.ops._laws import (
    LEVEL,
    chi_square,
    enumerated_breach,
    law_breach,
    misdraw,
    power,
    serial_breach,
    transforms,
)
from validate.conformance.ops._sample_cases import LAW_ROW
from validate.conformance.records import Effort

OPERATION = sample.OPERATION
OURS = [one for one in IMPLEMENTATIONS if one.op == "sample"]


@pytest.mark.parametrize("one", OURS, ids=[one.name for one in OURS])
def test_ours_keep_the_contract(one):
    assert sweep(OPERATION, one.function, **one.settings) == {}


def test_chi_square_is_that_of_scipy():
    law = np.array([0.5, 0.3, 0.2])
    counts = np.array([480, 320, 200])
    found = chi_square(counts, law)
    other = stats.chisquare(counts, law * 1000)
    assert_measured(
        [found.statistic, found.p_value], [other.statistic, other.pvalue], atol=1e-12, rtol=1e-9
    )
    assert found.freedom == 2


def test_rare_cells_are_put_together():
    law = np.array([0.9, 0.094, 0.003, 0.003])
    assert chi_square(np.array([900, 94, 6, 0]), law).freedom == 2  # 3 + 3 expected: one cell


def test_power_of_the_sweep_is_what_its_contract_says():
    """8,192 draws on eight ids, 5 points moved from the fifth to the first."""
    wrong = LAW_ROW.copy()
    wrong[0] += 0.05
    wrong[4] -= 0.05
    assert power(LAW_ROW, wrong, 8192) > 0.999
    assert power(LAW_ROW, LAW_ROW, 8192) == pytest.approx(LEVEL, rel=1e-6)


@pytest.mark.statistical
def test_level_of_chi_square():
    """20,000 crowds of 500 right draws: at 1 % 200 rejections are due, sd 14; 5 sd allowed."""
    rng = np.random.default_rng(11)
    counts = rng.multinomial(500, LAW_ROW, size=20_000)
    rejected = sum(chi_square(row, LAW_ROW).p_value < 0.01 for row in counts)
    assert 130 < rejected < 270


def test_too_few_draws_for_two_cells_are_no_breach_of_a_law():
    """Three draws of two ids: both cells are expected below 5, nothing is left to compare."""
    assert law_breach(np.array([0, 0, 1]), np.array([0.5, 0.5]), what="x") == ()
    assert law_breach(np.zeros(0, np.int64), np.array([0.5, 0.5]), what="x") == ()


def test_law_breach_names_clause_and_id():
    law = np.array([0.5, 0.5, 0.0])
    assert law_breach(np.array([0, 1] * 50), law, what="x") == ()
    assert law_breach(np.array([0, 2]), law, what="x")[0].clause == "support"
    assert law_breach(np.array([0, 3]), law, what="x")[0].clause == "range"
    skewed = law_breach(np.array([0] * 90 + [1] * 10), law, what="x")[0]
    assert (skewed.clause, skewed.at) == ("law", {"id": 0})
    assert "id 0 has 0.9, its probability is 0.5" in skewed.what


def test_transforms_fill_the_unit_interval_by_falling_probability():
    """Falling order of (0.2, 0.5, 0.3): ids 1, 2, 0 cover [0, .5), [.5, .8), [.8, 1)."""
    u = transforms(np.array([0, 1, 2]), np.array([0.2, 0.5, 0.3]), np.array([0.5, 0.0, 1.0]))
    assert_measured(u, [0.9, 0.0, 0.8], atol=1e-15, rtol=0)


def test_serial_dependence_is_seen():
    rng = np.random.default_rng(5)
    u = rng.random(1025)
    assert serial_breach(u[:-1], u[1:], what="x") == ()
    mixed = (0.3 * u[:-1] + 0.7 * u[1:]) % 1.0
    assert [b.clause for b in serial_breach(u[:-1], u[:-1], what="x")] == ["independent"]
    assert serial_breach(u[:-1], mixed, what="x")


def test_enumerated_laws_have_to_be_equal():
    law = np.array([0.25, 0.75])
    assert enumerated_breach(law, law + 1e-12, what="x") == ()
    assert "TVD 0.01" in enumerated_breach(law, np.array([0.24, 0.76]), what="x")[0].what
    assert enumerated_breach(np.array([np.nan, 0.75]), law, what="x")


@pytest.mark.parametrize(
    ("drawn", "coin", "band", "clause"),
    [
        (1, 0.0, 0.0, None),
        (1, 0.2499, 0.0, None),
        (1, 0.25, 0.0, "draw"),  # the edge belongs to the next id with weight
        (3, 0.25, 0.0, None),
        (1, 0.25, 1e-6, None),
        (1, 0.2501, 1e-6, "draw"),
        (3, 0.2499, 1e-6, "draw"),
        (0, 0.0, 1e-6, "support"),
        (5, 0.9, 1e-6, "range"),
        (-1, 0.9, 1e-6, "range"),
    ],
)
def test_misdraw_by_hand(drawn, coin, band, clause):
    found = misdraw(drawn, np.array([0.0, 0.25, 0.0, 0.75, 0.0]), coin, band=band)
    assert (found and found[0]) == clause


def test_an_empty_row_allows_any_id_in_range():
    assert misdraw(2, np.zeros(3), 0.5, band=0.0) is None
    found = misdraw(3, np.zeros(3), 0.5, band=0.0)
    assert found is not None
    assert found[0] == "range"
    assert misdraw(2, np.array([np.nan, 0.5, 0.5]), 0.5, band=0.0) is None


def test_order_is_part_of_the_contract():
    assert clauses(sweep(OPERATION, ours, order="joint")) == {"draw"}
    joint = next(one for one in OURS if one.name == "torch:joint")
    assert "support" in clauses(sweep(OPERATION, joint.function))


def test_thresholds_stand_in_the_middle_of_a_gap():
    """So that no rounding decides what is kept, and one law is right."""
    for case in OPERATION.cases(Effort.QUICK, settings_of(OPERATION)):
        top_p = case.inputs["top_p"]
        assert np.isfinite(top_p).all()
        for row in np.flatnonzero((top_p > 0) & (top_p < 1))[:3]:
            probs = case.inputs["probs"][row].astype(np.float64)
            if not np.isfinite(probs).all() or not probs.any():
                continue
            k = int(case.inputs["top_k"][row])
            falling = -np.sort(-probs)[: k if 0 < k < len(probs) else None]
            reached = np.cumsum(falling) / falling.sum()
            assert np.min(np.abs(reached - float(top_p[row]))) > 1e-5


def test_unseeded_rows_must_not_repeat():
    def fixed(probs, top_k, top_p, min_p, seeds, step):
        import torch

        return ours(probs, top_k, top_p, min_p, seeds=torch.where(seeds < 0, 7, seeds), step=step)

    found = sweep(OPERATION, fixed, random="row_seeds")
    assert "rows without a seed draw the same ids" in next(iter(found.values()))[0].what
