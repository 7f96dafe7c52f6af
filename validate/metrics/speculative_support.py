"""``speculative.support``: tokens that their law forbids."""

import numpy as np

from validate.metrics._reason import Reason, without_value
from validate.metrics._spec_streams import FALLING_P, OWN, Drawn, Tokens
from validate.metrics._spec_tests import judged_side
from validate.schema import Levels, Measurement, Pair, Worst

__all__ = ["speculative_support"]

NAME = "speculative.support"
NO_MASS = 1e-6
"""Mass under an outcome's law that float32 cannot tell from none."""


def speculative_support(pair: Pair, levels: Levels) -> Measurement:
    """Count of emitted tokens outside the support of their law, beyond the tie band.

    Outside is a token that the requested filters drop, by more nats below the last kept logit than
    the measured noise of logits allows (``near_tie``, over the temperature), and a token that its
    outcome cannot have given: with q known, a resampled token with p < q is impossible. Inside the
    band, ties among them, it is reported, not counted.

    Args:
        pair: The candidate's drawn streams, T = 0 among them; ``near_tie`` in nats.
        levels: Not used: a count is deterministic.

    Returns:
        Tokens; ``n`` = emitted tokens. Undefined without streams; unlike as ``speculative.uniform``.

    Source:
        ``oracle.edge_distance`` and ``oracle.outcome_law``.
    """
    del levels
    side = judged_side(pair)
    if isinstance(side, Reason):
        return without_value(NAME, side, unit="tokens", n_of="tokens")
    shown: dict[str, float] = {}
    worst: Worst | None = None
    total = n = 0
    for drawn in side.kinds.values():
        tokens = drawn.tokens
        outside, band = _outside(tokens, pair.near_tie)
        wrong = outside | _impossible(drawn)
        shown[f"{drawn.kind}.outside"] = float(np.count_nonzero(outside))
        shown[f"{drawn.kind}.against_outcome"] = float(np.count_nonzero(wrong & ~outside))
        shown[f"{drawn.kind}.inside_band"] = float(np.count_nonzero(band))
        total += int(np.count_nonzero(wrong))
        n += len(tokens)
        if wrong.any() and worst is None:
            worst = _worst(drawn, wrong, side.prompts)
    return Measurement(
        metric=NAME,
        value=float(total),
        unit="tokens",
        n=n,
        n_of="tokens",
        worst=worst,
        breakdown=shown,
    )


def _outside(tokens: Tokens, near_tie: float) -> tuple[np.ndarray, np.ndarray]:
    """Tokens beyond the band, and tokens outside the support but inside it."""
    scale = np.where(tokens.temperature > 0, tokens.temperature, 1.0)
    beyond = ~(tokens.edge <= near_tie / scale)
    return beyond, ~(tokens.p > 0) & ~beyond


def _impossible(drawn: Drawn) -> np.ndarray:
    """No mass under the law of their own outcome, although the requested law gives them some."""
    tokens = drawn.tokens
    mass = tokens.falls[:, OWN, FALLING_P, 1]
    unknown = np.isnan(mass) & np.isnan(tokens.q)
    return np.asarray((tokens.p > 0) & ~unknown & ~(mass > NO_MASS * tokens.p))


def _worst(drawn: Drawn, wrong: np.ndarray, prompts: tuple[str, ...]) -> Worst:
    tokens = drawn.tokens.where(wrong)
    at = int(np.argmax(tokens.edge))
    names = ("plain", "accepted", "resampled", "bonus")
    return Worst(
        prompt=prompts[int(tokens.prompt[at])],
        position=int(tokens.position[at]),
        place=f"{drawn.kind} token {int(tokens.token[at])}, {names[int(tokens.outcome[at])]}",
        value=float(tokens.edge[at]),
        detail=(
            f"{float(tokens.edge[at]):.4g} nats outside; p {float(tokens.p[at]):.4g}, "
            f"q {float(tokens.q[at]):.4g}; {drawn.groups[int(tokens.group[at])]}"
        ),
    )
