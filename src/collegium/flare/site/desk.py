"""The desk of a site's owner: all that a person can decide about a site, whether by a command or on the site's page.

Every decision is written to the journal, with a reason and a name, before it holds. Decisions are files in the kit:
they work while the agent is running and while it is not.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

from collegium.errors import ConfigError
from collegium.flare.agreement.approvals import Approvals
from collegium.flare.kits.identity import AGENT, read_keys
from collegium.flare.kits.kit import COMMANDS, kind_of
from collegium.flare.site import open_runs
from collegium.flare.site.file import SITE_FILE, SiteFile, SiteSettings
from collegium.flare.site.pause import Pause, pause, paused, resume
from collegium.protocols.keys import SiteKeys


@dataclass(frozen=True)
class Desk:
    """A kit, opened by its owner."""

    kit: Path
    file: SiteFile
    keys: SiteKeys
    approvals: Approvals

    @property
    def agent(self) -> Path:
        """The folder that the agent and its owner share."""
        return self.kit / AGENT

    @property
    def pause(self) -> Pause | None:
        """The pause, if the site is paused."""
        return paused(self.agent)

    def pause_site(self, *, reason: str = "", by: str = "") -> Pause:
        """Nothing is begun and nothing leaves, until the site is resumed."""
        made = pause(
            self.kit, reason=reason, by=by
        )  # at once: of all decisions, this one must not wait for the journal
        self.approvals.journal.add("paused", reason=reason, by=by)
        return made

    def resume_site(self, *, reason: str = "", by: str = "") -> None:
        """Take part again."""
        if self.pause is None:
            raise ConfigError(f"{self.file.name} is not paused.")
        self.approvals.journal.add("resumed", reason=reason, by=by)
        resume(self.kit)

    def end_run(self, run: str, *, reason: str = "", by: str = "") -> None:
        """End an open run for good."""
        open_runs.require_open(self.kit, run)
        self.approvals.journal.add("run ended", run, reason=reason, by=by)
        open_runs.end_run(self.kit, run)


def open_desk(kit: str | Path, *, learner: bool = True) -> Desk:
    """The desk of the site that has this kit; an error where the kit is not one of a site, or is somebody else's.

    Without `learner`, the packages of the site's learner are not loaded, and its settings not checked.
    """
    folder = Path(kit)
    if not folder.is_dir():
        raise ConfigError(f"Kit {kit} not found: give the folder that you received from the coordinator.")
    kind = kind_of(folder)
    if kind is not None and kind != "site":
        raise ConfigError(f"{kit} is a kit for a {kind}, not for a site: use it with `{COMMANDS[kind]}`.")
    _require_own(folder)
    file = (SiteFile if learner else SiteSettings).from_toml(folder / SITE_FILE)
    keys = read_keys(folder / AGENT, file.name)
    return Desk(folder, file, keys, Approvals(folder / AGENT, keys))


def _require_own(kit: Path) -> None:
    """Whoever decides here signs in the name of the site: only the user that the kit belongs to may."""
    for path in (kit / AGENT, kit / AGENT / "identity.key"):
        try:
            owner: int | None = path.stat().st_uid
        except FileNotFoundError:
            continue
        except OSError:
            owner = None
        if owner != os.geteuid():
            raise ConfigError(
                f"{path} belongs to another user of this machine: run this as the user that the site runs as, such as "
                "with sudo -u."
            )
