"""A project with the small model in a folder, and recordings of it through the torch backend."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from tests.unit.models.small import SMALL, small_weights
from validate.capture import CaptureReader, open_capture
from validate.capture.backends import torch_model
from validate.models import save_weights
from validate.schema import Manifest, ModelConfig, Prompt

__all__ = ["CONFIG", "ONE", "PROMPTS", "expected_names", "make_project", "opened", "record"]

CONFIG: ModelConfig = SMALL.model_copy(update={"vocab_size": 21, "tokenizer_length": 19})

PROMPTS = (
    Prompt(id="plain", token_ids=(1, 5, 9, 2, 6), prompt_length=3, score_stride=4),
    Prompt(
        id="inside",
        token_ids=(3, 1, 4, 1, 5, 9, 2, 6, 5, 3, 5),
        prompt_length=4,
        tags=("tensors", "state"),
    ),
    Prompt(id="two", token_ids=(8, 9), prompt_length=1, tags=("tensors",)),
    Prompt(id="one", token_ids=(7,), prompt_length=1, tags=("tensors", "state")),
    Prompt(id="other", token_ids=(2, 7, 1), prompt_length=2, tags=("short",)),
)
"""Prompts that are looked inside of stand between others, with odd, even and single lengths."""

ONE = PROMPTS[:1]
"""Enough where only the manifest counts."""

TOML = """
schema_version = 1
suite = "suite.toml"
calibration = "calibration.toml"
runs = "runs"
reports = "reports"
weights = "weights"
model_config = "config.json"
[targets.reference]
kind = "torch"
title = "reference"
path = "reference"
"""


def make_project(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Write a project with two seeds of weights, and work in it."""
    (folder / "weights").mkdir()
    (folder / "validate.toml").write_text(TOML)
    (folder / "config.json").write_text(json.dumps(CONFIG.model_dump(mode="json")))
    for seed in (1, 2):
        weights = small_weights(CONFIG, seed=seed)
        save_weights(weights, folder / f"weights/seed{seed}.safetensors", metadata={})
    monkeypatch.chdir(folder)
    return folder


def record(
    out: str,
    path: str = "reference",
    options: Mapping[str, str] | None = None,
    *,
    prompts: Sequence[Prompt] = PROMPTS,
    **changes: Any,
) -> Manifest:
    """Record into the folder ``out`` of the project."""
    fields: dict[str, Any] = {
        "path": path,
        "options": options or {},
        "target": f"{path}:test",
        "prompts": prompts,
        "prompt_set": "test",
        "out": Path(out),
        "device": "cpu",
    }
    return torch_model.record(**{**fields, **changes})


_ROWS: dict[str, tuple[str, ...]] = {
    "logits": ("rows", "vocab"),
    "logits.positions": ("rows",),
    "stream.logits": ("steps", "vocab"),
    "renorm.positions": ("rows",),
    "renorm.in": ("rows", "vocab"),
    "renorm.top_k": ("rows",),
    "renorm.top_p": ("rows",),
    "renorm.out": ("rows", "vocab"),
    "renorm.in_after_sha256": ("bytes",),
}
_MODE_ROWS: dict[str, tuple[str, ...]] = {
    "positions": ("rows",),
    **{f"attn.{layer}.in": ("rows", "hidden") for layer in range(5)},
    **{f"hidden.{layer}": ("rows", "hidden") for layer in range(5)},
    **{f"kda.{layer}.out": ("rows", "heads", "value") for layer in (0, 2, 3)},
    **{f"mla.{layer}.out": ("rows", "heads", "value") for layer in (1, 4)},
    **{f"mla.{layer}.lse": ("rows", "heads") for layer in (1, 4)},
    **{f"router.{layer}.scores": ("rows", "experts") for layer in (1, 2, 3, 4)},
    **{f"router.{layer}.ids": ("rows", "choice") for layer in (1, 2, 3, 4)},
    **{f"router.{layer}.weights": ("rows", "choice") for layer in (1, 2, 3, 4)},
}
_STATE_ROWS: dict[str, tuple[str, ...]] = {
    **{f"kda.{layer}": ("heads", "key", "value") for layer in (0, 2, 3)},
    **{f"conv.{layer}": ("qkv", "channels", "taps") for layer in (0, 2, 3)},
    **{f"kv.{layer}": ("tokens", "latent") for layer in (1, 4)},
}


def opened(out: str) -> CaptureReader:
    """Read what was recorded into ``out``."""
    return open_capture(Path(out), label=out)


def expected_names(prompt: Prompt) -> dict[str, tuple[str, ...]]:
    """Every tensor that ``docs/capture-format.md`` asks for, with its axes, spelled out.

    The inputs of the prefix that decode starts from (``decode.prefix.attn.L.in``)
    are there when it has a token.
    """
    found = dict(_ROWS)
    if "tensors" in prompt.tags:
        found["decode.logits"] = ("rows", "vocab")
        for mode in ("prefill", "decode"):
            found |= {f"{mode}.{name}": axes for name, axes in _MODE_ROWS.items()}
        if len(prompt.token_ids) > 1:
            found |= {f"decode.prefix.attn.{layer}.in": ("rows", "hidden") for layer in range(5)}
    if "state" in prompt.tags:
        for how in ("oneshot", "chunked", "decode"):
            found |= {f"state.{how}.{name}": axes for name, axes in _STATE_ROWS.items()}
    return found
