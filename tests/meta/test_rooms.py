"""The import contracts bite: a stray room or a forbidden import makes lint-imports fail."""

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
LINT = Path(sys.executable).with_name("lint-imports")

pytestmark = [pytest.mark.meta, pytest.mark.slow]


@pytest.fixture
def copy(tmp_path: Path) -> Path:
    """The package and its contracts, in a folder of their own."""
    ignore = shutil.ignore_patterns("__pycache__", "*.so")
    shutil.copytree(ROOT / "validate", tmp_path / "validate", ignore=ignore)
    shutil.copy(ROOT / "pyproject.toml", tmp_path)
    return tmp_path


def lint(folder: Path) -> tuple[int, str]:
    done = subprocess.run(
        [LINT, "--no-cache"], cwd=folder, capture_output=True, text=True, check=False
    )
    return done.returncode, done.stdout + done.stderr


def append(path: Path, line: str) -> None:
    path.write_text(path.read_text("utf-8") + f"\n{line}\n", "utf-8")


def test_contracts_hold_as_the_package_stands(copy: Path) -> None:
    code, said = lint(copy)

    assert code == 0, said
    assert "Contracts: 2 kept, 0 broken." in said


def test_room_that_is_not_listed_is_refused(copy: Path) -> None:
    (copy / "validate" / "stray.py").write_text('"""A stray room."""\n', "utf-8")

    code, said = lint(copy)

    assert code != 0
    assert "validate.stray" in said or "- stray" in said


@pytest.mark.parametrize(
    ("place", "line", "contract"),
    [
        ("schema/prompts.py", "import validate.errors", None),
        ("metrics/__init__.py", "import validate.gates", "Rooms import downwards only"),
        ("capture/targets.py", "import validate.faults", "Rooms import downwards only"),
        ("numerics/__init__.py", "import validate.stats", "Rooms import downwards only"),
        ("pairing/__init__.py", "import torch", "The comparing side needs no framework"),
        ("oracle/__init__.py", "import torch", "The comparing side needs no framework"),
    ],
)
def test_import_against_the_order_breaks_its_contract(
    place: str, line: str, contract: str | None, copy: Path
) -> None:
    append(copy / "validate" / place, line)

    code, said = lint(copy)

    assert (code != 0) == (contract is not None), said
    if contract is not None:
        assert f"{contract} BROKEN" in said
