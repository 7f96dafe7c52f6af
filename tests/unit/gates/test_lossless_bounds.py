"""``lossless`` where rounding is allowed for, and what more units would do."""

import pytest

from tests.unit.gates.test_lossless import judged, seen
from validate.schema.verdict import Outcome


def test_more_units_go_with_the_square_of_the_effect():
    """1000 x (0.9 / 0.3)^2 x 1.05 = 9450."""
    assert "about 9450 needed" in (judged(0.5, effect=0.9).reason or "")


def test_rounding_lets_no_small_level_through():
    """Power at 1e-10 for a test at 1e-12: a hundred times looser, though both are nearly 0."""
    with pytest.raises(ValueError, match=r"at alpha 1e-10 for 0\.95, asked for 1e-12"):
        judged(0.5, share=1e-12, detection=seen(0.1, alpha=1e-10))


@pytest.mark.parametrize("changes", [{"alpha": 0.0025 * (1 + 5e-10)}, {"power": 0.95 - 5e-10}])
def test_a_rounding_error_is_no_looser_test(changes):
    assert judged(0.5, detection=seen(0.1, **changes)).outcome is Outcome.PASS
