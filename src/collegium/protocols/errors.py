"""What the protocols raise about a peer.

ProtocolError            a party sent something that the protocol does not allow
└── Reused               a circle, round or message came a second time
"""

from __future__ import annotations

from collections.abc import Sequence

from collegium.errors import CollegiumError


class ProtocolError(CollegiumError):
    """A party sent something that the protocol does not allow; it was not answered.

    `parties` are the names of those at fault, so that they can be left out of the next attempt. They are several
    where only one of them can be at fault but nobody can tell which.
    """

    def __init__(self, party: str | Sequence[str], text: str) -> None:
        self.parties = (party,) if isinstance(party, str) else tuple(party)
        self._text = text
        names = ", ".join(map(repr, self.parties))
        super().__init__(f"{'Party' if len(self.parties) == 1 else 'Parties'} {names} {text}")

    def __reduce__(self) -> tuple[type[ProtocolError], tuple[tuple[str, ...], str]]:
        return type(self), (self.parties, self._text)


class Reused(ProtocolError):
    """A circle, round or message came a second time: answering it again could undo the masks of the first."""
