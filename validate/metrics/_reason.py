"""Why logits or streams cannot be measured, as a value that passes between functions."""

from typing import NamedTuple

from validate.schema.measurement import Measurement, UndefinedKind

__all__ = ["Reason", "without_value"]


class Reason(NamedTuple):
    """Why nothing can be measured."""

    why: str
    """One sentence that names side, prompt and place."""
    kind: UndefinedKind = "no_data"
    """``unlike`` where the two sides can't be set against each other."""


def without_value(metric: str, reason: Reason, *, unit: str, n_of: str) -> Measurement:
    """A measurement whose value is None, for the given reason."""
    return Measurement(
        metric=metric,
        value=None,
        unit=unit,
        n=0,
        n_of=n_of,
        why_undefined=reason.why,
        undefined_kind=reason.kind,
    )
