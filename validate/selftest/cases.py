"""What is planted: faults at each severity, controls, and on which prompts each is judged."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from validate.capture.targets import did_you_mean
from validate.errors import InputError
from validate.faults import FAULTS
from validate.faults.speculative import SPECULATIVE_CONTROLS, SPECULATIVE_SAMPLES, Sample
from validate.schema import Prompt
from validate.schema.fault import Expect, Fault, Where
from validate.selftest.controls import EVAL_CONTROLS, MODEL_CONTROLS
from validate.selftest.trim import DRAWN

__all__ = [
    "AREAS",
    "Area",
    "Case",
    "all_cases",
    "cases_of",
    "drawn_from",
    "find_area",
    "in_area",
    "long_prompts",
    "random_prompts",
]

CAND = "rocm"
"""The path that candidates run."""
LONGEST = 65
"""Most tokens of a prompt that is judged without streams at T > 0: 58 prompts, enough for every
quantile and rate of the suite, and some at the edge of a chunk of 64."""
BOS, NEWLINE = 256, 10
RANDOM_SEED = 20261130
RANDOM_PROMPTS, RANDOM_LENGTHS = 48, (2, 12)
"""Short: behind many random bytes rounding moves a draw of every fourth prompt."""
LONG_SEED = 20261129
LONG_PROMPTS, LONG_TOKENS = 8, 1000
"""Deep enough for faults that grow with the position; an upper limit of a median takes five."""


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
    stage: str = "speculative"
    """The area whose captures it is judged on."""
    where: Where = "cand"
    """What is made wrong: a path that runs, or what was recorded."""
    options: Mapping[str, str] = field(default_factory=dict)
    """Keys of cand's path that targets do not have."""
    leading: bool = True
    """At the severity of its record; smaller ones tell what is still seen."""

    @property
    def key(self) -> str:
        """Name that no other case of its area has."""
        return self.id if self.severity is None else f"{self.id} {self.severity}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Area:
    """How some areas of gates are tested, on captures of one kind."""

    name: str
    wants: Callable[[Prompt], bool]
    """Which prompts of the suite its gates look at; others are not captured."""
    controls: Callable[[], tuple[Case, ...]]
    judges: tuple[str, ...]
    """Areas of gates."""
    drawn: bool = True
    """Whether streams at T > 0 are drawn."""


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


def _nothing(_prompt: Prompt) -> bool:
    return False


def _model_controls() -> tuple[Case, ...]:
    return tuple(
        Case(
            id=one.id,
            is_fault=False,
            title=one.title,
            source=one.source,
            target=one.target,
            expect="PASS",
            stage="model",
            where=one.where,
            options=one.options,
        )
        for one in MODEL_CONTROLS
    )


def _eval_controls() -> tuple[Case, ...]:
    return tuple(
        Case(
            id=one.id,
            is_fault=False,
            title=one.title,
            source=one.source,
            target=one.target,
            expect="PASS",
            stage="evals",
            where=one.where,
        )
        for one in EVAL_CONTROLS
    )


AREAS: Mapping[str, Area] = {
    "speculative": Area(
        name="speculative",
        wants=lambda prompt: DRAWN in prompt.tags,
        controls=_speculative_controls,
        judges=("speculative",),
    ),
    "model": Area(
        name="model",
        wants=lambda prompt: len(prompt.token_ids) <= LONGEST,
        controls=_model_controls,
        judges=("yardstick", "attention", "state", "logits", "greedy", "renorm"),
        drawn=False,
    ),
    "evals": Area(name="evals", wants=_nothing, controls=_eval_controls, judges=("evals",)),
}
"""What is captured for whom: each area has faults whose records name a gate of it."""


def find_area(name: str) -> Area:
    """The area called ``name``, or the one whose captures gates of ``name`` are judged on.

    Raises:
        InputError: There is none; the message has all.
    """
    if name in AREAS:
        return AREAS[name]
    for area in AREAS.values():
        if name in area.judges:
            return area
    areas = (a for area in AREAS.values() for a in (area.name, *area.judges))
    known = tuple(dict.fromkeys((*areas, "pairing", "conformance", "all")))
    msg = (
        f"--area {name}: there is no such area{did_you_mean(name, known)}\n"
        f"  known: {', '.join(known)}"
    )
    raise InputError(msg)


def all_cases() -> tuple[Case, ...]:
    """Every fault that is planted in captures or results, and every control of them."""
    return tuple(case for area in AREAS.values() for case in cases_of(area))


def cases_of(area: Area) -> tuple[Case, ...]:
    """Faults in the order of the catalogue, each at every severity, then controls."""
    faults = [
        _case(fault, severity)
        for fault in FAULTS.values()
        if _stage(fault) == area.name
        for severity in fault.severities or (None,)
    ]
    return (*faults, *area.controls())


def in_area(case: Case, area: str) -> bool:
    """Whether a case belongs to an area of gates: a record names one of them, or a control may."""
    if area == "pairing":
        return case.is_fault and not case.gates
    if area == case.stage:
        return True
    if not case.is_fault:
        return area in AREAS[case.stage].judges
    return area in {gate.partition(".")[0] for gate in case.gates}


def _stage(fault: Fault) -> str:
    if fault.where == "evals":
        return "evals"
    drawn = any(gate.partition(".")[0] == "speculative" for gate in fault.gates)
    return "speculative" if drawn else "model"


def _case(fault: Fault, severity: str | None) -> Case:
    graded = "" if severity is None else f",severity={severity}"
    target = {
        "cand": f"{CAND}:fault={fault.id}{graded}",
        "ref": CAND,
        "capture": CAND,
        "evals": "folder",
    }[fault.where]
    return Case(
        id=fault.id,
        is_fault=True,
        title=fault.title,
        source=fault.source,
        target=target,
        expect=fault.expect,
        gates=fault.gates,
        severity=severity,
        sample=SPECULATIVE_SAMPLES.get(fault.id, Sample()),
        stage=_stage(fault),
        where=fault.where,
        leading=severity in (None, *fault.severities[:1]),
    )


def drawn_from(prompts: Sequence[Prompt]) -> tuple[Prompt, ...]:
    """The prompts with the tag that has them drawn from."""
    return tuple(
        prompt.model_copy(update={"tags": tuple(dict.fromkeys((*prompt.tags, "speculative")))})
        for prompt in prompts
    )


def long_prompts(prompts: Sequence[Prompt]) -> tuple[Prompt, ...]:
    """Prompts of 1,000 tokens, the suite's texts in orders of their own; always the same."""
    rng = np.random.default_rng(LONG_SEED)
    texts = [prompt.token_ids[1:] for prompt in prompts if "text" in prompt.tags]
    made = []
    for number in range(LONG_PROMPTS):
        ids = [BOS]
        while len(ids) < LONG_TOKENS:
            ids += [*texts[int(rng.integers(len(texts)))], NEWLINE]
        made.append(
            Prompt(
                id=f"long-{number:02}",
                token_ids=tuple(ids[:LONG_TOKENS]),
                prompt_length=LONG_TOKENS - 1,
                tags=("long", "speculative"),
            )
        )
    return tuple(made)


def random_prompts() -> tuple[Prompt, ...]:
    """Prompts of random bytes behind the begin token, of 2 to 11 bytes; always the same."""
    rng = np.random.default_rng(RANDOM_SEED)
    made = []
    for number in range(RANDOM_PROMPTS):
        length = int(rng.integers(*RANDOM_LENGTHS))
        ids = (BOS, *(int(x) for x in rng.integers(0, 256, size=length)))
        tags = ("random", "speculative", *(("tensors",) if number < 3 else ()))  # noqa: PLR2004
        made.append(
            Prompt(id=f"random-{number:02}", token_ids=ids, prompt_length=len(ids) - 1, tags=tags)
        )
    return tuple(made)
