"""A site's runtime for one run, put together the same way for a simulated site and for a real one."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from numpy.typing import NDArray

from collegium.core.public_set import PublicSet
from collegium.core.samples import LabelledData
from collegium.core.site import ActiveSite, Exam, Site
from collegium.site.agent import Agent
from collegium.site.gate import Gate
from collegium.site.ledger import Ledger

if TYPE_CHECKING:
    from collegium.protocols.keyring import Keyring


def open_site(
    site: Site,
    classes: NDArray[Any],
    public: PublicSet | None,
    seed: int,
    run: str,
    *,
    simulation: bool,
    keyring: Callable[[], Keyring],
    ledger: Path | None,
    folder: Path | None,
    exam: Exam | None = None,
    held_out: LabelledData | None = None,
) -> Agent:
    """The agent of a site, with its ledger, gate and active site, in the state in which it left the run, if it did.

    Parameters
    ----------
    site, classes, public, seed, run:
        The site as its owner declares it, and the run that it takes part in.
    simulation:
        Said here, once, for all parts: whether noise is repeatable, and whether what must never leave a site may.
    keyring:
        Who the site is among the others.
    ledger:
        The ledger's file (None: in memory). A real site's survives a power cut.
    folder:
        Where the site keeps its log and its state; without one the run cannot be resumed.
    exam, held_out:
        Test rows of a simulation, and of a real site.
    """
    book = Ledger(site.name, ledger, keep_replies=folder is not None, durable=not simulation)
    gate = Gate(site.name, site.policy, book, simulation=simulation, budget=site.budget)
    active = ActiveSite(site, classes, public, seed, simulation=simulation)
    active.keyring, active.held_out = keyring, held_out
    agent = Agent(active, gate, folder=folder, exam=exam)
    agent.restore(run)
    return agent
