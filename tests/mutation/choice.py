"""Which operators of Cosmic Ray bend the code, and which places they leave alone.

Each operator keeps one or two replacements that a reader would call a mistake
somebody makes: ``<`` for ``<=``, ``-`` for ``+``, a bound off by one. The places left
alone are those where a mutant changes no value that any caller can see, or only the
wording of a message; each has a rule with a name, and the report counts what it leaves out.
"""

import re
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

from cosmic_ray.operators.provider import OperatorProvider

__all__ = ["EXCLUSIONS", "OPERATORS", "excluded", "operator"]

_COMPARISONS = {
    "Lt": ("LtE", "GtE"),
    "LtE": ("Lt", "Gt"),
    "Gt": ("GtE", "LtE"),
    "GtE": ("Gt", "Lt"),
    "Eq": ("NotEq",),
    "NotEq": ("Eq",),
    "Is": ("IsNot",),
    "IsNot": ("Is",),
}
_BINARY = {
    "Add": "Sub",
    "Sub": "Add",
    "Mul": "Div",
    "Div": "Mul",
    "FloorDiv": "Mul",
    "Mod": "FloorDiv",
    "Pow": "Mul",
    "BitOr": "BitAnd",
    "BitAnd": "BitOr",
    "BitXor": "BitOr",
    "LShift": "RShift",
    "RShift": "LShift",
}

OPERATORS: tuple[str, ...] = (
    *(f"ReplaceComparisonOperator_{a}_{b}" for a, to in _COMPARISONS.items() for b in to),
    *(f"ReplaceBinaryOperator_{a}_{b}" for a, b in _BINARY.items()),
    "ReplaceUnaryOperator_Delete_USub",
    "ReplaceUnaryOperator_Delete_Invert",
    "ReplaceUnaryOperator_Delete_Not",
    "ReplaceTrueWithFalse",
    "ReplaceFalseWithTrue",
    "ReplaceAndWithOr",
    "ReplaceOrWithAnd",
    "AddNot",
    "NumberReplacer",
    "ReplaceBreakWithContinue",
    "ReplaceContinueWithBreak",
    "ZeroIterationForLoop",
    "ExceptionReplacer",
    "RemoveDecorator",
)
"""Names in Cosmic Ray; left out are its further replacements of the same sign."""

EXCLUSIONS: Mapping[str, str] = {
    "annotation": "type hints: nothing reads them when the code runs",
    "import": "import statements, and `__all__`",
    "no operator": "a star or two in a signature, a call or a display, which is not arithmetic",
    "message": "inside an f-string or a `raise`: the wording of a message",
    "decorator": "arguments of a decorator (frozen, slots, kw_only), and caches, which save time",
    "strict": "`strict=` of zip: a second guard where the lengths are equal by construction",
    "boundary": "`<` for `<=` beside a constant that is a decimal number: no computed value equals it",
    "alias": "`|` of types outside every function",
    "typing": "the body of `if TYPE_CHECKING`",
}
"""Each rule by its name, and why a mutant there shows nothing."""

_ARITHMETIC = {"arith_expr", "term", "power", "expr", "and_expr", "xor_expr", "shift_expr"}
_WORDING = {"fstring", "fstring_expr", "fstring_format_spec", "raise_stmt"}
_IMPORTS = {"import_name", "import_from"}
_QUIET = ("cache", "lru_cache", "override", "final", "overload", "runtime_checkable")

_BOUNDARY = tuple(f"ReplaceComparisonOperator_{a}_{a}E" for a in ("Lt", "Gt")) + tuple(
    f"ReplaceComparisonOperator_{a}E_{a}" for a in ("Lt", "Gt")
)

_PROVIDER = OperatorProvider()


def operator(name: str) -> Any:
    """The operator of that name, ready to be applied."""
    return _PROVIDER[name]()


def excluded(node: Any, name: str) -> str | None:
    """The rule that leaves ``node`` alone under the operator ``name``; None where it is bent."""
    if name.startswith("ReplaceBinaryOperator") and node.parent.type not in _ARITHMETIC:
        return "no operator"
    if node.type == "decorator":
        return "decorator" if any(word in node.get_code() for word in _QUIET) else None
    if name in _BOUNDARY and any(_is_decimal(side) for side in node.children[::2]):
        return "boundary"
    child, inside = node, False
    while child.parent is not None:
        parent = child.parent
        rule = _rule(child, parent)
        if rule is not None:
            return rule
        inside = inside or parent.type in {"funcdef", "lambdef"}
        child = parent
    return "alias" if "BitOr_" in name and not inside else None


def _rule(child: Any, parent: Any) -> str | None:
    """What the place of ``child`` in ``parent`` says of everything inside ``child``."""
    kind = parent.type
    places = {
        "import": kind in _IMPORTS or _is_all(parent),
        "message": kind in _WORDING,
        "decorator": kind == "decorator",
        "annotation": _is_annotation(child, parent),
        "strict": kind == "argument" and _begins(parent, 0) == "strict",
        "typing": kind == "if_stmt" and _begins(parent, 1) == "TYPE_CHECKING",
    }
    return next((rule for rule, holds in places.items() if holds), None)


def _is_decimal(side: Any) -> bool:
    """Made with a decimal literal, or with a name in capitals that the package gives one."""
    words = re.findall(r"\d[\d._]*(?:e[-+]?\d+)?|\w+", side.get_code())
    return any(word in decimal_names() or _is_decimal_text(word) for word in words)


def _is_decimal_text(text: str) -> bool:
    try:
        return not text.lstrip("-").isdigit() and float(text) not in {0.0, 1.0}
    except ValueError:
        return False


@cache
def decimal_names() -> frozenset[str]:
    """Constants of the package whose value is a decimal number other than 0 and 1."""
    found = set()
    for path in (Path(__file__).parents[2] / "validate").rglob("*.py"):
        for line in path.read_text(encoding="utf-8").splitlines():
            name, _, value = line.partition(" = ")
            if name.isupper() and _is_decimal_text(value.partition("#")[0].strip()):
                found.add(name)
    return frozenset(found)


def _begins(parent: Any, place: int) -> str:
    return str(parent.children[place].get_code()).strip()


def _is_all(parent: Any) -> bool:
    return parent.type == "expr_stmt" and _begins(parent, 0) == "__all__"


def _is_annotation(child: Any, parent: Any) -> bool:
    if parent.type in {"tfpdef", "annassign"}:
        place = 2 if parent.type == "tfpdef" else 1
        return child is parent.children[place]
    return parent.type == "funcdef" and child is parent.annotation
