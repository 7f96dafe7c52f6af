"""``attention.lse_slope``: a softmax whose scores are all a little too large or too small."""

import math
from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from validate.metrics._tensors import Scan, scan
from validate.metrics._unmeasured import no_tensors, not_finite, undefined
from validate.schema import Levels, Measurement, Pair, Worst

__all__ = ["attention_lse_slope"]

METRIC, UNIT, N_OF = "attention.lse_slope", "|slope - 1|", "rows over layers and modes"


def attention_lse_slope(pair: Pair, _levels: Levels) -> Measurement:
    """Largest ``|slope - 1|`` of a mode, slope the least-squares factor of cand's LSEs on ref's.

    ``slope - 1 = sum (cand - ref) ref / sum ref^2`` over all prompts, MLA layers, rows and
    heads of one mode: exactly 0 for equal sides. Rounding to nearest moves single LSEs up and
    down and leaves the slope near 1; another softmax scale moves all of them the same way.
    Rows that a router tie set apart are left out.

    Args:
        pair: Ref and cand.
        _levels: Not used: a sum over all that was compared has no interval.

    Returns:
        Deterministic measurement; n = rows over layers and modes; ``worst.place`` names the mode;
        ``breakdown`` gives the signed ``slope - 1`` by mode and by layer. Undefined when an LSE
        holds NaN or infinities, when there are none, or when ref's are all zero.

    Source:
        Normal equation of one-parameter least squares. vllm-project/vllm#45562 (QU-01): a scale
        that is applied twice or not at all leaves the cosine at 1.
    """
    found = scan(pair)
    why = not_finite(found.bad, "lse")
    if why is None and found.lse_rows == 0:
        why = no_tensors("log-sum-exps")
    by_mode = _sums(found)
    zero = [name for name, (_, ref2) in by_mode.items() if not ref2 > 0]
    if why is None and zero:
        why = f"the log-sum-exps of ref are all zero in {zero[0]}"
    if why is not None:
        return undefined(METRIC, why, unit=UNIT, n_of=N_OF, n=found.lse_rows)
    slopes = {name: float(along / ref2) for name, (along, ref2) in by_mode.items()}
    layers = {
        name: float(along / ref2) for name, (along, ref2) in found.lse_along.items() if ref2 > 0
    }
    top = list(slopes)[int(np.argmax(np.abs(list(slopes.values()))))]
    value = math.fabs(slopes[top])
    return Measurement(
        metric=METRIC,
        value=value,
        unit=UNIT,
        n=found.lse_rows,
        n_of=N_OF,
        worst=Worst(place=top, value=value, detail=f"slope {1 + slopes[top]:.4g}"),
        worst_value=value,
        breakdown={**slopes, **layers},
        pooled=len(found.by_prompt.get("out", ())) or None,
    )


def _sums(found: Scan) -> Mapping[str, NDArray[np.float64]]:
    """Sum of (cand - ref) ref and of ref^2 by mode."""
    made: dict[str, NDArray[np.float64]] = {}
    for name, sums in found.lse_along.items():
        mode = name.partition(".")[0]
        made[mode] = made.get(mode, np.zeros(2)) + sums
    return made
