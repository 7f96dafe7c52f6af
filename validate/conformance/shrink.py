"""The smallest input that still fails, by trying smaller ones a bounded number of times."""

from collections.abc import Callable

import numpy as np

from validate.conformance.records import Breach, Case, Operation

__all__ = ["TRIES", "size_of", "smaller"]

TRIES = 60
"""Cases that are run at most."""

Judge = Callable[[Case], tuple[Breach, ...]]


def size_of(case: Case) -> int:
    """Bytes of all arrays of a case."""
    return sum(value.nbytes for value in case.inputs.values() if isinstance(value, np.ndarray))


def smaller(
    case: Case,
    breaches: tuple[Breach, ...],
    *,
    operation: Operation,
    judge: Judge,
    tries: int = TRIES,
) -> tuple[Case, tuple[Breach, ...], int]:
    """Walk to ever smaller cases while one of the same clauses stays broken.

    Args:
        case: A failing case.
        breaches: What it breaks.
        operation: Gives smaller cases, the boldest first.
        judge: Runs one case.
        tries: Cases that are run at most.

    Returns:
        The smallest failing case found, its breaches, and how many cases were run.
    """
    clauses = {breach.clause for breach in breaches}
    run, moved = 0, True
    while moved and run < tries:
        moved = False
        for candidate in operation.shrink(case):
            if run >= tries:
                break
            run += 1
            found = tuple(breach for breach in judge(candidate) if breach.clause in clauses)
            if found:
                case, breaches, moved = candidate, found, True
                break
    return case, breaches, run
