"""Do today's answers to a golden's tasks match those that it holds? A part of ``golden verify``."""

import statistics
from collections.abc import Iterator

from validate.schema.evals import EvalItem, EvalSet
from validate.schema.suite import Limits

__all__ = ["DOCS", "eval_problems"]

DOCS = 12
"""Documents of each task that are answered again."""
SHARED = ("prompt_tokens_hash", "bos", "arguments", "truncated")
"""What no rounding moves."""
PERCENT = 100.0


def eval_problems(
    golden: EvalSet, fresh: EvalSet | None, *, limits: Limits, dtype: str
) -> Iterator[str]:
    """Answers of today's source that are not those of a golden, within the limits of ``evals.*``.

    Args:
        golden: Every document of the stored capture.
        fresh: Some of them, answered again; None where none was.
        limits: Holds ``evals.loglik_delta`` and ``evals.score_drop``.
        dtype: Of the golden.

    Yields:
        One line a problem.
    """
    if fresh is None or not fresh.items:
        yield "evals: no document was answered again"
        return
    held = {_key(item): item for item in golden.items}
    pairs = [(held.get(_key(item)), item) for item in fresh.items]
    for old, new in pairs:
        if old is None:
            yield f"evals: {new.task}, document {new.doc_id}: not in the golden"
            return
        for name in SHARED:
            if getattr(old, name) != getattr(new, name):
                yield (
                    f"evals: {new.task}, document {new.doc_id}: {name} is {getattr(new, name)}, "
                    f"{getattr(old, name)} in the golden"
                )
                return
    known = [(old, new) for old, new in pairs if old is not None]
    yield from _beyond(
        "evals.loglik_delta",
        [
            abs(sum(new.loglikelihoods) - sum(old.loglikelihoods))
            for old, new in known
            if new.loglikelihoods
        ],
        limits=limits,
        dtype=dtype,
    )
    scored = [
        PERCENT * abs(new.scores[name] - value)
        for old, new in known
        if not new.loglikelihoods
        for name, value in old.scores.items()
    ]
    yield from _beyond(
        "evals.score_drop", [statistics.fmean(scored)] if scored else [], limits=limits, dtype=dtype
    )


def _key(item: EvalItem) -> tuple[str, str, str | None]:
    return item.task, item.filter, item.doc_hash


def _beyond(name: str, values: list[float], *, limits: Limits, dtype: str) -> Iterator[str]:
    """The median against the limit of a metric; a value that is no number is beyond every limit."""
    if not values:
        return
    limit = limits.entries.get(f"{name}.{dtype}")
    middle = statistics.median(values)
    if limit is None or not (middle <= limit.value):
        told = "no limit" if limit is None else f"{limit.value:.4g}"
        yield f"{name}: {middle:.4g} is beyond {told}"
