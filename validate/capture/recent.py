"""The tensors of one capture that were read last, kept within a fixed number of bytes."""

from collections import OrderedDict
from collections.abc import Callable, Hashable
from typing import Any

import numpy as np
from numpy.typing import NDArray

__all__ = ["KEPT_BYTES", "Recent"]

KEPT_BYTES = 16 * 2**20
"""Most bytes that one open capture keeps of what it has read."""
LARGEST = 8
"""An array above this fraction (1 / 8) of the bound is not kept: it would push all others out."""


class Recent:
    """Arrays by key; the one unused for longest goes first, and callers get copies."""

    def __init__(self, kept_bytes: int = KEPT_BYTES) -> None:
        """Keep at most ``kept_bytes``; 0 keeps nothing."""
        self._bound = kept_bytes
        self._bytes = 0
        self._held: OrderedDict[Hashable, NDArray[Any]] = OrderedDict()

    @property
    def nbytes(self) -> int:
        """Bytes kept now."""
        return self._bytes

    def get(self, key: Hashable, read: Callable[[], NDArray[Any]]) -> NDArray[Any]:
        """A copy of what ``read()`` gave for ``key``, read again only when it was let go."""
        held = self._held.get(key)
        if held is not None:
            self._held.move_to_end(key)
            return held.copy()
        array = read()
        if array.nbytes * LARGEST <= self._bound:
            self._keep(key, array)
        return array

    def _keep(self, key: Hashable, array: NDArray[Any]) -> None:
        self._held[key] = np.copy(array)
        self._bytes += array.nbytes
        while self._bytes > self._bound:
            _, gone = self._held.popitem(last=False)
            self._bytes -= gone.nbytes
