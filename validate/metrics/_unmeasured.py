"""Measurements that cannot be made, and the reasons that several metrics share."""

from collections.abc import Mapping

from validate.metrics._finite import Findings, why_undefined
from validate.metrics._tensors import Bulk
from validate.schema import Measurement

__all__ = ["no_tensors", "not_finite", "too_many_apart", "undefined"]


def undefined(
    metric: str,
    why: str,
    *,
    unit: str,
    n_of: str,
    n: int = 0,
    breakdown: Mapping[str, float] | None = None,
) -> Measurement:
    """A measurement without a value, and why."""
    return Measurement(
        metric=metric,
        value=None,
        unit=unit,
        n=n,
        n_of=n_of,
        why_undefined=why,
        breakdown=dict(breakdown or {}),
    )


def no_tensors(what: str) -> str:
    """The reason when a capture holds none of the tensors a metric reads."""
    return (
        f"no prompt holds {what}; capture prompts tagged for them, with every tensor that "
        "docs/capture-format.md lists for the tag"
    )


def not_finite(bad: Mapping[str, Findings], *groups: str) -> str | None:
    """The reason when tensors of these groups hold non-finite values, else None."""
    return why_undefined(finding for group in groups for finding in bad.get(group, []))


def too_many_apart(bulks: Mapping[str, Bulk]) -> str | None:
    """The reason when router ties set more than half of all rows apart, else None."""
    away = sum(bulk.apart_rows for bulk in bulks.values())
    rows = away + sum(bulk.rows for bulk in bulks.values())
    if not 2 * away > rows:
        return None
    return (
        f"router ties set {away} of {rows} rows apart, more than half: what is left is no "
        "bulk; look at attention.routing_mismatch first"
    )
