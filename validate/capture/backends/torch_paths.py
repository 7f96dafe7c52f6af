"""A target's keys as switches of the torch model, and the model with them, ready to run."""

from collections.abc import Mapping
from typing import Any

from validate.capture.backends.torch_batch import Runner
from validate.capture.backends.torch_renorm import RENORM_RULE
from validate.capture.project import DEFAULT_WEIGHTS, Project
from validate.errors import InputError
from validate.models import (
    DTYPES,
    REFERENCE_FAULTS,
    RENORM_FAULTS,
    RULES,
    PathOptions,
    TieRule,
    Trace,
    load_config,
    load_weights,
)

__all__ = ["PATH_DEFAULTS", "make_runner", "path_options", "renorm_rule"]

PATH_DEFAULTS: Mapping[str, Mapping[str, str]] = {
    "reference": {"batch": "8", "chunk": "0", "splits": "1", "renorm": RENORM_RULE["reference"]},
    "rocm": {"batch": "8", "chunk": "32", "splits": "4", "renorm": RENORM_RULE["rocm"]},
}
_STATE_CHUNK = 8
"""Most tokens a pass of the ``chunked`` state capture takes."""
_FAULT_PAD = {"VX-01": "repeat"}
"""The pad that a planted fault needs to have a site."""


def path_options(path: str, options: Mapping[str, str]) -> PathOptions:
    """The model's switches for a target's keys; ``pad=repeat`` sets decode, prefill stays ``zero``.

    Raises:
        InputError: A key that the path does not read, a fault without a site, or a bad value.
    """
    fault = options.get("fault")
    pad = options.get("pad") or _FAULT_PAD.get(fault or "", "zero")
    switches: dict[str, Any] = {
        "path": path,
        "dtype": DTYPES[options.get("dtype", "bfloat16")],
        "state": options.get("state", "fp32"),
        "splits": int(options.get("splits", PATH_DEFAULTS[path]["splits"])),
        "fault": fault,
    }
    if path == "rocm":
        switches |= {
            "prefill_pad": "tile" if pad == "tile" else "zero",
            "decode_pad": pad,
            "prefill": options.get("prefill", "bf16"),
        }
    _require_site(
        path, fault, pad=pad, splits=switches["splits"], renorm=renorm_rule(path, options)
    )
    _require_read(path, options)
    return PathOptions(**switches)


def renorm_rule(path: str, options: Mapping[str, str]) -> TieRule:
    """The tie rule that a target's key ``renorm`` names, else the path's own.

    Raises:
        InputError: There is no such rule.
    """
    asked = options.get("renorm", RENORM_RULE[path])
    for rule in RULES:
        if asked == rule:
            return rule
    msg = f"renorm={asked}: must be one of {', '.join(RULES)}"
    raise InputError(msg)


def _require_site(path: str, fault: str | None, *, pad: str, splits: int, renorm: TieRule) -> None:
    """Refuse a fault whose mechanism the other keys leave no place: it would record a clean run.

    Raises:
        InputError: It has no site.
    """
    wanted = _FAULT_PAD.get(fault or "")
    why = None
    if fault is not None and path != "rocm" and fault not in REFERENCE_FAULTS:
        why = f"path '{path}' has no padded heads and no kernel-like merge"
    elif wanted is not None and pad != wanted:
        why = f"pad={pad}, and its site is the unpad of pad={wanted}"
    elif fault == "VX-02" and pad == "repeat":
        why = "pad=repeat, and its site is the packed read of 16 padded heads"
    elif fault in RENORM_FAULTS and renorm != "exactly_k":
        why = f"renorm={renorm}, and its site is the scatter of renorm=exactly_k"
    elif fault == "LC-01" and splits == 1:
        why = "splits=1, and its site is the merge of two parts or more"
    if why is not None:
        msg = (
            f"fault={fault} has no site here: {why}\n"
            "  do next: leave out the other key; the fault sets what it needs"
        )
        raise InputError(msg)


def _require_read(path: str, options: Mapping[str, str]) -> None:
    """Refuse a key that the path would ignore: the manifest would tell of a run that never was.

    Raises:
        InputError: Names the key.
    """
    for key in ("pad", "prefill"):
        if path == "reference" and key in options:
            msg = (
                f"{key}={options[key]}: path 'reference' does not read the key '{key}'\n"
                f"  do next: leave out {key}, or take the path rocm"
            )
            raise InputError(msg)


def make_runner(path: str, options: Mapping[str, str], *, project: Project, device: str) -> Runner:
    """Load the weights that ``options`` name onto a device of torch, with the path's switches.

    Raises:
        InputError: An option or the weights do not fit.
    """
    config = load_config(project.model_config_file)
    switches = path_options(path, options)
    weights = project.weights / f"{options.get('weights', DEFAULT_WEIGHTS)}.safetensors"
    chunk = int(options.get("chunk", PATH_DEFAULTS[path]["chunk"]))
    return Runner(
        weights=load_weights(weights, config, dtype=switches.dtype, device=device),
        config=config,
        options=switches,
        device=device,
        chunk=chunk,
        state_chunk=min(chunk or _STATE_CHUNK, _STATE_CHUNK),
        renorm=renorm_rule(path, options),
        trace=Trace(wants=lambda _: False),
    )
