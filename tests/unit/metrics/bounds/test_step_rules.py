"""Steps of an exact run: their shapes and positions, and what is left out with which input."""

from typing import Any

import numpy as np
import pytest

from tests.exact_runs import PROMPTS, WEIGHTS, ran, side, without
from tests.fakes import make_pair
from tests.logit_cases import LEVELS
from tests.measured import assert_measured
from tests.unit.oracle.tiny import TINY
from validate.metrics._own_steps import OwnStep, own_steps
from validate.metrics.attention_introduced_ratio import attention_introduced_ratio
from validate.schema import Measurement

EXACT = ran()


def steps(tensors: Any) -> dict[str, OwnStep]:
    held = tensors["p-0"]
    found = own_steps(held.__getitem__, tuple(held), PROMPTS["p-0"].token_ids, WEIGHTS, TINY)
    return {step.name: step for step in found}


@pytest.mark.parametrize(
    ("name", "shape", "positions"),
    [
        ("prefill.mla.1.out", (8, 3, 6), list(range(8))),
        ("prefill.hidden.1", (8, 1, 10), list(range(8))),
        ("state.oneshot.kda.0", (1, 3, 16), [7]),
        ("state.decode.kda.0", (1, 3, 16), [7]),
        ("state.decode.conv.0", (1, 3, 36), [7]),
    ],
)
def test_shapes_and_positions(name: str, shape: tuple[int, ...], positions: list[int]) -> None:
    """Eight tokens, three heads of six values; states of 4 x 4 a head and of q, k, v, 12 x 3 each."""
    step = steps(EXACT)[name]

    assert step.got.shape == step.truth.shape == shape
    assert step.positions.tolist() == positions


def test_states_that_were_not_captured_are_left_out() -> None:
    modules = {step.module for step in steps(without(EXACT, "state.")).values()}

    assert modules == {"AttnRes", "MLA", "KDA", "MoE", "MLP", "router", "head"}


def test_nothing_follows_from_an_output_that_was_not_captured() -> None:
    found = steps(without(EXACT, "prefill.kda.0.out"))

    assert "prefill.hidden.0" not in found
    assert "decode.hidden.0" in found


def test_logits_that_were_not_captured_are_left_out() -> None:
    assert all(step.module != "head" for step in steps(without(EXACT, "logits")).values())


def test_no_truth_is_made_of_a_hidden_state_that_is_not_finite() -> None:
    """The input of layer 2 is captured and finite, what it should be is not known."""
    held = dict(EXACT["p-0"])
    held["prefill.hidden.1"] = held["prefill.hidden.1"].copy()
    held["prefill.hidden.1"][0, 0] = np.nan
    found = steps({"p-0": held})

    assert "prefill.hidden.1" in found
    assert "prefill.attn.2.in" not in found
    assert "prefill.kda.2.out" in found


class TestLogSumExps:
    def measured(self, ref: Any, cand: Any) -> Measurement:
        pair = make_pair(
            side("cuda", ref), side("rocm", cand), weights=WEIGHTS, config=TINY.model_dump()
        )
        return attention_introduced_ratio(pair, LEVELS)

    def test_each_side_has_its_largest_distance_from_the_oracle(self) -> None:
        """Ref is off by 0.25 in one place and cand by 0.5 in another; float32 by 1e-6."""
        bent = []
        for name, off in (("prefill.mla.1.lse", 0.25), ("decode.mla.4.lse", -0.5)):
            held = {prompt: dict(tensors) for prompt, tensors in EXACT.items()}
            held["p-1"][name] = held["p-1"][name].copy()
            held["p-1"][name][1, 2] += off
            bent.append(held)
        found = self.measured(*bent).breakdown

        assert_measured([found["lse ref"], found["lse cand"]], [0.25, 0.5], atol=1e-5, rtol=0)

    def test_log_sum_exps_need_not_be_captured(self) -> None:
        bare = without(EXACT, ".lse")
        found = self.measured(bare, bare)

        assert found.value == 1.0
        assert (found.breakdown["lse ref"], found.breakdown["lse cand"]) == (0.0, 0.0)
