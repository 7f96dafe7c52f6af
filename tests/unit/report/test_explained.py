"""An explanation in every kind of report: complete, escaped, absent where none was asked for."""

import json

import pytest

from tests.pages import PAYLOAD, Page
from tests.unit.run.made import run, side
from validate.report import render_console, render_html, render_json, render_junit, render_markdown
from validate.report.explained import place_rows, switch_rows, untried_lines
from validate.run.explain import attach
from validate.schema.explained import Explained, FoundPlace, Rung, SwitchTried
from validate.schema.report import Report

REPORT = run(side("rocm", 3.0))


def place(layer: int, **changes: object) -> FoundPlace:
    fields: dict[str, object] = {
        "mode": "decode", "layer": layer, "module": "MLA", "tensor": f"decode.mla.{layer}.out",
        "heads": (1, 2, 3, 11), "heads_of": 12, "prompt": "p-0", "position": 7, "ref": 0.004,
        "cand": 0.7071, "expected": 0.0078,
    }  # fmt: skip
    return FoundPlace.model_validate({**fields, **changes})


def switch(key: str, found: str, **changes: object) -> SwitchTried:
    fields = {"switch": f"the {key}", "key": key, "given": "a", "tried": "b", "found": found}
    return SwitchTried.model_validate({**fields, **changes})


def found(word: str = "", **changes: object) -> Explained:
    fields: dict[str, object] = {
        "gate": "logits.kl_p90", "outcome": "FAIL", "status": "explained",
        "summary": f"cand errs in layer 3{word}",
        "rungs": (Rung(level="layer", text=f"3{word}"), Rung(level="head", text="1-3,11 of 12")),
        "places": (place(3), place(7, cand=None, ref=None, heads=(), heads_of=0)),
        "switches": (
            switch("pad", "vanishes", value=0.0121, note=f"a note{word}"),
            switch("splits", "stays", value=0.9),
            switch("draft", "not tried", note="no use"),
            switch("renorm", "not tried", note="no use"),
        ),
        "baseline": 0.8976, "unit": "nats", "prompts": ("p-0",), "notes": (f"a remark{word}",),
    }  # fmt: skip
    return Explained.model_validate({**fields, **changes})


RENDERED = {
    "console": render_console,
    "markdown": render_markdown,
    "html": lambda report: Page(render_html(report)).text,
}


@pytest.mark.parametrize("kind", RENDERED)
def test_everything_stands_in_every_text(kind):
    text = RENDERED[kind](attach(REPORT, found()))

    for words in (
        "cand errs in layer 3", "1-3,11 of 12", "decode.mla.3.out", "0.7071", "not finite",
        "the pad (pad)", "vanishes", "0.0121", "a note", "a remark", "0.8976 nats",
        "not tried: the draft, the renorm (no use)",
    ):  # fmt: skip
        assert words in text, words


def test_json_holds_it_and_reads_back():
    report = attach(REPORT, found())
    text = render_json(report)

    assert json.loads(text)["explained"]["places"][1]["cand"] is None
    assert Report.model_validate_json(text) == report


def test_where_none_was_asked_for_nothing_is_said():
    assert "explained" not in json.loads(render_json(REPORT))
    for render in RENDERED.values():
        assert "from gate" not in render(REPORT)


def test_verdicts_of_build_servers_do_not_move():
    assert render_junit(attach(REPORT, found())) == render_junit(REPORT)


@pytest.mark.parametrize("render", [render_console, render_markdown, render_html])
def test_names_of_captures_are_harmless(render):
    hostile = f" {PAYLOAD}"
    text = render(attach(REPORT, found(hostile)))

    assert "\x1b" not in text.replace("\\x1b", "")
    assert "<script>alert" not in text if render is not render_console else True
    assert "\u202e" not in text


def test_long_lists_are_cut_and_say_so():
    many = found(places=tuple(place(layer) for layer in range(40)))
    rows = place_rows(many)

    assert (len(rows), rows[-1][0]) == (25, "16 more in report.json")
    assert all(len(row) == 7 for row in rows)


def test_heads_of_a_convolution_are_its_parts():
    (row,) = place_rows(found(places=(place(0, module="conv", heads=(0, 2), heads_of=3),)))

    assert row[3] == "q, v"


def test_switches_that_were_not_tried_are_told_together():
    assert [row[0] for row in switch_rows(found())] == ["the pad (pad)", "the splits (splits)"]
    assert untried_lines(found()) == ["not tried: the draft, the renorm (no use)"]
