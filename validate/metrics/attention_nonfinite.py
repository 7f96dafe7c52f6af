"""``attention.nonfinite``: NaN and infinities inside the forward pass, on either side."""

from validate.metrics._nonfinite import measure_nonfinite
from validate.metrics._routing import routing
from validate.metrics._tensors import scan
from validate.schema import Levels, Measurement, Pair

__all__ = ["attention_nonfinite"]


def attention_nonfinite(pair: Pair, _levels: Levels) -> Measurement:
    """Count of non-finite values in all tensors of prefill and decode, ref and cand together.

    A NaN on both sides counts: it stands for no value, so it cannot agree. The other
    attention metrics that read such a tensor are undefined.

    Args:
        pair: Ref and cand.
        _levels: Not used: a count has no interval.

    Returns:
        Deterministic count; n = float tensors looked at, a side; ``worst`` names the tensor with
        most, its first index, and the kinds by side with the sign of infinities. Undefined when
        no prompt holds such tensors.

    Source:
        NervanaSystems/ngraph#2028 and numpy/numpy#8145 (TV-01): NaN passes; numpy's
        ``assert_same_inf_values`` for signs.
    """
    found, routes = scan(pair), routing(pair)
    bad = [finding for findings in found.bad.values() for finding in findings]
    return measure_nonfinite(
        "attention.nonfinite",
        [*bad, *routes.bad],
        tensors=found.tensors + routes.tensors,
        what="attention tensors",
    )
