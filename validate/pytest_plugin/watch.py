"""The controlling process: which gates had a verdict, what was waived, and whether any ran."""

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

from validate.pytest_plugin.session import NoVerdictError, Session

if TYPE_CHECKING:
    from validate.schema.report import Report

__all__ = ["GATE", "OUTCOME", "WAIVER", "Watch"]

GATE, OUTCOME, WAIVER = "validate.gate", "validate.outcome", "validate.waiver"
"""Names under which a test tells its gate, outcome and waiver; JUnit files show them."""
NOTHING = (
    "no gate was judged, though --validate-ref and --validate-cand ask for gates: this run says "
    "nothing about {cand}\n  do next: pytest suites --validate-ref {ref} --validate-cand {cand}, "
    "with no -k or node id that leaves every gate out"
)


class Watch:
    """Reads the verdicts that tests carry, wherever they ran."""

    def __init__(self, session: Session) -> None:
        self.session = session
        self.judged: dict[str, str] = {}
        """Gate to outcome."""
        self.waived: dict[str, str] = {}
        """Gate to outcome and the words of its waiver."""
        self.compared = 0
        """Verdicts of the fixture ``compare``."""

    def pytest_report_header(self) -> str:
        """Name both sides."""
        asked = self.session.asked
        suite = asked.suite or "of validate.toml"
        return f"validate: ref {asked.ref}, cand {asked.cand}, suite {suite}"

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Note the verdict of a test that came to one."""
        if report.when == "teardown":
            return
        told = {str(name): str(value) for name, value in report.user_properties}
        if OUTCOME not in told:
            return
        if GATE not in told:
            self.compared += 1
            return
        self.judged[told[GATE]] = told[OUTCOME]
        if told[WAIVER]:
            self.waived[told[GATE]] = f"{told[OUTCOME]} and does not count: {told[WAIVER]}"

    @pytest.hookimpl(tryfirst=True)
    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        """Fail a session that was asked for gates and judged none."""
        green = (pytest.ExitCode.OK, pytest.ExitCode.NO_TESTS_COLLECTED)
        if session.config.option.collectonly or self.judged or self.compared:
            return
        if session.exitstatus in green:
            session.exitstatus = pytest.ExitCode.TESTS_FAILED

    def pytest_terminal_summary(
        self, terminalreporter: pytest.TerminalReporter, config: pytest.Config
    ) -> None:
        """Tell the verdict of the whole comparison, what is waived, and where the report is."""
        if config.option.collectonly:
            return
        terminalreporter.section("validate")
        if not self.judged and not self.compared:
            asked = self.session.asked
            words = NOTHING.format(ref=asked.ref, cand=asked.cand)
            terminalreporter.write_line(words, red=True)
            return
        for name, words in sorted(self.waived.items()):
            terminalreporter.write_line(f"WAIVED {name}: {words}", yellow=True)
        for line in self._told() if self.judged else ():
            terminalreporter.write_line(line)

    def _told(self) -> Iterator[str]:
        from validate.report.wording import clean, label_of, mark, verdict_words

        try:
            report: Report = self.session.report(self.session.asked.main)
        except NoVerdictError as error:
            yield f"no verdict on the whole suite: {error}"
            return
        whole = "the whole suite" if len(self.judged) < len(report.gates) else "the suite"
        yield f"{len(self.judged)} of {len(report.gates)} gates were judged by a test of their own"
        words = mark(verdict_words(report), report)
        yield clean(f"{whole}, ref {report.ref.label} against cand {label_of(report)}:")
        yield clean(f"  {report.verdict}: {words}")
        if self.session.asked.out is not None:
            folder = self.session.place(self.session.asked.main)
            yield from (f"  report: {file}" for file in sorted(folder.glob("report.*")))
