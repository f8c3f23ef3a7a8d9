"""All protocols in turn, as an algorithm uses them: sites talk through a coordinator that cannot read it."""

from __future__ import annotations

import secrets
from typing import Any

import numpy as np

from collegium import wire
from collegium.protocols import seed
from collegium.protocols.hamming import ot, plain
from collegium.protocols.row_sums import RowSums, RowSumServer

rng = np.random.default_rng(0)
FEATURES = {"a": rng.standard_normal((6, 5)), "b": rng.standard_normal((4, 5)), "c": rng.standard_normal((3, 5))}
BITS = 200


def test_from_features_to_distances_to_sums(meet: Any, looks_uniform: Any) -> None:
    members = meet(*FEATURES)
    carried: list[Any] = []

    def carry(sender: str, receiver: str, message: Any, context: str) -> Any:
        """From site to site through the coordinator."""
        envelope = wire.unpack(wire.pack(members[sender].seal(receiver, message, context)).data)
        carried.append(envelope)
        return members[receiver].open(sender, envelope, context)

    drawn = np.frombuffer(secrets.token_bytes(32), np.uint8)
    seeds = {party: carry("a", party, drawn, seed.CONTEXT).tobytes() for party in "bc"} | {"a": drawn.tobytes()}
    sketches = {party: seed.unpack(seed.sketches(V, seeds[party], BITS), BITS) for party, V in FEATURES.items()}

    distances = {}
    for one, other in (("a", "b"), ("a", "c"), ("b", "c")):
        receiver = ot.Receiver(sketches[one], len(sketches[other]), f"circle {one}{other}", other)
        sender = ot.Sender(sketches[other], len(sketches[one]), f"circle {one}{other}", one)
        offer = carry(one, other, receiver.offer(), "offer")
        receiver.prepare(carry(other, one, sender.answer(offer), "answer"))
        for block in range(receiver.blocks):
            request = carry(one, other, receiver.request(block), f"request {block}")
            receiver.receive(block, carry(other, one, sender.serve(block, request), f"serve {block}"))
        server = ot.Server(len(sketches[one]), len(sketches[other]), BITS)
        distances[one, other] = server.distances(one, receiver.share(), other, sender.share())
        assert np.array_equal(distances[one, other], plain.distances(sketches[one], sketches[other]))
    assert looks_uniform(np.concatenate(carried))

    blocks = {party: {owner: rng.standard_normal((len(V), 2)) for owner, V in FEATURES.items()} for party in FEATURES}
    sums = {party: RowSums(member) for party, member in members.items()}
    adder = RowSumServer({party: len(V) for party, V in FEATURES.items()}, 2)
    for party, site in sums.items():
        adder.add(party, wire.unpack(wire.pack(site.submit("round 1", blocks[party])).data))
    for party, answer in adder.answers().items():
        expected = np.sum([blocks[other][party] for other in FEATURES], axis=0)
        assert np.allclose(sums[party].finish("round 1", answer), expected, atol=1e-8)
