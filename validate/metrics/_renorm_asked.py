"""Whether two sides filtered the same rows with the same parameters."""

from collections.abc import Sequence

from validate.metrics._renorm_rows import Row

__all__ = ["other_question"]


def other_question(ref: Sequence[Row], cand: Sequence[Row]) -> str | None:
    """The first row that the two sides were not asked the same of; None where there is none.

    A k of at least vocab keeps all whatever its size, and one below 1 counts as 1; p counts as
    clipped to [0, 1].
    """
    ours = {(row.prompt, row.row): row for row in ref}
    theirs = {(row.prompt, row.row): row for row in cand}
    lone = [key for key in (*ours, *theirs) if (key in ours) != (key in theirs)]
    if lone:
        prompt, index = lone[0]
        only = "ref" if lone[0] in ours else "cand"
        return f"{prompt} renorm row {index} is in {only} alone"
    for (prompt, index), a in ours.items():
        b = theirs[prompt, index]
        for what, ours_is, theirs_is in (
            ("position", float(a.position), float(b.position)),
            ("vocab", float(a.vocab), float(b.vocab)),
            ("top_k", float(a.k), float(b.k)),
            ("top_p", a.p, b.p),
        ):
            if _counts(what, ours_is, a.vocab) != _counts(what, theirs_is, a.vocab):
                place = f"{prompt} renorm row {index} (position {a.position})"
                return f"{place}: {what} is {ours_is:.9g} in ref, {theirs_is:.9g} in cand"
    return None


def _counts(what: str, value: float, vocab: int) -> float:
    """The value as a filter takes it."""
    if what == "top_k":
        return min(max(value, 1.0), float(vocab))
    return min(max(value, 0.0), 1.0) if what == "top_p" else value
