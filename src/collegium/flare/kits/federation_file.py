"""`FEDERATION.toml`: who takes part in a federation. The coordinator writes it; kits are made from it."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from pydantic import Field

from collegium.errors import ConfigError
from collegium.study.sections import File, Section, read_toml, validate

RESERVED: Final = ("server", "ca", "all", "client", "admin")
_LABEL: Final = r"[A-Za-z0-9](?:[A-Za-z0-9-]{0,61}[A-Za-z0-9])?"
_HOST: Final = re.compile(rf"{_LABEL}(?:\.{_LABEL})*")
_WORD: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,62}")
_LEAD: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._%+-]*@[A-Za-z0-9-]+(?:\.[A-Za-z0-9-]+)*\.[A-Za-z]{2,}")
_LONGEST: Final = 64  # a certificate's name has no more room


class ServerSection(Section):
    """The one machine that everybody dials."""

    host: str = Field(description="the DNS name that sites dial")
    port: int = Field(8002, ge=1, le=65535)
    organisation: str


class SiteSection(Section):
    """An organisation's site."""

    name: str
    organisation: str


class LeadSection(Section):
    """A person who may start runs."""

    name: str = Field(description="an e-mail address")
    organisation: str


class FederationFile(File):
    """Who takes part."""

    name: str
    server: ServerSection
    sites: list[SiteSection] = Field(min_length=1)
    leads: list[LeadSection] = Field(min_length=1)

    @classmethod
    def read(cls, path: str | Path) -> FederationFile:
        """Read and check a file."""
        file = Path(path)
        return validate(cls, read_toml(file, "federation file"), str(file), "federation")

    def check(self) -> None:
        """Names become folders, certificates and addresses: they must be fit for all three, and differ."""
        if not _WORD.fullmatch(self.name):
            raise ConfigError(f"name: {self.name!r} will not do: use up to 63 letters, digits, - and _.")
        if not _HOST.fullmatch(self.server.host) or len(self.server.host) > _LONGEST:
            raise ConfigError(
                f"server.host: {self.server.host!r} is no host name: write the DNS name that sites dial, "
                "such as fl.university.org."
            )
        for number, site in enumerate(self.sites):
            check_site(site.name, f"sites[{number}].name")
        for number, lead in enumerate(self.leads):
            if not _LEAD.fullmatch(lead.name) or len(lead.name) > _LONGEST:
                raise ConfigError(
                    f"leads[{number}].name: {lead.name!r} will not do: use an e-mail address, "
                    "such as lead@university.org."
                )
        for place, organisation in self._organisations():
            check_organisation(organisation, place)
        self._check_differences()

    def _organisations(self) -> Iterator[tuple[str, str]]:
        yield "server.organisation", self.server.organisation
        for number, site in enumerate(self.sites):
            yield f"sites[{number}].organisation", site.organisation
        for number, lead in enumerate(self.leads):
            yield f"leads[{number}].organisation", lead.organisation

    def _check_differences(self) -> None:
        names = [site.name.lower() for site in self.sites] + [lead.name.lower() for lead in self.leads]
        twice = sorted({name for name in names if names.count(name) > 1})
        if twice:
            raise ConfigError(f"the name {twice[0]!r} is used twice (capital letters make no difference).")
        if self.server.host.lower() in names:
            raise ConfigError(f"{self.server.host!r} is the server's host: the site needs another name.")


def check_site(name: str, place: str) -> None:
    """A site's name is a folder, and a word in messages."""
    if not _WORD.fullmatch(name):
        raise ConfigError(f"{place}: {name!r} will not do: use up to 63 letters, digits, - and _, no - or _ first.")
    if name.lower() in RESERVED:
        raise ConfigError(f"{place}: {name!r} has a meaning of its own here: choose another name.")


def check_organisation(name: str, place: str) -> None:
    """An organisation's name goes into certificates."""
    if not _WORD.fullmatch(name):
        raise ConfigError(f"{place}: {name!r} will not do: use up to 63 letters, digits, - and _.")


def certificate_organisation(name: str) -> str:
    """An organisation as certificates have it: NVFlare allows no hyphen there."""
    return name.replace("-", "_")
