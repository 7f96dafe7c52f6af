"""The worst of something over modes, layers and heads of the attention outputs."""

from collections.abc import Callable, Mapping

import numpy as np

from validate.metrics._structure import ErrorMap
from validate.metrics._tensors import Key, LayerSums, first_structure, scan
from validate.metrics._unmeasured import no_tensors, not_finite, undefined
from validate.schema import Measurement, Pair, Worst

__all__ = ["measure_heads", "no_rows"]

Heads = np.ndarray[tuple[int], np.dtype[np.float64]]


def measure_heads(
    pair: Pair, *, metric: str, unit: str, measure: Callable[[ErrorMap], Heads]
) -> Measurement:
    """Apply ``measure`` to every mode and layer and keep the worst head.

    Args:
        pair: Ref and cand.
        metric: Name of the metric.
        unit: Unit of the value.
        measure: Sums of one tensor to one number a head; not finite where undefined.

    Returns:
        Deterministic measurement; n = heads over modes and layers, each pooled over prompts.
    """
    found = scan(pair)
    layers = dict(sorted(found.outputs.items()))
    n_of = "heads over modes and layers"
    why = not_finite(found.bad, "out") or no_rows(layers, "attention outputs")
    if why is not None:
        return undefined(metric, why, unit=unit, n_of=n_of)
    by_layer = {sums.place.name: measure(sums.errors) for sums in layers.values()}
    n = sum(heads.size for heads in by_layer.values())
    for name, heads in by_layer.items():
        if not np.isfinite(heads).all():
            head = int(np.argmax(~np.isfinite(heads)))
            why = f"ref is all zero and cand is not in {name} head {head}"
            return undefined(metric, why, unit=unit, n_of=n_of, n=n)
    worst_of = {name: int(np.argmax(heads)) for name, heads in by_layer.items()}
    tops = {name: float(by_layer[name][head]) for name, head in worst_of.items()}
    name = list(tops)[int(np.argmax(list(tops.values())))]
    return Measurement(
        metric=metric,
        value=tops[name],
        unit=unit,
        n=n,
        n_of=n_of,
        worst=Worst(place=f"{name} head {worst_of[name]}", value=tops[name]),
        worst_value=tops[name],
        pattern=first_structure(pair, layers),
        breakdown={key.removesuffix(".out"): value for key, value in tops.items()},
        pooled=len(found.by_prompt["out"]),
    )


def no_rows(layers: Mapping[Key, LayerSums], what: str) -> str | None:
    """The reason when there is nothing to measure in some layer, else None."""
    if not layers:
        return no_tensors(what)
    empty = [sums.place.name for sums in layers.values() if sums.bulk.rows == 0]
    if not empty:
        return None
    apart = sum(layers[key].bulk.apart_rows for key in layers)
    return (
        f"router ties set every row of {len(empty)} tensors apart, the first is {empty[0]} "
        f"({apart} rows apart in all)"
    )
