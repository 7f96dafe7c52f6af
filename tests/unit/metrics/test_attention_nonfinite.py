"""attention.nonfinite: every NaN and infinity inside the pass, on either side, with its place."""

from typing import Any

import numpy as np
import pytest

from tests.fakes import make_pair
from tests.layers import LEVELS, changed, drawn, router
from tests.topk import as_topk
from validate.metrics.attention_nonfinite import attention_nonfinite


def clean() -> dict[str, Any]:
    return {"p-0": {**drawn(seed=1), **router(np.eye(8)[:, :4], [[0]] * 8)}}


def set_at(index: tuple[int, ...], value: float):
    def change(array: np.ndarray) -> np.ndarray:
        array[index] = value
        return array

    return change


def test_clean_captures_count_zero():
    m = attention_nonfinite(make_pair(clean(), clean()), LEVELS)

    assert (m.value, m.unit) == (0.0, "values")
    # Two layers in two modes: in, out, hidden; one LSE each mode; router scores and weights.
    assert (m.n, m.n_of) == (2 * 2 * 3 + 2 + 2, "tensors")
    assert m.worst is None


@pytest.mark.parametrize(
    "name",
    [
        "prefill.attn.0.in",
        "decode.kda.0.out",
        "prefill.mla.1.lse",
        "decode.hidden.1",
        "prefill.router.1.scores",
        "prefill.router.1.weights",
    ],
)
@pytest.mark.parametrize("side", ["ref", "cand"])
def test_one_nan_on_one_side_counts_one(name, side):
    index = (1,) * clean()["p-0"][name].ndim
    index = (1, 0) if name.startswith("prefill.router.1.weights") else index
    broken = {"p-0": changed(clean()["p-0"], **{name.replace(".", "__"): set_at(index, np.nan)})}
    pair = make_pair(broken, clean()) if side == "ref" else make_pair(clean(), broken)
    m = attention_nonfinite(pair, LEVELS)

    assert m.value == 1.0
    assert m.breakdown[side] == 1.0
    assert m.breakdown["places unlike on the two sides"] == 1.0
    assert m.worst is not None
    assert (m.worst.prompt, m.worst.place) == ("p-0", f"{name} index {index}")
    assert m.worst.detail == f"{side} 1 NaN"


def test_the_same_nan_on_both_sides_still_counts():
    """TV-01: NaN equal to NaN is how NaN passes."""
    broken = {"p-0": changed(clean()["p-0"], decode__kda__0__out=set_at((1, 2, 3), np.nan))}
    m = attention_nonfinite(make_pair(broken, broken), LEVELS)

    assert m.value == 2.0
    assert m.breakdown["places unlike on the two sides"] == 1.0


def test_signs_of_infinities_are_told_apart():
    sides = [
        {"p-0": changed(clean()["p-0"], decode__kda__0__out=set_at((1, 2, 3), value))}
        for value in (np.inf, -np.inf)
    ]
    m = attention_nonfinite(make_pair(*sides), LEVELS)

    assert m.value == 2.0
    assert m.breakdown["places unlike on the two sides"] == 1.0
    assert m.worst is not None
    assert m.worst.detail == "ref 1 +inf; cand 1 -inf"


def test_equal_infinities_are_alike_and_count():
    broken = {"p-0": changed(clean()["p-0"], decode__kda__0__out=set_at((1, 2, 3), np.inf))}
    m = attention_nonfinite(make_pair(broken, broken), LEVELS)

    assert (m.value, m.breakdown["places unlike on the two sides"]) == (2.0, 0.0)


def test_the_worst_tensor_is_the_one_with_most():
    broken = {
        "p-0": changed(
            clean()["p-0"],
            decode__kda__0__out=set_at((1, 2, 3), np.nan),
            prefill__hidden__1=lambda a: a * np.nan,
        )
    }
    m = attention_nonfinite(make_pair(clean(), broken), LEVELS)

    assert m.value == 1 + 8 * 16
    assert m.worst is not None
    assert m.worst.place == "prefill.hidden.1 index (0, 0)"
    assert m.worst.value == 128.0


def test_opposite_infinities_in_one_tensor_are_not_lost_in_their_sum():
    """+inf - inf is NaN in a sum; huge finite values overflow it: neither may hide or invent one."""
    both = {"p-0": changed(clean()["p-0"], decode__kda__0__out=two_infinities)}
    huge = {
        "p-0": changed(
            clean()["p-0"], decode__kda__0__out=lambda a: np.full(a.shape, 1e308, np.float64)
        )
    }

    assert attention_nonfinite(make_pair(clean(), both), LEVELS).value == 2.0
    assert attention_nonfinite(make_pair(huge, huge), LEVELS).value == 0.0


def two_infinities(array: np.ndarray) -> np.ndarray:
    array[0, 0, 0], array[1, 0, 0] = np.inf, -np.inf
    return array


def test_no_tensors_is_undefined_not_clean():
    held = {"p-0": {"logits": np.ones((2, 3), np.float32)}}
    m = attention_nonfinite(make_pair(held, held), LEVELS)

    assert m.value is None
    assert "no prompt holds attention tensors" in str(m.why_undefined)


@pytest.mark.parametrize("narrow", ["ref", "cand", "both"])
def test_decode_logits_stored_as_top_k_on_a_side_are_left_to_the_metrics_of_logits(narrow):
    """The two sides hold them under other names, so they cannot be read as one tensor."""
    full = clean()
    full["p-0"]["decode.logits"] = np.eye(4, 6, dtype=np.float32)
    few = as_topk(full, 6)
    ref, cand = (few if narrow in (side, "both") else full for side in ("ref", "cand"))
    m = attention_nonfinite(make_pair(ref, cand), LEVELS)

    assert (m.value, m.n) == (0.0, 16)


def test_full_decode_logits_are_looked_at():
    full, broken = clean(), clean()
    for held in (full, broken):
        held["p-0"]["decode.logits"] = np.eye(4, 6, dtype=np.float32)
    broken["p-0"]["decode.logits"][2, 3] = np.nan

    assert attention_nonfinite(make_pair(full, broken), LEVELS).value == 1.0
