"""Names become functions; what is not here is told and never judged."""

from pathlib import Path

import pytest

from tests.unit.conformance import tiny
from validate.conformance.records import Implementation
from validate.conformance.registry import (
    FOREIGN,
    IMPLEMENTATIONS,
    OPERATIONS,
    find_implementation,
    find_operation,
    settle,
    unavailable,
)
from validate.errors import InputError


def test_operations_are_named_as_their_contracts() -> None:
    assert {name: one.contract.op for name, one in OPERATIONS.items()} == {
        name: name for name in OPERATIONS
    }


def test_every_package_is_known_whether_installed_or_not() -> None:
    assert set(FOREIGN) == {"triton", "flashinfer", "fla", "aiter", "sgl_kernel", "vllm"}
    for package, (why, known) in FOREIGN.items():
        reason = why()
        assert reason is None or reason
        assert [one for one in known if not one.name.startswith(f"{package}:")] == []


def test_settings_that_implementations_declare_are_the_contracts() -> None:
    for one in IMPLEMENTATIONS:
        assert set(settle(OPERATIONS[one.op], {}, one)) == set(OPERATIONS[one.op].contract.settings)
        assert settle(OPERATIONS[one.op], one.settings) == settle(OPERATIONS[one.op], {}, one)


def test_settings_wanted_beat_declared_beat_default() -> None:
    declares = Implementation(
        name="a", op="double", function=tiny.right, title="", settings={"sign": "minus"}
    )

    assert settle(tiny.OPERATION, {}) == {"sign": "plus"}
    assert settle(tiny.OPERATION, {}, declares) == {"sign": "minus"}
    assert settle(tiny.OPERATION, {"sign": "plus"}, declares) == {"sign": "plus"}


def test_device_that_an_implementation_does_not_run_on_is_told() -> None:
    only = Implementation(name="a:b", op="x", function=tiny.right, title="", devices=("cuda",))

    assert unavailable(only, "cpu") == "a:b runs on cuda, not on cpu"


def test_function_of_a_module_is_found_with_its_first_line_as_title() -> None:
    found = find_implementation("tests.unit.conformance.tiny:right", "double")

    assert found.function is tiny.right
    assert found.title == "Twice the input and a shift."
    assert find_operation("tests.unit.conformance.tiny:OPERATION") is tiny.OPERATION


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("def f(:", "importing 'mine_{n}' failed: SyntaxError"),
        ("raise OSError('no card')", "importing 'mine_{n}' failed: OSError: no card"),
        ("import not_there", "importing 'mine_{n}' failed: No module named 'not_there'"),
        ("f = 3", "it is int, not a function"),
        ("def g(): pass", "module 'mine_{n}' has no 'f'"),
    ],
)
def test_module_that_does_not_give_a_function_is_an_input_error(
    text: str, told: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    number = abs(hash(text))
    (tmp_path / f"mine_{number}.py").write_text(text, "utf-8")
    monkeypatch.syspath_prepend(tmp_path)

    with pytest.raises(InputError) as caught:
        find_implementation(f"mine_{number}:f", "double")

    assert told.replace("{n}", str(number)) in str(caught.value)


def test_module_is_not_imported_where_another_process_will() -> None:
    found = find_implementation("no_such_module:f", "double", imports=False)

    with pytest.raises(InputError, match="it was not imported in this process"):
        found.function()
