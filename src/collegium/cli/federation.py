"""``collegium provision``, ``server`` and ``site join``."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer
from rich.console import Console

from collegium.cli.options import KitFolder, LogJson
from collegium.errors import ConfigError

if TYPE_CHECKING:
    from collegium.flare.kits.federation_file import FederationFile, SiteSection
    from collegium.flare.kits.provision import Provisioned
    from collegium.flare.operations.settings import MetricsSection

LeadKit = Annotated[Path, typer.Option("--kit", help="The kit of a lead of the organisation that runs the server.")]
SiteName = Annotated[str, typer.Argument(help="A site's name.")]
_GOES_TO = {"server": "whoever runs the server", "site": "the site's owner", "lead": "that person"}


def provision(
    file: Annotated[Path, typer.Argument(help="Who takes part (TOML).", metavar="FEDERATION.toml")],
    out: Annotated[Path | None, typer.Option(help="Folder for the kits (default: kits/NAME).")] = None,
    force: Annotated[bool, typer.Option("--force", help="A new federation in that folder: old kits end.")] = False,
    new_site: Annotated[str | None, typer.Option("--add-site", help="One more site; all else stays.")] = None,
    organisation: Annotated[str | None, typer.Option(help="Whose site --add-site adds.")] = None,
    member: Annotated[str | None, typer.Option("--renew", help="A new key and certificate for one kit.")] = None,
) -> None:
    """Make the kits of a federation: one folder for the server, each site and each lead."""
    from collegium.flare.kits.federation_file import FederationFile
    from collegium.flare.kits.provision import add_site, provision, renew

    federation = FederationFile.read(file)
    folder = out or Path("kits") / federation.name
    if new_site is not None and member is not None:
        raise ConfigError("--add-site and --renew are two commands: run them one after the other.")
    if organisation is not None and new_site is None:
        raise ConfigError("--organisation belongs to --add-site.")
    if new_site is not None:
        made = add_site(federation, _declared(file, federation, new_site, organisation), folder)
    elif member is not None:
        made = renew(federation, member, folder)
    else:
        made = provision(federation, folder, force=force)
    _show(made)


def _declared(file: Path, federation: FederationFile, name: str, organisation: str | None) -> SiteSection:
    """The new site as the file has it; if the file does not have it, it is added there."""
    for site in federation.sites:
        if site.name == name:
            if organisation not in (None, site.organisation):
                raise ConfigError(f"{file} has {name} with the organisation {site.organisation}, not {organisation}.")
            return site
    if organisation is None:
        raise ConfigError(f"{name} is not in {file}: say whose site it is with --organisation.")
    site = federation.with_site(name, organisation).sites[-1]
    with file.open("a", encoding="utf-8") as text:
        text.write(f'\n[[sites]]\nname = "{name}"\norganisation = "{organisation}"\n')
    return site


def _show(made: Provisioned) -> None:
    import pandas as pd  # not for `start` and `join`, which stay in memory

    from collegium.reports.tables import frame_table

    console = Console()
    kits = [(kit.folder.name, _GOES_TO[kit.kind], kit.organisation, round(kit.days_left)) for kit in made.kits]
    rows = [*kits, ("ca", "nobody: keep it offline", "", round(made.authority_days))]
    columns = ["folder", "goes to", "organisation", "certificate, days"]
    console.print(frame_table(pd.DataFrame(rows, columns=columns), f"Kits in {made.folder}"))
    console.print(
        f"Whoever has {made.folder / 'ca'} can make members: keep it off the server. "
        "Send each kit over a channel that only its owner can read.",
        markup=False,
    )


def start(
    context: typer.Context,
    kit: KitFolder,
    log_json: LogJson = False,
    metrics_port: Annotated[
        int | None, typer.Option(min=1, max=65535, help="Let Prometheus read metrics and health at this port.")
    ] = None,
    metrics_host: Annotated[str, typer.Option(help="The address to listen on for that.")] = "127.0.0.1",
) -> None:
    """Run the server in the foreground; Ctrl-C stops it."""
    from collegium.flare.operations.settings import MetricsSection

    _supervise(context, "server", kit, log_json, MetricsSection(port=metrics_port, host=metrics_host))


def join(context: typer.Context, kit: KitFolder, log_json: LogJson = False) -> None:
    """Take part, in the foreground; reconnects by itself, Ctrl-C stops it."""
    from collegium.flare.operations.settings import metrics_of_site

    _supervise(context, "site", kit, log_json, metrics_of_site(kit / "site.toml"))


def _supervise(
    context: typer.Context, kind: Literal["server", "site"], kit: Path, log_json: bool, metrics: MetricsSection
) -> None:
    from collegium.flare.supervise.program import become

    if metrics.port is not None:
        import collegium.flare.operations.metrics  # noqa: F401 - an error where the extra is missing

    debug = context.find_root().params.get("debug", False)
    become(kind, kit, *["--log-json"] * log_json, *["--debug"] * debug, metrics=metrics.address)


def disable(
    site: SiteName,
    kit: LeadKit,
    absent: Annotated[bool, typer.Option("--absent", help="Also a site that is not connected now.")] = False,
) -> None:
    """Shut a site out: it is disconnected and cannot register."""
    _set_enabled(site, kit, enabled=False, absent=absent)


def enable(site: SiteName, kit: LeadKit) -> None:
    """Let a site in again."""
    _set_enabled(site, kit, enabled=True)


def _set_enabled(site: str, kit: Path, *, enabled: bool, absent: bool = False) -> None:
    from collegium.flare.nvflare.admin import set_enabled

    Console().print(set_enabled(kit, site, enabled=enabled, absent=absent), markup=False)
