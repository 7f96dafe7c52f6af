"""A subset of a capture pairs and measures like a capture of those prompts alone."""

from pathlib import Path

import pytest

from tests.captures import make_prompt, make_tensors, write_capture
from validate.capture import Tensor, open_capture
from validate.capture.digest import prompt_set_digest
from validate.capture.subset import subset
from validate.errors import InputError
from validate.pairing import pair
from validate.schema import Prompt

PROMPTS = [make_prompt(n) for n in range(4)]
KEPT = ("p-003", "p-001")


def logits_of(prompt: Prompt) -> dict[str, Tensor]:
    made = make_tensors(prompt)
    return {name: made[name] for name in ("logits", "logits.positions")}


def test_subset_equals_a_capture_of_those_prompts_alone(tmp_path: Path) -> None:
    tensors = {prompt.id: logits_of(prompt) for prompt in PROMPTS}
    write_capture(tmp_path / "whole", PROMPTS, tensors=tensors)
    write_capture(tmp_path / "part", [PROMPTS[1], PROMPTS[3]], tensors=tensors)
    whole = open_capture(tmp_path / "whole", label="whole")
    part = open_capture(tmp_path / "part", label="part")

    chosen = subset(whole, KEPT)
    matched = pair(chosen, part, near_tie=0.0, route_gap=0.0)

    assert matched.prompts == ("p-001", "p-003")
    assert chosen.label == "whole"
    assert chosen.manifest.prompt_digest == prompt_set_digest([PROMPTS[1], PROMPTS[3]])
    assert set(chosen.streams) == set(chosen.manifest.batch_rows) == set(matched.prompts)
    named = {entry.name for file in chosen.manifest.artifacts for entry in file.tensors}
    assert {name.partition("/")[0] for name in named} == set(KEPT)
    for name in chosen.names("p-001"):
        assert chosen.axes("p-001", name) == part.axes("p-001", name)
        assert chosen.tensor("p-001", name).tobytes() == part.tensor("p-001", name).tobytes()


@pytest.mark.parametrize(
    ("kept", "said"),
    [((), "is asked for no prompt at all"), (("p-001", "p-9"), "lacks p-9; it has 4 prompts")],
)
def test_subset_of_nothing_or_of_strangers_is_refused(
    kept: tuple[str, ...], said: str, tmp_path: Path
) -> None:
    write_capture(tmp_path / "whole", PROMPTS)
    whole = open_capture(tmp_path / "whole", label="whole")

    with pytest.raises(InputError, match=said):
        subset(whole, kept)
