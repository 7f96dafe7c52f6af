"""``speculative.verify_kl``: do the rows of the verify window give the law of plain decoding?"""

import numpy as np

from validate.metrics._reason import Reason, without_value
from validate.metrics._spec_inside import verify_rows
from validate.schema import Levels, Measurement, Pair, Worst

__all__ = ["speculative_verify_kl"]

NAME = "speculative.verify_kl"


def speculative_verify_kl(pair: Pair, levels: Levels) -> Measurement:
    """Largest mean KL(forced || verify) of a row index of the verify window, in nats.

    A mask or state fault of the verify pass hides from every test of the sampler, which takes the
    verify rows for the truth; a teacher-forced pass over the same committed tokens does not.

    Args:
        pair: The candidate's ``spec.spec-sampled.verify.logits`` and ``.forced.logits``.
        levels: Not used: a maximum over all rows is deterministic.

    Returns:
        Nats; ``n`` = rows. The breakdown holds the mean by row index. NaN where a row is not
        finite. Undefined without such rows.
    """
    del levels
    rows = verify_rows(pair)
    if isinstance(rows, Reason):
        return without_value(NAME, rows, unit="nats", n_of="rows")
    means = {int(r): float(np.mean(rows.kl[rows.window == r])) for r in np.unique(rows.window)}
    index = max(means, key=lambda r: (np.isnan(means[r]), means[r]))
    inside = np.flatnonzero(rows.window == index)
    at = int(inside[np.argmax(rows.kl[inside])])
    return Measurement(
        metric=NAME,
        value=means[index],
        unit="nats",
        n=len(rows.kl),
        n_of="rows",
        worst=Worst(
            prompt=rows.prompt[at],
            position=int(rows.position[at]),
            place=f"row {index} of the verify window",
            value=float(rows.kl[at]),
        ),
        breakdown={f"row_{r}": mean for r, mean in means.items()},
    )
