"""Running a sweep in a test: which points break which clauses."""

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from validate.conformance.guard import Broke, direct
from validate.conformance.records import Breach, Case, Effort, Operation


def settings_of(operation: Operation, **wanted: str) -> dict[str, str]:
    """Every setting of a contract: as wanted, else the default."""
    known = {key: values[0] for key, values in operation.contract.settings.items()}
    assert wanted.keys() <= known.keys()
    return {**known, **wanted}


def sweep(
    operation: Operation,
    function: Callable[..., Any],
    *,
    cases: Iterable[Case] | None = None,
    enough: int | None = None,
    **wanted: str,
) -> Mapping[str, tuple[Breach, ...]]:
    """Breaches by case id, of the failing points alone; the quick sweep when no cases are given.

    ``enough`` failing points end it.
    """
    settings = settings_of(operation, **wanted)
    call = direct(function, operation, settings)
    found: dict[str, tuple[Breach, ...]] = {}
    ran = 0
    for case in cases if cases is not None else operation.cases(Effort.QUICK, settings):
        ran += 1
        try:
            breaches = operation.check(case, call, settings)
        except Broke as broke:
            breaches = (broke.breach,)
        if breaches:
            found[case.id] = breaches
            if len(found) == enough:
                break
    assert ran > 0, "no sweep point ran"
    return found


def clauses(found: Mapping[str, tuple[Breach, ...]]) -> set[str]:
    """Every clause that was broken."""
    return {breach.clause for breaches in found.values() for breach in breaches}
