"""Links on which one site goes away or says something else, or the coordinator is killed, from one step on."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import pytest

from collegium import wire
from collegium.core.link import Answer
from collegium.links.local import LocalLink


class Disturbed:
    """A link that loses one site from the moment it is asked for `step`, or changes what it says there.

    `change` edits the fields of the release; without it the site is gone. `orders` and `releases` keep what passed.
    """

    def __init__(self, inner: LocalLink, party: str, step: str, change: Callable[[Any], None] | None = None) -> None:
        self.inner, self.parties = inner, inner.parties
        self._party, self._step, self._change = party, step, change
        self._gone = False
        self.orders: list[tuple[str, str, dict[str, Any]]] = []
        self.masks: list[tuple[str, str, dict[str, Any]]] = []
        self.releases: list[tuple[str, str, Any]] = []

    def exchange(self, orders: Mapping[str, bytes], deadline: float | None) -> Iterator[Answer]:
        asked = {party: wire.unpack(wire.cut(frame)[1])["orders"] for party, frame in orders.items()}
        steps = {party: each[-1]["step"] for party, each in asked.items()}
        self.orders += [(party, order["step"], order["args"]) for party, each in asked.items() for order in each]
        self.masks += [
            (party, each[-1]["step"], each[-1]["mask"]) for party, each in asked.items() if "mask" in each[-1]
        ]
        here = dict(orders)
        if self._change is None and (self._gone or steps.get(self._party) == self._step):
            self._gone = True
            here.pop(self._party, None)
        for party, frame, notes in self.inner.exchange(here, deadline):
            header, payload = wire.cut(frame)
            if "refused" not in header:
                plain = wire.unpack(payload)
                if self._change is not None and (party, steps[party]) == (self._party, self._step):
                    self._change(plain)
                    packed = wire.pack(plain)
                    payload = packed.data
                    header["row"] |= {"bytes": packed.content_bytes, "sha256": hashlib.sha256(payload).hexdigest()}
                self.releases.append((party, steps[party], plain))
            yield Answer(party, wire.join(header, payload), notes)


@contextmanager
def last_comes_first() -> Iterator[None]:
    """Replies of simulations in here come in the reverse order of the parties.

    All that other processes or machines change for a method is who answers first; this shows it without starting any.
    """
    exchange = LocalLink.exchange

    def reverse(self: LocalLink, *orders: Any) -> Iterator[Answer]:
        answers = {answer.party: answer for answer in exchange(self, *orders)}
        return iter([answers[party] for party in reversed(self.parties) if party in answers])

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(LocalLink, "exchange", reverse)
        yield


@contextmanager
def killed_after(exchanges: int) -> Iterator[None]:
    """The coordinator of simulations in here is killed when it begins one more exchange."""

    class Killed(LocalLink):
        begun = 0

        def exchange(self, orders: Any, deadline: float | None) -> Any:
            Killed.begun += 1
            if Killed.begun > exchanges:
                raise KeyboardInterrupt
            return super().exchange(orders, deadline)

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr("collegium.links.local.LocalLink", Killed)
        with pytest.raises(KeyboardInterrupt):
            yield
