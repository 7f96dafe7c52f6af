"""Repeats, row order and rows alone: what they see and what they let pass."""

from collections.abc import Mapping
from typing import Any

import numpy as np

from validate.conformance.records import Case
from validate.conformance.relations import permuted_rows, repeats, solo_rows

X = np.arange(12, dtype=np.float32).reshape(3, 4)
CASE = Case(id="x", axes={}, inputs={"x": X, "scale": 2.0})
ROWS, OUT = {"x": 0}, {"y": 0}


def doubled(inputs: Mapping[str, Any]) -> Mapping[str, np.ndarray]:
    return {"y": inputs["x"] * inputs["scale"]}


def by_place(inputs: Mapping[str, Any]) -> Mapping[str, np.ndarray]:
    """A row's result depends on where it stands: rows after the first are 1 too large."""
    y = inputs["x"] * inputs["scale"]
    return {"y": y + (np.arange(len(y)) > 0)[:, None]}


def by_count(inputs: Mapping[str, Any]) -> Mapping[str, np.ndarray]:
    y = inputs["x"] * inputs["scale"]
    return {"y": (y + len(y) * 0.25).astype(np.float32)}


class Drifting:
    """Another result at each call."""

    def __init__(self) -> None:
        self.calls = 0

    def __call__(self, inputs: Mapping[str, Any]) -> Mapping[str, np.ndarray]:
        self.calls += 1
        y = inputs["x"] * inputs["scale"]
        y[1, 2] += self.calls
        return {"y": y}


def test_what_keeps_its_rows_breaks_nothing() -> None:
    assert repeats(CASE, doubled) == ()
    assert permuted_rows(CASE, doubled, ROWS, OUT) == ()
    assert solo_rows(CASE, doubled, ROWS, OUT) == ()


def test_drift_between_calls_is_told_with_its_place() -> None:
    (breach,) = repeats(CASE, Drifting())

    assert breach.clause == "repeats"
    assert breach.at == {"axis0": 1, "axis1": 2}
    assert breach.what == (
        "y: 1 of 12 values differ between two equal calls; first at (1, 2): 13 and 14"
    )


def test_base_saves_a_call() -> None:
    call = Drifting()
    repeats(CASE, call, base=call(CASE.inputs), times=3)

    assert call.calls == 2  # the first repeat differs already


def test_place_dependent_row_breaks_the_order() -> None:
    (breach,) = permuted_rows(CASE, by_place, ROWS, OUT)

    assert breach.clause == "row-order"
    assert breach.wrong == {"row": (0, 2)}  # row 1 of 3 stays where it is


def test_row_that_sees_its_batch_breaks_solo_within_no_limit() -> None:
    (breach,) = solo_rows(CASE, by_count, ROWS, OUT)

    assert breach.clause == "solo"
    assert breach.wrong == {"row": (0, 1, 2)}
    assert solo_rows(CASE, by_count, ROWS, OUT, limits={"y": 0.5}) == ()
    assert len(solo_rows(CASE, by_count, ROWS, OUT, limits={"y": 0.49})) == 1


def test_limits_by_element_move_with_their_rows() -> None:
    limits = np.zeros((3, 4))
    limits[2] = 1.0

    (breach,) = solo_rows(CASE, by_count, ROWS, OUT, limits={"y": limits})

    assert breach.wrong == {"row": (0, 1)}


def test_nan_is_never_within_a_limit_unless_its_bits_are_equal() -> None:
    def nan_in_batches(inputs: Mapping[str, Any]) -> Mapping[str, np.ndarray]:
        y = inputs["x"] * inputs["scale"]
        if len(y) > 1:
            y[0, 0] = np.nan
        return {"y": y}

    (breach,) = solo_rows(CASE, nan_in_batches, ROWS, OUT, limits={"y": 1e9})

    assert breach.wrong == {"row": (0,)}
    assert repeats(CASE, nan_in_batches) == ()


def test_one_row_has_nothing_to_compare() -> None:
    one = Case(id="x", axes={}, inputs={"x": X[:1], "scale": 2.0})

    assert permuted_rows(one, by_place, ROWS, OUT) == ()
    assert solo_rows(one, by_count, ROWS, OUT) == ()


def test_chosen_rows_alone() -> None:
    (breach,) = solo_rows(CASE, by_count, ROWS, OUT, only=(2,))

    assert breach.wrong == {"row": (2,)}
