"""Logits with known divergences, and pairs that no logits metric can measure."""

import math
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tests.fakes import FakeSide, make_pair, make_prompt, with_positions
from validate.schema import Levels, Measurement, Pair

LEVELS = Levels(low=0.99, high=0.95)

EVEN = (0.0, 0.0)
"""Logits of p = (1/2, 1/2)."""


def row_at(kl: float) -> tuple[float, float]:
    """Logits of q with KL(even || q) = kl: q = 1/2 +- d, KL = -1/2 ln(1 - 4 d^2)."""
    d = 0.5 * math.sqrt(-math.expm1(-2.0 * kl))
    return math.log1p(2 * d), math.log1p(-2 * d)


def kl_pair(rows: Mapping[str, Sequence[float]], **settings: Any) -> Pair:
    """A pair whose prompt ``p`` has KL ``rows[p][i]`` at position i."""
    ref = with_positions({prompt: [EVEN for _ in kls] for prompt, kls in rows.items()})
    cand = with_positions({prompt: [row_at(kl) for kl in kls] for prompt, kls in rows.items()})
    return make_pair(ref, cand, **settings)


def assert_why(found: Measurement, pattern: str) -> None:
    """Require the reason for an undefined value to match ``pattern``."""
    assert found.why_undefined is not None
    assert re.search(pattern, found.why_undefined), found.why_undefined


def ladder(prompts: int) -> dict[str, tuple[float, float]]:
    """Prompt i of n with rows whose mean is (i + 1) mnats and whose sum is twice that."""
    return {f"p-{i:02d}": (0.5e-3 * (i + 1), 1.5e-3 * (i + 1)) for i in range(prompts)}


def one(ref: Any, cand: Any, **settings: Any) -> Pair:
    """A pair of one prompt ``p-0`` from two matrices of logits."""
    return make_pair(with_positions({"p-0": ref}), with_positions({"p-0": cand}), **settings)


def _two() -> tuple[dict[str, dict[str, NDArray[Any]]], dict[str, dict[str, NDArray[Any]]]]:
    ref = with_positions({"p-0": np.zeros((3, 4)), "p-1": np.zeros((2, 4))})
    cand = with_positions({"p-0": np.zeros((3, 4)), "p-1": np.zeros((2, 4))})
    return ref, cand


def _value(side: str, value: float) -> Callable[[], Pair]:
    def make() -> Pair:
        ref, cand = _two()
        (ref if side == "ref" else cand)["p-1"]["logits"][1, 2] = value
        return make_pair(ref, cand)

    return make


def _no_logits(side: str) -> Callable[[], Pair]:
    def make() -> Pair:
        ref, cand = _two()
        for label, tensors in (("ref", ref), ("cand", cand)):
            if side in (label, "both"):
                del tensors["p-1"]["logits"]
        prompts = {"p-0": make_prompt("p-0", [1, 2, 3]), "p-1": make_prompt("p-1", [1, 2])}
        return make_pair(ref, cand, prompts=prompts)

    return make


def _shifted_positions() -> Pair:
    ref, cand = _two()
    cand["p-1"]["logits.positions"] = np.array([0, 2], dtype=np.int32)
    return make_pair(ref, cand)


def _a_row_lost_on_both_sides() -> Pair:
    ref, cand = _two()
    for tensors in (ref, cand):
        tensors["p-1"] = {name: array[:1] for name, array in tensors["p-1"].items()}
    prompts = {"p-0": make_prompt("p-0", [1, 2, 3]), "p-1": make_prompt("p-1", [1, 2])}
    return make_pair(ref, cand, prompts=prompts)


def _unlike_vocabulary() -> Pair:
    ref, cand = _two()
    cand["p-1"]["logits"] = np.zeros((2, 5))
    return make_pair(ref, cand)


def _token_outside() -> Pair:
    prompts = {"p-0": make_prompt("p-0", [1, 2, 3]), "p-1": make_prompt("p-1", [1, 9])}
    return make_pair(*_two(), prompts=prompts)


def _no_prompts() -> Pair:
    return make_pair(FakeSide("cuda", {}), FakeSide("rocm", {}))


def _stream_rows(ref: int, cand: int) -> Callable[[], Pair]:
    def make() -> Pair:
        sides = _two()
        for tensors, rows in zip(sides, (ref, cand), strict=True):
            for prompt in ("p-0", "p-1"):
                tensors[prompt]["stream.logits"] = np.zeros((rows, 4))
        streams = {"p-0": [0, 0], "p-1": [0, 0]}
        return make_pair(*sides, ref_streams=streams, cand_streams=streams)

    return make


NONFINITE: Mapping[str, tuple[Callable[[], Pair], str]] = {
    "nan in cand": (
        _value("cand", math.nan),
        r"^1 logits are not finite; .* cand 'rocm' prompt p-1 logits position 1: 1 NaN, first at row 1 id 2$",
    ),
    "nan in ref": (_value("ref", math.nan), r"ref 'cuda' prompt p-1 logits position 1: 1 NaN"),
    "+inf in cand": (
        _value("cand", math.inf),
        r"cand 'rocm' prompt p-1 .* 1 \+inf, first at row 1",
    ),
    "-inf in cand alone": (_value("cand", -math.inf), r"cand 'rocm' prompt p-1 .* 1 -inf"),
    "-inf in ref alone": (_value("ref", -math.inf), r"ref 'cuda' prompt p-1 .* 1 -inf"),
}
"""Pairs that hold values which are no logits, and the reason to be given."""

UNPAIRED: Mapping[str, tuple[Callable[[], Pair], str, str]] = {
    "none in cand": (
        _no_logits("cand"),
        "unlike",
        r"prompt p-1 holds no logits in rocm; capture rocm anew with it$",
    ),
    "none in ref": (
        _no_logits("ref"),
        "unlike",
        r"prompt p-1 holds no logits in cuda; capture cuda anew with it$",
    ),
    "none at all": (_no_logits("both"), "no_data", r"p-1 holds no logits in cuda and rocm"),
    "other positions": (
        _shifted_positions,
        "unlike",
        r"prompt p-1 logits: logits.positions differ between cuda and rocm",
    ),
    "a row lost on both sides": (
        _a_row_lost_on_both_sides,
        "unlike",
        r"prompt p-1 logits: 1 stored positions are not those that 2 tokens score",
    ),
    "other vocabulary": (
        _unlike_vocabulary,
        "unlike",
        r"prompt p-1 logits: ref has shape \(2, 4\) at 2 positions, cand \(2, 5\)",
    ),
    "a token outside the vocabulary": (
        _token_outside,
        "unlike",
        r"prompt p-1 logits: the prompt holds token 9, the vocabulary 4 ids",
    ),
    "no prompts": (_no_prompts, "no_data", r"no logits in any of 0 prompts"),
    "stream rows lost in cand": (
        _stream_rows(2, 1),
        "unlike",
        r"rocm prompt p-0: stream.logits has 1 rows for a stream of 2 tokens",
    ),
}
"""Pairs that cannot be set against each other, what that is to a gate, and the reason."""
