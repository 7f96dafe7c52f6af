"""Every comparison in ``validate/gates`` is bent in turn, and ``tests/unit/gates`` must notice.

A mutant replaces the code of the functions of one module in place, then the
unit tests of gates run in this process until the first of them fails.
"""

import ast
import copy
import importlib
import inspect
import itertools
import types
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest

pytestmark = pytest.mark.meta

ROOT = Path(__file__).parents[2]
MODULES = sorted(
    path.stem for path in (ROOT / "validate/gates").glob("*.py") if path.stem != "__init__"
)
TESTS = sorted(path.stem for path in (ROOT / "tests/unit/gates").glob("test_*.py"))

SWAPS: dict[type[ast.cmpop], tuple[type[ast.cmpop], ...]] = {
    ast.Lt: (ast.LtE, ast.GtE),
    ast.LtE: (ast.Lt, ast.Gt),
    ast.Gt: (ast.GtE, ast.LtE),
    ast.GtE: (ast.Gt, ast.Lt),
    ast.Eq: (ast.NotEq,),
    ast.NotEq: (ast.Eq,),
    ast.Is: (ast.IsNot,),
    ast.IsNot: (ast.Is,),
    ast.In: (ast.NotIn,),
    ast.NotIn: (ast.In,),
}


class Mutant(NamedTuple):
    """One bent place of one module."""

    text: str
    tree: ast.Module


def variants(node: ast.AST) -> list[ast.AST]:
    """All that ``node`` is replaced by, one at a time."""
    found: list[ast.AST] = []
    if isinstance(node, ast.Compare):
        found += [ast.Constant(value=True), ast.Constant(value=False)]
        for place, operator in enumerate(node.ops):
            for swap in SWAPS[type(operator)]:
                bent = copy.deepcopy(node)
                bent.ops[place] = swap()
                found.append(bent)
    if isinstance(node, ast.BoolOp):
        other = ast.Or() if isinstance(node.op, ast.And) else ast.And()
        found.append(ast.BoolOp(op=other, values=copy.deepcopy(node.values)))
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not):
        found.append(copy.deepcopy(node.operand))
    return found


def mutants(source: str) -> Iterator[Mutant]:
    """Every mutant of a module, each from a fresh tree."""
    tree = ast.parse(source)
    for place, node in enumerate(ast.walk(tree)):
        for bent in variants(node):
            fresh = ast.parse(source)
            target = list(ast.walk(fresh))[place]
            _Replace(target, bent).visit(fresh)
            ast.fix_missing_locations(fresh)
            line = getattr(node, "lineno", 0)
            yield Mutant(f"line {line}: {ast.unparse(node)}  ->  {ast.unparse(bent)}", fresh)


class _Replace(ast.NodeTransformer):
    def __init__(self, target: ast.AST, bent: ast.AST) -> None:
        self.target, self.bent = target, bent

    def visit(self, node: ast.AST) -> Any:
        return self.bent if node is self.target else self.generic_visit(node)


def own_functions(module: types.ModuleType) -> dict[str, types.FunctionType]:
    """The plain functions of a module by name, below whatever checks their arguments."""
    return {
        name: inspect.unwrap(value)
        for name, value in vars(module).items()
        if callable(value)
        and getattr(value, "__module__", "") == module.__name__
        and isinstance(inspect.unwrap(value), types.FunctionType)
    }


def cases() -> list[Callable[[], None]]:
    """Every unit test of gates, one call for each of its parameters."""
    made: list[Callable[[], None]] = []
    for name in TESTS:
        module = importlib.import_module(f"tests.unit.gates.{name}")
        for test in _tests(module):
            made += [_bind(test, arguments) for arguments in _parameters(test)]
    return made


def _tests(module: types.ModuleType) -> Iterator[Callable[..., None]]:
    """Functions of a module of unit tests, and methods of its classes."""
    for key, value in vars(module).items():
        if key.startswith("test_"):
            yield value
        elif key.startswith("Test"):
            made = value()
            yield from (getattr(made, name) for name in vars(value) if name.startswith("test_"))


def _bind(test: Callable[..., None], arguments: dict[str, Any]) -> Callable[[], None]:
    return lambda: test(**arguments)


def _parameters(test: Callable[..., None]) -> list[dict[str, Any]]:
    axes = []
    for mark in getattr(test, "pytestmark", []):
        names, values = mark.args
        split = [names] if isinstance(names, str) and "," not in names else list(names)
        axes.append([dict(zip(split, _row(split, value), strict=True)) for value in values])
    rows = itertools.product(*axes)
    return [{key: value for part in row for key, value in part.items()} for row in rows]


def _row(names: list[str], value: Any) -> tuple[Any, ...]:
    return (value,) if len(names) == 1 else tuple(value)


def notices(all_cases: list[Callable[[], None]]) -> bool:
    """Whether any unit test fails now, in whatever way."""
    for case in all_cases:
        try:
            case()
        except (Exception, pytest.fail.Exception):  # noqa: BLE001  any failure is a notice
            return True
    return False


def survivors(
    module: types.ModuleType, all_cases: list[Callable[[], None]]
) -> tuple[list[str], int]:
    """Mutants of ``module`` that no unit test notices, and how many there were."""
    source = Path(str(module.__file__)).read_text(encoding="utf-8")
    functions = own_functions(module)
    honest = {name: function.__code__ for name, function in functions.items()}
    alive, count = [], 0
    for mutant in mutants(source):
        count += 1
        namespace: dict[str, Any] = {"__name__": "mutant"}
        exec(compile(mutant.tree, str(module.__file__), "exec"), namespace)
        try:
            for name, function in functions.items():
                function.__code__ = namespace[name].__code__
            if not notices(all_cases):
                alive.append(f"{module.__name__} {mutant.text}")
        finally:
            for name, function in functions.items():
                function.__code__ = honest[name]
    return alive, count


def test_the_unbent_gates_pass():
    """Else every mutant would seem to be noticed."""
    all_cases = cases()

    assert len(all_cases) > 150
    assert not notices(all_cases)


@pytest.mark.parametrize("name", MODULES)
def test_every_bent_comparison_is_noticed(name):
    """No comparison of a gate can be weakened, inverted or removed unseen."""
    alive, count = survivors(importlib.import_module(f"validate.gates.{name}"), cases())

    assert alive == []
    assert count > 0 or name not in {"bound", "exact", "noise_ratio", "three_way", "judge"}


def test_a_blind_test_suite_is_found_out():
    """The check itself can fail: without the tests of ``exact`` its mutants live."""
    module = importlib.import_module("validate.gates.exact")

    alive, count = survivors(module, [])

    assert len(alive) == count > 3
