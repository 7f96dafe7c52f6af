"""``logits.flip_rate``: share of prompts with a changed first choice that is no near-tie."""

from validate.metrics._bounds import share_between
from validate.metrics._flips import KEEP_MORE, may_flip, widest_flip
from validate.metrics._logit_rows import logit_rows
from validate.metrics._reason import without_value
from validate.schema import Levels, Measurement, Pair

__all__ = ["flip_rate"]

NAME = "logits.flip_rate"


def flip_rate(pair: Pair, levels: Levels) -> Measurement:
    """Share of prompts with a position whose top-1 changed across more than the near-tie limit.

    Prompts are the independent units: a prompt on which the model is chaotic counts once, in
    however many rows and passes it shows. Looked at are the same rows as in ``logits.kl_max``.

    Args:
        pair: Both sides' logits, and the near-tie limit.
        levels: Levels of the two Clopper-Pearson limits.

    Returns:
        Measurement as a share, ``n`` = prompts; ``worst`` is the flip with the greatest gap (nats).
        Undefined as ``logits.top1_flips``.

    Source:
        ``validate.stats.proportion_limits``.
    """
    rows = logit_rows(pair)
    if rows.reason is not None:
        return without_value(NAME, rows.reason, unit="share", n_of="prompts")
    prompts = rows.by_prompt
    hit = [prompt for prompt, parts in prompts.items() if any(part.flips for part in parts)]
    maybe = [prompt for prompt, parts in prompts.items() if any(map(may_flip, parts))]
    worst = widest_flip(rows.sections)
    return Measurement(
        metric=NAME,
        value=len(hit) / len(prompts),
        unit="share",
        n=len(prompts),
        n_of="prompts",
        interval=share_between(len(hit), len(maybe), len(prompts), levels=levels),
        worst=worst,
        worst_value=0.0 if worst is None else worst.value,
        upper=None if rows.exact else len(maybe) / len(prompts),
        why_open=KEEP_MORE if len(maybe) > len(hit) else None,
        breakdown={
            "prompts": float(len(hit)),
            "flips": float(sum(part.flips for part in rows.sections)),
            "near_tie_limit": pair.near_tie,
        },
    )
