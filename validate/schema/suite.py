"""Suites (what is gated, at which risk) and limits (by which numbers), as records."""

import datetime as dt
import hashlib
import json
import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field, model_validator

from validate.schema.manifest import Evidence
from validate.schema.verdict import GateKind, Limit

__all__ = [
    "AREAS",
    "DTYPES",
    "EVALS_YARDSTICK",
    "SETTINGS",
    "YARDSTICK",
    "CleanRule",
    "GateSpec",
    "LimitEntry",
    "Limits",
    "Suite",
    "Waiver",
]

AREAS = (
    "yardstick",
    "attention",
    "state",
    "logits",
    "greedy",
    "speculative",
    "renorm",
    "evals",
)
"""All areas a gate may belong to, in the order of a report."""

DTYPES = (
    "float64",
    "float32",
    "float16",
    "bfloat16",
    "float8_e4m3fn",
    "float8_e4m3fnuz",
    "float8_e5m2",
)
"""Dtypes that limits are keyed by, from the widest to the narrowest."""

SETTINGS = ("near_tie", "route_gap")
"""Limits that pairs are made with, beside those of gates."""

SMALLEST_SHARE = 1e-9
"""Of alpha; the confidence level of a smaller share could not be told from 1."""

EVALS_YARDSTICK = ("yardstick.aa",)
"""Those of a suite of evals alone: a foreign folder has no path proof, repeats or oracle."""

YARDSTICK = ("yardstick.aa", "yardstick.floor", "yardstick.path_proof", "yardstick.ref_error")
"""Gates on ref, its repeats and the path proofs; judged before all others."""

GateName = Annotated[str, Field(pattern=r"^[a-z]+\.[a-z][a-z0-9_]*$")]
Finite = Annotated[float, Field(strict=True, allow_inf_nan=False)]
Size = Annotated[float, Field(strict=True, ge=0, allow_inf_nan=False)]
"""A number that measures a size: finite and not negative."""
Text = Annotated[str, Field(min_length=1)]


class _Record(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class GateSpec(_Record):
    """One gate of a suite."""

    name: GateName
    """``area.metric``; areas are ``AREAS``."""
    kind: GateKind
    weight: Size = 0.0
    """Weight in the split of alpha. 0: the measurement is deterministic and spends none."""
    metric: GateName | None = None
    """Metric that is measured; None: the one of the gate's own name."""
    limit: GateName | None = None
    """Key in the limits file; None: the gate's own name."""
    equals: Finite = 0.0
    """The value that an ``exact`` gate demands."""
    effect: Annotated[float, Field(strict=True, gt=0, allow_inf_nan=False)] | None = None
    """Of a ``lossless`` gate: the effect that must be seen with power 1 - beta before a
    non-rejection is a PASS."""
    effect_of: Text | None = None
    """What ``effect`` measures, in words."""
    inside_cand: bool = False
    """True when cand is measured against itself: A/A then says nothing about it."""

    @model_validator(mode="after")
    def _consistent(self) -> "GateSpec":
        if self.area not in AREAS:
            msg = f"area '{self.area}' is none of {', '.join(AREAS)}"
            raise ValueError(msg)
        if self.kind == "exact" and self.weight > 0:
            msg = f"weight {self.weight:g} on an exact gate, which is deterministic; use 0"
            raise ValueError(msg)
        if (self.kind == "lossless") != (self.effect is not None and self.effect_of is not None):
            msg = (
                f"kind {self.kind}: a lossless gate, and no other, states 'effect' and 'effect_of', "
                f"got {self.effect} and {self.effect_of!r}"
            )
            raise ValueError(msg)
        if self.kind == "noninferior" and not self.weight > 0:
            msg = "a noninferior gate needs a weight: its measurement has an interval"
            raise ValueError(msg)
        if self.kind != "exact" and self.equals != 0:
            msg = f"equals = {self.equals:g} means nothing to a {self.kind} gate"
            raise ValueError(msg)
        return self

    @property
    def area(self) -> str:
        """The part of the name before the dot."""
        return self.name.partition(".")[0]

    @property
    def measures(self) -> str:
        """Name of the metric that is measured for this gate."""
        return self.metric or self.name

    @property
    def limit_key(self) -> str:
        """Key of its limit, without the dtype."""
        return self.limit or self.name

    @property
    def on_self(self) -> float | None:
        """What it must measure on ref against ref: 0, 1 for a ratio of errors, None: no telling."""
        if self.inside_cand or self.area == "yardstick" or self.kind == "lossless":
            return None
        return 1.0 if self.kind == "three_way" else 0.0


class Waiver(_Record):
    """A known FAIL or INCONCLUSIVE of one gate that does not count, for a while."""

    gate: GateName
    """Gate of the suite; yardstick gates cannot be waived."""
    cand: Text = "*"
    """Candidate targets it holds for, as a glob: ``rocm*``, ``rocm:prefill=fp8``."""
    reason: Text
    """Why the gate may be waived, in one sentence."""
    issue: Text
    """Where the cause is tracked."""
    expires: Annotated[dt.date, Field(strict=True)]
    """Last day on which it holds."""


class Suite(_Record):
    """A suite: what is gated, at which two risks, on which evidence."""

    schema_version: Literal[1]
    name: Annotated[str, Field(pattern=r"^[a-z0-9][a-z0-9-]*$")]
    alpha: Annotated[float, Field(strict=True, gt=0, lt=0.5, allow_inf_nan=False)]
    """Chance of any FAIL on a right candidate, over the whole suite."""
    beta: Annotated[float, Field(strict=True, gt=0, lt=0.5, allow_inf_nan=False)]
    """Chance of a PASS at the limit, for each gate."""
    evidence: Annotated[tuple[Evidence, ...], Field(min_length=1)]
    """Accepted for ref and cand; the oracle is exempt."""
    model: Text
    """``ModelIdentity.name`` of the captures; ``*``: any, in suites of evals alone."""
    prompts: Text
    """Prompt set, by path or name; not read in suites of evals alone."""
    tasks: Text | None = None
    """Folder of lm-eval tasks that captures made for this suite run too; None: no evals."""
    limits: Text = "golden/tolerances.toml"
    """The limits file."""
    gates: Annotated[tuple[GateSpec, ...], Field(min_length=1)]
    waivers: tuple[Waiver, ...] = ()
    """Waivers written in the suite itself, as ``[[waivers]]``."""
    waivers_file: Text | None = None
    """A file of further waivers, below the project's root."""
    path: str = "suites/default.toml"
    """Where the file lies, for messages and rerun lines; not part of the digest."""

    @model_validator(mode="after")
    def _consistent(self) -> "Suite":
        names = [gate.name for gate in self.gates]
        twice = sorted({name for name in names if names.count(name) > 1})
        if twice:
            msg = f"gate listed twice: {', '.join(twice)}"
            raise ValueError(msg)
        total = sum(gate.weight for gate in self.gates)
        if not math.isfinite(total):
            msg = f"the weights add up to {total}; they are relative, so use numbers near 1"
            raise ValueError(msg)
        for gate in self.gates:
            if gate.weight > 0 and not gate.weight / total >= SMALLEST_SHARE:
                msg = (
                    f"gate '{gate.name}': weight {gate.weight:g} of {total:g} in all is no share "
                    f"of alpha (at least {SMALLEST_SHARE:g}); use 0 for a deterministic gate"
                )
                raise ValueError(msg)
        return self

    @property
    def evals_only(self) -> bool:
        """Whether nothing but downstream evals is judged, so that lm-eval folders will do."""
        return {gate.area for gate in self.gates} - {"yardstick"} == {"evals"}

    @property
    def digest(self) -> str:
        """SHA-256 of all that the suite says, whatever its comments and layout."""
        unsaid = {"path"} if self.tasks is not None else {"path", "tasks"}
        said = self.model_dump(mode="json", exclude=unsaid)
        text = json.dumps(said, sort_keys=True, allow_nan=False)
        return hashlib.sha256(text.encode()).hexdigest()

    def gate(self, name: str) -> GateSpec | None:
        """The gate called ``name``, or None."""
        return next((gate for gate in self.gates if gate.name == name), None)


class LimitEntry(_Record):
    """One table of the limits file, e.g. ``[logits.kl_p90.bfloat16]``."""

    value: Size
    worst: Size | None = None
    source: Literal["measured", "derived", "published"]
    pointer: Text
    """What the number rests on: a section, a file, a paper."""
    clean: Size | None = None
    fault: Size | None = None
    fault_id: Text | None = None
    roundoff: tuple[Size, Annotated[int, Field(strict=True, ge=1)]] | None = None

    @model_validator(mode="after")
    def _consistent(self) -> "LimitEntry":
        if self.clean is not None and not self.clean < self.value:
            msg = f"value {self.value:g} is not above clean {self.clean:g}"
            raise ValueError(msg)
        if self.fault is not None and not self.value < self.fault:
            msg = f"value {self.value:g} is not below the smallest fault {self.fault:g}"
            raise ValueError(msg)
        if (self.fault is None) != (self.fault_id is None):
            msg = "fault and fault_id go together"
            raise ValueError(msg)
        return self


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """All limits of one file."""

    path: str
    """The file, for pointers and messages."""
    entries: Mapping[str, Limit]
    """By key and dtype: ``logits.kl_p90.bfloat16``, ``near_tie.bfloat16``,
    ``deviation.prefill-fp8.logits.kl_p90.bfloat16``."""
    lines: Mapping[str, int] = field(default_factory=dict)
    """Line of each table, for messages."""


class CleanRule(_Record):
    """How one limit follows from reference captures alone (``golden/calibration.toml``)."""

    basis: Annotated[tuple[Literal["repeats", "oracle", "reverse"], ...], Field(min_length=1)]
    """Clean pairs that count: ref against its repeats, the oracle against ref and its repeats,
    and these against the oracle (``reverse``)."""
    factor: Annotated[float, Field(strict=True, gt=1, allow_inf_nan=False)]
    """The limit is ``factor`` times the clean upper limit."""
    at_least: Size = 0.0
    """Smallest limit, in the limit's unit: what rounding alone may give."""
    worst_factor: Annotated[float, Field(strict=True, gt=1, allow_inf_nan=False)] | None = None
    """The same for ``worst``; three_way gates need it."""
    worst_at_least: Size = 0.0
    roundoff: tuple[Size, Annotated[int, Field(strict=True, ge=1)]] | None = None
    """Copied to the limit: the floor where repeats measure 0."""
    at_most: Size | None = None
    """A limit above this would pass anything; the rule is then refused."""
    metrics: tuple[GateName, ...] = ()
    """Metrics whose worst value sets a ``near_tie`` or ``route_gap``; gates name their own."""
    breakdown: Text | None = None
    """Take this companion of those metrics instead of their worst value."""
    why: Text
    """The reason for the factor, in one sentence."""
