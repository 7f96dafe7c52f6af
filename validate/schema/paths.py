"""Which branches a target's name promises: the table behind ``yardstick.path_proof``."""

from collections.abc import Mapping
from dataclasses import dataclass

__all__ = [
    "OPTION_BRANCHES",
    "PAD_BRANCHES",
    "PATHS",
    "PROMPTED",
    "TARGET_PATHS",
    "UNDRAFTED",
    "PathRule",
]


@dataclass(frozen=True, slots=True, kw_only=True)
class PathRule:
    """What must and what must not have run."""

    requires: tuple[str, ...]
    forbids: tuple[str, ...] = ()


TARGET_PATHS: Mapping[str, str] = {
    "cuda": "reference",
    "reference": "reference",
    "rocm": "rocm",
    "oracle": "oracle",
}
"""Path that a target's name promises; ``cuda-repeat-2`` counts as ``cuda``."""

PATHS: Mapping[str, PathRule] = {
    "reference": PathRule(
        requires=(
            "mla.prefill.decompressed",
            "mla.decode.decompressed",
            "kda.chunk",
            "kda.recurrent",
        ),
        forbids=("mla.decode.absorbed",),
    ),
    "rocm": PathRule(
        requires=("mla.decode.absorbed", "lse_merge", "kda.chunk", "kda.recurrent"),
        forbids=("mla.prefill.decompressed", "mla.decode.decompressed"),
    ),
    "oracle": PathRule(requires=("oracle.prefill",)),
}

PAD_BRANCHES: Mapping[str, tuple[str, str]] = {
    "zero": ("mla.prefill.padded.zero", "mla.decode.pad.zero"),
    "tile": ("mla.prefill.padded.tile", "mla.decode.pad.tile"),
    "repeat": ("mla.prefill.padded.zero", "mla.decode.pad.repeat"),
}
"""Branches of the rocm path by option ``pad``; 12 heads cannot be repeated to 16, so prefill
keeps ``zero``. Without the option ``pad`` is ``zero``; a planted fault may set another."""

OPTION_BRANCHES: Mapping[tuple[str, str], str] = {
    ("prefill", "fp8"): "mla.prefill.fp8.float8_e4m3fn",
    ("prefill", "fp8-fnuz"): "mla.prefill.fp8.float8_e4m3fnuz",
    ("state", "bf16"): "kda.state.bfloat16",
    ("renorm", "all"): "renorm.all",
    ("renorm", "exactly_k"): "renorm.exactly_k",
    ("draft", "on"): "draft.block",
    ("draft", "onehot"): "draft.block",
    ("verifier", "chain"): "verify.chain",
    ("verifier", "target_only"): "verify.target_only",
    ("verifier", "exact_match"): "verify.exact_match",
    ("build", "dense"): "sampler.dense",
    ("build", "sparse"): "sampler.sparse",
}
"""Branch that an option and its value promise. A branch that no set option promises is forbidden."""

UNDRAFTED = ("verifier",)
"""Options that promise nothing where ``draft`` is ``off``."""

PROMPTED = ("renorm", "draft", "verifier", "build")
"""Options that promise nothing of a capture without prompts: evals neither draw nor draft."""
