"""The rows that gates point at, with the text before them and both sides' first choices."""

import math
import re
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from validate.capture.digest import json_sha256
from validate.metrics._logit_records import STREAM
from validate.metrics._topk_rows import holds_topk
from validate.numerics import log_softmax, to_float64
from validate.schema.measurement import Measurement, Worst
from validate.schema.pair import Pair, Side
from validate.schema.series import TokenChoice, WorstCase

__all__ = ["worst_cases"]

MOST_CASES = 6
MOST_TOKENS = 200
"""Tokens shown before a row."""
FIRST = 5
"""First choices of a side."""
BYTES = json_sha256({"kind": "bytes", "bos": 256, "eos": 257, "pad": 258})
"""Digest of the tokenizer whose ids 0 to 255 are bytes."""

_ROW = re.compile(r"^(logits|decode\.logits|stream\.logits) row (\d+)$")
_STEP = re.compile(r"^stream step (\d+)$")


class _Place(NamedTuple):
    """One row."""

    prompt: str
    section: str
    row: int
    position: int


def worst_cases(pair: Pair, measured: Mapping[str, Measurement]) -> tuple[WorstCase, ...]:
    """The rows that are some gate's worst place, in the order of gates, each once.

    Args:
        pair: Ref and cand.
        measured: Measurements by gate.

    Returns:
        At most ``MOST_CASES``; rows that either side stores as top-k have no probabilities.
    """
    places: dict[_Place, list[str]] = {}
    for gate, found in measured.items():
        place = _place(found.worst)
        if place is not None and place.prompt in pair.prompts:
            places.setdefault(place, []).append(gate)
    return tuple(_case(pair, place, gates) for place, gates in list(places.items())[:MOST_CASES])


def _place(worst: Worst | None) -> _Place | None:
    if worst is None or worst.prompt is None or worst.position is None:
        return None
    step = _STEP.match(worst.place or "")
    if step is not None:  # the row that a token was taken from stands one position before it
        return _Place(worst.prompt, STREAM, int(step.group(1)), worst.position - 1)
    found = _ROW.match(worst.place or "")
    if found is None:
        return None
    return _Place(worst.prompt, found.group(1), int(found.group(2)), worst.position)


def _case(pair: Pair, place: _Place, gates: Sequence[str]) -> WorstCase:
    tokens = _tokens(pair, place)
    bytewise = pair.ref.manifest.model.tokenizer_digest == BYTES
    before = tokens[: place.position + 1]
    shown = before[-MOST_TOKENS:]
    target = tokens[place.position + 1] if place.position + 1 < len(tokens) else None
    rows = [_row(side, place) for side in (pair.ref, pair.cand)]
    choices = [_choices(rows, of, bytewise=bytewise) for of in (0, 1)]
    return WorstCase(
        gates=tuple(gates),
        prompt=place.prompt,
        position=place.position,
        section=place.section,
        before=_decoded(shown, bytewise=bytewise),
        cut=len(before) - len(shown),
        target=target,
        target_text=_text(target, bytewise=bytewise),
        ref=choices[0],
        cand=choices[1],
    )


def _tokens(pair: Pair, place: _Place) -> tuple[int, ...]:
    """The sequence that a row stands in: ref's, for both sides share what lies before the row."""
    prompt = pair.ref.prompts[place.prompt]
    if place.section != STREAM:
        return prompt.token_ids
    stream = pair.ref.streams[place.prompt].token_ids
    return (*prompt.token_ids[: prompt.prompt_length], *stream)


def _row(side: Side, place: _Place) -> NDArray[np.float64] | None:
    """Probabilities of one row; None where it is not stored in full."""
    if holds_topk(side, place.prompt, place.section):
        return None
    if place.section not in side.names(place.prompt):
        return None
    logits = side.tensor(place.prompt, place.section)[place.row]
    probabilities: NDArray[np.float64] = np.exp(log_softmax(to_float64(logits)[None, :])[0])
    return probabilities


def _choices(
    rows: Sequence[NDArray[np.float64] | None], of: int, *, bytewise: bool
) -> tuple[TokenChoice, ...]:
    row = rows[of]
    if row is None:
        return ()
    first = np.argsort(-row, kind="stable")[:FIRST].tolist()
    return tuple(
        TokenChoice(
            id=token,
            text=_text(token, bytewise=bytewise),
            ref=_at(rows[0], token),
            cand=_at(rows[1], token),
        )
        for token in first
    )


def _at(row: NDArray[np.float64] | None, token: int) -> float | None:
    if row is None or token >= row.size:
        return None
    value = float(row[token])
    return value if math.isfinite(value) else None


def _text(token: int | None, *, bytewise: bool) -> str | None:
    if token is None or not bytewise:
        return None
    return _decoded((token,), bytewise=True)


def _decoded(tokens: Sequence[int], *, bytewise: bool) -> str:
    r"""Bytes as text, with what is no UTF-8 as ``\xNN``; ids in angle brackets beyond bytes.

    Example:
        >>> _decoded((256, 104, 105, 255), bytewise=True)
        '⟨256⟩hi\\xff'
    """
    if not bytewise:
        return " ".join(f"{token}" for token in tokens)
    parts: list[str] = []
    held = bytearray()
    for token in tokens:
        if 0 <= token < 256:  # noqa: PLR2004 - a byte
            held.append(token)
            continue
        parts += [held.decode("utf-8", errors="backslashreplace"), f"⟨{token}⟩"]
        held.clear()
    return "".join([*parts, held.decode("utf-8", errors="backslashreplace")])
