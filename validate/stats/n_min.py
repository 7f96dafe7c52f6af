"""The smallest number of prompts at which each interval method may be believed: data for gates."""

import re
from collections.abc import Mapping

from validate.errors import InputError

__all__ = ["N_MIN", "n_min", "trusted"]

N_MIN: Mapping[str, Mapping[str, int | None]] = {
    "t": {"light": 8, "heavy": None},
    "t, tail-checked": {"light": 8, "heavy": 32},
    "clustered t": {"light": 32, "heavy": None},
    "t over tokens": {"light": None, "heavy": None},
    "studentised bootstrap": {"light": 8, "heavy": None},
    "percentile bootstrap": {"light": 32, "heavy": None},
    "empirical Bernstein": {"light": 8, "heavy": 8},
    "betting": {"light": 8, "heavy": 8},
    "t on the log": {"light": 8, "heavy": None},
    "order statistic": {"light": 8, "heavy": 8},
    "Clopper-Pearson": {"light": 8, "heavy": 8},
}
"""Decided by ``golden/reports/calibration.json``; a test compares the two. None: at no n."""

_ALIASES: Mapping[str, str] = {
    "t on the absolute mean": "t",
    "t on the absolute mean, tail-checked": "t, tail-checked",
    "paired t on the log": "t on the log",
    "clustered t on the ratio": "clustered t",
    "order statistic on the absolute median": "order statistic",
    "paired hazard ratio": "Clopper-Pearson",
    "exact Poisson": "Clopper-Pearson",
}
"""``Interval.method`` as the estimators write it, where it is not a row of the table. Exact Poisson
limits (Garwood) are the limit of Clopper-Pearson ones for many tokens of small risk each."""

_ENUMERATED: Mapping[str, int] = {"Tango score": 100}
"""Methods for paired right and wrong answers, whose level is found by exact enumeration in
``tests/statistical/test_paired_drop.py``: items from which the upper limit is within a point of 95 %."""

_EXACT = frozenset({"order statistic", "Clopper-Pearson", "empirical Bernstein", "betting"})
"""Methods whose level is proven at every n and for every law: no n_min of their own."""


def n_min(method: str, *, heavy: bool) -> int | None:
    """Prompts below which no gate may PASS on a limit of this method.

    Args:
        method: ``Interval.method``; what follows in brackets or after a comma is left out.
        heavy: Whether the tail is heavy, as ``tail_diagnostic`` or the kind of metric says.

    Returns:
        The smallest n; 1 for exact methods; None where the method may not be used at any n.

    Raises:
        InputError: The method was not calibrated.

    Source:
        ``golden/reports/calibration.md``.

    Example:
        >>> n_min("t", heavy=False), n_min("t", heavy=True), n_min("order statistic", heavy=True)
        (8, None, 1)
    """
    name = _row(method)
    if name in _EXACT:
        return 1
    if name in _ENUMERATED:
        return _ENUMERATED[name]
    return N_MIN[name]["heavy" if heavy else "light"]


def trusted(method: str, *, n: int, heavy: bool) -> bool:
    """Whether limits of this method over n prompts may carry a PASS.

    Raises:
        InputError: The method was not calibrated.

    Example:
        >>> trusted("t (all values equal)", n=48, heavy=True)
        False
    """
    least = n_min(method, heavy=heavy)
    return least is not None and n >= least


def _row(method: str) -> str:
    """The row of the table that a method's own wording belongs to."""
    plain = re.sub(r" \([^)]*\)", "", method)
    for text in (plain, plain.split(",")[0]):
        name = _ALIASES.get(text, text)
        if name in N_MIN or name in _ENUMERATED:
            return name
    known = ", ".join((*N_MIN, *_ENUMERATED))
    msg = f"no calibration of interval method '{method}'; calibrated are: {known}"
    raise InputError(msg)
