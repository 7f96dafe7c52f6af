"""Which gates run, at which share of alpha, and by which limit."""

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from validate.errors import SuiteError
from validate.schema.suite import DTYPES, SETTINGS, GateSpec, Limits, Suite
from validate.schema.verdict import Limit
from validate.suite.wording import near

__all__ = [
    "UNKEPT",
    "Chosen",
    "alpha_shares",
    "check_limits",
    "choose_limit",
    "choose_setting",
    "narrower",
    "select_gates",
]

UNKEPT = ("exact", "lossless")
"""Kinds whose number stands in the suite, not in the limits file."""


class Chosen(NamedTuple):
    """A limit and whose budget it is."""

    limit: Limit
    deviation: str | None
    """Id of the declared deviation it belongs to; None for the ordinary limit."""


def alpha_shares(suite: Suite) -> dict[str, float]:
    """Each gate's share of alpha: weighted Bonferroni over every gate of the suite.

    A share never depends on which gates run, so ``--only`` cannot change a verdict.

    Returns:
        Shares by gate name; 0 for deterministic gates; they add up to alpha, or to
        0 where no gate has a weight.
    """
    total = sum(gate.weight for gate in suite.gates)
    return {
        gate.name: suite.alpha * gate.weight / total if gate.weight > 0 else 0.0
        for gate in suite.gates
    }


def select_gates(
    suite: Suite, *, only: Sequence[str] = (), skip: Sequence[str] = ()
) -> tuple[GateSpec, ...]:
    """The gates that run: yardstick gates always, of the rest what is asked for.

    Args:
        suite: The whole suite.
        only: Areas or gate names; empty: all.
        skip: Areas or gate names to leave out.

    Raises:
        SuiteError: A name is neither an area nor a gate of the suite, a yardstick
            gate is to be skipped, or nothing but the yardstick would remain.
    """
    words = {gate.name for gate in suite.gates} | {gate.area for gate in suite.gates}
    for option, given in (("--only", only), ("--skip", skip)):
        for word in given:
            if word not in words:
                msg = (
                    f"{option} {word}: no area or gate of {suite.path}{near(word, words)}\n"
                    f"  known here: {', '.join(sorted(words))}"
                )
                raise SuiteError(msg)
    if any(word.split(".")[0] == "yardstick" for word in skip):
        msg = "--skip: yardstick gates come before every verdict and cannot be left out"
        raise SuiteError(msg)
    chosen = tuple(gate for gate in suite.gates if _chosen(gate, only, skip))
    if not chosen or (
        all(gate.area == "yardstick" for gate in chosen) and "yardstick" not in _areas(only)
    ):
        asked = " ".join(
            f"{option} {','.join(words)}"
            for option, words in (("--only", only), ("--skip", skip))
            if words
        )
        msg = (
            f"{asked}: no gate of {suite.path} is left to judge"
            if asked
            else f"{suite.path}: no gate but the yardstick's, so nothing would be said of cand"
        )
        raise SuiteError(msg)
    return chosen


def narrower(first: str, second: str) -> str:
    """The less precise of two dtypes, by which a pair is judged.

    Raises:
        SuiteError: One of them is none that limits are keyed by.
    """
    for name in (first, second):
        if name not in DTYPES:
            msg = f"no limits are kept for dtype '{name}'{near(name, DTYPES)}; known: {', '.join(DTYPES)}"
            raise SuiteError(msg)
    return max(first, second, key=DTYPES.index)


def choose_limit(
    gate: GateSpec, *, suite: Suite, limits: Limits, dtype: str, deviations: Sequence[str] = ()
) -> Chosen:
    """The limit of one gate: a declared deviation's own budget before the ordinary one.

    Of several declared deviations with a budget for this gate the widest counts.

    Raises:
        SuiteError: There is no limit for this gate and dtype, or it lacks ``worst``.
    """
    budget = _budget(gate.limit_key, limits=limits, dtype=dtype, deviations=deviations)
    if budget is not None:
        chosen = budget
    elif gate.kind == "exact":
        pointer = f"{suite.path}#{gate.name}"
        chosen = Chosen(Limit(value=gate.equals, source="derived", pointer=pointer), None)
    elif gate.effect is not None:
        pointer = f"{suite.path}#{gate.name}"
        limit = Limit(value=gate.effect, source="derived", pointer=pointer, basis=gate.effect_of)
        chosen = Chosen(limit, None)
    else:
        chosen = Chosen(_entry(limits, f"{gate.limit_key}.{dtype}"), None)
    if gate.kind == "three_way" and chosen.limit.worst is None:
        msg = f"{chosen.limit.pointer}: gate '{gate.name}' is three_way and needs 'worst' beside 'value'"
        raise SuiteError(msg)
    return chosen


def choose_setting(
    name: str, *, limits: Limits, dtype: str, deviations: Sequence[str] = ()
) -> Chosen:
    """The ``near_tie`` or ``route_gap`` that pairs are made with, chosen like a gate's limit."""
    budget = _budget(name, limits=limits, dtype=dtype, deviations=deviations)
    return budget or Chosen(_entry(limits, f"{name}.{dtype}"), None)


def check_limits(suite: Suite, limits: Limits, *, dtype: str) -> None:
    """Refuse a limits file that lacks anything this suite needs, before work starts.

    Raises:
        SuiteError: All that is missing, at once.
    """
    needed = [gate.limit_key for gate in suite.gates if gate.kind not in UNKEPT]
    needed += [] if suite.evals_only else list(SETTINGS)
    missing = [key for key in needed if f"{key}.{dtype}" not in limits.entries]
    if missing:
        kept = sorted({key.rpartition(".")[2] for key in limits.entries})
        msg = (
            f"{limits.path}: {len(missing)} of {len(needed)} limits that {suite.path} needs for "
            f"{dtype} are missing\n"
            f"  missing: {', '.join(missing)}\n"
            f"  dtypes : {', '.join(kept) or '(none)'} are kept there\n"
            "  do next: validate golden calibrate, or add the tables by hand with their source"
        )
        raise SuiteError(msg)
    for gate in suite.gates:
        choose_limit(gate, suite=suite, limits=limits, dtype=dtype)


def _areas(words: Iterable[str]) -> set[str]:
    return {word.partition(".")[0] for word in words}


def _chosen(gate: GateSpec, only: Sequence[str], skip: Sequence[str]) -> bool:
    if gate.area == "yardstick":
        return True
    wanted = not only or gate.name in only or gate.area in only
    return wanted and gate.name not in skip and gate.area not in skip


def _budget(key: str, *, limits: Limits, dtype: str, deviations: Sequence[str]) -> Chosen | None:
    budgets = [
        Chosen(limits.entries[entry], deviation)
        for deviation in deviations
        if (entry := f"deviation.{deviation}.{key}.{dtype}") in limits.entries
    ]
    return max(budgets, key=lambda chosen: chosen.limit.value, default=None)


def _entry(limits: Limits, key: str) -> Limit:
    if key in limits.entries:
        return limits.entries[key]
    msg = (
        f"{limits.path}: no limit [{key}]{near(key, limits.entries)}\n"
        "  do next: validate golden calibrate, or add the table by hand with its source"
    )
    raise SuiteError(msg)
