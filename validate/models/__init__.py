"""A Kimi-K3-shaped PyTorch model with a reference path and an emulated ROCm path."""

from validate.models.configs import KIMI_K3, load_config
from validate.models.generate import GreedyStreams, decode_forced, greedy, prefill, right_padded
from validate.models.model import State, empty_state, forward
from validate.models.options import DTYPES, FAULTS, PathOptions
from validate.models.trace import SILENT, Silent, Trace
from validate.models.weights import initialise, load_weights, save_weights, weight_shapes

__all__ = [
    "DTYPES",
    "FAULTS",
    "KIMI_K3",
    "SILENT",
    "GreedyStreams",
    "PathOptions",
    "Silent",
    "State",
    "Trace",
    "decode_forced",
    "empty_state",
    "forward",
    "greedy",
    "initialise",
    "load_config",
    "load_weights",
    "prefill",
    "right_padded",
    "save_weights",
    "weight_shapes",
]
