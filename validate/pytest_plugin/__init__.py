"""pytest plugin: one test a gate, with the verdicts of ``validate compare``.

``pytest suites --validate-ref REF --validate-cand CAND`` measures once, in a
process of its own that is ``validate compare`` itself; every test then reads
the verdict of its gate. Under xdist the first worker measures, the others wait,
and the controlling process sums up. Until the options are given nothing heavy
is imported.
"""

import shutil
import tempfile
from collections.abc import Callable, Generator, Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from validate.errors import ValidateError
from validate.pytest_plugin.session import (
    WANT,
    Asked,
    NoVerdictError,
    Session,
    check,
    check_names,
    suite_gates,
)
from validate.pytest_plugin.watch import GATE, OUTCOME, WAIVER, Watch

if TYPE_CHECKING:
    from validate.schema.report import GateReport, Report

__all__ = ["Compare", "Gate"]

MARKER = "validate_gates"
NONE_HERE = "no-gate-of-this-suite"
UNASKED = "sides-missing"
SESSION = pytest.StashKey[Session | None]()


# --- options --------------------------------------------------------------------------------


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the four options."""
    group = parser.getgroup("validate", "validate: gates that judge one serving path by another")
    group.addoption("--validate-ref", metavar="TARGET", help="Target that is compared against.")
    group.addoption("--validate-cand", metavar="TARGET", help="Target under judgement.")
    group.addoption(
        "--validate-suite",
        metavar="FILE",
        help="Suite file; the one of validate.toml if not given.",
    )
    group.addoption("--validate-report", metavar="FOLDER", help="Where the report is written.")


def pytest_configure(config: pytest.Config) -> None:
    """Check the options before anything is collected."""
    config.addinivalue_line(
        "markers",
        f"{MARKER}(*names): one test for each gate of these areas or names; of all gates if none",
    )
    config.stash[SESSION] = None
    given = {name: config.getoption(f"--validate-{name}") for name in ("ref", "cand")}
    others = [config.getoption(f"--validate-{name}") for name in ("suite", "report")]
    if not any((*given.values(), *others)):
        return
    missing = [f"--validate-{name}" for name, value in given.items() if not value]
    if missing:
        msg = f"validate: {' and '.join(missing)} missing; {WANT}"
        raise pytest.UsageError(msg)
    shared = getattr(config, "workerinput", {}).get("validate")
    folder, cwd = shared or (tempfile.mkdtemp(prefix="validate-"), config.invocation_params.dir)
    asked = Asked(**given, suite=others[0], out=others[1], folder=Path(folder), cwd=Path(cwd))
    config.stash[SESSION] = session = Session(asked)
    if shared is None:
        config.add_cleanup(lambda: shutil.rmtree(folder, ignore_errors=True))
        try:
            check(asked)
        except ValidateError as error:
            msg = f"validate: {error}"
            raise pytest.UsageError(msg) from error
        config.pluginmanager.register(Watch(session), "validate-watch")


@pytest.hookimpl(optionalhook=True)
def pytest_configure_node(node: Any) -> None:
    """Tell a worker of xdist where the shared results lie."""
    session = node.config.stash[SESSION]
    if session is not None:
        node.workerinput["validate"] = (str(session.asked.folder), str(session.asked.cwd))


# --- collection -----------------------------------------------------------------------------


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Make one test a gate of every test that is marked ``validate_gates``."""
    marks = list(metafunc.definition.iter_markers(MARKER))
    if not marks or "gate" not in metafunc.fixturenames:
        return
    session = metafunc.config.stash[SESSION]
    names = [UNASKED]
    if session is not None:
        wanted = {str(word) for mark in marks for word in mark.args}
        try:
            check_names(wanted, session.asked)
        except ValidateError as error:
            pytest.fail(f"validate: {metafunc.definition.nodeid}: {error}", pytrace=False)
        gates = suite_gates(session.asked)
        chosen = [name for name in gates if not wanted or wanted & {name, name.split(".")[0]}]
        names = chosen or [NONE_HERE]
    metafunc.parametrize("gate", names, ids=names, indirect=True)


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Refuse gates without sides; leave out modules of areas that the suite does not have."""
    if any(_gate_of(item) == UNASKED for item in items) and not hasattr(config, "workerinput"):
        msg = f"validate: the tests that were collected are gates on two sides; {WANT}"
        raise pytest.UsageError(msg)
    empty = [item for item in items if _gate_of(item) == NONE_HERE]
    if empty:
        items[:] = [item for item in items if item not in empty]
        config.hook.pytest_deselected(items=empty)


def _gate_of(item: pytest.Item) -> str | None:
    call = getattr(item, "callspec", None)
    if call is None or item.get_closest_marker(MARKER) is None:
        return None
    name: str | None = call.params.get("gate")
    return name


# --- fixtures -------------------------------------------------------------------------------


class Gate:
    """One gate of the suite, judged."""

    def __init__(self, report: "Report", found: "GateReport") -> None:
        self.report = report
        """The whole report."""
        self.found = found
        """Outcome, measurement, limit and noise of this gate."""

    def check(self) -> None:
        """Fail the test when the gate FAILs; a waived gate passes and is listed at the end."""
        if self.found.waiver is None and self.found.outcome == "FAIL":
            pytest.fail(self.words, pytrace=False)

    @property
    def words(self) -> str:
        """What the report for a terminal says of this gate."""
        from validate.report import render_gate

        return render_gate(self.found, self.report)


@pytest.fixture
def gate(request: pytest.FixtureRequest) -> Gate:
    """The gate that this test is for; an error in words where it is neither PASS nor FAIL."""
    name = getattr(request, "param", None)
    if name is None:
        msg = f"validate: the fixture 'gate' needs the mark @pytest.mark.{MARKER} on its test"
        pytest.fail(msg, pytrace=False)
    session = _asked(request.config)
    try:
        report = session.report(session.asked.main)
    except NoVerdictError as error:
        pytest.fail(f"{name}: {error}", pytrace=False)
    judged = Gate(report, next(one for one in report.gates if one.name == name))
    found = judged.found
    told = {GATE: found.name, OUTCOME: str(found.outcome), WAIVER: found.waiver or ""}
    request.node.user_properties.extend(told.items())
    if found.waiver is None and found.outcome not in ("PASS", "FAIL"):
        pytest.fail(judged.words, pytrace=False)
    return judged


@pytest.fixture(scope="session")
def ref(request: pytest.FixtureRequest) -> str:
    """The target given with ``--validate-ref``."""
    return _asked(request.config).asked.ref


@pytest.fixture(scope="session")
def cand(request: pytest.FixtureRequest) -> str:
    """The target given with ``--validate-cand``."""
    return _asked(request.config).asked.cand


Compare = Callable[..., "Report"]
"""``compare(ref, cand, *, suite=None, only=(), skip=(), prompt=(), check=True) -> Report``."""


@pytest.fixture
def compare(request: pytest.FixtureRequest) -> Compare:
    """Compare two targets as ``validate compare`` does; fails the test unless the verdict is PASS.

    With ``check=False`` the report comes back whatever it says, and the test judges.
    """
    session = _asked(request.config)

    def judge(
        ref: str,
        cand: str,
        *,
        suite: str | None = None,
        only: str | Iterable[str] = (),
        skip: str | Iterable[str] = (),
        prompt: str | Iterable[str] = (),
        check: bool = True,
    ) -> "Report":
        from validate.report import render_console

        chosen = {"--only": only, "--skip": skip, "--prompt": prompt}
        more = [
            word
            for option, words in chosen.items()
            if words
            for word in (option, words if isinstance(words, str) else ",".join(words))
        ]
        asked = session.asked
        arguments = asked.command(ref, cand, suite=suite or asked.suite, more=more)
        try:
            report = session.report(arguments)
        except NoVerdictError as error:
            pytest.fail(f"{ref} against {cand}: {error}", pytrace=False)
        request.node.user_properties.append((OUTCOME, str(report.verdict)))
        if check and report.exit_code != 0:
            pytest.fail(render_console(report), pytrace=False)
        return report

    return judge


def _asked(config: pytest.Config) -> Session:
    session = config.stash[SESSION]
    if session is None:
        pytest.fail(f"validate: {WANT}", pytrace=False)
    return session


@pytest.hookimpl(wrapper=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> Generator[None, object, object]:
    """Check the gate of a test whose body forgot to."""
    result = yield
    judged = pyfuncitem.funcargs.get("gate")
    if isinstance(judged, Gate):
        judged.check()
    return result
