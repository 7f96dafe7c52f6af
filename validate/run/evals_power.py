"""What four rules say of the same pairs of eval runs: ours, lm-eval's, TensorRT-LLM's, a fixed tolerance."""

from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from pydantic import BaseModel, ConfigDict
from scipy import special

import validate
from validate.capture.importers import EvalFolder, manifest_of
from validate.gates import judge
from validate.metrics import METRICS
from validate.run.compare import levels_of
from validate.schema.evals import EvalItem, EvalMatch, EvalPair, EvalSet, EvalTask
from validate.schema.pair import Pair
from validate.schema.suite import GateSpec, Limits, Suite
from validate.schema.verdict import Outcome
from validate.stats import mcnemar_counts, mde_drop
from validate.suite import alpha_shares, choose_limit

__all__ = ["CASES", "Case", "EvalsPower", "RuleRow", "simulate_evals_power"]

N = 1319
"""Items of GSM8K's test split."""
REF_SCORE = 0.95
SIGMA, TRT_ALPHA = 50.0, 0.05
"""TensorRT-LLM's assumed spread of a score, in points, and its level."""
Z_ALPHA = 0.05
TOLERANCE = 0.08
GATE = "evals.score_drop"
POWER = 0.8
Told = Callable[[int, int, str], None]


class Case(NamedTuple):
    """A true drop and how many items differ at all, in points."""

    drop: float
    discordant: float


CASES = (Case(0, 2), Case(0, 5), Case(1, 2), Case(1, 5), Case(2, 5), Case(5, 8))


class _Record(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)


class RuleRow(_Record):
    """Shares of runs, in percent, in which each rule alarms on one case."""

    drop: float
    discordant: float
    fails: float
    """Ours: the gate FAILs (the drop is beyond the margin)."""
    not_passed: float
    """Ours: the gate does not PASS (the drop is not shown to be inside the margin)."""
    mcnemar: float
    """McNemar's exact one-sided p is at most 5 %: some drop, of whatever size."""
    lm_eval: float
    """lm-eval's scripts/model_comparator: two-sided z of two independent means, p <= 5 %."""
    trt_llm: float
    """Cand's score is below ref - z(95 %) sqrt(2 sigma^2 / n)."""
    fixed: float
    """The scores differ by more than 0.08."""
    smallest: float
    """Smallest drop that exact McNemar sees with power 80 % at this discordance, in points."""


class EvalsPower(_Record):
    """The whole table."""

    tool_version: str
    suite: str
    suite_digest: str
    margin: float
    """Of the gate, in points."""
    alpha_share: float
    n: int
    ref_score: float
    runs: int
    seed: int
    command: str
    rows: tuple[RuleRow, ...]


def simulate_evals_power(
    suite: Suite, limits: Limits, *, runs: int, seed: int, command: str, told: Told
) -> EvalsPower:
    """Draw paired runs of right and wrong answers and ask every rule about each.

    Items are drawn anew in every run; ref answers 95 % of them. Ours is the real metric and the
    real gate of the suite, at its share of alpha, its margin and its beta.

    Args:
        suite: Whose gate ``evals.score_drop`` is asked.
        limits: With its margin.
        runs: Pairs of runs, a case.
        seed: Of the random numbers.
        command: What the table was made by.
        told: Progress.

    Raises:
        SuiteError: The suite has no such gate, or no margin for it.
    """
    gate = next(gate for gate in suite.gates if gate.name == GATE)
    ours = _Ours(suite, limits, gate)
    rows = []
    for place, case in enumerate(CASES):
        told(place, len(CASES), f"drop {case.drop:g}, discordance {case.discordant:g}")
        rng = np.random.default_rng([seed, place])
        rows.append(_row(case, _draws(case, runs, rng), ours))
    return EvalsPower(
        tool_version=validate.__version__,
        suite=suite.name,
        suite_digest=suite.digest,
        margin=ours.margin,
        alpha_share=ours.share,
        n=N,
        ref_score=REF_SCORE,
        runs=runs,
        seed=seed,
        command=command,
        rows=tuple(rows),
    )


class _Ours:
    """The gate of the suite, asked once for each pair of counts."""

    def __init__(self, suite: Suite, limits: Limits, gate: GateSpec) -> None:
        shares = alpha_shares(suite)
        self.gate = gate
        self.beta = suite.beta
        self.share = shares[gate.name]
        self.limit = choose_limit(gate, suite=suite, limits=limits, dtype="bfloat16").limit
        self.margin = self.limit.value
        self.levels = levels_of([gate], suite=suite, shares=shares)[gate.name]
        self.known: dict[tuple[int, int], Outcome] = {}

    def outcome(self, lost: int, gained: int) -> Outcome:
        """What the gate says of so many flips each way."""
        if (lost, gained) not in self.known:
            found = METRICS[GATE](_pair(lost, gained), self.levels)
            self.known[lost, gained] = judge(
                self.gate,
                measurement=found,
                limit=self.limit,
                noise=None,
                alpha_share=self.share,
                rerun="",
                beta=self.beta,
            ).outcome
        return self.known[lost, gained]


def _draws(case: Case, runs: int, rng: np.random.Generator) -> NDArray[np.int64]:
    """[runs, 4]: lost, gained, right on both, wrong on both."""
    lost = (case.discordant + case.drop) / 200.0
    gained = (case.discordant - case.drop) / 200.0
    rates = [lost, gained, REF_SCORE - lost, 1.0 - REF_SCORE - gained]
    return np.asarray(rng.multinomial(N, rates, size=runs), dtype=np.int64)


def _row(case: Case, draws: NDArray[np.int64], ours: _Ours) -> RuleRow:
    lost, gained, both, _ = draws.T
    ref, cand = (lost + both) / N, (gained + both) / N
    outcomes = [ours.outcome(int(a), int(b)) for a, b in zip(lost, gained, strict=True)]
    exact = [mcnemar_counts(int(a), int(b)).p_value for a, b in zip(lost, gained, strict=True)]
    errors = np.sqrt((ref * (1.0 - ref) + cand * (1.0 - cand)) / (N - 1))
    threshold = ref - special.ndtri(1.0 - TRT_ALPHA) * np.sqrt(2.0 * SIGMA**2 / N) / 100.0
    smallest = mde_drop(case.discordant / 100.0, n=N, alpha=Z_ALPHA, power=POWER)
    return RuleRow(
        drop=case.drop,
        discordant=case.discordant,
        fails=_percent(np.array([one is Outcome.FAIL for one in outcomes])),
        not_passed=_percent(np.array([one is not Outcome.PASS for one in outcomes])),
        mcnemar=_percent(np.array([p is not None and p <= Z_ALPHA for p in exact])),
        lm_eval=_percent(2.0 * special.ndtr(-np.abs(ref - cand) / errors) <= Z_ALPHA),
        trt_llm=_percent(cand < threshold),
        fixed=_percent(np.abs(ref - cand) > TOLERANCE),
        smallest=100.0 * (smallest or 0.0),
    )


def _percent(alarms: NDArray[np.bool_]) -> float:
    return 100.0 * float(np.mean(alarms))


_TASK = EvalTask(
    name="simulated",
    version="1",
    fewshot=0,
    output_type="generate_until",
    filters=("none",),
    metrics={"exact_match": True},
    docs=N,
)


def _items(score: float) -> tuple[EvalItem, ...]:
    return tuple(
        EvalItem("simulated", "none", doc, None, None, None, {"exact_match": score})
        for doc in range(N)
    )


_RIGHT, _WRONG = _items(1.0), _items(0.0)


def _side() -> EvalFolder:
    evals = EvalSet(model="simulated", tasks={"simulated": _TASK}, items=_RIGHT)
    return EvalFolder(
        label="simulated",
        path=Path("simulated"),
        digest="0" * 64,
        manifest=manifest_of({}, evals, label="simulated", digest="0" * 64),
        evals=evals,
    )


_SIDE = _side()


def _pair(lost: int, gained: int) -> Pair:
    """Items whose first ``lost`` are lost, the next ``gained`` gained, the others right on both."""
    end = lost + gained
    ref = (*_RIGHT[:lost], *_WRONG[lost:end], *_RIGHT[end:])
    cand = (*_WRONG[:lost], *_RIGHT[lost:])
    pairs = (EvalPair(task=_TASK, filter="none", ref=ref, cand=cand),)
    return Pair(ref=_SIDE, cand=_SIDE, prompts=(), evals=EvalMatch(pairs=pairs))
