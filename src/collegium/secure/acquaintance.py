"""Circles of sites: how they get to know each other and exchange letters that the coordinator cannot read."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any, Final

from collegium.core.steps import Order, step
from collegium.errors import ConfigError, QuorumLost
from collegium.protocols.errors import ProtocolError, Reused
from collegium.protocols.keys import Member
from collegium.secure.messages import Greeting, Letters, Met

if TYPE_CHECKING:
    from collegium.core.federation import Federation
    from collegium.core.site import ActiveSite

Accusations = list[tuple[str, ...]]
NOT_FOLLOWED: Final = "protocol"
"""The code of a refusal that the coordinator notes itself: what this site sent was not as agreed."""
_CIRCLES: Final = "circles with other sites"
_JOINED: Final = "names of circles that were joined"


@step
def greet(site: ActiveSite, circle: str) -> Greeting:
    """Join a circle: draw a fresh key for it, and sign it with the site's own.

    Asked again, by a coordinator that missed the answer, it gives the same one as long as the circle lasts.
    """
    circles: dict[str, Member] = site.secret_state.setdefault(_CIRCLES, {})
    if circle not in circles:
        names: set[str] = site.state.setdefault(_JOINED, set())
        if circle in names:
            raise Reused("coordinator", f"begins circle {circle!r} a second time.")
        circles[circle] = site.keyring().own.join(circle)
        names.add(circle)
    return Greeting(**circles[circle].hello())


@step
def meet(site: ActiveSite, circle: str, hellos: dict[str, Any]) -> Met:
    """Check the others' greetings against their identities, and agree on keys with each."""
    member, faults = member_of(site, circle), []
    for party, hello in sorted(hellos.items()):
        if party not in member.others:
            try:
                member.meet({party: hello}, site.keyring().identities)
            except (ProtocolError, ConfigError) as error:  # not who it says it is, or unknown here
                site.log(str(error))
                faults.append(party)
    return Met(faults)


def member_of(site: ActiveSite, circle: str) -> Member:
    """At a site: what it is in a circle that it has joined."""
    member: Member | None = site.secret_state.get(_CIRCLES, {}).get(circle)
    if member is None:
        raise ProtocolError("coordinator", f"names circle {circle!r}, which this site has not joined.")
    return member


def leave(site: ActiveSite, circle: str) -> None:
    """At a site: forget the keys of a circle; its name stays used."""
    site.secret_state[_CIRCLES].pop(circle, None)


STEPS: Final = (greet, meet)


class Circle:
    """At the coordinator: the sites that have met. Others can join later.

    `aside`: for questions beside the algorithm's own, whose asker has a quorum of its own and counts who came.
    Otherwise too few for the run's quorum are an error that says who was asked, and why they did not come.
    """

    def __init__(self, fed: Federation, name: str, *, aside: bool = False) -> None:
        self.name = name
        self._fed, self._aside = fed, aside
        self._hellos: dict[str, dict[str, str]] = {}
        self._met: dict[str, set[str]] = {}
        self._out: set[str] = set()

    def gather(self, parties: Iterable[str]) -> list[str]:
        """Those of the parties that have all met each other by now, by name. Who answers wrongly never comes in."""
        asked = [party for party in parties if party not in self._out]
        new = [party for party in asked if party not in self._hellos]
        if new:
            self._hellos |= {party: said.to_plain() for party, said in self._ask(greet(self.name), new).items()}
        here = [party for party in sorted(asked) if party in self._hellos]
        strangers = [party for party in here if not set(here) <= self._met.get(party, set()) | {party}]
        if not strangers:
            return here
        answers = self._ask(meet(self.name, {party: self._hellos[party] for party in here}), strangers)
        for party in answers:
            self._met.setdefault(party, set()).update(here)
        accusations: Accusations = [(other, party) for party in answers for other in answers[party].faults]
        here = [party for party in here if party in answers or party not in strangers]
        left = without(self._fed, here, accusations, meet.name)
        self._out |= set(here) - set(left)
        return left

    def _ask(self, order: Order[Any], parties: Sequence[str]) -> dict[str, Any]:
        try:
            return self._fed.ask(order, parties, aside=self._aside)
        except QuorumLost:
            if not self._aside:
                raise
            return {}  # these are away; others may have met before


def relay(
    fed: Federation, order: Callable[[dict[str, Any]], Order[Letters]], parties: Iterable[str], most: int
) -> tuple[list[str], Accusations]:
    """Carry letters between sites until nobody writes any more; two of them have at most so many to write.

    The first letters open; every other one answers a letter that its sender has just got. So nobody can draw a
    conversation out, and make it look as if the other one did. What comes otherwise, or from one that the receiver has
    accused, is not delivered.

    Returns who is still there, and the accusations: pairs of whom the one could not accept what the other wrote, and
    those alone that wrote out of turn.
    """
    here = list(parties)
    accusations: Accusations = []
    inbox: dict[str, dict[str, Any]] = {party: {} for party in here}
    for turn in range(most + 1):
        answers = fed.ask({party: order(inbox[party]) for party in here})
        here = [party for party in here if party in answers]
        heard, inbox = inbox, {party: {} for party in here}
        accusations += [(party, sender) for sender in here for party in answers[sender].faults]
        apart = {frozenset(parties) for parties in accusations}
        for sender in here:
            for receiver in sorted(set(answers[sender].letters) & set(here)):
                if not apart.isdisjoint([frozenset([sender]), frozenset([sender, receiver])]):
                    continue
                if turn == most or (turn and receiver not in heard[sender]):
                    accusations.append((sender,))
                else:
                    inbox[receiver][sender] = answers[sender].letters[receiver]
        if not any(inbox.values()):
            break
    return here, accusations


def without(fed: Federation, parties: Sequence[str], accusations: Accusations, asked: str) -> list[str]:
    """Those that followed the protocol; the others are named among the run's refusals."""
    known = [pair for pair in accusations if set(pair) <= set(parties)]
    out = culprits(known)
    for party in out:
        fed.reject(party, NOT_FOLLOWED, step=asked)
    left = [party for party in parties if party not in out]
    if not left:
        names = ", ".join(out) or "all are away"
        raise QuorumLost(
            f"No site is left that followed the protocol of {asked} ({names}): nothing was revealed. "
            "The reasons are in the sites' own logs."
        )
    return left


def culprits(accusations: Iterable[tuple[str, ...]]) -> list[str]:
    """Whom to leave out so that no accusation stands: of two, the one with most accusations.

    Where both have as many, both: nobody can tell who did not follow.
    """
    named: list[str] = []
    standing = [set(parties) for parties in accusations]
    while standing:
        alone = {party for parties in standing if len(parties) == 1 for party in parties}
        counts = Counter(party for parties in standing for party in parties)
        out = alone or {party for party, count in counts.items() if count == max(counts.values())}
        named += sorted(out)
        standing = [parties for parties in standing if out.isdisjoint(parties)]
    return named
