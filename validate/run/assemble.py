"""Verdicts into a ``Report``: every number is copied, none is computed."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import validate
from validate.faults.speculative import SPECULATIVE_SAMPLES
from validate.gates import gravest, overall
from validate.metrics._evals import unscored
from validate.metrics._evals_scale import unjudged
from validate.run.sides import capture_digest, evidence_of
from validate.run.since_golden import limit_report, since_golden
from validate.schema.evals import evals_of
from validate.schema.manifest import Manifest
from validate.schema.measurement import Interval, Measurement, Worst
from validate.schema.pair import Side
from validate.schema.report import (
    DeviationReport,
    DeviationSize,
    GateReport,
    IntervalReport,
    MeasurementReport,
    NoiseReport,
    OtherSide,
    Report,
    SideReport,
    SuiteReport,
    WorstReport,
)
from validate.schema.selftest import SelftestSummary
from validate.schema.series import Series, WorstCase
from validate.schema.suite import AREAS, Limits, Suite
from validate.schema.verdict import NoiseFloor, Outcome, Verdict
from validate.suite import limits_digest

__all__ = ["Cast", "assemble"]

SPEED_GATE = "speculative.acceptance_z"
"""The gate whose measurement holds the acceptance figures of both sides."""
UNJUDGED = "logprobs of the greedy streams: captured, and no metric reads them"
"""What every capture may hold and no report says anything about."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Cast:
    """The captures that take part."""

    ref: Side
    cand: Side
    oracle: Side | None
    repeats: tuple[Side, ...]
    reused: frozenset[str]


def assemble(
    verdicts: Sequence[Verdict],
    *,
    cast: Cast,
    suite: Suite,
    limits: Limits,
    notes: Sequence[str],
    prompts: tuple[str, ...],
    blocked: tuple[str, ...] = (),
    golden: Report | None = None,
    series: tuple[Series, ...] = (),
    worst: tuple[WorstCase, ...] = (),
    untested: tuple[str, ...] = (),
    selftest: SelftestSummary | None = None,
) -> Report:
    """The report of one run.

    Args:
        verdicts: One a gate that ran, in order.
        cast: The captures.
        suite: The suite that judged.
        limits: The limits it judged by.
        notes: Sentences a reader must know before the numbers.
        prompts: Prompts that were asked for; empty: all.
        blocked: Reasons known beforehand why nothing may be judged.
        golden: The suite's golden report, if there is one.
        series: What is drawn.
        worst: Rows that gates point at.
        selftest: What the selftest of this tool found.
        untested: Sentences on what this run could not test, after the gates left out.
    """
    return Report(
        tool_version=validate.__version__,
        verdict=gravest(overall(verdicts)),
        suite=SuiteReport(
            name=suite.name,
            digest=suite.digest,
            alpha=suite.alpha,
            power=1 - suite.beta,
            path=suite.path,
            limits=limits.path,
            limits_digest=limits_digest(limits),
            evidence=suite.evidence,
        ),
        ref=_side(cast.ref, reused="ref" in cast.reused),
        cand=_side(cast.cand, reused="cand" in cast.reused),
        oracle=None if cast.oracle is None else _other(cast.oracle),
        repeats=tuple(_other(repeat) for repeat in cast.repeats),
        gates=tuple(_gate(verdict) for verdict in verdicts),
        deviations=_deviations(verdicts, cast.cand),
        notes=(*notes, *_notes(cast, prompts), *_speed(verdicts)),
        not_tested=_not_tested(verdicts, cast=cast, suite=suite, untested=untested),
        limits={key: limit_report(limit) for key, limit in limits.entries.items()},
        since_golden=since_golden(suite, limits, golden=golden),
        selftest=selftest,
        series=series,
        worst_cases=worst,
        prompts=prompts,
        blocked=blocked,
    )


def _other(side: Side) -> OtherSide:
    return OtherSide(
        target=side.manifest.target,
        digest=capture_digest(side),
        evidence=evidence_of(side.manifest),
        provenance=side.manifest.provenance,
    )


def _side(side: Side, *, reused: bool) -> SideReport:
    manifest = side.manifest
    path = getattr(side, "path", None)
    return SideReport(
        target=manifest.target,
        digest=capture_digest(side),
        evidence=evidence_of(manifest),
        provenance=manifest.provenance,
        reused=reused,
        label=side.label,
        path=None if path is None else str(path),
        dtype=manifest.dtype,
        weights=manifest.model.weights,
        fault=manifest.fault,
        ran={**manifest.path_proof.branches, **manifest.path_proof.kernels},
        timing=_timing(getattr(side, "timing", {})),
    )


def _timing(found: Mapping[str, float]) -> dict[str, float]:
    return {name: value for name, value in found.items() if math.isfinite(value)}


def _gate(verdict: Verdict) -> GateReport:
    return GateReport(
        name=verdict.gate,
        outcome=verdict.outcome,
        kind=verdict.kind,
        alpha_share=verdict.alpha_share,
        measurement=None if verdict.measurement is None else _measurement(verdict.measurement),
        judged=_finite(verdict.judged),
        limit=None if verdict.limit is None else limit_report(verdict.limit),
        noise=None if verdict.noise is None else _noise(verdict.noise),
        reason=verdict.reason,
        rerun=verdict.rerun,
        deviation=verdict.deviation,
        waiver=verdict.waiver,
    )


def _measurement(found: Measurement) -> MeasurementReport:
    value = _finite(found.value)
    why = found.why_undefined
    if value is None and why is None:
        why = f"the measured value is {found.value}, which JSON has no number for"
    return MeasurementReport(
        metric=found.metric,
        value=value,
        unit=found.unit,
        n=found.n,
        n_of=found.n_of,
        why_undefined=why,
        interval=None if found.interval is None else _interval(found.interval),
        worst=None if found.worst is None else _worst(found.worst),
        worst_value=_finite(found.worst_value),
        pattern=found.pattern,
        detects=None if found.detection is None else _finite(found.detection.effect),
        breakdown=_all_finite(found.breakdown),
        n_needed=found.n_needed,
    )


def _interval(interval: Interval) -> IntervalReport:
    return IntervalReport(
        low=_finite(interval.low),
        low_level=interval.low_level,
        high=_finite(interval.high),
        high_level=interval.high_level,
        method=interval.method,
    )


def _worst(worst: Worst) -> WorstReport:
    return WorstReport(
        prompt=worst.prompt,
        position=worst.position,
        place=worst.place,
        value=_finite(worst.value),
        detail=worst.detail,
    )


def _noise(noise: NoiseFloor) -> NoiseReport:
    return NoiseReport(
        value=noise.value,
        repeats=noise.repeats,
        values=tuple(value for value in noise.values if math.isfinite(value)),
        derived=noise.derived,
        why_undefined=noise.why_undefined,
    )


def _finite(value: float | None) -> float | None:
    return value if value is not None and math.isfinite(value) else None


def _all_finite(values: Mapping[str, float]) -> dict[str, float | None]:
    return {name: _finite(value) for name, value in values.items()}


def _deviations(verdicts: Sequence[Verdict], cand: Side) -> tuple[DeviationReport, ...]:
    return tuple(
        DeviationReport(
            id=deviation.id,
            title=deviation.title,
            expected=deviation.expected,
            sizes=tuple(_size(v) for v in verdicts if v.deviation == deviation.id),
        )
        for deviation in cand.manifest.deviations
    )


def _size(verdict: Verdict) -> DeviationSize:
    found = verdict.measurement
    return DeviationSize(
        gate=verdict.gate,
        value=None if found is None else _finite(found.value),
        unit="" if found is None else found.unit,
        limit=None if verdict.limit is None else verdict.limit.value,
        outcome=verdict.outcome,
    )


def _notes(cast: Cast, prompts: tuple[str, ...]) -> list[str]:
    told = []
    for role, side in (("ref", cast.ref), ("cand", cast.cand)):
        manifest = side.manifest
        if manifest.fault is not None:
            told.append(f"{role} carries the planted fault {manifest.fault}{_planted_on(manifest)}")
        if manifest.declared_weights:
            told.append(f"{role} declares other weights: {manifest.model.weights}")
        claimed, found = manifest.evidence, evidence_of(manifest)
        if claimed != found:
            told.append(f"{role} claims the evidence {claimed}; its path proof supports {found}")
    if cast.ref.manifest.deviations:
        ids = ", ".join(deviation.id for deviation in cast.ref.manifest.deviations)
        told.append(f"ref itself declares deviations: {ids}")
    rules = [side.manifest.options.get("renorm") for side in (cast.ref, cast.cand)]
    if rules[0] != rules[1] and None not in rules:
        told.append(
            f"top-k and top-p treat ties otherwise, as declared: ref {rules[0]}, cand {rules[1]}; "
            "each side is judged by its own rule"
        )
    if prompts:
        told.append(
            f"only {len(prompts)} of {len(cast.ref.prompts)} prompts were compared: "
            f"{', '.join(prompts)}"
        )
    return told


_DRAWN_FROM = {
    "all": "every prompt of the suite",
    "random": "prompts of random bytes",
    "long": "prompts of 1,000 tokens",
}
"""Prompts of a planted fault in words, where they are others than the suite's drawn ones."""


def _planted_on(manifest: Manifest) -> str:
    """That a fault shows on more than such a capture holds; nothing where it does not need more."""
    sample = SPECULATIVE_SAMPLES.get(manifest.fault or "")
    if sample is None:
        return ""
    if sample.prompts in _DRAWN_FROM:
        return (
            f", which shows on {_DRAWN_FROM[sample.prompts]}: validate selftest --only-fault "
            f"{manifest.fault}"
        )
    held = manifest.options.get("tokens", "0")
    if sample.tokens is None or (held.isdecimal() and int(held) >= sample.tokens):
        return ""
    return (
        f", which shows with {sample.tokens} tokens a stream, and the capture holds {held}: add "
        f"tokens={sample.tokens} to the target"
    )


def _speed(verdicts: Sequence[Verdict]) -> list[str]:
    """Acceptance of both sides beside the outcome of the gates that a speed-up rests on."""
    area = [verdict for verdict in verdicts if verdict.gate.startswith("speculative.")]
    found = next((v.measurement for v in area if v.gate == SPEED_GATE), None)
    if found is None:
        return []
    passed = sum(verdict.outcome is Outcome.PASS for verdict in area)
    told = []
    for name, tokens in found.breakdown.items():
        role, _, rest = name.partition(".")
        kind, _, figure = rest.partition(".")
        if role != "cand" or figure != "tokens_per_forward":
            continue
        ref = found.breakdown.get(f"ref.{kind}.{figure}")
        beside = "" if ref is None else f" (ref {ref:.3g})"
        told.append(
            f"{kind}: cand accepts {tokens - 1:.3g} drafts a step and emits {tokens:.3g} tokens per "
            f"target forward{beside}; {passed} of {len(area)} speculative gates PASS"
        )
    return told


def _lost(cast: Cast) -> list[str]:
    """What the evals of a side do not hold, one sentence for both sides where it is the same."""
    found: dict[str, list[str]] = {}
    for role, side in (("ref", cast.ref), ("cand", cast.cand)):
        evals = evals_of(side)
        if evals is None:
            continue
        bare = unscored(evals.items)
        for sentence in (*evals.lost, *([] if bare is None else [bare])):
            found.setdefault(sentence, []).append(role)
    return [f"evals of {' and '.join(roles)}: {sentence}" for sentence, roles in found.items()]


def _not_tested(
    verdicts: Sequence[Verdict], *, cast: Cast, suite: Suite, untested: tuple[str, ...]
) -> tuple[str, ...]:
    ran = {verdict.gate for verdict in verdicts}
    left = [gate.name for gate in suite.gates if gate.name not in ran]
    covered = {gate.area for gate in suite.gates}
    absent = [area for area in AREAS if area not in covered]
    told = []
    if left:
        told.append(f"gates left out of this run: {', '.join(left)}")
    told += untested
    if absent:
        told.append(f"areas this suite has no gate for: {', '.join(absent)}")
    if cast.oracle is None:
        told.append("the truth: no oracle capture took part")
    if not suite.evals_only:
        told.append(UNJUDGED)
    told += _lost(cast)
    held = evals_of(cast.ref), evals_of(cast.cand)
    if held[0] is not None and held[1] is not None:
        told += unjudged(held[0], held[1])
    told += [
        f"the kernels of {role} on its real device: the evidence is {evidence}"
        for role, side in (("ref", cast.ref), ("cand", cast.cand))
        if (evidence := evidence_of(side.manifest)) != "hardware"
    ]
    return tuple(told)
