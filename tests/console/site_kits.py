"""A kit of a site with a plan that waits, for tests of the hospital's page."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import numpy as np
from tests.flare.offices import write_data, write_site

from collegium.flare.agreement.planning import Plan, plan_of
from collegium.flare.site.desk import Desk, open_desk
from collegium.flare.site.public_store import PublicStore, pack_public
from collegium.privacy.budget import Budget, write_charges
from collegium.privacy.mechanisms.randomized_response import RandomizedResponse
from collegium.site.ledger import Entry, Ledger
from collegium.study.study import Study

EVIL = "<img src=x onerror=window.hurt=1><script>window.hurt=1</script>"
RUN = "ab" * 16
STUDY = {
    "name": "sepsis",
    "data": {"source": "public.csv"},
    "algorithm": {"name": "fedct", "rounds": 2, "mechanism": {"name": "randomized_response", "epsilon": 0.01}},
    "federation": {"classes": ["benign", "malignant"]},
}


def make_kit(folder: Path, study: dict[str, object] = STUDY) -> tuple[Desk, Plan]:
    """A site with a budget, three releases, a refusal, and a plan with its public set."""
    public, kit = write_data(folder, ["north"]), folder / "north"
    write_site(kit, "north", approval="plan", policy="[budget]\nepsilon = 8.0\n")
    desk = open_desk(kit)
    plan = plan_of(Study.from_dict(study), public, np.array(["benign", "malignant"]), ["north", "south"])
    store = PublicStore(kit / "agent" / "public", 1 << 30)
    data = pack_public(public)
    store.want(RUN, str(plan.public_sha256))
    store.add(RUN, str(plan.public_sha256), 0, len(data), data)
    charge = RandomizedResponse(epsilon=0.01).charge(len(public), 2)
    ledger = Ledger("north", kit / "agent" / "ledger.db")
    for number in range(3):
        entry = Entry(RUN, number, number, "fedct.label", "HardLabels", 20, 30, f"{number:064x}",
                      write_charges([charge], Budget(8.0)), "epsilon 1.5")  # fmt: skip
        with ledger.transaction():
            ledger.append(entry)
    ledger.note_refusal(RUN, 4, "fedct.label", "too-large")
    ledger.close()
    desk.approvals.propose(plan)
    return desk, plan


def another(plan: Plan, seed: int) -> Plan:
    """A plan with another hash."""
    return replace(plan, seed=seed)


@contextmanager
def evil_words(desk: Desk, plan: Plan) -> Iterator[None]:
    """What a coordinator may write: a plan, and an order that was refused, with scripts in their names."""
    named = replace(plan, study=f"sepsis {EVIL}")
    desk.approvals.propose(named)
    ledger = Ledger("north", desk.kit / "agent" / "ledger.db")
    ledger.note_refusal(RUN, 5, EVIL, "step-denied")
    ledger.close()
    try:
        yield
    finally:
        desk.approvals.withdraw(named.digest)
