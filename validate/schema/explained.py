"""What ``--explain`` found: from a gate down to layer, module and head, and the switches tried."""

from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field

from validate.schema.verdict import Outcome

__all__ = ["Explained", "FoundPlace", "Rung", "SwitchTried"]

Number = Annotated[float, Field(allow_inf_nan=False)]


class _Record(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)


class Rung(_Record):
    """One line of the way from the gate to the cause."""

    level: str
    """``gate``, ``prompt``, ``position``, ``pass``, ``layer``, ``module``, ``head``, ``stream`` …"""
    text: str


class FoundPlace(_Record):
    """An operation of cand that errs on its own inputs, or a state that does."""

    mode: str
    """``prefill`` or ``decode``; of states ``oneshot``, ``chunked``, ``decode``."""
    layer: int | None
    """Null for what stands behind all layers."""
    module: str
    tensor: str
    """The captured tensor."""
    heads: tuple[int, ...] = ()
    """Those that err; empty where the tensor has no heads."""
    heads_of: int = 0
    """Heads of the tensor; 0: none."""
    prompt: str | None = None
    position: int | None = None
    """Where a row errs most."""
    ref: Number | None
    """Introduced error of ref's own operation there, relative L2; null where ref has none to show."""
    cand: Number | None
    """The same of cand; null where it is not finite."""
    expected: Number
    """The larger of ref's error and rounding: what a right operation stays near."""
    pattern: str | None = None


class SwitchTried(_Record):
    """One switch of the candidate, set to another value, everything else as it was."""

    switch: str
    key: str
    given: str
    tried: str
    value: Number | None = None
    """What the gate's metric measures then; null where it is undefined or was not measured."""
    found: Literal["vanishes", "stays", "unknown", "not tried"]
    note: str | None = None


class Explained(_Record):
    """The explanation of one gate. It changes no verdict."""

    gate: str
    outcome: Outcome
    status: Literal["nothing to explain", "explained", "not explained", "crashed"]
    summary: str
    """In one or two sentences."""
    rungs: tuple[Rung, ...] = ()
    places: tuple[FoundPlace, ...] = ()
    """In the order of a forward pass."""
    switches: tuple[SwitchTried, ...] = ()
    baseline: Number | None = None
    """What the gate's metric measures of cand as it was given, on the prompts of the switches."""
    unit: str = ""
    prompts: tuple[str, ...] = ()
    """Prompts that the switches were tried on."""
    notes: tuple[str, ...] = ()
