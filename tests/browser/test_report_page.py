"""report.html in Chromium: what is drawn, read out, printed and enlarged, and what it asks for."""

import re

import pytest

from tests.pages import full_report, hostile_report, raw_report, series
from validate.report import render_html
from validate.schema.report import Report

pytestmark = pytest.mark.browser

LOST = """() => [...document.querySelectorAll('h1, h2, h3, p, li, dt, dd, td, th, code, summary')]
    .filter(e => e.textContent.trim() && !e.closest('.skip, .theme, svg'))
    .filter(e => { const r = e.getBoundingClientRect(); return !(r.width > 0 && r.height > 0) })
    .map(e => e.tagName + ': ' + e.textContent.trim().slice(0, 60))"""
"""Elements with text that take no room on the page."""
BEYOND = """() => [...document.querySelectorAll('table, figure, dl, p, li, code, svg.plot, h1')]
    .filter(e => !e.closest('.skip') && !SCROLLS(e))
    .filter(e => e.getBoundingClientRect().right > document.documentElement.clientWidth + 1)
    .map(e => e.tagName + ' ' + e.className + ': ' + e.textContent.trim().slice(0, 60))"""
"""Elements that reach beyond the right edge where nothing can be scrolled to them."""
SCROLLED = BEYOND.replace("SCROLLS(e)", "e.closest('.scroll')")
PRINTED = BEYOND.replace("SCROLLS(e)", "false")
DRAWN = """() => [...document.querySelectorAll('figure.plot')].map(figure => {
    const svg = figure.querySelector(':scope > svg'), box = svg.getBoundingClientRect();
    const shapes = [...svg.querySelectorAll('.stroke, .dot, .bar, .cell')];
    const inside = shapes.filter(e => { const r = e.getBoundingClientRect();
        return r.left >= box.left - 2 && r.right <= box.right + 2
            && r.top >= box.top - 2 && r.bottom <= box.bottom + 2 });
    const wide = shapes.filter(e => e.getBoundingClientRect().width > 0);
    return [figure.dataset.plot, shapes.length, inside.length, wide.length > 0 && box.width > 200 && box.height > 20] })"""
"""Of every plot: its name, its shapes, those inside it, whether it and a shape take room."""
BACK = "() => getComputedStyle(document.documentElement).backgroundColor"


@pytest.fixture(scope="module")
def pages(tmp_path_factory):
    """An honest and a hostile report on disk."""
    folder = tmp_path_factory.mktemp("pages")
    made = {}
    for name, report in (("full", full_report()), ("hostile", hostile_report())):
        made[name] = folder / f"{name}.html"
        made[name].write_text(render_html(report), encoding="utf-8")
    return made


@pytest.mark.parametrize("name", ["full", "hostile"])
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_it_says_nothing_and_asks_for_nothing(opened, pages, name, scheme):
    """No console message, no dialog, no request but the file itself."""
    found = opened(pages[name], color_scheme=scheme)

    assert found.said == []
    assert found.asked == [found.url]
    assert found.page.evaluate("document.scripts.length") == 0


@pytest.mark.parametrize("name", ["full", "hostile"])
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_every_plot_is_drawn(opened, pages, name, scheme):
    """Each has shapes, and all of them lie inside it."""
    plots = opened(pages[name], color_scheme=scheme).page.evaluate(DRAWN)

    assert len(plots) == 5
    for plot, shapes, inside, room in plots:
        assert room, plot
        assert shapes == inside > 0, plot


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_axe_finds_no_fault(opened, pages, scheme):
    """None of any weight: contrast, names, headings, order, tables."""
    from axe_playwright_python.sync_playwright import Axe

    page = opened(pages["full"], color_scheme=scheme, bypass_csp=True).page
    page.evaluate("document.querySelectorAll('details').forEach(d => d.open = true)")
    found = Axe().run(page, options={"resultTypes": ["violations"]}).response["violations"]

    told = [(one["id"], one["impact"], [n["html"][:90] for n in one["nodes"][:2]]) for one in found]
    assert told == []


def test_the_theme_follows_the_system_until_it_is_chosen(opened, pages):
    """Both themes, either way."""
    colours: dict[object, str] = {}
    for scheme in ("light", "dark"):
        page = opened(pages["full"], color_scheme=scheme).page
        colours[scheme] = page.evaluate(BACK)
        for chosen in ("dark", "light"):
            page.get_by_label(chosen, exact=True).check()
            colours[scheme, chosen] = page.evaluate(BACK)

    assert colours["light"] != colours["dark"]
    for scheme in ("light", "dark"):
        assert colours[scheme, "light"] == colours["light"]
        assert colours[scheme, "dark"] == colours["dark"]


@pytest.mark.parametrize("name", ["full", "hostile"])
def test_four_hundred_per_cent_lose_nothing(opened, pages, name):
    """1280 pixels at 400 % are 320: all text has room, and the page scrolls one way only."""
    size = {"width": 320, "height": 256}
    page = opened(pages[name], viewport=size, device_scale_factor=4).page
    page.evaluate("document.querySelectorAll('details').forEach(d => d.open = true)")

    assert page.evaluate(LOST) == []
    assert page.evaluate(SCROLLED) == []
    wide = "[document.documentElement.scrollWidth, document.documentElement.clientWidth]"
    scroll, client = page.evaluate(wide)
    assert scroll <= client


@pytest.mark.parametrize("name", ["full", "hostile"])
def test_print_loses_nothing(opened, pages, name):
    """On A4 what is folded stands open, nothing is cut off, and colours are for paper."""
    page = opened(pages[name], viewport={"width": 718, "height": 1000}, color_scheme="dark").page
    page.emulate_media(media="print", color_scheme="dark")

    assert page.evaluate(LOST) == []
    assert page.evaluate(PRINTED) == []
    assert page.evaluate(BACK) == "rgb(255, 255, 255)"
    pdf = page.pdf(format="A4", margin=dict.fromkeys(("left", "right", "top", "bottom"), "10mm"))
    assert pdf.startswith(b"%PDF")
    assert len(re.findall(rb"/Type\s*/Page\b", pdf)) > 5


def test_the_keyboard_reaches_everything(opened, pages):
    """First the skip link; a fold opens with Enter; a wide table can be scrolled by key."""
    page = opened(pages["full"], viewport={"width": 700, "height": 800}).page
    page.keyboard.press("Tab")
    first = page.evaluate("document.activeElement.textContent")
    page.keyboard.press("Enter")
    page.evaluate("document.querySelector('details.gate:not([open]) > summary').focus()")
    page.keyboard.press("Enter")
    opened_fold = page.evaluate("document.activeElement.parentElement.open")
    loose = page.evaluate("[...document.querySelectorAll('.scroll')].every(e => e.tabIndex === 0)")

    assert first == "Skip to the report"
    assert page.url.endswith("#main")
    assert opened_fold
    assert loose


def test_hostile_text_stays_text(opened, pages):
    """No element of it came to life, and nothing turned the direction of what follows."""
    page = opened(pages["hostile"]).page

    assert page.locator("img, script, iframe").count() == 0
    assert "<script>alert(1)</script>" in page.inner_text("main")
    assert page.evaluate("document.title").startswith("INCOMPARABLE: ")


def test_a_large_report_opens_within_a_second(opened, tmp_path):
    """93 layers of 96 heads, twice, and every other plot at its widest; the best of three."""
    places = [f"{place}" for place in range(200)]
    heads = [
        {"name": f"kda.{layer}", "role": "cand", "values": [1e-3 * (1 + h % 7) for h in range(96)]}
        for layer in range(93)
    ]
    axis = {"label": "head", "places": places[:96]}
    flat = [{"name": "cand", "role": "cand", "values": [0.5] * 200}]
    wide = {"label": "position", "places": places}
    raw = raw_report()
    raw["series"] = [
        series("attention.heads_prefill", "heat", x=axis, lines=heads),
        series("attention.heads_decode", "heat", x=axis, lines=heads),
        series("attention.introduced_ratio", "ratios", x=wide, lines=flat),
        series("logits.kl_by_position", "lines", x=wide, lines=flat),
        series("greedy.survival", "steps", x=wide, lines=flat),
        series("speculative.uniform_sampled", "bars", x=wide, lines=flat),
    ]
    path = tmp_path / "large.html"
    path.write_text(render_html(Report.model_validate(raw)), encoding="utf-8")

    took = []
    for _ in range(3):
        page = opened(path).page
        took.append(
            page.evaluate("performance.getEntriesByType('navigation')[0].loadEventEnd") / 1000
        )

    assert path.stat().st_size < 2_500_000
    assert min(took) <= 1.0
