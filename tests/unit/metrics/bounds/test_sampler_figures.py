"""Strata, words and figures of the speculative metrics where the first tests had one case alone."""

from dataclasses import fields
from typing import Any

import numpy as np
import pytest

from tests.layers import LEVELS
from tests.measured import assert_measured
from tests.unit.metrics.spec_made import VARIANCE, all_stepped, drafted, fair, pair, side
from tests.unit.metrics.test_topk_captures import flipped
from validate.metrics._spec_streams import Drawn, Tokens
from validate.metrics._spec_tests import strata_of
from validate.metrics.speculative_acceptance_z import speculative_acceptance_z
from validate.metrics.speculative_health import speculative_health
from validate.metrics.speculative_nonfinite import speculative_nonfinite
from validate.metrics.speculative_serial import speculative_serial
from validate.metrics.speculative_surprisal import speculative_surprisal
from validate.metrics.top1_flips import top1_flips
from validate.schema import Levels

KIND = "spec-sampled"


def test_a_value_on_an_edge_belongs_to_the_part_below():
    """Half of 200 tokens at depth 1, half at 2: quartiles 1, 1.5 and 2."""
    columns: dict[str, Any] = {field.name: np.zeros(200) for field in fields(Tokens)}
    columns["position"] = np.arange(200) % 2 + 1
    columns["group"] = np.zeros(200, int)
    drawn = Drawn(kind="k", tokens=Tokens(**columns), steps=None, groups=("T 1",))

    depth = strata_of(drawn)[1]

    assert [(name, int(mask.sum())) for name, mask in depth.groups] == [
        ("depth -inf to 1", 100),
        ("depth 1.5 to 2", 100),
    ]


def test_the_worst_test_shows_its_statistic():
    found = speculative_surprisal(pair(side({"sampled": fair(60, zeros=1.0)})), LEVELS)

    assert found.worst is not None
    assert f" {found.breakdown['sampled.z']:.4g} over 480 " in str(found.worst.detail)


@pytest.mark.parametrize(("alike", "told"), [(20, True), (12, False)])
def test_a_shift_is_told_beyond_four_deviations(alike, told):
    """20 of 200 is 0.1 with deviation sqrt(0.09 / 200): 4.7 of them; 12 of 200 is 3.6."""
    streams = {"p-0": drafted([0] * 200)}
    tokens = np.arange(201) % 50
    drafts = 100 + np.arange(200) % 7
    drafts[10 : 10 + alike] = np.roll(tokens, -2)[10 : 10 + alike]
    streams["p-0"] |= {"tokens": tokens, "drafts": drafts[:, None]}

    found = speculative_health(pair(side({KIND: streams})), LEVELS)

    assert ("shifted by +1" in (found.pattern or "")) is told
    assert "shifted by -1" not in (found.pattern or "")


def test_greedy_steps_are_no_draws():
    """Both kinds drafted the same; at T = 0 a draft is accepted with chance 1 or 0."""
    warm, cold = drafted((1, 0) * 30), drafted([1] * 60, expected=1.0)
    both = speculative_acceptance_z(
        pair(side({KIND: {"p-0": warm}, "spec-greedy": {"p-0": cold}})), LEVELS
    )
    alone = speculative_acceptance_z(pair(side({KIND: {"p-0": warm}})), LEVELS)

    assert both.n == alone.n == 60
    assert both.n_of == alone.n_of
    assert both.value == alone.value
    assert both.detection == alone.detection


def test_twenty_steps_are_enough_for_health():
    found = speculative_health(pair(side({KIND: {"p-0": drafted((1, 0) * 10)}})), LEVELS)

    assert (found.n, found.value) == (20, 1.0)  # its one ailment: every draft is token 0


def test_a_negative_id_is_no_id():
    streams = fair(5)
    streams["p-1"]["tokens"][2] = -1

    found = speculative_nonfinite(pair(side({"sampled": streams})), LEVELS)

    assert found.breakdown["cand.sampled.tokens"] == 1.0


def test_two_kinds_share_the_level():
    """0.001 x 0.6 / 2 two-sided: 3.6153 + 1.6449; serial 0.001 x 0.4 / 2: 3.7190 + 1.6449."""
    levels = Levels(low=0.999, high=0.95)
    two = pair(side({"sampled": fair(60), KIND: all_stepped(fair(60, seed=4))}))

    surprise, serial = speculative_surprisal(two, levels), speculative_serial(two, levels)

    assert surprise.detection is not None
    assert serial.detection is not None
    expected = 5.2602 / np.sqrt(480 * VARIANCE), 5.3639 / np.sqrt(472)
    found = surprise.detection.effect, serial.detection.effect
    assert_measured(found, expected, atol=0, rtol=1e-4)


def test_a_flip_that_is_certain_leaves_nothing_open():
    found = top1_flips(flipped(3, near_tie=0.1), LEVELS)

    assert (found.value, found.upper, found.why_open) == (1.0, 1.0, None)
