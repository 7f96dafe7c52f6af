"""An explanation on the page: axe finds no fault, and nothing is lost at 400 %."""

import pytest

from tests.browser.test_report_page import LOST, SCROLLED
from tests.pages import PAYLOAD, full_report
from tests.unit.report.test_explained import found
from validate.report import render_html
from validate.run.explain import attach

pytestmark = pytest.mark.browser


@pytest.fixture
def page_of(tmp_path):
    def made(word=""):
        path = tmp_path / "report.html"
        text = render_html(attach(full_report(), found(word)))
        path.write_text(text, "utf-8", errors="backslashreplace")
        return path

    return made


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_axe_finds_no_fault_in_an_explanation(opened, page_of, scheme):
    from axe_playwright_python.sync_playwright import Axe

    page = opened(page_of(), color_scheme=scheme, bypass_csp=True).page
    found_ = Axe().run(page, options={"resultTypes": ["violations"]}).response["violations"]

    assert page.locator("#explained").count() == 1
    assert [(one["id"], one["impact"]) for one in found_] == []


@pytest.mark.parametrize("word", ["", f" {PAYLOAD}"])
def test_an_explanation_loses_nothing_at_four_hundred_per_cent(opened, page_of, word):
    size = {"width": 320, "height": 256}
    page = opened(page_of(word), viewport=size, device_scale_factor=4).page

    assert page.evaluate(LOST) == []
    assert page.evaluate(SCROLLED) == []
    assert page.locator("img, script, iframe").count() == 0
