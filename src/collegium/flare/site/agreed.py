"""A plan as it would run at a site, for its owner to look into before signing: no run is opened, nothing is asked."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from collegium.core.algorithm import Algorithm
from collegium.core.building import build
from collegium.core.public_set import PublicSet
from collegium.core.site import Site
from collegium.errors import ConfigError
from collegium.flare.agreement.approvals import Approvals
from collegium.flare.agreement.planning import Plan
from collegium.flare.kits.identity import AGENT, read_keys
from collegium.flare.site.file import SiteFile
from collegium.flare.site.public_store import PublicStore
from collegium.flare.site.setup import SiteSetup, load_public, load_site


@dataclass(frozen=True, eq=False)
class PlannedRun:
    """What a plan's orders would meet at this site."""

    plan: Plan
    algorithm: Algorithm
    setup: SiteSetup
    public: PublicSet | None

    @property
    def site(self) -> Site:
        """The site with the rows and the learner that the plan's steps would use."""
        return self.setup.site if self.public is None else self.setup.with_public(self.public.X)


def planned_run(kit: str | Path, digest: str | None = None) -> PlannedRun:
    """What a proposed plan would find at the site of this kit; without a hash, the plan that came last and waits."""
    folder, setup = Path(kit) / AGENT, load_site(kit)
    approvals = Approvals(folder, read_keys(folder, setup.file.name))
    plan = _newest(approvals) if digest is None else approvals.plan(digest)
    public = public_set(kit, setup.file, plan)
    if public is None and plan.public_sha256 is not None:
        raise ConfigError(
            f"The public set of plan {plan.digest[:12]} is not here. The coordinator sends it with the plan: keep the "
            "site joined until it has, or name your own copy in public.path."
        )
    return PlannedRun(plan, build("algorithm", plan.algorithm, "algorithm"), setup.within(plan.classes), public)


def public_set(kit: str | Path, file: SiteFile, plan: Plan) -> PublicSet | None:
    """The public set that a plan names, if it names one and it is here."""
    if plan.public_sha256 is None:
        return None
    store = PublicStore(Path(kit) / AGENT / "public", file.public.max_bytes, load_public(kit, file))
    return store.get(plan.public_sha256)


def _newest(approvals: Approvals) -> Plan:
    waiting = approvals.pending()
    if not waiting:
        raise ConfigError("No plan is waiting here: give the hash of one that was proposed.")
    return waiting[-1]
