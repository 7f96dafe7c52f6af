"""``validate.toml``: the names targets may have, and where a project keeps its files."""

import tomllib
from pathlib import Path
from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from validate.errors import InputError

__all__ = [
    "CONFIG_NAME",
    "DEFAULT_WEIGHTS",
    "KeyRule",
    "Project",
    "Recipe",
    "TargetEntry",
    "find_project",
]

CONFIG_NAME = "validate.toml"
DEFAULT_WEIGHTS = "seed1"
"""Weights of a target that names none."""
TARGET_NAME = r"^[a-z][a-z0-9-]*$"

TargetName = Annotated[str, Field(pattern=TARGET_NAME)]
KeyRule = tuple[str, ...] | Literal["count", "fault"]
"""What a key accepts: these values, an integer of at least 1, or a fault planted on this side."""


class _Record(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class Recipe(_Record):
    """How a stored capture was made, so that ``golden record`` and ``verify`` can make it again."""

    backend: Literal["torch", "oracle"]
    path: Literal["reference", "rocm"] = "reference"
    device: Literal["cpu", "cuda", "rocm"]
    options: dict[str, str] = Field(default_factory=dict)


class TargetEntry(_Record):
    """One name of the table."""

    kind: Literal["golden", "capture", "torch"]
    """``golden`` and ``capture`` are folders; ``torch`` runs here."""
    title: str
    path: str
    """Folder relative to ``validate.toml``, or for ``torch`` the path of the model."""
    side: Literal["ref", "cand"] = "ref"
    """Which planted faults the name accepts."""
    keys: dict[str, KeyRule] = Field(default_factory=dict)
    repeat_of: TargetName | None = None
    recipe: Recipe | None = None


class _File(_Record):
    schema_version: Literal[1]
    suite: str
    calibration: str
    runs: str
    reports: str
    weights: str
    model_config_file: Annotated[str, Field(alias="model_config")]
    drafter: str | None = None
    drafter_config: str | None = None
    targets: dict[TargetName, TargetEntry]


class Project(_Record):
    """A ``validate.toml`` that was read and checked.

    Paths start from the working directory where they lie below it, so that
    reports and messages of two clones read the same; else they are absolute.
    """

    root: Path
    suite: Path
    calibration: Path
    """Rules that limits are derived by."""
    runs: Path
    reports: Path
    weights: Path
    """Folder with ``<name>.safetensors``."""
    model_config_file: Path
    drafter: Path | None = None
    """Weights of the drafter; None for a project without speculation."""
    drafter_config: Path | None = None
    """Its dimensions."""
    targets: dict[str, TargetEntry]

    def folder(self, name: str) -> Path:
        """Folder of the stored capture ``name``."""
        return self.root / self.targets[name].path

    def repeats(self, name: str) -> tuple[str, ...]:
        """Names declared as repeats of ``name``, in file order."""
        return tuple(other for other, entry in self.targets.items() if entry.repeat_of == name)


def find_project(start: Path) -> Project:
    """Read the ``validate.toml`` of ``start`` or of the nearest folder above it.

    When there is none, the one beside the installed package is taken (an
    editable install, as `make demo` makes it).

    Raises:
        InputError: There is no such file, or it does not follow its schema.
    """
    folders = (start, *start.parents, Path(__file__).parents[2])
    for folder in folders:
        path = folder / CONFIG_NAME
        if path.is_file():
            return load_project(path)
    msg = (
        f"no {CONFIG_NAME} in {start}, in a folder above it or beside the package\n"
        f"  do next: run validate inside a clone of the project, or write a {CONFIG_NAME}"
    )
    raise InputError(msg)


def load_project(path: Path) -> Project:
    """Read and check one ``validate.toml``.

    Raises:
        InputError: Not TOML, or an unknown key, a missing key or a wrong value.
    """
    try:
        content = _File.model_validate(tomllib.loads(path.read_text("utf-8")))
    except ValidationError as error:
        msg = f"{path}: {_first_problem(error)}"
        raise InputError(msg) from error
    except (ValueError, RecursionError) as error:  # also of 5,000 digits, or nested too deep
        msg = f"{path}: not TOML: {error}"
        raise InputError(msg) from error
    _check_references(content, path)
    root = _short(path.parent)
    return Project(
        root=root,
        suite=root / content.suite,
        calibration=root / content.calibration,
        runs=root / content.runs,
        reports=root / content.reports,
        weights=root / content.weights,
        model_config_file=root / content.model_config_file,
        drafter=None if content.drafter is None else root / content.drafter,
        drafter_config=None if content.drafter_config is None else root / content.drafter_config,
        targets=content.targets,
    )


def _short(folder: Path) -> Path:
    whole, here = folder.resolve(), Path.cwd()
    return whole.relative_to(here) if whole.is_relative_to(here) else whole


def _first_problem(error: ValidationError) -> str:
    problems = error.errors()
    lines = [f"{'.'.join(str(part) for part in p['loc'])}: {p['msg']}" for p in problems[:5]]
    more = f"\n  and {len(problems) - 5} more" if len(problems) > len(lines) else ""
    return "; ".join(lines) + more


def _check_references(content: _File, path: Path) -> None:
    if (content.drafter is None) != (content.drafter_config is None):
        msg = f"{path}: drafter and drafter_config come together; one of them is missing"
        raise InputError(msg)
    for name, entry in content.targets.items():
        if entry.repeat_of is not None and entry.repeat_of not in content.targets:
            msg = f"{path}: targets.{name}.repeat_of names no target: '{entry.repeat_of}'"
            raise InputError(msg)
        if entry.kind == "torch" and entry.path not in ("reference", "rocm"):
            msg = f"{path}: targets.{name}.path is '{entry.path}'; the torch model has reference, rocm"
            raise InputError(msg)
