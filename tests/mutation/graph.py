"""Which modules depend on which, read from their import statements."""

import ast
import importlib
import sys
from collections.abc import Iterable
from functools import cache
from pathlib import Path
from types import ModuleType

from tests.mutation.mutants import ROOT

__all__ = ["dependents", "imports", "preload", "tests_of_room", "unload"]


def tests_of_room(room: str) -> list[str]:
    """Files of unit tests of a room, relative to the root."""
    folder = ROOT / "tests/unit" / room
    return sorted(path.relative_to(ROOT).as_posix() for path in folder.rglob("test_*.py"))


@cache
def imports(path: Path) -> frozenset[str]:
    """Every name that may be a module which the file imports."""
    found: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            found |= {node.module} | {f"{node.module}.{alias.name}" for alias in node.names}
    return frozenset(found)


@cache
def _files() -> dict[str, Path]:
    """Our own modules by name; those of unit tests are loaded by pytest alone."""
    found = {}
    paths = [*(ROOT / "validate").rglob("*.py"), *(ROOT / "tests").glob("*.py")]
    paths += [p for p in (ROOT / "tests/unit").rglob("*.py") if not p.stem.startswith("test_")]
    for path in paths:
        parts = path.relative_to(ROOT).with_suffix("").parts
        found[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path
    return found


@cache
def dependents(module: str) -> frozenset[str]:
    """Our modules that import ``module``, at however many removes, and itself."""
    found = {module}
    while True:
        more = {name for name, path in _files().items() if imports(path) & found} - found
        if not more:
            return frozenset(found)
        found |= more


def preload(rooms: Iterable[str]) -> None:
    """Import all that the tests of ``rooms`` import, so that a fork need not."""
    files = [ROOT / name for room in rooms for name in tests_of_room(room)]
    wanted = {"hypothesis"} | {name for path in files for name in imports(path)}
    for name in sorted(wanted):
        if not name.startswith("tests.unit"):
            try:
                importlib.import_module(name)
            except ImportError:
                continue


def unload(module: str) -> None:
    """Forget ``module`` and all that depend on it, and load the packages among them anew.

    A package that stays forgets its submodules that went, so that ``from package import module``
    loads them anew too; one that is loaded anew finds those which stayed.
    """
    gone = {name for name in dependents(module) if sys.modules.pop(name, None) is not None}
    for name in gone:
        owner, _, short = name.rpartition(".")
        if isinstance(getattr(sys.modules.get(owner), short, None), ModuleType):
            delattr(sys.modules[owner], short)
    packages = sorted(name for name in gone if _files()[name].stem == "__init__")
    for package in packages:
        fresh = importlib.import_module(package)
        for name, kept in list(sys.modules.items()):
            owner, _, short = name.rpartition(".")
            if owner == package and not hasattr(fresh, short):
                setattr(fresh, short, kept)
