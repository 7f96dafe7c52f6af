"""The two derivations of each operation share no function of ours, checked on their source."""

import ast
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
SECOND = "tests.unit.oracle.second"
PAIRS = {
    "mla": ("validate.oracle.mla", "validate.oracle.mla_absorbed"),
    "kda": ("validate.oracle.kda", "validate.oracle.kda_chunk"),
    "attention core": ("validate.oracle.mla", SECOND),
    "lse_merge": ("validate.oracle.lse_merge", SECOND),
    "rms_norm": ("validate.oracle.rms_norm", SECOND),
    "sigmoid": ("validate.oracle.sigmoid", SECOND),
    "situ": ("validate.oracle.situ", SECOND),
    "short_conv": ("validate.oracle.short_conv", SECOND),
    "attn_res": ("validate.oracle.attn_res", SECOND),
    "moe": ("validate.oracle.moe", SECOND),
    "renorm": ("validate.oracle.renorm", "tests.unit.oracle.second_renorm"),
    "model": ("validate.oracle.model", "tests.unit.oracle.second_model"),
}
DATA = ("validate.schema", "validate.errors")
"""Rooms that both may import: configuration and exceptions, no arithmetic on arrays."""


def source_of(module):
    """Path of a module of ours, or None."""
    base = ROOT.joinpath(*module.split("."))
    for path in (base.with_suffix(".py"), base / "__init__.py"):
        if path.is_file():
            return path
    return None


def imported(tree):
    """Every module that a syntax tree imports, with submodules named by ``from``."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, "relative import"
            yield node.module
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def closure(module):
    """Modules of ours that ``module`` reaches, itself included, data rooms left out."""
    reached, todo = set(), [module]
    while todo:
        name = todo.pop()
        path = source_of(name)
        if name in reached or path is None or name.startswith(DATA):
            continue
        reached.add(name)
        todo.extend(imported(ast.parse(path.read_text(encoding="utf-8"))))
    return reached


def functions(module):
    """Names of all functions, methods and lambdas that a module defines."""
    tree = ast.parse(source_of(module).read_text(encoding="utf-8"))
    kinds = (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)
    return [getattr(node, "name", "lambda") for node in ast.walk(tree) if isinstance(node, kinds)]


@pytest.mark.parametrize("name", list(PAIRS))
def test_siblings_share_no_function(name):
    first, second = (closure(module) for module in PAIRS[name])

    shared = {module: functions(module) for module in first & second}
    assert {m: f for m, f in shared.items() if f} == {}


@pytest.mark.parametrize("name", list(PAIRS))
def test_siblings_use_no_third_party_arithmetic_but_numpy(name):
    standard = ("collections", "dataclasses", "fractions", "itertools", "typing")
    allowed = ("numpy", "jaxtyping", *standard)
    for module in PAIRS[name]:
        for reached in closure(module):
            tree = ast.parse(source_of(reached).read_text(encoding="utf-8"))
            names = {i for i in imported(tree) if not i.startswith(("validate", "tests"))}
            if reached == "validate.oracle.weights":
                names -= {"json", "math", "pathlib", "pathlib.Path", "ml_dtypes"}
            assert all(i.split(".")[0] in allowed for i in names), (reached, names)


@pytest.mark.parametrize("name", list(PAIRS))
def test_siblings_take_no_derived_number_from_the_configuration(name):
    """``ModelConfig`` computes a scale; a derivation that took it could not be caught alone."""
    for module in PAIRS[name]:
        for reached in closure(module) - {"validate.oracle.weights"}:
            text = source_of(reached).read_text(encoding="utf-8")
            assert "attention_scale" not in text
            assert "qk_head_dim" not in text


def test_the_walk_finds_what_is_there():
    """The check can fail: ``moe`` does reach ``situ``, and ``situ`` does define functions."""
    assert "validate.oracle.situ" in closure("validate.oracle.moe")
    assert "validate.oracle.sigmoid" in closure("validate.oracle.model")
    assert functions("validate.oracle.situ") == ["situ", "situ_mlp"]
    assert functions("validate.oracle.records") == []
    both = closure("validate.oracle.moe") & closure("validate.oracle.model")
    assert any(functions(module) for module in both)
