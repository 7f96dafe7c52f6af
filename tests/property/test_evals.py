"""Laws that every comparison of evals keeps."""

import tempfile
from pathlib import Path

from hypothesis import given, settings, strategies as st

from tests.lm_eval_folders import text_samples
from tests.measured import known
from tests.unit.metrics.evals_made import LEVELS, paired
from validate.metrics import METRICS
from validate.schema import Levels
from validate.stats import drop_limits

COUNTS = st.integers(0, 60)


@given(lost=COUNTS, gained=COUNTS, rest=st.integers(0, 400), level=st.floats(0.5, 0.9999))
def test_limits_hold_what_was_seen_and_grow_with_the_level(
    lost: int, gained: int, rest: int, level: float
) -> None:
    """low <= seen <= high, and a higher level moves both limits outwards."""
    n = lost + gained + rest
    if n == 0:
        return
    seen = (lost - gained) / n
    found = drop_limits(lost, gained, n, levels=Levels(low=level, high=level))
    wider = drop_limits(lost, gained, n, levels=Levels(low=0.99995, high=0.99995))

    low, high = known(found.low), known(found.high)

    assert low <= seen + 1e-9
    assert seen <= high + 1e-9
    assert known(wider.low) <= low + 1e-9
    assert known(wider.high) >= high - 1e-9


@given(flips=st.lists(st.tuples(st.booleans(), st.booleans()), min_size=1, max_size=40))
@settings(max_examples=15, deadline=None)
def test_swapped_sides_turn_the_sign_and_rows_do_not_matter(
    flips: list[tuple[bool, bool]],
) -> None:
    """drop(ref, cand) = -drop(cand, ref), whatever the order of cand's lines."""
    ref = text_samples([int(a) for a, _ in flips], filters=["none"])
    cand = text_samples([int(b) for _, b in flips], filters=["none"])
    measure = METRICS["evals.score_drop"]
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        there = measure(paired(root / "a", {"t": ref}, {"t": cand}), LEVELS).value
        back = measure(paired(root / "b", {"t": cand}, {"t": ref}), LEVELS).value
        turned = measure(paired(root / "c", {"t": ref}, {"t": cand[::-1]}), LEVELS).value

    assert abs(known(there) + known(back)) < 1e-9
    assert turned == there
