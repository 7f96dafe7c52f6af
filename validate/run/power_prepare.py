"""All that power is computed from, measured on ref, its repeats and the oracle."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from numpy.typing import NDArray

from validate.errors import InputError
from validate.gates import MIN_REPEATS
from validate.metrics import METRICS, Metric
from validate.pairing import pair
from validate.run.compare import levels_of
from validate.run.measure import Bench, PairMaker, silent
from validate.run.power_cases import Clean, cases_of, effects_of
from validate.run.power_effects import Effect
from validate.run.power_search import Case
from validate.run.sides import capture_digest
from validate.schema.pair import Side
from validate.schema.suite import Limits, Suite
from validate.schema.verdict import Limit
from validate.suite import alpha_shares, check_limits, choose_limit, choose_setting

__all__ = ["Prepared", "prepare"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Prepared:
    """What simulation starts from; each mapping is by gate."""

    bench: Bench
    clean: Clean
    cases: Mapping[str, Case]
    """Gates that are simulated."""
    prompts: Mapping[str, tuple[str, ...]]
    """Prompts of each case."""
    effects: Mapping[str, tuple[Effect, ...]]
    why: Mapping[str, str]
    """Why a gate with a share of alpha is not simulated."""
    limits: Mapping[str, Limit]
    shares: Mapping[str, float]


def prepare(
    *,
    ref: Side,
    suite: Suite,
    limits: Limits,
    repeats: Sequence[Side],
    oracle: Side | None = None,
    weights: Mapping[str, NDArray[Any]] | None = None,
    config: Mapping[str, Any] | None = None,
    metrics: Mapping[str, Metric] = METRICS,
    make_pair: PairMaker = pair,
    tell: Callable[[str], None] = silent,
) -> Prepared:
    """Measure every clean pair, prompt by prompt; arguments and errors as ``power``."""
    kept = _distinct(ref, repeats)
    dtype = ref.manifest.dtype
    check_limits(suite, limits, dtype=dtype)
    shares = alpha_shares(suite)
    chosen = {
        gate.name: choose_limit(gate, suite=suite, limits=limits, dtype=dtype).limit
        for gate in suite.gates
    }
    bench = Bench(
        gates=suite.gates,
        levels=levels_of(suite.gates, suite=suite, shares=shares),
        oracle=oracle,
        weights=weights,
        config=config,
        metrics=metrics,
        make_pair=make_pair,
    )
    clean = _measured(bench, ref, kept, limits=limits, dtype=dtype, tell=tell)
    cases, prompts, why = cases_of(
        [gate for gate in suite.gates if shares[gate.name] > 0],
        clean=clean,
        bench=bench,
        suite=suite,
        shares=shares,
        limits=chosen,
        tell=tell,
    )
    return Prepared(
        bench=bench,
        clean=clean,
        cases=cases,
        prompts=prompts,
        effects=effects_of(cases, prompts, clean=clean, bench=bench, tell=tell),
        why=why,
        limits=chosen,
        shares=shares,
    )


def _distinct(ref: Side, repeats: Sequence[Side]) -> tuple[Side, ...]:
    kept: dict[str, Side] = {}
    for repeat in repeats:
        digest = capture_digest(repeat)
        if digest != capture_digest(ref):
            kept.setdefault(digest, repeat)
    if len(kept) < MIN_REPEATS:
        msg = (
            f"power: ref '{ref.label}' has {len(kept)} repeats, at least {MIN_REPEATS} needed: the "
            "noise that power is computed against is what ref measures against them\n"
            "  do next: name a stored capture with repeats (validate list targets), or record "
            "repeats of this one (validate golden record)"
        )
        raise InputError(msg)
    return tuple(kept.values())


def _measured(
    bench: Bench,
    ref: Side,
    repeats: Sequence[Side],
    *,
    limits: Limits,
    dtype: str,
    tell: Callable[[str], None],
) -> Clean:
    settings = {
        name: choose_setting(name, limits=limits, dtype=dtype).limit.value
        for name in ("near_tie", "route_gap")
    }
    itself = bench.pair(ref, ref, **settings)
    pairs, repeated = [], []
    for repeat in repeats:
        tell(f"ref against {repeat.label}")
        pairs.append(bench.pair(ref, repeat, **settings))
        repeated.append(bench.measure(pairs[-1], what="power"))
    against = [gate for gate in bench.gates if gate.name == "yardstick.ref_error"]
    truth = bench.against_oracle(itself, gates=against) if against else None
    return Clean(itself=itself, pairs=pairs, repeated=repeated, truth=truth or {})
