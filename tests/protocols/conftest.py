"""Sites that have met, and a transcript that carries messages as a network would."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pytest
from benchmarks.two_sites import Transcript
from scipy import stats

from collegium import wire
from collegium.protocols.keys import Member, SiteKeys, new_secret

Meet = Callable[..., dict[str, Member]]


@pytest.fixture
def meet() -> Meet:
    """Members of a circle: sites that know each other's identities."""

    def members(*parties: str, name: str = "circle") -> dict[str, Member]:
        sites = {party: SiteKeys(party, new_secret()) for party in parties}
        identities = {party: keys.identity for party, keys in sites.items()}
        met = {party: keys.join(name) for party, keys in sites.items()}
        hellos = {party: member.hello() for party, member in met.items()}
        for member in met.values():
            member.meet(hellos, identities)
        return met

    return members


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
