"""What an algorithm sees of the parties: verbs that say what the coordinator learns."""

from __future__ import annotations

import hashlib
import math
import time
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any, Final, TypeVar, cast

import numpy as np
from numpy.typing import NDArray

from collegium.core.correspondence import BAD_REPLY, MISSING, Correspondence, Replies
from collegium.core.labels import Codes, Labels
from collegium.core.link import Link, OpenLink
from collegium.core.masking import SecretTotals, masking
from collegium.core.observations import COORDINATOR, Observations
from collegium.core.public_set import PublicSet
from collegium.core.releases import Nothing, Release, Sum
from collegium.core.settings import PositiveFloat, PositiveInt, Probability, check
from collegium.core.steps import Order
from collegium.core.weights import Arrays
from collegium.errors import BudgetSpent, ConfigError, QuorumLost, WireError
from collegium.privacy.claims import SEEDED_NOISE, Charge
from collegium.privacy.keyed_noise import KeyedNoise
from collegium.privacy.noise import Noise, SeededNoise

if TYPE_CHECKING:
    from collegium.core.workbench import Workbench

R = TypeVar("R", bound=Release)
_FIRST_ASIDE: Final = 1 << 40


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
        opinion: NDArray[np.floating[Any]] | None = None,
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
        self.made_opinion: NDArray[np.floating[Any]] | None = None
        """How probable each class is for each of its rows, where the model that made them says so."""
        self.opinion = opinion
        """The same of the rows that this run's sites label: nothing but a model's, and None for real rows."""
        self.kept: dict[str, Any] = {}
        """What rules keep of a run, by name: what they asked once and need in every communication."""
        self._open_link = link if isinstance(link, OpenLink) else None  # which takes a while to find out
        self._public = public
        self._truth = public_truth
        self._labels = public_labels
        self._workbench = workbench
        self._test_every, self._last_round = check(PositiveInt, test_every, "test_every"), 0
        self._untested: set[str] = set()
        self._number = self._asides = 0
        self._correspondence = Correspondence(
            link,
            run=run,
            n_classes=n_classes,
            public=public,
            noise=self.noise,
            observed=self.observed,
            deadline=deadline,
        )
        self._correspondence.welcome(self.parties)
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
        fresh = [party for party in joined if party not in self._correspondence]
        self.parties += tuple(fresh)
        self._correspondence.welcome(fresh)

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
        self._correspondence.queue(self._addressed(order, parties), self._number)

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
        for party, release in self._correspondence.exchange(asked, number, deadline, outcome):
            yield party, cast(R, release)
        self._require(quorum, len(asked), outcome)

    def flush(self, deadline: float | None = None) -> None:
        """Deliver what was told and not yet sent."""
        waiting: dict[str, Order[Any] | None] = dict.fromkeys(self._correspondence.queued(self.parties))
        if waiting:
            outcome: Replies[Nothing] = Replies()
            for _ in self._correspondence.exchange(waiting, None, deadline, outcome):
                pass  # that a step finished is all that there is to know
            self._require(None, len(waiting), outcome)

    def reject(self, party: str, reason: str = BAD_REPLY, *, step: str | None = None) -> None:
        """Record in the run's refusals that a party's reply cannot be used. The run goes on without it.

        `step` defaults to the one that it was asked for last.
        """
        self._correspondence.reject(party, reason, step)

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

    def make_public(self, rows: Any, opinion: NDArray[np.floating[Any]] | None = None) -> None:
        """Make rows the run's result: a public set for runs to come, with how probable each class is for each row."""
        self.made, self.made_opinion = rows, opinion
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
        unknown = [party for party in addressed if party not in self._correspondence]
        if unknown or not addressed:
            raise ConfigError(f"Unknown parties: {unknown}." if unknown else "An order must go to at least one party.")
        asked = {each.step for each in addressed.values()}
        if undeclared := set() if self.may_ask is None else asked - set(self.may_ask):
            raise ConfigError(
                f"Sites are asked for {', '.join(sorted(undeclared))}, which the algorithm does not declare for these "
                "settings: name it in the class variable asks_for of the algorithm, or of the rule, that asks for it."
            )
        return addressed

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
