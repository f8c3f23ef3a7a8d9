"""`FEDERATION.toml`: who takes part in a federation. The coordinator writes it; kits are made from it."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Final

from pydantic import AfterValidator, Field

from collegium.errors import ConfigError
from collegium.study.sections import File, Section, read_toml, validate

RESERVED: Final = ("server", "ca", "all", "client", "admin")
_LABEL: Final = r"[A-Za-z0-9](?:[A-Za-z0-9-]{0,61}[A-Za-z0-9])?"
_HOST: Final = rf"{_LABEL}(?:\.{_LABEL})*"
_WORD: Final = r"[A-Za-z0-9][A-Za-z0-9_-]{0,62}"
_LEAD: Final = r"[A-Za-z0-9][A-Za-z0-9._%+-]*@[A-Za-z0-9-]+(?:\.[A-Za-z0-9-]+)*\.[A-Za-z]{2,}"
_LONGEST: Final = 64  # a certificate's name has no more room


def _fits(pattern: str, advice: str) -> Callable[[str], str]:
    """Names become folders, certificates and addresses: they must be fit for all three."""

    def check(name: str) -> str:
        if not re.fullmatch(pattern, name) or len(name) > _LONGEST:
            raise ConfigError(f"{name!r} is not valid: {advice}.")
        return name

    return check


def _free(name: str) -> str:
    if name.lower() in RESERVED:
        raise ConfigError(f"{name!r} is reserved: choose another name.")
    return name


_ADVICE: Final = "use up to 63 letters, digits, - and _, starting with a letter or a digit"
Word = Annotated[str, AfterValidator(_fits(_WORD, _ADVICE))]
Host = Annotated[str, AfterValidator(_fits(_HOST, "use a DNS name, such as fl.university.org"))]
Address = Annotated[str, AfterValidator(_fits(_LEAD, "use an e-mail address, such as lead@university.org"))]


class ServerSection(Section):
    """The one machine that everybody dials."""

    host: Host = Field(description="the DNS name that sites dial")
    port: int = Field(8002, ge=1, le=65535)
    organisation: Word


class SiteSection(Section):
    """An organisation's site."""

    name: Annotated[Word, AfterValidator(_free)]
    organisation: Word


class LeadSection(Section):
    """A person who may start runs."""

    name: Address = Field(description="an e-mail address")
    organisation: Word


class FederationFile(File):
    """Who takes part."""

    name: Word
    server: ServerSection
    sites: list[SiteSection] = Field(min_length=1)
    leads: list[LeadSection] = Field(min_length=1)

    @classmethod
    def read(cls, path: str | Path) -> FederationFile:
        """Read and check a file."""
        file = Path(path)
        remedy = "write one that names the server, the sites and the leads."
        return validate(cls, read_toml(file, "federation file", remedy), str(file), "federation")

    def with_site(self, name: str, organisation: str) -> FederationFile:
        """The same federation with one more site."""
        table = self.model_dump()
        table["sites"].append({"name": name, "organisation": organisation})
        return validate(FederationFile, table, "--add-site", "federation")

    def check(self) -> None:
        """Names must differ: each is a folder, and a word in messages."""
        names = [site.name.lower() for site in self.sites] + [lead.name.lower() for lead in self.leads]
        twice = sorted({name for name in names if names.count(name) > 1})
        if twice:
            raise ConfigError(f"the name {twice[0]!r} is used twice (case does not matter).")
        if self.server.host.lower() in names:
            raise ConfigError(f"{self.server.host!r} is the server's host: the site needs another name.")
