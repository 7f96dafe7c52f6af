"""One switch of the candidate at a time: which of them makes a failure vanish?"""

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

from validate.errors import ValidateError
from validate.schema.explained import SwitchTried
from validate.schema.manifest import Manifest
from validate.schema.paths import PAD_BRANCHES
from validate.schema.report import GateReport, MeasurementReport

__all__ = ["SWITCHES", "Measured", "Switch", "given", "settings", "shows", "try_switches"]

INNER = ("attention", "state", "logits", "greedy")
DRAWN = ("speculative",)
OF_ROWS = ("speculative.verify_kl", "speculative.verify_logprob", "speculative.audit")
"""Gates of drawn streams that look at rows and states, as those of ``INNER`` do."""
PATH = "path"


@dataclass(frozen=True, slots=True, kw_only=True)
class Switch:
    """A switch, and what it is set to where ref's own value does not differ from cand's."""

    name: str
    key: str
    default: str
    plain: tuple[str, ...]
    """Values to try, cand's own left out."""
    reaches: tuple[str, ...]
    """Areas or gates that it can reach at all."""


SWITCHES = (
    Switch(name="drafting", key="draft", default="on", plain=("off",), reaches=DRAWN),
    Switch(
        name="verifier",
        key="verifier",
        default="chain",
        plain=("chain", "target_only", "exact_match"),
        reaches=DRAWN,
    ),
    Switch(name="sampler build", key="build", default="sparse", plain=("dense",), reaches=DRAWN),
    Switch(name="confidence cut", key="cut", default="0", plain=("0",), reaches=DRAWN),
    Switch(
        name="padding",
        key="pad",
        default="zero",
        plain=("zero", "tile", "repeat"),
        reaches=(*INNER, *OF_ROWS),
    ),
    Switch(name="split count", key="splits", default="4", plain=("1",), reaches=(*INNER, *OF_ROWS)),
    Switch(
        name="prefill dtype",
        key="prefill",
        default="bf16",
        plain=("bf16",),
        reaches=(*INNER, *OF_ROWS),
    ),
    Switch(
        name="state dtype", key="state", default="fp32", plain=("fp32",), reaches=(*INNER, *OF_ROWS)
    ),
    Switch(
        name="prefill chunk", key="chunk", default="32", plain=("0",), reaches=(*INNER, *OF_ROWS)
    ),
    Switch(name="batch size", key="batch", default="8", plain=("1",), reaches=(*INNER, *DRAWN)),
    Switch(
        name="renorm",
        key="renorm",
        default="exactly_k",
        plain=("all", "exactly_k"),
        reaches=("renorm",),
    ),
    Switch(
        name="whole path",
        key=PATH,
        default="rocm",
        plain=("reference",),
        reaches=(*INNER, *DRAWN, "renorm"),
    ),
)

Measured = tuple[MeasurementReport | None, str | None]
"""What the gate measures of a capture with one switch set, and a note on how it was made."""


def given(switch: Switch, manifest: Manifest) -> str:
    """The value a capture was made with; a pad as its path proof has it."""
    if switch.key == PATH:
        return manifest.path_proof.path
    if switch.key == "pad":
        ran = manifest.path_proof.branches
        proven = [rule for rule, (_, branch) in PAD_BRANCHES.items() if ran.get(branch, 0) > 0]
        if proven:
            return proven[0]
    return manifest.options.get(switch.key, switch.default)


def settings(
    gate: GateReport, *, ref: Manifest, cand: Manifest
) -> Iterator[tuple[Switch, str, str, str | None]]:
    """Every switch with cand's value, the value to try, and why it is not tried.

    Args:
        gate: The gate that is explained.
        ref: Whose values come first.
        cand: Whose switches they are.
    """
    for switch in SWITCHES:
        mine = given(switch, cand)
        theirs = given(switch, ref)
        known = (*switch.plain, *((theirs,) if theirs.isdecimal() else ()))
        values = [v for v in dict.fromkeys((theirs, *switch.plain)) if v in known and v != mine]
        if not {gate.name.partition(".")[0], gate.name} & set(switch.reaches):
            yield (
                switch,
                mine,
                values[0] if values else mine,
                "nothing that this gate reads hangs on it",
            )
        elif not values:
            yield switch, mine, mine, "cand has it as ref does"
        else:
            for value in values:
                yield switch, mine, value, None


def shows(gate: GateReport, found: MeasurementReport | None) -> bool | None:
    """Whether a measurement on few prompts is beyond the gate's limit; None: it cannot be told.

    The number itself counts, without its interval: fewer prompts than the gate asks for would
    settle nothing else. A p-value counts below the gate's share of alpha.
    """
    if found is None or found.value is None or gate.limit is None:
        return None
    value = found.value
    if gate.kind == "lossless":
        return value < gate.alpha_share
    if gate.kind == "exact":
        return value != gate.limit.value
    if gate.kind == "noise_ratio":
        floor = None if gate.noise is None else gate.noise.value
        return None if not floor else not value / floor <= gate.limit.value
    row = gate.limit.worst
    worst = found.worst_value
    beyond = gate.kind == "three_way" and row is not None and worst is not None and not worst <= row
    return beyond or not value <= gate.limit.value


def try_switches(
    gate: GateReport,
    *,
    ref: Manifest,
    cand: Manifest,
    measure: Callable[[Mapping[str, str], str | None], Measured],
) -> tuple[SwitchTried, ...]:
    """Set each switch that can reach the gate, one at a time, and measure again.

    Args:
        gate: The gate whose failure shows with nothing changed.
        ref: Ref's manifest.
        cand: Cand's manifest.
        measure: Given options to set and another path, or None to keep cand's, measures the gate.
    """
    return tuple(
        _tried(gate, switch, mine, value, why, measure)
        for switch, mine, value, why in settings(gate, ref=ref, cand=cand)
    )


def _tried(
    gate: GateReport,
    switch: Switch,
    mine: str,
    value: str,
    why: str | None,
    measure: Callable[[Mapping[str, str], str | None], Measured],
) -> SwitchTried:
    told = {"switch": switch.name, "key": switch.key, "given": mine, "tried": value}
    if why is not None:
        return SwitchTried(**told, found="not tried", note=why)
    try:
        if switch.key == PATH:
            found, note = measure({}, value)
        else:
            found, note = measure({switch.key: value}, None)
    except ValidateError as error:
        return SwitchTried(**told, found="unknown", note=str(error).splitlines()[0])
    beyond = shows(gate, found)
    number = None if found is None else found.value
    if beyond is None:
        undefined = "nothing was measured" if found is None else found.why_undefined
        note = "; ".join(part for part in (note, undefined) if part)
        return SwitchTried(**told, found="unknown", value=number, note=note or None)
    kept = number if number is not None and math.isfinite(number) else None
    return SwitchTried(**told, found="stays" if beyond else "vanishes", value=kept, note=note)
