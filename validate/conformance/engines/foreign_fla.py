"""fla-core's KDA kernels behind the contracts: flash-linear-attention, Triton.

The adapters pass everything raw and let the kernels normalise q and k, make the gate and
beta inside (``use_qk_l2norm_in_kernel``, ``use_gate_in_kernel``, ``lower_bound``,
``use_beta_sigmoid_in_kernel``). Packed sequences go in as one batch row with
``cu_seqlens``. Read off fla-core 0.6.0, ``fla/ops/kda/chunk.py`` and ``fused_recurrent.py``.
"""

import importlib
import importlib.util
from functools import partial
from typing import Any

import torch
from torch import Tensor

from validate.conformance.records import Implementation

__all__ = ["IMPLEMENTATIONS", "available", "chunk_kda", "fused_recurrent_kda"]


def available() -> str | None:
    """Why fla's kernels cannot run here; None when they can be imported and a GPU is there."""
    for package in ("fla", "triton"):
        if importlib.util.find_spec(package) is None:
            return f"the package '{package}' is not installed (fla-core, triton)"
    if not torch.cuda.is_available():
        return "fla's kernels need a GPU; there is none here"
    try:
        importlib.import_module("fla.ops.kda")
    except Exception as error:  # noqa: BLE001  a foreign package may fail in any way
        return f"importing fla.ops.kda failed: {type(error).__name__}: {error}"
    return None


def _packed(
    q: Tensor, k: Tensor, v: Tensor, f: Tensor, b: Tensor, dt_bias: Tensor
) -> dict[str, Tensor]:
    """Arguments that both kernels take, with a batch axis of one."""
    rows = {"q": q, "k": k, "v": v, "g": f, "beta": b}
    return {**{name: x.unsqueeze(0) for name, x in rows.items()}, "dt_bias": dt_bias.reshape(-1)}


_INSIDE: dict[str, Any] = {
    "output_final_state": True,
    "use_qk_l2norm_in_kernel": True,
    "use_gate_in_kernel": True,
    "use_beta_sigmoid_in_kernel": True,
}


def chunk_kda(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    f: Tensor,
    b: Tensor,
    a_log: Tensor,
    dt_bias: Tensor,
    lower_bound: float,
    initial_state: Tensor | None,
    cu_seqlens: Tensor,
    *,
    v_first: bool = False,
    safe_gate: bool = True,
) -> tuple[Tensor, Tensor]:
    """``kda_chunk`` by ``fla.ops.kda.chunk_kda``, chunks of 64."""
    kernel = importlib.import_module("fla.ops.kda").chunk_kda
    out, state = kernel(
        **_packed(q, k, v, f, b, dt_bias),
        A_log=a_log,
        lower_bound=lower_bound,
        initial_state=initial_state,
        cu_seqlens=cu_seqlens,
        state_v_first=v_first,
        safe_gate=safe_gate,
        **_INSIDE,
    )
    return out.squeeze(0), state


def fused_recurrent_kda(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    f: Tensor,
    b: Tensor,
    a_log: Tensor,
    dt_bias: Tensor,
    lower_bound: float,
    states: Tensor | None,
    slots: Tensor | None,
    cu_seqlens: Tensor,
    *,
    v_first: bool = False,
) -> tuple[Tensor, Tensor]:
    """``kda_recurrent`` by ``fla.ops.kda.fused_recurrent_kda``; the slots are gathered before."""
    kernel = importlib.import_module("fla.ops.kda").fused_recurrent_kda
    out, state = kernel(
        **_packed(q, k, v, f, b, dt_bias),
        A_log=a_log,
        lower_bound=lower_bound,
        initial_state=None if states is None or slots is None else states[slots],
        cu_seqlens=cu_seqlens,
        state_v_first=v_first,
        **_INSIDE,
    )
    return out.squeeze(0), state


_RANK = {"shape": "12x128", "dtype": "bfloat16"}
"""One of eight ranks of Kimi K3: every other shape or dtype is compiled anew, minutes each."""

IMPLEMENTATIONS: tuple[Implementation, ...] = (
    Implementation(
        name="fla:chunk_kda",
        op="kda_chunk",
        function=chunk_kda,
        title="fla-core chunk_kda, safe gate, 12 heads x 128, bfloat16",
        devices=("cuda",),
        settings=_RANK,
    ),
    Implementation(
        name="fla:chunk_kda-v-first",
        op="kda_chunk",
        function=partial(chunk_kda, v_first=True),
        title="fla-core chunk_kda over V-first states",
        devices=("cuda",),
        settings={**_RANK, "layout": "v_first"},
    ),
    Implementation(
        name="fla:chunk_kda-plain-gate",
        op="kda_chunk",
        function=partial(chunk_kda, safe_gate=False),
        title="fla-core chunk_kda without its safe-gate path",
        devices=("cuda",),
        settings=_RANK,
    ),
    Implementation(
        name="fla:fused_recurrent_kda",
        op="kda_recurrent",
        function=fused_recurrent_kda,
        title="fla-core fused_recurrent_kda, 12 heads x 128",
        devices=("cuda",),
        settings={"shape": "12x128"},
    ),
    Implementation(
        name="fla:fused_recurrent_kda-v-first",
        op="kda_recurrent",
        function=partial(fused_recurrent_kda, v_first=True),
        title="fla-core fused_recurrent_kda over V-first states",
        devices=("cuda",),
        settings={"shape": "12x128", "layout": "v_first"},
    ),
)
"""What is judged of fla-core."""
