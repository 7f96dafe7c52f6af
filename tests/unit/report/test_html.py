"""The page: what stands first, what is escaped, what it never asks for."""

import base64
import hashlib
import re

import pytest

from tests.pages import PAYLOAD, Page, full_report, hostile_report, raw_report, report_with, series
from validate.report import load_report, render_html
from validate.report.html import MOST_COMPANIONS
from validate.report.visible import MOST_TEXT, visible
from validate.schema.report import Report

FULL = render_html(full_report())
BIDI = re.compile("[\u200b-\u200f\u202a-\u202e\u2066-\u2069\ufeff]")
CONTROL = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\ud800-\udfff\ufffe\uffff]")


def first_screen(text):
    """All that stands before the areas."""
    return Page(text.partition('<nav aria-label="Areas">')[0]).text


def test_the_first_screen_says_what_a_sceptic_asks():
    """Verdict, risks, both machines, evidence, deviations, what failed and why, what is untested."""
    text = first_screen(FULL)

    for words in (
        "INCOMPARABLE rocm (emulated) against cuda",
        "Nothing may be concluded about cand (1 of 65 gates are INCOMPARABLE, 1 more are WAIVED)",
        "The candidate is EMULATED. Nothing here ran on the real device of this path.",
        "alpha = 1 % for the whole suite",
        "1 - beta = 95 % a gate",
        "NVIDIA H200, sm_90, driver 580.159.04",
        "torch 2.11.0+cu130",
        "Intel(R) Xeon(R) Processor, AVX512",
        "prefill-fp8: Prefill in float8; expected 3 % rel-L2",
        "heads 3,7,11",
        "too few prompts",
        "the two sides are unlike",
        "state.kda_rel_l2 is FAIL and does not count: known, issue 12, until 2027-01-31",
        "logprobs of the greedy streams: captured, and no metric reads them",
        "capture_seconds 3.5",
    ):
        assert words in text


def test_hardware_on_both_sides_brings_no_banner():
    """A warning that always shows warns nobody."""
    raw = raw_report()
    raw["cand"]["evidence"] = "hardware"

    text = render_html(Report.model_validate(raw))

    assert 'class="banner"' not in text
    assert "emulated" not in first_screen(text).replace("evidence is emulated", "").replace(
        "hardware, emulated", ""
    )


def test_a_planted_fault_is_told_first():
    """Nobody takes such a run for a finding about a path."""
    raw = raw_report()
    raw["cand"]["fault"] = "SA-01"

    assert "carries the planted fault SA-01" in first_screen(
        render_html(Report.model_validate(raw))
    )


def test_every_gate_has_value_limit_floor_interval_pointer_and_command():
    """In the table of its area, and in its own section."""
    report = full_report()
    rows = re.findall(r"<tr>\s*<td><span class=\"badge.*?</tr>", FULL, re.DOTALL)
    sections = re.findall(r"<details class=\"gate\".*?</dl>", FULL, re.DOTALL)

    assert len(rows) == len(sections) == len(report.gates)
    kl = next(Page(row).text for row in rows if ">logits.kl_p90<" in row)
    assert kl.startswith("? INCONCLUSIVE logits.kl_p90 0.0003393 nats 0.00926 0.0002431 65 prompts")
    assert "order statistic" in kl
    assert kl.endswith("golden/tolerances.toml#logits.kl_p90.bfloat16 (measured)")
    for gate in report.gates:
        assert sum(
            f"{gate.rerun}  # cand: emulated" in Page(one).text.replace(" #", "  #")
            for one in sections
        )


def test_what_is_not_pass_stands_open():
    """A reader need not click to see why."""
    opened = re.findall(
        r"<details class=\"gate\" id=\"[^\"]*\" open>.*?</summary>", FULL, re.DOTALL
    )

    assert [re.findall(r"\w+\.\w+", Page(one).text)[0] for one in opened] == [
        "attention.head_rel_l2",
        "state.kda_rel_l2",
        "logits.kl_p90",
        "renorm.kept_set",
    ]


def test_every_series_is_drawn_and_told_as_a_table():
    """A title, a description, shapes, and the same numbers for who cannot see them."""
    report = full_report()
    figures = re.findall(r"<figure.*?</figure>", FULL, re.DOTALL)

    assert len(figures) == len(report.series)
    for figure, one in zip(
        figures, sorted(report.series, key=lambda s: FULL.index(s.title)), strict=True
    ):
        page = Page(figure)
        tags = [tag for tag, _ in page.elements]
        assert {"svg", "title", "desc", "table", "caption"} <= set(tags)
        assert tags.count("path") > 3
        assert one.title in page.text
        assert "n = 1234 positions" in page.text
        assert "0.001" in page.text


def test_the_worst_case_shows_text_and_choices_of_both_sides():
    """Where it is, what came before it, and what each side would have said."""
    text = Page(FULL).text

    assert "Worst case: prompt unicode-4, position 70" in text
    assert "12 tokens before this, then: what came before" in text
    assert "First choices of ref token p of ref p of cand 32 ' ' 0.25 -" in text


def test_the_gravest_is_told_first_and_what_is_waived_last():
    """INCOMPARABLE, FAIL, INCONCLUSIVE, WAIVED, whatever the order of the suite."""
    listed = re.findall(r'<ul class="open">.*?</ul>', FULL, re.DOTALL)[0]

    assert re.findall(r'class="badge (\w+)"', listed) == [
        "incomparable",
        "fail",
        "inconclusive",
        "waived",
    ]


def test_links_lead_somewhere_and_names_are_unique():
    """Of all ids none is used twice; of all links none leaves the page."""
    page = Page(FULL)
    ids = page.attributes("id")
    targets = page.attributes("href")
    labelled = [one for held in page.attributes("aria-labelledby") for one in held.split()]

    assert len(ids) == len(set(ids))
    assert {target.removeprefix("#") for target in targets} <= set(ids)
    assert all(target.startswith("#") for target in targets)
    assert set(labelled) <= set(ids)


def test_the_page_asks_for_nothing():
    """No script, no source, no style from elsewhere; the policy allows its own style alone."""
    page = Page(FULL)
    policy = next(
        held["content"] or "" for _, held in page.elements if held.get("http-equiv") is not None
    )
    style = re.findall(r"<style>(.*?)</style>", FULL, re.DOTALL)[0]
    digest = base64.b64encode(hashlib.sha256(style.encode()).digest()).decode()

    assert not {"script", "link", "img", "iframe", "object", "embed", "base", "form"} & {
        tag for tag, _ in page.elements
    }
    assert page.attributes("src") == page.attributes("style") == []
    assert policy.startswith("default-src 'none'; style-src 'sha256-")
    assert digest in policy
    assert "url(" not in style
    assert "@import" not in style


def test_hostile_text_is_shown_and_does_nothing():
    """Markup, terminal codes, bidi marks, noncharacters and lone surrogates, in every string."""
    text = render_html(hostile_report())
    page = Page(text)
    honest = Page(FULL)

    assert {tag for tag, _ in page.elements} == {tag for tag, _ in honest.elements}
    assert not [name for _, held in page.elements for name in held if name.startswith("on")]
    assert BIDI.search(text) is None
    assert CONTROL.search(text) is None
    assert text.encode("utf-8").decode("utf-8") == text
    shown = page.text
    for words in ("<script>alert(1)</script>", "{{7*7}}", "\\x1b[31mred", "\\u202egnp", "\\ud800"):
        assert words in shown
    assert "49" not in [word for word in shown.split() if word == "49"]


def test_a_line_of_a_megabyte_is_cut_and_counted():
    """The page stays small, and says what it left out."""
    text = render_html(report_with("x" * 1_000_000))

    assert f"({1_000_000 - MOST_TEXT:,} more characters)" in text
    assert "x" * (MOST_TEXT + 100) not in text


def test_visible_cuts_before_it_spells_out():
    r"""A kept character may grow to ``\x1b``; what is counted are characters of the text."""
    assert visible("\x1b" * 3, most=2) == "\\x1b\\x1b ... (1 more characters)"
    assert visible(PAYLOAD) == visible(PAYLOAD, most=len(PAYLOAD))


def test_a_long_breakdown_is_cut_and_counted():
    """What is left out stands in report.json, and the page says so."""
    raw = raw_report()
    gate = next(gate for gate in raw["gates"] if gate["name"] == "attention.introduced_ratio")
    total = len(gate["measurement"]["breakdown"])

    text = Page(render_html(Report.model_validate(raw))).text

    assert total > MOST_COMPANIONS
    assert f"{total - MOST_COMPANIONS:,} more in report.json" in text


def test_a_report_with_nothing_is_still_a_page():
    """Refused before anything was measured: reasons stand where numbers would."""
    raw = raw_report()
    raw |= {"series": [], "worst_cases": [], "oracle": None, "repeats": [], "since_golden": None}
    raw |= {"notes": [], "not_tested": [], "deviations": [], "verdict": "INCOMPARABLE"}
    for gate in raw["gates"]:
        gate |= {"measurement": None, "noise": None, "limit": None, "judged": None, "waiver": None}
        gate |= {"outcome": "INCOMPARABLE", "reason": "missing evidence", "deviation": None}

    text = Page(render_html(Report.model_validate(raw))).text

    assert "Nothing may be concluded about cand" in text
    assert "missing evidence" in text
    assert "oracle: none took part" in text
    assert "<figure" not in render_html(Report.model_validate(raw))


def test_names_of_areas_that_nobody_knows_come_last():
    """A suite of the future still shows all its gates."""
    raw = raw_report()
    raw["gates"][0]["name"] = "novel.gate"
    raw["series"].append(series("evals.flips", "bars"))

    heads = re.findall(r'<h2 id="area-\d+">(.*?)</h2>', render_html(Report.model_validate(raw)))

    assert heads[-2:] == ["evals", "novel"]


@pytest.mark.golden
@pytest.mark.parametrize("name", ["default", "release"])
def test_golden_reports_are_well_below_the_largest_size(name):
    """1.5 MB and data."""
    from tests.pages import ROOT

    report = load_report(ROOT / f"golden/reports/{name}.json")

    assert report is not None
    assert 20_000 < len(render_html(report).encode()) < 1_500_000
