"""``state.conv_rel_l2``: the convolution state that is worst."""

from validate.metrics._peaks import measure_across
from validate.schema import Levels, Measurement, Pair

__all__ = ["state_conv_rel_l2"]


def state_conv_rel_l2(pair: Pair, _levels: Levels) -> Measurement:
    """Largest ``||cand - ref|| / ||ref||`` of one tap of a q, k or v convolution state.

    Over prompts, layers, q/k/v, taps (all channels together) and the ways a state is made. A
    tap that is all zero in ref (before the first token) is held to the RMS norm of the
    others, so that what should be zero must be.

    Args:
        pair: Ref and cand.
        _levels: Not used: a maximum over all that was compared has no interval.

    Returns:
        Deterministic measurement; n = taps over prompts, layers and ways; ``worst`` names
        prompt, way, layer, projection and tap. Undefined when a state holds NaN or infinities,
        when there are none, or when all of a state is zero in ref and not in cand.

    Source:
        The state of a kernel-4 convolution is its last three inputs; shifted by one they read as
        the wrong taps.
    """
    return measure_across(
        pair, "conv", metric="state.conv_rel_l2", n_of="taps over prompts, layers and ways"
    )
