"""Drawn streams of one side as flat columns: one row a token, one row a verify step."""

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, fields
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from validate.numerics.keyed import keyed_uniform

__all__ = [
    "ACCEPTED",
    "BONUS",
    "FALLING_P",
    "FALLING_RATIO",
    "OWN",
    "PLAIN",
    "P_LAW",
    "RESAMPLED",
    "Drawn",
    "SpecSide",
    "Steps",
    "Tokens",
    "label_number",
    "missing_streams",
    "other_parameters",
]

PLAIN, ACCEPTED, RESAMPLED, BONUS = range(4)
GREEDY = "spec-greedy"
"""The kind that is drawn at T = 0: it has as many tokens on either side, or ends alike."""
P_LAW, OWN = 0, 1
"""Laws of ``falls``: the requested law, and the law of the token's own outcome."""
FALLING_P, FALLING_RATIO = 0, 1
"""Orders of ``falls``."""

Column = NDArray[Any]


def _run(ascending: Column, value: int) -> slice:
    """Where ``value`` stands in a column that never falls."""
    return slice(*(int(np.searchsorted(ascending, value, side)) for side in ("left", "right")))


def label_number(text: str) -> int:
    """62 bits of a name, to key random numbers with.

    Example:
        >>> label_number("a") == label_number("a"), label_number("a") == label_number("b")
        (True, False)
    """
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:8], "big") >> 2


@dataclass(frozen=True, kw_only=True)
class Tokens:
    """Emitted tokens of one kind; all columns have one entry a token."""

    prompt: Column
    """Place of the prompt in ``SpecSide.prompts``."""
    index: Column
    """Place in its stream, from 0."""
    position: Column
    """Place in the whole sequence: prompt tokens come before."""
    token: Column
    outcome: Column
    row: Column
    """Row of the verify window; 0 for plain tokens."""
    step: Column
    """Verify step of its stream; -1 for plain tokens."""
    logprob: Column
    p: Column
    q: Column
    falls: Column
    """[tokens, 2 laws, 2 orders, (below, mass)]."""
    entropy: Column
    variance: Column
    edge: Column
    top: Column
    """Largest probability of its row under p."""
    temperature: Column
    group: Column
    """Place of its parameters in ``Drawn.groups``."""
    label: Column
    """A number that stands for prompt and kind, whatever else is compared."""

    def __len__(self) -> int:
        """Tokens."""
        return len(self.token)

    def where(self, held: Column | slice) -> "Tokens":
        """The tokens that a mask, a slice or a list of places picks."""
        return Tokens(**{field.name: getattr(self, field.name)[held] for field in fields(self)})

    def uniforms(self, key: int, *, law: int, order: int) -> Column:
        """U = below + V mass, with V from the key, the prompt and the place; NaN where undefined."""
        below, mass = self.falls[:, law, order, 0], self.falls[:, law, order, 1]
        v = keyed_uniform(key, self.label, self.index)
        return np.asarray(np.clip(below + v * mass, 0.0, 1.0))


def other_parameters(ref: "SpecSide", cand: "SpecSide") -> str | None:
    """The first prompt that both sides drew under other parameters, in words; seeds may differ."""
    for kind in sorted(set(ref.kinds) & set(cand.kinds)):
        asked = []
        for drawn in (ref.kinds[kind], cand.kinds[kind]):
            places, first = np.unique(drawn.tokens.prompt, return_index=True)
            groups = drawn.tokens.group[first]
            asked.append(
                {int(p): drawn.groups[int(g)] for p, g in zip(places, groups, strict=True)}
            )
        for place in sorted(set(asked[0]) & set(asked[1])):
            if asked[0][place] != asked[1][place]:
                return (
                    f"{ref.prompts[place]} {kind}: ref asked for {asked[0][place]}, cand for "
                    f"{asked[1][place]}: samples of two laws; capture both with the same parameters"
                )
    return None


def missing_streams(ref: "SpecSide", cand: "SpecSide") -> str | None:
    """What ref drew and cand did not, in words; kinds with drafts may be left out as a whole."""
    for kind in sorted(ref.kinds):
        wanted, held = ref.kinds[kind], cand.kinds.get(kind)
        if held is None:
            if wanted.steps is not None:
                continue
            n = len(np.unique(wanted.tokens.prompt))
            return f"{cand.label} holds no {kind} streams, {ref.label} {n}; capture them too"
        lengths = _lengths(held)
        for place, long in _lengths(wanted).items():
            short, end = lengths.get(place, (0, None))
            if not short:
                return (
                    f"{cand.label} holds {len(lengths)} {kind} streams, none of "
                    f"{cand.prompts[place]}, which {ref.label} holds; capture the same prompts"
                )
            if kind == GREEDY and short < long[0] and end != long[1]:
                return (
                    f"{cand.prompts[place]} {kind}: cand holds {short} tokens, ref {long[0]}; "
                    "capture as many"
                )
    return None


def _lengths(drawn: "Drawn") -> dict[int, tuple[int, int]]:
    """Tokens and last token of each stream, by the prompt's place."""
    places, count = np.unique(drawn.tokens.prompt, return_counts=True)
    return {
        int(place): (int(n), int(drawn.tokens.token[drawn.tokens.prompt == place][-1]))
        for place, n in zip(places, count, strict=True)
    }


@dataclass(frozen=True, kw_only=True)
class Steps:
    """Verify steps of one kind; all columns have one entry a step."""

    prompt: Column
    step: Column
    place: Column
    """Position of the anchor, the last committed token before the step."""
    drafts: Column
    accepts: Column
    """[steps, block] each draft's own decision, before truncation."""
    limit: Column
    count: Column
    expected: Column
    """[steps, block] chance that a draft of this row is accepted, given the drafts before it."""
    drafted_p: Column
    drafted_q: Column
    confidence: Column
    temperature: Column
    group: Column
    label: Column
    batch_row: Column
    """Row of the stream in the batch it ran in."""

    def __len__(self) -> int:
        """Steps."""
        return len(self.count)

    def where(self, held: Column | slice) -> "Steps":
        """The steps that a mask or a slice picks."""
        return Steps(**{field.name: getattr(self, field.name)[held] for field in fields(self)})

    @cached_property
    def judged(self) -> Column:
        """[steps, block] rows whose draft was reached and verified."""
        rows = np.arange(self.accepts.shape[1])
        last = np.minimum(self.count + 1, self.limit)
        return np.asarray(rows < last[:, None])

    def chances(self, rule: str) -> Column:
        """[steps, block] chance that this very draft is accepted."""
        if rule != "chain":
            return np.clip(self.drafted_p, 0.0, 1.0)
        with np.errstate(divide="ignore", invalid="ignore"):
            return np.clip(self.drafted_p / self.drafted_q, 0.0, 1.0)

    def coins(self, key: int, rule: str) -> Column:
        """[steps, block] where the coin that judged each draft lay, spread evenly over what is known.

        An accepted draft's coin is below its chance, a rejected one's above: W is uniform and
        independent where coins are.
        """
        chance = self.chances(rule)
        v = keyed_uniform(
            key + 1, self.label[:, None], self.step[:, None], np.arange(chance.shape[1])
        )
        return np.where(self.accepts > 0, v * chance, chance + v * (1.0 - chance))


@dataclass(frozen=True, kw_only=True)
class Drawn:
    """One kind of streams."""

    kind: str
    tokens: Tokens
    steps: Steps | None
    """None for streams without drafts."""
    groups: tuple[str, ...]
    """Parameters in words."""

    def tokens_of(self, prompt: int) -> Tokens:
        """Tokens of one prompt; columns are in the order of prompts."""
        return self.tokens.where(_run(self.tokens.prompt, prompt))

    def steps_of(self, prompt: int) -> Steps | None:
        """Verify steps of one prompt; None for streams without drafts."""
        if self.steps is None:
            return None
        return self.steps.where(_run(self.steps.prompt, prompt))


@dataclass(frozen=True, kw_only=True)
class SpecSide:
    """All drawn streams of a side."""

    label: str
    key: int
    """Of the random numbers V; from the capture's digest."""
    prompts: tuple[str, ...]
    kinds: Mapping[str, Drawn]
    """Empty also where a column was cut, which ``refusal`` then tells."""
    rule: str
    """The verifier: ``chain``, ``target_only`` or ``exact_match``."""
    refusal: str | None = None
    """Why these streams may not be judged as samples of a law."""
    vocab: int

    def sampled(self) -> list[Drawn]:
        """Kinds with their T > 0 tokens alone; kinds without any are left out."""
        made = []
        for drawn in self.kinds.values():
            tokens = drawn.tokens.where(drawn.tokens.temperature > 0)
            steps = drawn.steps
            if steps is not None:
                steps = steps.where(steps.temperature > 0)
            if len(tokens):
                made.append(Drawn(kind=drawn.kind, tokens=tokens, steps=steps, groups=drawn.groups))
        return made
