"""What a gate returns, and the limit and floor it judged by."""

from dataclasses import dataclass
from enum import StrEnum
from typing import Literal

from validate.schema.measurement import Measurement

__all__ = [
    "EXIT_CODES",
    "GRAVITY",
    "WAIVABLE",
    "GateKind",
    "Limit",
    "NoiseFloor",
    "Outcome",
    "Verdict",
]

GateKind = Literal["exact", "bound", "noise_ratio", "three_way", "lossless", "noninferior"]


class Outcome(StrEnum):
    """The four outcomes of a gate."""

    PASS = "PASS"
    FAIL = "FAIL"
    INCONCLUSIVE = "INCONCLUSIVE"
    INCOMPARABLE = "INCOMPARABLE"


EXIT_CODES: dict[Outcome, int] = {
    Outcome.PASS: 0,
    Outcome.FAIL: 1,
    Outcome.INCONCLUSIVE: 3,
    Outcome.INCOMPARABLE: 4,
}
"""Exit code of each outcome; of several that count the gravest wins, in the order 4, 1, 3, 0."""

GRAVITY = (Outcome.INCOMPARABLE, Outcome.FAIL, Outcome.INCONCLUSIVE, Outcome.PASS)
"""From the gravest: what cannot be compared outweighs what was found wrong."""

WAIVABLE = (Outcome.FAIL, Outcome.INCONCLUSIVE)
"""What a waiver may cover. INCOMPARABLE is no finding about cand: there is nothing to forgive."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Limit:
    """The number a gate compares with, and where it comes from."""

    value: float
    source: Literal["measured", "derived", "published"]
    pointer: str
    """File and key, e.g. ``golden/tolerances.toml#logits.kl_p90.bfloat16``."""
    worst: float | None = None
    """Second limit, on ``Measurement.worst_value``, for gates that bound the worst row too."""
    clean: float | None = None
    """Upper end of what reference repeats measured when the limit was made."""
    fault: float | None = None
    """Smallest value that a planted fault measured when the limit was made."""
    fault_id: str | None = None
    basis: str | None = None
    """What the number rests on, in words or as a path; beside ``source``."""
    roundoff: tuple[float, int] | None = None
    """``(scale, power)``: a noise floor that measures 0 is replaced by
    ``scale * unit_roundoff(dtype) ** power``, in the metric's unit."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NoiseFloor:
    """The metric between ref and its repeats."""

    value: float | None
    """Upper confidence limit over the repeats; None when there are fewer than three."""
    repeats: int
    values: tuple[float, ...] = ()
    derived: bool = False
    """True when the measured floor was 0 and the unit-roundoff floor was taken instead."""
    why_undefined: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """The judgement of one gate; repeats all it was made from."""

    gate: str
    kind: GateKind
    outcome: Outcome
    alpha_share: float
    """This gate's share of the suite's alpha; 0 for deterministic gates."""
    measurement: Measurement | None
    """None only when nothing could be measured; ``reason`` then says why."""
    limit: Limit | None
    noise: NoiseFloor | None
    reason: str | None
    """Why the outcome is not PASS, in one sentence that stands alone; None on PASS."""
    rerun: str
    """The command that judges this gate again."""
    judged: float | None = None
    """The number that was held against ``limit.value``: the measured value itself, or for
    ``noise_ratio`` the value over the noise floor; None when nothing was judged."""
    deviation: str | None = None
    """Id of the declared deviation whose budget replaced the limit, if any."""
    waiver: str | None = None
    """The waiver that keeps this outcome out of the exit code, in words; never on PASS."""
