"""Real offices behind their doors, with real kits: what a coordinator signs, in process."""

from __future__ import annotations

import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path

from tests.flare.offices import OfficeHost, OfficeSession, open_office, write_data, write_site

from collegium.flare.coordinator.signed import LeadSignature, SignedSession
from collegium.flare.kits.federation_file import FederationFile, LeadSection, ServerSection, SiteSection
from collegium.flare.kits.identity import instance, read_keys
from collegium.flare.kits.kit import read_kit
from collegium.flare.kits.provision import provision
from collegium.flare.site.door import Door

LEADS = ("lead@university.org", "lead@elsewhere.org")


def make_kits(folder: Path, sites: tuple[str, ...]) -> Path:
    """A federation's kits."""
    file = FederationFile(
        name="test",
        server=ServerSection(host="localhost", port=8002, organisation="university"),
        sites=[SiteSection(name=name, organisation=f"owner-of-{name}") for name in sites],
        leads=[LeadSection(name=name, organisation="university") for name in LEADS],
    )
    provision(file, folder)
    return folder


def ready_kits(made: Path, folder: Path, sites: Sequence[str]) -> Path:
    """A copy of these kits for one test, with data at every site."""
    shutil.copytree(made, folder)
    write_data(folder, sites)
    for name in sites:
        write_site(folder / name, name)
    return folder


class OpenDoor:
    """What the agent's process does, in this one."""

    def __init__(self, kit: Path) -> None:
        self.told: list[str] = []
        self.office = open_office(kit)
        keys = read_keys(kit / "agent", kit.name)
        self.door = Door(read_kit(kit, "site"), keys, instance(kit), self.office.answer, self.told.append)
        self.answer = self.door.answer


class SignedHost(OfficeHost):
    """Offices behind doors; `before_request` and `after_reply` see the envelopes."""

    def __init__(self, kits: Mapping[str, Path], server: Path, lead: Path) -> None:
        self.doors: dict[str, OpenDoor] = {}
        self._server, self._lead = server, lead
        super().__init__({})
        self.kits = dict(kits)
        self.signature = self.new_signature()
        for party in kits:
            self.restart(party)

    def new_signature(self) -> LeadSignature:
        """As a coordinator's program makes one when it starts."""
        return LeadSignature(read_kit(self._lead, "lead"), self._server, self._server / "coordinator")

    def certificates(self) -> dict[str, float]:
        return self.signature.certificates()

    def begin(self, parties: frozenset[str]) -> SignedSession:  # type: ignore[override]
        return SignedSession(super().begin(parties), self.signature)

    def plain(self) -> OfficeSession:
        """A session without signatures, as whoever sits in between has it."""
        return super().begin(frozenset(self.kits))

    def restart(self, party: str) -> None:
        """A new agent process at that site."""
        self.move(party, self.kits[party])

    def move(self, party: str, kit: Path) -> None:
        """Another copy of a kit answers in the site's place."""
        self.doors[party] = OpenDoor(kit)
        self.offices[party] = self.doors[party]  # type: ignore[assignment]
