"""Reasons that the prompts and streams give."""

from validate.pairing._reasons import Reason, lacking
from validate.schema import Prompt, Side

__all__ = ["prompt_reasons", "stream_reasons"]


def prompt_reasons(ref: Side, other: Side, *, name: str) -> list[Reason]:
    """Require the same prompts: none missing, none extra, token by token, in one order.

    Args:
        ref: The reference side.
        other: Candidate or oracle.
        name: ``cand`` or ``oracle``.

    Returns:
        Every reason; empty when both sides ran exactly the same prompts.
    """
    reasons = [
        Reason(
            other=name,
            kind="empty",
            headline=f"cannot be compared: {side} holds no prompts",
            facts=(f"{side} holds no prompts",),
            cause="the capture stopped before its first prompt, or the prompt set was empty",
            next_step=f"capture {side} anew",
        )
        for side, held in (("ref", ref), (name, other))
        if not held.prompts
    ]
    only_ref = tuple(prompt for prompt in ref.prompts if prompt not in other.prompts)
    only_other = tuple(prompt for prompt in other.prompts if prompt not in ref.prompts)
    facts = [
        fact
        for prompt in ref.prompts
        if prompt in other.prompts
        for fact in _differences(ref.prompts[prompt], other.prompts[prompt], name)
    ]
    same_digest = ref.manifest.prompt_digest == other.manifest.prompt_digest
    if not only_ref and not only_other and not facts:
        if list(ref.prompts) != list(other.prompts):
            facts.append(f"the order of the prompts differs between ref and {name}")
        elif not same_digest:
            facts.append(
                f"prompt digests differ (ref {ref.manifest.prompt_digest[:12]}, "
                f"{name} {other.manifest.prompt_digest[:12]}) although the prompts read the same"
            )
    if not only_ref and not only_other and not facts:
        return reasons
    shared = len(ref.prompts) - len(only_ref)
    total = shared + len(only_ref) + len(only_other)
    sets = f"ref ran prompt set {ref.manifest.prompt_set!r}, {name} {other.manifest.prompt_set!r}"
    cause = (
        "another prompt set or an unfinished capture" if not same_digest else "a damaged capture"
    )
    reasons.append(
        Reason(
            other=name,
            kind="prompts",
            headline=f"share {shared - _differing(ref, other)} of {total} prompts",
            facts=(sets, *facts),
            only_ref=only_ref,
            only_other=only_other,
            cause=cause,
            next_step=f"capture {name} on ref's prompt set {ref.manifest.prompt_set!r}",
        )
    )
    return reasons


def _differing(ref: Side, other: Side) -> int:
    """How many shared prompts differ in content."""
    return sum(
        bool(_differences(ref.prompts[prompt], other.prompts[prompt], ""))
        for prompt in ref.prompts
        if prompt in other.prompts
    )


def _differences(ref: Prompt, other: Prompt, name: str) -> list[str]:
    """What differs between two prompts of one id; token ids with their first position."""
    facts = []
    if ref.token_ids != other.token_ids:
        pairs = zip(ref.token_ids, other.token_ids, strict=False)  # lengths are told apart below
        first = next((i for i, (a, b) in enumerate(pairs) if a != b), None)
        if first is None:
            facts.append(
                f"{ref.id}: ref has {len(ref.token_ids)} tokens, {name} {len(other.token_ids)}"
            )
        else:
            facts.append(
                f"{ref.id}: token ids differ from position {first} on "
                f"(ref {ref.token_ids[first]}, {name} {other.token_ids[first]})"
            )
    facts += [
        f"{ref.id}: {field} is {getattr(ref, field)} in ref, {getattr(other, field)} in {name}"
        for field in ("prompt_length", "score_stride")
        if getattr(ref, field) != getattr(other, field)
    ]
    return facts


def stream_reasons(ref: Side, cand: Side) -> list[Reason]:
    """Require greedy streams for the same prompts on both sides."""
    only_ref = tuple(prompt for prompt in ref.streams if prompt not in cand.streams)
    only_cand = tuple(prompt for prompt in cand.streams if prompt not in ref.streams)
    facts = [
        f"{prompt}: ref is {ref.streams[prompt].kind}, cand is {cand.streams[prompt].kind}"
        for prompt in ref.streams
        if prompt in cand.streams and ref.streams[prompt].kind != cand.streams[prompt].kind
    ]
    if not only_ref and not only_cand and not facts:
        return []
    shared = len(ref.streams) - len(only_ref)
    return [
        Reason(
            other="cand",
            kind="streams",
            headline=f"share {shared} of {shared + len(only_ref) + len(only_cand)} greedy streams",
            facts=tuple(facts),
            only_ref=only_ref,
            only_other=only_cand,
            cause="one capture ran without its streams artifact or stopped early",
            next_step=lacking(only_ref, only_cand, name="cand", what="the streams")
            if only_ref or only_cand
            else "capture cand anew with streams of ref's kind",
        )
    ]
