"""KDA's oracle on a packed batch, and the rounding error that a right kernel makes.

The error model follows the variance E of every state entry, with roundings independent of
each other. The state obeys ``S <- (I - beta k k^T) Diag(e^g) S + beta k v^T``, so with
``D = e^(2 g_c) E + (u_acc (4 + G_c) e^(g_c) S)^2`` (decay: exp, and its exponent of size G_c)
the variance of entry (c, v) obeys

    E <- D (1 - 2 beta k_c^2) + (beta k_c)^2 sum k^2 D    the map itself; it never grows
       + w, w = (u_op beta k_c)^2 (2 v^2 + r^2 + sum k^2 S^2)   operands of write and recall, r = k.S
       + (u_state S)^2                                    where the state is stored

Inside a chunk of C tokens a kernel corrects no rounding of an earlier token, so its writes add
up without the map: ``W <- e^(2 g_c) (1 - 1/C) W + w`` is added to E where C > 1.
u_op is the roundoff of what products are fed with, u_acc that of sums. G_c is the largest sum
of |g| of the channel over 64 tokens (a kernel may keep running sums over chunks that long). The
output o = q.S adds its read-out, the relative error of what it reads along one key, and its own
rounding: ``u_op^2 (sum q^2 S^2 + 4 o^2) + sum q^2 E`` under the root, plus ``u_out |o|``.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from validate.conformance.ops._packed import bounds
from validate.conformance.ops._rounding import Expected
from validate.numerics import to_float64
from validate.oracle import kda, l2_norm, lower_bound_gate, sigmoid

__all__ = ["WINDOW", "HeadTruth", "Rounding", "kda_truth", "merge_heads", "of_head"]

Array = NDArray[np.float64]

WINDOW = 64
"""Longest chunk over which a kernel may keep a running sum of log decays, in tokens."""
TINY = 2.0**-126
"""Smallest normal float32: results below it may be flushed to zero."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Rounding:
    """Unit roundoffs that the contract allows."""

    operands: float
    """Of what products are fed with."""
    sums: float
    """Of accumulators, exponentials and gates."""
    out: float
    """Of the stored output."""
    state: float
    """Of the stored state."""
    chunk: int
    """Tokens over which a kernel may work in one piece; 1 for a recurrence."""
    state_every: int
    """Tokens between two stores of the state that are read again."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Step:
    """What the error recursion reads, [tokens, heads, key] unless said otherwise."""

    q: Array
    k: Array
    decay: Array
    beta: Array
    """[tokens, heads, 1]."""
    v: Array
    travel: Array
    """[heads, key]: longest sum of log decays."""


def kda_truth(
    inputs: Mapping[str, Any], initial: np.ndarray | None, rounding: Rounding
) -> list[dict[str, Expected]]:
    """Oracle of every sequence: ``out`` [tokens, heads, value] and ``final_state``.

    The state is [1, heads, value, key]: a row of the comparison is a column of S.

    Args:
        inputs: Arguments of ``kda_chunk`` or ``kda_recurrent``.
        initial: State before each sequence, [sequences, heads, key, value]; zeros when None.
        rounding: What the contract allows.
    """
    wide = {name: to_float64(inputs[name]) for name in ("q", "k", "v", "f", "b")}
    gate = {name: to_float64(inputs[name]) for name in ("a_log", "dt_bias")}
    found = []
    for n, (start, end) in enumerate(bounds(inputs)):
        part = {name: array[start:end] for name, array in wide.items()}
        state = None if initial is None else to_float64(initial[n])
        found.append(_sequence(part, gate, float(inputs["lower_bound"]), state, rounding))
    return found


HeadTruth = list[dict[str, Expected]]
_BY_HEAD = {"q": 1, "k": 1, "v": 1, "f": 1, "b": 1, "a_log": 0, "dt_bias": 0}


def of_head(
    inputs: Mapping[str, Any], initial: np.ndarray | None, head: int
) -> tuple[dict[str, Any], np.ndarray | None]:
    """Arguments of ``kda_truth`` for one head: heads know nothing of each other."""
    alone = {name: np.take(inputs[name], [head], axis=axis) for name, axis in _BY_HEAD.items()}
    kept = {name: inputs[name] for name in ("lower_bound", "cu_seqlens")}
    return {**alone, **kept}, None if initial is None else initial[:, head : head + 1]


def merge_heads(parts: Sequence[HeadTruth]) -> HeadTruth:
    """What ``kda_truth`` gives, from that of every head."""
    return [
        {
            name: Expected(
                values=np.concatenate([one[name].values for one in heads], axis=1),
                scale=np.concatenate([one[name].scale for one in heads], axis=1),
                axes=heads[0][name].axes,
            )
            for name in heads[0]
        }
        for heads in zip(*parts, strict=True)
    ]


def _sequence(
    part: Mapping[str, Array],
    gate: Mapping[str, Array],
    lower_bound: float,
    state: Array | None,
    rounding: Rounding,
) -> dict[str, Expected]:
    tokens, heads, key = part["q"].shape
    value = part["v"].shape[-1]
    step = _steps(part, gate, lower_bound)
    S = np.zeros((heads, key, value)) if state is None else state
    spread = (np.zeros((heads, key, value)), np.zeros((heads, key, value)))
    floor = TINY * float(1.0 + sum(np.max(np.abs(x), initial=0.0) for x in (part["v"], S)))
    out, scale = np.zeros((tokens, heads, value)), np.zeros((tokens, heads, value))
    for t in range(tokens):
        here = slice(t, t + 1)
        run = kda(
            q=part["q"][here],
            k=part["k"][here],
            v=part["v"][here],
            f=part["f"][here],
            b=part["b"][here],
            a_log=gate["a_log"],
            dt_bias=gate["dt_bias"],
            lower_bound=lower_bound,
            state=S,
        )
        spread = _grown(spread, S, step, t, rounding)
        S, out[t] = run.state, run.out[0]
        squares = S**2
        if (t + 1) % rounding.state_every == 0:
            spread[0][:] += rounding.state**2 * squares
        variance = spread[0] + spread[1] if rounding.chunk > 1 else spread[0]
        q2 = step.q[t, :, None, :] ** 2
        read = rounding.operands**2 * ((q2 @ squares)[:, 0] + 4.0 * out[t] ** 2)
        scale[t] = np.sqrt(read + (q2 @ variance)[:, 0]) + rounding.out * np.abs(out[t])
    variance = spread[0] + spread[1]
    stored = np.sqrt(variance) + (rounding.state + rounding.operands) * np.abs(S)
    return {
        "out": Expected(values=out, scale=scale + floor, axes=("token", "head", "value")),
        "final_state": Expected(
            values=np.ascontiguousarray(S.swapaxes(1, 2))[None],
            scale=np.ascontiguousarray(stored.swapaxes(1, 2))[None] + floor,
            axes=("sequence", "head", "value", "key"),
        ),
    }


def _grown(
    spread: tuple[Array, Array], S: Array, step: _Step, t: int, rounding: Rounding
) -> tuple[Array, Array]:
    """E and W after token ``t``; ``S`` is the state before it."""
    decay, k = step.decay[t, :, :, None], step.k[t, :, None, :]
    k2 = (k**2).swapaxes(1, 2)
    beta = step.beta[t, :, :, None]
    kept = decay * S
    recalled = (k @ kept)[:, 0]
    products = 2.0 * step.v[t] ** 2 + recalled**2 + (k**2 @ kept**2)[:, 0]
    written = k2 * (rounding.operands * beta) ** 2 * products[:, None, :]
    relative = rounding.sums * (4.0 + step.travel)[:, :, None]
    faded = decay**2 * spread[0] + (relative * kept) ** 2
    mapped = faded * (1.0 - 2.0 * beta * k2) + k2 * beta**2 * (k**2 @ faded)
    grown: Array = np.maximum(mapped, 0.0) + written
    inside: Array = decay**2 * (1.0 - 1.0 / rounding.chunk) * spread[1] + written
    return grown, inside


def _steps(part: Mapping[str, Array], gate: Mapping[str, Array], lower_bound: float) -> _Step:
    key = part["q"].shape[-1]
    g = lower_bound_gate(
        part["f"], a_log=gate["a_log"], dt_bias=gate["dt_bias"], lower_bound=lower_bound
    )
    windows = [np.sum(np.abs(g[i : i + WINDOW]), axis=0) for i in range(0, len(g), WINDOW)]
    return _Step(
        q=l2_norm(part["q"], eps=1e-6) * key**-0.5,
        k=l2_norm(part["k"], eps=1e-6),
        decay=np.exp(g),
        beta=sigmoid(part["b"])[..., None],
        v=part["v"],
        travel=np.max(np.stack(windows), axis=0) if windows else np.zeros(g.shape[1:]),
    )
