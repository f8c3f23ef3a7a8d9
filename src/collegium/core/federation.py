"""What an algorithm sees of the parties: verbs that say what the coordinator gets to know."""

from __future__ import annotations

import hashlib
import math
import time
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, Generic, Protocol, TypeVar, cast, runtime_checkable

import numpy as np

from collegium import wire
from collegium.core.labels import Codes, Labels
from collegium.core.observations import Observations
from collegium.core.public_set import PublicSet
from collegium.core.releases import KINDS, REFUSAL, Nothing, Release, Sum
from collegium.core.steps import Order
from collegium.core.weights import Arrays
from collegium.errors import BudgetSpent, ConfigError, QuorumLost, WireError
from collegium.privacy.budget import read_charges
from collegium.privacy.claims import Charge
from collegium.secure.secret_votes import SecretTotals

if TYPE_CHECKING:
    from collegium.core.workbench import Workbench

R = TypeVar("R", bound=Release)
COORDINATOR = "coordinator"
_FIRST_ASIDE: Final = 1 << 40
# After these codes the site did not take in the labels it was sent.
_UNREAD = {"bad-message", "storage-failed", "other-order"}


class Link(Protocol):
    """How orders reach sites and sealed releases come back."""

    @property
    def parties(self) -> tuple[str, ...]:
        """The names of all sites."""
        ...

    def exchange(self, orders: Mapping[str, bytes], deadline: float | None) -> Iterator[tuple[str, bytes]]:
        """Send one frame to each named party; yield replies as they come. A party that is silent is left out."""
        ...


@runtime_checkable
class OpenLink(Link, Protocol):
    """A link to which sites may come later."""

    def newcomers(self) -> tuple[str, ...]:
        """Sites that have joined since it was asked last. Asked when a round begins."""
        ...


class Replies(dict[str, R], Generic[R]):
    """One release per party that answered; who refused (with a code) and who is missing."""

    def __init__(self) -> None:
        super().__init__()
        self.refused: dict[str, str] = {}
        self.missing: tuple[str, ...] = ()


@dataclass
class _Queued:
    order: Order[Nothing]
    number: int
    round: int


@dataclass
class _Party:
    """What the coordinator keeps for one party between exchanges."""

    queue: list[_Queued] = field(default_factory=list)
    knows: str | None = None


class Federation:
    """The coordinator's handle on all sites.

    The verb says what the coordinator sees: `tell` - nothing; `ask` - each party's release; `total` - the sum only.
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
    ) -> None:
        if not 0 <= quorum <= 1:
            raise ConfigError(f"quorum is a share of the sites, between 0 and 1, not {quorum}.")
        if deadline is not None and not deadline > 0:
            raise ConfigError(f"deadline is a number of seconds above 0, not {deadline}.")
        self.parties = link.parties
        self.n_classes = n_classes
        self.seed = seed
        self.rng = np.random.default_rng([seed, int.from_bytes(hashlib.sha256(b"coordinator").digest()[:8])])
        self.round = 0
        self.observed = Observations()
        self.may_ask: Collection[str] | None = None
        """The names of the steps that the algorithm declares; None where there is no algorithm to declare any."""
        self.final_labels: Labels | None = None
        self.final_weights: dict[str, Arrays] = {}
        self._link = link
        self._run = run
        self._public = public
        self._truth = public_truth
        self._labels = public_labels
        self._workbench = workbench
        self._quorum = quorum
        self._deadline = deadline
        self._number = self._asides = 0
        self._state = {party: _Party() for party in self.parties}
        self._known = wire.KnownLabels()
        self._secret_totals = SecretTotals(self)

    @property
    def run(self) -> str:
        """The run's number, which no other run has."""
        return self._run

    @property
    def quorum(self) -> float:
        """The share of the asked sites that must answer; 0 where the user set none, and one answer is enough."""
        return self._quorum

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
            raise ConfigError("This coordinator has no nets to work with.")
        return self._workbench

    def rounds(self, n: int) -> Iterator[int]:
        """Count rounds 0 .. n-1; what is asked and told inside belongs to that round."""
        for self.round in range(n):
            self._welcome()
            self.observed.begin_round(self.round, n)
            yield self.round
            # The last round stays open: what was told in it is delivered after the loop.
            if self.round < n - 1 and self.observed.end_round():
                return

    def _welcome(self) -> None:
        """Sites that have joined since the last round are parties from now on; they know nothing yet."""
        joined = self._link.newcomers() if isinstance(self._link, OpenLink) else ()
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
        """Have a step run; nothing comes back. It is queued and rides with the next question."""
        self._number += 1
        for party, each in self._addressed(order, parties).items():
            self._state[party].queue.append(_Queued(each, self._number, self.round))

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
        replies: Replies[R] = Replies()
        for party, release in self.stream(order, parties, deadline=deadline, quorum=quorum, into=replies, aside=aside):
            replies[party] = release
        return replies

    def total(
        self,
        order: Order[R] | Mapping[str, Order[R]],
        parties: Sequence[str] | None = None,
        *,
        deadline: float | None = None,
        quorum: float | None = None,
    ) -> Any:
        """Ask, and see only the sum over the parties that answered; of a secret order nobody could see more."""
        addressed = self._addressed(order, parties)
        if any(each.secret for each in addressed.values()):
            return self._secret_totals.total(addressed, deadline, self._quorum if quorum is None else quorum)
        total: Sum | None = None
        for _, release in self.stream(addressed, deadline=deadline, quorum=quorum):
            with self.observed.watch("consensus"):
                total = total if total is not None else type(release).empty_sum(len(addressed))
                total.add_release(release)
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
        """Ask, and see each party's release as it comes; none is kept.

        `aside`: a question of a protocol's own, which leaves the numbers of the algorithm's orders, and with them the
        sites' randomness, as they would be without it.
        """
        asked: Mapping[str, Order[Any] | None] = (addressed := self._addressed(order, parties))
        if any(each.secret and each.mask is None for each in addressed.values()):
            raise ConfigError("A secret order can only be totalled: use fed.total, or ask without secretly().")
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
            answered = sum(1 for _ in self._exchange(waiting, None, deadline, outcome))
            self._require(None, len(waiting), outcome, answered)

    def note(self, metric: str, value: float, party: str = COORDINATOR, split: str = "public") -> None:
        """Put a number into the run's metrics."""
        self.observed.metric(self.round, party, split, metric, value)

    def publish(self, weights: Arrays, like: str) -> None:
        """Make a net's weights the run's result, one per architecture; `like` is a party whose learner has that net.

        What is published last stays. A simulation notes the accuracy on its test set each time.
        """
        self.final_weights[like] = weights
        with self.observed.watch("test"):
            accuracy = None if self._workbench is None else self._workbench.accuracy(like, weights)
        if accuracy is not None:
            first = like == next(iter(self.final_weights))
            self.note("global_accuracy", accuracy, COORDINATOR if first else like, "test")

    def charge(self, what: str, charge: Charge) -> None:
        """Note what something costs that the coordinator makes public with noise of its own, such as a final model."""
        self.observed.claims.setdefault(what, []).append(charge)

    def announce(self, labels: Labels) -> int:
        """Make a consensus known: notes its size and quality, returns how many labels changed since the last.

        The last one announced is the run's result; a global model is fitted on it.
        """
        changed = labels.changed_from(self.final_labels)
        self.note("consensus_size", labels.coverage)
        self.note("consensus_changed", changed)
        if self._truth is not None and labels.known.any():
            self.note("consensus_quality", float(np.mean(labels.codes[labels.known] == self._truth[labels.known])))
        self.final_labels = labels
        return changed

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
            raise ConfigError(f"There is no party {unknown}." if unknown else "An order is addressed to no party.")
        self._require_declared({each.step for each in addressed.values()})
        return addressed

    def _require_declared(self, asked: set[str]) -> None:
        undeclared = set() if self.may_ask is None else asked - set(self.may_ask)
        if undeclared:
            raise ConfigError(
                f"Sites are asked for {', '.join(sorted(undeclared))}, which the algorithm does not declare for these "
                "settings: name it in the class variable asks_for of the algorithm, or of the rule, that asks for it."
            )

    def _exchange(
        self,
        asked: Mapping[str, Order[Any] | None],
        number: int | None,
        deadline: float | None,
        outcome: Replies[Any],
    ) -> Iterator[tuple[str, Release]]:
        start = time.perf_counter()
        frames, sent, written, expected = {}, {}, {}, {}
        packed: dict[tuple[Any, ...], bytes] = {}
        for party, order in asked.items():
            encode = time.perf_counter()
            orders = self._batch(party, order, number)
            frames[party] = self._frame(party, orders, packed)
            sent[party] = [value for each in orders for value in each["args"].values() if isinstance(value, Labels)]
            written[party] = str(orders[-1]["step"])
            expected[party] = Nothing if order is None else order.answer
            steps = [str(each["step"]) for each in orders]
            self.observed.sent(self.round, party, steps, len(frames[party]), time.perf_counter() - encode)
        for labels in {id(each): each for values in sent.values() for each in values}.values():
            self._known.remember(labels)
        silent = dict.fromkeys(asked)
        for party, frame in self._link.exchange(frames, self._deadline if deadline is None else deadline):
            if party not in silent:
                continue
            del silent[party]
            release = self._receive(party, written[party], expected[party], frame, sent[party], outcome)
            if release is not None:
                yield party, release
        outcome.missing = tuple(silent)
        for party in silent:
            self._state[party].knows = None
            self.observed.refusal(self.round, party, written[party], "missing")
        self.observed.exchanged(self.round, time.perf_counter() - start)

    def _batch(self, party: str, order: Order[Any] | None, number: int | None) -> list[dict[str, Any]]:
        state = self._state[party]
        queued, state.queue = state.queue, []
        if order is not None and number is not None:
            queued = [*queued, _Queued(order, number, self.round)]
        return [
            {
                "number": each.number,
                "round": each.round,
                "step": each.order.step,
                "digest": each.order.digest,
                "args": each.order.args,
                **({} if each.order.mechanism is None else {"mechanism": each.order.mechanism}),
                **({} if each.order.mask is None else {"mask": each.order.mask}),
            }
            for each in queued
        ]

    def _frame(self, party: str, orders: list[dict[str, Any]], packed: dict[tuple[Any, ...], bytes]) -> bytes:
        public = None if self._public is None else self._public.digest
        header = {"run": self._run, "last": orders[-1]["number"], "public": public}
        knows = self._state[party].knows
        # Most parties get the same orders: they are written once.
        key = (knows, *((each["number"], id(each["args"]), id(each.get("mask"))) for each in orders))
        if key not in packed:
            packed[key] = wire.pack({"orders": orders}, self._known.get(knows)).data
        return wire.join(header, packed[key])

    def _receive(
        self,
        party: str,
        step: str,
        expected: type[Release],
        frame: bytes,
        sent: list[Labels],
        outcome: Replies[Any],
    ) -> Release | None:
        """Read a reply; None where the party refused, or its reply cannot be read."""
        start, payload, notes = time.perf_counter(), b"", {}
        try:
            header, payload = wire.cut(frame)
            if "notes" in header:  # a simulation's notes, around what a real site would send
                notes, frame = header["notes"], payload
                header, payload = wire.cut(frame)
            code = header.get("refused")
            if code is not None and header.get("entry"):
                _check_paid(header)
            release = None if code is not None else self._open(expected, header, payload)
        except (WireError, ConfigError, KeyError, TypeError, ValueError):
            header, code, release = {}, "bad-reply", None
        if code is not None:
            outcome.refused[party] = str(code)
            self.observed.refusal(self.round, party, str(header.get("step") or step), str(code))
        if code in _UNREAD or code == "bad-reply":
            self._state[party].knows = None
        elif sent:
            self._state[party].knows = sent[-1].digest
        self.observed.noted(self.round, party, notes)
        self.observed.cost(self.round, party, bytes_up=len(frame), seconds_wire=time.perf_counter() - start)
        if header.get("entry"):
            self.observed.released(self.round, party, step, header, len(payload))
        return release

    def _open(self, expected: type[Release], header: Mapping[str, Any], payload: bytes) -> Release:
        """A release from its bytes: of the kind that was asked for, as its hash says, fit for this study."""
        kind = KINDS.get(str(header["kind"]))
        if kind is None or kind is not expected or hashlib.sha256(payload).hexdigest() != header["sha256"]:
            raise WireError("A reply is of another kind than was asked for, or not what its hash says.")
        release = kind.from_plain(wire.unpack(payload, self._known))
        release.check(self.n_classes, None if self._public is None else len(self._public))
        read_charges(header.get("privacy"))
        return release

    def _require(self, quorum: float | None, asked: int, outcome: Replies[Any], answered: int | None = None) -> None:
        share = self._quorum if quorum is None else quorum
        answered = asked - len(outcome.refused) - len(outcome.missing) if answered is None else answered
        needed = max(1, math.ceil(share * asked - 1e-9))
        if answered < needed:
            codes = ", ".join(f"{party}: {code}" for party, code in outcome.refused.items())
            absent = ", ".join(outcome.missing)
            spent = answered == 0 and not outcome.missing and set(outcome.refused.values()) == {"budget-exhausted"}
            raise (BudgetSpent if spent else QuorumLost)(
                f"{answered} of {asked} sites answered in round {self.round}; {needed} are needed."
                + (f" Refused - {codes}." if codes else "")
                + (f" Missing - {absent}." if absent else "")
                + " The reasons are in the sites' own logs."
            )


def _check_paid(header: Mapping[str, Any]) -> None:
    """What a refusal says of its own cost must be readable: a WireError or ConfigError otherwise."""
    if header["kind"] != REFUSAL or header["bytes"] != 0 or not isinstance(header["sha256"], str):
        raise WireError("A refusal that was paid for is a row of its own kind, and carries nothing.")
    read_charges(header["privacy"])
