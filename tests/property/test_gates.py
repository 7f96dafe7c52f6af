"""Laws that every gate keeps whatever it is given."""

import math

from hypothesis import given, settings, strategies as st

from tests.unit.gates.made import SHARE, floor, interval, limit, measured, spec
from validate.gates import judge
from validate.schema.measurement import Measurement
from validate.schema.verdict import Limit, NoiseFloor, Verdict

KINDS = st.sampled_from(["exact", "bound", "noise_ratio", "three_way"])
ANY = st.floats(allow_nan=True, allow_infinity=True)
SIZE = st.floats(min_value=0, max_value=1e6)
MAYBE = st.none() | ANY
NOISE = st.none() | SIZE
"""The value of a floor, built in the test: beartype draws random numbers, strategies may not."""


def ruled(kind: str, found: Measurement, at: Limit, noise: NoiseFloor | None) -> Verdict:
    share = 0.0 if found.interval is None else SHARE
    return judge(
        spec(kind), measurement=found, limit=at, noise=noise, alpha_share=share, rerun="again"
    )


@given(kind=KINDS, value=ANY, low=MAYBE, high=MAYBE, worst=MAYBE, at=SIZE, noise=NOISE)
@settings(max_examples=300, deadline=None)
def test_a_pass_is_finite_and_inside(kind, value, low, high, worst, at, noise):
    """No NaN, no infinity and no missing number ever passes."""
    known = None if noise is None else floor(noise)
    for between in (None, interval(low, high)):
        found = measured(value, interval=between, worst_value=worst)
        verdict = ruled(kind, found, limit(at, worst=at), known)

        assert (verdict.reason is None) == (verdict.outcome == "PASS")
        if verdict.outcome != "PASS":
            continue
        assert math.isfinite(value)
        judged = value if between is None else high
        unit = noise if kind == "noise_ratio" else 1.0
        assert kind == "exact" or judged / unit <= at
        assert kind != "exact" or value == at
        assert kind != "three_way" or worst <= at


@given(kind=st.sampled_from(["bound", "noise_ratio"]), value=SIZE, at=SIZE, more=SIZE, noise=NOISE)
@settings(max_examples=300, deadline=None)
def test_a_wider_limit_never_turns_pass_into_fail(kind, value, at, more, noise):
    """And a narrower one never FAIL into PASS."""
    known = None if noise is None else floor(noise)
    narrow = ruled(kind, measured(value), limit(at), known).outcome
    wide = ruled(kind, measured(value), limit(at + more), known).outcome

    assert not (narrow == "PASS" and wide == "FAIL")


@given(kind=KINDS, n=st.integers(max_value=0))
def test_no_units_never_pass(kind, n):
    """However good the value."""
    found = measured(0.0, n=n, worst_value=0.0)

    assert ruled(kind, found, limit(0.0, worst=0.0), floor(1.0)).outcome == "INCONCLUSIVE"
