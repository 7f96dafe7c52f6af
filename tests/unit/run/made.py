"""A small world to compare in: fake captures, fake metrics, three-gate suites."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from tests.fakes import FakeSide, digest, make_manifest, with_positions
from validate.run import compare
from validate.schema.manifest import ArtifactFile, Manifest, PathProof, Provenance, TensorEntry
from validate.schema.measurement import Interval, Levels, Measurement, Worst
from validate.schema.pair import Pair
from validate.schema.report import Report
from validate.schema.suite import GateSpec, Limits, Suite
from validate.schema.verdict import Limit

REFERENCE = {
    "mla.prefill.decompressed": 3,
    "mla.decode.decompressed": 5,
    "kda.chunk": 6,
    "kda.recurrent": 6,
}
ROCM = {
    "mla.prefill.padded.zero": 3,
    "mla.decode.absorbed": 5,
    "mla.decode.pad.zero": 5,
    "lse_merge": 5,
    "kda.chunk": 6,
    "kda.recurrent": 6,
}
CARD = Provenance(
    created="2026-01-01T00:00:00Z",
    device="cuda",
    hardware="NVIDIA H200",
    arch="sm_90",
    driver="575.1",
    versions={"torch": "2.13.0"},
)


def manifest(target: str, *, content: str | None = None, **changes: Any) -> Manifest:
    """The manifest of an honest capture of ``target``; ``content`` names its bytes."""
    path = "rocm" if target.startswith("rocm") else "reference"
    if target.startswith("oracle"):
        path = "oracle"
    branches = {"reference": REFERENCE, "rocm": ROCM, "oracle": {"oracle.prefill": 1}}[path]
    fields: dict[str, Any] = {
        "options": {},
        "path_proof": PathProof(path=path, branches=branches),
        "artifacts": (
            ArtifactFile(
                artifact="logits",
                path="logits.safetensors",
                bytes=1,
                sha256=digest(content or target),
            ),
        ),
    }
    if path == "reference":
        fields |= {"provenance": CARD, "evidence": "hardware"}
    return make_manifest(target, **{**fields, **changes})


def side(target: str, off: float = 0.0, *, prompts: Sequence[str] = ("p-0", "p-1"), **how: Any):
    """A capture whose every logit is ``off``; the fake metrics measure just that."""
    rows = with_positions({prompt: np.full((2, 3), off, dtype=np.float32) for prompt in prompts})
    tensors = make_manifest(target, tensors=rows).artifacts
    made = manifest(target, **how)
    first = made.artifacts[0]
    held = tuple(
        file.model_copy(
            update={
                "sha256": first.sha256,
                "tensors": tuple(as_told(entry, made.dtype) for entry in file.tensors),
            }
        )
        for file in tensors
    )
    return FakeSide(target, rows, manifest=made.model_copy(update={"artifacts": held}))


def as_told(entry: TensorEntry, dtype: str) -> TensorEntry:
    """The entry with floats in the manifest's dtype, whatever the fake holds in memory."""
    if not entry.dtype.startswith("float"):
        return entry
    return TensorEntry.model_validate({**entry.model_dump(), "dtype": dtype})


def offset(pair: Pair) -> float:
    """How far cand is from ref, over all prompts that count."""
    gaps = [
        float(pair.cand.tensor(p, "logits")[0, 0] - pair.ref.tensor(p, "logits")[0, 0])
        for p in pair.prompts
    ]
    return float(np.max(np.abs(gaps)))


def deviation(pair: Pair, levels: Levels) -> Measurement:
    """A deterministic difference."""
    value = offset(pair)
    worst = Worst(prompt=pair.prompts[0], position=1, value=value)
    return Measurement(
        metric="logits.kl_max",
        value=value,
        unit="nats",
        n=len(pair.prompts),
        n_of="prompts",
        worst=worst,
    )


def bounded(pair: Pair, levels: Levels) -> Measurement:
    """A difference with an interval of 10 % either way, at the levels asked for."""
    value = offset(pair)
    return Measurement(
        metric="logits.kl_p90",
        value=value,
        unit="nats",
        n=len(pair.prompts),
        n_of="prompts",
        interval=Interval(
            low=0.9 * value,
            low_level=levels.low,
            high=1.1 * value,
            high_level=levels.high,
            method="order statistic",
        ),
    )


def ratio(pair: Pair, levels: Levels) -> Measurement:
    """Error of cand over error of ref, both against the oracle."""
    if pair.oracle is None:
        return Measurement(
            metric="logits.err_ratio",
            value=None,
            unit="ratio",
            n=0,
            n_of="prompts",
            why_undefined="no oracle",
        )
    truth = pair.oracle.tensor(pair.prompts[0], "logits")[0, 0]
    errors = [
        abs(float(one.tensor(pair.prompts[0], "logits")[0, 0] - truth))
        for one in (pair.ref, pair.cand)
    ]
    value = errors[1] / errors[0]
    return Measurement(
        metric="logits.err_ratio",
        value=value,
        unit="ratio",
        n=2,
        n_of="prompts",
        worst_value=value,
    )


METRICS = {
    "logits.kl_p90": bounded,
    "logits.kl_p50": bounded,
    "logits.kl_max": deviation,
    "logits.err_ratio": ratio,
    "state.kda_rel_l2": deviation,
}
YARDSTICK = (
    GateSpec(name="yardstick.aa", kind="exact"),
    GateSpec(name="yardstick.floor", kind="exact"),
    GateSpec(name="yardstick.path_proof", kind="exact"),
    GateSpec(name="yardstick.ref_error", kind="bound", metric="logits.kl_max"),
)
GATES = (
    GateSpec(name="logits.kl_p90", kind="bound", weight=1.0),
    GateSpec(name="logits.kl_p50", kind="noise_ratio", weight=1.0),
    GateSpec(name="state.kda_rel_l2", kind="bound"),
)


def suite(*gates: GateSpec, **changes: Any) -> Suite:
    """The yardstick and these gates, or ``GATES``."""
    fields: dict[str, Any] = {
        "schema_version": 1,
        "name": "small",
        "alpha": 0.01,
        "beta": 0.05,
        "evidence": ("hardware", "emulated"),
        "model": "k3-nano",
        "prompts": "p.jsonl",
        "gates": (*YARDSTICK, *(gates or GATES)),
        "path": "suites/small.toml",
    }
    return Suite(**{**fields, **changes})


def entry(value: float, **changes: Any) -> Limit:
    """A derived limit."""
    return Limit(value=value, source="derived", pointer="t.toml#x", **changes)


def limits(**changes: Limit) -> Limits:
    """1 nat of offset is allowed, 5 floors, ref may be 2 off the oracle."""
    entries = {
        "near_tie.bfloat16": entry(0.25),
        "route_gap.bfloat16": entry(0.01),
        "yardstick.ref_error.bfloat16": entry(2.0),
        "logits.kl_p90.bfloat16": entry(1.0),
        "logits.kl_p50.bfloat16": entry(5.0, roundoff=(1.0, 1)),
        "logits.kl_max.bfloat16": entry(1.0),
        "logits.err_ratio.bfloat16": entry(1.5, worst=2.0),
        "state.kda_rel_l2.bfloat16": entry(1.0),
    }
    return Limits(
        path="t.toml", entries=entries | {k.replace("__", "."): v for k, v in changes.items()}
    )


def repeats(*offs: float) -> list[FakeSide]:
    """Repeats of ``cuda`` that are off by these."""
    return [side(f"cuda-repeat-{i}", off) for i, off in enumerate(offs or (0.1, 0.1, 0.1, 0.1))]


def run(cand: FakeSide, **changes: Any) -> Report:
    """Compare ``cand`` with ``cuda`` in this world."""
    fields: dict[str, Any] = {
        "ref": side("cuda"),
        "suite": suite(),
        "limits": limits(),
        "repeats": repeats(),
        "oracle": side("oracle", 1.0),
        "metrics": METRICS,
    }
    return compare(cand=cand, **{**fields, **changes})


def gate(report: Report, name: str) -> Any:
    """One gate of a report; ``Any``, so that tests may reach into what may be None."""
    return next(found for found in report.gates if found.name == name)


def outcomes(report: Report) -> dict[str, str]:
    """Outcome by gate."""
    return {found.name: str(found.outcome) for found in report.gates}
