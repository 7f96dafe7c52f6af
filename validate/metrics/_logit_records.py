"""What one pass over the logits of a pair leaves: a few numbers a row, the rest a prompt."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from validate.metrics._logit_values import BadLogits
from validate.metrics._reason import Reason

__all__ = ["DECODE", "FORCED", "STREAM", "Bad", "LogitRows", "SectionRows", "WorstRow"]

FORCED = "logits"
"""Rows over the prompt's own tokens: fixed before anything ran."""
DECODE = "decode.logits"
"""The same tokens, fed one at a time after a prefill of the first half."""
STREAM = "stream.logits"
"""Rows over the prompt and the side's own greedy stream."""


class WorstRow(NamedTuple):
    """One row of one section."""

    position: int
    row: int
    value: float
    detail: str
    """The top choices of both sides with their probabilities."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SectionRows:
    """The compared rows of one logits tensor of one prompt."""

    prompt: str
    section: str
    """``logits``, ``decode.logits`` or ``stream.logits``."""
    positions: NDArray[np.int32]
    kl: NDArray[np.float64]
    """KL(ref || cand) per row, nats; its lower bound where logits are stored as top-k."""
    kl_mean: float
    kl_worst: WorstRow
    flips: int
    """Rows whose top-1 sets are disjoint with a ref gap above the near-tie limit."""
    capped: int
    """Those of them with a gap above the hard cap."""
    flip_worst: WorstRow | None
    """The flip with the greatest gap."""
    disagreements: int
    """Rows whose top-1 sets are disjoint, near-ties included."""
    near_ties_predicted: float
    """Disagreements within the limit that the limit leads to expect."""
    margin_shift_max: float
    """Greatest change of the logprob between ref's first two choices, nats."""
    ties: int
    """Rows with a tied maximum on either side."""
    overlap_mean: float
    tvd_max: float
    reverse_max: float
    dlogprob_max: float
    targets: int
    """Rows that predict a known token."""
    nll_ref: float | None
    """Mean over those, nats; None without any."""
    nll_delta: float | None
    """Mean of nll_cand - nll_ref over those, nats; NaN where both sides mask a target."""
    kl_high: NDArray[np.float64] | None = None
    """Upper bound of each row's KL, inf where there is none; None: ``kl`` is exact."""
    flips_high: int | None = None
    """Flips that the stored logits do not rule out; None: ``flips`` is exact."""
    capped_high: int | None = None
    """Those of them that may lie above the hard cap."""
    lacking: int = 0
    """Rows whose target a top-k side did not keep."""

    @property
    def upper_mean(self) -> float:
        """Upper bound of ``kl_mean``."""
        return self.kl_mean if self.kl_high is None else float(np.mean(self.kl_high))

    @property
    def upper_worst(self) -> float:
        """Upper bound of the greatest KL of a row."""
        return self.kl_worst.value if self.kl_high is None else float(np.max(self.kl_high))


@dataclass(frozen=True, slots=True, kw_only=True)
class Bad:
    """Non-finite logits of one section of one prompt."""

    prompt: str
    section: str
    label: str
    position: int
    found: BadLogits

    def text(self) -> str:
        """Side, prompt, place and kinds."""
        return (
            f"{self.found.side} '{self.label}' prompt {self.prompt} {self.section} "
            f"position {self.position}: {self.found.text()}"
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class LogitRows:
    """Everything the logits metrics are made from."""

    unpaired: Reason | None
    """Why the two sides cannot be set against each other, or hold no logits."""
    bad: tuple[Bad, ...]
    values: int
    """Logits looked at on both sides together."""
    sections: tuple[SectionRows, ...]

    @property
    def reason(self) -> Reason | None:
        """Why statistics over rows are undefined; None when they are not."""
        if self.unpaired is not None or not self.bad:
            return self.unpaired
        total = sum(bad.found.total for bad in self.bad)
        return Reason(f"{total} logits are not finite; the first: {self.bad[0].text()}")

    @property
    def exact(self) -> bool:
        """Whether every row's logits are stored in full on both sides."""
        return all(rows.kl_high is None for rows in self.sections)

    @property
    def why_open(self) -> str | None:
        """Why KL lies between bounds, and what to store instead; None where it is exact."""
        highs = [rows.kl_high for rows in self.sections if rows.kl_high is not None]
        if not highs:
            return None
        unbounded = sum(int(np.count_nonzero(np.isposinf(high))) for high in highs)
        total = sum(high.size for high in highs)
        if unbounded:
            return (
                f"top-k logits give KL no upper bound in {unbounded} of {total} rows: store cand's "
                "row minimum (row_min), or full logits"
            )
        return "top-k logits leave KL between two bounds: keep more ids, or full logits"

    @property
    def upper_means(self) -> list[float]:
        """Upper bounds of what ``drifts`` measures, by prompt in pair order."""
        return [
            float(np.max([part.upper_mean for part in parts if part.section != STREAM]))
            for parts in self.by_prompt.values()
            if any(part.section != STREAM for part in parts)
        ]

    @property
    def forced(self) -> tuple[SectionRows, ...]:
        """The teacher-forced rows of every prompt, in pair order."""
        return tuple(rows for rows in self.sections if rows.section == FORCED)

    @property
    def by_prompt(self) -> Mapping[str, tuple[SectionRows, ...]]:
        """All sections of every prompt, in pair order."""
        held: dict[str, tuple[SectionRows, ...]] = {}
        for rows in self.sections:
            held[rows.prompt] = (*held.get(rows.prompt, ()), rows)
        return held

    @property
    def drifts(self) -> tuple[SectionRows, ...]:
        """The path of every prompt that drifts more on the prompt's own tokens, in pair order.

        That is ``logits`` or, where it was captured and has the greater mean KL,
        ``decode.logits``. Which rows these hold was fixed before anything ran.
        """
        worse: dict[str, SectionRows] = {}
        for rows in self.sections:
            held = worse.get(rows.prompt)
            if rows.section != STREAM and (held is None or rows.kl_mean > held.kl_mean):
                worse[rows.prompt] = rows
        return tuple(worse.values())
