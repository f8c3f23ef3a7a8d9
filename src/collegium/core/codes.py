"""Codes of the sites' points, under random hyperplanes that all sites share and the coordinator does not know."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final

import numpy as np
from numpy.typing import NDArray

from collegium.core.distances import offer_codes
from collegium.core.messages import Letters, Neighbourhood, OpenPoints
from collegium.core.sessions import session_of
from collegium.core.steps import step
from collegium.errors import QuorumLost
from collegium.graphs.neighbours import nearest
from collegium.graphs.points import as_points, directions
from collegium.protocols import seed as shared_seed
from collegium.protocols.hamming import plain
from collegium.protocols.hamming.distances import Bits, word
from collegium.protocols.primitives import KEY_BYTES

if TYPE_CHECKING:
    from collegium.core.federation import Federation
    from collegium.core.site import ActiveSite

_SEED: Final = "seed that the sites share"


def points_of(site: ActiveSite, embed: bool) -> NDArray[np.float64]:
    """At a site: its labelled points, then the unlabelled ones, as they are or as its model embeds them."""
    tables = [rows.X for rows in (site.data, site.unlabeled) if len(rows)]
    return np.concatenate([as_points(site.embed(X) if embed else X, f"Site {site.name!r}") for X in tables])


@step
def draw_seed(site: ActiveSite, session: str) -> Letters:
    """At one site: draw the seed, for the other sites only."""
    met, seed = session_of(site, session), site.draw_secret(KEY_BYTES)
    site.state[_SEED] = seed
    content = np.frombuffer(seed, np.uint8)
    return Letters({party: met.seal(party, content, shared_seed.CONTEXT) for party in met.others}, [])


@step
def encode(site: ActiveSite, session: str, leader: str, letter: Any, bits: int, k: int, embed: bool) -> Neighbourhood:
    """B <- sign(Pi V'), which stays here; tells how many points there are, and the k nearest within the site."""
    codes, seed = _codes(site, session, leader, letter, bits, embed)
    offer_codes(site, codes, seed)
    own = plain.distances(codes, codes)
    np.fill_diagonal(own, bits + 1)  # a point is not its own neighbour
    columns, distances = nearest(-own, min(k, len(own) - 1))
    return Neighbourhood(len(site.data), columns, (-distances).astype(word(bits)))


@step
def show(site: ActiveSite, session: str, leader: str, letter: Any, bits: int | None, embed: bool) -> OpenPoints:
    """The codes in the clear, or (no bits) the points themselves, each of length 1."""
    if bits is not None:
        return OpenPoints(len(site.data), _codes(site, session, leader, letter, bits, embed)[0])
    return OpenPoints(len(site.data), directions(points_of(site, embed)))


def _codes(site: ActiveSite, session: str, leader: str, letter: Any, bits: int, embed: bool) -> tuple[Bits, bytes]:
    mine = leader == site.name
    seed = site.state.pop(_SEED) if mine else shared_seed.receive(session_of(site, session), leader, letter)
    return shared_seed.unpack(shared_seed.codes(points_of(site, embed), seed, bits), bits), seed


def lead(fed: Federation, session: str, parties: Sequence[str]) -> tuple[str, dict[str, Any]]:
    """At the coordinator: who drew the seed, and its letters to the others. Who cannot is passed over."""
    for leader in parties:
        with suppress(QuorumLost):
            return leader, fed.ask(draw_seed(session), [leader])[leader].letters
    raise QuorumLost("No site could draw the seed that the sites share; their own logs say why.")


def ask_codes(
    fed: Federation, session: str, parties: Sequence[str], bits: int | None, k: int, *, embed: bool, in_the_clear: bool
) -> dict[str, Any]:
    """At the coordinator: have every site draw its codes; what each tells of its points, by name."""
    leader, letters = ("", {}) if bits is None else lead(fed, session, parties)
    orders: dict[str, Any] = {}
    for party in parties:
        if bits is None or in_the_clear:
            orders[party] = show(session, leader, letters.get(party), bits, embed)
        else:
            orders[party] = encode(session, leader, letters.get(party), bits, k, embed)
    told = fed.ask(orders)
    return {party: told[party] for party in sorted(told)}
