"""What pairing hands to metrics: two captures that are known to match, read lazily."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple, Protocol, TypeVar, runtime_checkable

from numpy.typing import NDArray

from validate.schema.evals import EvalMatch
from validate.schema.manifest import Manifest
from validate.schema.prompts import Prompt
from validate.schema.streams import Stream

__all__ = ["Pair", "Side"]

T = TypeVar("T")


@runtime_checkable
class Side(Protocol):
    """The reading side of one capture."""

    @property
    def label(self) -> str:
        """Target name, for messages."""
        ...

    @property
    def manifest(self) -> Manifest:
        """What the capture says of itself."""
        ...

    @property
    def prompts(self) -> Mapping[str, Prompt]:
        """Prompts by id, in capture order."""
        ...

    @property
    def streams(self) -> Mapping[str, Stream]:
        """Greedy streams by prompt id."""
        ...

    @property
    def drawn(self) -> Mapping[str, Mapping[str, Stream]]:
        """Streams of the other kinds: kind, then prompt id; kinds that were not captured are absent."""
        ...

    def names(self, prompt: str) -> tuple[str, ...]:
        """Sorted names of the tensors captured for ``prompt``."""
        ...

    def tensor(self, prompt: str, name: str) -> NDArray[Any]:
        """One tensor in its stored dtype (bfloat16 as ``ml_dtypes.bfloat16``); a copy, in memory."""
        ...

    def axes(self, prompt: str, name: str) -> tuple[str, ...]:
        """Axis names of one tensor, in order."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Pair:
    """A matched ref and cand, with the oracle where there is one.

    ``pairing`` guarantees: same prompts in the same order, same tensor names,
    shapes and axes per prompt, streams for the same prompts.
    """

    ref: Side
    cand: Side
    prompts: tuple[str, ...]
    oracle: Side | None = None
    weights: Mapping[str, NDArray[Any]] | None = None
    """Float64 weights by name for the introduced-error oracle; None when not at hand."""
    config: Mapping[str, Any] | None = None
    """Model configuration that goes with ``weights``."""
    near_tie: float = 0.0
    """Limit on |delta(l_a - l_b)| in nats from the limits file, for tie-aware comparisons."""
    route_gap: float = 0.0
    """Router score gap below which a different expert set is a tie."""
    repeats: tuple[Side, ...] = ()
    """Repeats of the reference, beside cand: what a metric paired with the floor looks at. Never
    holds ``ref`` or ``cand`` itself."""
    evals: EvalMatch = field(default_factory=EvalMatch)
    """Downstream evals of both sides, item by item."""
    _cache: dict[str, Any] = field(default_factory=dict, repr=False, compare=False)
    _shared: dict[tuple[int, str], "_OneSide"] = field(
        default_factory=dict, repr=False, compare=False
    )
    """What one side alone gives; a run hands it from pair to pair."""

    def once(self, key: str, make: Callable[[], T]) -> T:
        """Compute ``make()`` the first time ``key`` is asked for and keep it with this pair."""
        if key not in self._cache:
            self._cache[key] = make()
        value: T = self._cache[key]
        return value

    def once_a_side(self, side: Side, key: str, make: Callable[[], T]) -> T:
        """Compute ``make()`` once for ``side`` in all pairs that share what their sides give.

        ``make`` may look at ``side``, ``weights`` and ``config`` and at nothing else of the pair.
        The side is known by identity and kept, so that no other can take its place.

        Args:
            side: Ref or cand.
            key: What is computed.
            make: How.
        """
        held = self._shared.get((id(side), key))
        given = (side, self.weights, self.config)
        if held is None or any(a is not b for a, b in zip(held.given, given, strict=True)):
            held = _OneSide(given, make())
            self._shared[id(side), key] = held
        value: T = held.value
        return value


class _OneSide(NamedTuple):
    """A value and all that it was computed from."""

    given: tuple[Any, ...]
    value: Any
