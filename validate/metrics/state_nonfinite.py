"""``state.nonfinite``: NaN and infinities in what the model carries between tokens."""

from validate.metrics._nonfinite import measure_nonfinite
from validate.metrics._states import state_scan
from validate.schema import Levels, Measurement, Pair

__all__ = ["state_nonfinite"]


def state_nonfinite(pair: Pair, _levels: Levels) -> Measurement:
    """Count of non-finite values in all KDA, convolution and KV states, ref and cand together.

    A NaN on both sides counts: it stands for no value, so it cannot agree. The other
    state metrics that read such a state are undefined.

    Args:
        pair: Ref and cand.
        _levels: Not used: a count has no interval.

    Returns:
        Deterministic count; n = states looked at, a side; ``worst`` names the state with most,
        its first index, and the kinds by side with the sign of infinities. Undefined when no
        prompt holds states.

    Source:
        sgl-project/sglang#30862 (LA-02): slots that were never written are read as state.
    """
    found = state_scan(pair)
    bad = [finding for findings in found.bad.values() for finding in findings]
    return measure_nonfinite("state.nonfinite", bad, tensors=found.tensors, what="states")
