"""One pass over every tensor of every prompt: the sums that the attention metrics are made of.

Memory is bounded by one prompt's tensors of one layer; what is kept is a few
numbers per layer, head, batch row, position bucket and prompt.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from jaxtyping import Float64
from numpy.typing import NDArray

from validate.metrics._finite import Findings, look
from validate.metrics._places import Place, hiddens, outputs, with_mode
from validate.metrics._routing import Routing, apart, routing
from validate.metrics._structure import ErrorMap, add_lse, add_rows, find_structure, new_map
from validate.metrics._three_way import Ways, add_errors
from validate.metrics._topk_rows import holds_topk
from validate.metrics._words import ratio
from validate.numerics import DTYPES, to_float64, unit_roundoff
from validate.schema import Pair, Side, Worst

__all__ = ["Bulk", "LayerSums", "Scan", "first_structure", "noise_start", "scan"]

BUCKETS = 1024
"""Most buckets of a position profile; longer sequences share buckets."""

DECODE = "decode.logits"
"""The only section of logits among tensors of a mode."""

Array = NDArray[np.float64]
Key = tuple[int, str, str]
"""Layer, mode and kind: sorts by layer."""


@dataclass(slots=True, kw_only=True)
class Bulk:
    """Squared error and squared reference, of rows that count and of rows set apart."""

    err2: float = 0.0
    ref2: float = 0.0
    rows: int = 0
    apart_err2: float = 0.0
    apart_ref2: float = 0.0
    apart_rows: int = 0


@dataclass(slots=True, kw_only=True)
class LayerSums:
    """Sums of one tensor of one layer over all prompts; rows that a tie set apart are left out."""

    place: Place
    errors: ErrorMap
    bulk: Bulk = field(default_factory=Bulk)
    worst_row: float = 0.0
    worst: Worst | None = None


@dataclass(slots=True, kw_only=True)
class Scan:
    """Everything that one pass over the attention tensors of a pair found."""

    outputs: dict[Key, LayerSums] = field(default_factory=dict)
    hiddens: dict[Key, LayerSums] = field(default_factory=dict)
    by_prompt: dict[str, dict[str, Bulk]] = field(default_factory=dict)
    """By ``out`` or ``hidden``, then by prompt."""
    propagated: dict[str, Ways] = field(default_factory=dict)
    """By ``out`` or ``hidden``: errors of both sides against the oracle capture."""
    oracle_rows: dict[str, Bulk] = field(default_factory=dict)
    """By ``out`` or ``hidden``: rows that count in the comparison with the oracle, and rows apart."""
    lse_err: float = 0.0
    lse_worst: Worst | None = None
    lse_rows: int = 0
    lse_fit: Array = field(default_factory=lambda: np.zeros(2))
    """Sum of ref * cand and of ref^2 over all LSEs: the slope of cand on ref."""
    lse_along: dict[str, Array] = field(default_factory=dict)
    """By mode and layer, e.g. ``prefill.mla.3``: sum of (cand - ref) * ref and of ref^2."""
    bad: dict[str, Findings] = field(default_factory=dict)
    """By ``out``, ``lse``, ``hidden`` or ``other``: tensors with non-finite values."""
    bad_oracle: dict[str, Findings] = field(default_factory=dict)
    """The same where the oracle alone holds them."""
    tensors: int = 0
    """Float tensors that were looked at, a side."""


def scan(pair: Pair) -> Scan:
    """Read every attention tensor of a pair once; the result stays with the pair."""
    return pair.once("attention.scan", lambda: _scan(pair))


def _scan(pair: Pair) -> Scan:
    made, found = Scan(), routing(pair)
    longest = np.max(
        [len(pair.ref.prompts[prompt].token_ids) for prompt in pair.prompts], initial=1
    )
    grid = int(np.minimum(longest, BUCKETS)), int(-(-longest // BUCKETS))
    for prompt in pair.prompts:
        names = list(with_mode(pair.ref.names(prompt)))
        positions = {
            mode: pair.ref.tensor(prompt, f"{mode}.positions")
            for mode in ("prefill", "decode")
            if f"{mode}.positions" in names
        }
        taken: set[str] = set()
        for group, places in (("out", outputs(names)), ("hidden", hiddens(names))):
            for place in places:
                taken.add(place.name)
                sides = _read(pair, prompt, place.name)
                step = _Step(made, found, prompt, place, positions[place.mode], group, grid)
                if _finite(made, prompt, place.name, group, sides):
                    with np.errstate(over="ignore", invalid="ignore"):  # seen in the ratio
                        _add(step, sides, batch_row=pair.cand.manifest.batch_rows.get(prompt, 0))
                lse = place.name.removesuffix(".out") + ".lse"
                if group == "out" and lse in names:
                    taken.add(lse)
                    sides = _two(pair, prompt, lse)
                    if _finite(made, prompt, lse, "lse", sides):
                        _add_lse(step, sides)
        for name in _others(pair, prompt, names, taken):
            _finite(made, prompt, name, "other", _two(pair, prompt, name))
    return made


def _others(pair: Pair, prompt: str, names: list[str], taken: set[str]) -> Iterator[str]:
    """Tensors that are only looked at for non-finite values.

    Routers are looked at elsewhere, and so are logits that either side stores as top-k.
    """
    topk = any(holds_topk(side, prompt, DECODE) for side in (pair.ref, pair.cand))
    return (
        name
        for name in names
        if name not in taken
        and ".router." not in name
        and not name.endswith(".positions")
        and not (topk and name.startswith(DECODE))
    )


def _two(pair: Pair, prompt: str, name: str) -> dict[str, NDArray[Any]]:
    return {"ref": pair.ref.tensor(prompt, name), "cand": pair.cand.tensor(prompt, name)}


def _read(pair: Pair, prompt: str, name: str) -> dict[str, NDArray[Any]]:
    """The tensor of ref, cand and, where there is one, the oracle."""
    sides = _two(pair, prompt, name)
    if pair.oracle is not None:
        sides["oracle"] = pair.oracle.tensor(prompt, name)
    return sides


def _finite(
    made: Scan, prompt: str, name: str, group: str, sides: Mapping[str, NDArray[Any]]
) -> bool:
    """Settle non-finite values first; False when ref or cand hold any."""
    made.tensors += 1
    finding = look(prompt, name, sides)
    if finding is None:
        return True
    if not {"ref", "cand"} & set(finding.counts):
        made.bad_oracle.setdefault(group, []).append(finding)
        return True
    made.bad.setdefault(group, []).append(finding)
    return False


@dataclass(frozen=True, slots=True)
class _Step:
    """Where one tensor of one prompt goes."""

    made: Scan
    found: Routing
    prompt: str
    place: Place
    positions: NDArray[Any]
    group: str
    grid: tuple[int, int]
    """Buckets of a position profile, and positions a bucket."""

    def sums(self, heads: int) -> LayerSums:
        """The running sums of this tensor's layer."""
        by_layer = self.made.outputs if self.group == "out" else self.made.hiddens
        key = (self.place.layer, self.place.mode, self.place.kind)
        if key not in by_layer:
            errors = new_map(heads, buckets=self.grid[0], width=self.grid[1])
            by_layer[key] = LayerSums(place=self.place, errors=errors)
        return by_layer[key]


def _add(step: _Step, sides: Mapping[str, NDArray[Any]], *, batch_row: int) -> None:
    """Add one tensor of one prompt to every sum."""
    ref, cand = (_by_head(to_float64(sides[side])) for side in ("ref", "cand"))
    sums = step.sums(ref.shape[1])
    away = apart(step.found, step.prompt, step.place, step.positions)
    kept = ~away
    err2, ref2 = add_rows(
        sums.errors, ref[kept], cand[kept], batch_row=batch_row, positions=step.positions[kept]
    )
    lost = ((cand[away] - ref[away]) ** 2).sum(), (ref[away] ** 2).sum()
    by_prompt = step.made.by_prompt.setdefault(step.group, {}).setdefault(step.prompt, Bulk())
    for bulk in (sums.bulk, by_prompt):
        bulk.err2 += float(err2.sum())
        bulk.ref2 += float(ref2.sum())
        bulk.rows += int(kept.sum())
        bulk.apart_err2 += float(lost[0])
        bulk.apart_ref2 += float(lost[1])
        bulk.apart_rows += int(away.sum())
    _worst_row(sums, step, err2.sum(axis=1), ref2.sum(axis=1), kept, float((ref * ref).sum()))
    if "oracle" in sides and not step.made.bad_oracle.get(step.group):
        _against_oracle(step, ref, cand, _by_head(to_float64(sides["oracle"])))


def _by_head(array: Array) -> Float64[NDArray[Any], "rows heads value"]:
    """Hidden rows (rows, hidden) count as one head."""
    return array if array.ndim == 3 else array[:, None, :]  # noqa: PLR2004 - rows, heads, values


def _worst_row(
    sums: LayerSums, step: _Step, err2: Array, ref2: Array, kept: NDArray[np.bool_], total: float
) -> None:
    """Keep the row with the largest error over the larger of its own and the tensor's RMS."""
    if err2.size == 0:
        return
    errors = ratio(err2, np.maximum(ref2, total / kept.size))
    row = int(np.argmax(errors))
    if not errors[row] <= sums.worst_row or sums.worst is None:
        sums.worst_row = float(errors[row])
        sums.worst = Worst(
            prompt=step.prompt,
            position=int(step.positions[kept][row]),
            place=step.place.name,
            value=float(errors[row]),
        )


def _against_oracle(step: _Step, ref: Array, cand: Array, oracle: Array) -> None:
    """Add the propagated errors of both sides, rows that a tie with the oracle set apart left out."""
    away = apart(step.found, step.prompt, step.place, step.positions, oracle=True)
    kept = ~away
    rows = step.made.oracle_rows.setdefault(step.group, Bulk())
    rows.rows += int(kept.sum())
    rows.apart_rows += int(away.sum())
    truth = oracle[kept]
    add_errors(
        step.made.propagated.setdefault(step.group, Ways()),
        step.place.name,
        prompt=step.prompt,
        positions=step.positions[kept],
        ref=(ref[kept], truth),
        cand=(cand[kept], truth),
    )


def _add_lse(step: _Step, sides: Mapping[str, NDArray[Any]]) -> None:
    """Add one LSE tensor, rows set apart left out."""
    kept = ~apart(step.found, step.prompt, step.place, step.positions)
    ref, cand = (to_float64(sides[side])[kept] for side in ("ref", "cand"))
    if ref.size == 0:
        return
    made = step.made
    made.lse_rows += len(ref)
    made.lse_fit += ((ref * cand).sum(), (ref * ref).sum())
    layer = step.place.name.removesuffix(".out")
    along = np.array([((cand - ref) * ref).sum(), (ref * ref).sum()])
    made.lse_along[layer] = made.lse_along.get(layer, np.zeros(2)) + along
    sums = step.sums(ref.shape[1])
    if sums.errors.err2.size == ref.shape[1]:
        add_lse(sums.errors, ref, cand)
    err = np.abs(cand - ref)
    row, head = (int(i) for i in np.unravel_index(int(np.argmax(err)), err.shape))
    if not err[row, head] <= made.lse_err or made.lse_worst is None:
        made.lse_err = float(err[row, head])
        made.lse_worst = Worst(
            prompt=step.prompt,
            position=int(step.positions[kept][row]),
            place=f"{step.place.name.removesuffix('.out')}.lse head {head}",
            value=made.lse_err,
            detail=f"ref {ref[row, head]:.4g}, cand {cand[row, head]:.4g} nats",
        )


def noise_start(*sides: Side) -> float:
    """Relative error expected of a clean first layer: twice the coarsest unit roundoff in play."""
    known = [side.manifest.dtype for side in sides if side.manifest.dtype in DTYPES]
    return 2 * float(np.max([unit_roundoff(dtype) for dtype in known or ["bfloat16"]]))


def first_structure(pair: Pair, layers: Mapping[Key, LayerSums]) -> str | None:
    """Name what is wrong in the first layer that is, for each mode.

    Later layers work on what the first wrong one made of their input, so their
    structure says nothing. The noise expected of a layer is the worst head of
    the clean layers before it. The same for every metric of a pair that asks for it.
    """
    kinds = ",".join(sorted({kind for _, _, kind in layers}))
    return pair.once(f"attention.structure.{kinds}", lambda: _first_structure(pair, layers))


def _first_structure(pair: Pair, layers: Mapping[Key, LayerSums]) -> str | None:
    chunk = pair.cand.manifest.options.get("chunk", "")
    texts: dict[str, str] = {}
    modes: set[str] = set()
    noise = noise_start(pair.ref, pair.cand)
    for key in sorted(layers, key=lambda one: (one[0], one[1] == "decode", one[2])):
        sums = layers[key]
        if key[1] in modes or sums.bulk.rows == 0:
            continue
        text = find_structure(
            sums.errors, noise=noise, chunk=int(chunk) if chunk.isdecimal() and int(chunk) else None
        )
        if text is not None:
            modes.add(key[1])
            texts[sums.place.name] = text
        else:
            clean = float(ratio(sums.errors.err2, sums.errors.ref2).max())
            noise = float(np.fmax(noise, clean)) if np.isfinite(clean) else noise
    return "; ".join(f"{name}: {text}" for name, text in texts.items()) or None
