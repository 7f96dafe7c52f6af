"""What ``power`` finds, as strict records: no NaN, null where there is no number."""

from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field

from validate.schema.verdict import GateKind

__all__ = ["CleanRun", "EffectPower", "GatePower", "PowerReport", "Reach"]

Number = Annotated[float, Field(allow_inf_nan=False)]


class _Record(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)


class Reach(_Record):
    """What one number of units detects, in the unit of the effect."""

    multiple: int
    """Times as many units as the ref capture holds."""
    n: int
    detected_80: Number | None
    """Smallest effect that FAILs with probability 80 %; null: none that was tried."""
    detected_95: Number | None
    stopped_95: Number | None
    """Smallest effect that is not passed with probability 95 %."""


class EffectPower(_Record):
    """The power of one gate against one kind of effect."""

    effect: str
    unit: str
    method: Literal["simulated", "exact"]
    reaches: tuple[Reach, ...]
    stated: Number | None = None
    """The effect that ``needed_80`` and ``needed_95`` are for."""
    needed_80: int | None = None
    """Units that detect ``stated`` with 80 %; null: more than were tried."""
    needed_95: int | None = None
    checked: tuple[Number | None, ...] = ()
    """Share of simulated runs with other random numbers that FAIL at no effect, at
    ``detected_80`` and at ``detected_95`` of the units at hand; null where there is no size."""
    note: str = ""


class GatePower(_Record):
    """The power of one gate."""

    gate: str
    kind: GateKind
    alpha_share: Number
    limit: Number | None
    noise_floor: Number | None
    n: int
    n_of: str
    effects: tuple[EffectPower, ...] = ()
    why_undefined: str | None = None
    """Why there are no effects; null where there are."""


class CleanRun(_Record):
    """What happens to a run that is nothing but another repeat of ref, by simulation."""

    draws: int
    passes_all: Number
    """Share of runs in which every gate PASSes."""
    any_fail: Number
    """Share of runs in which a gate FAILs; at most alpha where everything is as assumed."""
    not_passed: dict[str, Number]
    """Share of runs in which this gate does not PASS, where there are any."""


class PowerReport(_Record):
    """Everything that ``validate power`` says."""

    schema_version: Literal[1] = 1
    tool_version: str
    command: str
    suite: str
    suite_digest: str
    limits_digest: str
    alpha: Number
    beta: Number
    number_of_gates: int
    gates_with_interval: int
    ref: str
    ref_digest: str
    repeats: tuple[str, ...]
    seed: int
    draws: int
    clean: CleanRun
    gates: tuple[GatePower, ...]
