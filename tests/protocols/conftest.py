"""Sites that have met, and a transcript that carries messages as a network would."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pytest
from scipy import stats

from collegium import wire
from collegium.protocols.hamming import Transcript
from collegium.protocols.keys import Session, SiteKeys, new_secret

Meet = Callable[..., dict[str, Session]]


@pytest.fixture
def meet() -> Meet:
    """Sessions of sites that know each other's identities."""

    def sessions(*parties: str, name: str = "session") -> dict[str, Session]:
        sites = {party: SiteKeys(party, new_secret()) for party in parties}
        identities = {party: keys.identity for party, keys in sites.items()}
        met = {party: keys.session(name) for party, keys in sites.items()}
        hellos = {party: session.hello() for party, session in met.items()}
        for session in met.values():
            session.meet(hellos, identities)
        return met

    return sessions


@dataclass
class Recorder(Transcript):
    """Sends every message through the wire format, and keeps it."""

    messages: list[tuple[str, str, Any]] = field(default_factory=list)

    def send(self, sender: str, receiver: str, message: Any) -> Any:
        received = wire.unpack(wire.pack(message).data)
        self.messages.append((sender, receiver, received))
        return super().send(sender, receiver, received)

    def seen_by(self, party: str) -> list[Any]:
        return [message for _, receiver, message in self.messages if receiver == party]


@pytest.fixture
def recorder() -> type[Recorder]:
    return Recorder


@pytest.fixture
def looks_uniform() -> Callable[[Any], bool]:
    """Whether bytes pass a chi-square test that a uniform source fails once in a billion times."""

    def test(values: Any) -> bool:
        raw = np.ascontiguousarray(values).reshape(-1).view(np.uint8)
        return bool(stats.chisquare(np.bincount(raw, minlength=256)).pvalue > 1e-9)

    return test
