"""Secure row sums as orders: every site adds to the rows of every other, and only their owner can read the sums."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

import numpy as np
from numpy.typing import NDArray

from collegium.core.steps import step
from collegium.protocols.errors import ProtocolError
from collegium.protocols.row_sums import RowSums, RowSumServer
from collegium.secure.acquaintance import NOT_FOLLOWED, member_of
from collegium.secure.messages import MaskedRows

if TYPE_CHECKING:
    from collegium.core.federation import Federation
    from collegium.core.site import ActiveSite

_BLOCKS: Final = "summands by the owner of the rows"
_SUMS: Final = "row sums under way"


def offer_rows(site: ActiveSite, blocks: Mapping[str, NDArray[np.float64]]) -> None:
    """At a site: what it adds to the rows of each site, its own among them."""
    site.secret_state[_BLOCKS] = dict(blocks)
    site.secret_state.pop(_SUMS, None)  # of a circle that went on without this site


@step
def submit(site: ActiveSite, circle: str, mode: str, round_name: str, participants: list[str]) -> MaskedRows:
    """What this site adds to the participants' rows, masked. The rows of all others are left out."""
    blocks = {party: site.secret_state[_BLOCKS][party] for party in participants}
    sums = site.secret_state.get(_SUMS)
    if sums is None:
        site.secret_state[_SUMS] = sums = RowSums(member_of(site, circle), mode)
    if set(blocks) == {site.name}:  # everybody else has gone: there is nothing to hide from anybody
        return MaskedRows({})
    return MaskedRows(sums.submit(round_name, blocks))


def finish(site: ActiveSite, round_name: str, answer: Mapping[str, Any] | None) -> NDArray[np.float64]:
    """At a site: the sums of its own rows. No answer: it is the only participant."""
    sums, blocks = site.secret_state.pop(_SUMS), site.secret_state.pop(_BLOCKS)
    total: NDArray[np.float64] = blocks[site.name] if answer is None else sums.finish(round_name, answer)
    return total


def secure_row_sums(
    fed: Federation, circle: str, mode: str, sizes: Mapping[str, int], columns: int
) -> tuple[str, dict[str, dict[str, Any] | None]]:
    """At the coordinator: the name of the round that ended well, and for each participant what it needs.

    A site that drops out of a round of pairwise masks ends it: the others begin one with a fresh name, and nobody sends
    the rows of the one that left.
    """
    here, attempt = sorted(sizes), 0
    while True:
        round_name = f"rows {attempt}"
        server = RowSumServer({party: sizes[party] for party in here}, columns, mode)
        added = []
        for party, release in fed.ask(submit(circle, mode, round_name, here), here).items():
            try:
                server.add(party, release.rows)
                added.append(party)
            except ProtocolError:
                fed.reject(party, NOT_FOLLOWED)
        if len(here) == 1:
            return round_name, dict.fromkeys(added)
        if not server.missing or mode == "recipient":
            return round_name, dict(server.answers())
        here, attempt = added, attempt + 1
