"""What every gate checks before its rule, and what it repeats in its verdict."""

import math

import pytest

from tests.unit.gates.made import SHARE, floor, interval, limit, measured, spec, verdict
from validate.errors import SuiteError
from validate.gates import gravest, judge
from validate.gates.outcome import Finding, counted, number, percent, worst_of
from validate.schema.verdict import GRAVITY, Outcome

KINDS = ("exact", "bound", "noise_ratio", "three_way")
LIMIT = limit(1.0, worst=1.0)
FLOOR = floor(1.0)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(
    ("how", "outcome"), [("no_data", "INCONCLUSIVE"), ("unlike", "INCOMPARABLE")]
)
def test_undefined_is_never_pass(kind, how, outcome):
    """The kind of reason decides between the two."""
    nothing = measured(None, why_undefined="no oracle capture", undefined_kind=how)
    judged = verdict(kind, nothing, LIMIT, noise=FLOOR)

    assert judged.outcome == outcome
    assert judged.reason == "undefined: no oracle capture"
    assert judged.judged is None


def test_undefined_names_what_would_do():
    """n and n needed stand in the reason."""
    nothing = measured(None, why_undefined="too few", n=12, n_needed=29)

    assert verdict("bound", nothing, LIMIT).reason == (
        "undefined: too few (n = 12 prompts, 29 needed)"
    )


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
def test_non_finite_values_fail(kind, value):
    """Not one kind lets NaN or an infinity through, whatever the interval claims."""
    judged = verdict(
        kind, measured(value, worst_value=0.0, interval=interval(0.0, 0.0)), LIMIT, noise=FLOOR
    )

    assert judged.outcome == "FAIL"
    assert judged.reason == f"measures {value}, which is no finite number"


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("n", [0, -1])
def test_nothing_measured_is_inconclusive(kind, n):
    """A perfect value over no units is no data."""
    at = limit(0.0, worst=0.0)
    judged = verdict(kind, measured(0.0, n=n, worst_value=0.0), at, noise=FLOOR)

    assert judged.outcome == "INCONCLUSIVE"
    assert judged.reason == f"n = {n} prompts: nothing was measured"


def test_one_unit_is_enough_for_a_deterministic_gate():
    """The edge of the rule above."""
    assert verdict("exact", measured(0.0, n=1), limit(0.0)).outcome == "PASS"


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
def test_a_limit_that_is_no_number_is_refused(value):
    """In either of its two places."""
    with pytest.raises(SuiteError, match="a limit must be a finite number"):
        verdict("bound", measured(0.0), limit(value))
    with pytest.raises(SuiteError, match="a limit must be a finite number"):
        verdict("three_way", measured(0.0, worst_value=0.0), limit(1.0, worst=value))


def test_weight_without_interval_is_inconclusive():
    """A statistical gate is not settled by a bare number."""
    judged = verdict("bound", measured(0.0), limit(1.0), alpha_share=SHARE)

    assert judged.outcome == "INCONCLUSIVE"
    assert judged.reason == (
        "the suite gives this gate a weight, but its measurement has no interval"
    )


def test_interval_without_weight_is_inconclusive():
    """A gate with no share of alpha cannot use a lower limit."""
    judged = verdict(
        "bound", measured(0.0, interval=interval(0.0, 0.0)), limit(1.0), alpha_share=0.0
    )

    assert judged.outcome == "INCONCLUSIVE"
    assert judged.reason == (
        "the measurement has an interval, but the suite gives this gate the weight 0"
    )


@pytest.mark.parametrize(
    "levels",
    [{"low_level": math.nextafter(1 - SHARE, 0)}, {"high_level": math.nextafter(0.95, 0)}],
)
def test_too_weak_an_interval_is_a_fault_of_ours(levels):
    """It is no verdict, so it is an error."""
    weak = measured(0.0, interval=interval(0.0, 0.0, **levels))
    with pytest.raises(ValueError, match="interval at levels"):
        verdict("bound", weak, limit(1.0))


def test_a_stronger_interval_than_asked_for_is_welcome():
    """Equal levels pass elsewhere; higher ones do too."""
    strong = measured(0.0, interval=interval(0.0, 0.0, low_level=1.0, high_level=0.99))

    assert verdict("bound", strong, limit(1.0)).outcome == "PASS"


def test_beta_sets_the_upper_level():
    """beta = 0.1 asks for 90 % only."""
    loose = measured(0.0, interval=interval(0.0, 0.0, high_level=0.9))

    assert verdict("bound", loose, limit(1.0), beta=0.1).outcome == "PASS"


def test_a_failing_yardstick_does_not_blame_cand():
    """Its FAIL is INCOMPARABLE, its PASS and INCONCLUSIVE stay."""
    broken = verdict("exact", measured(2.0), limit(0.0), name="yardstick.aa")
    fine = verdict("exact", measured(0.0), limit(0.0), name="yardstick.aa")

    assert broken.outcome == "INCOMPARABLE"
    assert broken.reason is not None
    assert broken.reason.startswith("2 nats where exactly 0 nats is demanded")
    assert fine.outcome == "PASS"


def test_the_budget_of_an_exact_gate_bounds_its_count():
    """A declared deviation may move three experts of four, not five."""
    inside = verdict("exact", measured(4.0), limit(4.0), deviation="prefill-fp8")
    fewer = verdict("exact", measured(3.0), limit(4.0), deviation="prefill-fp8")
    outside = verdict("exact", measured(5.0), limit(4.0), deviation="prefill-fp8")

    assert (inside.outcome, fewer.outcome, outside.outcome) == ("PASS", "PASS", "FAIL")
    assert (inside.kind, inside.deviation) == ("bound", "prefill-fp8")
    assert verdict("exact", measured(3.0), limit(4.0)).outcome == "FAIL"


def test_a_budget_keeps_every_other_kind():
    """noise_ratio stays noise_ratio."""
    judged = verdict("noise_ratio", measured(3.0), limit(4.0), noise=FLOOR, deviation="state-bf16")

    assert (judged.kind, judged.outcome) == ("noise_ratio", "PASS")


def test_the_verdict_repeats_what_it_was_made_from():
    """A reader of the verdict needs no other record."""
    measurement = measured(0.7, interval=interval(0.6, 0.8))
    gate = spec("bound", weight=2.0)
    judged = judge(
        gate,
        measurement=measurement,
        limit=LIMIT,
        noise=FLOOR,
        alpha_share=SHARE,
        rerun="validate compare --only logits.kl_p90",
    )

    assert judged.gate == "logits.kl_p90"
    assert judged.kind == "bound"
    assert judged.measurement is measurement
    assert judged.limit is LIMIT
    assert judged.noise is FLOOR
    assert judged.alpha_share == SHARE
    assert judged.rerun == "validate compare --only logits.kl_p90"
    assert judged.deviation is None


@pytest.mark.parametrize(
    ("outcomes", "expected"),
    [
        ("PASS", "PASS"),
        ("PASS INCONCLUSIVE", "INCONCLUSIVE"),
        ("PASS INCONCLUSIVE FAIL", "FAIL"),
        ("PASS INCONCLUSIVE FAIL INCOMPARABLE", "INCOMPARABLE"),
        ("INCOMPARABLE PASS", "INCOMPARABLE"),
    ],
)
def test_the_gravest_outcome_wins(outcomes, expected):
    """4, 1, 3, 0."""
    assert gravest([Outcome(name) for name in outcomes.split()]) == expected
    assert set(GRAVITY) == set(Outcome)


def test_no_outcome_is_no_pass():
    """An empty run is an error."""
    with pytest.raises(ValueError, match="no gate was judged"):
        gravest([])


def test_findings_add_up():
    """Reasons are joined, the first number stays."""
    fail = Finding(Outcome.FAIL, "a", 1.0)
    open_ = Finding(Outcome.INCONCLUSIVE, "b", 2.0)
    fine = Finding(Outcome.PASS, None, 3.0)

    assert worst_of(fail, open_) == Finding(Outcome.FAIL, "a; b", 1.0)
    assert worst_of(open_, fail) == Finding(Outcome.FAIL, "b; a", 2.0)
    assert worst_of(fine, open_) == Finding(Outcome.INCONCLUSIVE, "b", 3.0)
    assert worst_of(fine, fine) == Finding(Outcome.PASS, None, 3.0)


def test_wording():
    """Four significant digits, units where there are any."""
    assert number(0.0142345, "nats") == "0.01423 nats"
    assert number(12345.678) == "1.235e+04"
    assert percent(0.99975) == "99.975 %"
    assert counted(measured(0.0)) == "n = 40 prompts"
