"""``validate compare --dry-run``: what would be compared, without measuring anything."""

import json
from collections.abc import Sequence
from typing import Any

from validate.capture.format import MANIFEST
from validate.capture.reader import CaptureReader, open_capture
from validate.capture.resolve import Resolved
from validate.cli.cast import choose_suite, find
from validate.cli.judge import Asked, other_prompts
from validate.cli.lengths import choose_prompts, parse_lengths
from validate.cli.session import open_project, read_target
from validate.errors import IncomparableError
from validate.pairing import pair, pair_evals_alone
from validate.run.evals_alone import evals_alone
from validate.schema import Prompt
from validate.schema.suite import GateSpec, Limits, Suite
from validate.suite import (
    check_limits,
    load_limits,
    load_prompts,
    load_suite,
    narrower,
    select_gates,
)

__all__ = ["print_plan"]


def print_plan(asked: Asked, *, as_json: bool) -> int:
    """Print sides, prompts, tensors and gates; captures are not made.

    Raises:
        IncomparableError: Both captures are there and do not match, or ref was captured on
            other prompts than the suite's.
        ValidateError: As a comparison would raise before it measures.
    """
    project = open_project()
    targets = {"ref": read_target(asked.ref, project), "cand": read_target(asked.cand, project)}
    suite = load_suite(choose_suite(asked.suite, tuple(targets.values()), project))
    limits = load_limits(project.root / suite.limits)
    gates = select_gates(suite, only=asked.only, skip=asked.skip)
    held = load_prompts(project.root / suite.prompts)
    sides = {
        role: find(
            target,
            project=project,
            suite=suite,
            evals=any(gate.area == "evals" for gate in gates),
            fresh=asked.fresh,
            progress=_silent,
            make=False,
        )
        for role, target in targets.items()
    }
    whole = all((side.path / MANIFEST).is_file() for side in sides.values())
    plan: dict[str, Any] = {
        role: {"target": side.label, "path": str(side.path), "state": _state(side)}
        for role, side in sides.items()
    }
    plan["pairing"] = _pairing(asked, sides, suite, limits, held, gates) if whole else None
    plan["gates"] = [gate.name for gate in gates]
    print(json.dumps({"plan": plan}, indent=1) if as_json else _text(plan))
    return 0


def _silent(_done: int, _total: int, _what: str) -> None:
    """Progress of nothing."""


def _state(side: Resolved) -> str:
    if side.stale is not None:
        return "stale"
    stored = side.target.folder is not None
    return "stored" if stored else "reused" if side.reused else "to be captured"


def _pairing(
    asked: Asked,
    sides: dict[str, Resolved],
    suite: Suite,
    limits: Limits,
    held: Sequence[Prompt],
    gates: Sequence[GateSpec],
) -> dict[str, Any]:
    ref, cand = (open_capture(side.path, label=side.label) for side in sides.values())
    dtype = narrower(ref.manifest.dtype, cand.manifest.dtype)
    check_limits(suite, limits, dtype=dtype)
    lengths = None if asked.tokens is None else parse_lengths(asked.tokens)
    prompts = choose_prompts(ref.prompts, ids=asked.prompts, lengths=lengths)
    alone = None if prompts else evals_alone(ref, cand, suite=suite, gates=gates)
    if alone is None and (other := other_prompts(ref, cand, suite=suite, held=held)):
        raise IncomparableError("\n".join(other))
    match = pair if alone is None else pair_evals_alone
    matched = match(ref, cand, near_tie=0.0, route_gap=0.0)
    kept = [prompt for prompt in matched.prompts if not prompts or prompt in prompts]
    return {
        "prompts": len(kept),
        "prompts_of": len(matched.prompts),
        "tensors": sum(len(ref.names(prompt)) for prompt in kept),
        "limits_dtype": dtype,
        "ref_evidence": _evidence(ref),
        "cand_evidence": _evidence(cand),
        "note": None if alone is None else alone.note,
    }


def _evidence(side: CaptureReader) -> str:
    made = side.manifest.provenance
    return f"{side.manifest.evidence}, {made.hardware}, {made.arch}"


def _text(plan: dict[str, Any]) -> str:
    lines = [
        f"{role:<8} {plan[role]['target']}  {plan[role]['path']}  ({plan[role]['state']})"
        for role in ("ref", "cand")
    ]
    found = plan["pairing"]
    if found is None:
        lines.append("pairing  known once both sides are captured")
    else:
        lines += [
            f"pairing  {found['prompts']} of {found['prompts_of']} prompts, {found['tensors']} tensors",
            f"limits   those for {found['limits_dtype']}",
            f"evidence ref {found['ref_evidence']}; cand {found['cand_evidence']}",
        ]
        lines += [f"note     {found['note']}"] if found["note"] else []
    lines.append(f"gates    {len(plan['gates'])}: {', '.join(plan['gates'])}")
    return "\n".join(lines)
