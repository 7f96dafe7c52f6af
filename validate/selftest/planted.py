"""Captures and results with a fault, or a legitimate difference, in what was recorded."""

from pathlib import Path

from validate.capture import open_capture
from validate.capture.importers import open_lm_eval
from validate.errors import InputError
from validate.faults.captures import SIDES, plant
from validate.faults.evals import plant as plant_evals
from validate.schema import Side
from validate.selftest.cases import Case
from validate.selftest.eval_folders import write_pair
from validate.selftest.stage import Stage
from validate.selftest.trim import Trimmed, trim

__all__ = ["planted_folders", "planted_sides"]


def planted_sides(
    case: Case, stage: Stage, made: Side, *, golden: Path, folder: Path
) -> tuple[Side, Side]:
    """Ref and cand of a case whose fault is in what was recorded.

    Args:
        case: The fault, or control.
        stage: What stands beside cand.
        made: The right capture that cand is a copy of.
        golden: Folder of ref's capture, for faults of both sides.
        folder: Where copies are written.

    Returns:
        Ref, a copy where the fault lives in both sides, and cand.

    Raises:
        InputError: ``made`` lies in no folder.
    """
    source = made.whole if isinstance(made, Trimmed) else made
    path = getattr(source, "path", None)
    if path is None:
        msg = f"selftest {case.key}: '{made.label}' is in no folder, so no copy of it can be made"
        raise InputError(msg)
    ids = [prompt.id for prompt in stage.prompts]
    out = folder / "cand"
    plant(case.id, path, out, severity=case.severity)
    # A fault may leave prompts out: what is left is judged as it is.
    cand: Side = open_capture(out, label=f"{made.label} with {case.key}")
    if "ref" in SIDES.get(case.id, ()):
        plant(case.id, golden, folder / "ref", role="ref", severity=case.severity, prompts=ids)
        ref = open_capture(folder / "ref", label=f"{stage.ref.label} with {case.key}")
        return (ref if stage.drawn else trim(ref, ids)), cand
    return stage.ref, cand


def planted_folders(case: Case, folder: Path) -> tuple[Side, Side]:
    """Two lm-eval folders, the second (or both) as a harness with the fault writes them."""
    ref, cand = write_pair(folder)
    if case.is_fault:
        plant_evals(case.id, ref=ref, cand=cand)
    return open_lm_eval(ref, label="ref"), open_lm_eval(cand, label=f"cand with {case.key}")
