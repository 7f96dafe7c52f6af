"""Faults in the drafter's arithmetic: drafts move, the text of a greedy request does not."""

import pytest
import torch

from tests.measured import assert_measured
from tests.unit.models.small import rocm
from tests.unit.models.speculation import COLD, spec_streams
from validate.models.dspark import _rotated


def both(fault: str):
    return (spec_streams(rocm(fault=f, splits=2), [COLD] * 3, tokens=8) for f in (None, fault))


@pytest.mark.parametrize("fault", ["SP-12", "LC-07"])
def test_the_first_block_already_differs(fault):
    (clean, a), (planted, b) = both(fault)

    assert clean == planted
    assert not torch.allclose(a[0].draft_logits, b[0].draft_logits, atol=1e-6)


def test_nd04_spares_the_first_block_and_drafts_late_from_then_on():
    (clean, a), (planted, b) = both("ND-04")

    assert clean == planted
    assert torch.equal(a[0].draft_logits, b[0].draft_logits)
    assert not torch.allclose(a[1].draft_logits, b[1].draft_logits, atol=1e-6)


def test_lc07_is_right_at_position_0_and_drifts_with_it():
    """Frequencies 1 and 1/100 of theta 10,000: 1001 is 1000 in bfloat16, 0.01 is 0.010009765625."""
    x = torch.tensor([1.0, 1.0, 0.0, 0.0]).expand(1, 1, 3, 4)
    places = torch.tensor([[0, 100, 1001]])
    clean = _rotated(x, places, 10_000.0)
    planted = _rotated(x, places, 10_000.0, "LC-07")

    def angles(made):
        return torch.atan2(made[0, 0, :, 2:], made[0, 0, :, :2])

    assert torch.equal(planted[:, :, 0], clean[:, :, 0])
    apart = (angles(planted) - angles(clean)).double()
    assert_measured(apart[1], [0.0, 100 * 0.010009765625 - 1.0], atol=4e-3, rtol=0.0)
    assert abs(apart[2, 0]) > 0.5
