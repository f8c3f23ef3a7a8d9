"""A GPU without memory left: what nets keep for their next update goes first.

Recorded steps have memory of their own, which serves nothing else, not even the next net's answers.
"""

from __future__ import annotations

import gc
import threading
import weakref
from collections.abc import Iterable
from typing import Protocol

import torch


class Keeper(Protocol):
    """Whoever keeps something that can be made again."""

    def forget(self) -> bool:
        """Give it back; whether there was anything."""


_lock = threading.Lock()
_keepers: weakref.WeakSet[Keeper] = weakref.WeakSet()


def note(keeper: Keeper) -> None:
    """From now on this one keeps something."""
    with _lock:
        _keepers.add(keeper)


def give_back(but_for: Iterable[Keeper] = ()) -> bool:
    """Have all of them forget what they keep; whether any but those had something. Only where it is this one's `turn`.

    What somebody is at work with stays until they are done.
    """
    with _lock:
        others = set(_keepers) - set(but_for)
        _keepers.clear()
    had = [each.forget() for each in others]
    for each in but_for:
        each.forget()
    gc.collect()  # a net of the user's own may refer to itself
    if torch.cuda.is_available():
        torch.cuda.empty_cache()
    return any(had)
