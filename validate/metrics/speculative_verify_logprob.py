"""``speculative.verify_logprob``: the largest difference of a log-probability in the verify window."""

import numpy as np

from validate.metrics._reason import Reason, without_value
from validate.metrics._spec_inside import verify_rows
from validate.schema import Levels, Measurement, Pair, Worst

__all__ = ["speculative_verify_logprob"]

NAME = "speculative.verify_logprob"


def speculative_verify_logprob(pair: Pair, levels: Levels) -> Measurement:
    """Largest |log p_verify - log p_forced| over rows and over ids with forced p >= 0.001, in nats.

    Args:
        pair: The candidate's verify rows and teacher-forced ones.
        levels: Not used: a maximum is deterministic.

    Returns:
        Nats; ``n`` = rows. The breakdown holds the maximum by row index. NaN where a row is not
        finite. Undefined without such rows.
    """
    del levels
    rows = verify_rows(pair)
    if isinstance(rows, Reason):
        return without_value(NAME, rows, unit="nats", n_of="rows")
    at = int(np.argmax(rows.apart))
    return Measurement(
        metric=NAME,
        value=float(rows.apart[at]),
        unit="nats",
        n=len(rows.apart),
        n_of="rows",
        worst=Worst(
            prompt=rows.prompt[at],
            position=int(rows.position[at]),
            place=f"row {int(rows.window[at])} of the verify window",
            value=float(rows.apart[at]),
        ),
        breakdown={
            f"row_{int(r)}": float(np.max(rows.apart[rows.window == r]))
            for r in np.unique(rows.window)
        },
    )
