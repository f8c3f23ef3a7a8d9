"""What goes to the parties and what comes back: orders become frames, and frames are read as releases or refusals."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Final, Generic, TypeVar

from collegium import wire
from collegium.core.labels import Labels
from collegium.core.link import Answer, Link, OwnAnswer
from collegium.core.observations import COORDINATOR, Observations
from collegium.core.public_set import PublicSet
from collegium.core.releases import KINDS, Nothing, Release
from collegium.core.steps import Order
from collegium.errors import WireError
from collegium.privacy.budget import read_charges
from collegium.privacy.claims import Charge
from collegium.privacy.noise import Noise
from collegium.wire.limits import MESSAGE, RELEASE
from collegium.wire.orders import Request, with_header, write_orders
from collegium.wire.replies import UNREAD, Refusal, Reply, read_reply

R = TypeVar("R", bound=Release)
BAD_REPLY: Final = "bad-reply"
"""The code that the coordinator itself records for a site whose reply cannot be used."""
MISSING: Final = "missing"
"""The code of a site that did not answer."""
# After these codes the site did not take in the labels it was sent.
_NOT_TAKEN_IN: Final = {"bad-message", "storage-failed", "other-order", BAD_REPLY}


class Replies(dict[str, R], Generic[R]):
    """One release per party that answered, in the order of the parties; who refused (with a code), who is missing."""

    def __init__(self) -> None:
        super().__init__()
        self.refused: dict[str, str] = {}
        self.missing: tuple[str, ...] = ()


@dataclass
class _Party:
    """What the coordinator keeps for one party between exchanges."""

    queue: list[Request] = field(default_factory=list)
    knows: str | None = None
    """The digest of the labels it was sent last: later ones are written as a difference."""
    asked: str = ""
    """The step it was asked for last."""


@dataclass(frozen=True)
class Awaited:
    """What the coordinator expects of one party in an exchange."""

    requests: tuple[Request, ...]
    kind: type[Release]

    @cached_property
    def labels(self) -> list[Labels]:
        """The labels that the party is sent."""
        return [labels for each in self.requests for labels in each.labels]

    @cached_property
    def steps(self) -> str:
        """The steps that the party is asked for, in their order."""
        return " ".join(each.step for each in self.requests)


class Correspondence:
    """The coordinator's exchanges with the parties, and what it keeps for each of them in between."""

    def __init__(
        self,
        link: Link,
        *,
        run: str,
        n_classes: int,
        public: PublicSet | None,
        noise: Noise,
        observed: Observations,
        deadline: float | None,
    ) -> None:
        self._link = link
        self._run = run
        self._n_classes = n_classes
        self._public = public
        self._noise = noise
        self._observed = observed
        self._deadline = deadline
        self._state: dict[str, _Party] = {}
        self._known = wire.KnownLabels()

    def welcome(self, parties: Iterable[str]) -> None:
        """These are parties from now on; they know nothing yet."""
        self._state |= {party: _Party() for party in parties}

    def __contains__(self, party: str) -> bool:
        return party in self._state

    def queue(self, orders: Mapping[str, Order[Nothing]], number: int) -> None:
        """Send these with the next question."""
        for party, request in self._requests(orders, number).items():
            self._state[party].queue.append(request)

    def queued(self, parties: Iterable[str]) -> list[str]:
        """Those of the parties for whom something waits to be sent."""
        return [party for party in parties if self._state[party].queue]

    def reject(self, party: str, reason: str, step: str | None = None) -> None:
        """Record that a party's reply to a step, or to what it was asked for last, cannot be used."""
        self._observed.refusal(self._observed.round, party, self._state[party].asked if step is None else step, reason)

    def _requests(self, orders: Mapping[str, Order[Any]], number: int) -> dict[str, Request]:
        """What each party is asked for; one request for all that are asked for the same."""
        made: dict[int, Request] = {}
        for order in orders.values():
            if id(order) not in made:
                made[id(order)] = self._request(order, number)
        return {party: made[id(order)] for party, order in orders.items()}

    def _request(self, order: Order[Any], number: int) -> Request:
        public, now = None if self._public is None else self._public.digest, self._observed.round
        return Request(
            self._run, public, number, now, order.step, order.digest, order.args, order.mechanism, order.mask
        )

    def exchange(
        self,
        asked: Mapping[str, Order[Any] | None],
        number: int | None,
        deadline: float | None,
        outcome: Replies[Any],
    ) -> Iterator[tuple[str, Release]]:
        """Send each party what waits for it and what it is asked; its release comes as soon as it is there.

        With no `number` nothing is asked. Who refused and who is missing is in the `outcome`, at the end.
        """
        start = time.perf_counter()
        awaited: dict[str, Awaited] = {}
        frames: dict[str, bytes] = {}
        packed: dict[tuple[Any, ...], bytes] = {}
        orders = {party: order for party, order in asked.items() if order is not None}
        questions = {} if number is None else self._requests(orders, number)
        alike: dict[tuple[Any, ...], Awaited] = {}
        for party, order in asked.items():
            encode = time.perf_counter()
            awaited[party] = expected = self._awaited(party, order, questions.get(party), alike)
            frames[party] = self._frame(party, expected.requests, packed)
            spent = time.perf_counter() - encode
            self._observed.sent(self._observed.round, party, expected.steps, len(frames[party]), spent)
        for labels in {id(each): each for every in alike.values() for each in every.labels}.values():
            self._known.remember(labels)
        silent = dict.fromkeys(asked)
        for answer in self._link.exchange(frames, self._deadline if deadline is None else deadline):
            if answer.party not in silent:
                continue
            del silent[answer.party]
            release = self._receive(answer, awaited[answer.party], outcome)
            if release is not None:
                yield answer.party, release
        outcome.refused = {party: outcome.refused[party] for party in asked if party in outcome.refused}
        outcome.missing = tuple(silent)
        for party in silent:
            self._state[party].knows = None
            self.reject(party, MISSING)
        self._observed.cost(self._observed.round, COORDINATOR, seconds_total=time.perf_counter() - start)

    def _awaited(
        self, party: str, order: Order[Any] | None, question: Request | None, alike: dict[tuple[Any, ...], Awaited]
    ) -> Awaited:
        """What is expected of a party, once for all that are asked for the same."""
        state = self._state[party]
        requests, state.queue = state.queue, []
        if question is not None:
            requests.append(question)
        state.asked = requests[-1].step
        key = (id(order), *map(id, requests))
        if key not in alike:
            alike[key] = Awaited(tuple(requests), Nothing if order is None else order.answer)
        return alike[key]

    def _frame(self, party: str, requests: tuple[Request, ...], packed: dict[tuple[Any, ...], bytes]) -> bytes:
        knows = self._state[party].knows
        # Most parties get the same orders: they are written once.
        key = (knows, *((each.number, id(each.args), id(each.mask)) for each in requests))
        if key not in packed:
            packed[key] = with_header(requests[-1], write_orders(requests, self._known.get(knows)))
        return packed[key]

    def _receive(self, answer: Answer, awaited: Awaited, outcome: Replies[Any]) -> Release | None:
        """Read an answer; None if the party refused, or if its reply does not answer this order."""
        start, party, state = time.perf_counter(), answer.party, self._state[answer.party]
        self._noise.depend_on(party.encode() + b"\0", answer.frame)
        reply, release, charges = self._read(answer, awaited)
        if isinstance(reply, Refusal):
            outcome.refused[party] = reply.code
            self.reject(party, reply.code, step=reply.step or None)
        if isinstance(reply, Refusal) and reply.code in _NOT_TAKEN_IN:
            state.knows = None
        elif awaited.labels:
            state.knows = awaited.labels[-1].digest
        if answer.notes is not None:
            self._observed.noted(self._observed.round, party, answer.notes)
        self._observed.received(self._observed.round, party, len(answer.frame), time.perf_counter() - start)
        if reply.row is not None and reply.row.entry is not None:
            payload = len(reply.payload) if isinstance(reply, Reply) else 0
            self._observed.released(self._observed.round, party, state.asked, reply.row, charges, payload)
        if release is not None and not isinstance(release, Nothing):
            self._observed.disclosed(COORDINATOR, party, state.asked, release, awaited.requests[-1].args)
        return release

    def _read(self, answer: Answer, awaited: Awaited) -> tuple[Reply | Refusal, Release | None, list[Charge]]:
        """A frame's reply, its release and what it cost; anything else counts as the refusal `bad-reply`."""
        number = awaited.requests[-1].number
        try:
            own = answer if isinstance(answer, OwnAnswer) else None
            reply = own.reply if own is not None and own.reply is not None else read_reply(answer.frame)
            if reply.number not in ((number,) if isinstance(reply, Reply) else (number, UNREAD)):
                raise WireError("A reply to another order.")
            charges, _ = read_charges(None if reply.row is None else reply.row.privacy)
            made = None if own is None else own.release
            return reply, self._opened(reply, awaited.kind, made) if isinstance(reply, Reply) else None, charges
        except Exception:  # whatever a site's bytes cause is that site's fault, and ends nobody else's run
            return Refusal(number, BAD_REPLY, ""), None, []

    def _opened(self, reply: Reply, expected: type[Release], made: Release | None = None) -> Release:
        """A release, from its bytes unless this process has `made` it: of the kind asked for, fit for this study."""
        kind = KINDS.get(reply.row.kind)
        if kind is None or kind is not expected:
            raise WireError("A reply of another kind than the one asked for.")
        size = None if self._public is None else len(self._public)
        if made is None:
            most = None if size is None else kind.most_bytes(self._n_classes, size)
            usual = MESSAGE if kind.simulation_only else RELEASE
            limits = usual if most is None else usual.for_contents(most)
            made = kind.from_plain(wire.unpack(reply.payload, self._known, limits, frozen=kind.fixed))
        made.check(self._n_classes, size)
        return made
