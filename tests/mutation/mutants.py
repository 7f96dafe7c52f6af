"""Every mutant of a room: where it stands, what it is called, in an order drawn by a seed."""

import hashlib
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import parso
from cosmic_ray.ast import ast_nodes
from cosmic_ray.mutating import MutationVisitor

from tests.mutation.choice import OPERATORS, excluded, operator

__all__ = ["ROOMS", "ROOT", "Mutant", "Source", "bend", "files_of", "mutants_of", "shuffled"]

ROOT = Path(__file__).parents[2]
ROOMS = ("gates", "metrics", "stats", "pairing", "numerics", "oracle")


@dataclass(frozen=True, slots=True, kw_only=True)
class Mutant:
    """One place and one replacement."""

    module: str
    """Full name, e.g. ``validate.gates.bound``."""
    function: str
    """Outermost function or method around the place; empty between functions."""
    line: int
    text: str
    """The line as it stands in the source, without indentation."""
    operator: str
    occurrence: int
    """Counted by Cosmic Ray over the whole module."""
    ordinal: int
    """Counted over equal text, function and operator: part of the key."""

    @property
    def room(self) -> str:
        """The folder below ``validate``."""
        return self.module.split(".")[1]

    @property
    def key(self) -> str:
        """Stays the same when other lines move."""
        told = (self.module, self.function, self.text, self.operator, str(self.ordinal))
        return hashlib.sha256("\0".join(told).encode()).hexdigest()[:16]


@dataclass(frozen=True, slots=True, kw_only=True)
class Source:
    """The mutants of one room, and how many each rule left out."""

    mutants: tuple[Mutant, ...]
    left_out: Counter[str]


@cache
def _tree(module: str) -> Any:
    return parso.parse(path_of(module).read_text(encoding="utf-8"))


def path_of(module: str) -> Path:
    """The file of a module of the package."""
    path = ROOT.joinpath(*module.split("."))
    return path / "__init__.py" if path.is_dir() else path.with_suffix(".py")


def files_of(room: str) -> list[str]:
    """Names of the modules of a room; its ``__init__`` only hands names on."""
    folder = ROOT / "validate" / room
    return sorted(f"validate.{room}.{p.stem}" for p in folder.glob("*.py") if p.stem != "__init__")


def mutants_of(room: str) -> Source:
    """Every mutant of every module of ``room``."""
    found: list[Mutant] = []
    left_out: Counter[str] = Counter()
    for module in files_of(room):
        found += _of_module(module, left_out)
    return Source(mutants=tuple(found), left_out=left_out)


def _of_module(module: str, left_out: Counter[str]) -> Iterator[Mutant]:
    lines = path_of(module).read_text(encoding="utf-8").splitlines()
    nodes = list(ast_nodes(_tree(module)))
    alike: Counter[tuple[str, str, str]] = Counter()
    for name in OPERATORS:
        bender, occurrence = operator(name), -1
        for node in nodes:
            for start, _ in bender.mutation_positions(node):
                occurrence += 1
                rule = excluded(node, name)
                if rule is not None:
                    left_out[rule] += 1
                    continue
                text, function = lines[start[0] - 1].strip(), _function(node)
                alike[function, text, name] += 1
                yield Mutant(
                    module=module,
                    function=function,
                    line=start[0],
                    text=text,
                    operator=name,
                    occurrence=occurrence,
                    ordinal=alike[function, text, name],
                )


def _function(node: Any) -> str:
    names: list[str] = []
    while node is not None:
        if node.type in {"funcdef", "classdef"}:
            names = [node.name.value] if node.type == "funcdef" else [node.name.value, *names]
        node = node.parent
    return ".".join(names)


def bend(mutant: Mutant) -> str | None:
    """Source of the module with the mutant in it; None where it is no Python any more.

    The tree that is bent is the cached one: call it once a process, in a fork.
    """
    visitor = MutationVisitor(mutant.occurrence, operator(mutant.operator))
    text = str(visitor.walk(_tree(mutant.module)).get_code())
    try:
        compile(text, mutant.module, "exec")
    except SyntaxError:
        return None
    return text if visitor.mutation_applied else None


def shuffled(mutants: Iterable[Mutant], *, seed: int) -> Sequence[Mutant]:
    """In an order that the seed draws: each beginning of it is a fair sample of the whole.

    The place of a mutant depends on the seed and its key alone, so that an edit
    elsewhere moves few of the others.
    """
    return sorted(mutants, key=lambda m: hashlib.sha256(f"{seed}:{m.key}".encode()).digest())
