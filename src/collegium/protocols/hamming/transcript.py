"""What passed between the parties of a protocol that runs in one process: sizes of messages and time of work."""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, TypeVar

import numpy as np

M = TypeVar("M")


@dataclass(frozen=True)
class Sent:
    """One message."""

    sender: str
    receiver: str
    bytes: int


@dataclass
class Transcript:
    """Keeps account of a protocol's messages and work."""

    sent: list[Sent] = field(default_factory=list)
    seconds: dict[str, float] = field(default_factory=lambda: defaultdict(float))

    def send(self, sender: str, receiver: str, message: M) -> M:
        """Note a message on its way, and hand it on."""
        self.sent.append(Sent(sender, receiver, size(message)))
        return message

    @contextmanager
    def at(self, party: str) -> Iterator[None]:
        """Work done inside is that party's; its processor time counts, not that of other programs."""
        start = time.process_time()
        try:
            yield
        finally:
            self.seconds[party] += time.process_time() - start

    @property
    def bytes(self) -> int:
        """All messages together."""
        return sum(message.bytes for message in self.sent)


def size(message: Any) -> int:
    """Bytes of what a message holds, without its structure."""
    if isinstance(message, np.ndarray):
        return message.nbytes
    if isinstance(message, Mapping):
        return sum(size(part) for part in message.values())
    if isinstance(message, list | tuple):
        return sum(size(part) for part in message)
    return 8 if isinstance(message, int | float) else len(str(message).encode())
