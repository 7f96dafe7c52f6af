"""Answers that changed, both ways, by task."""

from collections.abc import Mapping
from typing import NamedTuple

import numpy as np

from validate.schema.series import MOST_COLUMNS, Series, SeriesAxis, SeriesLine

__all__ = ["flip_series"]


class _Way(NamedTuple):
    """One way an answer can change."""

    title: str
    keys: tuple[str, str]
    """Of right and wrong answers, and of scores in between."""


WAYS = (
    _Way("lost: ref right, cand wrong (or worse)", ("lost", "worse")),
    _Way("gained: ref wrong, cand right (or better)", ("gained", "better")),
)


def flip_series(breakdown: Mapping[str, float]) -> list[Series]:
    """Items lost and gained, a place a task.

    Args:
        breakdown: Companions of the score's measurement: ``TASK: lost``, ``TASK: gained``, and
            ``worse`` and ``better`` where scores are not only 0 and 1.
    """
    counts: dict[str, list[float]] = {}
    for name, value in breakdown.items():
        task, _, key = name.rpartition(": ")
        for at, way in enumerate(WAYS):
            if task and key in way.keys:
                counts.setdefault(task, [0.0, 0.0])[at] = value
    if not counts:
        return []
    kept = dict(sorted(counts.items(), key=lambda item: -float(np.sum(item[1])))[:MOST_COLUMNS])
    return [
        Series(
            name="evals.flips",
            title="Answers that changed, by task",
            reading=(
                "As many gained as lost is noise; a right path flips few, and both ways alike. "
                "Equal scores over many flips are luck, not agreement."
            ),
            kind="bars",
            x=SeriesAxis(label="task", places=tuple(kept)),
            y=SeriesAxis(label="items", unit="items"),
            lines=tuple(
                SeriesLine(
                    name=way.title,
                    role="cand" if at == 0 else "ref",
                    values=tuple(counts[at] for counts in kept.values()),
                )
                for at, way in enumerate(WAYS)
            ),
            n=len(counts),
            n_of="tasks",
        )
    ]
