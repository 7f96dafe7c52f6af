"""``evals.prompts``: did both sides read the same tokens, with one BOS in front?"""

from validate.metrics._evals import blocked, first_filters, other_prompts
from validate.metrics._reason import without_value
from validate.schema import Levels, Measurement, Pair, Side, Worst
from validate.schema.evals import EvalItem, evals_of

__all__ = ["evals_prompts"]

NAME, UNIT, N_OF = "evals.prompts", "wrong prompts", "items"
ONE_BOS = 1


def evals_prompts(pair: Pair, _levels: Levels) -> Measurement:
    """Count items whose prompt starts with a wrong number of BOS tokens, or was cut, on either side.

    A BOS twice or not at all costs points on one stack alone and looks like a silicon regression.
    Token ids are compared by their hashes first: unlike prompts allow no comparison.

    Args:
        pair: Evals of both sides.
        _levels: Not used: a count over all items.

    Returns:
        Deterministic count; n = items. Unlike where prompt token ids differ. Where a side keeps
        no token ids nothing but the texts' hashes is known; the pattern then says so.

    Source:
        princeton-pli/retaining-by-doing#5, tenstorrent/tt-metal#48444 and lm-eval#1465 (TV-08).
    """
    reason = blocked(pair) or other_prompts(pair)
    if reason is not None:
        return without_value(NAME, reason, unit=UNIT, n_of=N_OF)
    pairs = first_filters(pair)
    found = {
        role: [item for one in pairs for item in getattr(one, role)] for role in ("ref", "cand")
    }
    total = len(found["ref"])
    known = sum(
        None not in (a.prompt_tokens_hash, b.prompt_tokens_hash)
        for a, b in zip(found["ref"], found["cand"], strict=True)
    )
    wrong = [
        (role, item, why)
        for role, side in (("ref", pair.ref), ("cand", pair.cand))
        for expected in [_expected(side)]
        for item in found[role]
        if (why := _wrong(item, expected)) is not None
    ]
    return Measurement(
        metric=NAME,
        value=float(len(wrong)),
        unit=UNIT,
        n=total,
        n_of=N_OF,
        worst=None if not wrong else Worst(place=_place(*wrong[0]), detail=wrong[0][2]),
        pattern=_pattern(known, total, wrong),
        breakdown={
            "compared by token ids": float(known),
            **{f"wrong in {role}": float(sum(w[0] == role for w in wrong)) for role in found},
        },
    )


def _expected(side: Side) -> int | None:
    evals = evals_of(side)
    return None if evals is None else evals.bos_expected


def _wrong(item: EvalItem, expected: int | None) -> str | None:
    if item.bos is not None and (item.bos != expected if expected is not None else item.bos > 1):
        wanted = ONE_BOS if expected is None else expected
        return f"starts with {item.bos} BOS tokens where the tokenizer puts {wanted}"
    return "was cut to fit" if item.truncated else None


def _place(role: str, item: EvalItem, _why: str) -> str:
    return f"{role}: {item.task} doc {item.doc_id}"


def _pattern(known: int, total: int, wrong: list[tuple[str, EvalItem, str]]) -> str | None:
    if wrong:
        role, item, why = wrong[0]
        return f"{_place(role, item, why)} {why}"
    if known < total:
        return f"{total - known} of {total} prompts compared as texts alone: no token ids were kept"
    return None
