"""``--explain``: everything a report holds of each gate, for a reader."""

from collections.abc import Iterator

from validate.metrics import METRICS
from validate.schema.report import GateReport, LimitReport, MeasurementReport, NoiseReport, Report

__all__ = ["explain_gates"]

MOST = 12
"""Companions shown of one measurement; all of them stand in report.json."""


def explain_gates(report: Report) -> str:
    """One block a gate: what was measured, how surely, against what, and how to repeat it."""
    return "\n\n".join("\n".join(_block(gate)) for gate in report.gates) + "\n"


def _block(gate: GateReport) -> Iterator[str]:
    yield f"{gate.name}: {gate.outcome} ({gate.kind}, alpha share {gate.alpha_share:.3g})"
    found = gate.measurement
    metric = METRICS.get(gate.name if found is None else found.metric)
    if metric is not None and metric.__doc__:
        yield f"  meaning : {metric.__doc__.strip().splitlines()[0]}"
    if found is not None:
        yield from _measurement(found)
    if gate.judged is not None:
        yield f"  judged  : {gate.judged:.4g}"
    if gate.limit is not None:
        yield from _limit(gate.limit)
    if gate.noise is not None:
        yield f"  noise   : {_noise(gate.noise)}"
    if gate.deviation is not None:
        yield f"  budget  : of the declared deviation {gate.deviation}"
    if gate.reason is not None:
        yield f"  why     : {gate.reason}"
    if gate.waiver is not None:
        yield f"  waived  : {gate.waiver}"
    yield f"  rerun   : {gate.rerun}"


def _measurement(found: MeasurementReport) -> Iterator[str]:
    size = f"n = {found.n} {found.n_of}"
    if found.value is None:
        yield f"  value   : undefined, {found.why_undefined}; {size}"
    else:
        yield f"  value   : {found.value:.6g} {found.unit}; {size}"
    if found.interval is not None:
        low, high = _number(found.interval.low), _number(found.interval.high)
        levels = f"{found.interval.low_level:.6g} and {found.interval.high_level:.6g}"
        yield f"  interval: {low} to {high}, one-sided at {levels}, {found.interval.method}"
    worst = found.worst
    if worst is not None:
        parts = {
            "prompt": worst.prompt,
            "position": worst.position,
            "place": worst.place,
            "value": None if worst.value is None else f"{worst.value:.4g}",
            "detail": worst.detail,
        }
        told = ", ".join(f"{name} {part}" for name, part in parts.items() if part is not None)
        yield f"  worst   : {told}"
    if found.worst_value is not None:
        yield f"  at worst: {found.worst_value:.6g} {found.unit}"
    if found.pattern is not None:
        yield f"  pattern : {found.pattern}"
    shown = list(found.breakdown.items())[:MOST]
    if shown:
        rest = len(found.breakdown) - len(shown)
        more = f" and {rest} more in report.json" if rest else ""
        yield f"  beside  : {', '.join(f'{k} {_number(v)}' for k, v in shown)}{more}"
    if found.n_needed is not None:
        yield f"  needed  : {found.n_needed} {found.n_of}"


def _limit(limit: LimitReport) -> Iterator[str]:
    worst = "" if limit.worst is None else f", at worst {limit.worst:.4g}"
    yield f"  limit   : {limit.value:.4g}{worst} ({limit.source}, {limit.pointer})"
    between = {"clean": limit.clean, f"fault {limit.fault_id}": limit.fault}
    told = ", ".join(f"{name} {value:.4g}" for name, value in between.items() if value is not None)
    if told:
        yield f"  between : {told}"


def _noise(noise: NoiseReport) -> str:
    if noise.value is None:
        return f"not known, {noise.why_undefined}"
    values = ", ".join(f"{value:.4g}" for value in noise.values)
    how = "from unit roundoff, repeats measure 0" if noise.derived else f"of {values}"
    return f"{noise.value:.4g} over {noise.repeats} repeats, {how}"


def _number(value: float | None) -> str:
    return "unknown" if value is None else f"{value:.4g}"
