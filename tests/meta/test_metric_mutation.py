"""Every planted fault of a metric must be caught by that metric's own unit tests.

A mutant is the source of one module with one text replaced, run under the
module's name; its functions and classes stand in for the honest ones wherever they
were imported, while one module of unit tests runs in this process until it fails.
"""

import importlib
import itertools
import sys
import types
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from operator import itemgetter
from pathlib import Path
from time import perf_counter
from typing import Any

import jaxtyping
import pytest

from tests.meta.metric_mutants import MUTANTS as LOGITS, Mutant
from tests.meta.renorm_mutants import RENORM_MUTANTS
from tests.meta.spec_mutants import SPEC_MUTANTS
from tests.meta.tensor_mutants import TENSOR_MUTANTS

pytestmark = pytest.mark.meta

ROOT = Path(__file__).parents[2]
MUTANTS = {**LOGITS, **TENSOR_MUTANTS, **RENORM_MUTANTS, **SPEC_MUTANTS}
BY_TOOL = {
    *("test_evals", "test_evals_by_item", "test_evals_parts"),
    *("test_spec_by_hand", "test_spec_told_twice", "test_spec_weights"),
}
"""Written against mutants of a tool (docs/mutation.md), which samples the same modules; none by hand."""
UNITS = ROOT / "tests/unit/metrics"
ROOMS = ("validate.metrics", "validate.numerics", "validate.stats", "tests.unit.metrics")


def load(mutant: Mutant) -> types.ModuleType:
    """The module with the fault in it, not yet known to anyone."""
    honest = importlib.import_module(f"validate.{mutant.module}")
    path = str(honest.__file__)
    source = Path(path).read_text(encoding="utf-8")
    assert source.count(mutant.old) == 1, f"{mutant.title}: {mutant.old!r} stands there not once"
    bent = types.ModuleType(honest.__name__)
    exec(compile(source.replace(mutant.old, mutant.new), path, "exec"), vars(bent))
    return bent


@contextmanager
def planted(mutant: Mutant) -> Iterator[None]:
    """Everything that the bent module defines, in the place of the honest thing."""
    bent = load(mutant)
    honest = sys.modules[bent.__name__]
    stand_ins = {
        id(value): getattr(bent, name)
        for name, value in vars(honest).items()
        if getattr(value, "__module__", None) == honest.__name__ and hasattr(bent, name)
    }
    swapped: list[tuple[types.ModuleType, str, Any]] = []
    for name, module in list(sys.modules.items()):
        if not name.startswith(ROOMS):
            continue
        for key, value in list(vars(module).items()):
            if id(value) in stand_ins:
                swapped.append((module, key, value))
                setattr(module, key, stand_ins[id(value)])
    try:
        yield
    finally:
        for module, key, value in swapped:
            setattr(module, key, value)


@cache
def cases(unit: str) -> list[Callable[[], None]]:
    """Every test of a module of unit tests, one call for each of its parameters; quickest first."""
    module = importlib.import_module(f"tests.unit.metrics.{unit}")
    made: list[Callable[[], None]] = []
    for owner, name in _tests(module):
        test = getattr(owner, name)
        made += [_call(owner, name, arguments) for arguments in _parameters(test)]
    return [
        case for _, case in sorted(((_seconds(case), case) for case in made), key=itemgetter(0))
    ]


def _seconds(case: Callable[[], None]) -> float:
    """How long an honest run takes."""
    start = perf_counter()
    case()
    return perf_counter() - start


def _tests(module: types.ModuleType) -> Iterator[tuple[Any, str]]:
    for name, value in vars(module).items():
        if name.startswith("test_"):
            yield module, name
        elif name.startswith("Test"):
            yield from ((value(), key) for key in vars(value) if key.startswith("test_"))


def _call(owner: Any, name: str, arguments: dict[str, Any]) -> Callable[[], None]:
    return lambda: getattr(owner, name)(**_fresh(arguments))


def _fresh(arguments: dict[str, Any]) -> dict[str, Any]:
    """Arguments, functions of the rooms taken as they now are."""
    return {
        key: getattr(sys.modules[value.__module__], value.__name__)
        if str(getattr(value, "__module__", "")).startswith("validate.metrics")
        else value
        for key, value in arguments.items()
    }


def _parameters(test: Callable[..., None]) -> list[dict[str, Any]]:
    axes = []
    for mark in getattr(test, "pytestmark", []):
        names, values = mark.args
        split = [name.strip() for name in names.split(",")] if isinstance(names, str) else names
        axes.append([dict(zip(split, _row(split, value), strict=True)) for value in values])
    rows = itertools.product(*axes)
    return [{key: value for part in row for key, value in part.items()} for row in rows]


def _row(names: Any, value: Any) -> tuple[Any, ...]:
    return (value,) if len(names) == 1 else tuple(value)


def failed(unit: str) -> str | None:
    """The first failure of a module of unit tests, in whatever way; None when all pass.

    The case that noticed comes first the next time: neighbours among mutants share theirs.
    """
    made = cases(unit)
    for place, case in enumerate(made):
        try:
            case()
        except (Exception, pytest.fail.Exception) as error:  # noqa: BLE001  any failure is a notice
            made.insert(0, made.pop(place))
            return f"{type(error).__name__}: {error}"
    return None


@pytest.fixture
def _unchecked() -> Iterator[None]:
    """Shapes go unchecked: assertions alone must notice, and they notice in half the time."""
    jaxtyping.config.update("jaxtyping_disable", True)
    yield
    jaxtyping.config.update("jaxtyping_disable", False)


@pytest.mark.usefixtures("_unchecked")
@pytest.mark.parametrize("unit", sorted(MUTANTS))
def test_every_planted_fault_is_caught(unit: str) -> None:
    assert failed(unit) is None

    survivors = []
    for mutant in MUTANTS[unit]:
        with planted(mutant):
            if failed(unit) is None:
                survivors.append(mutant.title)

    assert not survivors, f"nobody noticed: {'; '.join(survivors)}"
    assert failed(unit) is None


def test_every_module_of_unit_tests_has_its_faults() -> None:
    assert {path.stem for path in UNITS.glob("test_*.py")} - set(MUTANTS) == BY_TOOL


@pytest.mark.parametrize("unit", sorted(MUTANTS))
def test_the_usual_faults_are_among_them(unit: str) -> None:
    assert len(MUTANTS[unit]) >= 7
    assert len({mutant.title for mutant in MUTANTS[unit]}) == len(MUTANTS[unit])
