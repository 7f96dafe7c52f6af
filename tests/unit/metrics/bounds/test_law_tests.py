"""Which units each test of the sampler's law is made of, and its share of the level."""

from dataclasses import fields
from typing import Any

import numpy as np
import pytest

from tests.measured import assert_measured
from validate.metrics._spec_streams import Drawn, SpecSide, Steps, Tokens
from validate.metrics.speculative_acceptance_z import (
    _impossible,
    _tests as acceptance_tests,
)
from validate.metrics.speculative_uniform import _tests as uniform_tests
from validate.stats import skewed_z

SIDE = SpecSide(label="rocm", key=5, prompts=(), kinds={}, rule="chain", vocab=2)
PLAIN, ACCEPTED, RESAMPLED, BONUS = range(4)


def made(record, n, **columns) -> Any:
    return record(**{f.name: np.asarray(columns.get(f.name, np.zeros(n))) for f in fields(record)})


def tokens(n=400):
    """In turn accepted, accepted, resampled, bonus; q is unknown for a bonus token."""
    at = np.arange(n)
    falls = np.zeros((n, 2, 2, 2))
    falls[..., 1] = 0.5
    outcome = np.choose(at % 4, [ACCEPTED, ACCEPTED, RESAMPLED, BONUS])
    falls[outcome == BONUS, 1, 1] = np.nan
    return made(
        Tokens,
        n,
        label=np.zeros(n, int),
        index=at,
        position=at,
        outcome=outcome,
        row=at % 2,
        falls=falls,
        entropy=at / n + 1,
        group=np.zeros(n, int),
    )


def counted(found):
    return {one.name: one.test.n for one in found}


def weights(found):
    return {one.name: one.weight for one in found}


class TestUniform:
    def test_without_drafts(self):
        """Level 0.8: 0.6 of it pooled; 0.4 over three ways: four quarters, four quarters, one set."""
        drawn = Drawn(kind="sampled", tokens=tokens(), steps=None, groups=("T 1",))

        found = uniform_tests(SIDE, drawn, 0.8)

        assert counted(found)["sampled, p falling"] == 400
        assert sorted(counted(found).values()) == [100] * 8 + [400] * 2
        assert_measured(weights(found)["sampled, p falling"], 0.48, atol=1e-12, rtol=0)
        assert_measured(
            weights(found)["sampled, parameters T 1, p falling"], 0.32 / 3, atol=1e-12, rtol=0
        )
        assert_measured(sum(weights(found).values()), 0.8, atol=1e-12, rtol=0)

    def test_with_drafts_each_outcome_has_its_own_law(self):
        drawn = Drawn(
            kind="spec",
            tokens=tokens(),
            steps=made(Steps, 0, accepts=np.zeros((0, 1))),
            groups=("T 1",),
        )

        found = uniform_tests(SIDE, drawn, 1.0)

        n, weight = counted(found), weights(found)
        assert {name: n[name] for name in list(n)[:7]} == {
            "spec, p falling": 400,
            "spec, q/p falling": 400,
            "spec, accepted, own law, p falling": 200,
            "spec, accepted, own law, q/p falling": 200,
            "spec, resampled, own law, p falling": 100,
            "spec, resampled, own law, q/p falling": 100,
            "spec, bonus, own law, p falling": 100,
        }
        assert_measured(weight["spec, p falling"], 0.3, atol=1e-12, rtol=0)
        assert_measured(weight["spec, bonus, own law, p falling"], 0.3 / 6, atol=1e-12, rtol=0)
        # Four ways share 0.4; two rows, each in two orders.
        assert (n["spec, row 0, p falling"], n["spec, row 1, q/p falling"]) == (200, 100)
        assert_measured(weight["spec, row 0, p falling"], 0.4 / 4 / 4, atol=1e-12, rtol=0)
        assert_measured(sum(weight.values()), 1.0, atol=1e-12, rtol=0)


def steps(n=400, **changes):
    """Two drafts a step; the second is reached where the first was accepted, in half of them."""
    first = np.arange(n) % 2 == 0
    columns = {
        "prompt": np.zeros(n, int),
        "step": np.arange(n),
        "place": np.arange(n),
        "accepts": np.stack([first, np.zeros(n, bool)], axis=1).astype(int),
        "limit": np.full(n, 2),
        "count": first.astype(int),
        "expected": np.full((n, 2), 0.5),
        "drafted_p": np.full((n, 2), 0.25),
        "drafted_q": np.full((n, 2), 0.5),
        "label": np.zeros(n, int),
    }
    return made(Steps, n, **(columns | changes))


def test_a_draft_is_accepted_with_chance_p_over_q_at_most_1():
    """0.25 / 0.5; 0.5 / 0.25 is 1. Of a verifier that asks p alone: p."""
    held = steps(1, drafted_p=np.array([[0.25, 0.5]]), drafted_q=np.array([[0.5, 0.25]]))

    assert held.chances("chain").tolist() == [[0.5, 1.0]]
    assert held.chances("target_only").tolist() == [[0.25, 0.5]]


class TestAcceptance:
    def test_all_rows_depths_and_coins(self):
        found = list(acceptance_tests(SIDE, "spec", steps(), 1.0))

        n, statistic = counted(found), {one.name: one.test.statistic for one in found}
        assert {name: n[name] for name in ("spec", "spec, draft 1", "spec, draft 2")} == {
            "spec": 600,
            "spec, draft 1": 400,
            "spec, draft 2": 200,
        }
        assert [count for name, count in n.items() if "depth" in name] == [150] * 4
        assert n["spec, coins"] == 600
        assert statistic["spec, draft 1"] == 0.0
        # 0 of 200 where 100 were expected, deviation sqrt(200 / 4).
        assert_measured(statistic["spec, draft 2"], -100 / np.sqrt(50), atol=1e-9, rtol=0)
        assert_measured(sum(weights(found).values()), 1.0, atol=1e-12, rtol=0)

    def test_the_third_moment_of_a_rare_acceptance(self):
        """Chance 1/4: variance 3/16 and third moment 3/16 x (1 - 2/4) = 3/32 a draft."""
        rare = steps(expected=np.full((400, 2), 0.25))
        moved = np.concatenate([np.full(200, 0.75), np.full(400, -0.25)])

        by_name = {one.name: one.test for one in acceptance_tests(SIDE, "spec", rare, 1.0)}

        expected = skewed_z(moved, np.full(600, 3 / 16), 600 * 3 / 32)
        assert expected.p_value is not None
        assert_measured(by_name["spec"].p_value, expected.p_value, atol=0, rtol=1e-9)
        assert_measured(by_name["spec"].statistic, expected.statistic, atol=1e-9, rtol=0)

    @pytest.mark.parametrize("certain", [0.0, 0.5], ids=["chance 0", "chance 1"])
    def test_coins_that_could_not_fall_either_way_say_nothing(self, certain):
        p = np.full((400, 2), 0.25)
        p[:100] = certain

        found = counted(acceptance_tests(SIDE, "spec", steps(drafted_p=p), 1.0))

        assert (found["spec"], found["spec, coins"]) == (600, 450)

    @pytest.mark.parametrize(
        ("expected", "count"), [(0.0, 3), (1.0, 7), (0.5, 0)], ids=["never", "always", "either"]
    )
    def test_what_could_not_be(self, expected, count):
        """Ten first drafts, three of them accepted, and no second one reached."""
        accepts = np.zeros((10, 2), int)
        accepts[:3, 0] = 1
        chance = np.full((10, 2), expected)

        found = _impossible(
            steps(
                10, accepts=accepts, count=accepts[:, 0], limit=np.ones(10, int), expected=chance
            ),
            "spec",
        )

        if count == 0:
            assert found is None
            return
        assert found is not None
        name, test = found
        assert name == "spec, impossible decisions"
        assert (test.p_value, test.statistic, test.n, test.estimate) == (0.0, count, 10, count / 10)
