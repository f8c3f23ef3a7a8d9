"""Sketches of the sites' points, under random hyperplanes that all sites share and the coordinator does not know.

One site draws the seed of the hyperplanes and sends it to the others. With it go letters in which every site tells
every other one which columns it has: sketches of other columns could be compared as well, and would mean nothing.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from collegium.core.steps import step
from collegium.graphs.neighbours import nearest
from collegium.graphs.points import as_points, directions
from collegium.protocols import seed as shared_seed
from collegium.protocols.errors import ProtocolError
from collegium.protocols.hamming import plain
from collegium.protocols.hamming.distances import Bits, word
from collegium.protocols.primitives import KEY_BYTES, bind
from collegium.protocols.received import as_bytes
from collegium.secure.acquaintance import Accusations, member_of, without
from collegium.secure.distances import offer_sketches
from collegium.secure.messages import Letters, Met, Neighbourhood, OpenPoints
from collegium.wire import tables

if TYPE_CHECKING:
    from collegium.core.federation import Federation
    from collegium.core.site import ActiveSite

_SEED: Final = "seed that the sites share"


def points_of(site: ActiveSite, embed: bool) -> NDArray[np.float64]:
    """At a site: its labeled points, then the unlabeled ones, as they are or as its model embeds them."""
    rows = [each.X for each in (site.data, site.unlabeled) if len(each)]
    return np.concatenate([as_points(site.embed(X) if embed else X, f"Site {site.name!r}") for X in rows])


def columns_of(site: ActiveSite, embed: bool) -> dict[str, Any]:
    """At a site: how many features its points have, and a digest of their names, where they have any."""
    table = next(rows.X for rows in (site.data, site.unlabeled) if len(rows))
    first = tables.take(table, [0])
    width = as_points(site.embed(first) if embed else first, f"Site {site.name!r}").shape[1]
    names = list(table.columns) if isinstance(table, pd.DataFrame) and not embed else []
    if embed and site.backbone is not None:
        names = [site.backbone]  # features of two nets cannot be compared, however many there are
    if not names or not all(isinstance(name, str) for name in names):
        return {"width": width, "names": None}
    return {"width": width, "names": hashlib.sha256(bind("collegium columns v1", *names)).hexdigest()}


@step
def draw_seed(site: ActiveSite, circle: str, draw: int, parties: list[str], embed: bool) -> Letters:
    """At one site: draw the seed, for the other sites only."""
    seed = site.draw_secret(KEY_BYTES)
    site.secret_state[_SEED] = (circle, site.name, draw), seed
    return _to_all(site, circle, draw, parties, {"seed": np.frombuffer(seed, np.uint8), **columns_of(site, embed)})


@step
def announce(site: ActiveSite, circle: str, draw: int, parties: list[str], embed: bool) -> Letters:
    """At the others, meanwhile: tell all sites which columns this one has."""
    return _to_all(site, circle, draw, parties, columns_of(site, embed))


@step
def compare(site: ActiveSite, circle: str, leader: str, draw: int, letters: dict[str, Any], embed: bool) -> Met:
    """Take the leader's seed, if all have the same columns; `faults` are those that have not, or wrote nonsense."""
    met, own, faults = member_of(site, circle), columns_of(site, embed), []
    for party in sorted({leader, *letters} - {site.name}):
        letter: Any = letters.get(party)
        try:
            said = met.open(party, letter, _context(draw))
            _require_same_columns(party, said, own)
            if party == leader:
                site.secret_state[_SEED] = (circle, leader, draw), as_bytes(leader, said.get("seed"), KEY_BYTES)
        except ProtocolError as error:
            site.log(str(error))
            faults.append(party)
    if faults:
        site.secret_state.pop(_SEED, None)
    return Met(faults)


@step
def encode(site: ActiveSite, circle: str, leader: str, draw: int, bits: int, k: int, embed: bool) -> Neighbourhood:
    """B <- sign(Pi V'), which stays here; tells how many points there are, and the k nearest within the site."""
    sketches, seed = _sketches(site, (circle, leader, draw), bits, embed)
    offer_sketches(site, sketches, seed)
    own = plain.distances(sketches, sketches)
    np.fill_diagonal(own, bits + 1)  # a point is not its own neighbour
    columns, distances = nearest(-own, min(k, len(own) - 1))
    return Neighbourhood(len(site.data), columns, (-distances).astype(word(bits)))


@step
def show(site: ActiveSite, circle: str, leader: str, draw: int, bits: int | None, embed: bool) -> OpenPoints:
    """The sketches in the clear, or (no bits) the points themselves, each of length 1."""
    if bits is not None:
        return OpenPoints(len(site.data), _sketches(site, (circle, leader, draw), bits, embed)[0])
    return OpenPoints(len(site.data), directions(points_of(site, embed)))


SEED_STEPS: Final = (draw_seed, announce, compare)


def _sketches(site: ActiveSite, drawn: tuple[str, str, int], bits: int, embed: bool) -> tuple[Bits, bytes]:
    held, seed = site.secret_state.pop(_SEED, (None, b""))
    if held != drawn:
        raise ProtocolError("coordinator", f"asks for sketches by a seed that this site does not hold: {drawn}.")
    return shared_seed.unpack(shared_seed.sketches(points_of(site, embed), seed, bits), bits), seed


def _to_all(site: ActiveSite, circle: str, draw: int, parties: Sequence[str], content: Mapping[str, Any]) -> Letters:
    met = member_of(site, circle)
    others = [party for party in met.others if party in parties]
    return Letters({party: met.seal(party, dict(content), _context(draw)) for party in others}, [])


def _context(draw: int) -> str:
    return f"{shared_seed.CONTEXT} {draw}"


def _require_same_columns(party: str, said: object, own: Mapping[str, Any]) -> None:
    if not isinstance(said, dict) or type(said.get("width")) is not int:
        raise ProtocolError(party, "does not say which columns it has.")
    if said["width"] != own["width"]:
        raise ProtocolError(
            party, f"has points with {said['width']} features, this site {own['width']}: agree on the columns."
        )
    if None not in (said.get("names"), own["names"]) and said["names"] != own["names"]:
        raise ProtocolError(party, "has columns with other names or in another order than this site: agree on them.")


def share_seed(fed: Federation, circle: str, parties: Sequence[str], *, embed: bool) -> tuple[list[str], str, int]:
    """At the coordinator: who has the same seed, for points with the same columns; who drew it, and at which attempt.

    Who does not follow, or has other columns, is left out. The others draw again then, by letters with fresh names.
    """
    here, draw = list(parties), 0
    while True:
        leader = here[0]
        orders = {p: (draw_seed if p == leader else announce)(circle, draw, here, embed) for p in here}
        wrote = fed.ask(orders)
        here = [party for party in here if party in wrote]
        short: Accusations = [(p,) for p in here if not set(here) - {p} <= set(wrote[p].letters)]
        here = without(fed, here, short, draw_seed.name)
        if leader in here:
            letters = {p: {other: wrote[other].letters[p] for other in here if other != p} for p in here}
            agreed = fed.ask({p: compare(circle, leader, draw, letters[p], embed) for p in here}, aside=True)
            # Who names somebody that has not written to it makes things up.
            accusations: Accusations = [
                (other, p) if other in letters[p] else (p,) for p in agreed for other in agreed[p].faults
            ]
            here = without(fed, [party for party in here if party in agreed], accusations, compare.name)
            if not accusations:
                return here, leader, draw
        draw += 1


def ask_sketches(
    fed: Federation, circle: str, parties: Sequence[str], bits: int | None, k: int, *, embed: bool, in_the_clear: bool
) -> dict[str, Any]:
    """At the coordinator: have every site draw its sketches; what each tells of its points, by name."""
    here, leader, draw = (parties, "", 0) if bits is None else share_seed(fed, circle, parties, embed=embed)
    if bits is None or in_the_clear:
        return fed.ask(show(circle, leader, draw, bits, embed), here)
    told = fed.ask(encode(circle, leader, draw, bits, k, embed), here)
    impossible: Accusations = [(party,) for party in told if not told[party].fits(bits, k)]
    return {party: told[party] for party in without(fed, list(told), impossible, encode.name)}
