"""One run of pytest inside this process, over chosen tests in a chosen order."""

import contextlib
import os
import sys
import tempfile
import tomllib
from collections.abc import Iterator, Sequence
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

import hypothesis
import pytest

from tests.mutation.mutants import ROOT

__all__ = ["Calls", "Chosen", "run_tests", "settings_file"]


def settings_file(folder: Path) -> Path:
    """Settings of pytest for these runs: the markers and warnings of the project, no options.

    Shapes are not checked: assertions alone must notice.
    """
    told = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["tool"]["pytest"]
    lines = ["[pytest]", f"pythonpath = {ROOT}", "filterwarnings =", "    error", "markers ="]
    lines += [f"    {marker}" for marker in told["markers"]]
    path = folder / "pytest.ini"
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return path


class Chosen:
    """A plugin: runs the named tests, in that order, then the others; notes what failed."""

    def __init__(self, names: Sequence[str], *, others: bool) -> None:
        self.place = {name: place for place, name in enumerate(names)}
        self.others = others
        self.failed: dict[str, str] = {}
        self.seconds: dict[str, float] = {}

    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        """Order, and drop."""
        last = len(self.place)
        kept = [i for i in items if self.others or i.nodeid in self.place]
        items[:] = sorted(kept, key=lambda item: self.place.get(item.nodeid, last))

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Time and failure of one step of a test."""
        self.seconds[report.nodeid] = self.seconds.get(report.nodeid, 0.0) + report.duration
        if report.failed:
            self.failed.setdefault(report.nodeid, _last_line(report))

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        """A file that cannot be read is a failure by its own name."""
        if report.failed:
            self.failed.setdefault(report.nodeid, _last_line(report))


def _last_line(report: Any) -> str:
    crash = getattr(report.longrepr, "reprcrash", None)
    text = str(crash.message if crash else report.longrepr).strip().splitlines()
    return text[0][:160] if text else ""


class Calls:
    """A plugin: which functions of the package each test calls.

    What is called while a file is collected stands under the empty name.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = str(folder)
        self.now: dict[int, CodeType] = {}
        self.tests: dict[str, dict[int, CodeType]] = {"": self.now}

    def __call__(self, frame: FrameType, event: str, _: object) -> None:
        """What ``sys.setprofile`` calls."""
        if event == "call":
            code = frame.f_code
            self.now.setdefault(id(code), code)

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Iterator[None]:
        """Everything that one test calls, fixtures with it."""
        self.now = self.tests.setdefault(item.nodeid, {})
        sys.setprofile(self)
        try:
            return (yield)
        finally:
            sys.setprofile(self)

    def functions(self) -> dict[str, list[str]]:
        """For each test the functions of the package, as ``file:outermost function``."""
        return {
            test: sorted(
                f"{code.co_filename[len(self.folder) + 1 :]}:{_outermost(code)}"
                for code in codes.values()
                if code.co_filename.startswith(self.folder)
            )
            for test, codes in self.tests.items()
        }


def _outermost(code: CodeType) -> str:
    return code.co_qualname.split(".<locals>")[0]


def run_tests(
    files: Sequence[str], *, settings: Path, plugins: Sequence[object], first: bool
) -> int:
    """Exit status of pytest over ``files``; stops at the ``first`` failure when asked to."""
    os.environ["PYTEST_DISABLE_PLUGIN_AUTOLOAD"] = "1"
    options = ["-q", "--tb=short", "--assert=plain", "--import-mode=importlib", *(["-x"] * first)]
    for plugin in ("cacheprovider", "unraisableexception", "threadexception", "faulthandler"):
        options += ["-p", f"no:{plugin}"]
    options += ["-c", str(settings), f"--rootdir={ROOT}"]
    _quiet_hypothesis()
    base = tempfile.mkdtemp(prefix="t", dir=settings.parent)
    with contextlib.redirect_stdout(_Nowhere()):
        status = pytest.main([*options, f"--basetemp={base}/b", *files], plugins=list(plugins))
    return int(status)


class _Nowhere:
    """Takes every text and keeps none."""

    encoding = "utf-8"

    def write(self, text: str) -> int:
        return len(text)

    def flush(self) -> None:
        return None

    def isatty(self) -> bool:
        return False


def _quiet_hypothesis() -> None:
    """The same examples each time, none stored, none shrunk; slowness is no failure."""
    phases = (hypothesis.Phase.explicit, hypothesis.Phase.generate)
    hypothesis.settings.register_profile(
        "mutation",
        database=None,
        derandomize=True,
        deadline=None,
        phases=phases,
        suppress_health_check=[hypothesis.HealthCheck.too_slow],
    )
    hypothesis.settings.load_profile("mutation")
