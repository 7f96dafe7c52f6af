"""What this machine is, which kernels it has, and what would get in the way."""

import importlib.metadata
import importlib.util
from collections.abc import Iterable, Mapping
from typing import Any

from validate.capture.devices import has_card
from validate.capture.goldens import stale_reason
from validate.capture.project import Project
from validate.capture.provenance import collect_provenance
from validate.cli.session import open_project

__all__ = ["describe", "lines_of", "name_clashes"]

KERNELS = {
    "aiter": "AMD's kernels; not called by this version",
    "triton": "the kernel compiler that torch uses",
    "flashinfer": "CUDA kernels for attention and sampling",
    "fla": "flash-linear-attention, kernels for KDA",
}
OURS = "validate"


def describe() -> dict[str, Any]:
    """Everything ``validate doctor`` tells, ready for JSON."""
    project = open_project()
    device = next((kind for kind in ("rocm", "cuda") if has_card(kind)), "cpu")
    return {
        "project": str(project.root),
        "provenance": collect_provenance(device=device).model_dump(),
        "kernels": {module: _version(module) for module in KERNELS},
        "problems": [*name_clashes(importlib.metadata.distributions()), *_stale(project)],
    }


def lines_of(found: Mapping[str, Any]) -> list[str]:
    """The same for a reader."""
    made = found["provenance"]
    changed = " with changes" if made["patch_digest"] else ""
    lines = [
        f"project    {found['project']}",
        f"device     {made['device']}",
        f"hardware   {made['hardware']}  {made['arch']}",
        f"driver     {made['driver'] or '(none)'}",
        f"threads    {made['threads'] or 'unknown'}",
        f"source     {made['source_commit'] or '(no git)'}{changed}",
    ]
    lines += [f"version    {name} {text}" for name, text in made["versions"].items()]
    lines += [f"variable   {name}={text}" for name, text in made["environment"].items()]
    lines += [
        f"kernels    {module} {version or 'not installed'}  ({KERNELS[module]})"
        for module, version in found["kernels"].items()
    ]
    problems = [f"problem    {problem}" for problem in found["problems"]]
    return lines + (problems or ["problems   none found"])


def name_clashes(distributions: Iterable[importlib.metadata.Distribution]) -> list[str]:
    """One line for each other distribution that installs a top-level package ``validate``."""
    others = {
        str(found.metadata["Name"]): found.version
        for found in distributions
        if found.metadata["Name"] != OURS
        and any(file.parts[0] in {OURS, f"{OURS}.py"} for file in found.files or ())
    }
    return [
        f"name clash: {name} {version} installs a top-level package '{OURS}' too; installing it "
        "replaces files of this one and removing it deletes them. "
        f"Next: pip uninstall {name}, then install {OURS} again, or use the environment of "
        "`make demo`"
        for name, version in sorted(others.items())
    ]


def _version(module: str) -> str | None:
    """Version of a kernel package, ``unknown`` without one, None when it is not installed."""
    if importlib.util.find_spec(module) is None:
        return None
    owners = importlib.metadata.packages_distributions().get(module)
    return importlib.metadata.version(owners[0]) if owners else "unknown"


def _stale(project: Project) -> list[str]:
    names = [name for name, entry in project.targets.items() if entry.kind == "golden"]
    found = [stale_reason(name, project.folder(name)) for name in names]
    return ["; ".join(map(str.strip, reason.splitlines())) for reason in found if reason]
