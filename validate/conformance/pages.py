"""One page a contract, written from the records: ``python -m validate.conformance.pages``.

``docs/conformance/`` holds what this writes; a test demands that it is current.
"""

import ast
import importlib
import inspect
import itertools
import re
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from validate.conformance.guard import GENERAL
from validate.conformance.records import Case, Effort, Operation, Settings
from validate.conformance.registry import IMPLEMENTATIONS, OPERATIONS, settle

__all__ = ["contract_page", "index_page", "main", "pages"]

FOLDER = Path("docs") / "conformance"
_VALUES = 14
"""Values of an axis that are listed; more are told by their ends and their number."""


def pages() -> Iterator[tuple[str, str]]:
    """File name and text of every page, the index first."""
    yield "README.md", index_page()
    for name, operation in OPERATIONS.items():
        yield f"{name}.md", contract_page(name, operation)


def index_page() -> str:
    """The list of contracts."""
    lines = [
        "# Contracts",
        "",
        "What each operation promises, and what the sweep tries.",
        "[How to judge a kernel of yours](../conformance.md).",
        "",
        "| operation | promise |",
        "|---|---|",
    ]
    lines += [
        f"| [`{name}`]({name}.md) | {_cell(operation.contract.title)} |"
        for name, operation in OPERATIONS.items()
    ]
    return "\n".join([*lines, "", _made_by(), ""])


def contract_page(name: str, operation: Operation) -> str:
    """Signature, arguments, settings, clauses, sweep and known implementations of one contract."""
    contract = operation.contract
    cases = list(_quick(operation))
    arguments = _arguments(name)
    lines = [f"# `{name}`", "", f"{contract.title}.", "", "```", contract.signature, "```", ""]
    lines += ["## Arguments", "", *([arguments, ""] if arguments else [])]
    lines += ["| argument | what the sweep gives |", "|---|---|", *_argument_rows(cases), ""]
    lines += ["It returns " + ", ".join(f"`{output}`" for output in contract.outputs) + ".", ""]
    if contract.settings:
        lines += ["## Settings", "", "Declared with `--contract KEY=VALUE`.", ""]
        lines += ["| setting | values, the default first |", "|---|---|"]
        lines += [
            f"| `{key}` | {', '.join(f'`{value}`' for value in values)} |"
            for key, values in contract.settings.items()
        ]
        lines.append("")
    lines += ["## Clauses", "", "| clause | promise |", "|---|---|"]
    lines += [
        f"| `{clause}` | {_cell(text)} |"
        for clause, text in {**contract.clauses, **GENERAL}.items()
    ]
    lines += ["", "## Quick sweep", "", f"{len(cases)} points with the default settings.", ""]
    lines += ["| axis | values |", "|---|---|", *_axis_rows(cases), ""]
    lines += ["## Implementations", "", *_implementation_rows(name), ""]
    return "\n".join([*lines, _made_by(), ""])


def _made_by() -> str:
    return "Written by `python -m validate.conformance.pages` from the contract's record."


def _quick(operation: Operation) -> Iterator[Case]:
    settings: Settings = settle(operation, {})
    yield from operation.cases(Effort.QUICK, settings)


def _arguments(name: str) -> str:
    """The text that documents ``CONTRACT`` in the operation's module, in one paragraph."""
    module = importlib.import_module(f"validate.conformance.ops.{name}")
    body = ast.parse(inspect.getsource(module)).body
    for statement, after in itertools.pairwise(body):
        names = [
            target.id
            for target in getattr(statement, "targets", ())
            if isinstance(target, ast.Name)
        ]
        if names == ["CONTRACT"] and isinstance(after, ast.Expr):
            text = getattr(after.value, "value", None)
            if isinstance(text, str):
                return _sentences(text)
    return ""


def _sentences(text: str) -> str:
    """One sentence a line."""
    flat = " ".join(text.replace("``", "`").split())
    return re.sub(r"(?<=[^.])\. (?=[A-Z`])", ".\n", flat)


def _argument_rows(cases: list[Case]) -> list[str]:
    found: dict[str, list[str]] = {}
    for case in cases:
        for name, value in case.inputs.items():
            kind = _kind(value)
            if kind not in found.setdefault(name, []):
                found[name].append(kind)
    return [f"| `{name}` | {'; '.join(_by_rank(kinds))} |" for name, kinds in found.items()]


def _kind(value: Any) -> str:
    if isinstance(value, np.ndarray):
        return f"{value.ndim} axes: {value.dtype.name}"
    return "None" if value is None else type(value).__name__


def _by_rank(kinds: list[str]) -> list[str]:
    """``2 axes: float32, bfloat16`` from one entry a dtype."""
    grouped: dict[str, list[str]] = {}
    for kind in kinds:
        rank, colon, dtype = kind.partition(": ")
        grouped.setdefault(rank if colon else kind, []).extend([dtype] if colon else [])
    plural = {"1 axes": "1 axis", "0 axes": "no axis"}
    return [
        f"{plural.get(rank, rank)}: {', '.join(dtypes)}" if dtypes else rank
        for rank, dtypes in grouped.items()
    ]


def _axis_rows(cases: list[Case]) -> list[str]:
    values: dict[str, list[Any]] = {}
    for case in cases:
        for axis, value in case.axes.items():
            if value not in values.setdefault(axis, []):
                values[axis].append(value)
    return [f"| {axis} | {_cell(_listed(found))} |" for axis, found in values.items()]


def _listed(values: list[Any]) -> str:
    numbers = all(isinstance(value, int | float) for value in values)
    ordered = sorted(values) if numbers else values
    words = [f"{value:.6g}" if isinstance(value, float) else str(value) for value in ordered]
    words = list(dict.fromkeys(words))
    if len(words) <= _VALUES:
        return ", ".join(words)
    return f"{', '.join(words[: _VALUES // 2])}, …, {words[-1]} ({len(words)} values)"


def _implementation_rows(name: str) -> list[str]:
    known = [one for one in IMPLEMENTATIONS if one.op == name]
    if not known:
        return ["None is registered."]
    return [
        "| name | what it is | devices | declares |",
        "|---|---|---|---|",
        *(
            f"| `{one.name}` | {_cell(one.title)} | {', '.join(one.devices)} | "
            f"{_words(one.settings)} |"
            for one in known
        ),
    ]


def _words(settings: Mapping[str, str]) -> str:
    return " ".join(f"`{key}={value}`" for key, value in settings.items())


def _cell(text: str) -> str:
    return " ".join(text.split()).replace("|", "\\|")


def main(folder: Path = FOLDER) -> int:
    """Write every page below ``folder`` and take away those of no operation.

    Returns:
        Exit code of the process, 0.
    """
    folder.mkdir(parents=True, exist_ok=True)
    written = dict(pages())
    for old in folder.glob("*.md"):
        if old.name not in written:
            old.unlink()
    for name, text in written.items():
        (folder / name).write_text(text, "utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main(*map(Path, sys.argv[1:2])))
