"""What the guards see of a bad implementation: each a breach of a named clause."""

import numpy as np
import pytest
import torch

from tests.unit.conformance import tiny
from validate.conformance.banded import bytes_of, overlaps, poisoned_memory, span
from validate.conformance.guard import GENERAL, Broke, direct
from validate.conformance.isolation import guarded
from validate.errors import InputError, ValidateError

SETTINGS = {"sign": "plus"}
CASE = tiny.case(2, 12, 1.0)


def broken(function, case=CASE, **options):
    with pytest.raises(Broke) as caught:
        direct(function, tiny.OPERATION, SETTINGS, **options)(case.inputs)
    assert caught.value.breach.clause in GENERAL
    return caught.value.breach


def test_right_implementation_gives_its_outputs() -> None:
    found = direct(tiny.right, tiny.OPERATION, SETTINGS)(CASE.inputs)

    assert list(found) == ["y"]
    assert (found["y"] == 2 * CASE.inputs["x"] + np.float32(1)).all()


@pytest.mark.parametrize(
    ("name", "clause", "text"),
    [
        ("raises", "returns", "it raised ZeroDivisionError: no kernel for this shape (tiny.py:"),
        ("raises_unprintable", "returns", "it raised _Unprintable: (its message raised _Unprin"),
        ("raises_surrogate", "returns", "it raised RuntimeError: \\udce9t\u00e9 (tiny.py:"),
        ("conjugate_view", "dtype", "output 'y' is complex64, expected float32"),
        ("negative_view_of_input", "own-memory", "output 'y' shares memory with input 'x'"),
        ("leaves", "returns", "it raised SystemExit: 3"),
        ("nothing", "returns", "output 'y' is None, expected a strided tensor"),
        ("two", "returns", "it returned a tuple of 2, expected 1 output(s): 'y'"),
        ("array", "returns", "output 'y' is a ndarray, expected a strided tensor"),
        ("flat", "shape", "output 'y' has shape (24,), expected (2, 12)"),
        ("double_precision", "dtype", "output 'y' is float64, expected float32"),
        ("elsewhere", "device", "output 'y' lies on meta, the inputs on cpu"),
        ("writes_input", "inputs-unchanged", "input 'x': "),
        ("writes_past", "inputs-unchanged", "input 'x': 8 bytes past its end were written"),
        ("view_of_input", "own-memory", "output 'y' shares memory with input 'x'"),
        ("view_of_scratch", "own-memory", "shares memory with output 'y' of the call before"),
        ("writes_earlier", "own-memory", "output 'y' of the call before changed"),
    ],
)
def test_breach_names_the_clause_and_the_place(name: str, clause: str, text: str) -> None:
    breach = broken(getattr(tiny, name))

    assert breach.clause == clause
    assert text in breach.what


def test_output_whose_memory_is_read_in_another_way_is_judged_by_its_values() -> None:
    found = direct(tiny.negative_view, tiny.OPERATION, SETTINGS)(CASE.inputs)
    assert (found["y"] == 2 * CASE.inputs["x"] + np.float32(1)).all()
    found = direct(tiny.zero_without_memory, tiny.OPERATION, SETTINGS)(CASE.inputs)
    assert (found["y"] == 0).all()


def test_slow_call_breaks_time_once_it_is_over() -> None:
    def slow(x: torch.Tensor, shift: float) -> torch.Tensor:
        import time

        time.sleep(0.02)
        return tiny.right(x, shift)

    breach = broken(slow, time_limit=0.001)

    assert breach.clause == "time"
    assert breach.ratio is not None
    assert breach.ratio > 1


def test_input_that_was_written_is_told_with_its_place() -> None:
    assert "the first at (1, 11)" in broken(tiny.writes_input).what


def test_overrun_as_long_as_the_input_itself_is_seen() -> None:
    def rows_too_many(x: torch.Tensor, shift: float) -> torch.Tensor:
        y = tiny.right(x, shift)
        torch.as_strided(x, (x.numel(),), (1,), x.storage_offset() + x.numel()).zero_()
        return y

    what = broken(rows_too_many, tiny.case(64, 128)).what
    assert what == "input 'x': 32768 bytes past its end were written, the last 32768 past"


def test_read_past_the_end_and_memory_never_written_show_as_nan() -> None:
    for function in (tiny.reads_past, tiny.forgets_a_row):
        found = direct(function, tiny.OPERATION, SETTINGS)(CASE.inputs)

        assert np.isnan(found["y"][-1, -1])


def test_fresh_memory_is_poisoned_only_inside() -> None:
    with poisoned_memory():
        inside = [
            torch.empty(3),
            torch.empty_like(torch.ones(3)),
            torch.ones(3).new_empty(3),
            torch.empty_strided((3,), (1,)),
        ]
        ints = torch.empty(2, dtype=torch.int32)
        eight = torch.empty(2, dtype=torch.float8_e4m3fn)
    kept = torch.empty

    assert all(bool(torch.isnan(one).all()) for one in inside)
    assert int(ints[0]) == 2**31 - 1 - 0x5A
    assert bool(torch.isnan(eight.float()).all())
    assert kept.__name__ == "empty"


def test_spans_of_strided_tensors_overlap_where_their_bytes_do() -> None:
    base = torch.zeros(4, 6)

    assert overlaps(base[:, :2], base[:, 1:])
    assert not overlaps(base[:2], base[2:])
    assert not overlaps(base[:0], base)
    assert span(base[1:, 2])[1] - span(base[1:, 2])[0] == 4 * (2 * 6 + 1)
    bytes_of(base[2:]).fill_(0xFF)
    assert bool(torch.isnan(base[2:]).all())
    assert bool((base[:2] == 0).all())


@pytest.mark.slow
class TestGuarded:
    """The same behind a process: hangs and crashes too."""

    def call(self, name: str, limit: float = 30.0):
        return guarded(
            f"tests.unit.conformance.tiny:{name}",
            "tests.unit.conformance.tiny:OPERATION",
            SETTINGS,
            time_limit=limit,
        )

    def test_gives_outputs_and_breaches_like_direct(self) -> None:
        with self.call("late_rows") as call:
            found = call(CASE.inputs)["y"]
            with pytest.raises(Broke, match="TypeError"):
                call({"x": CASE.inputs["x"], "shift": "one"})
            again = call(CASE.inputs)["y"]

        assert (found == again).all()
        assert call.lost == 0

    def test_hang_is_killed_and_the_next_call_gets_a_fresh_process(self) -> None:
        with self.call("hangs", 0.3) as call:
            for _ in range(2):
                with pytest.raises(Broke, match=r"had not returned after 0\.3 s") as caught:
                    call(CASE.inputs)
                assert caught.value.breach.clause == "time"

        assert call.lost == 2

    @pytest.mark.parametrize(
        ("name", "text"),
        [
            ("crashes", "the process died of SIGSEGV"),
            ("quits", "exit code 5; it last wrote: giving up"),
        ],
    )
    def test_crash_is_a_breach(self, name: str, text: str) -> None:
        with self.call(name) as call, pytest.raises(Broke, match=text) as caught:
            call(CASE.inputs)

        assert caught.value.breach.clause == "returns"

    def test_error_that_cannot_be_printed_is_a_breach(self) -> None:
        with self.call("raises_unprintable") as call, pytest.raises(Broke) as caught:
            call(CASE.inputs)

        assert caught.value.breach.clause == "returns"

    def test_fault_of_the_guards_is_no_finding_about_the_implementation(self) -> None:
        with self.call("right") as call:
            with pytest.raises(ValidateError, match="the guards themselves raised KeyError: 'x'"):
                call({"z": CASE.inputs["x"], "shift": 1.0})
            assert (call(CASE.inputs)["y"] == 2 * CASE.inputs["x"] + np.float32(1)).all()

    def test_implementation_that_cannot_be_imported_is_an_input_error(self) -> None:
        with pytest.raises(InputError, match="did you mean 'right'"), self.call("rigt"):
            pass
