"""Secure Hamming distances as orders: sites talk in pairs through the coordinator, which sees the distances only."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import combinations
from typing import TYPE_CHECKING, Any, Final

from collegium.core.steps import step
from collegium.protocols.errors import ProtocolError
from collegium.protocols.hamming.dialogues import Dialogues, DistanceServer
from collegium.protocols.hamming.distances import Bits, Distances
from collegium.protocols.hamming.ot import TransferPlan
from collegium.secure.acquaintance import Accusations, member_of, relay, without
from collegium.secure.messages import DistanceShares, Letters

if TYPE_CHECKING:
    from collegium.core.federation import Federation
    from collegium.core.site import ActiveSite

_SKETCHES: Final = "sketches for distances"
_DIALOGUES: Final = "dialogues about distances"


def offer_sketches(site: ActiveSite, bits: Bits, key: bytes) -> None:
    """At a site: the sketches that it will be asked about; `key` is what all sites share and the coordinator lacks."""
    site.secret_state[_SKETCHES] = bits, key
    site.secret_state.pop(_DIALOGUES, None)


@step
def talk(site: ActiveSite, circle: str, backend: str, points: dict[str, int], letters: dict[str, Any]) -> Letters:
    """Take what other sites wrote about distances, and write to them; the first time, with no letters, open."""
    if _DIALOGUES not in site.secret_state:
        bits, key = site.secret_state[_SKETCHES]
        site.secret_state[_DIALOGUES] = Dialogues(backend, bits, member_of(site, circle), points, key)
    with site.watch.time("hamming"):
        written, faults = site.secret_state[_DIALOGUES].talk(letters)
    for why in faults.values():
        site.log(why)
    return Letters(written, sorted(faults))


@step
def share(site: ActiveSite, partners: list[str]) -> DistanceShares:
    """This site's shares of the distances to its partners' points."""
    with site.watch.time("hamming"):
        shares = site.secret_state[_DIALOGUES].shares(partners)
    del site.secret_state[_DIALOGUES], site.secret_state[_SKETCHES]
    return DistanceShares(shares)


STEPS: Final = (talk, share)


def secure_distances(
    fed: Federation, circle: str, backend: str, length: int, points: Mapping[str, int]
) -> tuple[list[str], dict[tuple[str, str], Distances]]:
    """At the coordinator: who took part to the end, and the distances of each pair of them, first by name first.

    A site that drops out, or does not follow, is left out; what it sent by then stays unreadable without the others.
    """
    sizes = dict(sorted(points.items()))
    most = _most_letters(backend, length, list(sizes.values()))
    here, accusations = relay(fed, lambda letters: talk(circle, backend, sizes, letters), sizes, most)
    here = without(fed, here, accusations, talk.name)
    answers = fed.ask({party: share([other for other in here if other != party]) for party in here})
    server = DistanceServer(backend, length, sizes)
    faults: Accusations = []
    found: dict[tuple[str, str], Distances] = {}
    for party in sorted(answers):
        try:
            server.add(party, answers[party].shares)
        except ProtocolError as error:
            faults.append(error.parties)
    for one, other in combinations([party for party in sorted(answers) if (party,) not in faults], 2):
        try:
            found[one, other] = server.between(one, other)
        except ProtocolError as error:
            faults.append(error.parties)
    here = without(fed, sorted(answers), faults, share.name)
    return here, {pair: table for pair, table in found.items() if set(pair) <= set(here)}


def _most_letters(backend: str, length: int, sizes: Sequence[int]) -> int:
    """How many letters the longest conversation of two of these sites takes, the first of them being the one to open.

    By oblivious transfer: an offer and its answer, then a request and its answer for every block.
    """
    if backend == "masked" or len(sizes) < 2:
        return 0
    if backend != "ot":
        return 2
    return 2 + 2 * max(TransferPlan(rows, points, length).blocks for rows, points in combinations(sizes, 2))
