"""Contract of absorbed MLA decode over a paged latent cache, with split keys and LSE out."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from validate.conformance.ops._attention_judge import CLAUSES, differing, judge, under
from validate.conformance.ops._attention_truth import (
    Precision,
    Truth,
    absorbed_truth,
    precision_of,
    rows_of,
    stack,
)
from validate.conformance.ops._decode_cases import decode_cases, smaller
from validate.conformance.ops._heads import paddings, poison_for
from validate.conformance.records import (
    Breach,
    Call,
    Case,
    Contract,
    Operation,
    OutputSpec,
    Settings,
)
from validate.numerics import to_float64, unit_roundoff

__all__ = ["OPERATION"]

Inputs = Mapping[str, Any]
_SOLO = 3
"""At most this many requests of a batch run alone."""

CONTRACT = Contract(
    op="mla_decode",
    title="Absorbed MLA decode: q against the paged latent cache, keys may be split, LSE out",
    signature=(
        "mla_decode(q, kv_cache, block_table, query_starts, lengths, latent, scale, num_splits, "
        "kv_scale) -> out, lse"
    ),
    outputs=("out", "lse"),
    clauses={
        **CLAUSES,
        "repeat": "The same call twice gives the same bits (setting repeat=bits).",
        "batch": "A request gives a result within the limits in any order of the batch and alone.",
        "slots": "What lies in cache slots that hold no key of a request moves nothing of it: "
        "slots past its length, pages of others, pages of nobody (NaN included, setting slots=any).",
        "heads": "What padded heads hold, NaN included, moves no real head; sliced back, a "
        "zero, tiled or repeated padding gives what the unpadded call gives, within the limits.",
        "heads-bits": "Zero, tiled and garbage padding to one head count give real heads the same "
        "bits (setting padding=bits).",
    },
    settings={
        "widths": ("any", "k3"),
        "slots": ("any", "finite"),
        "repeat": ("bits", "values"),
        "padding": ("bits", "values"),
    },
)
"""q [tokens, heads, latent + rope] in bfloat16, float16 or float32; kv_cache [pages, page,
latent + rope] in the dtype of q or in float8_e4m3fn; block_table int32 [batch, most pages], entries
past the need name a page of nobody; query_starts int32 [batch + 1]; lengths int32 [batch] keys of
each request, its queries included, so that query i of n sees keys 0 .. length - n + i. A key is
``kv_scale`` times a float8 entry; ``kv_scale`` does not apply to any other cache. Values are the first
``latent`` numbers of a key. ``num_splits`` is how many parts the keys may be split into; a hint. Output: out
[tokens, heads, latent] in the dtype of q, lse float32 [tokens, heads], natural log. widths=k3: the kernel takes
512 + 64 alone, and is swept at those."""


def _keys(inputs: Inputs, request: int) -> np.ndarray:
    """Cache entries of one request, widened and scaled, float64."""
    cache, length = inputs["kv_cache"], int(inputs["lengths"][request])
    page = cache.shape[1]
    slot = np.arange(length)
    held = cache[inputs["block_table"][request][slot // page], slot % page]
    return to_float64(held) * (inputs["kv_scale"] if cache.dtype.itemsize == 1 else 1.0)


def _precision(inputs: Inputs) -> Precision:
    operand = inputs["q"].dtype.name
    found = precision_of(operand, operand)
    if inputs["kv_cache"].dtype.itemsize > 1:
        return found
    # Keys of a float8 cache may be widened to the format of q, scale included.
    return replace(found, operand=unit_roundoff(operand))


def _truth(inputs: Inputs) -> Truth:
    q, starts = to_float64(inputs["q"]), inputs["query_starts"]
    precision = _precision(inputs)
    parts = []
    for request, length in enumerate(inputs["lengths"]):
        rows = q[starts[request] : starts[request + 1]]
        parts.append(
            absorbed_truth(
                rows,
                _keys(inputs, request),
                latent=inputs["latent"],
                scale=inputs["scale"],
                first=int(length) - len(rows),
                precision=precision,
            )
        )
    return stack(parts)


def _outputs(inputs: Inputs, settings: Settings) -> Mapping[str, OutputSpec]:  # noqa: ARG001
    tokens, heads = inputs["q"].shape[:2]
    return {
        "out": OutputSpec(
            shape=(tokens, heads, inputs["latent"]), dtype=str(inputs["q"].dtype.name)
        ),
        "lse": OutputSpec(shape=(tokens, heads), dtype="float32"),
    }


def _check(case: Case, call: Call, settings: Settings) -> tuple[Breach, ...]:
    inputs = case.inputs
    truth = _truth(inputs)
    base = call(inputs)
    found = judge(base["out"], base["lse"], truth)
    if found:
        return found  # relations between wrong results say nothing more
    if settings["repeat"] == "bits":
        found += differing("repeat", base, call(inputs), "the same call twice")
    if inputs["kv_cache"].size >= 2**31:
        return found  # the one thing to see there is an index
    found += _batch(inputs, call, truth)
    found += _other_slots(inputs, call, truth, settings)
    return found + _padded(inputs, call, truth, settings)


def _select(inputs: Inputs, order: list[int]) -> tuple[dict[str, Any], np.ndarray]:
    """The requests named by ``order``, and where their rows stand in the whole batch."""
    starts = inputs["query_starts"]
    rows = np.concatenate([np.arange(starts[i], starts[i + 1]) for i in order])
    counts = [int(starts[i + 1] - starts[i]) for i in order]
    return {
        **inputs,
        "q": np.ascontiguousarray(inputs["q"][rows]),
        "block_table": np.ascontiguousarray(inputs["block_table"][order]),
        "lengths": np.ascontiguousarray(inputs["lengths"][order]),
        "query_starts": np.concatenate([[0], np.cumsum(counts)]).astype(np.int32),
    }, rows


def _batch(inputs: Inputs, call: Call, truth: Truth) -> tuple[Breach, ...]:
    batch = len(inputs["lengths"])
    if batch == 1:
        return ()
    orders = [list(range(batch))[::-1]] + [[i] for i in range(min(batch, _SOLO))]
    found: tuple[Breach, ...] = ()
    for order in orders:
        changed, rows = _select(inputs, order)
        given = call(changed)
        said = f"request {order[0]} alone" if len(order) == 1 else "requests in reversed order"
        found += judge(given["out"], given["lse"], rows_of(truth, rows), call=said)
    return under("batch", found)


def _other_slots(
    inputs: Inputs, call: Call, truth: Truth, settings: Settings
) -> tuple[Breach, ...]:
    """Keys of request 0 turned into poison: the other requests keep their result."""
    if len(inputs["lengths"]) == 1 or not inputs["lengths"][0]:
        return ()
    cache = inputs["kv_cache"].copy()
    page = cache.shape[1]
    fill = poison_for(cache.dtype, settings["slots"])
    cache[inputs["block_table"][0][: -(-int(inputs["lengths"][0]) // page)]] = np.float32(
        fill
    ).astype(cache.dtype)
    given = call({**inputs, "kv_cache": cache})
    rows = np.arange(inputs["query_starts"][1], len(inputs["q"]))
    kept = rows_of(truth, rows)
    found = judge(given["out"][rows], given["lse"][rows], kept, call="keys of request 0 poisoned")
    return under("slots", found)


def _padded(inputs: Inputs, call: Call, truth: Truth, settings: Settings) -> tuple[Breach, ...]:
    q = inputs["q"]
    found: tuple[Breach, ...] = ()
    first: tuple[str, dict[str, np.ndarray]] | None = None
    for padding in paddings(q.shape[1]):
        garbage = poison_for(q.dtype, "any")
        given = call({**inputs, "q": padding.pad(q, axis=1, garbage=garbage)})
        real = {name: padding.unpad(array) for name, array in given.items()}
        said = f"{padding.rule} padding to {padding.count} heads"
        wrong = judge(real["out"], real["lse"], truth, call=said)
        found += under("heads", wrong)
        if padding.rule == "repeat" or settings["padding"] == "values" or wrong:
            continue
        if first is None:
            first = (said, real)
            continue
        found += differing("heads-bits", first[1], real, f"{first[0]} against {said}")
    return found


OPERATION = Operation(
    contract=CONTRACT, cases=decode_cases, outputs=_outputs, check=_check, shrink=smaller
)
"""Absorbed MLA decode."""
