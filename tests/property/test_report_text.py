"""Whatever stands in a capture: pages hold it as text, and builds can read it."""

import re
import unicodedata
import xml.etree.ElementTree as ET

from hypothesis import given, settings, strategies as st

from tests.pages import Page, full_report, report_with
from validate.report import render_html, render_junit, render_markdown
from validate.report.markdown import MOST_CHARACTERS
from validate.report.visible import visible

ANY = st.text(st.characters(codec=None), max_size=60) | st.text(
    st.sampled_from("<>&\"'`|*_[]()#@:/\\{}%\x00\x1b\u202e\u2066\ufeff\ud800\ufffe a\n"),
    max_size=60,
)
STEERS = {"Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp"}
TAGS = {tag for tag, _ in Page(render_html(full_report())).elements}


@given(text=ANY, most=st.integers(0, 80))
def test_visible_text_steers_nothing(text, most):
    """No control, format, surrogate or unassigned character is left; nothing is lost untold."""
    shown = visible(text, most=most)

    assert not [char for char in shown if unicodedata.category(char) in STEERS]
    assert ("more characters" in shown) >= (len(text) > most)


@settings(max_examples=25, deadline=None)
@given(text=ANY)
def test_pages_hold_it_as_text(text):
    """No element but those of an honest page, no attribute that runs; XML and UTF-8 stay whole."""
    report = report_with(text)
    html = render_html(report)
    page = Page(html)

    assert {tag for tag, _ in page.elements} <= TAGS
    assert not [name for _, held in page.elements for name in held if name.startswith("on")]
    html.encode("utf-8")
    tree = ET.fromstring(render_junit(report).encode("utf-8"))
    assert len(list(tree.iter("testcase"))) == len(report.gates)
    markdown = render_markdown(report)
    assert len(markdown.encode("utf-8")) > 0
    assert len(markdown) <= MOST_CHARACTERS
    assert re.match(r"### validate: FAIL\n", markdown)
