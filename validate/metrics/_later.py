"""A breakdown that is computed when somebody reads it: nobody does for the repeats of ref."""

from collections.abc import Callable, Iterator, Mapping

__all__ = ["Later"]


class Later(Mapping[str, float]):
    """Named numbers, computed at the first look."""

    def __init__(self, make: Callable[[], Mapping[str, float]]) -> None:
        """Remember how; ``make`` is called at most once."""
        self._make = make
        self._made: Mapping[str, float] | None = None

    def _held(self) -> Mapping[str, float]:
        if self._made is None:
            self._made = self._make()
        return self._made

    def __getitem__(self, name: str) -> float:
        return self._held()[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._held())

    def __len__(self) -> int:
        return len(self._held())

    def __repr__(self) -> str:
        return repr(self._held())
