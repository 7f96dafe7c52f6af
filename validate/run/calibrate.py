"""``calibrate``: limits from reference captures alone, by stated rules."""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from numpy.typing import NDArray

from validate.errors import InputError, SuiteError
from validate.gates import MIN_REPEATS
from validate.metrics import METRICS, Metric
from validate.pairing import pair
from validate.run.clean import Ends, ends_of, measure_clean
from validate.run.compare import levels_of
from validate.run.measure import Bench, PairMaker, Progress, silent
from validate.schema.measurement import Levels, Measurement
from validate.schema.pair import Side
from validate.schema.suite import SETTINGS, CleanRule, GateSpec, Limits, Suite
from validate.schema.verdict import Limit
from validate.suite import UNKEPT, alpha_shares

__all__ = ["OPEN", "Faults", "calibrate"]

OPEN = {"near_tie": 0.0, "route_gap": 1e9}
"""Settings under which the largest clean gap can be seen: every other first choice is a flip
and tells its gap, every other expert set is a tie and sets its token apart."""

Faults = Mapping[str, Mapping[str, float]]
"""Measured values by gate and planted fault, in the unit of the gate's metric."""


def calibrate(
    *,
    ref: Side,
    repeats: Sequence[Side],
    suite: Suite,
    rules: Mapping[str, CleanRule],
    oracle: Side | None = None,
    weights: Mapping[str, NDArray[Any]] | None = None,
    config: Mapping[str, Any] | None = None,
    limits: Limits | None = None,
    faults: Faults | None = None,
    metrics: Mapping[str, Metric] = METRICS,
    make_pair: PairMaker = pair,
    progress: Progress = silent,
    path: str = "golden/tolerances.toml",
) -> Limits:
    """Limits for every gate of a suite, each ``factor`` times the clean upper limit.

    Candidates never enter: values of planted faults are only written beside the
    limits, and a limit that does not lie strictly between clean and the smallest of
    them is refused.

    Args:
        ref: The reference capture.
        repeats: Its repeats; at least four, so that each can be judged by the floor of
            the others.
        suite: Whose gates get limits.
        rules: By gate or setting; ``golden/calibration.toml``.
        oracle: For rules whose basis is ``oracle``, and for ratios.
        weights: Float64 weights by name, for introduced errors.
        config: Model configuration that goes with ``weights``.
        limits: Present limits; tables without a rule, such as budgets of deviations, and
            fault values are taken over from here.
        faults: Newly measured values by gate and fault id.
        metrics: Metrics by name.
        make_pair: ``pairing.pair``.
        progress: Told what is being measured.
        path: File the limits will lie in, for pointers.

    Returns:
        Settings, then gates in the suite's order, then what was taken over.

    Raises:
        InputError: Too few repeats, an undefined measurement, or limits that do not lie
            between clean and fault; all of those are named.
        SuiteError: A rule is missing or cannot be followed.
    """
    gates = tuple(gate for gate in suite.gates if gate.kind not in UNKEPT)
    _check(gates, rules, repeats)
    bench = Bench(
        gates=gates,
        levels=levels_of(gates, suite=suite, shares=alpha_shares(suite)),
        oracle=oracle,
        floor=tuple(repeats),
        weights=weights,
        config=config,
        metrics=metrics,
        make_pair=make_pair,
        progress=progress,
    )
    dtype = ref.manifest.dtype
    old = {} if limits is None else dict(limits.entries)
    settings = _settings(bench, ref=ref, repeats=repeats, rules=rules, path=path)
    pairs = measure_clean(
        bench,
        ref=ref,
        repeats=repeats,
        gates=gates,
        settings={name: limit.value for name, limit in settings.items()},
        reverse=[gate for gate in gates if "reverse" in rules[gate.limit_key].basis],
    )
    made = {f"{name}.{dtype}": limit for name, limit in settings.items()}
    for gate in gates:
        key = f"{gate.limit_key}.{dtype}"
        rule = rules[gate.limit_key]
        ends = ends_of(gate, rule, pairs, dtype=dtype)
        limit = _made(f"{path}#{key}", rule, ends, count=len(pairs.of(gate, rule)))
        made[key] = _beside(limit, (faults or {}).get(gate.name, {}), ends=ends, old=old.get(key))
    problems = [problem for key, limit in made.items() for problem in _between(key, limit)]
    problems += _vacuous(made, rules)
    if problems:
        raise InputError("\n".join(problems))
    return Limits(path=path, entries={**made, **{k: v for k, v in old.items() if k not in made}})


def _check(
    gates: Iterable[GateSpec], rules: Mapping[str, CleanRule], repeats: Sequence[Side]
) -> None:
    gates = tuple(gates)
    needed = [*(gate.limit_key for gate in gates), *SETTINGS]
    missing = [key for key in needed if key not in rules]
    if missing:
        msg = f"calibrate: no rule for {', '.join(missing)}; add them to golden/calibration.toml"
        raise SuiteError(msg)
    told = [f"{name} needs 'metrics'" for name in SETTINGS if not rules[name].metrics]
    told += [
        f"{gate.name} needs worst_factor, for a three_way limit has two parts"
        for gate in gates
        if gate.kind == "three_way" and rules[gate.limit_key].worst_factor is None
    ]
    if told:
        msg = f"calibrate: the rule for {'; for '.join(told)}"
        raise SuiteError(msg)
    if len(repeats) <= MIN_REPEATS:
        msg = (
            f"calibrate: {len(repeats)} repeats of ref, at least {MIN_REPEATS + 1} needed, so that "
            "each can be held against the floor of the others"
        )
        raise InputError(msg)


def _settings(
    bench: Bench, *, ref: Side, repeats: Sequence[Side], rules: Mapping[str, CleanRule], path: str
) -> dict[str, Limit]:
    """near_tie and route_gap, from the gaps that clean pairs show."""
    gates = {
        name: [GateSpec(name=metric, kind="bound") for metric in rules[name].metrics]
        for name in SETTINGS
    }
    flat = [gate for group in gates.values() for gate in group]
    levels = {gate.name: Levels(low=0.95, high=0.95) for gate in flat}
    pairs = measure_clean(
        replace(bench, levels=levels),
        ref=ref,
        repeats=repeats,
        gates=flat,
        settings=OPEN,
        reverse=[
            g for name, group in gates.items() if "reverse" in rules[name].basis for g in group
        ],
    )
    made = {}
    for name, group in gates.items():
        rule = rules[name]
        found = [_gap(one, rule) for gate in group for one in pairs.of(gate, rule)]
        ends = Ends(value=max(found), worst=None, floor=None)
        pointer = f"{path}#{name}.{ref.manifest.dtype}"
        made[name] = _made(pointer, rule, ends, count=len(found))
    return made


def _gap(found: Measurement, rule: CleanRule) -> float:
    """The largest gap of one clean pair; 0 where nothing differs.

    Raises:
        InputError: It is not finite: what differs is no tie, so ref is no yardstick.
    """
    if rule.breakdown is not None:
        gap = found.breakdown.get(rule.breakdown, 0.0)
    elif found.worst_value is not None:
        gap = found.worst_value
    else:
        gap = 0.0 if found.worst is None else found.worst.value or math.inf
    if not math.isfinite(gap):
        msg = f"calibrate: {found.metric} measures a gap that is no finite number on a clean pair"
        raise InputError(msg)
    return gap


def _made(pointer: str, rule: CleanRule, ends: Ends, *, count: int) -> Limit:
    worst = None
    if rule.worst_factor is not None and ends.worst is not None:
        worst = _rounded(max(rule.worst_factor * ends.worst, rule.worst_at_least))
    return Limit(
        value=_rounded(max(rule.factor * ends.value, rule.at_least)),
        source="measured",
        pointer=pointer,
        worst=worst,
        clean=ends.value,
        basis=f"{rule.factor:g} x the largest of {count} clean pairs ({', '.join(rule.basis)}), "
        f"at least {rule.at_least:g}: {rule.why}",
        roundoff=rule.roundoff,
    )


def _rounded(value: float) -> float:
    """Three significant digits: no limit pretends to know more."""
    return float(f"{value:.3g}")


def _beside(limit: Limit, measured: Mapping[str, float], *, ends: Ends, old: Limit | None) -> Limit:
    """The limit with the smallest fault beside it, newly measured or taken over."""
    finite = {fault: value for fault, value in measured.items() if math.isfinite(value)}
    if finite:
        smallest = min(finite, key=lambda fault: finite[fault])
        value = finite[smallest] / (1.0 if ends.floor is None else ends.floor)
        return replace(limit, fault=value, fault_id=smallest)
    return limit if old is None else replace(limit, fault=old.fault, fault_id=old.fault_id)


def _between(key: str, limit: Limit) -> list[str]:
    told = []
    if limit.clean is None or not limit.clean < limit.value:
        told.append(f"calibrate: {key}: limit {limit.value:.4g} is not above clean {limit.clean}")
    if limit.fault is not None and not limit.value < limit.fault:
        told.append(
            f"calibrate: {key}: limit {limit.value:.4g} (clean {limit.clean}) is not below "
            f"{limit.fault:.4g}, which the planted fault {limit.fault_id} measures"
        )
    return told


def _vacuous(made: Mapping[str, Limit], rules: Mapping[str, CleanRule]) -> list[str]:
    told = []
    for key, limit in made.items():
        most = rules[key.rpartition(".")[0]].at_most
        if most is not None and not limit.value <= most:
            told.append(
                f"calibrate: {key}: limit {limit.value:.4g} (clean {limit.clean}) is above "
                f"{most:.4g}, where it would pass anything"
            )
    return told
