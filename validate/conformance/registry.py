"""What there is to judge: operations, implementations, and how a name becomes a function."""

import importlib
import importlib.util
import os
import sys
from collections.abc import Callable, Mapping
from typing import Any

from validate.capture.targets import did_you_mean
from validate.conformance.engines import (
    foreign_aiter,
    foreign_fla,
    foreign_flashinfer,
    foreign_sgl_kernel,
    foreign_sgl_sampling,
    foreign_vllm,
    torch_attention,
    torch_linear,
    torch_sampling,
    triton_attention,
    triton_sampling,
)
from validate.conformance.ops import (
    attn_res,
    float8_e4m3fn,
    float8_e4m3fnuz,
    kda_chunk,
    kda_gate,
    kda_recurrent,
    lse_merge,
    min_p,
    mla_decode,
    mla_prefill,
    moe_combine,
    moe_route,
    mxfp4,
    rms_norm,
    sample,
    short_conv,
    situ,
    top_k_renorm_prob,
    top_p_renorm_prob,
    verify_chain,
    verify_exact_match,
    verify_greedy,
    verify_target_only,
)
from validate.conformance.records import Implementation, Operation, Settings
from validate.errors import InputError

__all__ = [
    "FOREIGN",
    "IMPLEMENTATIONS",
    "OPERATIONS",
    "find_implementation",
    "find_operation",
    "settle",
    "unavailable",
]

OPERATIONS: Mapping[str, Operation] = {
    "mla_prefill": mla_prefill.OPERATION,
    "mla_decode": mla_decode.OPERATION,
    "lse_merge": lse_merge.OPERATION,
    "kda_chunk": kda_chunk.OPERATION,
    "kda_recurrent": kda_recurrent.OPERATION,
    "kda_gate": kda_gate.OPERATION,
    "short_conv": short_conv.OPERATION,
    "attn_res": attn_res.OPERATION,
    "moe_route": moe_route.OPERATION,
    "moe_combine": moe_combine.OPERATION,
    "situ": situ.OPERATION,
    "rms_norm": rms_norm.OPERATION,
    "top_k_renorm_prob": top_k_renorm_prob.OPERATION,
    "top_p_renorm_prob": top_p_renorm_prob.OPERATION,
    "min_p": min_p.OPERATION,
    "sample": sample.OPERATION,
    "verify_greedy": verify_greedy.OPERATION,
    "verify_chain": verify_chain.OPERATION,
    "verify_target_only": verify_target_only.OPERATION,
    "verify_exact_match": verify_exact_match.OPERATION,
    "float8_e4m3fn": float8_e4m3fn.OPERATION,
    "float8_e4m3fnuz": float8_e4m3fnuz.OPERATION,
    "mxfp4": mxfp4.OPERATION,
}
"""Every operation by name."""


Foreign = tuple[Callable[[], str | None], tuple[Implementation, ...]]
FOREIGN: Mapping[str, Foreign] = {
    "triton": (
        triton_attention.available,
        (*triton_attention.IMPLEMENTATIONS, *triton_sampling.IMPLEMENTATIONS),
    ),
    "flashinfer": (foreign_flashinfer.available, foreign_flashinfer.IMPLEMENTATIONS),
    "fla": (foreign_fla.available, foreign_fla.IMPLEMENTATIONS),
    "aiter": (foreign_aiter.available, foreign_aiter.IMPLEMENTATIONS),
    "sgl_kernel": (
        foreign_sgl_kernel.available,
        (*foreign_sgl_kernel.IMPLEMENTATIONS, *foreign_sgl_sampling.IMPLEMENTATIONS),
    ),
    "vllm": (foreign_vllm.available, foreign_vllm.IMPLEMENTATIONS),
}
"""Package: why it cannot be used here (None when it can), and what is judged of it."""

IMPLEMENTATIONS: tuple[Implementation, ...] = (
    *torch_attention.IMPLEMENTATIONS,
    *torch_linear.IMPLEMENTATIONS,
    *torch_sampling.IMPLEMENTATIONS,
    *(one for _, known in FOREIGN.values() for one in known),
)
"""Every registered implementation, ours and those of foreign packages."""


def find_operation(name: str) -> Operation:
    """The operation of a name, or of ``module:attribute``.

    Raises:
        InputError: There is none; the nearest names are told.
    """
    if name in OPERATIONS:
        return OPERATIONS[name]
    if ":" in name:
        found = _attribute(name)
        if isinstance(found, Operation):
            return found
        msg = f"'{name}': it is {type(found).__name__}, not an Operation"
        raise InputError(msg)
    msg = (
        f"'{name}': no such operation{did_you_mean(name, OPERATIONS)}\n"
        f"  known here: {', '.join(OPERATIONS)}"
    )
    raise InputError(msg)


def find_implementation(name: str, op: str, *, imports: bool = True) -> Implementation:
    """The implementation of a registered name, or of ``module:function``.

    Args:
        name: ``torch:exactly_k``, else a module that can be imported (the working
            directory counts) and a function in it.
        op: Operation that it is judged as.
        imports: False gives an unregistered function without importing its module; its
            ``function`` then raises, and whoever imports it elsewhere finds out.

    Raises:
        InputError: There is none, it belongs to another operation, or importing it fails.
    """
    named = [one for one in IMPLEMENTATIONS if one.name == name]
    for one in named:
        if one.op == op:
            return one
    here = [one.name for one in IMPLEMENTATIONS if one.op == op]
    known = f"  known for {op}: {', '.join(here) or '(none)'}"
    if named:
        ops = ", ".join(sorted({one.op for one in named}))
        msg = f"'{name}': it implements {ops}, not {op}\n{known}"
        raise InputError(msg)
    module, _, function = name.partition(":")
    if not module or not function:
        msg = (
            f"'{name}': no such implementation{did_you_mean(name, here)}\n{known}\n"
            "  do next: name one of these, or a function of yours as MODULE:FUNCTION"
        )
        raise InputError(msg)
    if not imports:
        return Implementation(name=name, op=op, function=_not_imported, title=name)
    try:
        found = _attribute(name)
    except InputError as error:
        msg = f"{error}{did_you_mean(name, here)}\n{known}"
        raise InputError(msg) from error
    if not callable(found):
        msg = f"'{name}': it is {type(found).__name__}, not a function"
        raise InputError(msg)
    return Implementation(name=name, op=op, function=found, title=_title(found))


def unavailable(implementation: Implementation, device: str) -> str | None:
    """Why an implementation cannot run here on a device; None when it can."""
    for package, (why, known) in FOREIGN.items():
        if implementation in known:
            reason = why()
            if reason is not None:
                return f"{package}: {reason}"
    if device not in implementation.devices:
        return f"{implementation.name} runs on {', '.join(implementation.devices)}, not on {device}"
    if device != "cpu":
        import torch

        if not torch.cuda.is_available():
            return "there is no CUDA device here"
    return None


def settle(
    operation: Operation, wanted: Mapping[str, str], implementation: Implementation | None = None
) -> Settings:
    """Every contract setting: as wanted, else as the implementation declares, else the default.

    Raises:
        InputError: A key or value is none of the contract's; the nearest is told.
    """
    choices = operation.contract.settings
    op = operation.contract.op
    for key, value in wanted.items():
        if key not in choices:
            known = ", ".join(choices) or "(none)"
            msg = (
                f"{key}={value}: {op} has no setting '{key}'{did_you_mean(key, choices)}\n"
                f"  settings of {op}: {known}"
            )
            raise InputError(msg)
        if value not in choices[key]:
            msg = (
                f"{key}={value}: '{value}' is no value of '{key}'"
                f"{did_you_mean(value, choices[key])}\n  values: {', '.join(choices[key])}"
            )
            raise InputError(msg)
    declared = {} if implementation is None else implementation.settings
    return {key: wanted.get(key, declared.get(key, values[0])) for key, values in choices.items()}


def _attribute(name: str) -> Any:
    """What ``module:attribute`` names; the module is imported."""
    module, _, path = name.partition(":")
    here = os.getcwd()  # noqa: PTH109  sys.path holds text
    if here not in sys.path:
        sys.path.insert(0, here)
    try:
        found: Any = importlib.import_module(module)
    except ModuleNotFoundError as error:
        if error.name is not None and (module == error.name or module.startswith(f"{error.name}.")):
            msg = f"'{name}': there is no module '{error.name}' here or installed"
        else:
            msg = f"'{name}': importing '{module}' failed: {error}"
        raise InputError(msg) from error
    except (Exception, SystemExit) as error:
        text = " ".join(str(error).split())[:300]
        msg = f"'{name}': importing '{module}' failed: {type(error).__name__}: {text}"
        raise InputError(msg) from error
    for part in path.split("."):
        if not hasattr(found, part):
            names = [known for known in vars(found) if not known.startswith("_")]
            msg = f"'{name}': module '{module}' has no '{path}'{did_you_mean(path, names)}"
            raise InputError(msg)
        found = getattr(found, part)
    return found


def _not_imported(**_inputs: Any) -> Any:
    msg = "it was not imported in this process"
    raise InputError(msg)


def _title(function: Any) -> str:
    text = (getattr(function, "__doc__", None) or "").strip().partition("\n")[0]
    return text or f"{getattr(function, '__module__', '')}.{getattr(function, '__name__', '')}"
