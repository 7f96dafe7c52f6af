"""Which prompts count, by id and by length in tokens, and how many sampled tokens."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from validate.errors import InputError
from validate.schema import Prompt

__all__ = ["Lengths", "choose_prompts", "parse_lengths"]

_FORM = re.compile(r"(?P<most>\d+)|(?P<low>\d+)-(?P<high>\d+)?")


@dataclass(frozen=True, slots=True, kw_only=True)
class Lengths:
    """Lengths of prompts in tokens, both ends included."""

    low: int = 0
    high: int | None = None
    """None: no upper end."""
    drawn: int | None = None
    """Sampled tokens of each kind of drawn streams that are judged at most; None: all."""

    def __contains__(self, length: int) -> bool:
        """Whether a prompt of ``length`` tokens counts."""
        return self.low <= length and (self.high is None or length <= self.high)


def parse_lengths(text: str) -> Lengths:
    """Read ``N`` (at most N tokens), ``N-`` (at least N) or ``N-M``.

    ``N`` alone says at most N tokens of everything: prompts of at most N tokens, and of each kind
    of sampled streams N tokens in all. A range chooses prompts and leaves streams alone.

    Raises:
        InputError: It is none of these, or the range is empty.
    """
    found = _FORM.fullmatch(text)
    if found is None:
        msg = f"--tokens {text}: no length; write 64 (at most), 65- (at least) or 15-17"
        raise InputError(msg)
    if found["most"] is not None:
        most = int(found["most"])
        return Lengths(high=most, drawn=most or None)
    lengths = Lengths(low=int(found["low"]), high=int(found["high"]) if found["high"] else None)
    if lengths.high is not None and lengths.high < lengths.low:
        msg = f"--tokens {text}: the range is empty, {lengths.low} is above {lengths.high}"
        raise InputError(msg)
    return lengths


def choose_prompts(
    held: Mapping[str, Prompt], *, ids: Sequence[str], lengths: Lengths | None
) -> tuple[str, ...]:
    """Ids of the prompts that count; empty when neither ids nor lengths choose any.

    Args:
        held: Prompts of ref by id.
        ids: Prompts asked for; empty: all. Unknown ones are passed on, for
            ``run`` tells them with the nearest match.
        lengths: Lengths asked for; None: all.

    Raises:
        InputError: No prompt is left.
    """
    if lengths is None:
        return tuple(ids)
    wanted = ids or tuple(held)
    kept = tuple(
        name for name in wanted if name not in held or len(held[name].token_ids) in lengths
    )
    if not kept:
        all_lengths = sorted({len(held[name].token_ids) for name in wanted if name in held})
        msg = (
            f"--tokens: none of {len(wanted)} prompts has such a length\n"
            f"  lengths here: {', '.join(map(str, all_lengths))}"
        )
        raise InputError(msg)
    return kept
