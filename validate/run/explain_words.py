"""An explanation in words."""

from collections.abc import Iterator, Sequence

from validate.gates.outcome import number
from validate.metrics._own_steps import MODULES
from validate.metrics._words import ranges
from validate.schema.explained import FoundPlace, Rung, SwitchTried
from validate.schema.report import GateReport

__all__ = [
    "cause_words",
    "gate_rungs",
    "group_words",
    "heads_text",
    "is_state",
    "place_rungs",
    "some",
    "switch_summary",
    "switch_words",
]

MOST_NAMES = 5
QKV = "qkv"
STREAM_LEVELS = ("stream", "draft index", "finding")
"""What a summary tells of drawn streams; the way from gate to cause has all."""
Group = tuple[FoundPlace, ...]
_PASSES = {
    "prefill": "prefill",
    "decode": "decode",
    "oneshot": "state after the whole prefill",
    "chunked": "state after a prefill in pieces, of this layer or one before it",
}


def some(names: Sequence[str]) -> str:
    """The first names of a list, and how many more there are."""
    rest = len(names) - MOST_NAMES
    told = ", ".join(names[:MOST_NAMES])
    noun = "prompt" if len(names) == 1 else "prompts"
    return f"{noun} {told}{f' and {rest} more' if rest > 0 else ''}"


def is_state(place: FoundPlace) -> bool:
    """Whether a place is what a pass leaves behind."""
    return place.tensor.startswith("state.") or ".audit" in place.tensor


def gate_rungs(gate: GateReport) -> Iterator[Rung]:
    """The gate, and where it measures most."""
    found, limit = gate.measurement, gate.limit
    if found is None or found.value is None:
        yield Rung(level="gate", text=f"{gate.name} {gate.outcome}: {gate.reason}")
        return
    held = "" if limit is None else f", limit {number(limit.value)}"
    if gate.kind == "lossless":
        held = f", share of alpha {number(gate.alpha_share)}"
    yield Rung(
        level="gate",
        text=f"{gate.name} {gate.outcome}: {number(found.value, found.unit)}{held}",
    )
    worst = found.worst
    if worst is not None and worst.prompt is not None:
        where = "" if worst.position is None else f", position {worst.position}"
        place = "" if worst.place is None else f", {worst.place}"
        yield Rung(level="worst of the gate", text=f"prompt {worst.prompt}{where}{place}")


def _pass(group: Group) -> str:
    if group[0].mode == "decode" and is_state(group[0]):
        return "state after decode"
    return _PASSES[group[0].mode]


def _layers(group: Group) -> list[int]:
    return [place.layer for place in group if place.layer is not None]


def heads_text(place: FoundPlace) -> str:
    """Heads that err and how many there are; of a convolution's history q, k and v."""
    if place.module == "conv" and place.heads_of == len(QKV):
        return ", ".join(QKV[head] for head in place.heads)
    return f"{ranges(place.heads)} of {place.heads_of}" if place.heads_of else ""


def place_rungs(group: Group) -> Iterator[Rung]:
    """Places of one pass and module: which layers, which heads, where most."""
    first = group[0]
    layers = _layers(group)
    yield Rung(level="pass", text=_pass(group))
    if layers:
        yield Rung(level="layer", text=ranges(layers))
    yield Rung(level="module", text=f"{first.module}, {MODULES[first.module]}")
    heads = [heads_text(place) for place in group]
    told = dict.fromkeys(text for text in heads if text)
    if len(told) == 1:
        yield Rung(level="head", text=next(iter(told)))
    elif told:
        text = "; ".join(
            f"layer {place.layer}: {text}" for place, text in zip(group, heads, strict=True) if text
        )
        yield Rung(level="head", text=text)
    if first.prompt is not None:
        where = "" if first.position is None else f" position {first.position}"
        yield Rung(level="position", text=f"most at prompt {first.prompt}{where}")
    if first.pattern is not None:
        yield Rung(level="pattern", text=first.pattern)
    yield Rung(level="error", text=f"{first.tensor}: {_error(first)}")


def _error(place: FoundPlace) -> str:
    mine = "not finite" if place.cand is None else number(place.cand, "rel-L2")
    if is_state(place) and place.ref is None:
        return f"{mine}, limit {number(place.expected)}"
    own = "" if place.ref is None else f"; ref's own operation {number(place.ref)}"
    return f"cand introduces {mine} on its own inputs{own}, expected up to {number(place.expected)}"


def group_words(group: Group) -> str:
    """One cause in a few words: pass, module, layers, heads."""
    first, layers = group[0], _layers(group)
    noun = "layer" if len(layers) == 1 else "layers"
    where = f", {noun} {ranges(layers)}" if layers else ""
    heads = heads_text(first)
    told = f", heads {heads}" if heads and first.module != "conv" else ""
    more = f" in layer {first.layer}" if told and len({p.heads for p in group}) > 1 else ""
    return f"{first.module} ({_pass(group)}){where}{told}{more}"


def cause_words(
    gate: GateReport, kept: Sequence[Group], *, streams: Sequence[Rung], looked: bool
) -> str:
    """What is at fault, in one sentence.

    Args:
        gate: The gate.
        kept: Places by pass and module, the first the first cause.
        streams: What a gate on drawn streams says of itself.
        looked: Whether any operation was held against the exact one.
    """
    if kept:
        others = f"; {len(kept) - 1} more below" if len(kept) > 1 else ""
        if kept[0][0].ref is None and is_state(kept[0][0]):
            return (
                f"{gate.name}: cand's states leave their replay in {group_words(kept[0])}{others}"
            )
        return f"{gate.name}: cand errs on its own inputs in {group_words(kept[0])}{others}"
    if streams:
        told = [f"{rung.level} {rung.text}" for rung in streams if rung.level in STREAM_LEVELS]
        return f"{gate.name}: not a layer, but the streams: {'; '.join(told or [streams[0].text])}"
    if looked:
        why = (
            "no captured operation of cand errs on its own inputs more than ref's does; what the gate "
            "shows is added up over layers, or lies outside what was captured"
        )
    elif gate.name.startswith("renorm."):
        why = "top-k and top-p on cand's own rows, which no layer stands behind"
    else:
        why = "not followed to a layer"
    return f"{gate.name}: {why}"


def switch_words(tried: SwitchTried) -> str:
    """One switch that was tried, and what came of it."""
    value = "" if tried.value is None else f" (measures {number(tried.value)})"
    note = "" if tried.note is None else f"; {tried.note}"
    change = f"{tried.switch} ({tried.key}) {tried.given} -> {tried.tried}"
    word = {
        "vanishes": "makes it vanish",
        "stays": "leaves it",
        "unknown": "cannot be told",
        "not tried": "not tried",
    }[tried.found]
    return f"{change}: {word}{value}{note}"


def switch_summary(tried: Sequence[SwitchTried]) -> str:
    """Which switch makes it vanish; empty where none was tried."""
    done = [one for one in tried if one.found != "not tried"]
    if not done:
        return ""
    own = [one for one in done if one.found == "vanishes" and one.key != "path"]
    if own:
        values: dict[tuple[str, str], list[str]] = {}
        for one in own:
            values.setdefault((one.switch, one.key), []).append(one.tried)
        told = [f"{name} ({key}={' or '.join(tried)})" for (name, key), tried in values.items()]
        return f"it vanishes with {', '.join(told)}"
    open_ = [one for one in done if one.found == "unknown"]
    aside = f" ({len(open_)} could not be told)" if open_ else ""
    if any(one.found == "vanishes" for one in done):
        return f"none of its switches makes it vanish{aside}, the reference path in its place does"
    return f"none of its switches makes it vanish{aside}"
