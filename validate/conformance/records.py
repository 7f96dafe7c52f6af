"""Records of the conformance room: a contract, a sweep point, a breach, an operation.

An operation is one thing a kernel may replace. Its ``Contract`` is the promise in
words; ``cases`` gives the sweep points; ``check`` runs an implementation on one
point and says which clauses it breaks.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Protocol, runtime_checkable

import numpy as np

__all__ = [
    "Axis",
    "Breach",
    "Call",
    "Case",
    "Contract",
    "Effort",
    "Implementation",
    "Operation",
    "OutputSpec",
    "Settings",
]


Axis = int | float | str | bool
"""One coordinate of a sweep point."""
Settings = Mapping[str, str]
"""Contract settings, e.g. ``{"ties": "all"}``; every key of ``Contract.settings`` is present."""


class Effort(StrEnum):
    """How much of the sweep runs."""

    QUICK = "quick"
    """Every axis value and every hazard once; all operations together fit in ``make test``."""
    FULL = "full"
    """The whole cross of axes, by command."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """One sweep point: the exact arguments of one call."""

    id: str
    """Readable and unique within the operation, e.g. ``B2-H12-Q4-K129-bf16-x4``."""
    axes: Mapping[str, Axis]
    """Named coordinates; patterns among failures are looked for along them."""
    inputs: Mapping[str, Any]
    """Argument name to array (NumPy, in the dtype the implementation sees; ``ml_dtypes`` for
    bfloat16 and float8), int, float, str or None."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OutputSpec:
    """What one output must look like."""

    shape: tuple[int, ...]
    dtype: str
    """NumPy name of the dtype, e.g. ``bfloat16``, ``float32``, ``int64``."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Contract:
    """The promise of one operation."""

    op: str
    title: str
    signature: str
    """As a caller writes it: ``top_k_renorm_prob(probs, top_k) -> out``."""
    outputs: tuple[str, ...]
    """Names of what is returned, in order; one name for a bare tensor."""
    clauses: Mapping[str, str]
    """Clause id to one sentence; every ``Breach.clause`` is one of these or of ``GENERAL``."""
    settings: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """Choices the author declares; the first value is the default."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Breach:
    """One broken clause on one sweep point."""

    clause: str
    what: str
    """Place, numbers, limit, in words."""
    at: Mapping[str, int] = field(default_factory=dict)
    """Worst place: ``{"row": 1, "head": 12}``."""
    wrong: Mapping[str, tuple[int, ...]] = field(default_factory=dict)
    """Coordinates that are wrong, by axis: ``{"head": (12, 13, 14, 15)}``; for the pattern."""
    ratio: float | None = None
    """Error over limit where there is one."""


@runtime_checkable
class Call(Protocol):
    """An implementation behind guards: arrays in, arrays out.

    Raises ``Broke`` (see ``guard``) when the implementation raises, hangs, returns another
    shape, dtype or device, or writes its inputs; the engine turns that into a breach.
    """

    def __call__(self, inputs: Mapping[str, Any]) -> Mapping[str, np.ndarray]:
        """Outputs by name, each in the dtype it was returned in."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Operation:
    """One operation: its promise, its sweep, its judge."""

    contract: Contract
    cases: Callable[[Effort, Settings], Iterator[Case]]
    """Sweep points, the cheapest first."""
    outputs: Callable[[Mapping[str, Any], Settings], Mapping[str, OutputSpec]]
    """What the outputs must look like for given inputs."""
    check: Callable[[Case, Call, Settings], tuple[Breach, ...]]
    """Runs ``call`` (once or more: permuted rows, solo rows, repeats) and judges what it gave."""
    shrink: Callable[[Case], Iterator[Case]]
    """Smaller cases to try when this one fails, the boldest first; may give none."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Implementation:
    """One implementation that can be judged."""

    name: str
    """``torch:exactly_k``: family and variant."""
    op: str
    function: Callable[..., Any]
    """Takes torch tensors and scalars by the argument names of the contract."""
    title: str
    emulates: str | None = None
    """What it stands in for, when it stands in for a kernel that is not here."""
    devices: tuple[str, ...] = ("cpu", "cuda")
    settings: Settings = field(default_factory=dict)
    """The contract settings that it declares of itself, e.g. ``{"ties": "exactly_k"}``."""
