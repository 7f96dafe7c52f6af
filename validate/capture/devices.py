"""Which device a target runs on, and what torch and the system find here."""

import importlib.metadata
import importlib.util
import os
import re
from pathlib import Path

from validate.capture.targets import Target
from validate.errors import InputError

__all__ = ["DEVICES", "card_name", "choose_device", "has_card", "processors"]

DEVICES = ("cpu", "cuda", "rocm")


def choose_device(target: Target, wanted: str | None) -> str:
    """Device that ``target`` runs on: ``cpu``, ``cuda`` or ``rocm``.

    Without ``wanted``, ``rocm`` runs on a ROCm device where there is one and
    everything else on the CPU.

    Raises:
        InputError: torch finds no such device, or the target asks for kernels
            that are not here.
    """
    if wanted is not None and wanted not in DEVICES:
        msg = f"device '{wanted}' is unknown; known: {', '.join(DEVICES)}"
        raise InputError(msg)
    device = wanted or ("rocm" if target.path == "rocm" and has_card("rocm") else "cpu")
    if device != "cpu" and not has_card(device):
        msg = (
            f"device '{device}': torch {importlib.metadata.version('torch')} finds no {device} "
            "device here\n  do next: validate doctor, or --device cpu"
        )
        raise InputError(msg)
    if target.options.get("kernels") == "aiter":
        found = importlib.util.find_spec("aiter") is not None
        msg = (
            f"target '{target.text}': kernels=aiter runs AITER's kernels or nothing, and this "
            f"version calls none of them yet; here: device {device}, package aiter "
            f"{'found' if found else 'not installed'}\n"
            "  do next: kernels=torch (evidence: emulated), or capture with the serving engine "
            "itself in the format of docs/capture-format.md"
        )
        raise InputError(msg)
    return device


def has_card(kind: str) -> bool:
    """Whether torch finds a card of ``kind``; a CPU build answers without being imported."""
    if _build(kind) is None:
        return False
    import torch

    return torch.cuda.is_available()


def _build(kind: str) -> str | None:
    """CUDA or HIP version that torch was built for, read from its files."""
    spec = importlib.util.find_spec("torch")
    if spec is None or spec.origin is None:
        return None
    text = Path(spec.origin).with_name("version.py").read_text("utf-8")
    name = "hip" if kind == "rocm" else "cuda"
    found = re.search(rf"^{name}\b[^=\n]*=\s*['\"]([^'\"]+)['\"]", text, re.MULTILINE)
    return found.group(1) if found else None


def card_name(device: str) -> str:
    """Name of the card that torch runs on; empty on the CPU."""
    if device == "cpu":
        return ""
    import torch

    return str(torch.cuda.get_device_name())


def processors() -> int:
    """Processors that this process may use; decides the default thread count."""
    affinity = getattr(os, "sched_getaffinity", None)
    return len(affinity(0)) if affinity is not None else os.cpu_count() or 1
