"""From the arguments of ``validate conformance`` to a result."""

import re
import shlex
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from validate.capture.resolve import Progress
from validate.conformance.engine import fit_limit, run_conformance
from validate.conformance.records import Effort
from validate.conformance.registry import (
    IMPLEMENTATIONS,
    OPERATIONS,
    find_implementation,
    find_operation,
    settle,
)
from validate.conformance.stored import StoredCase, fit_case, load_case, probe_folder
from validate.errors import InputError, ValidateError
from validate.report.conformance import write_conformance
from validate.schema.conformance import ConformanceResult

__all__ = ["Asked", "judge", "out_folder"]

OUT = Path("reports") / "conformance"
"""Where results go, below the working directory."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """What the command line asks for."""

    op: str | None
    impl: str | None
    contract: tuple[str, ...]
    device: str | None
    full: bool
    time_limit: float
    case: Path | None
    out: Path | None


def judge(asked: Asked, progress: Progress) -> ConformanceResult:
    """Judge one implementation and write what came of it.

    Raises:
        InputError: An argument is missing, unknown or does not fit another.
    """
    wanted = _settings(asked.contract)
    fit_limit(asked.time_limit)
    if asked.case is not None:
        return _again(asked, asked.case, wanted, progress)
    op, impl = asked.op, asked.impl
    if op is None or impl is None:
        missing = "--op" if op is None else "--impl"
        msg = (
            f"{missing} is missing\n"
            "  do next: validate conformance --op top_k_renorm_prob --impl torch:exactly_k, or\n"
            "           validate list engines for every operation and implementation"
        )
        raise InputError(msg)
    settle(find_operation(op), wanted)
    find_implementation(impl, op, imports=False)
    folder = asked.out or OUT / op / _slug(impl)
    probe_folder(folder, case=folder / "case")
    result = run_conformance(
        op,
        impl,
        settings=wanted,
        effort=Effort.FULL if asked.full else Effort.QUICK,
        device=asked.device or "cpu",
        time_limit=asked.time_limit,
        save_to=folder / "case",
        command=_command(asked, op, impl),
        progress=progress,
    )
    write_conformance(result, folder)
    return result


def out_folder(text: str | None) -> Path | None:
    """The folder that ``--out`` names.

    Raises:
        InputError: It is empty, which would be the working directory.
    """
    if text is not None and not text.strip():
        msg = "--out '': it names no folder; next: --out DIR, '.' for the working directory"
        raise InputError(msg)
    return None if text is None else Path(text)


def _again(
    asked: Asked, folder: Path, wanted: Mapping[str, str], progress: Progress
) -> ConformanceResult:
    """One saved case; what its file names is used only where it is registered."""
    if asked.full:
        msg = "--full: a saved case is one input, not a sweep; next: leave one of them out"
        raise InputError(msg)
    stored, case = load_case(folder)
    op = asked.op or _registered_op(stored, folder)
    operation = find_operation(op)
    if stored.op not in {op, operation.contract.op}:
        msg = f"{folder}: the case belongs to '{stored.op}', --op says '{op}'; next: leave --op out"
        raise InputError(msg)
    if asked.out is not None:
        probe_folder(asked.out)
    settings = settle(operation, {**stored.settings, **wanted})
    fit_case(operation, case, settings, place=folder)
    impl = asked.impl or _registered(stored, folder)
    progress(0, 0, f"{op} {case.id}")
    try:
        result = run_conformance(
            op,
            impl,
            settings=settings,
            device=asked.device or stored.device,
            time_limit=asked.time_limit,
            case=case,
        )
    except InputError:
        raise
    except ValidateError as error:  # the sweep's own inputs are ours; these are the folder's
        msg = f"{folder}: its inputs cannot be judged as {op}\n  {error}"
        raise InputError(msg) from error
    if asked.out is not None:
        write_conformance(result, asked.out)
    return result


def _registered_op(stored: StoredCase, folder: Path) -> str:
    if stored.op in OPERATIONS:
        return stored.op
    msg = (
        f"{folder}: it was saved for '{stored.op}', which is no operation here; "
        f"next: --op, one of {', '.join(OPERATIONS)}"
    )
    raise InputError(msg)


def _registered(stored: StoredCase, folder: Path) -> str:
    if any(one.name == stored.implementation for one in IMPLEMENTATIONS):
        return stored.implementation
    msg = (
        f"{folder}: it was saved for '{stored.implementation}', which is not registered; "
        "a file does not decide what is imported\n"
        f"  do next: --impl {shlex.quote(stored.implementation)}"
    )
    raise InputError(msg)


def _settings(words: tuple[str, ...]) -> dict[str, str]:
    found: dict[str, str] = {}
    for word in words:
        key, equals, value = word.partition("=")
        if not equals or not key or not value:
            msg = f"--contract {word}: it is not of the form KEY=VALUE, e.g. ties=all"
            raise InputError(msg)
        if found.get(key, value) != value:
            msg = f"--contract {word}: {key} was given as '{found[key]}' already"
            raise InputError(msg)
        found[key] = value
    return found


def _command(asked: Asked, op: str, impl: str) -> str:
    words = ["validate", "conformance", "--op", op, "--impl", impl]
    for setting in asked.contract:
        words += ["--contract", setting]
    words += ["--device", asked.device] if asked.device is not None else []
    words += ["--full"] if asked.full else []
    return shlex.join(words)


def _slug(name: str) -> str:
    return re.sub(r"[^A-Za-z0-9_.]+", "-", name).strip("-.") or "implementation"
