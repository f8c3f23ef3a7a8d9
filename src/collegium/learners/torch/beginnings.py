"""New nets that begin alike: where many sites have the same net and the same seed, it is made once and copied."""

from __future__ import annotations

import copy
import threading
from collections.abc import Callable, Hashable
from typing import Generic, TypeVar

T = TypeVar("T")


class Beginnings(Generic[T]):
    """Makes things, and copies the one that is asked for again and again. What is asked for once costs nothing more."""

    def __init__(self) -> None:
        self._last: Hashable = None
        self._kept: tuple[Hashable, T] | None = None
        self._lock = threading.Lock()

    def make(self, key: Hashable, make: Callable[[], T]) -> T:
        """A new one. What is made for equal keys must be equal."""
        with self._lock:
            kept, again = self._kept, key == self._last
            self._last = key
        if kept is not None and kept[0] == key:
            return copy.deepcopy(kept[1])
        made = make()
        if again:
            try:
                self._kept = key, copy.deepcopy(made)
            except Exception:  # a net of the user's own may hold what cannot be copied
                self._last = None
        return made
