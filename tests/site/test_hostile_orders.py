"""Orders that are not as they should be: a site answers with a refusal, runs nothing and writes nothing."""

from __future__ import annotations

import random

import numpy as np
import pytest
from sklearn.naive_bayes import GaussianNB
from tests.wire.mutations import ODD, mutated_bytes

import collegium as cg
from collegium import wire
from collegium.algorithms.fedct import label, train
from collegium.core.labels import Labels
from collegium.core.public_set import PublicSet
from collegium.links.hosting import Hosting
from collegium.wire.orders import Mask, Request, with_header, write_orders
from collegium.wire.replies import Refusal, Reply, read_reply

U = np.arange(20.0).reshape(10, 2)
LABELS = Labels(np.array([0, 1] * 5), 2)
ORDERS = (train(LABELS, None, None), label())
MASK = Mask("secret_votes", "circle", "sum 1", ["a", "b", "c"])


def frame(last: int, *, mask: Mask | None = None) -> bytes:
    public = PublicSet(U).digest
    requests = [
        Request("r", public, last - len(ORDERS) + 1 + i, 0, each.step, each.digest, each.args)
        for i, each in enumerate(ORDERS)
    ]
    if mask is not None:
        requests[-1] = Request("r", public, last, 0, ORDERS[-1].step, ORDERS[-1].digest, {}, None, mask)
    return with_header(requests[-1], write_orders(requests))


def mutated_words(message: bytes, rng: random.Random) -> bytes:
    header, orders = wire.cut(message)
    plain = wire.unpack(orders)
    order = rng.choice(plain["orders"])
    place = rng.choice([header, order, order["args"], order.get("mask") or order])
    words = [*place, "mask", "mechanism", "number", "last"]
    place[rng.choice(words)] = rng.choice(ODD)
    if rng.random() < 0.2:
        place.pop(rng.choice(sorted(place)))
    return wire.join(header, wire.pack(plain).data)


@pytest.mark.parametrize("count", [1500, pytest.param(10_000, marks=pytest.mark.slow)])
def test_changed_orders_reach_a_site(count: int) -> None:
    site = cg.Site("a", U, [0, 1] * 5, learner=GaussianNB())
    agent = Hosting((site,), np.arange(2), PublicSet(U), None, 0, "r").agents()["a"]
    rng, answered, refused = random.Random(0), 0, set()
    for number in range(count):
        message = frame(10 + 2 * number, mask=MASK if number % 3 == 0 else None)
        message = mutated_words(message, rng) if number % 2 else mutated_bytes(message, rng)
        reply = read_reply(agent.serve(message))  # never an exception, always one of the two
        if isinstance(reply, Refusal):
            refused.add(reply.code)
        else:
            assert isinstance(reply, Reply)
            answered += 1
    assert {"bad-message", "unknown-step", "other-version", "step-failed", "mask-denied"} <= refused
    assert len(agent.gate.ledger.rows()) <= answered, "what left is written down, and nothing else is"
    reply = read_reply(agent.serve(frame(1_000_000)))
    assert isinstance(reply, Reply), "and it serves on"
