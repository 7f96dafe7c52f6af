"""The two derivations of top-k, top-p and min-p agree, and each fault in the first is seen."""

from itertools import product
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest

from tests.unit.oracle import second_renorm as second
from validate.oracle import renorm as first

SOURCE = Path(first.__file__).read_text("utf-8")
K = (-1, 0, 1, 2, 3, 7, 8, 2**30)
P = (-0.5, 0.0, 0.25, 0.5, 0.625, 0.9, 1.0, 1.5)
MUTANTS = {
    "ties cut": ("row >= least", "row > least"),
    "smallest first": ("[len(row) - count]\n", "[count - 1]\n"),
    "highest index first": (
        "[: count - np.count_nonzero(chosen)]",
        "[::-1][: count - np.count_nonzero(chosen)]",
    ),
    "one too few": (
        "[: count - np.count_nonzero(chosen)]",
        "[: count - 1 - np.count_nonzero(chosen)]",
    ),
    "k below 1 keeps all": ('(k <= 0 and low_k == "off")', "k <= 0"),
    "boundary token dropped": (
        "int(np.argmax(enough)) + 1",
        "int(np.maximum(np.argmax(enough), 1))",
    ),
    "p of 1 not settled": ("        if p == 1.0:", "        if p == 3.0:"),
    "p of the sum": ('(p * total if mass == "relative" else p)', "p"),
    "p of the mass": ('(p * total if mass == "relative" else p)', "p * total"),
    "discarded as kept": ("reached > total - (1.0 - p)", "reached >= total - (1.0 - p)"),
    "p not cut": (
        'np.clip(_per_row(probs, top_p, "top_p"), 0.0, 1.0)',
        '_per_row(probs, top_p, "top_p")',
    ),
    "min-p of the sum": ("share * np.max(probs[row])", "share * np.sum(probs[row])"),
    "all divided by the whole": (
        "total = float(np.sum(probs[row][kept[row]]))",
        "total = float(np.sum(probs[row]))",
    ),
    "nothing divided": ("/ np.maximum(total, floor)", "/ 1.0"),
}


def rows():
    """Eighths and their sums are exact in float64, so both derivations meet every boundary."""
    rng = np.random.default_rng(5)
    made = [
        rng.permutation(np.array(one) / 16)
        for one in (
            [4, 4, 2, 2, 1, 1, 1, 1],
            [8, 4, 2, 1, 1, 0, 0, 0],
            [2] * 8,
            [16, 0, 0, 0, 0, 0, 0, 0],
        )
    ]
    return np.array([*made, 2 * made[0], 0.5 * made[1], np.zeros(8)])


def disagreements(module):
    """Every setting where a module and the second derivation part."""
    probs = rows()
    return [
        setting
        for setting, kept, expected in settings(module, probs)
        if [set(np.flatnonzero(row)) for row in kept] != expected
    ] + [
        ("shares", k)
        for k in K
        for row, out in zip(probs, module.top_k_renorm_prob(probs, k), strict=True)
        if not np.abs(out - second.shares(row, second.top_k(row, k, ties="all"))).max() <= 1e-15
    ]


def settings(module, probs):
    """Setting, kept sets of the module, kept sets of the second derivation."""
    for ties in ("all", "exactly_k"):
        for k in K:
            expected = [second.top_k(row, k, ties=ties) for row in probs]
            yield ("k", ties, k), module.top_k_kept(probs, k, ties=ties), expected
        for mass, p in product(("relative", "absolute", "discarded"), P):
            expected = [second.top_p(row, p, ties=ties, mass=mass) for row in probs]
            kept = module.top_p_kept(probs, p, ties=ties, mass=mass)
            yield ("p", ties, mass, p), kept, expected
    for share in (0.0, 0.25, 0.5, 1.0):
        expected = [second.min_p(row, share) for row in probs]
        yield ("min_p", share), module.min_p_kept(probs, share), expected


def test_both_derivations_agree():
    assert disagreements(first) == []


@pytest.mark.parametrize("title", sorted(MUTANTS))
def test_a_fault_in_the_first_is_seen(title):
    old, new = MUTANTS[title]
    assert SOURCE.count(old) == 1, f"{old!r} stands there not once"
    bent = ModuleType("validate.oracle.renorm")
    exec(compile(SOURCE.replace(old, new), first.__file__, "exec"), vars(bent))
    try:
        seen = disagreements(bent)
    except IndexError:
        return
    assert seen
