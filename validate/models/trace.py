"""What a forward pass tells about itself: which branches ran, and tensors on request."""

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field

from torch import Tensor

__all__ = ["SILENT", "Silent", "Trace"]


@dataclass(slots=True, kw_only=True)
class Trace:
    """Counts branches where they run and keeps the tensors that ``wants`` asks for."""

    wants: Callable[[str], bool]
    branches: Counter[str] = field(default_factory=Counter)
    tensors: dict[str, list[Tensor]] = field(default_factory=dict)
    """Every emission of a name in order; one per forward pass."""

    def branch(self, name: str) -> None:
        """Count one execution of the branch ``name``; called where the branch's work is done."""
        self.branches[name] += 1

    def emit(self, name: str, value: Tensor) -> None:
        """Keep ``value`` under ``name`` if it was asked for."""
        if self.wants(name):
            self.tensors.setdefault(name, []).append(value.detach())

    def take(self) -> dict[str, list[Tensor]]:
        """Hand over the tensors kept so far and forget them; branch counts stay."""
        taken, self.tensors = self.tensors, {}
        return taken


class Silent:
    """A trace that records nothing (training, warm-up)."""

    def branch(self, name: str) -> None:
        """Ignore the branch."""

    def emit(self, name: str, value: Tensor) -> None:
        """Ignore the tensor."""


SILENT = Silent()
