"""The texts of a report: what stands where, what is escaped, what is never left out."""

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.unit.run.made import GATES, entry, limits, repeats, run, side, suite
from tests.unit.run.test_deviations import BUDGET, fp8
from validate.errors import InputError, SuiteError
from validate.report import (
    load_report,
    read_report,
    render_console,
    render_html,
    render_json,
    render_junit,
    render_markdown,
    report_schema,
    write_reports,
)
from validate.report.markdown import MOST_CHARACTERS, escape
from validate.report.wording import clean, mark
from validate.schema.measurement import Measurement, Worst
from validate.schema.report import Report
from validate.schema.suite import GateSpec

ROOT = Path(__file__).parents[3]
NAMES = ["report.json", "report.md", "report.html", "report.xml"]
HOSTILE = "x\x1b[2J[red]|<b>`*\u202e@team #7"


def finding(**changes):
    """A metric that measures 3 nats on rocm, 0.25 on repeats, with these extras."""

    def measure(pair, levels):
        value = {"cuda": 0.0, "rocm": 3.0}.get(pair.cand.label, 0.25)
        fields = {"metric": "x", "value": value, "unit": "nats", "n": 2, "n_of": "prompts"}
        return Measurement(**{**fields, **changes})

    return measure


def failing(**changes):
    """A report with one failing gate that measured these extras."""
    return run(
        side("rocm", 3.0),
        suite=suite(GATES[2]),
        metrics={"logits.kl_max": finding(value=0.0), "state.kda_rel_l2": finding(**changes)},
        limits=limits(state__kda_rel_l2__bfloat16=entry(1.0, basis="4 repeats")),
    )


WORST = Worst(
    prompt="id-37",
    position=211,
    place="decode.mla.3.out head 11",
    value=3.82,
    detail="top-1 ref 'Paris' (p 0.61), cand ' the' (p 0.44)",
)


def test_a_failure_reads_as_in_the_style_guide():
    """Sides, place, noise, source of the limit, next step, in this order."""
    report = failing(worst=WORST, pattern="heads 3,7,11")
    text = render_console(report)
    block = text[text.index("FAIL state") :].split("\n\n")[0].splitlines()

    assert block == [
        "FAIL state.kda_rel_l2: 3 nats, limit 1  (n = 2 prompts)",
        "  ref  : cuda  sm_90  bfloat16  weights seed1",
        "  cand : rocm (emulated)  avx2  bfloat16  weights seed1",
        (
            "  worst: prompt id-37 position 211 decode.mla.3.out head 11, 3.82; top-1 ref 'Paris' "
            "(p 0.61), cand ' the' (p 0.44) [cand: emulated]"
        ),
        "  where: heads 3,7,11",
        "  noise: cuda against its repeats measures 0.25 nats (4 repeats)",
        "  limit: t.toml, x (derived, 4 repeats)",
        (
            "  rerun: validate compare --suite suites/small.toml --ref cuda --cand rocm "
            "--only state.kda_rel_l2  # cand: emulated"
        ),
        (
            "  look : validate compare --suite suites/small.toml --ref cuda --cand rocm "
            "--only state.kda_rel_l2 --prompt id-37  # cand: emulated"
        ),
    ]


@pytest.mark.parametrize(
    ("value", "worst", "told"),
    [
        (3.0, 5.0, "ratio 3 x ref, limit 2 x ref FAILS  (n = 2 prompts); worst 5, limit 6"),
        (1.5, 12.5, "ratio 1.5 x ref, limit 2 x ref  (n = 2 prompts); worst 12.5, limit 6 FAILS"),
        (3.0, 12.5, "limit 2 x ref FAILS  (n = 2 prompts); worst 12.5, limit 6 FAILS"),
    ],
)
def test_a_three_way_failure_names_the_half_that_failed(value, worst, told):
    """The ratio, the worst row or both; each has its own limit beside it."""

    def measure(pair, levels):
        found = value if pair.cand.label == "rocm" else 1.0
        row = worst if pair.cand.label == "rocm" else 1.0
        return Measurement(
            metric="x", value=found, unit="ratio", n=2, n_of="prompts", worst_value=row
        )

    report = run(
        side("rocm", 0.1),
        suite=suite(GateSpec(name="logits.err_ratio", kind="three_way")),
        metrics={"logits.kl_max": finding(value=0.0), "logits.err_ratio": measure},
        limits=limits(logits__err_ratio__bfloat16=entry(2.0, worst=6.0)),
    )

    line = next(x for x in render_console(report).splitlines() if x.startswith("FAIL logits"))
    assert told in line


def test_a_bound_with_a_worst_shows_both_numbers_and_both_limits():
    """A bound alone shows one of each."""
    told = limits(state__kda_rel_l2__bfloat16=entry(5.0, worst=9.0))
    found = {"logits.kl_max": finding(value=0.0), "state.kda_rel_l2": finding(worst_value=7.5)}
    both = run(side("rocm", 3.0), suite=suite(GATES[2]), metrics=found, limits=told)
    alone = run(side("rocm", 3.0), suite=suite(GATES[2]), metrics=found)

    assert "3 nats, worst 7.5" in render_markdown(both)
    assert "5, worst 9" in render_markdown(both)
    assert "worst 7.5" not in render_markdown(alone)


def test_the_header_shows_both_sides_with_card_driver_and_evidence():
    """Before any number."""
    text = render_console(run(side("rocm", 0.2), reused=["ref"]))
    head = text[: text.index("yardstick.aa")]

    assert "suite small (suites/small.toml), alpha 0.01, power 0.95, limits t.toml" in head
    assert "PASS: every gate was shown to be within its limit at the stated confidence" in head
    assert "ref    : cuda  NVIDIA H200, sm_90, driver 575.1, torch 2.13.0" in head
    assert "evidence hardware  reused" in head
    assert "cand   : rocm (emulated)  Fake Processor, avx2, no driver, torch 2.13.0" in head
    assert "evidence emulated\n" in head
    assert "repeats: cuda-repeat-0, cuda-repeat-1" in head


def test_the_table_shows_value_limit_and_floor():
    """Ratios are shown in floors, with the number behind them."""
    text = render_console(run(side("rocm", 0.2), repeats=repeats(0.0, 0.0, 0.0)))

    assert re.search(r"PASS +\| logits\.kl_p90 +\| 0\.2 nats +\| 1 +\| 0 +\| 2 *\|", text)
    assert re.search(r"logits\.kl_p50 +\| 51\.2 x floor \(0\.2 nats\) +\| 5 x floor", text)
    assert "0.003906 (roundoff)" in text


MAKERS = {
    "pass": lambda: run(side("rocm", 0.2)),
    "fail": lambda: run(side("rocm", 3.0)),
    "worst": lambda: failing(worst=WORST),
    "ref-blamed": lambda: run(side("rocm", 0.2), oracle=side("oracle", 2.5)),
    "evidence": lambda: run(side("rocm", 0.2), suite=suite(evidence=("hardware",))),
    "no-floor": lambda: run(side("rocm", 0.2), repeats=[]),
    "deviation": lambda: run(fp8(), limits=limits(**BUDGET)),
    "fault": lambda: run(side("rocm:fault=VX-01", 3.0, fault="VX-01")),
    "skip": lambda: run(side("rocm", 3.0), skip=["state"]),
}


@pytest.mark.parametrize("make", MAKERS.values(), ids=MAKERS.keys())
@pytest.mark.parametrize("render", [render_console, render_markdown])
def test_emulated_stands_on_every_line_that_mentions_the_candidate(make, render):
    """Whatever the verdict."""
    report = make()
    lines = render(report).splitlines()
    about = [line for line in lines if "cand" in line or report.cand.label in line]

    assert len(about) >= 2
    assert [line for line in about if "emulated" not in line] == []


def test_hardware_needs_no_label():
    """The candidate's card is proven."""
    report = run(side("reference", 0.2), ref=side("cuda"))

    assert report.cand.evidence == "hardware"
    assert mark("cand is well", report) == "cand is well"
    assert "emulated" not in render_console(report).replace("oracle", "")


def test_a_command_with_a_label_can_still_be_pasted():
    """The label is a comment for the shell."""
    report = run(side("rocm", 0.2))

    assert mark("validate compare --cand rocm", report, comment="#") == (
        "validate compare --cand rocm  # cand: emulated"
    )
    assert mark("nothing of it", report) == "nothing of it"
    assert mark("rocm (emulated)", report) == "rocm (emulated)"


def test_deviations_stand_on_the_first_page_with_their_size():
    """Above the table of gates."""
    for text in (
        render_console(run(fp8(), limits=limits(**BUDGET))),
        render_markdown(run(fp8(), limits=limits(**BUDGET))),
    ):
        top = text[: text.index("state.kda_rel_l2")]

        assert "prefill-fp8: fp8 prefill, scale 1.0; expected rel-L2 about 0.03" in top
        assert "prefill-fp8: logits.kl_p90 measures 3 nats, budget 4: PASS" in top


def test_a_deviation_without_budget_says_so():
    """Ordinary limits held."""
    assert "prefill-fp8: no budget of its own here, ordinary limits hold" in render_console(
        run(fp8())
    )


def test_gates_that_share_a_reason_share_a_block():
    """Thirty lines of the same blame help nobody."""
    report = run(side("rocm", 0.2), oracle=side("oracle", 2.5))

    for text in (render_console(report), render_markdown(report)):
        assert "logits.kl_p90, logits.kl_p50, state.kda_rel_l2" in text
        assert text.count("(so nothing is said of cand)") == 1


def test_many_failures_are_told_briefly_after_the_first_five():
    """The table has them all."""
    report = run(side("rocm", 3.0))
    many = report.model_copy(update={"gates": report.gates * 3})
    text = render_console(many)

    assert text.count("  rerun: ") == 5
    assert text.count("\nFAIL logits.") + text.count("\nFAIL state.") == 9


def test_text_of_captures_is_made_harmless():
    """Terminal escapes, markup, HTML, mentions and table bars arrive as text."""
    report = failing(
        worst=Worst(prompt="p-0", place=HOSTILE, detail="two\nlines"), pattern="a|b\tc"
    )
    console, markdown = render_console(report), render_markdown(report)

    for text in (console, markdown):
        assert not re.search(r"[\x00-\x09\x0b-\x1f\x7f\u202a-\u202e]", text)
        assert "\\x1b" in text
        assert "two\\nlines" in text or "two\\\\nlines" in text
    assert "[red]|<b>`*" in console
    assert "<b>" not in markdown
    assert "@team" not in markdown
    assert "#7" not in markdown
    rows = [line for line in markdown.splitlines() if line.startswith("| **FAIL**")]
    assert [len(re.findall(r"(?<!\\)\|", row)) for row in rows] == [8]


def test_labels_of_captures_are_made_harmless():
    """A folder may be called anything."""
    report = run(side("rocm", 0.2), ref=side("cuda"))
    evil = report.model_copy(
        update={"ref": report.ref.model_copy(update={"label": "[bold]c\x07da", "path": "a\nb"})}
    )

    assert "[bold]c\\x07da" in render_console(evil)
    assert "a\\nb" in render_console(evil)
    assert "\x07" not in render_markdown(evil)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("logits.kl_p90", "logits.kl_p90"),
        ("_it_", r"\_it\_"),
        ("a*b`c", r"a\*b\`c"),
        ("# no heading", "&#35; no heading"),
        ("- no list", "&#45; no list"),
        ("-", "-"),
        ("https://x.y", "https&#58;//x.y"),
        ("www.x", "www&#46;x"),
        ("a & b", "a &#38; b"),
        ("t.toml#key", "t.toml#key"),
        ("back\\slash", r"back\\slash"),
    ],
)
def test_markdown_is_escaped_no_more_than_needed(text, expected):
    """What formats is spelled out, the rest stays readable."""
    assert escape(text) == expected


def test_clean_spells_out_what_steers():
    """Control, format, surrogate and line separators; letters of any script stay."""
    assert clean("a\r\n\x00\u200b\ud800\u2028é漢") == r"a\r\n\x00\u200b\ud800\u2028" + "é漢"


def test_markdown_stays_a_comment():
    """However many gates and however long their reasons."""
    report = run(side("rocm", 3.0))
    gate = report.gates[4].model_copy(update={"reason": "x" * 500})
    gates = tuple(gate.model_copy(update={"name": f"logits.g{i}"}) for i in range(800))
    some = render_markdown(report.model_copy(update={"gates": gates[:40]}))
    more = render_markdown(report.model_copy(update={"gates": gates[:150]}))
    many = render_markdown(report.model_copy(update={"gates": gates}))

    assert "<details>" in some
    assert "x" * 301 not in some
    assert max(len(more), len(many)) <= MOST_CHARACTERS
    assert "The table of all gates is in report.json" in more
    assert "report.json has it whole" in many


def test_a_backtick_in_a_command_does_not_end_its_block():
    """The fence grows."""
    report = run(side("rocm", 3.0), command="validate compare --cand 'a```b'")

    assert "\n````sh\nvalidate compare --cand 'a```b'" in render_markdown(report)


def test_plain_text_has_no_escape_codes_and_a_terminal_has(monkeypatch):
    """Colour for eyes alone."""
    monkeypatch.setenv("TERM", "xterm-256color")
    monkeypatch.delenv("NO_COLOR", raising=False)
    report = run(side("rocm", 3.0))

    assert render_console(report).isascii()
    assert "\x1b[" in render_console(report, terminal=True)
    assert "\x1b[" not in render_console(report)


def test_a_narrow_terminal_loses_no_gate():
    """Cells fold."""
    text = render_console(run(side("rocm", 3.0)), width=60)

    assert "rerun: validate compare --suite suites/small.toml --ref cuda --cand rocm" in text
    assert max(len(line) for line in text.splitlines() if line.startswith("|")) <= 60


def test_json_is_strict_and_reads_back():
    """No NaN, an undefined value is null with why_undefined, design.md's keys all there."""
    report = run(side("rocm", 0.2), oracle=None)
    text = render_json(report)
    raw = json.loads(text, parse_constant=pytest.fail)

    assert Report.model_validate(raw) == report
    assert text.isascii()
    keys = "schema_version tool_version verdict suite ref cand gates deviations selftest"
    assert set(keys.split()) <= set(raw)
    assert {"name", "digest", "alpha", "power"} <= set(raw["suite"])
    for role in ("ref", "cand"):
        assert {"target", "digest", "evidence", "reused", "provenance"} <= set(raw[role])
    gate = raw["gates"][4]
    named = "name outcome kind alpha_share measurement limit noise reason rerun"
    assert set(named.split()) <= set(gate)
    found = gate["measurement"]
    assert {"value", "unit", "n", "n_of", "interval", "worst"} <= set(found)
    assert {"low", "low_level", "high", "high_level", "method"} == set(found["interval"])
    undefined = raw["gates"][3]["measurement"]
    assert undefined["value"] is None
    assert undefined["why_undefined"] == "there is no oracle capture to hold ref against"
    assert raw["selftest"] is None


def test_no_number_of_a_report_can_be_nan():
    """The record itself refuses it."""
    report = run(side("rocm", 0.2))
    raw = report.model_dump()
    raw["gates"][0]["judged"] = float("nan")
    with pytest.raises(ValueError, match="finite number"):
        Report.model_validate(raw)


def test_the_published_schema_is_current():
    """docs/report.md says how to write it anew."""
    published = (ROOT / "docs/report.schema.json").read_text(encoding="utf-8")

    assert published == report_schema()


def test_reports_are_written_whole(tmp_path):
    """Four files, and nothing else is left behind."""
    report = run(side("rocm", 0.2))
    paths = write_reports(report, tmp_path / "new" / "folder")

    assert [path.name for path in paths] == NAMES
    assert sorted(p.name for p in paths[0].parent.iterdir()) == sorted(NAMES)
    assert paths[0].read_text() == render_json(report)
    assert paths[1].read_text() == render_markdown(report)
    assert paths[2].read_text() == render_html(report)
    assert paths[3].read_text() == render_junit(report)


def test_an_old_report_survives_a_full_disk(tmp_path, monkeypatch):
    """Nothing half-written passes for whole."""
    report = run(side("rocm", 0.2))
    write_reports(report, tmp_path)

    def full(handle):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("validate.report.files.os.fsync", full)
    with pytest.raises(InputError, match=r"the report cannot be written \(No space left on dev"):
        write_reports(run(side("rocm", 3.0)), tmp_path)

    assert json.loads((tmp_path / "report.json").read_text())["verdict"] == "PASS"
    assert sorted(p.name for p in tmp_path.iterdir()) == sorted(NAMES)


def test_a_file_in_the_way_is_told(tmp_path):
    """The folder is named."""
    (tmp_path / "out").write_text("")
    with pytest.raises(InputError, match="out: the report cannot be written"):
        write_reports(run(side("rocm", 0.2)), tmp_path / "out")


# --- reports whose parts contradict each other -----------------------------------------------


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (
            lambda raw: raw.update(verdict="PASS"),
            r"verdict PASS does not follow from gate logits\.kl_p90 FAIL",
        ),
        (
            lambda raw: raw.update(verdict="PASS", gates=[]),
            "verdict PASS does not follow from no gate at all: nothing was judged",
        ),
        (
            lambda raw: raw["gates"].append(raw["gates"][-1]),
            r"gate listed twice: state\.kda_rel_l2",
        ),
        (
            lambda raw: raw.update(gates=[{**g, "waiver": "known"} for g in raw["gates"][4:5]]),
            "verdict FAIL does not follow from only waived gates",
        ),
        (
            lambda raw: raw["gates"][0].update(waiver="known"),
            r"gates.0: gate yardstick\.aa is PASS and waived, which no waiver can do",
        ),
        (
            lambda raw: raw["gates"][4].update(outcome="PASS"),
            r"gates.4: gate logits\.kl_p90 is PASS and has a reason why it is not PASS",
        ),
        (
            lambda raw: raw["gates"][0].update(measurement=None),
            r"gates.0: gate yardstick\.aa is PASS and nothing was measured",
        ),
    ],
)
def test_report_whose_verdict_does_not_follow_is_refused(
    change: Callable[[dict[str, Any]], None], said: str, tmp_path: Path
) -> None:
    """Read for rendering or as a golden: by either way it is no report."""
    raw = json.loads(render_json(run(side("rocm", 3.0))))
    change(raw)
    (tmp_path / "report.json").write_text(json.dumps(raw), "utf-8")

    with pytest.raises(InputError, match=rf"no report that can be read \({said}"):
        read_report(tmp_path / "report.json")
    with pytest.raises(SuiteError, match=said):
        load_report(tmp_path / "report.json")
