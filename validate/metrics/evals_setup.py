"""``evals.setup``: were both sides asked the same, under the same rules?"""

from validate.metrics._reason import Reason, without_value
from validate.schema import Levels, Measurement, Pair

__all__ = ["evals_setup"]

NAME, UNIT, N_OF = "evals.setup", "differences", "tasks"


def evals_setup(pair: Pair, _levels: Levels) -> Measurement:
    """Differences of tasks, versions, few-shot counts, filters, generation arguments and items.

    Any of them moves scores by more than a kernel does: a stop string that occurs in a reasoned
    answer, a token budget below the median length.

    Args:
        pair: Evals of both sides.
        _levels: Not used: nothing is estimated.

    Returns:
        0, n = tasks. Unlike, with every difference in the reason, where there is any; undefined
        where a side holds no evals.

    Source:
        sgl-project/sglang#29264, ROCm/ATOM#1489 and elizaOS/eliza#10670 (TV-07).
    """
    match = pair.evals
    if match.missing is not None:
        return without_value(NAME, Reason(match.missing), unit=UNIT, n_of=N_OF)
    if match.reasons:
        why = f"{len(match.reasons)} differences: {'; '.join(match.reasons)}"
        return without_value(NAME, Reason(why, "unlike"), unit=UNIT, n_of=N_OF)
    if not match.pairs:
        return without_value(NAME, Reason("no evals were paired"), unit=UNIT, n_of=N_OF)
    tasks = {one.task.name: one for one in match.pairs}
    return Measurement(
        metric=NAME,
        value=0.0,
        unit=UNIT,
        n=len(tasks),
        n_of=N_OF,
        breakdown={f"{name}: items": float(len(one.ref)) for name, one in tasks.items()},
    )
