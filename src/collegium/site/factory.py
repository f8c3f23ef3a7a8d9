"""A site's runtime for one run, put together the same way for a simulated site and for a real one."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from numpy.typing import NDArray

from collegium.core.public_set import PublicSet
from collegium.core.samples import LabelledData
from collegium.core.site import ActiveSite, Exam, Site
from collegium.privacy.learners.base import require_secret_noise
from collegium.site.agent import Agent
from collegium.site.gate import Gate
from collegium.site.ledger import Ledger
from collegium.site.run_ledger import LedgerFile, MemoryLedger, RunLedger
from collegium.site.states import Pace

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
    ledger: Path | LedgerFile | None,
    folder: Path | None,
    exam: Exam | None = None,
    held_out: LabelledData | None = None,
    records: int | None = None,
    pace: Pace | None = None,
) -> Agent:
    """The agent of a site, with its ledger, gate and active site, in the state in which it left the run, if it did.

    `simulation` is said here, once, for all parts: whether noise is repeatable, and whether what must never leave a
    site may. A real site that requires differential privacy leaves out rows with labels that the study does not know,
    and no real site's private learner may draw its noise from a seed. Without a `ledger` file the ledger is in memory;
    a `LedgerFile` is for the sites of one simulation. Without a `folder` for log and state the run cannot be resumed.
    `exam` and `held_out` are test rows: those of a simulation, and a real site's own. `records` is how many the site
    has, if its rows were left out before. With a `pace`, a simulated site without a budget or a private learner writes
    its state with some orders only.
    """
    every = len(site)
    if not simulation:
        require_secret_noise(site.name, site.learner)
        if site.requires_dp:  # to refuse them would tell that they are here
            site = site.within(classes)
    if isinstance(ledger, LedgerFile):
        book: Ledger = RunLedger(site.name, ledger)
    elif ledger is None and simulation:
        book = MemoryLedger(site.name)
    else:
        book = Ledger(site.name, ledger, keep_replies=folder is not None, durable=not simulation)
    gate = Gate(site.name, site.policy, book, simulation=simulation, budget=site.budget)
    active = ActiveSite(site, classes, public, seed, simulation=simulation)
    active.keyring, active.held_out, active.size = keyring, held_out, every if records is None else records
    seldom = pace if simulation and site.budget is None and not active.has_private_learner else None
    agent = Agent(active, gate, folder=folder, exam=exam, pace=seldom)
    if left_out := every - len(site):
        agent.log.write(f"left out {left_out} rows: their labels are not classes of the study")
    agent.restore(run)
    return agent
