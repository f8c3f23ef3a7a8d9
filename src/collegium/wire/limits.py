"""How large a message of each kind may be, and what may be built from it. All of it is checked before it is built.

A reader passes the limits of what it expects: a header is a few words, a plan is words alone, and only what belongs to
a run that was agreed on may hold arrays. `benchmarks/fuzz.py` measures what reading takes.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Final

from collegium.errors import WireError

MAX_BYTES: Final = 1 << 31
"""Of any message: its sizes are written in four bytes, and local sockets take no more."""
MAX_DEPTH: Final = 100
MAX_DIGITS: Final = 32
"""Of a number, in characters: 64-bit integers have 20, and Python writes floats with at most 24."""


@dataclass(frozen=True)
class Limits:
    """What one message may be."""

    head: int
    """Bytes of its structure. Text takes up to eight times as much while it is read."""
    values: int
    """Values in its structure; one takes up to about 300 bytes while it is read."""
    depth: int = MAX_DEPTH
    """Levels of lists and tables."""
    contents: int = MAX_BYTES
    """Bytes of arrays and labels. Read, they take at most eight times as much: a label of one bit becomes a byte."""
    free: int = 1 << 26
    """Bytes that labels and empty arrays may take beyond that, since some are written in no bytes at all. Labels that
    the reader has already may come again as often as it has them."""

    def check_head(self, head: bytes) -> None:
        """Bound a structure before it is parsed: each value in it is the first of a list or table, or after a comma."""
        values = 1 + head.count(b",") + head.count(b"[") + head.count(b"{")
        if len(head) > self.head or values > self.values:
            raise WireError(
                f"A message's structure is over the limit of {self.head} bytes or of {self.values} values. Send long "
                "lists as arrays."
            )

    def check_contents(self, size: int) -> None:
        """Bound the contents before they are read."""
        if size > self.contents:
            raise WireError(f"A message of {size} bytes is over the limit of {self.contents}.")

    @lru_cache(maxsize=64)  # noqa: B019 - limits are a few constants
    def for_contents(self, size: int) -> Limits:
        """The same for a message of which it is known how large its contents can be."""
        return replace(self, contents=size, free=size)


MESSAGE: Final = Limits(1 << 24, 1 << 20)
"""What a message may be where nothing else is known of it; nothing larger is ever written."""
HEADER: Final = Limits(1 << 12, 64, depth=3, contents=0, free=0)
"""A few words before a payload, and all that is read of a message before a plan was agreed on."""
REPLY_HEADER: Final = replace(HEADER, head=1 << 22, values=1 << 17)
"""The words before a release: its row of the ledger says what it costs, as text."""
PLAN: Final = Limits(1 << 20, 1 << 17, depth=12, contents=0, free=0)
ORDERS: Final = Limits(1 << 22, 1 << 17)
RELEASE: Final = Limits(1 << 22, 1 << 17)
