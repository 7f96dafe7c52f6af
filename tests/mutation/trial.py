"""One mutant before its judges, in this process; call it in a fork."""

import difflib
import importlib.abc
import importlib.machinery
import importlib.util
import sys
from pathlib import Path
from types import CodeType, ModuleType
from typing import Any

from tests.mutation.baseline import Judges
from tests.mutation.graph import unload
from tests.mutation.mutants import Mutant, bend, path_of
from tests.mutation.session import Chosen, run_tests

__all__ = ["change", "plant", "try_mutant"]

CHANGED = 3
"""Changed lines of a mutant that a report shows at most."""


class _Bent(importlib.machinery.SourceFileLoader):
    """Loads the mutant's text under the honest file's name."""

    def __init__(self, name: str, path: str, text: str) -> None:
        super().__init__(name, path)
        self.text = text

    def get_code(self, fullname: str) -> CodeType:
        return compile(self.text, self.get_filename(fullname), "exec", dont_inherit=True)


class _Finder(importlib.abc.MetaPathFinder):
    def __init__(self, module: str, text: str) -> None:
        self.module, self.text = module, text

    def find_spec(
        self, fullname: str, path: object = None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        del path, target
        if fullname != self.module:
            return None
        file = str(path_of(fullname))
        return importlib.util.spec_from_file_location(
            fullname, file, loader=_Bent(fullname, file, self.text)
        )


def plant(module: str, text: str) -> None:
    """From now on ``module`` is ``text``, for all that this process imports."""
    sys.meta_path.insert(0, _Finder(module, text))
    unload(module)


def try_mutant(mutant: Mutant, judges: Judges, *, settings: Path, honest: bool) -> dict[str, Any]:
    """Status, the judge who noticed, and what the mutant changes.

    ``killed``: a test failed, or the module could not be loaded; ``survived``;
    ``invalid``: the mutant is no Python. With ``honest`` the unbent source is planted
    in the same way: nobody may notice.
    """
    source = path_of(mutant.module).read_text(encoding="utf-8")
    text = source if honest else bend(mutant)
    if text is None:
        return {"status": "invalid"}
    told = {"change": change(source, text)}
    try:
        plant(mutant.module, text)
    except Exception as error:  # noqa: BLE001  a module that cannot be loaded is noticed
        return {**told, "status": "killed", "by": "import", "how": repr(error)[:160]}
    chosen = Chosen(judges.tests, others=judges.others)
    status = run_tests(judges.files, settings=settings, plugins=[chosen], first=True)
    if chosen.failed:
        by, how = next(iter(chosen.failed.items()))
        return {**told, "status": "killed", "by": by, "how": how}
    if not chosen.seconds:
        return {**told, "status": "unjudged", "how": f"no test ran (pytest exit {status})"}
    return {**told, "status": "survived", "tests": len(chosen.seconds)}


def change(source: str, text: str) -> str:
    """The lines that differ, without context."""
    lines = difflib.unified_diff(source.splitlines(), text.splitlines(), n=0, lineterm="")
    kept = [line for line in lines if line[:1] in "+-" and line[:3] not in {"+++", "---"}]
    return "\n".join(line[:200] for line in kept[: 2 * CHANGED])
