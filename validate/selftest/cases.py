"""What is planted in an area: its faults at each severity, its controls, and on which prompts."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from validate.capture.targets import did_you_mean
from validate.errors import InputError
from validate.faults import FAULTS
from validate.faults.speculative import SPECULATIVE_CONTROLS, SPECULATIVE_SAMPLES, Sample
from validate.schema import Prompt
from validate.schema.fault import Expect

__all__ = [
    "AREAS",
    "Area",
    "Case",
    "cases_of",
    "chosen",
    "drawn_from",
    "find_area",
    "random_prompts",
]

SIDE_TARGETS = {"cand": "rocm"}
"""Which path a fault of a side is planted in."""
RANDOM_SEED = 20261130
RANDOM_PROMPTS, RANDOM_LENGTHS = 48, (2, 12)
"""Short: behind many random bytes rounding moves a draw of every fourth prompt."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """One planted fault at one severity, or one control."""

    id: str
    is_fault: bool
    title: str
    source: str
    target: str
    """What is compared with ref."""
    expect: Expect
    gates: tuple[str, ...] = ()
    """Gates that the record names."""
    severity: str | None = None
    sample: Sample = field(default_factory=Sample)
    """What is drawn, where it is not what a default capture holds."""

    @property
    def key(self) -> str:
        """Name that no other case of its area has."""
        return self.id if self.severity is None else f"{self.id} {self.severity}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Area:
    """How one area of gates is tested."""

    name: str
    wants: Callable[[Prompt], bool]
    """Which prompts of the suite its gates look at; others are not captured."""
    controls: Callable[[], tuple[Case, ...]]


def _speculative_controls() -> tuple[Case, ...]:
    return tuple(
        Case(
            id=one.id,
            is_fault=False,
            title=one.title,
            source=one.source,
            target=one.target,
            expect="PASS",
            sample=one.sample,
        )
        for one in SPECULATIVE_CONTROLS
    )


AREAS: Mapping[str, Area] = {
    "speculative": Area(
        name="speculative",
        wants=lambda prompt: "speculative" in prompt.tags,
        controls=_speculative_controls,
    ),
}
"""Areas that can be tested; each has faults whose records name a gate of it."""


def find_area(name: str) -> Area:
    """The area called ``name``.

    Raises:
        InputError: There is none; the message has all.
    """
    if name not in AREAS:
        msg = (
            f"--area {name}: nothing is planted in it yet{did_you_mean(name, AREAS)}\n"
            f"  known: {', '.join(AREAS)}"
        )
        raise InputError(msg)
    return AREAS[name]


def cases_of(area: Area) -> tuple[Case, ...]:
    """Faults in the order of the catalogue, each at every severity, then controls."""
    faults = []
    for fault in FAULTS.values():
        gates = tuple(gate for gate in fault.gates if gate.partition(".")[0] == area.name)
        if not gates:
            continue
        side = SIDE_TARGETS[fault.where]
        for severity in fault.severities or (None,):
            graded = "" if severity is None else f",severity={severity}"
            faults.append(
                Case(
                    id=fault.id,
                    is_fault=True,
                    title=fault.title,
                    source=fault.source,
                    target=f"{side}:fault={fault.id}{graded}",
                    expect=fault.expect,
                    gates=gates,
                    severity=severity,
                    sample=SPECULATIVE_SAMPLES.get(fault.id, Sample()),
                )
            )
    return (*faults, *area.controls())


def chosen(cases: Sequence[Case], ids: Sequence[str]) -> tuple[Case, ...]:
    """The cases of ``ids``, or all when there are none.

    Raises:
        InputError: An id is none of the cases'.
    """
    known = list(dict.fromkeys(case.id for case in cases))
    for name in ids:
        if name not in known:
            msg = (
                f"--only-fault {name}: no fault and no control of this area"
                f"{did_you_mean(name, known)}\n  known: {', '.join(known)}"
            )
            raise InputError(msg)
    return tuple(case for case in cases if not ids or case.id in ids)


def drawn_from(prompts: Sequence[Prompt]) -> tuple[Prompt, ...]:
    """The prompts with the tag that has them drawn from."""
    return tuple(
        prompt.model_copy(update={"tags": tuple(dict.fromkeys((*prompt.tags, "speculative")))})
        for prompt in prompts
    )


def random_prompts() -> tuple[Prompt, ...]:
    """Prompts of random bytes behind the begin token, of 2 to 11 bytes; always the same."""
    rng = np.random.default_rng(RANDOM_SEED)
    made = []
    for number in range(RANDOM_PROMPTS):
        length = int(rng.integers(*RANDOM_LENGTHS))
        ids = (256, *(int(x) for x in rng.integers(0, 256, size=length)))
        tags = ("random", "speculative", *(("tensors",) if number < 3 else ()))  # noqa: PLR2004
        made.append(
            Prompt(id=f"random-{number:02}", token_ids=ids, prompt_length=len(ids) - 1, tags=tags)
        )
    return tuple(made)
