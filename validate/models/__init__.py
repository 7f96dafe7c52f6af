"""A Kimi-K3-shaped PyTorch model with a reference path and an emulated ROCm path."""

from validate.models.configs import KIMI_K3, load_config
from validate.models.generate import GreedyStreams, decode_forced, greedy, prefill, right_padded
from validate.models.model import State, empty_state, forward
from validate.models.options import (
    DTYPES,
    FAULTS,
    REFERENCE_FAULTS,
    SPECULATIVE_FAULTS,
    PathOptions,
)
from validate.models.renorm import RENORM_FAULTS, RULES, TieRule, renorm
from validate.models.trace import SILENT, Silent, Trace
from validate.models.weights import initialise, load_weights, save_weights, weight_shapes

__all__ = [
    "DTYPES",
    "FAULTS",
    "KIMI_K3",
    "REFERENCE_FAULTS",
    "RENORM_FAULTS",
    "RULES",
    "SILENT",
    "SPECULATIVE_FAULTS",
    "GreedyStreams",
    "PathOptions",
    "Silent",
    "State",
    "TieRule",
    "Trace",
    "decode_forced",
    "empty_state",
    "forward",
    "greedy",
    "initialise",
    "load_config",
    "load_weights",
    "prefill",
    "renorm",
    "right_padded",
    "save_weights",
    "weight_shapes",
]
