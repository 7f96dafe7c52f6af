"""Captures made for an explanation: batches as they were, one switch, faults without a site."""

from pathlib import Path
from typing import Any

import pytest

from tests.fakes import FakeSide, make_manifest, make_prompt
from validate.capture.digest import prompt_set_digest
from validate.capture.reader import CaptureReader
from validate.errors import InputError
from validate.run import explain_capture
from validate.run.explain_capture import Studio, batch_of, retagged, seen_as

PROMPTS = {
    name: make_prompt(name, [1, 2, 3], tags=tags)
    for name, tags in (
        ("a", ("tensors", "speculative")),
        ("b", ()),
        ("c", ("state",)),
        ("d", ()),
        ("e", ()),
    )
}
ROWS = {"a": 0, "b": 1, "c": 0, "d": 1, "e": 2}


def held() -> FakeSide:
    """Two batches: a and b; c, d and e."""
    tensors: dict[str, dict[str, Any]] = {name: {} for name in PROMPTS}
    manifest = make_manifest("rocm", tensors=tensors, batch_rows=ROWS)
    return FakeSide("rocm", tensors, prompts=PROMPTS, manifest=manifest)


@pytest.mark.parametrize(
    ("prompt", "batch"), [("a", "ab"), ("b", "ab"), ("c", "cde"), ("e", "cde")]
)
def test_a_batch_ends_where_the_row_starts_anew(prompt, batch):
    assert batch_of(held(), prompt) == tuple(batch)


def test_a_prompt_of_nowhere_stands_alone():
    assert batch_of(held(), "z") == ("z",)


def test_prompts_are_captured_for_one_purpose():
    plain = retagged(list(PROMPTS.values()), drawn=False)
    inside = retagged(list(PROMPTS.values()), drawn=True, inside=True)

    assert [prompt.tags for prompt in plain] == [("tensors",), (), ("state",), (), ()]
    assert inside[0].tags == ("tensors", "state", "speculative")
    assert inside[1].tags == ("tensors", "state")


def test_a_stored_side_is_seen_with_the_tags_of_the_new_captures():
    asked = retagged([PROMPTS["a"], PROMPTS["c"]], drawn=False)
    seen = seen_as(held(), asked)

    assert list(seen.prompts) == ["a", "c"]
    assert seen.prompts["a"].tags == ("tensors",)
    assert seen.manifest.prompt_digest == prompt_set_digest(asked)


def opened(path: Path, *, label: str) -> CaptureReader:
    """A capture that holds nothing."""
    return CaptureReader(
        label=label,
        path=path,
        digest="",
        manifest=make_manifest(label),
        prompts={},
        streams={},
        drawn={},
        timing={},
        _places={},
        _sorted={},
    )


class Recorder:
    """Stands for ``record_path``: notes what it is asked for, refuses a fault where told to."""

    def __init__(self, refuses: str = "") -> None:
        self.refuses = refuses
        self.made: list[tuple[str, dict[str, str], str, str]] = []

    def __call__(self, path, *, options, label, prompts, out, progress, **rest):
        if "fault" in options and self.refuses and self.refuses in label:
            msg = f"fault={options['fault']} has no site here: {self.refuses}\n  do next: another"
            raise InputError(msg)
        if options.get("splits") == "0":
            msg = "splits=0: at least 1 part of the keys is needed"
            raise InputError(msg)
        self.made.append((path, dict(options), label, out.name))
        progress(1, len(prompts), label)


def studio(tmp_path, monkeypatch, recorder):
    """A studio of ``rocm:fault=VX-01,kernels=torch`` that records nothing."""
    monkeypatch.setattr(explain_capture, "record_path", recorder)
    monkeypatch.setattr(explain_capture, "open_capture", opened)
    told: list[str] = []
    made = Studio(
        folder=tmp_path,
        path="rocm",
        options={"fault": "VX-01", "kernels": "torch"},
        ref_options={"dtype": "bfloat16"},
        device="cpu",
        progress=told.append,
    )
    return made, told


def test_cand_is_captured_with_one_option_more_and_each_thing_once(tmp_path, monkeypatch):
    recorder = Recorder()
    made, told = studio(tmp_path, monkeypatch, recorder)
    prompts = [PROMPTS["a"], PROMPTS["b"]]
    first = made.cand(prompts, {"splits": "1"})
    again = made.cand(prompts, {"splits": "1"})
    made.ref(prompts, {"draft": "off"})

    label = "rocm:fault=VX-01,kernels=torch,splits=1"
    assert first == again
    assert first[1] is None
    assert recorder.made == [
        ("rocm", {"fault": "VX-01", "kernels": "torch", "splits": "1"}, label, "0"),
        (
            "reference",
            {"dtype": "bfloat16", "draft": "off"},
            "reference:draft=off,dtype=bfloat16",
            "1",
        ),
    ]
    assert told[0] == f"explain: {label} captured, 1 of 2 prompts"


def test_a_fault_without_a_site_is_left_out_and_said(tmp_path, monkeypatch):
    recorder = Recorder(refuses="pad=zero")
    made, _ = studio(tmp_path, monkeypatch, recorder)
    _, note = made.cand([PROMPTS["a"]], {"pad": "zero"})

    assert note == "the planted fault VX-01 has no site there and is left out"
    assert recorder.made[0][1] == {"kernels": "torch", "pad": "zero"}


def test_the_reference_path_reads_no_option_of_the_other(tmp_path, monkeypatch):
    recorder = Recorder(refuses="reference")
    made, _ = studio(tmp_path, monkeypatch, recorder)
    made.cand([PROMPTS["a"]], {"pad": "tile"}, path="reference")

    assert [made[:3] for made in recorder.made] == [("reference", {}, "reference")]


def test_other_refusals_pass_through(tmp_path, monkeypatch):
    made, _ = studio(tmp_path, monkeypatch, Recorder())

    with pytest.raises(InputError, match="at least 1 part"):
        made.cand([PROMPTS["a"]], {"splits": "0"})
