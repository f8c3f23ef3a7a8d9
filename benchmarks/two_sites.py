"""Secure Hamming distances with both sites and the server in one process, for tests and measurements.

A `Transcript` takes the sizes of all messages and the time of each party: "a", "b" and "server".
"""

from __future__ import annotations

import secrets
import time
from collections import defaultdict
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from types import ModuleType
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from collegium.protocols import hamming
from collegium.protocols.hamming import masked, ot, plain
from collegium.protocols.hamming.distances import Bits, Distances, checked_bits
from collegium.protocols.primitives import KEY_BYTES

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


def pairwise(
    A: NDArray[Any], B: NDArray[Any], backend: str = "ot", transcript: Transcript | None = None, **options: Any
) -> Distances:
    """All distances between the rows of A (n, L) and those of B (m, L): a table (n, m). Options go to the backend."""
    a, b = checked_bits(A), checked_bits(B)
    module, record = hamming.named(backend), Transcript() if transcript is None else transcript
    if module is ot:
        return _by_transfers(a, b, record)
    if module is masked:
        return _masked(a, b, record)
    return _in_the_clear(a, b, record) if module is plain else _encrypted(module, a, b, record, options)


def _by_transfers(a: Bits, b: Bits, transcript: Transcript) -> Distances:
    with transcript.at("a"):
        receiver = ot.Receiver(a, len(b), "one process", "b")
        offer = transcript.send("a", "b", receiver.offer())
    with transcript.at("b"):
        sender = ot.Sender(b, len(a), "one process", "a")
        answer = transcript.send("b", "a", sender.answer(offer))
    with transcript.at("a"):
        receiver.prepare(answer)
    for block in range(receiver.blocks):
        with transcript.at("a"):
            request = transcript.send("a", "b", receiver.request(block))
        with transcript.at("b"):
            served = transcript.send("b", "a", sender.serve(block, request))
        with transcript.at("a"):
            receiver.receive(block, served)
    shares = transcript.send("a", "server", receiver.share()), transcript.send("b", "server", sender.share())
    with transcript.at("server"):
        return ot.Server(len(a), len(b), a.shape[1]).distances("a", shares[0], "b", shares[1])


def _encrypted(module: ModuleType, a: Bits, b: Bits, transcript: Transcript, options: Mapping[str, Any]) -> Distances:
    """By Paillier or BFV."""
    insecure = {name: value for name, value in options.items() if name == "insecure"}
    with transcript.at("a"):
        owner = module.KeyOwner(a, **options)
        sketches = transcript.send("a", "b", owner.sketches())
    with transcript.at("b"):
        partner = module.Partner(b, len(a), "a", **insecure)
        results = transcript.send("b", "a", partner.results(sketches))
        masks = transcript.send("b", "server", partner.share())
    with transcript.at("a"):
        decrypted = transcript.send("a", "server", owner.share("b", len(b), results))
    with transcript.at("server"):
        server = module.Server(len(a), len(b), a.shape[1], **insecure)
        distances: Distances = server.distances("a", decrypted, "b", masks)
        return distances


def _masked(a: Bits, b: Bits, transcript: Transcript) -> Distances:
    key, points = secrets.token_bytes(KEY_BYTES), {"a": len(a), "b": len(b)}
    server, shares = masked.Server(a.shape[1]), {}
    for party, partner, bits in (("a", "b", a), ("b", "a", b)):
        with transcript.at(party):
            site = masked.Site(bits, party, key, "one process", points)
            sketches = transcript.send(party, "server", site.sketches())
            shares[party] = transcript.send(party, "server", site.share(partner))
        with transcript.at("server"):
            server.add(party, len(bits), sketches)
    with transcript.at("server"):
        return server.distances("a", shares["a"], "b", shares["b"])


def _in_the_clear(a: Bits, b: Bits, transcript: Transcript) -> Distances:
    packed = [transcript.send(party, "server", np.packbits(bits, axis=1)) for party, bits in (("a", a), ("b", b))]
    with transcript.at("server"):
        return plain.distances(*(np.unpackbits(each, axis=1, count=a.shape[1]) for each in packed))
