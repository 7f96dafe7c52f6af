"""Errors by layer and head, by layer of the running prefix, and ratios against the oracle."""

import math
from collections.abc import Mapping

import numpy as np

from validate.metrics._tensors import LayerSums, scan
from validate.metrics._words import ratio
from validate.schema.pair import Pair
from validate.schema.series import MOST_COLUMNS, MOST_LINES, Series, SeriesAxis, SeriesLine

__all__ = ["head_series", "hidden_series", "ratio_series"]

MODES = {"prefill": "prefill", "decode": "decode, token by token"}
REL_L2 = "rel-L2"


def head_series(pair: Pair) -> list[Series]:
    """Relative L2 error of every layer and head, a series a mode."""
    outputs = sorted(scan(pair).outputs.items())
    made = []
    for mode, words in MODES.items():
        layers = {
            f"{sums.place.kind}.{layer}": _heads(sums)
            for (layer, where, _), sums in outputs
            if where == mode
        }
        if layers:
            made.append(_heat(mode, words, layers))
    return made


def _heads(sums: LayerSums) -> list[float | None]:
    errors = ratio(sums.errors.err2, sums.errors.ref2)
    return [_finite(float(one)) for one in errors]


def _heat(mode: str, words: str, layers: dict[str, list[float | None]]) -> Series:
    most = max(len(heads) for heads in layers.values())
    width = -(-most // MOST_COLUMNS)
    heads = {name: _folded(values, width) for name, values in layers.items()}
    columns = -(-most // width)
    return Series(
        name=f"attention.heads_{mode}",
        title=f"Error of each layer and head, {words}",
        reading=(
            "One dark column is one wrong head; dark columns at the end are heads that padding "
            "added or left out; a dark row is a layer; darkening downwards is error carried on."
        ),
        kind="heat",
        x=SeriesAxis(
            label="head",
            places=tuple(
                f"{at * width}" if width == 1 else f"{at * width} to {(at + 1) * width - 1}"
                for at in range(columns)
            ),
        ),
        y=SeriesAxis(label="error of cand against ref", unit=REL_L2),
        lines=tuple(
            SeriesLine(
                name=name,
                role="cand",
                values=(*values, *([None] * (columns - len(values)))),
            )
            for name, values in list(heads.items())[:MOST_LINES]
        ),
        n=sum(len(values) for values in layers.values()),
        n_of="heads over layers",
    )


def _folded(values: list[float | None], width: int) -> list[float | None]:
    """The worst of every ``width`` neighbours."""
    if width == 1:
        return values
    return [_worst(values[at : at + width]) for at in range(0, len(values), width)]


def _worst(values: list[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return float(np.max(known)) if known else None


def hidden_series(pair: Pair) -> list[Series]:
    """Relative L2 error of the running prefix after each layer, a line a mode."""
    hiddens = sorted(scan(pair).hiddens.items())
    layers = sorted({layer for (layer, _, _) in dict(hiddens)})[:MOST_COLUMNS]
    lines = []
    for mode, words in MODES.items():
        by_layer = {layer: _bulk(sums) for (layer, where, _), sums in hiddens if where == mode}
        if by_layer:
            values = tuple(by_layer.get(layer) for layer in layers)
            lines.append(SeriesLine(name=words, role="cand", values=values))
    if not lines:
        return []
    return [
        Series(
            name="attention.hidden_by_layer",
            title="Error of the hidden state after each layer",
            reading="A step up names the layer that brings error in; a slow climb is rounding.",
            kind="lines",
            x=SeriesAxis(
                label="layer",
                places=tuple(f"{layer}" for layer in layers),
                at=tuple(float(layer) for layer in layers),
            ),
            y=SeriesAxis(label="error of cand against ref", unit=REL_L2),
            lines=tuple(lines),
            n=len(layers),
            n_of="layers",
        )
    ]


def _bulk(sums: LayerSums) -> float | None:
    bulk = sums.bulk
    return _finite(float(ratio(np.array([bulk.err2]), np.array([bulk.ref2]))[0]))


def ratio_series(gate: str, breakdown: Mapping[str, float]) -> list[Series]:
    """Ratios of errors by tensor, with their limits; heads are left to the table.

    Args:
        gate: A three_way gate.
        breakdown: Its measurement's companions: ``NAME ratio``, ``NAME ratio low`` and ``high``.
    """
    suffix = " ratio"
    found = {
        name.removesuffix(suffix): value
        for name, value in breakdown.items()
        if name.endswith(suffix) and " head " not in name and _finite(value) is not None
    }
    if not found:
        return []
    names = sorted(found, key=lambda name: -found[name])[:MOST_COLUMNS]
    kept = [name for name in found if name in set(names)]
    introduced = gate.endswith("introduced_ratio")
    line = SeriesLine(
        name="err(cand) / err(ref)",
        role="cand",
        values=tuple(found[name] for name in kept),
        low=tuple(_finite(breakdown.get(f"{name} ratio low")) for name in kept),
        high=tuple(_finite(breakdown.get(f"{name} ratio high")) for name in kept),
    )
    same = SeriesLine(name="as good as ref", role="expected", values=(1.0,) * len(kept))
    kind = "introduced in each tensor" if introduced else "carried to each tensor"
    return [
        Series(
            name=gate,
            title=f"Error {kind} against the oracle, cand over ref",
            reading=(
                "1 is as good as ref, below 1 better. "
                + (
                    "Each side's own inputs went through the oracle, so a place to the right of "
                    "the others is where the error is made."
                    if introduced
                    else "Everything before it counts too: it shows size, not origin."
                )
            ),
            kind="ratios",
            x=SeriesAxis(label="tensor", places=tuple(kept)),
            y=SeriesAxis(label="err(cand) / err(ref)", scale="log"),
            lines=(line, same),
            n=len(kept),
            n_of="tensors",
        )
    ]


def _finite(value: float | None) -> float | None:
    return value if value is not None and math.isfinite(value) else None
