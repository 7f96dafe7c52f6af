"""What a measurement does not say is left out of the reason, and rounding stops at its edge."""

import dataclasses

from tests.unit.gates.made import SHARE, interval, limit, measured
from validate.gates import lossless, noninferior
from validate.schema import Worst
from validate.schema.measurement import Detection
from validate.schema.verdict import Outcome

AT = limit(0.3, basis="share of tokens drawn from the argmax")
SEEN = Detection(effect=0.2, alpha=SHARE, power=0.95, method="z")
TANGO = "Tango score (lower limit exact, conditional)"


def p_value(value: float, detection: Detection | None = SEEN, **changes):
    return measured(
        value, n=1000, n_of="sampled tokens", unit="p-value", detection=detection, **changes
    )


def test_without_power_nothing_is_shown():
    found = lossless.decide(p_value(0.5, None), limit=AT, alpha=SHARE, beta=0.05)

    assert found.outcome is Outcome.INCONCLUSIVE
    assert found.reason == "the measurement does not say what it would have seen"


def test_without_power_the_measurement_names_the_units():
    assert lossless.needed(p_value(0.5, None, n_needed=7), 0.3) == 7


def test_a_rejection_without_a_pattern_ends_with_its_count():
    found = lossless.decide(p_value(0.001), limit=AT, alpha=SHARE, beta=0.05)

    assert found.reason == "p = 0.001 is below the share of alpha 0.0025 (n = 1000 sampled tokens)"


def test_power_at_the_edge_of_rounding_is_that_of_the_suite():
    """The largest alpha and the least power that rounding of the suite's own may give."""
    alpha = SHARE * (1 + lossless.ROUNDING) + lossless.ROUNDING**2
    edge = dataclasses.replace(SEEN, alpha=alpha, power=1 - 0.05 - lossless.ROUNDING)

    assert lossless.mismatch(p_value(0.5), edge, SHARE, 0.05) is None


def drop(**changes):
    return measured(
        4.0,
        metric="evals.score_drop",
        unit="points",
        n=500,
        n_of="items of gsm8k",
        **{"interval": interval(2.0, 6.0, method=TANGO), **changes},
    )


def test_a_drop_without_an_interval_is_open():
    found = noninferior._against(drop(interval=None), 1.0)

    assert found.outcome is Outcome.INCONCLUSIVE
    assert found.reason == "there is no interval, so nothing is shown"


def test_a_drop_names_its_worst_place_and_nothing_that_is_not_known():
    found = noninferior._against(drop(worst=Worst(place="k3_copy", value=4.0)), 1.0)

    assert found.outcome is Outcome.FAIL
    assert found.reason is not None
    assert found.reason.endswith("(n = 500 items of gsm8k; k3_copy)")
