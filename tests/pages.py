"""A report that has one of everything, honest or hostile, for tests of what is rendered."""

import copy
import json
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

from validate.schema.report import Report
from validate.schema.verdict import Outcome

ROOT = Path(__file__).parents[1]
PAYLOAD = (
    "</script><script>alert(1)</script>\"'><img src=x onerror=alert(1)>{{7*7}}]]>&amp;"
    "\x1b[31mred\x07\x00\u202egnp\u200b\u2066\ufffe\ud800 @team [a](http://evil.example/)|`#7"
)
"""Markup of four kinds, terminal codes, bidi marks, a noncharacter and a lone surrogate."""


def series(name: str, kind: str = "lines", **changes: Any) -> dict[str, Any]:
    """One series of three places and two lines."""
    line = {"name": "cand", "role": "cand", "values": [0.001, None, 0.1]}
    fields = {
        "name": name,
        "title": f"title of {name}",
        "reading": "How to read it.",
        "kind": kind,
        "x": {"label": "position", "places": ["0 to 9", "10 to 19", "20 to 29"]},
        "y": {"label": "KL", "unit": "nats", "scale": "log"},
        "lines": [
            {**line, "low": [0.0005, None, 0.05], "high": [0.002, None, 0.2]},
            {"name": "as good", "role": "expected", "values": [0.01, 0.01, 0.01]},
        ],
        "n": 1234,
        "n_of": "positions",
    }
    return {**fields, **changes}


def raw_report() -> dict[str, Any]:
    """The golden report, INCOMPARABLE, with a FAIL, an INCONCLUSIVE, a waiver and a plot of each kind."""
    raw: dict[str, Any] = json.loads((ROOT / "golden/reports/default.json").read_text("utf-8"))
    gates = {gate["name"]: gate for gate in raw["gates"]}
    raw["verdict"] = "INCOMPARABLE"
    _judge(gates["attention.head_rel_l2"], "FAIL", "0.2 rel-L2 exceeds the limit")
    gates["attention.head_rel_l2"]["measurement"]["pattern"] = "heads 3,7,11"
    _judge(gates["logits.kl_p90"], "INCONCLUSIVE", "too few prompts")
    gates["logits.kl_p90"]["measurement"]["n_needed"] = 29
    _judge(gates["state.kda_rel_l2"], "FAIL", "0.3 rel-L2 exceeds the limit")
    gates["state.kda_rel_l2"]["waiver"] = "known, issue 12, until 2027-01-31"
    _judge(gates["renorm.kept_set"], "INCOMPARABLE", "the two sides are unlike")
    gates["attention.scale"]["deviation"] = "prefill-fp8"
    raw["deviations"] = [
        {"id": "prefill-fp8", "title": "Prefill in float8", "expected": "3 % rel-L2", "sizes": []}
    ]
    raw["series"] = [
        series("attention.heads_prefill", "heat"),
        series("attention.introduced_ratio", "ratios"),
        series("logits.kl_by_position"),
        series("greedy.survival", "steps"),
        series("speculative.uniform_sampled", "bars"),
    ]
    choice = {"id": 32, "text": " ", "ref": 0.25, "cand": None}
    raw["worst_cases"] = [
        {
            "gates": ["logits.kl_max"],
            "prompt": "unicode-4",
            "position": 70,
            "section": "logits",
            "before": "what came before",
            "cut": 12,
            "target": 44,
            "target_text": ",",
            "ref": [choice],
            "cand": [choice],
        }
    ]
    raw["cand"]["timing"] = {"capture_seconds": 3.5}
    return raw


def _judge(gate: dict[str, Any], outcome: str, reason: str) -> None:
    gate["outcome"], gate["reason"] = outcome, reason


def full_report(**changes: Any) -> Report:
    """``raw_report`` as a record; ``changes`` replace top-level fields."""
    return Report.model_validate({**raw_report(), **changes})


def hostile_report(text: str = PAYLOAD) -> Report:
    """``full_report`` with ``text`` in every string that is not one of a fixed set of words.

    The record is made without validation, as no JSON can carry a lone surrogate.
    """
    report = full_report()
    return _poisoned(report, text)  # type: ignore[no-any-return]


def report_with(text: str) -> Report:
    """A short report whose notes, label, reason, command, pattern and worst case are ``text``."""
    report = full_report()
    measured = report.gates[4].measurement
    assert measured is not None
    worst = measured.model_copy(update={"pattern": text})
    gate = report.gates[4].model_copy(
        update={"reason": text, "rerun": text, "measurement": worst, "outcome": Outcome.FAIL}
    )
    return report.model_copy(
        update={
            "verdict": Outcome.FAIL,
            "notes": (text,),
            "not_tested": (text,),
            "gates": (*report.gates[:4], gate),
            "cand": report.cand.model_copy(update={"label": text or "-", "dtype": text}),
            "worst_cases": (report.worst_cases[0].model_copy(update={"before": text}),),
        }
    )


FIXED = {"outcome", "verdict", "kind", "role", "scale", "evidence", "source", "change", "name"}
"""Fields of fixed words, and names, which decide what stands where."""


def _poisoned(value: Any, text: str, key: str = "") -> Any:
    if isinstance(value, str):
        return value if key in FIXED else text
    if isinstance(value, tuple):
        return tuple(_poisoned(one, text, key) for one in value)
    if isinstance(value, dict):
        return {text + name: _poisoned(one, text, key) for name, one in value.items()}
    if not hasattr(value, "model_copy"):
        return copy.copy(value)
    fields = type(value).model_fields
    return value.model_copy(
        update={name: _poisoned(getattr(value, name), text, name) for name in fields}
    )


class Page(HTMLParser):
    """What a browser would make of a page: elements with their attributes, and the text."""

    def __init__(self, text: str) -> None:
        """Read ``text``."""
        super().__init__()
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.words: list[str] = []
        self.feed(text)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Keep an element."""
        self.elements.append((tag, dict(attrs)))

    def handle_data(self, data: str) -> None:
        """Keep text."""
        self.words.append(data)

    @property
    def text(self) -> str:
        """All text on one line."""
        return " ".join(" ".join(self.words).split())

    def attributes(self, name: str) -> list[str]:
        """Every value of an attribute, in order."""
        return [found for _, held in self.elements if (found := held.get(name)) is not None]
