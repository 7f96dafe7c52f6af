"""How plots look, held against stored pictures: coarse shades, so that fonts may differ.

    VALIDATE_SHOTS=write pytest -m browser tests/browser/test_screenshots.py

writes ``shots.json`` anew; look at the page before you commit it.
"""

import base64
import json
import os
from pathlib import Path

import numpy as np
import pytest

from tests.pages import raw_report, series
from validate.report import render_html
from validate.schema.report import Report

pytestmark = pytest.mark.browser

STORED = Path(__file__).with_name("shots.json")
CELL = 20
"""Pixels that one stored shade stands for, each way."""
FAR = 24
"""Shades of 256 that a cell may be off before it counts."""
MOST_FAR = 0.01
"""Share of cells that may be off by more: labels in another font."""
CELLS = """async ([text, size]) => {
    const bytes = Uint8Array.from(atob(text), c => c.charCodeAt(0));
    const image = await createImageBitmap(new Blob([bytes], {type: 'image/png'}));
    const canvas = new OffscreenCanvas(image.width, image.height), pen = canvas.getContext('2d');
    pen.drawImage(image, 0, 0);
    const data = pen.getImageData(0, 0, image.width, image.height).data, rows = [];
    for (let y = 0; y + size <= image.height; y += size) {
        const row = [];
        for (let x = 0; x + size <= image.width; x += size) {
            let sum = 0;
            for (let v = y; v < y + size; v++)
                for (let u = x; u < x + size; u++) {
                    const at = 4 * (v * image.width + u);
                    sum += data[at] + data[at + 1] + data[at + 2];
                }
            row.push(sum / (3 * size * size));
        }
        rows.push(row);
    }
    return rows }"""
"""Mean grey of every whole cell."""


def shades(page, png):
    """Mean grey of every cell of a picture, which a page decodes."""
    rows = page.evaluate(CELLS, [base64.b64encode(png).decode(), CELL])
    return np.rint(rows).astype(int)


def off(found, stored):
    """Share of cells that differ by more than ``FAR``; 1 where the sizes do."""
    if found.shape != stored.shape:
        return 1.0
    return float(np.mean(np.abs(found - stored) > FAR))


@pytest.fixture(scope="module")
def page_path(tmp_path_factory):
    """A report with a well-filled plot of every kind."""
    values = [1e-3 * 1.4**place for place in range(20)]
    line = {"name": "cand", "role": "cand", "values": values}
    around = {"low": [value / 3 for value in values], "high": [value * 3 for value in values]}
    floor = {"name": "floor", "role": "floor", "values": values[::-1], **around}
    places = {"label": "place", "places": [f"{place}" for place in range(20)]}
    raw = raw_report()
    raw["series"] = [
        series(f"logits.{kind}", kind, x=places, lines=[{**line, **around}, floor, line])
        for kind in ("heat", "ratios", "lines", "steps", "bars")
    ]
    path = tmp_path_factory.mktemp("shots") / "full.html"
    path.write_text(render_html(Report.model_validate(raw)), encoding="utf-8")
    return path


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_plots_look_as_they_did(opened, page_path, scheme):
    """Within the tolerance; and a plot without its lines, or in the other theme, is not."""

    def seen(png):
        return shades(page, png)

    page = opened(page_path, color_scheme=scheme, viewport={"width": 1000, "height": 800}).page
    figures = page.locator("figure.plot > svg")
    found = {
        page.locator("figure.plot").nth(at).get_attribute("data-plot"): figures.nth(at).screenshot()
        for at in range(figures.count())
    }
    held = json.loads(STORED.read_text("utf-8")) if STORED.exists() else {}
    if os.environ.get("VALIDATE_SHOTS") == "write":
        held[scheme] = {name: seen(png).tolist() for name, png in found.items()}
        STORED.write_text(json.dumps(held) + "\n", encoding="utf-8")
    stored = {name: np.array(cells) for name, cells in held[scheme].items()}

    assert set(found) == set(stored)
    assert {name: off(seen(png), stored[name]) <= MOST_FAR for name, png in found.items()} == (
        dict.fromkeys(stored, True)
    )
    page.get_by_label("dark" if scheme == "light" else "light", exact=True).check()
    for at, name in enumerate(found):
        assert off(seen(figures.nth(at).screenshot()), stored[name]) > MOST_FAR
    page.get_by_label(scheme, exact=True).check()
    page.evaluate(
        "document.querySelectorAll('figure > svg :is(.stroke, .dot, .bar, .cell, .area)')"
        ".forEach(shape => shape.remove())"
    )
    for at, name in enumerate(found):
        assert off(seen(figures.nth(at).screenshot()), stored[name]) > MOST_FAR
