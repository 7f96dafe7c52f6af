"""Comparisons of ``validate/metrics``, a sample from every file, are bent; unit tests must notice.

``test_gate_mutation`` bends every comparison of ``validate/gates``. Metrics have too many for
that, so the sample is drawn by the file's name: the same today and tomorrow, another for
each file. A mutant inverts one comparison, or deletes it (it is always true, or always false).
"""

import ast
import copy
import importlib
import random
import sys
import types
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from tests.meta.test_metric_mutation import MUTANTS, ROOMS, _unchecked, cases, failed

pytestmark = [pytest.mark.meta, pytest.mark.slow]
__all__ = ["_unchecked"]

ROOT = Path(__file__).parents[2]
SAMPLE = 2
"""Mutants drawn from one file; the whole is to stay within a minute."""
FILES = sorted(
    path.stem
    for path in (ROOT / "validate/metrics").glob("*.py")
    if any(isinstance(node, ast.Compare) for node in ast.walk(ast.parse(path.read_text("utf-8"))))
)
INVERTED: dict[type[ast.cmpop], type[ast.cmpop]] = {
    ast.Lt: ast.GtE,
    ast.LtE: ast.Gt,
    ast.Gt: ast.LtE,
    ast.GtE: ast.Lt,
    ast.Eq: ast.NotEq,
    ast.NotEq: ast.Eq,
    ast.Is: ast.IsNot,
    ast.IsNot: ast.Is,
    ast.In: ast.NotIn,
    ast.NotIn: ast.In,
}

EQUIVALENT = {
    ("_finite", "array.dtype.name in DTYPES  ->  True"): "integers are finite, looked at or not",
    ("_finite", "count.first is not None  ->  True"): "a side that holds a bad value has a first",
}
"""Mutants that compute the same, with the reason; no test could notice them."""


class Bent(NamedTuple):
    """A module with one comparison bent."""

    text: str
    tree: ast.Module


def every(source: str) -> list[Bent]:
    """Every comparison of a module inverted, and deleted in both ways."""
    found = []
    for place, node in enumerate(ast.walk(ast.parse(source))):
        if not isinstance(node, ast.Compare):
            continue
        turned = copy.deepcopy(node)
        turned.ops[0] = INVERTED[type(node.ops[0])]()
        for bent in (turned, ast.Constant(value=True), ast.Constant(value=False)):
            tree = ast.parse(source)
            target = list(ast.walk(tree))[place]
            _Replace(target, bent).visit(tree)
            text = f"line {node.lineno}: {ast.unparse(node)}  ->  {ast.unparse(bent)}"
            found.append(Bent(text, ast.fix_missing_locations(tree)))
    return found


class _Replace(ast.NodeTransformer):
    def __init__(self, target: ast.AST, bent: ast.AST) -> None:
        self.target, self.bent = target, bent

    def visit(self, node: ast.AST) -> Any:
        return self.bent if node is self.target else self.generic_visit(node)


def sample(name: str, source: str) -> list[Bent]:
    """A few of them, drawn by the file's name alone."""
    found = [
        bent for bent in every(source) if (name, bent.text.split(": ", 1)[1]) not in EQUIVALENT
    ]
    return random.Random(name).sample(found, k=min(SAMPLE, len(found)))


@contextmanager
def planted(name: str, tree: ast.Module) -> Iterator[None]:
    """What the bent module defines, in the place of the honest things, wherever imported."""
    honest = importlib.import_module(f"validate.metrics.{name}")
    bent = types.ModuleType(honest.__name__)
    exec(compile(tree, str(honest.__file__), "exec"), vars(bent))
    stand_ins = {
        id(value): getattr(bent, key)
        for key, value in vars(honest).items()
        if getattr(value, "__module__", None) == honest.__name__ and hasattr(bent, key)
    }
    swapped: list[tuple[types.ModuleType, str, Any]] = []
    for title, module in list(sys.modules.items()):
        if title.startswith(ROOMS):
            for key, value in list(vars(module).items()):
                if id(value) in stand_ins:
                    swapped.append((module, key, value))
                    setattr(module, key, stand_ins[id(value)])
    try:
        yield
    finally:
        for module, key, value in swapped:
            setattr(module, key, value)


def units(name: str) -> list[str]:
    """Modules of unit tests that are known to test this file, quickest first."""
    known = [
        unit
        for unit, mutants in MUTANTS.items()
        if any(mutant.module == f"metrics.{name}" for mutant in mutants)
    ]
    return sorted(known or MUTANTS, key=lambda unit: len(cases(unit)))


@pytest.mark.usefixtures("_unchecked")
@pytest.mark.parametrize("name", FILES)
def test_a_sampled_comparison_that_is_bent_is_noticed(name: str) -> None:
    source = (ROOT / f"validate/metrics/{name}.py").read_text(encoding="utf-8")

    tests = units(name)  # imported before anything is bent
    survivors = []
    for bent in sample(name, source):
        try:
            with planted(name, bent.tree):
                noticed = any(failed(unit) is not None for unit in tests)
        except Exception:  # noqa: BLE001  a module that does not even load is noticed
            noticed = True
        if not noticed:
            survivors.append(bent.text)

    assert survivors == []


def test_every_file_of_metrics_with_a_comparison_is_sampled() -> None:
    source = (ROOT / "validate/metrics/top1_flips.py").read_text(encoding="utf-8")

    assert len(FILES) >= 25
    assert sample("x", source) != sample("y", source) or len(every(source)) <= SAMPLE
    assert [one.text for one in sample("x", source)] == [one.text for one in sample("x", source)]
