"""Chromium for tests of pages: found here, or a reason; where it is required, never a skip.

``VALIDATE_BROWSER=required``, which ``.ci/run`` sets, turns a missing Chromium into a failure.
"""

import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

FLAGS = (
    "--no-sandbox",  # CI runs as root, and the only pages are our own
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
)
NAMES = ("chromium", "chromium-browser", "google-chrome")


def missing() -> str | None:
    """Why no page can be opened here; None where one can."""
    if not any(shutil.which(name) for name in NAMES):
        return "no Chromium on the path. Next, on Debian: apt-get install chromium"
    try:
        import axe_playwright_python  # noqa: F401
        import playwright  # noqa: F401
    except ImportError as error:
        return f"{error.name} is not installed. Next: pip install -c constraints.txt -e '.[dev]'"
    return None


@pytest.fixture(scope="session")
def chromium() -> Iterator[Any]:
    """A running Chromium."""
    why = missing()
    if why is not None and os.environ.get("VALIDATE_BROWSER") == "required":
        pytest.fail(why)
    if why is not None:
        pytest.skip(why)
    from playwright.sync_api import sync_playwright

    path = next(found for name in NAMES if (found := shutil.which(name)))
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=path, args=list(FLAGS))
        yield browser
        browser.close()


class Opened:
    """A page in Chromium and everything that it said or asked for."""

    def __init__(self, browser: Any, path: Path, **options: Any) -> None:
        """Open ``path`` as a file, in a context of its own."""
        self.said: list[str] = []
        self.asked: list[str] = []
        self.context = browser.new_context(**options)
        self.page = self.context.new_page()
        self.page.on("console", lambda message: self.said.append(message.text))
        self.page.on("pageerror", lambda error: self.said.append(str(error)))
        self.page.on("dialog", self._dialog)
        self.page.on("request", lambda request: self.asked.append(request.url))
        self.url = path.as_uri()
        self.page.goto(self.url)

    def _dialog(self, dialog: Any) -> None:
        self.said.append(f"dialog: {dialog.message}")
        dialog.dismiss()


@pytest.fixture
def opened(chromium: Any) -> Iterator[Any]:
    """Open pages; all are closed afterwards."""
    held: list[Opened] = []

    def open_page(path: Path, **options: Any) -> Opened:
        held.append(Opened(chromium, path, **options))
        return held[-1]

    yield open_page
    for one in held:
        one.context.close()
