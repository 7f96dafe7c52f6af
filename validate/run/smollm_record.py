"""The record that ``make smollm`` leaves: comparisons, gates, sides."""

from typing import Literal

from pydantic import BaseModel, ConfigDict

__all__ = [
    "Comparison",
    "Gate",
    "Limits",
    "LogitsFound",
    "Outcome",
    "Role",
    "SideRun",
    "SmolReport",
    "TaskFound",
]

Outcome = Literal["PASS", "FAIL", "INCONCLUSIVE"]
Role = Literal["padding", "fault", "floor", "yardstick"]


class _Record(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class Limits(_Record):
    """What bfloat16 moves of the plain model, and so what a limit is measured in."""

    loglik: float
    """Median over items of |delta log-likelihood|, mean over the item's requests; nats."""
    bits_per_byte: float
    """Mean over items of |delta bits per byte|."""
    kl: float
    """Median over prompts of the mean KL of a row; nats."""


class TaskFound(_Record):
    """One task of one comparison."""

    task: str
    items: int
    requests: int
    identical: int
    """Requests whose log-likelihoods are the same float."""
    mean_abs_delta: float
    """Mean over items of the mean over requests of |cand - ref|; nats."""
    max_abs_delta: float
    """Over requests; nats."""
    delta: float
    """Mean over items of cand - ref, summed over the item's requests; nats."""
    delta_low: float | None
    delta_high: float | None
    """Student t limits, 95 % one-sided each."""
    score: str
    """What lm-eval scores: ``acc`` or ``bits_per_byte``."""
    score_ref: float
    score_cand: float
    flips: int | None
    """Items whose score differs; None where the score is a number per byte."""


class LogitsFound(_Record):
    """Teacher-forced logits of one comparison."""

    prompts: int
    rows: int
    values: int
    identical: int
    """Logits with the same bits (the same number where the formats differ)."""
    max_abs_delta: float
    kl_mean: float
    kl_p50: float
    kl_p90: float
    kl_max: float
    top1_flips: int
    """Rows whose sets of maxima do not meet."""


class Gate(_Record):
    """One judged number."""

    name: str
    value: float
    low: float | None
    high: float | None
    limit: float
    unit: str
    n: int
    n_of: str
    outcome: Outcome


class Comparison(_Record):
    """One side against another."""

    name: str
    ref: str
    cand: str
    role: Role
    tasks: tuple[TaskFound, ...]
    logits: LogitsFound
    gates: tuple[Gate, ...]
    """Empty for the yardstick, which the limits are made of."""
    outcome: Outcome | None

    def failed_to_show(self) -> bool:
        """True for a fault that no gate FAILs and for padding that does not PASS."""
        if self.role == "fault":
            return self.outcome != "FAIL"
        return self.role == "padding" and self.outcome != "PASS"


class SideRun(_Record):
    """One side as it was run."""

    name: str
    dtype: str
    attention: str
    fault: str | None
    branches: dict[str, int]
    """Branches by name with their calls, of the last process that ran the side."""


class SmolReport(_Record):
    """All of it."""

    schema_version: Literal[1] = 1
    tool_version: str
    date: str
    command: str
    model: str
    evidence: Literal["emulated"] = "emulated"
    """Everything ran on a CPU."""
    hardware: str
    threads: int
    versions: dict[str, str]
    items: int
    """Documents of each task."""
    texts: str
    """Which texts the logits are of."""
    yardstick: Limits
    limit_rule: str
    comparisons: tuple[Comparison, ...]
    sides: tuple[SideRun, ...]
    not_shown: tuple[str, ...]
    licences: dict[str, str]
