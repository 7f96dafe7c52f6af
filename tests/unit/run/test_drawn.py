"""Streams cut to a number of tokens: evenly, by place alone, steps and rows with them."""

from typing import Any, ClassVar

import numpy as np
import pytest

from tests.fakes import make_manifest, make_prompt
from validate.run.drawn import shorten
from validate.schema import Prompt, Stream

STEP = np.array([-1, 0, 0, 0, 1, 1, 2])
"""One plain token, then steps of three, two and one token."""


class Whole:
    """Three prompts with seven tokens of two kinds."""

    label, manifest = "cand", make_manifest()
    streams: ClassVar[dict[str, Stream]] = {}
    prompts: ClassVar[dict[str, Prompt]] = {name: make_prompt(name, [1, 2]) for name in "abc"}

    @property
    def drawn(self) -> Any:
        kinds = ("sampled", "spec-greedy")
        return {kind: {p: stream(p, kind) for p in "abc"} for kind in kinds}

    def names(self, prompt: str) -> tuple[str, ...]:
        return ("logits", "spec.sampled.count", "spec.sampled.step", "spec.sampled.verify.logits")

    def tensor(self, prompt: str, name: str) -> Any:
        return {"step": STEP, "count": np.array([2, 1, 0]), "drafts": np.zeros((3, 7))}.get(
            name.rpartition(".")[2], np.zeros((7, 5))
        )

    def axes(self, prompt: str, name: str) -> tuple[str, ...]:
        last = name.rpartition(".")[2]
        return (
            ("steps",)
            if last in ("count", "drafts")
            else ("rows",)
            if "log" in last
            else ("tokens",)
        )


def stream(prompt: str, kind: Any) -> Stream:
    return Stream(
        prompt=prompt,
        kind=kind,
        token_ids=tuple(range(7)),
        logprobs=(-1.0,) * 7,
        finish_reason="length",
        batch_row=0,
        batch_size=3,
    )


def lengths(side: Any, kind: str) -> list[int]:
    return [len(one.token_ids) for one in side.drawn[kind].values()]


@pytest.mark.parametrize(
    ("tokens", "kept"), [(7, [3, 2, 2]), (9, [3, 3, 3]), (2, [1, 1, 0]), (999, [7, 7, 7])]
)
def test_tokens_are_spread_evenly_over_prompts(tokens: int, kept: list[int]) -> None:
    side = shorten(Whole(), tokens)

    assert lengths(side, "sampled") == kept
    assert [len(side.tensor(p, "spec.sampled.step")) for p in "abc"] == kept


def test_streams_at_temperature_zero_and_other_tensors_stay_whole() -> None:
    side = shorten(Whole(), 3)

    assert lengths(side, "spec-greedy") == [7, 7, 7]
    assert len(side.tensor("a", "logits")) == 7
    assert len(side.tensor("a", "spec.spec-greedy.step")) == 7


@pytest.mark.parametrize(("kept", "steps"), [(1, 0), (2, 1), (4, 1), (5, 2), (7, 3)])
def test_steps_that_emitted_a_kept_token_are_kept(kept: int, steps: int) -> None:
    """Tokens 1 to 3 are of step 0, 4 and 5 of step 1, 6 of step 2."""
    side = shorten(Whole(), 3 * kept)

    assert len(side.tensor("b", "spec.sampled.count")) == steps
    assert len(side.tensor("b", "spec.sampled.verify.logits")) == kept


def test_prompts_that_do_not_count_take_no_share() -> None:
    side = shorten(Whole(), 4, prompts=("a", "c"))

    assert lengths(side, "sampled") == [2, 7, 2]
