"""Secret totals: votes are masked at each site's gate, and the coordinator sees their sum only.

When all have sent their votes, the sites open their masks together, and the sum can be read. If a site drops out
before, the others mask the same votes again, in a round with a fresh name and without that site: no step runs again,
noise is not drawn a second time, and the masks of the former round are never opened. Votes whose masks were opened are
not masked again: of one vote there is one sum.

Sums that differ by one site would be that site's votes. So a site gives one sum for each state of its model: the next
one when an order has trained it again. Masked again, votes go to fewer sites each time, never to others: if two sums
of the same votes can be read, more than half of the sites of the larger one are not in the other.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, ClassVar, Final

import numpy as np
from numpy.typing import NDArray

from collegium.core.releases import ApprovalBits, HardLabels, Release
from collegium.core.steps import step
from collegium.errors import ConfigError, QuorumLost, Refused
from collegium.privacy.claims import Charge
from collegium.protocols import masked_sum
from collegium.protocols.errors import ProtocolError
from collegium.protocols.masks import FEWEST_SITES
from collegium.secure import acquaintance
from collegium.secure.acquaintance import NOT_FOLLOWED, Accusations, Circle, culprits, member_of
from collegium.secure.messages import MaskedVotes, MaskShares
from collegium.site.exposure import POST_PROCESSING
from collegium.wire.orders import Mask

if TYPE_CHECKING:
    from collegium.core.federation import Federation
    from collegium.core.site import ActiveSite
    from collegium.core.steps import Order

PROTOCOL: Final = "secret_votes"
"""The name under which this way of masking is registered."""
_KEPT: Final = "votes that may have to be masked again"
_SUM: Final = "masked sums"
_SUMMED: Final = "the model whose votes are in a sum"


@dataclass(frozen=True)
class _Kept:
    """Votes that left masked, noise and all, until their masks are opened."""

    first: tuple[str, str]
    """The circle, and the round in which they left first."""
    participants: frozenset[str]
    """Of the last round in which they left."""
    release: Release
    free: list[Charge] | None
    """What masking them again costs."""


@step
def open_masks(site: ActiveSite, circle: str, round_name: str, letters: dict[str, Any]) -> MaskShares:
    """This site's shares of the masks on all participants' votes. Its own votes are not masked again after that.

    Where a letter cannot be opened nothing is, and the sender is named.
    """
    shares, faults = _sums_of(site, circle).open(round_name, letters)
    if not faults:
        site.secret_state.pop(_KEPT, None)
    return MaskShares(shares, faults)


STEPS: Final = (*acquaintance.STEPS, open_masks)


def _sums_of(site: ActiveSite, circle: str) -> masked_sum.MaskedSum:
    sums: dict[str, masked_sum.MaskedSum] = site.secret_state.setdefault(_SUM, {})
    if circle not in sums:
        sums[circle] = masked_sum.MaskedSum(member_of(site, circle))
    return sums[circle]


def _require_company(participants: Sequence[str]) -> None:
    """Of a sum over two sites each one's votes can be read off where they agree."""
    if len(set(participants)) < FEWEST_SITES:
        raise ConfigError(f"a sum needs at least {FEWEST_SITES} sites to hide one, not {len(set(participants))}.")


def _require_new_votes(site: ActiveSite) -> None:
    """A second sum of the same votes, with other participants, would reveal single sites' votes."""
    if _SUMMED in site.state and site.state[_SUMMED] is site.model:
        raise ConfigError("its model has not been trained since it last gave votes to a sum.")


def _counts(release: Release) -> NDArray[np.uint8]:
    """Votes as numbers 0 and 1, of shape (classes, samples)."""
    if isinstance(release, HardLabels):
        return masked_sum.votes(release.labels.codes, release.labels.n_classes)
    if isinstance(release, ApprovalBits):
        return release.to_bits().T.astype(np.uint8)
    raise ConfigError(f"{release.kind} are not votes.")


class SecretVotes:
    """This way of masking: at a site's gate, and at the coordinator."""

    protocol: ClassVar[str] = PROTOCOL
    """The name under which it is registered."""
    what: ClassVar[str] = "Secret votes"
    """What is summed, in errors."""
    message: ClassVar[type[Any]] = MaskedVotes
    """The kind of release that leaves a site."""
    most: ClassVar[int | None] = 1
    """The largest number that a site adds; None where sums of words wrap around."""

    def totals(self, fed: Federation) -> SecretTotals:
        """The coordinator's side, for one run."""
        return SecretTotals(fed, self)

    def numbers(self, release: Release) -> NDArray[Any]:
        """At a gate: a release as the whole numbers 0 .. `most` that are summed."""
        return _counts(release)

    def require_fit(self, site: ActiveSite, mask: Mask, release: Release) -> None:
        """At a gate: a ConfigError where this release must not go into this sum."""
        if mask.again is None:
            _require_new_votes(site)

    def shape(self, fed: Federation, order: Order[Any]) -> tuple[int, ...]:
        """At the coordinator: the shape of the sum of what answers an order."""
        return fed.n_classes, len(fed.public)

    def summed(self, counts: NDArray[Any], order: Order[Any], parties: Sequence[str]) -> Any:
        """At the coordinator: what the algorithm gets of the sum of all numbers."""
        answer = order.answer
        if issubclass(answer, HardLabels) and counts.sum(axis=0, dtype=np.int64).max(initial=0) > len(parties):
            raise ProtocolError(parties, "sent more votes than one for a sample.")
        total: Any = answer.empty_sum(len(parties))
        total.add_counts(counts, len(parties))
        return total

    def masked(self, site: ActiveSite, mask: Mask, release: Release) -> Release:
        """At a gate: votes, masked for the round that the coordinator names. No other round can be opened then."""
        try:
            _require_company(mask.participants)
            self.require_fit(site, mask, release)
            sums = _sums_of(site, mask.circle)
            for other in site.secret_state[_SUM].values():
                other.forget()
            sent = sums.submit(mask.round, self.numbers(release), mask.participants, most=self.most)
        except (ConfigError, ProtocolError) as error:
            raise Refused("mask-denied", f"{site.name} cannot mask its release: {error}") from None
        if mask.again is not None:
            kept = site.secret_state[_KEPT]
            site.secret_state[_KEPT] = replace(kept, participants=frozenset(mask.participants))
        left: Release = self.message(sent.words, sent.letters, sent.digests, sent.key_digest)
        return left

    def keep(self, site: ActiveSite, mask: Mask, release: Release, charges: Sequence[Charge] | None) -> None:
        """At a gate: remember votes that may leave and are paid for, in case they have to be masked again."""
        free = None if charges is None else [replace(each, events=()).assuming(POST_PROCESSING) for each in charges]
        first = mask.circle, mask.round
        site.secret_state[_KEPT] = _Kept(first, frozenset(mask.participants), release, free)
        site.state[_SUMMED] = site.model  # every fit makes another one

    def kept(self, site: ActiveSite, mask: Mask) -> tuple[Release, list[Charge] | None]:
        """At a gate: the votes of an earlier round, noise and all. Masking them again costs nothing more."""
        kept: _Kept | None = site.secret_state.get(_KEPT)
        if kept is None or kept.first != (mask.circle, mask.again):
            raise Refused("mask-denied", f"{site.name} has kept no votes of round {mask.again!r}.")
        if not set(mask.participants) < kept.participants:
            raise Refused("mask-denied", f"{site.name} masks its votes again only for fewer sites than before.")
        return kept.release, kept.free


class SecretTotals:
    """At the coordinator: one circle for all rounds of a run; sites join it when they are first asked."""

    def __init__(self, fed: Federation, way: SecretVotes) -> None:
        self._fed, self._way = fed, way
        name = "secret totals" if way.protocol == PROTOCOL else f"totals of {way.protocol}"
        self._circle = Circle(fed, f"{fed.run} {name}", aside=True)
        self._rounds = 0

    def total(self, orders: Mapping[str, Order[Any]], deadline: float | None, quorum: float) -> Any:
        """The sum over the parties that answered, of the kind that these orders' votes have."""
        if len(orders) < FEWEST_SITES:
            raise ConfigError(
                f"{self._way.what} need at least {FEWEST_SITES} sites in every communication, not {len(orders)}: the "
                "sum of so few reveals what each of them sent. Let more sites take part."
            )
        here, first = self._circle.gather(orders), None
        while True:
            self._require(len(here), len(orders), quorum)
            self._rounds += 1
            name = f"sum {self._rounds}"
            order = orders[here[0]]
            server = masked_sum.SumServer(here, self._way.shape(self._fed, order), most=self._way.most)
            mask = Mask(self._way.protocol, self._circle.name, name, here, first)
            secret = {party: replace(orders[party], mask=mask, gives=self._way.message.kind) for party in here}
            for party, sent in self._fed.stream(secret, deadline=deadline, quorum=0, aside=first is not None):
                try:
                    server.add(party, masked_sum.Submission(sent.counts, sent.letters, sent.digests, sent.key_digest))
                except ProtocolError:
                    self._fed.reject(party, NOT_FOLLOWED)
            left = server.senders if server.missing else self._open(server, name, deadline)
            if left == here:
                break
            here, first = left, first or name
        with self._fed.timed("consensus"):
            return self._way.summed(server.total(), order, here)

    def _open(self, server: masked_sum.SumServer, name: str, deadline: float | None) -> list[str]:
        """Have the participants open their masks: all of them, if the sum can be read now.

        Where nobody but those at fault could open anything, the others may begin again. Otherwise there is no other
        round for these votes.
        """
        letters = {party: server.letters_for(party) for party in server.senders}
        orders = {party: open_masks(self._circle.name, name, letters[party]) for party in letters}
        accusations: Accusations = []
        answered, openers = [], []
        for party, opened in self._fed.stream(orders, deadline=deadline, quorum=0, aside=True):
            answered.append(party)
            accusations += [(sender, party) for sender in opened.faults]
            try:
                if not opened.faults:
                    openers.append(party)
                    server.opened(party, opened.shares)
            except ProtocolError as error:
                accusations.append(error.parties)
        out = culprits(pair for pair in accusations if set(pair) <= set(letters))
        for party in out:
            self._fed.reject(party, NOT_FOLLOWED)
        if server.readable:
            return list(letters)
        left = [party for party in sorted(answered) if party not in out]
        if left == list(letters) or not set(left).isdisjoint(openers):
            raise QuorumLost(
                f"Too few sites are left to open a secret total in round {self._fed.round}: nothing was revealed. "
                "The reasons are in the sites' own logs."
            )
        return left

    def _require(self, here: int, asked: int, quorum: float) -> None:
        needed = max(FEWEST_SITES, math.ceil(quorum * asked - 1e-9))
        if here < needed:
            raise QuorumLost(
                f"{here} of {asked} sites are left for a secret total in round {self._fed.round}; {needed} are needed. "
                "The reasons are in the sites' own logs."
            )
