"""Contract of decompressed MLA prefill: a key and a value per head, K wider than V, LSE out."""

from collections.abc import Mapping
from typing import Any

import numpy as np

from validate.conformance.ops._attention_judge import CLAUSES, differing, judge, under
from validate.conformance.ops._attention_truth import (
    Truth,
    dense_truth,
    no_keys,
    precision_of,
    rows_of,
    stack,
)
from validate.conformance.ops._heads import paddings
from validate.conformance.ops._prefill_cases import prefill_cases, requests, smaller
from validate.conformance.records import (
    Breach,
    Call,
    Case,
    Contract,
    Operation,
    OutputSpec,
    Settings,
)
from validate.numerics import to_float64

__all__ = ["OPERATION"]

Inputs = Mapping[str, Any]
_SOLO = 3

CONTRACT = Contract(
    op="mla_prefill",
    title="Decompressed MLA prefill: qk wider than v, cached prefix, ragged batch, LSE out",
    signature=(
        "mla_prefill(q, k, v, query_starts, key_starts, scale, causal, q_scale, k_scale, v_scale) "
        "-> out, lse"
    ),
    outputs=("out", "lse"),
    clauses={
        **CLAUSES,
        "repeat": "The same call twice gives the same bits (setting repeat=bits).",
        "batch": "A request gives a result within the limits in any order of the batch and alone.",
        "others": "What the keys of other requests hold, and what lies behind the last key, moves "
        "nothing of a request (NaN included; behind the last key only with setting tail=any).",
        "heads": "What padded heads of q, k and v hold, NaN included, moves no real head; sliced "
        "back, a zero, tiled or repeated padding gives what the unpadded call gives, within the "
        "limits.",
        "heads-bits": "Zero, tiled and garbage padding to one head count give real heads the same "
        "bits (setting padding=bits).",
    },
    settings={
        "widths": ("any", "k3"),
        "kv_heads": ("grouped", "equal"),
        "tail": ("any", "finite"),
        "repeat": ("bits", "values"),
        "padding": ("bits", "values"),
    },
)
"""q [tokens, heads, qk], k [keys, kv heads, qk], v [keys, kv heads, value], all in bfloat16,
float16, float32 or float8_e4m3fn; kv heads divide heads, query head h reads key head
h // (heads / kv heads) (kv_heads=equal: they are always equal). query_starts and key_starts int32
[batch + 1]; rows of k and v behind the last key belong to nobody. A request of n queries and m keys:
query i sees keys 0 .. m - n + i when causal, all m when not; n may be 0, m may be 0 when not causal.
An operand is its scale times its entries; scales are other than 1 for float8 alone. Output: out
[tokens, heads, value] in the dtype of q (bfloat16 for float8), lse float32 [tokens, heads], natural log.
widths=k3: the kernel takes qk 192 and v 128 alone, and is swept at those."""


def _out_dtype(q: np.ndarray) -> str:
    return str(q.dtype.name) if q.dtype.itemsize > 1 else "bfloat16"


def _truth(inputs: Inputs) -> Truth:
    q, k, v = (to_float64(inputs[name]) * inputs[f"{name}_scale"] for name in ("q", "k", "v"))
    group = q.shape[1] // k.shape[1]
    precision = precision_of(inputs["q"].dtype.name, _out_dtype(inputs["q"]))
    rows, keys = inputs["query_starts"], inputs["key_starts"]
    parts = []
    for i in range(len(rows) - 1):
        mine = q[rows[i] : rows[i + 1]]
        held = slice(int(keys[i]), int(keys[i + 1]))
        count = held.stop - held.start
        if not count:
            parts.append(no_keys(len(mine), q.shape[1], v.shape[2]))
            continue
        parts.append(
            dense_truth(
                mine,
                np.repeat(k[held], group, axis=1),
                np.repeat(v[held], group, axis=1),
                scale=inputs["scale"],
                first=count - len(mine) if inputs["causal"] else count - 1,
                precision=precision,
            )
        )
    return stack(parts)


def _outputs(inputs: Inputs, settings: Settings) -> Mapping[str, OutputSpec]:  # noqa: ARG001
    q, v = inputs["q"], inputs["v"]
    return {
        "out": OutputSpec(shape=(*q.shape[:2], v.shape[2]), dtype=_out_dtype(q)),
        "lse": OutputSpec(shape=q.shape[:2], dtype="float32"),
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
    found += _batch(inputs, call, truth)
    found += _other_requests(inputs, call, truth)
    if inputs["k"].shape[1] == inputs["q"].shape[1]:
        found += _padded(inputs, call, truth, settings)
    return found


def _batch(inputs: Inputs, call: Call, truth: Truth) -> tuple[Breach, ...]:
    starts = inputs["query_starts"]
    batch = len(starts) - 1
    if batch == 1:
        return ()
    alone = [i for i in range(batch) if starts[i + 1] > starts[i]][:_SOLO]
    found: tuple[Breach, ...] = ()
    for order in [list(range(batch))[::-1]] + [[i] for i in alone]:
        given = call({**inputs, **requests(inputs, order)})
        said = f"request {order[0]} alone" if len(order) == 1 else "requests in reversed order"
        rows = np.concatenate([np.arange(starts[i], starts[i + 1]) for i in order])
        found += judge(given["out"], given["lse"], rows_of(truth, rows), call=said)
    return under("batch", found)


def _other_requests(inputs: Inputs, call: Call, truth: Truth) -> tuple[Breach, ...]:
    """Keys and values of request 0 turned into NaN: the other requests keep their result."""
    rows, keys = inputs["query_starts"], inputs["key_starts"]
    if len(rows) == 2 or keys[1] == 0:  # noqa: PLR2004  one request
        return ()
    changed = {**inputs}
    for name in ("k", "v"):
        changed[name] = inputs[name].copy()
        changed[name][: keys[1]] = np.float32("nan").astype(changed[name].dtype)
    given = call(changed)
    rest = np.arange(rows[1], rows[-1])
    kept = rows_of(truth, rest)
    found = judge(given["out"][rest], given["lse"][rest], kept, call="keys of request 0 are NaN")
    return under("others", found)


def _padded(inputs: Inputs, call: Call, truth: Truth, settings: Settings) -> tuple[Breach, ...]:
    found: tuple[Breach, ...] = ()
    first: tuple[str, dict[str, np.ndarray]] | None = None
    for padding in paddings(inputs["q"].shape[1]):
        changed = {
            name: padding.pad(inputs[name], axis=1, garbage=float("nan"))
            for name in ("q", "k", "v")
        }
        given = call({**inputs, **changed})
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
    contract=CONTRACT, cases=prefill_cases, outputs=_outputs, check=_check, shrink=smaller
)
"""Decompressed MLA prefill."""
