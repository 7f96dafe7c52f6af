"""Expert sets of two sides by the gap rule, and the tokens whose sets differ by a tie.

A tie at layer L moves its token by a whole expert from there on, with no kernel at fault.
Such a token's rows are *set apart* from later tensors (its hidden state from layer L on,
everything else from layer L + 1 on) and are counted; the rows of later tokens stay. Sets
that differ by more than the gap are faults and set nothing apart, so that what follows from
them is still measured.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from jaxtyping import Float, Integer
from numpy.typing import NDArray

from validate.metrics._finite import Findings, look
from validate.metrics._places import Place, routers
from validate.schema import Pair, Side, Worst

__all__ = [
    "NEVER",
    "Choice",
    "Flips",
    "Routing",
    "apart",
    "gaps",
    "near_ties",
    "routing",
    "selection_gap",
]

NEVER = np.iinfo(np.int32).max
"""Layer of the first tie of a token without any."""

Ties = NDArray[np.int32]
"""By row: layer of the token's first tie."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Choice:
    """What one router did, on one side, for one prompt."""

    scores: Float[NDArray[Any], "rows experts"]
    ids: Integer[NDArray[Any], "rows choice"]
    weights: Float[NDArray[Any], "rows choice"]


@dataclass(slots=True, kw_only=True)
class Flips:
    """Counts over all prompts and layers, rows being (token, layer)."""

    rows: int = 0
    faults: int = 0
    """Sets that differ by more than the gap, at tokens that no tie had set apart."""
    ties: int = 0
    """Sets that differ within the gap, at tokens that no tie had set apart."""
    downstream: int = 0
    """Sets that differ at tokens that a tie had already set apart."""
    own: dict[str, int] = field(default_factory=lambda: {"ref": 0, "cand": 0})
    """By side: experts chosen against the side's own scores by more than the gap."""
    worst_gap: float = 0.0
    """Largest gap of a differing set, at tokens that no tie had set apart."""
    worst: Worst | None = None
    weight_rows: int = 0
    """Rows with the same set on both sides, at tokens that no tie had set apart."""
    weight_err: float = 0.0
    """Largest |difference of a routing weight| over those rows."""
    weight_worst: Worst | None = None
    weight_apart: float = 0.0
    """The same over rows with the same set at tokens that were set apart."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Routing:
    """All that the routers of a pair say."""

    flips: Flips
    ties: Mapping[tuple[str, str], Ties]
    """By (prompt, mode): first tie between ref and cand."""
    oracle_ties: Mapping[tuple[str, str], Ties]
    """By (prompt, mode): first tie between any two of ref, cand and oracle."""
    bad: Findings
    tensors: int
    """Router tensors that were looked at, a side."""


def routing(pair: Pair) -> Routing:
    """Compare every router of a pair once; the result stays with the pair."""
    return pair.once("attention.routing", lambda: _compare(pair))


def apart(
    found: Routing,
    prompt: str,
    place: Place,
    positions: Integer[NDArray[Any], " rows"],
    *,
    oracle: bool = False,
) -> NDArray[np.bool_]:
    """Rows of a tensor that a tie has set apart.

    Args:
        found: The routers of the pair.
        prompt: Prompt id.
        place: The tensor.
        positions: Position of each of its rows.
        oracle: Count ties against the oracle's sets too.

    Returns:
        (rows,) mask. A decode tensor follows the decode routers where they were captured,
        else the prefill routers at the same positions.
    """
    ties = found.oracle_ties if oracle else found.ties
    first = ties.get((prompt, place.mode))
    if first is None:
        prefill = ties.get((prompt, "prefill"))
        if prefill is None:
            return np.zeros(positions.size, dtype=np.bool_)
        first = prefill[positions]
    mask: NDArray[np.bool_] = (
        first <= place.layer if place.kind == "hidden" else first < place.layer
    )
    return mask


def near_ties(pair: Pair, prompt: str) -> Ties | None:
    """Layer of each token's first near tie by ref's own scores; kept with the pair.

    At a near tie the last expert taken leads the first left out by ``pair.route_gap`` at
    most: a pass whose routers nobody captured may have taken either. Ref alone decides, so
    that no fault of cand sets its own rows apart.

    Returns:
        By position of the prompt; None without prefill routers.
    """
    return pair.once(f"attention.near_ties.{prompt}", lambda: _near_ties(pair, prompt))


def _near_ties(pair: Pair, prompt: str) -> Ties | None:
    places = [place for place in routers(pair.ref.names(prompt)) if place.mode == "prefill"]
    if not places:
        return None
    first = np.full(len(pair.ref.prompts[prompt].token_ids), NEVER, dtype=np.int32)
    positions = pair.ref.tensor(prompt, "prefill.positions")
    for place in places:
        ids = pair.ref.tensor(prompt, f"{place.name}.ids")
        lead = -selection_gap(pair.ref.tensor(prompt, f"{place.name}.scores"), ids)
        close = positions[lead <= pair.route_gap]
        first[close] = np.minimum(first[close], place.layer)
    return first


def gaps(
    scores: Float[NDArray[Any], "rows experts"],
    ref: Integer[NDArray[Any], "rows choice"],
    cand: Integer[NDArray[Any], "rows choice"],
) -> NDArray[np.float64]:
    """Score gap by which two expert sets differ, by row.

    The gap is the largest ``|score(a) - score(b)|`` over experts a that only ref took
    and b that only cand took, by ref's scores: what noise must bridge to swap them.

    Returns:
        (rows,) float64: NaN where the sets are equal; ``inf`` where a set names an expert
        twice or one that does not exist, or where a score is NaN.
    """
    experts = scores.shape[1]
    wide = scores.astype(np.float64)
    taken = [_members(ids, experts) for ids in (ref, cand)]
    only_ref, only_cand = taken[0] & ~taken[1], taken[1] & ~taken[0]
    lost, gained = _extremes(wide, only_ref), _extremes(wide, only_cand)
    with np.errstate(invalid="ignore"):
        made = np.maximum(lost[1] - gained[0], gained[1] - lost[0])
    made[np.isnan(made)] = np.inf
    made[~(only_ref | only_cand).any(axis=1)] = np.nan
    for ids, members in zip((ref, cand), taken, strict=True):
        made[members.sum(axis=1) != ids.shape[1]] = np.inf
    return made


def selection_gap(
    scores: Float[NDArray[Any], "rows experts"], ids: Integer[NDArray[Any], "rows choice"]
) -> NDArray[np.float64]:
    """How far a set is from the top scores of its own side, by row; at most 0 when it is them."""
    taken = _members(ids, scores.shape[1])
    wide = scores.astype(np.float64)
    lowest = np.where(taken, wide, np.inf).min(axis=1)
    highest = np.where(taken, -np.inf, wide).max(axis=1)
    made: NDArray[np.float64] = highest - lowest
    made[taken.sum(axis=1) != ids.shape[1]] = np.inf
    return made


def _members(ids: NDArray[Any], experts: int) -> NDArray[np.bool_]:
    """Set membership (rows, experts); ids outside the experts are dropped, which shows in the sum."""
    members = np.zeros((len(ids), experts), dtype=np.bool_)
    row, choice = np.nonzero((ids >= 0) & (ids < experts))
    members[row, ids[row, choice]] = True
    return members


def _extremes(
    scores: NDArray[np.float64], chosen: NDArray[np.bool_]
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Lowest and highest score of the chosen experts, by row; +inf and -inf without any."""
    low = np.where(chosen, scores, np.inf).min(axis=1)
    high = np.where(chosen, scores, -np.inf).max(axis=1)
    return low, high


def _compare(pair: Pair) -> Routing:
    flips, bad = Flips(), Findings()
    ties: dict[tuple[str, str], Ties] = {}
    oracle_ties: dict[tuple[str, str], Ties] = {}
    tensors = 0
    sides = {"ref": pair.ref, "cand": pair.cand}
    if pair.oracle is not None:
        sides["oracle"] = pair.oracle
    for prompt in pair.prompts:
        for place in routers(pair.ref.names(prompt)):
            read = {label: _read(side, prompt, place) for label, side in sides.items()}
            tensors += 2
            found = _bad(prompt, place, read)
            if found:
                bad += found
                continue
            key = prompt, place.mode
            rows = len(read["ref"].ids)
            first = ties.setdefault(key, np.full(rows, NEVER, dtype=np.int32))
            positions = pair.ref.tensor(prompt, f"{place.mode}.positions")
            _weights(flips, read, first, prompt, place, positions)
            _ref_cand(flips, read, first, pair.route_gap, prompt, place, positions)
            if "oracle" in read:
                both = oracle_ties.setdefault(key, np.full(rows, NEVER, dtype=np.int32))
                _oracle(read, both, pair.route_gap, place.layer)
    for key, both in oracle_ties.items():
        np.minimum(both, ties[key], out=both)
    return Routing(flips=flips, ties=ties, oracle_ties=oracle_ties, bad=bad, tensors=tensors)


def _read(side: Side, prompt: str, place: Place) -> Choice:
    return Choice(
        scores=side.tensor(prompt, f"{place.name}.scores"),
        ids=side.tensor(prompt, f"{place.name}.ids"),
        weights=side.tensor(prompt, f"{place.name}.weights"),
    )


def _bad(prompt: str, place: Place, read: Mapping[str, Choice]) -> Findings:
    """Non-finite scores and weights of any side."""
    named = {
        "scores": {label: choice.scores for label, choice in read.items()},
        "weights": {label: choice.weights for label, choice in read.items()},
    }
    looks = (look(prompt, f"{place.name}.{part}", sides) for part, sides in named.items())
    return [finding for finding in looks if finding is not None]


def _ref_cand(
    flips: Flips,
    read: Mapping[str, Choice],
    first: Ties,
    route_gap: float,
    prompt: str,
    place: Place,
    positions: NDArray[Any],
) -> None:
    """Count differing sets between ref and cand and mark new ties in ``first``."""
    ref, cand = read["ref"], read["cand"]
    gap = gaps(ref.scores, ref.ids, cand.ids)
    differs, free = ~np.isnan(gap), first == NEVER
    own = {
        side: ~(selection_gap(read[side].scores, read[side].ids) <= route_gap) for side in flips.own
    }
    tie = differs & (gap <= route_gap) & ~own["cand"]
    fault = (differs & free & ~tie) | own["cand"]
    flips.rows += gap.size
    flips.faults += int(np.count_nonzero(fault))
    flips.ties += int(np.count_nonzero(tie & free))
    flips.downstream += int(np.count_nonzero(differs & ~free & ~own["cand"]))
    for side, rows in own.items():
        flips.own[side] += int(np.count_nonzero(rows))
    looked = np.where(differs & free, gap, -np.inf)
    looked[own["cand"]] = np.maximum(looked, selection_gap(cand.scores, cand.ids))[own["cand"]]
    row = int(np.argmax(looked))
    if looked[row] > flips.worst_gap or (flips.worst is None and np.isfinite(looked[row])):
        flips.worst_gap = float(looked[row])
        flips.worst = Worst(
            prompt=prompt,
            position=int(positions[row]),
            place=f"{place.name}.ids",
            value=float(looked[row]) if np.isfinite(looked[row]) else None,
            detail=f"ref took experts {sorted(ref.ids[row].tolist())}, "
            f"cand {sorted(cand.ids[row].tolist())}",
        )
    first[tie & free] = place.layer


def _oracle(read: Mapping[str, Choice], both: Ties, route_gap: float, layer: int) -> None:
    """Mark ties of ref or cand against the oracle's sets, by the oracle's scores."""
    oracle = read["oracle"]
    for side in ("ref", "cand"):
        gap = gaps(oracle.scores, oracle.ids, read[side].ids)
        both[(both == NEVER) & (gap <= route_gap)] = layer


def _weights(
    flips: Flips,
    read: Mapping[str, Choice],
    first: Ties,
    prompt: str,
    place: Place,
    positions: NDArray[Any],
) -> None:
    """Compare routing weights expert by expert where both sides took the same set."""
    ref, cand = read["ref"], read["cand"]
    order = [np.argsort(choice.ids, axis=1, kind="stable") for choice in (ref, cand)]
    ids = [np.take_along_axis(c.ids, o, axis=1) for c, o in zip((ref, cand), order, strict=True)]
    same = (ids[0] == ids[1]).all(axis=1)
    sides = [
        np.take_along_axis(c.weights.astype(np.float64), o, axis=1)
        for c, o in zip((ref, cand), order, strict=True)
    ]
    err = np.abs(sides[1] - sides[0]).max(axis=1)
    free = first == NEVER
    flips.weight_rows += int(np.count_nonzero(same & free))
    if (same & ~free).any():
        flips.weight_apart = float(np.maximum(flips.weight_apart, err[same & ~free].max()))
    if not (same & free).any():
        return
    row = int(np.argmax(np.where(same & free, err, -np.inf)))
    if err[row] > flips.weight_err or flips.weight_worst is None:
        flips.weight_err = float(err[row])
        choice = int(np.argmax(np.abs(sides[1][row] - sides[0][row])))
        flips.weight_worst = Worst(
            prompt=prompt,
            position=int(positions[row]),
            place=f"{place.name}.weights expert {int(ids[0][row, choice])}",
            value=float(err[row]),
            detail=f"ref {sides[0][row, choice]:.4g}, cand {sides[1][row, choice]:.4g}",
        )
