"""KDA's oracle on a packed batch, and the rounding error that a right kernel makes.

The error model works by columns. A column s of the state (one value channel of one head)
obeys ``s <- (I - beta k k^T) Diag(e^g) s + beta k v``; with ||k|| = 1 and 0 <= beta <= 1
that map never lengthens an error, and the decay shortens it by ``d = max_c e^(g_c)``. So
a column error e_t (its length) obeys ``e_t^2 <= (d e_(t-1))^2 + m_t^2``, where m_t is
what token t adds:

    m_t = u_acc (4 + G) ||s||                     decay: exp, and its exponent of size G
        + u_op beta (2|v| + ||k||_inf ||s||)      rounded operands of write (two) and recall
        + u_state ||s||                           where the state is stored in a narrow dtype

u_op is the roundoff of what products are fed with, u_acc that of sums. G is the largest
sum of |g| over 64 tokens (a kernel may keep running sums over chunks that long). The
output adds its read-out and its rounding,
``u_out |o| + u_op ||q||_inf ||s|| + ||q|| e_t``: a dot product with independently rounded
entries errs by ``u sqrt(sum q_c^2 s_c^2) <= u ||q||_inf ||s||``.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from validate.conformance.ops._packed import bounds
from validate.conformance.ops._rounding import Expected
from validate.numerics import to_float64
from validate.oracle import kda, l2_norm, lower_bound_gate, sigmoid

__all__ = ["Rounding", "kda_truth"]

Array = NDArray[np.float64]

WINDOW = 64
"""Longest chunk over which a kernel may keep a running sum of log decays, in tokens."""
TINY = 2.0**-126
"""Smallest normal float32."""
_STRIDE = 8
"""Tokens between two states taken from the oracle; between them their size is bounded."""


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
    state_every: int
    """Tokens between two stores of the state that are read again."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Step:
    """What the error recursion reads of every token; [tokens, heads] or with a last axis."""

    q_length: Array
    q_peak: Array
    k_peak: Array
    beta: Array
    keep: Array
    v: Array
    travel: float


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
    error = np.zeros((heads, value))
    # What falls below the smallest normal float32 may be flushed to zero.
    floor = TINY * float(1.0 + sum(np.max(np.abs(x), initial=0.0) for x in (part["v"], S)))
    outs, scales = [np.zeros((0, heads, value))], [np.zeros((0, heads, value))]
    for start in range(0, tokens, _STRIDE):
        end = min(start + _STRIDE, tokens)
        size = np.sqrt(np.sum(S**2, axis=1))
        run = kda(
            q=part["q"][start:end],
            k=part["k"][start:end],
            v=part["v"][start:end],
            f=part["f"][start:end],
            b=part["b"][start:end],
            a_log=gate["a_log"],
            dt_bias=gate["dt_bias"],
            lower_bound=lower_bound,
            state=S,
        )
        S = run.state
        outs.append(run.out)
        for t in range(start, end):
            error, size = _error_step(step, t, error, size, rounding)
            scale = rounding.operands * step.q_peak[t] * size + step.q_length[t] * error
            scales.append((rounding.out * np.abs(run.out[t - start]) + scale + floor)[None])
    columns = S.swapaxes(1, 2)
    spread = error[:, :, None] / np.sqrt(key)
    stored = (rounding.state + rounding.operands) * np.abs(columns)
    return {
        "out": Expected(
            values=np.concatenate(outs),
            scale=np.concatenate(scales),
            axes=("token", "head", "value"),
        ),
        "final_state": Expected(
            values=columns[None],
            scale=(spread + stored + floor)[None],
            axes=("sequence", "head", "value", "key"),
        ),
    }


def _error_step(
    step: _Step, t: int, error: Array, size: Array, rounding: Rounding
) -> tuple[Array, Array]:
    """One token of the recursion: length of each column's error, bound of each column's length."""
    kept = step.keep[t] * size
    beta, v = step.beta[t], np.abs(step.v[t])
    after = kept + beta * v
    made = rounding.sums * (4.0 + step.travel) * kept
    made = made + rounding.operands * beta * (2.0 * v + step.k_peak[t] * kept)
    stored = rounding.state if (t + 1) % rounding.state_every == 0 else rounding.sums
    made = made + stored * after
    grown: Array = np.sqrt((step.keep[t] * error) ** 2 + made**2)
    return grown, after


def _steps(part: Mapping[str, Array], gate: Mapping[str, Array], lower_bound: float) -> _Step:
    key = part["q"].shape[-1]
    q = l2_norm(part["q"], eps=1e-6) * key**-0.5
    k = l2_norm(part["k"], eps=1e-6)
    g = lower_bound_gate(
        part["f"], a_log=gate["a_log"], dt_bias=gate["dt_bias"], lower_bound=lower_bound
    )
    chunks = [np.sum(np.abs(g[i : i + WINDOW]), axis=0) for i in range(0, len(g), WINDOW)]
    return _Step(
        q_length=np.sqrt(np.sum(q**2, axis=-1))[..., None],
        q_peak=np.max(np.abs(q), axis=-1)[..., None],
        k_peak=np.max(np.abs(k), axis=-1)[..., None],
        beta=sigmoid(part["b"])[..., None],
        keep=np.exp(np.max(g, axis=-1))[..., None],
        v=part["v"],
        travel=float(np.max(np.stack(chunks))) if chunks else 0.0,
    )
