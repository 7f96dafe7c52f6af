"""Waivers on verdicts: the outcome stays, and does not count while the waiver holds."""

import dataclasses
from collections.abc import Sequence
from fnmatch import fnmatchcase

from validate.errors import SuiteError
from validate.schema.suite import Waiver
from validate.schema.verdict import WAIVABLE, Outcome, Verdict

__all__ = ["overall", "waive"]


def waive(verdicts: Sequence[Verdict], waivers: Sequence[Waiver], *, cand: str) -> list[Verdict]:
    """The same verdicts, each FAIL or INCONCLUSIVE that a waiver covers carrying it.

    A waiver for other candidates, or of a gate that did not run or was INCOMPARABLE, is
    neither used nor unused.

    Args:
        verdicts: One a gate that ran.
        waivers: All that the suite knows, none of them expired.
        cand: Target of the candidate, which ``Waiver.cand`` must match.

    Raises:
        SuiteError: Two waivers cover the same gate, or one covers a gate that PASSes;
            all are named.
    """
    found: list[Verdict] = []
    told: list[str] = []
    for verdict in verdicts:
        fit = [
            waiver
            for waiver in waivers
            if waiver.gate == verdict.gate and fnmatchcase(cand, waiver.cand)
        ]
        told += _problems(verdict, fit, cand)
        covered = bool(fit) and verdict.outcome in WAIVABLE
        found.append(dataclasses.replace(verdict, waiver=_words(fit[0])) if covered else verdict)
    if told:
        raise SuiteError("\n".join(told))
    return found


def overall(verdicts: Sequence[Verdict]) -> tuple[Outcome, ...]:
    """The outcomes that count: those of every verdict without a waiver.

    Raises:
        ValueError: Every verdict is waived: nothing was judged, which is no PASS.
    """
    counted = tuple(verdict.outcome for verdict in verdicts if verdict.waiver is None)
    if not counted:
        msg = "every gate that ran is waived: nothing was judged"
        raise ValueError(msg)
    return counted


def _problems(verdict: Verdict, fit: Sequence[Waiver], cand: str) -> list[str]:
    told = []
    if len(fit) > 1:
        globs = " and ".join(f"'{waiver.cand}'" for waiver in fit)
        told.append(
            f"contradictory waivers of {verdict.gate}: {globs} both cover cand '{cand}'; "
            "keep one of them"
        )
    if fit and verdict.outcome is Outcome.PASS:
        told.append(
            f"unused waiver: {verdict.gate} is PASS for cand '{cand}', so the waiver "
            f"({_words(fit[0])}) hides nothing; delete it"
        )
    return told


def _words(waiver: Waiver) -> str:
    return f"{waiver.reason} ({waiver.issue}; until {waiver.expires}, cand {waiver.cand})"
