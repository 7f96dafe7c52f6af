"""Captures and results with a fault, or a legitimate difference, in what was recorded."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import log_softmax

from validate.capture import CaptureWriter, Tensor, open_capture
from validate.capture.importers import open_lm_eval
from validate.errors import InputError
from validate.faults.captures import SIDES, plant
from validate.faults.evals import plant as plant_evals
from validate.schema import CaptureHeader, Side
from validate.selftest.cases import Case
from validate.selftest.eval_folders import write_pair
from validate.selftest.stage import Stage
from validate.selftest.trim import Trimmed, trim

__all__ = ["log_probabilities", "planted_folders", "planted_sides"]

_AS_TOPK = ("logits", "decode.logits")
"""Sections that the format takes as top-k."""


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
    if not case.is_fault:
        log_probabilities(path, out)
        return stage.ref, open_capture(out, label=f"{made.label} with {case.key}")
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


def log_probabilities(source: Path, out: Path) -> None:
    """Copy a capture as of a server that returns log-probabilities of every id, and no logits.

    They are stored as top-k of the whole vocabulary in float32: in bfloat16 they would be
    rounded once more than the logits were, which is an error and no convention.
    """
    held = open_capture(source, label=str(source))
    told = held.manifest
    header = CaptureHeader(**{name: getattr(told, name) for name in CaptureHeader.model_fields})
    with CaptureWriter(out, header=header) as writer:
        for name, prompt in held.prompts.items():
            tensors = {
                key: Tensor(held.tensor(name, key), held.axes(name, key))
                for key in held.names(name)
            }
            for section in _AS_TOPK:
                if section in tensors:
                    tensors |= _returned(section, tensors.pop(section).array)
            writer.add(
                prompt,
                tensors,
                stream=held.streams.get(name),
                batch_row=told.batch_rows[name],
                drawn=tuple(one[name] for one in held.drawn.values() if name in one),
            )
        writer.close(path_proof=told.path_proof, timing={"planted_seconds": 0.0})


def _returned(section: str, logits: NDArray[Any]) -> Mapping[str, Tensor]:
    rows = log_softmax(logits.astype(np.float64), axis=-1)
    ids = np.argsort(-rows, axis=1, kind="stable")
    told = np.take_along_axis(rows, ids, axis=1).astype(np.float32)
    nothing = np.zeros(len(rows), np.float32)
    return {
        f"{section}.topk.ids": Tensor(ids.astype(np.int32), ("rows", "choice")),
        f"{section}.topk.logits": Tensor(told, ("rows", "choice")),
        f"{section}.lse": Tensor(nothing, ("rows",)),
        f"{section}.tail_mass": Tensor(nothing, ("rows",)),
        f"{section}.row_min": Tensor(told[:, -1].copy(), ("rows",)),
    }
