"""Which operations of cand err on their own inputs: by pass, layer, module, head and position."""

import math
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from validate.metrics._own_steps import MODULES, own_steps
from validate.metrics._structure import WRONG, ErrorMap, add_rows, find_structure, new_map
from validate.metrics._tensors import BUCKETS, noise_start
from validate.metrics._words import ratio
from validate.run.measure import Progress
from validate.schema.explained import FoundPlace
from validate.schema.model_config import ModelConfig
from validate.schema.pair import Side

__all__ = ["Key", "Tally", "find_places", "groups", "inside_prompts", "tally"]

Array = NDArray[np.float64]
_RANK = {"prefill": 0, "oneshot": 1, "chunked": 2, "decode": 3}
_MODULES = tuple(MODULES)
_STATE = "state."
OTHER_PASS = 2.0
"""How much more than rounding is expected of states of a pass whose inputs were not captured: its
rounding in all layers before."""
PIECES = "inside.prefill.chunked"
"""Branch of a capture whose inside is of a prefill in pieces: its whole prefill is another pass."""


class Key(NamedTuple):
    """One captured tensor of a layer."""

    mode: str
    layer: int
    module: str
    tensor: str

    def order(self) -> tuple[int, int, int]:
        """Its place in a forward pass; states stand behind the pass that leaves them."""
        rank = _RANK[self.mode] + (self.tensor.startswith(_STATE) and self.mode == "decode")
        return rank, self.layer, _MODULES.index(self.module)


@dataclass(slots=True, kw_only=True)
class Tally:
    """Introduced errors of one tensor over all prompts, and its worst row."""

    errors: ErrorMap
    row: float = 0.0
    """Largest relative error of one row of one head."""
    at: tuple[str, int] | None = None
    """Prompt and position of that row."""
    row_heads: tuple[float, ...] = ()
    """Relative error of that row by head."""

    @property
    def heads(self) -> Array:
        """Relative error by head; a head that is NaN is infinitely wrong."""
        made = ratio(self.errors.err2, self.errors.ref2)
        return np.where(np.isnan(made), np.inf, made)


def inside_prompts(side: Side, prompts: Sequence[str]) -> tuple[str, ...]:
    """The prompts of which inputs of layers were captured."""
    return tuple(p for p in prompts if any(n.endswith(".attn.0.in") for n in side.names(p)))


def tally(
    side: Side,
    prompts: Sequence[str],
    *,
    weights: Mapping[str, NDArray[Any]],
    config: ModelConfig,
    progress: Progress,
) -> dict[Key, Tally]:
    """Errors that each operation of one side introduced, by captured tensor.

    Args:
        side: Ref or cand.
        prompts: Those of ``inside_prompts``.
        weights: Float64 weights by name.
        config: The architecture.
        progress: Told which prompt is at work.

    Raises:
        InputError: Weights do not fit.
    """
    made: dict[Key, Tally] = {}
    longest = max((len(side.prompts[p].token_ids) for p in prompts), default=1)
    grid = min(longest, BUCKETS), -(-longest // BUCKETS)
    for prompt in prompts:
        progress(f"explain: {side.label} on its own inputs, prompt {prompt}")

        def tensor(name: str, prompt: str = prompt) -> NDArray[Any]:
            return side.tensor(prompt, name)

        tokens = side.prompts[prompt].token_ids
        for step in own_steps(tensor, side.names(prompt), tokens, weights, config):
            key = Key(step.mode, step.layer, step.module, step.name)
            heads = step.truth.shape[1]
            if key not in made:
                made[key] = Tally(errors=new_map(heads, buckets=grid[0], width=grid[1]))
            with np.errstate(over="ignore", invalid="ignore"):
                err2, true2 = add_rows(
                    made[key].errors,
                    step.truth,
                    step.got,
                    batch_row=side.manifest.batch_rows.get(prompt, 0),
                    positions=step.positions,
                )
            _worst(made[key], err2, true2, prompt=prompt, positions=step.positions)
    return made


def _worst(
    held: Tally, err2: Array, true2: Array, *, prompt: str, positions: NDArray[np.int64]
) -> None:
    """Keep the row whose error over the larger of its own and its head's mean truth is largest."""
    if err2.size == 0:
        return
    errors = ratio(err2, np.maximum(true2, true2.mean(axis=0, keepdims=True)))
    errors = np.where(np.isnan(errors), np.inf, errors)
    row, _ = np.unravel_index(int(np.argmax(errors)), errors.shape)
    top = float(errors[row].max())
    if held.at is None or top > held.row:
        held.row, held.at = top, (prompt, int(positions[row]))
        held.row_heads = tuple(errors[row].tolist())


def find_places(
    ref: Mapping[Key, Tally], cand: Mapping[Key, Tally], *, sides: tuple[Side, Side]
) -> tuple[FoundPlace, ...]:
    """Where cand's own operations err beyond what rounding and ref's own explain.

    A head is wrong where its error exceeds ``WRONG`` times the larger of ref's error of that
    head and twice the unit roundoff; so is one whose worst row does by ref's worst row.

    Args:
        ref: Tallies of ref; empty where it has none to show, then rounding alone is expected.
        cand: Tallies of cand.
        sides: Ref and cand.

    Returns:
        In the order of a forward pass.
    """
    noise = noise_start(*sides)
    chunk = sides[1].manifest.options.get("chunk", "")
    size = int(chunk) if chunk.isdecimal() and int(chunk) else None
    pieces = sides[1].manifest.path_proof.branches.get(PIECES, 0) > 0
    apart = ("chunked", "oneshot") if pieces else ("chunked",)
    found = []
    for key, held in sorted(cand.items(), key=lambda item: item[0].order()):
        usual = noise * (OTHER_PASS if key.mode in apart else 1.0)
        place = _place(key, ref.get(key), held, noise=usual, chunk=size)
        found += [] if place is None else [place]
    return tuple(_comparable(found, apart))


def _comparable(found: Sequence[FoundPlace], apart: Collection[str]) -> Iterable[FoundPlace]:
    """Without states whose layer had other inputs than the captured prefill's.

    They had where they were made by another pass and an earlier layer errs in one of the two.

    Args:
        found: In the order of a forward pass.
        apart: Ways of making a state that are a pass of their own.
    """
    modes = {"prefill", *apart}
    layers = [place.layer for place in found if place.mode in modes and place.layer is not None]
    first = min(layers, default=0)
    return (place for place in found if place.mode not in apart or place.layer == first)


def _place(
    key: Key, ref: Tally | None, cand: Tally, *, noise: float, chunk: int | None
) -> FoundPlace | None:
    mine = cand.heads
    theirs = np.zeros_like(mine) if ref is None or ref.heads.shape != mine.shape else ref.heads
    expected = np.fmax(theirs, noise)
    wrong = ~(mine <= WRONG * expected)
    row_expected = max(noise, 0.0 if ref is None else ref.row, float(expected.max()))
    if not wrong.any():
        if cand.row <= WRONG * row_expected:
            return None
        wrong = ~(np.asarray(cand.row_heads) <= WRONG * row_expected)
        worst, usual, own = cand.row, row_expected, None if ref is None else ref.row
    else:
        at = int(np.argmax(np.where(wrong, mine / expected, -1.0)))
        worst, usual = float(mine[at]), float(expected[at])
        own = None if ref is None else float(theirs[at])
    sound = bool(np.isfinite(cand.errors.cross).all())
    pattern = (
        find_structure(cand.errors, noise=float(expected.max()), chunk=chunk) if sound else None
    )
    prompt, position = cand.at or (None, None)
    many = len(mine) > 1
    return FoundPlace(
        mode=key.mode,
        layer=None if key.module == "head" else key.layer,
        module=key.module,
        tensor=key.tensor,
        heads=tuple(int(h) for h in np.flatnonzero(wrong)) if many else (),
        heads_of=len(mine) if many else 0,
        prompt=prompt,
        position=position,
        ref=_finite(own),
        cand=_finite(worst),
        expected=usual,
        pattern=_words(pattern, many=many),
    )


def _words(pattern: str | None, *, many: bool) -> str | None:
    """A pattern against the exact operation; of a tensor without heads nothing is said of them."""
    told = (pattern or "").replace("ref head", "exact head")
    return (told if many else told.removeprefix("all heads").removeprefix(", ")) or None


def _finite(value: float | None) -> float | None:
    return value if value is not None and math.isfinite(value) else None


def groups(places: Sequence[FoundPlace]) -> Iterator[tuple[FoundPlace, ...]]:
    """Places of one pass and module together, in order of their first.

    States made in pieces come last: the inputs of that pass are not captured, so they are held
    against those of the whole prefill.
    """
    held: dict[tuple[str, str, bool], list[FoundPlace]] = {}
    for place in places:
        state = place.tensor.startswith(_STATE)
        held.setdefault((place.mode, place.module, state), []).append(place)
    yield from (tuple(held[key]) for key in sorted(held, key=lambda key: key[0] == "chunked"))
