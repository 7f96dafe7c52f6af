"""What a session was asked for, and the comparison that it makes once for all its processes."""

import contextlib
import difflib
import hashlib
import json
import subprocess
import sys
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from validate.errors import InputError, ValidateError

if TYPE_CHECKING:
    from validate.schema.report import Report

__all__ = ["WANT", "Asked", "NoVerdictError", "Session", "check", "check_names", "suite_gates"]

TOLD = 4000
"""Characters that are repeated of what a comparison said before it gave up."""
WANT = (
    "name the two sides: pytest suites --validate-ref cuda --validate-cand rocm "
    "(targets: validate list targets)"
)


class NoVerdictError(ValidateError):
    """The comparison stopped before it had a verdict; the text is what it said."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """What the options say, and where this session's results lie."""

    ref: str
    cand: str
    suite: str | None
    out: str | None
    """Folder of the report; None: beside the shared results, and gone with them."""
    folder: Path
    """Results that all workers share; removed at the end."""
    cwd: Path

    def command(
        self, ref: str, cand: str, *, suite: str | None, more: Sequence[str] = ()
    ) -> tuple[str, ...]:
        """Arguments of ``validate`` that compare two targets."""
        named = ("--suite", suite) if suite else ()
        return ("compare", "--ref", ref, "--cand", cand, *named, *more)

    @property
    def main(self) -> tuple[str, ...]:
        """The comparison that the options ask for: the whole suite, whatever is selected."""
        return self.command(self.ref, self.cand, suite=self.suite)


@dataclass(slots=True)
class Session:
    """The comparisons of one session; whoever asks first measures, all others read."""

    asked: Asked
    _held: dict[tuple[str, ...], "Report"] = field(default_factory=dict)

    def report(self, arguments: tuple[str, ...]) -> "Report":
        """The report of one comparison.

        Raises:
            NoVerdictError: It ended without a verdict.
        """
        if arguments not in self._held:
            self._held[arguments] = self._read(arguments)
        return self._held[arguments]

    def place(self, arguments: tuple[str, ...]) -> Path:
        """Folder of a comparison's report files."""
        asked, key = self.asked, _key(arguments)
        if asked.out is None:
            return asked.folder / key
        out = asked.cwd / asked.out
        return out if arguments == asked.main else out / f"compare-{key}"

    def _read(self, arguments: tuple[str, ...]) -> "Report":
        from validate.schema.report import Report

        out = self.place(arguments)
        here = self.asked.folder / _key(arguments)
        code, said = _measure(arguments, here=here, out=out, cwd=self.asked.cwd)
        file = out / "report.json"
        report = Report.model_validate_json(file.read_bytes()) if file.is_file() else None
        if report is None or report.exit_code != code:
            msg = f"no verdict: validate compare ended with exit code {code}\n{said}"
            raise NoVerdictError(msg)
        return report


def check(asked: Asked) -> None:
    """Refuse an unknown target, a wrong suite or a wrong folder before anything is collected.

    Raises:
        ValidateError: As ``validate compare`` would say it.
    """
    from validate.capture.places import fit_folder
    from validate.capture.targets import parse_target
    from validate.faults import FAULT_SIDES

    if asked.out is not None:
        if not str(asked.out).strip():
            msg = '--validate-report "": no folder is named; nothing was done'
            raise InputError(msg)
        fit_folder("--validate-report", asked.cwd / asked.out)
    project = _project(asked)
    for target in (asked.ref, asked.cand):
        parse_target(target, project, faults=FAULT_SIDES)
    suite_gates(asked)


def suite_gates(asked: Asked) -> tuple[str, ...]:
    """Names of all gates of the suite, in its order."""
    from validate.suite import load_suite

    path = asked.cwd / asked.suite if asked.suite else _project(asked).suite
    return tuple(gate.name for gate in load_suite(path).gates)


def check_names(names: Collection[str], asked: Asked) -> None:
    """Refuse words of a mark that are no area and no gate at all: they would select nothing.

    Raises:
        ValidateError: One of them is neither; the nearest name is told.
    """
    from validate.metrics import METRICS
    from validate.schema.suite import AREAS

    known = {*AREAS, *METRICS, *suite_gates(asked)}
    for name in sorted(set(names) - known):
        near = difflib.get_close_matches(name, sorted(known), n=1)
        hint = f"; did you mean '{near[0]}'?" if near else ""
        msg = f"the mark validate_gates names '{name}', which is no area and no gate{hint}"
        raise InputError(msg)


def _project(asked: Asked) -> Any:
    from validate.capture.project import find_project

    return find_project(asked.cwd)


def _key(arguments: Sequence[str]) -> str:
    return hashlib.sha256(json.dumps(list(arguments)).encode()).hexdigest()[:16]


def _measure(arguments: Sequence[str], *, here: Path, out: Path, cwd: Path) -> tuple[int, str]:
    """Run ``validate`` unless a process of this session already did: exit code, and its stderr."""
    here.mkdir(parents=True, exist_ok=True)
    done = here / "done.json"
    with _alone(here / "lock"):
        if not done.is_file():
            for old in out.glob("report.*"):
                old.unlink()
            command = [sys.executable, "-m", "validate.cli", *arguments, "--out", str(out)]
            with (here / "stderr").open("w+b") as told:
                ran = subprocess.run(
                    command, cwd=cwd, stdout=subprocess.DEVNULL, stderr=told, check=False
                )
                told.seek(0)
                said = told.read().decode("utf-8", errors="replace")[-TOLD:]
            done.write_text(json.dumps({"code": ran.returncode, "said": said}), "utf-8")
        found = json.loads(done.read_text("utf-8"))
    return found["code"], found["said"]


@contextlib.contextmanager
def _alone(lock: Path) -> Iterator[None]:
    """Hold ``lock``; the system frees it when a worker dies."""
    import fcntl  # not on every system that pytest runs on, and needed only here

    with lock.open("w") as stream:
        fcntl.flock(stream, fcntl.LOCK_EX)
        yield
