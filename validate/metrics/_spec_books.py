"""Books of one drawn stream, held against each other: what is cut short, and what is told twice."""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from validate.schema import Side

__all__ = ["STEP_NAMES", "TOKEN_NAMES", "books_problem", "columns_problem"]

TOKEN_NAMES = (
    "outcome",
    "row",
    "step",
    "logprob",
    "p",
    "q",
    "falls",
    "entropy",
    "variance",
    "edge",
    "top",
)
STEP_NAMES = (
    "place",
    "drafts",
    "accepts",
    "limit",
    "count",
    "expected",
    "drafted_p",
    "drafted_q",
    "confidence",
)
BLOCK_NAMES = ("drafts", "accepts", "expected", "drafted_p", "drafted_q", "confidence")
"""Columns with an entry a step and draft."""
FALLS = (2, 2, 2)
"""Laws, orders and parts of ``falls``."""

Array = NDArray[Any]


class _Owner(NamedTuple):
    """Whose books."""

    side: Side
    kind: str
    prompt: str

    def __str__(self) -> str:
        """For messages."""
        return f"{self.side.label}: {self.prompt} {self.kind}"

    def name(self, column: str) -> str:
        """The tensor of a column."""
        return f"spec.{self.kind}.{column}"

    def holds(self, column: str) -> bool:
        """Whether there is such a column."""
        return self.name(column) in self.side.names(self.prompt)

    def column(self, column: str) -> Array:
        """A column as it is stored."""
        return self.side.tensor(self.prompt, self.name(column))

    def whole(self, column: str) -> Array:
        """A column of whole numbers."""
        return self.column(column).astype(np.int64)


def columns_problem(side: Side, kind: str, prompts: Sequence[str]) -> str | None:
    """The first column that is not there or was cut, in words: nothing can be read of such streams.

    Args:
        side: Whose streams.
        kind: Of streams.
        prompts: That hold them.
    """
    owners = [_Owner(side, kind, prompt) for prompt in prompts]
    drafts = [owner.column("drafts") for owner in owners if owner.holds("drafts")]
    block = drafts[0].shape[1:] if drafts else ()
    drafted = kind != "sampled" or any(o.holds(name) for o in owners for name in STEP_NAMES)
    for owner in owners:
        tokens = len(owner.column("tokens"))
        of_tokens: dict[str, tuple[int, ...]] = dict.fromkeys(TOKEN_NAMES, (tokens,))
        why = _other_shape(owner, "tokens", of_tokens | {"falls": (tokens, *FALLS)})
        if drafted and why is None:
            if not any(owner.holds(name) for name in STEP_NAMES):
                return (
                    f"{owner}: {owner.name('count')} is not there: a drafted stream has its verify "
                    "steps; write them"
                )
            steps = len(owner.column("count")) if owner.holds("count") else 0
            of_steps: dict[str, tuple[int, ...]] = dict.fromkeys(STEP_NAMES, (steps,))
            of_drafts = dict.fromkeys(BLOCK_NAMES, (steps, *block))
            why = _other_shape(owner, "count", of_steps | of_drafts)
        if why is not None:
            return why
    return None


def _other_shape(owner: _Owner, first: str, wanted: Mapping[str, tuple[int, ...]]) -> str | None:
    for name, shape in wanted.items():
        held = owner.column(name).shape if owner.holds(name) else None
        if held != shape:
            said = "is not there" if held is None else f"is {list(held)}"
            return (
                f"{owner}: {owner.name(name)} {said}, and {owner.name(first)} asks for "
                f"{list(shape)}: a column was cut; write every column whole, from one run"
            )
    return None


def books_problem(side: Side, kind: str, prompt: str) -> str | None:
    """The first place where the books of a stream contradict each other, in words.

    Where there are verify steps, every token but the first comes from one. Every step emitted all
    its rows but the last, which a length may cut, and stands where its tokens do; a token that is
    its row's draft has the draft's own chances.

    Args:
        side: Whose stream.
        kind: Of streams.
        prompt: Of the stream.
    """
    owner = _Owner(side, kind, prompt)
    step, row = owner.whole("step"), owner.whole("row")
    if not owner.holds("count"):
        return None
    plain = np.flatnonzero(step[1:] < 0) + 1
    if plain.size:
        return (
            f"{owner}: token {plain[0]} comes from no verify step ({plain.size} of {len(step)} such "
            f"tokens; {len(owner.column('count'))} steps are there), and in a stream of drafts every "
            "token but the first does: write all steps, and the step and row of each token"
        )
    at = np.flatnonzero(step >= 0)
    if not at.size:
        return None
    return (
        _gap(owner, step[at], row[at])
        or _misplaced(owner, at, step[at], row[at])
        or _told_twice(owner, at, step[at], row[at])
    )


def _gap(owner: _Owner, step: Array, row: Array) -> str | None:
    """Every step must have emitted its rows in order, and steps follow each other."""
    same = step[1:] == step[:-1]
    follows = np.where(same, row[1:] == row[:-1] + 1, (step[1:] == step[:-1] + 1) & (row[1:] == 0))
    if row[0] == 0 and follows.all():
        return None
    at = 0 if row[0] != 0 else int(np.flatnonzero(~follows)[0]) + 1
    return (
        f"{owner}: step {step[at]} row {row[at]} does not follow what "
        "stands before it: a position was dropped because of what was emitted"
    )


def _misplaced(owner: _Owner, at: Array, step: Array, row: Array) -> str | None:
    """The token of row r stands r + 1 places behind the anchor of its step."""
    place = owner.whole("place")
    if step[0] != 0 or step[-1] >= len(place):
        return (
            f"{owner}: its tokens come from verify steps {step[0]} to {step[-1]}, and "
            f"{len(place)} steps are there, counted from 0: steps were cut; write all of them"
        )
    position = at + owner.side.prompts[owner.prompt].prompt_length
    wrong = np.flatnonzero(position != place[step] + 1 + row)
    if not wrong.size:
        return None
    first = int(wrong[0])
    return (
        f"{owner}: token {at[first]} is row {row[first]} of step {step[first]}, whose anchor is "
        f"position {place[step[first]]}, and stands at position {position[first]}: a token or a "
        "step was dropped; write all of them"
    )


def _told_twice(owner: _Owner, at: Array, step: Array, row: Array) -> str | None:
    """A token that is the draft of its row has the draft's own p and q, to the rounding of storage."""
    drafts = owner.whole("drafts")
    limit = owner.whole("limit")[step]
    own = np.flatnonzero(row < np.minimum(limit, drafts.shape[1]))
    own = own[owner.whole("tokens")[at[own]] == drafts[step[own], row[own]]]
    for name in ("q", "p"):
        token = owner.column(name)[at[own]]
        draft = owner.column(f"drafted_{name}")[step[own], row[own]]
        eps = max(float(np.finfo(x.dtype).eps) for x in (token, draft))
        a, b = token.astype(np.float64), draft.astype(np.float64)
        with np.errstate(invalid="ignore"):
            chances = (a >= 0) & (a <= 1) & (b >= 0) & (b <= 1)  # others are counted as damage
            unlike = np.flatnonzero(chances & ~(np.abs(a - b) <= eps * np.maximum(a, b)))
        if unlike.size:
            first = int(unlike[0])
            place = own[first]
            return (
                f"{owner}: token {at[place]} is the draft of step {step[place]} row {row[place]}, "
                f"and {owner.name(name)} gives it {a[first]:.9g}, "
                f"{owner.name(f'drafted_{name}')} {b[first]:.9g} ({unlike.size} of {len(own)} "
                "such tokens differ): write both from one array"
            )
    return None
