"""What a test returns: a frozen record in which a missing p-value is None with a reason."""

from dataclasses import dataclass
from typing import Literal

__all__ = ["Alternative", "SignificanceTest"]

Alternative = Literal["greater", "less", "two-sided"]


@dataclass(frozen=True, slots=True, kw_only=True)
class SignificanceTest:
    """Outcome of one test; it repeats what it was computed from."""

    p_value: float | None
    """In [0, 1]; None exactly when ``why_undefined`` is set. It is never NaN."""
    statistic: float | None
    """The test statistic, None when undefined."""
    n: int
    """Independent units that the p-value rests on."""
    n_of: str
    method: str
    alternative: Alternative = "two-sided"
    estimate: float | None = None
    """The quantity under test where it has one."""
    why_undefined: str | None = None

    def __post_init__(self) -> None:
        """Refuse a p-value that is not one, and a missing p-value without a reason."""
        if (self.p_value is None) == (self.why_undefined is None):
            msg = (
                f"{self.method}: exactly one of p_value and why_undefined must be set, "
                f"got p_value={self.p_value} and why_undefined={self.why_undefined!r}"
            )
            raise ValueError(msg)
        if self.p_value is not None and not 0.0 <= self.p_value <= 1.0:
            msg = f"{self.method}: a p-value lies in [0, 1], got {self.p_value}"
            raise ValueError(msg)
