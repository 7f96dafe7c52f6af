"""How many units would do, what is too few to judge, and values known only between bounds."""

import math

import pytest

from tests.unit.gates.made import floor, interval, limit, measured, verdict
from validate.errors import InputError
from validate.gates.bound import enough
from validate.schema.measurement import Interval

INF = math.inf


def needed(value, between: Interval, at, **changes):
    """Units for a limit ``at``."""
    return enough(measured(value, interval=between, **changes), between, at)


def test_a_quantile_needs_as_many_as_its_share_beyond_the_limit_asks_for():
    """0.9^28 > 0.05 > 0.9^29; with one of 40 beyond, one of 40 or two of 41 to 80 are expected:
    P(B(46, 0.1) <= 1) = 0.0478 but 46 would hold two; P(B(61, 0.1) <= 2) = 0.0494.
    """
    tail = (0.4, 0.45, 0.5, 0.6)

    assert needed(0.3, interval(0.1, None, q=0.9), 0.5, n=12) == 29
    assert needed(0.3, interval(0.1, 0.6, q=0.9, above=tail), 0.5) == 61
    assert needed(0.3, interval(0.1, 0.6, q=0.9, above=tail), 0.6) == 41
    assert needed(0.3, interval(0.1, 0.6, q=0.9, above=tail), 0.5, n_needed=1000) == 1000


def test_a_share_needs_an_exact_binomial_search():
    """No prompt of 20 beyond a limit of 5 %: 0.95^58 > 0.05 > 0.95^59. The root law says 57."""
    exact = interval(0.0, 0.139, method="Clopper-Pearson")

    assert needed(0.0, exact, 0.05, n=20) == 59


def test_a_mean_needs_what_student_says():
    """Upper limit 1 = t(7) s / sqrt 8 over eight units: 27 for half of it, 99 for a quarter.

    The tail check is calibrated from 32.
    """
    mean = interval(-1.0, 1.0, method="t, tail-checked")

    assert needed(0.0, mean, 0.5, n=8) == 32
    assert needed(0.0, mean, 0.25, n=8) == 99


def test_where_no_number_helps_none_is_named():
    """The value at the limit, or a method that no number of units makes right."""
    assert needed(0.5, interval(0.0, 1.0, method="t, tail-checked"), 0.5) is None
    assert needed(0.3, interval(0.0, 1.0, method="t"), 0.5) is None
    assert needed(0.3, interval(0.0, None, method="t, tail-checked"), 0.5) is None
    assert needed(0.3, interval(0.0, INF, method="t, tail-checked"), 0.5) is None


@pytest.mark.parametrize(
    ("method", "n", "outcome"),
    [
        ("order statistic", 1, "PASS"),
        ("Clopper-Pearson", 1, "PASS"),
        ("exact Poisson", 1, "PASS"),
        ("t, tail-checked", 32, "PASS"),
        ("t, tail-checked", 31, "INCONCLUSIVE"),
        ("t", 10**6, "INCONCLUSIVE"),
        ("paired t on the log", 10**6, "INCONCLUSIVE"),
        ("percentile bootstrap", 10**6, "INCONCLUSIVE"),
        ("studentised bootstrap", 10**6, "INCONCLUSIVE"),
    ],
)
def test_no_pass_on_limits_that_were_not_calibrated_for_so_few(method, n, outcome):
    """golden/reports/calibration.md decides, for heavy tails."""
    measurement = measured(0.3, n=n, interval=interval(0.1, 0.4, method=method))

    assert verdict("bound", measurement, limit(0.5)).outcome == outcome
    assert verdict("noise_ratio", measurement, limit(0.5), noise=floor(1.0)).outcome == outcome
    assert (
        verdict(
            "three_way", measured(0.3, n=n, interval=measurement.interval, worst_value=0.1),
            limit(0.5, worst=0.5),
        ).outcome
        == outcome
    )  # fmt: skip


def test_a_method_below_its_n_min_names_the_number():
    """And one that is never right says so."""
    few = measured(0.3, n=31, interval=interval(0.1, 0.4, method="t, tail-checked"))
    never = measured(0.3, interval=interval(0.1, 0.4, method="t"))

    assert verdict("bound", few, limit(0.5)).reason == (
        "limits by 't, tail-checked' are not to be believed here (n = 31 prompts; about 32 needed, "
        "see golden/reports/calibration.md)"
    )
    assert "calibrated at no number of units" in str(verdict("bound", never, limit(0.5)).reason)


def test_a_method_that_nobody_calibrated_is_no_verdict():
    """A PASS on it would rest on nothing."""
    with pytest.raises(InputError, match="no calibration of interval method 'magic'"):
        verdict("bound", measured(0.3, interval=interval(0.1, 0.4, method="magic")), limit(0.5))


@pytest.mark.parametrize(
    ("value", "pooled", "outcome"),
    [
        (0.4, 8, "PASS"),
        (0.4, None, "PASS"),
        (0.4, 7, "INCONCLUSIVE"),
        (0.6, 7, "FAIL" if 0.6 * 7 / 8 > 0.5 else "INCONCLUSIVE"),
        (0.6, 6, "INCONCLUSIVE"),
        (1.0, 4, "INCONCLUSIVE"),
        (math.nextafter(1.0, 2), 4, "FAIL"),
        (0.6, 8, "FAIL"),
        (0.6, None, "FAIL"),
    ],
)
def test_a_unit_pooled_over_few_prompts_is_not_held_against_a_limit_made_with_more(
    value, pooled, outcome
):
    """Below 8 prompts FAIL needs a value that 8 would share even if the others had no error."""
    assert verdict("bound", measured(value, pooled=pooled), limit(0.5)).outcome == outcome


@pytest.mark.parametrize(
    ("worst", "pooled", "outcome"),
    [
        (0.1, 8, "PASS"),
        (0.1, 7, "INCONCLUSIVE"),
        (0.6, 4, "INCONCLUSIVE"),
        (1.1, 4, "FAIL"),
        (0.6, 8, "FAIL"),
    ],
)
def test_the_worst_unit_of_a_three_way_gate_keeps_to_the_same_rule(worst, pooled, outcome):
    """Its ratio may be well inside."""
    found = measured(
        1.0, interval=interval(0.9, 1.1), worst_value=worst, pooled=pooled, unit="ratio"
    )

    assert verdict("three_way", found, limit(1.5, worst=0.5)).outcome == outcome


def test_too_few_pooled_prompts_are_told_with_the_number():
    """As every INCONCLUSIVE."""
    assert verdict("bound", measured(0.4, pooled=1), limit(0.5)).reason == (
        "0.4 is pooled over 1 prompts, too few for a limit made with more (n = 1 prompts, 8 needed)"
    )


@pytest.mark.parametrize(
    ("value", "upper", "outcome"),
    [
        (0.1, 0.5, "PASS"),
        (0.1, math.nextafter(0.5, 1), "INCONCLUSIVE"),
        (0.1, INF, "INCONCLUSIVE"),
        (0.1, math.nan, "INCONCLUSIVE"),
        (0.6, 0.7, "FAIL"),
        (0.6, INF, "FAIL"),
    ],
)
def test_between_bounds_pass_needs_the_upper_and_fail_the_lower(value, upper, outcome):
    """What a top-k capture can prove."""
    assert verdict("bound", measured(value, upper=upper), limit(0.5)).outcome == outcome


@pytest.mark.parametrize(
    ("value", "upper", "outcome"),
    [
        (0.0, 0.0, "PASS"),
        (0.0, 1.0, "INCONCLUSIVE"),
        (0.0, INF, "INCONCLUSIVE"),
        (1.0, 2.0, "FAIL"),
    ],
)
def test_a_count_between_bounds_is_exact_only_where_they_meet(value, upper, outcome):
    """None for sure and one perhaps is not none."""
    assert verdict("exact", measured(value, upper=upper), limit(0.0)).outcome == outcome


def test_the_upper_bound_is_divided_by_the_floor_too():
    """Floor 2 and limit 0.5 put the edge at 1; order statistics above it are divided alike."""
    tail = interval(0.1, 1.5, q=0.9, above=(0.9, 1.0, 1.5))
    opened = verdict("noise_ratio", measured(0.3, interval=tail), limit(0.5), noise=floor(2.0))

    assert (
        verdict("noise_ratio", measured(0.1, upper=1.0), limit(0.5), noise=floor(2.0)).outcome
        == "PASS"
    )
    assert (
        verdict("noise_ratio", measured(0.1, upper=1.1), limit(0.5), noise=floor(2.0)).outcome
        == "INCONCLUSIVE"
    )
    assert "about 61 needed" in str(opened.reason)


def test_what_to_capture_stands_in_the_reason():
    """More prompts would not help."""
    why = "KL has no upper bound: store cand's row minimum"
    plain = verdict("bound", measured(0.1, upper=INF, why_open=why), limit(0.5))
    wide = measured(0.1, interval=interval(0.0, None, q=0.9), why_open=why)
    exact = verdict("exact", measured(0.0, upper=1.0, why_open=why), limit(0.0))

    assert plain.reason == (
        f"between 0.1 and inf nats, which is not inside the limit 0.5 (n = 40 prompts; {why})"
    )
    assert verdict("bound", wide, limit(0.5)).reason == (
        f"no upper limit at 95 % can be given (n = 40 prompts; {why})"
    )
    assert exact.reason == f"between 0 nats and 1 nats (n = 40 prompts): {why}"
