"""What an algorithm sees of the parties: verbs that say what the coordinator learns."""

from __future__ import annotations

import hashlib
import math
import time
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any, Final, Generic, TypeVar, cast

import numpy as np
from numpy.typing import NDArray

from collegium import wire
from collegium.core.labels import Codes, Labels
from collegium.core.link import Answer, Link, OpenLink, OwnAnswer
from collegium.core.masking import SecretTotals, masking
from collegium.core.observations import Observations
from collegium.core.public_set import PublicSet
from collegium.core.releases import KINDS, Nothing, Release, Sum
from collegium.core.settings import PositiveFloat, PositiveInt, Probability, check
from collegium.core.steps import Order
from collegium.core.weights import Arrays
from collegium.errors import BudgetSpent, ConfigError, QuorumLost, WireError
from collegium.privacy.budget import read_charges
from collegium.privacy.claims import SEEDED_NOISE, Charge
from collegium.privacy.keyed_noise import KeyedNoise
from collegium.privacy.noise import Noise, SeededNoise
from collegium.wire.limits import MESSAGE, RELEASE
from collegium.wire.orders import Request, with_header, write_orders
from collegium.wire.replies import UNREAD, Refusal, Reply, read_reply

if TYPE_CHECKING:
    from collegium.core.workbench import Workbench

R = TypeVar("R", bound=Release)
COORDINATOR: Final = "coordinator"
_FIRST_ASIDE: Final = 1 << 40
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
class _Awaited:
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


class Federation:
    """The coordinator's handle on all sites.

    The verb says what the coordinator sees: `tell` - nothing; `ask` - each party's release; `total` - the sum only.

    What a claim of privacy stands on is drawn from `noise`, everything else from `rng`. In a simulation both follow
    from the seed; between organisations, from a `secret` that the coordinator alone knows.
    """

    def __init__(
        self,
        link: Link,
        *,
        run: str,
        n_classes: int,
        seed: int,
        public: PublicSet | None = None,
        public_truth: Codes | None = None,
        public_labels: Labels | None = None,
        workbench: Workbench | None = None,
        quorum: float = 0.0,
        deadline: float | None = None,
        secret: bytes | None = None,
        test_every: int = 1,
    ) -> None:
        check(Probability, quorum, "quorum")
        check(PositiveFloat | None, deadline, "deadline")
        self.run = run
        """The run's name, which no other run has."""
        self.parties = link.parties
        self.quorum = quorum
        """The share of the asked sites that must answer; with 0, one answer is enough."""
        self.n_classes = n_classes
        self.seed = seed
        # Every site knows the seed. Between organisations what is drawn here follows from the coordinator's secret.
        self.rng, self.noise = _draws_of(seed) if secret is None else _secret_draws(secret)
        self.round = 0
        self.observed = Observations()
        self.may_ask: Collection[str] | None = None
        """The names of the steps that the algorithm declares; None if there is no algorithm."""
        self.final_labels: Labels | None = None
        self.confidences: NDArray[np.float64] | None = None
        """How sure the last consensus is of each public sample, 0 to 1, where its rule says so."""
        self.final_weights: dict[str, Arrays] = {}
        self.made: Any = None
        """The public set that was made in this run, for runs to come."""
        self.kept: dict[str, Any] = {}
        """What rules keep of a run, by name: what they asked once and need in every communication."""
        self._link = link
        self._open_link = link if isinstance(link, OpenLink) else None  # which takes a while to find out
        self._public = public
        self._truth = public_truth
        self._labels = public_labels
        self._workbench = workbench
        self._deadline = deadline
        self._test_every, self._last_round = check(PositiveInt, test_every, "test_every"), 0
        self._untested: set[str] = set()
        self._number = self._asides = 0
        self._state = {party: _Party() for party in self.parties}
        self._known = wire.KnownLabels()
        self._secret_totals: dict[str, SecretTotals] = {}

    @property
    def public(self) -> PublicSet:
        """The public set, which the coordinator may see like everybody else."""
        if self._public is None:
            raise ConfigError("This study has no public set.")
        return self._public

    @property
    def public_labels(self) -> Labels:
        """The public set's labels, for a method that learns from them."""
        if self._labels is None:
            raise ConfigError("This study's public set has no labels to learn from: pass public=(X, y).")
        return self._labels

    @property
    def workbench(self) -> Workbench:
        """Where the coordinator works with nets."""
        if self._workbench is None:
            raise ConfigError("This coordinator has no nets.")
        return self._workbench

    def rounds(self, n: int) -> Iterator[int]:
        """Count rounds 0 .. n-1; what is asked and told inside belongs to that round."""
        self._last_round = n - 1
        for self.round in range(n):
            self._welcome()
            self.observed.begin_round(self.round, n)
            yield self.round
            # The last round stays open: what was told in it is delivered after the loop.
            if self.round < n - 1 and self.observed.end_round():
                self._test_untested()
                return

    def _welcome(self) -> None:
        """Make sites that have joined since the last round parties; they know nothing yet."""
        joined = () if self._open_link is None else self._open_link.newcomers()
        fresh = [party for party in joined if party not in self._state]
        self.parties += tuple(fresh)
        self._state |= {party: _Party() for party in fresh}

    def sample(self, share: float) -> tuple[str, ...]:
        """A random sample of the parties (at least one), in their usual order."""
        if share >= 1:
            return self.parties
        size = max(1, round(share * len(self.parties)))
        chosen = set(self.rng.choice(len(self.parties), size=size, replace=False).tolist())
        return tuple(party for i, party in enumerate(self.parties) if i in chosen)

    def tell(self, order: Order[Nothing] | Mapping[str, Order[Nothing]], parties: Sequence[str] | None = None) -> None:
        """Have a step run; nothing comes back. It is queued and travels with the next question."""
        self._number += 1
        requests = self._requests(self._addressed(order, parties), self._number)
        for party, request in requests.items():
            self._state[party].queue.append(request)

    def ask(
        self,
        order: Order[R] | Mapping[str, Order[R]],
        parties: Sequence[str] | None = None,
        *,
        deadline: float | None = None,
        quorum: float | None = None,
        aside: bool = False,
    ) -> Replies[R]:
        """Ask, and see each party's release."""
        addressed, replies = self._addressed(order, parties), Replies[R]()
        came = dict(self.stream(addressed, deadline=deadline, quorum=quorum, into=replies, aside=aside))
        replies.update((party, came[party]) for party in addressed if party in came)
        return replies

    def total(
        self,
        order: Order[R] | Mapping[str, Order[R]],
        parties: Sequence[str] | None = None,
        *,
        deadline: float | None = None,
        quorum: float | None = None,
    ) -> Any:
        """Ask, and see only the sum over the parties that answered; for a secret order nobody could see more."""
        addressed = self._addressed(order, parties)
        for protocol in {each.secret for each in addressed.values() if each.secret is not None}:
            if protocol not in self._secret_totals:
                self._secret_totals[protocol] = masking(protocol).totals(self)
            share = self.quorum if quorum is None else quorum
            secret = self._secret_totals[protocol].total(addressed, deadline, share)
            asked = next(iter(addressed.values()))
            self.observed.disclosed("coordinator", "sum", asked.step, secret, asked.args)
            return secret
        total: Sum | None = None
        spent = 0.0
        try:
            for party, release in self.stream(addressed, deadline=deadline, quorum=quorum):
                start = time.perf_counter()
                total = total if total is not None else type(release).empty_sum(len(addressed))
                try:
                    total.add_release(release)
                except WireError:  # it fits the study, but not what the others sent
                    self.reject(party)
                spent += time.perf_counter() - start
        finally:
            self.observed.cost(self.round, COORDINATOR, seconds_consensus=spent)
        return total

    def stream(
        self,
        order: Order[R] | Mapping[str, Order[R]],
        parties: Sequence[str] | None = None,
        *,
        deadline: float | None = None,
        quorum: float | None = None,
        into: Replies[R] | None = None,
        aside: bool = False,
    ) -> Iterator[tuple[str, R]]:
        """Ask, and see each party's release as it comes, in whatever order that is; none is kept.

        `aside`: a question of a protocol's own, which leaves the numbers of the algorithm's orders, and with them the
        sites' randomness, as they would be without it.
        """
        asked: Mapping[str, Order[Any] | None] = (addressed := self._addressed(order, parties))
        if any(each.secret is not None and each.mask is None for each in addressed.values()):
            raise ConfigError("A secret order can only be totaled: use fed.total, or ask without secretly().")
        self._number, self._asides = self._number + (not aside), self._asides + aside
        number = _FIRST_ASIDE + self._asides if aside else self._number
        outcome = into if into is not None else Replies()
        for party, release in self._exchange(asked, number, deadline, outcome):
            yield party, cast(R, release)
        self._require(quorum, len(asked), outcome)

    def flush(self, deadline: float | None = None) -> None:
        """Deliver what was told and not yet sent."""
        waiting: dict[str, Order[Any] | None] = {party: None for party in self.parties if self._state[party].queue}
        if waiting:
            outcome: Replies[Nothing] = Replies()
            for _ in self._exchange(waiting, None, deadline, outcome):
                pass  # that a step finished is all that there is to know
            self._require(None, len(waiting), outcome)

    def reject(self, party: str, reason: str = BAD_REPLY, *, step: str | None = None) -> None:
        """Record in the run's refusals that a party's reply cannot be used. The run goes on without it.

        `step` defaults to the one that it was asked for last.
        """
        self.observed.refusal(self.round, party, self._state[party].asked if step is None else step, reason)

    def timed(self, activity: str) -> AbstractContextManager[None]:
        """Add the time of a block to the coordinator's costs: ``with fed.timed("distill"): ...``."""
        return self.observed.watch(activity)

    def note(self, metric: str, value: float, party: str = COORDINATOR, split: str = "public") -> None:
        """Put a number into the run's metrics."""
        self.observed.metric(self.round, party, split, metric, value)

    def publish(self, weights: Arrays, like: str) -> None:
        """Make a net's weights the run's result, one per architecture; `like` is a party whose learner has that net.

        What is published last stays. A simulation notes the accuracy on its test set: each time, or in every so many
        rounds and in the last one, where the run says so.
        """
        self.final_weights[like] = weights
        self.observed.disclosed("sites", COORDINATOR, like, weights)
        self._untested.add(like)
        if (self.round + 1) % self._test_every == 0 or self.round >= self._last_round:
            self._test_untested()

    def _test_untested(self) -> None:
        """Note the accuracy of what was published last and has not been tested."""
        for like in [like for like in self.final_weights if like in self._untested]:
            with self.timed("test"):
                known = self._workbench is not None
                scores = self.workbench.scores(like, self.final_weights[like]) if known else {}
            first = like == next(iter(self.final_weights))
            for metric, value in scores.items():
                self.note(f"global_{metric}", value, COORDINATOR if first else like, "test")
        self._untested.clear()

    def make_public(self, rows: Any) -> None:
        """Make rows the run's result: a public set for runs to come."""
        self.made = rows
        self.observed.disclosed("sites", COORDINATOR, "", rows)

    def charge(self, what: str, charge: Charge) -> None:
        """Record the cost of something that the coordinator publishes, such as a final model made with `fed.noise`."""
        charge = charge.assuming(SEEDED_NOISE) if self.noise.seeded else charge
        self.observed.claims.setdefault(what, []).append(charge)

    def announce(self, consensus: Labels | NDArray[np.floating[Any]]) -> int:
        """Make a consensus known: notes its size and quality, returns how many labels changed since the last.

        Soft labels, one row per public sample and one column per class, count as the class with the largest value; a
        row of NaN has no label. The last one announced is the run's result; a global model is fitted on it.
        """
        labels = consensus if isinstance(consensus, Labels) else self._most_probable(consensus)
        changed = labels.changed_from(self.final_labels)
        self.note("consensus_size", labels.coverage)
        self.note("consensus_changed", changed)
        if self._truth is not None and labels.known.any():
            right = np.count_nonzero((labels.codes == self._truth) & labels.known)
            self.note("consensus_quality", right / np.count_nonzero(labels.known))
        self.final_labels = labels
        self.observed.disclosed("sites", COORDINATOR, "", consensus)
        return changed

    def _most_probable(self, values: NDArray[np.floating[Any]]) -> Labels:
        if values.shape != (len(self.public), self.n_classes):
            raise ConfigError(
                f"Soft labels must have a row for each of the {len(self.public)} public samples and a column for each "
                f"of the {self.n_classes} classes, got shape {values.shape}. Rows that were not asked about are NaN."
            )
        known = ~np.isnan(values).any(axis=1)
        return Labels(np.where(known, np.where(known[:, None], values, 0.0).argmax(axis=1), -1), self.n_classes)

    def _addressed(
        self, order: Order[R] | Mapping[str, Order[R]], parties: Iterable[str] | None
    ) -> dict[str, Order[R]]:
        if isinstance(order, Order):
            addressed = dict.fromkeys(self.parties if parties is None else parties, order)
        else:
            addressed = {party: order[party] for party in self.parties if party in order}
            addressed |= {party: order[party] for party in order if party not in addressed}
        unknown = [party for party in addressed if party not in self._state]
        if unknown or not addressed:
            raise ConfigError(f"Unknown parties: {unknown}." if unknown else "An order must go to at least one party.")
        asked = {each.step for each in addressed.values()}
        if undeclared := set() if self.may_ask is None else asked - set(self.may_ask):
            raise ConfigError(
                f"Sites are asked for {', '.join(sorted(undeclared))}, which the algorithm does not declare for these "
                "settings: name it in the class variable asks_for of the algorithm, or of the rule, that asks for it."
            )
        return addressed

    def _requests(self, orders: Mapping[str, Order[Any]], number: int) -> dict[str, Request]:
        """What each party is asked for; one request for all that are asked for the same."""
        made: dict[int, Request] = {}
        for order in orders.values():
            if id(order) not in made:
                made[id(order)] = self._request(order, number)
        return {party: made[id(order)] for party, order in orders.items()}

    def _request(self, order: Order[Any], number: int) -> Request:
        public = None if self._public is None else self._public.digest
        return Request(
            self.run, public, number, self.round, order.step, order.digest, order.args, order.mechanism, order.mask
        )

    def _exchange(
        self,
        asked: Mapping[str, Order[Any] | None],
        number: int | None,
        deadline: float | None,
        outcome: Replies[Any],
    ) -> Iterator[tuple[str, Release]]:
        start = time.perf_counter()
        awaited: dict[str, _Awaited] = {}
        frames: dict[str, bytes] = {}
        packed: dict[tuple[Any, ...], bytes] = {}
        orders = {party: order for party, order in asked.items() if order is not None}
        questions = {} if number is None else self._requests(orders, number)
        alike: dict[tuple[Any, ...], _Awaited] = {}
        for party, order in asked.items():
            encode = time.perf_counter()
            awaited[party] = expected = self._awaited(party, order, questions.get(party), alike)
            frames[party] = self._frame(party, expected.requests, packed)
            self.observed.sent(self.round, party, expected.steps, len(frames[party]), time.perf_counter() - encode)
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
        self.observed.cost(self.round, COORDINATOR, seconds_total=time.perf_counter() - start)

    def _awaited(
        self, party: str, order: Order[Any] | None, question: Request | None, alike: dict[tuple[Any, ...], _Awaited]
    ) -> _Awaited:
        """What is expected of a party, once for all that are asked for the same."""
        state = self._state[party]
        requests, state.queue = state.queue, []
        if question is not None:
            requests.append(question)
        state.asked = requests[-1].step
        key = (id(order), *map(id, requests))
        if key not in alike:
            alike[key] = _Awaited(tuple(requests), Nothing if order is None else order.answer)
        return alike[key]

    def _frame(self, party: str, requests: tuple[Request, ...], packed: dict[tuple[Any, ...], bytes]) -> bytes:
        knows = self._state[party].knows
        # Most parties get the same orders: they are written once.
        key = (knows, *((each.number, id(each.args), id(each.mask)) for each in requests))
        if key not in packed:
            packed[key] = with_header(requests[-1], write_orders(requests, self._known.get(knows)))
        return packed[key]

    def _receive(self, answer: Answer, awaited: _Awaited, outcome: Replies[Any]) -> Release | None:
        """Read an answer; None if the party refused, or if its reply does not answer this order."""
        start, party, state = time.perf_counter(), answer.party, self._state[answer.party]
        self.noise.depend_on(party.encode() + b"\0", answer.frame)
        reply, release, charges = self._read(answer, awaited)
        if isinstance(reply, Refusal):
            outcome.refused[party] = reply.code
            self.reject(party, reply.code, step=reply.step or None)
        if isinstance(reply, Refusal) and reply.code in _NOT_TAKEN_IN:
            state.knows = None
        elif awaited.labels:
            state.knows = awaited.labels[-1].digest
        if answer.notes is not None:
            self.observed.noted(self.round, party, answer.notes)
        self.observed.received(self.round, party, len(answer.frame), time.perf_counter() - start)
        if reply.row is not None and reply.row.entry is not None:
            payload = len(reply.payload) if isinstance(reply, Reply) else 0
            self.observed.released(self.round, party, state.asked, reply.row, charges, payload)
        if release is not None and not isinstance(release, Nothing):
            self.observed.disclosed(COORDINATOR, party, state.asked, release, awaited.requests[-1].args)
        return release

    def _read(self, answer: Answer, awaited: _Awaited) -> tuple[Reply | Refusal, Release | None, list[Charge]]:
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
            most = None if size is None else kind.most_bytes(self.n_classes, size)
            usual = MESSAGE if kind.simulation_only else RELEASE
            limits = usual if most is None else usual.for_contents(most)
            made = kind.from_plain(wire.unpack(reply.payload, self._known, limits, frozen=kind.fixed))
        made.check(self.n_classes, size)
        return made

    def _require(self, quorum: float | None, asked: int, outcome: Replies[Any]) -> None:
        share = self.quorum if quorum is None else quorum
        answered = asked - len(outcome.refused) - len(outcome.missing)
        needed = max(1, math.ceil(share * asked - 1e-9))
        if answered < needed:
            codes = ", ".join(f"{party}: {code}" for party, code in outcome.refused.items())
            absent = ", ".join(outcome.missing)
            spent = answered == 0 and not outcome.missing and set(outcome.refused.values()) == {"budget-exhausted"}
            lost = (BudgetSpent if spent else QuorumLost)(
                f"{answered} of {asked} sites answered in round {self.round}; {needed} are needed."
                + (f" Refused: {codes}." if codes else "")
                + (f" Missing: {absent}." if absent else "")
                + " The reasons are in the sites' own logs."
            )
            lost.refused = outcome.refused | dict.fromkeys(outcome.missing, MISSING)
            raise lost


def _draws_of(seed: int) -> tuple[np.random.Generator, Noise]:
    """Repeatable draws, for a simulation."""
    name = int.from_bytes(hashlib.sha256(COORDINATOR.encode()).digest()[:8])
    return np.random.default_rng([seed, name]), SeededNoise(np.random.default_rng([seed, name, 1]))


def _secret_draws(secret: bytes) -> tuple[np.random.Generator, Noise]:
    """Draws that nobody without the secret can predict, not even one who sees all others."""
    for_rng, for_noise = (hashlib.sha256(secret + purpose).digest() for purpose in (b"generator", b"noise"))
    return np.random.default_rng(int.from_bytes(for_rng)), KeyedNoise(for_noise)
