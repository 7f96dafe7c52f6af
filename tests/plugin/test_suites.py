"""The shipped release gates: a module for every area, and a plugin that pytest can find."""

import importlib
import re
import tomllib
from pathlib import Path

import pytest

from validate.schema.suite import AREAS

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize("area", AREAS)
def test_every_area_of_gates_has_its_module(area: str) -> None:
    text = (ROOT / "suites" / f"test_{area}.py").read_text("utf-8")

    assert re.findall(r"validate_gates\((.*)\)", text) == [f'"{area}"']
    assert "gate.check()" in text


def test_no_module_is_of_an_area_that_is_not_there() -> None:
    assert {file.stem for file in (ROOT / "suites").glob("*.py")} == {f"test_{a}" for a in AREAS}


def test_entry_point_is_there_and_our_own_tests_leave_it_out() -> None:
    told = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))
    named = told["project"]["entry-points"]["pytest11"]

    assert list(named) == ["validate"]
    assert importlib.import_module(named["validate"]).pytest_addoption
    assert "no:validate" in told["tool"]["pytest"]["addopts"]
    assert "no:validate" not in (ROOT / "suites" / "pytest.ini").read_text("utf-8").split("\n[")[1]
