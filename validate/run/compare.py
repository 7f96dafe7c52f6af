"""``compare``: the yardstick first, then every gate, then one report."""

import shlex
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from numpy.typing import NDArray

from validate.gates import judge, waive
from validate.metrics import METRICS, Metric
from validate.pairing import pair, pair_evals, pair_evals_alone
from validate.run import yardstick
from validate.run.assemble import Cast, assemble
from validate.run.evals_alone import evals_alone
from validate.run.measure import Bench, PairMaker, Progress, silent
from validate.run.series import FloorDrift, series_of
from validate.run.sides import fit_repeats, proven_deviations, refusals, sameness
from validate.run.worst_cases import worst_cases
from validate.schema.measurement import Levels, Measurement
from validate.schema.pair import Pair, Side
from validate.schema.report import Report
from validate.schema.selftest import SelftestSummary
from validate.schema.series import Series, WorstCase
from validate.schema.suite import SETTINGS, GateSpec, Limits, Suite, Waiver
from validate.schema.verdict import Limit, NoiseFloor, Outcome, Verdict
from validate.suite import (
    Chosen,
    alpha_shares,
    check_limits,
    choose_limit,
    choose_setting,
    narrower,
    select_gates,
)

__all__ = ["compare", "levels_of"]

REF_BLAMED = "REF_BLAMED"
"""Reason when the oracle disagrees with ref: then cand is not to blame."""


@dataclass(slots=True, kw_only=True)
class _Judged:
    """What a run found: verdicts in the suite's order, and what a reader is shown beside them."""

    verdicts: list[Verdict]
    notes: list[str] = field(default_factory=list)
    """Sentences about repeats that do not match."""
    series: tuple[Series, ...] = ()
    worst: tuple[WorstCase, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class _Law:
    """By which numbers this run judges."""

    suite: Suite
    limits: Limits
    dtype: str
    deviations: tuple[str, ...]
    """Ids that cand declares and proves."""
    shares: Mapping[str, float]
    command: str

    def chosen(self, gate: GateSpec) -> Chosen:
        return choose_limit(
            gate,
            suite=self.suite,
            limits=self.limits,
            dtype=self.dtype,
            deviations=self.deviations,
        )

    def ordinary(self, gate: GateSpec) -> Limit:
        return choose_limit(gate, suite=self.suite, limits=self.limits, dtype=self.dtype).limit

    def settings(self, *, declared: bool) -> dict[str, float]:
        if self.suite.evals_only:
            return dict.fromkeys(SETTINGS, 0.0)
        deviations = self.deviations if declared else ()
        return {
            name: choose_setting(
                name, limits=self.limits, dtype=self.dtype, deviations=deviations
            ).limit.value
            for name in SETTINGS
        }

    def rerun(self, gate: GateSpec) -> str:
        return f"{self.command} --only {gate.name}"

    def judge(
        self, gate: GateSpec, measurement: Measurement, noise: NoiseFloor | None = None
    ) -> Verdict:
        chosen = self.chosen(gate)
        return judge(
            gate,
            measurement=measurement,
            limit=chosen.limit,
            noise=noise,
            alpha_share=self.shares[gate.name],
            rerun=self.rerun(gate),
            beta=self.suite.beta,
            deviation=chosen.deviation,
        )

    def refuse(self, gate: GateSpec, reason: str) -> Verdict:
        chosen = self.chosen(gate)
        return Verdict(
            gate=gate.name,
            kind=gate.kind,
            outcome=Outcome.INCOMPARABLE,
            alpha_share=self.shares[gate.name],
            measurement=None,
            limit=chosen.limit,
            noise=None,
            reason=reason,
            rerun=self.rerun(gate),
            deviation=chosen.deviation,
        )


def compare(
    *,
    ref: Side,
    cand: Side,
    suite: Suite,
    limits: Limits,
    repeats: Sequence[Side] = (),
    oracle: Side | None = None,
    weights: Mapping[str, NDArray[Any]] | None = None,
    config: Mapping[str, Any] | None = None,
    only: Sequence[str] = (),
    skip: Sequence[str] = (),
    prompts: Sequence[str] = (),
    reused: Collection[str] = (),
    blocked: Sequence[str] = (),
    waivers: Sequence[Waiver] = (),
    golden: Report | None = None,
    selftest: SelftestSummary | None = None,
    command: str | None = None,
    metrics: Mapping[str, Metric] = METRICS,
    make_pair: PairMaker = pair,
    progress: Progress = silent,
) -> Report:
    """Judge cand against ref by a suite.

    The order: evidence; the pair; A/A, floors, path proofs and ref's own error;
    then every gate. A yardstick that is not fit makes every other gate
    INCOMPARABLE. Nothing is printed.

    Args:
        ref: The run compared against.
        cand: The run under judgement.
        suite: What is gated, at which risks.
        limits: By which numbers.
        repeats: Repeats of ref, for the noise floor; cand itself is left out of them.
        oracle: The float64 run, for three-way gates and ref's own error.
        weights: Float64 weights by name, for introduced errors.
        config: Model configuration that goes with ``weights``.
        only: Areas or gates to judge; empty: all. Yardstick gates always run.
        skip: Areas or gates to leave out.
        prompts: Prompts that count; empty: all.
        reused: Of ``"ref"`` and ``"cand"``, those whose capture was taken from an earlier run.
        blocked: Reasons known beforehand why nothing may be judged (a stale golden).
        waivers: Findings that do not count; checked beforehand by ``check_waivers``.
        golden: The golden report of this suite, whose limits are held against those in force.
        selftest: What the selftest of this tool found, for the report.
        command: The command line up to ``--only``, for rerun lines; None: made from labels.
        metrics: Metrics by name.
        make_pair: ``pairing.pair``; where evals alone are judged, those of ``pairing`` for them.
        progress: Told what is being measured.

    Raises:
        IncomparableError: The captures do not match; every reason is named.
        SuiteError: A waiver covers a gate that PASSes, or two cover the same gate.
        InputError: A gate, area, prompt or limit is unknown; nothing would be judged.
        Exception: Whatever a metric raises unexpectedly; it is never a verdict.
    """
    gates = select_gates(suite, only=only, skip=skip)
    alone = None if prompts else evals_alone(ref, cand, suite=suite, gates=gates)
    if alone is not None:
        gates, oracle = alone.gates, None
    dtype = narrower(ref.manifest.dtype, cand.manifest.dtype)
    check_limits(suite, limits, dtype=dtype)
    shares = alpha_shares(suite)
    law = _Law(
        suite=suite,
        limits=limits,
        dtype=dtype,
        deviations=proven_deviations(cand),
        shares=shares,
        command=command or _command(suite, ref, cand, prompts),
    )
    bench = Bench(
        gates=gates,
        levels=levels_of(gates, suite=suite, shares=shares),
        oracle=oracle,
        weights=weights,
        config=config,
        prompts=tuple(prompts),
        metrics=metrics,
        make_pair=_matcher(suite, alone=alone is not None) if make_pair is pair else make_pair,
        progress=progress,
    )
    kept, notes = fit_repeats(ref, cand, repeats)
    bench = replace(bench, floor=tuple(kept))
    cast = Cast(ref=ref, cand=cand, oracle=oracle, repeats=kept, reused=frozenset(reused))
    why = (*blocked, *refusals(ref, cand, suite=suite))
    if why:
        judged = _Judged(verdicts=[law.refuse(gate, "; ".join(why)) for gate in gates])
    else:
        judged = _judged(law, bench, cast)
    return assemble(
        waive(judged.verdicts, waivers, cand=cand.manifest.target),
        cast=cast,
        suite=suite,
        limits=limits,
        notes=(
            *(() if alone is None else (alone.note,)),
            *(sameness(ref, cand) or yardstick.same_tensors(ref, cand)),
            *notes,
            *judged.notes,
        ),
        prompts=tuple(prompts),
        blocked=tuple(blocked),
        golden=golden,
        selftest=selftest,
        series=judged.series,
        worst=judged.worst,
        untested=() if alone is None else alone.untested,
    )


def levels_of(
    gates: Sequence[GateSpec], *, suite: Suite, shares: Mapping[str, float]
) -> dict[str, Levels]:
    """The two confidence levels each gate asks its metric for.

    A deterministic gate gets no lower limit from anybody; it is asked at 1 - alpha
    so that a metric never has to answer at the level 1.
    """
    return {
        gate.name: Levels(low=1 - (shares[gate.name] or suite.alpha), high=1 - suite.beta)
        for gate in gates
    }


def _matcher(suite: Suite, *, alone: bool) -> PairMaker:
    """How the sides are matched: by evals alone where nothing else is judged."""
    if suite.evals_only:
        return pair_evals
    return pair_evals_alone if alone else pair


def _command(suite: Suite, ref: Side, cand: Side, prompts: Sequence[str]) -> str:
    parts = ["validate", "compare", "--suite", suite.path, "--ref", ref.label, "--cand", cand.label]
    for prompt in prompts:
        parts += ["--prompt", prompt]
    return shlex.join(parts)


def _judged(law: _Law, bench: Bench, cast: Cast) -> _Judged:
    """Every gate on the judged pair, after the yardstick's."""
    floor = FloorDrift()
    draws = bench.metrics is METRICS
    bench = replace(bench, look=floor.look) if draws else bench
    plain = law.settings(declared=False)
    bench.progress("matching ref and cand")
    judged = bench.pair(cast.ref, cast.cand, **law.settings(declared=True))
    itself = bench.pair(cast.ref, cast.ref, **plain)
    told = [gate for gate in bench.measured_gates if gate.on_self is not None]
    on_self = bench.measure(itself, what="ref against itself", gates=told)
    repeated, notes = bench.repeats(cast.ref, cast.repeats, **plain)
    floors = {
        gate.name: yardstick.floor_of(
            gate,
            [found[gate.name] for found in repeated],
            dtype=law.dtype,
            limit=law.ordinary(gate),
        )
        for gate in bench.measured_gates
    }
    checks = {
        "yardstick.aa": lambda: yardstick.aa(on_self, bench.gates),
        "yardstick.floor": lambda: yardstick.floors_known(
            floors, bench.measured_gates, repeats=len(repeated)
        ),
        "yardstick.path_proof": lambda: yardstick.path_proof(cast.ref, cast.cand),
    }
    first = [
        _told(law.judge(gate, checks[gate.name]()))
        if gate.name in checks
        else _ref_error(law, bench, gate, itself)
        for gate in bench.gates
        if gate.area == "yardstick"
    ]
    blame = next((v.reason for v in first if v.outcome is Outcome.INCOMPARABLE), None)
    measured = bench.measure(judged, what="ref against cand")
    rest = [
        law.judge(gate, measured[gate.name], floors[gate.name]) for gate in bench.measured_gates
    ]
    if blame is not None:
        rest = [_unjudged(verdict, blame) for verdict in rest]
    if not draws:
        return _Judged(verdicts=[*first, *rest], notes=notes)
    bench.progress("numbers of the plots")
    series = series_of(judged, measured=measured, floor=floor)
    bench.progress("rows of the worst cases")
    worst = worst_cases(judged, measured)
    return _Judged(verdicts=[*first, *rest], notes=notes, series=series, worst=worst)


def _told(verdict: Verdict) -> Verdict:
    """A yardstick verdict whose reason names the first thing that is wrong."""
    worst = None if verdict.measurement is None else verdict.measurement.worst
    if verdict.outcome is not Outcome.INCOMPARABLE or worst is None:
        return verdict
    if worst.detail is not None:
        return replace(verdict, reason=f"path not proven: {worst.detail}")
    reason = (
        f"ref against itself is not exact: {worst.place} measures {worst.value:g} there "
        f"({verdict.reason}), so ref or the metric is at fault"
    )
    return replace(verdict, reason=reason)


def _ref_error(law: _Law, bench: Bench, gate: GateSpec, itself: Pair) -> Verdict:
    found = bench.against_oracle(itself, gates=[gate])
    verdict = law.judge(gate, yardstick.no_oracle(gate) if found is None else found[gate.name])
    if verdict.outcome is not Outcome.INCOMPARABLE:
        return verdict
    reason = f"{REF_BLAMED}: ref '{itself.ref.label}' disagrees with the oracle: {verdict.reason}"
    return replace(verdict, reason=reason)


def _unjudged(verdict: Verdict, blame: str) -> Verdict:
    reason = f"{blame} (so nothing is said of cand)"
    return replace(verdict, outcome=Outcome.INCOMPARABLE, reason=reason)
