"""``speculative.logprob``: are the returned log-probabilities those of an independent pass?"""

import json

import numpy as np

from validate.metrics._reason import Reason, without_value
from validate.metrics._spec_inside import verify_rows
from validate.metrics._spec_streams import Column, Drawn, Tokens
from validate.metrics._spec_tests import judged_side
from validate.schema import Levels, Measurement, Pair, Worst

__all__ = ["speculative_logprob"]

NAME = "speculative.logprob"
MIN_ROWS = 20
UNFILTERED = json.dumps({"temperature": 1.0})


def speculative_logprob(pair: Pair, levels: Levels) -> Measurement:
    """Largest |returned log-probability - independent one| of an emitted token, in nats.

    Independent is the teacher-forced pass over the same tokens (speculation off), for the tokens
    whose rows were captured; for streams at T = 1 without a filter also log p of the row itself, with
    speculation on and off. A returned value that never varies is named.

    Args:
        pair: The candidate's drawn streams.
        levels: Not used: a maximum is deterministic.

    Returns:
        Nats; ``n`` = tokens compared. The breakdown holds both parts. Undefined where nothing can be
        compared.
    """
    del levels
    side = judged_side(pair)
    if isinstance(side, Reason):
        return without_value(NAME, side, unit="nats", n_of="tokens")
    shown: dict[str, float] = {}
    n = 0
    found: list[Worst] = []
    rows = verify_rows(pair)
    if isinstance(rows, Reason):
        if rows.kind == "unlike":
            return without_value(NAME, rows, unit="nats", n_of="tokens")
    else:
        at = _largest(rows.returned)
        shown["against_forced"] = float(rows.returned[at])
        n += len(rows.returned)
        place = f"row {int(rows.window[at])} of the verify window"
        found.append(_place(rows.prompt[at], int(rows.position[at]), place, rows.returned[at]))
    for drawn in side.kinds.values():
        own = _own(drawn)
        if own is None:
            continue
        tokens, apart = own
        at = _largest(apart)
        shown[f"{drawn.kind}.against_own_row"] = float(apart[at])
        n += len(apart)
        prompt = side.prompts[int(tokens.prompt[at])]
        found.append(_place(prompt, int(tokens.position[at]), f"{drawn.kind}, own row", apart[at]))
    if not found:
        reason = Reason("no forced rows, and no stream at T = 1 without a filter, to compare with")
        return without_value(NAME, reason, unit="nats", n_of="tokens")
    worst = max(found, key=lambda one: (np.isnan(one.value or 0.0), one.value or 0.0))
    return Measurement(
        metric=NAME,
        value=worst.value,
        unit="nats",
        n=n,
        n_of="tokens",
        worst=worst,
        pattern=_constant(list(side.kinds.values())),
        breakdown=shown,
    )


def _largest(values: Column) -> int:
    """First NaN, else the maximum."""
    return int(np.argmax(np.where(np.isnan(values), np.inf, values)))


def _place(prompt: str, position: int, place: str, value: float) -> Worst:
    return Worst(prompt=prompt, position=position, place=place, value=float(value))


def _own(drawn: Drawn) -> tuple[Tokens, Column] | None:
    """Tokens whose law is the plain softmax of their row, and how far their value is from its log."""
    plain = [at for at, words in enumerate(drawn.groups) if words == UNFILTERED]
    held = np.isin(drawn.tokens.group, plain) & (drawn.tokens.p > 0)
    tokens = drawn.tokens.where(held)
    return (tokens, np.abs(tokens.logprob - np.log(tokens.p))) if len(tokens) else None


def _constant(kinds: list[Drawn]) -> str | None:
    """Kinds whose every returned value is the same."""
    flat = [
        f"{drawn.kind}: every returned log-probability is {float(drawn.tokens.logprob[0]):.4g}"
        for drawn in kinds
        if len(drawn.tokens) >= MIN_ROWS and np.ptp(drawn.tokens.logprob) == 0.0
    ]
    return "; ".join(flat) or None
