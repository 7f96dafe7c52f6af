"""``attention.lse_abs``: the largest change of a log-sum-exp."""

import math

from validate.metrics._tensors import Scan, first_structure, scan
from validate.metrics._unmeasured import no_tensors, not_finite, undefined
from validate.schema import Levels, Measurement, Pair

__all__ = ["attention_lse_abs"]

METRIC, UNIT, N_OF = "attention.lse_abs", "nats", "rows over layers and modes"
BASE_2 = 1 / math.log(2)
NEAR = 0.03
"""Relative distance from 1 / ln 2 within which a slope is read as a base-2 LSE."""


def attention_lse_abs(pair: Pair, _levels: Levels) -> Measurement:
    """Largest ``|cand - ref|`` over all log-sum-exps of MLA heads, prefill and decode.

    The LSE weighs parts of split attention against each other, so a wrong base, split or
    mask shows here even where the output itself hardly moves. Rows that a router tie set
    apart are left out.

    Args:
        pair: Ref and cand.
        _levels: Not used: a maximum over all that was compared has no interval.

    Returns:
        Deterministic measurement in nats; n = rows over layers and modes; ``worst`` names
        prompt, position, layer and head; ``pattern`` says so when cand's LSE is ref's times
        1 / ln 2, or which heads are permuted. Undefined when an LSE holds NaN or infinities or
        when there are none.

    Source:
        sgl-project/sglang#40903 (LC-01) and vllm-project/vllm#47079 (LC-02): random tensors at a
        long prefix hide a wrong base from the output (rel-L2 0.0009 at 64K), the LSE shows it.
    """
    found = scan(pair)
    why = not_finite(found.bad, "lse")
    if why is None and found.lse_rows == 0:
        why = no_tensors("log-sum-exps")
    if why is not None:
        return undefined(METRIC, why, unit=UNIT, n_of=N_OF, n=found.lse_rows)
    slope = _slope(found)
    return Measurement(
        metric=METRIC,
        value=found.lse_err,
        unit=UNIT,
        n=found.lse_rows,
        n_of=N_OF,
        worst=found.lse_worst,
        worst_value=found.lse_err,
        pattern=_pattern(pair, found, slope),
        breakdown={} if slope is None else {"slope of cand on ref": slope},
    )


def _slope(found: Scan) -> float | None:
    """Least-squares slope through the origin of cand's LSEs on ref's."""
    along, ref2 = (float(value) for value in found.lse_fit)
    return along / ref2 if ref2 > 0 else None


def _pattern(pair: Pair, found: Scan, slope: float | None) -> str | None:
    if slope is not None and abs(slope / BASE_2 - 1) <= NEAR:
        return f"LSE is ref's times {slope:.4g}: base 2 where base e is meant (1 / ln 2 = 1.443)"
    return None if found.lse_err == 0 else first_structure(pair, found.outputs)
