"""What every command starts from: the project file, targets and prompts."""

from pathlib import Path

from validate.capture.project import Project, find_project
from validate.capture.targets import Target, parse_target
from validate.faults import FAULT_SIDES
from validate.schema import Prompt
from validate.suite import load_prompts, load_suite

__all__ = ["open_project", "read_prompts", "read_target"]


def open_project() -> Project:
    """The ``validate.toml`` of the working directory, of one above it, or beside the package."""
    return find_project(Path.cwd())


def read_target(text: str, project: Project) -> Target:
    """Check a target before any work starts."""
    return parse_target(text, project, faults=FAULT_SIDES)


def read_prompts(path: Path | None, project: Project) -> tuple[str, tuple[Prompt, ...]]:
    """Name and prompts of a set; those of the default suite when no file is given."""
    if path is None:
        path = project.root / load_suite(project.suite).prompts
    return path.stem, load_prompts(path)
