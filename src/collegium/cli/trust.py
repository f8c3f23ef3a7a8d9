"""``collegium server confirm``, ``revoke`` and ``reinstate``, ``site distrust`` and ``trust``: who is believed."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from collegium.cli.options import KitFolder
from collegium.errors import ConfigError

if TYPE_CHECKING:
    from collegium.flare.coordinator.installations import Installations

ServerKit = Annotated[Path, typer.Argument(help="The server's kit, on this machine.", metavar="SERVER-KIT")]
Whom = Annotated[str, typer.Argument(help="A member's name, or a certificate's serial number.", metavar="NAME|SERIAL")]
Absent = Annotated[bool, typer.Option("--absent", help="Also a name that has never been seen here.")]


def confirm(
    kit: ServerKit,
    site: Annotated[str, typer.Argument(help="A site's name.")],
    lead: Annotated[Path, typer.Option(help="The kit of the lead who confirms.")],
    installation: Annotated[str | None, typer.Argument(help="As the site's owner reads it.")] = None,
) -> None:
    """Say which installation of a site is the site, after another one has answered in its name.

    Without INSTALLATION: show which ones have answered.
    """
    from collegium.flare.kits.kit import read_kit
    from collegium.flare.kits.revoked import Revoked
    from collegium.flare.kits.vouching import Authority, Voucher

    book, server = _book(kit), read_kit(kit, "server")
    by = Authority(server).check(Voucher.of(read_kit(lead, "lead"), b""), b"")  # of this federation
    Revoked(server.folder).require_trusted(by)
    if installation is None:
        seen = book.waiting().get(site)
        if seen is None:
            raise ConfigError(
                f"Nothing to confirm: {site} is not shut out ({', '.join(book.waiting()) or 'nobody is'})."
            )
        for name, at in seen.items():
            typer.echo(f"{name}  first answered at {at}")
        typer.echo(f"Ask the owner of {site} which one it is (collegium site status KIT), then confirm that one.")
        return
    book.confirm(site, installation, by.name)
    typer.echo(f"{site} is installation {installation} from now on.")


def revoke(kit: ServerKit, whom: Whom, absent: Absent = False) -> None:
    """Trust a lead, a site or one certificate no more, at once: nobody need be restarted."""
    from collegium.flare.kits.revoked import Revoked, is_serial

    known = _book(kit).sites()
    if "@" not in whom and not is_serial(whom) and whom not in known and not absent:
        raise ConfigError(
            f"No site {whom!r} has taken part here (known: {', '.join(known) or 'none'}). A lead's name is an e-mail "
            "address. To revoke a site that has never taken part: --absent."
        )
    Revoked(kit.resolve()).add(whom)
    typer.echo(f"{whom} is revoked at this server. To undo that: collegium server reinstate {kit} {whom}")
    if "@" in whom:
        typer.echo(f"Tell the sites: each can refuse that lead by itself (collegium site distrust KIT {whom}).")


def reinstate(kit: ServerKit, whom: Whom) -> None:
    """Trust a name or a certificate again."""
    from collegium.flare.kits.kit import read_kit
    from collegium.flare.kits.revoked import Revoked

    Revoked(read_kit(kit, "server").folder).remove(whom)
    typer.echo(f"{whom} is trusted again.")


def distrust(
    kit: KitFolder,
    lead: Annotated[str, typer.Argument(help="A lead's e-mail address, or a certificate's serial number.")],
) -> None:
    """Take no more orders from a lead, at once, also in runs that have begun."""
    from collegium.flare.kits.kit import read_kit
    from collegium.flare.kits.revoked import Revoked, is_serial

    if "@" not in lead and not is_serial(lead):
        raise ConfigError(f"{lead!r} is neither a lead's e-mail address nor a certificate's serial number.")
    Revoked(read_kit(kit, "site").folder).add(lead)
    typer.echo(f"This site takes no more orders from {lead}. To undo that: collegium site trust {kit} {lead}")


def trust(kit: KitFolder, lead: Annotated[str, typer.Argument(help="As it was distrusted.")]) -> None:
    """Take orders from a lead again."""
    from collegium.flare.kits.kit import read_kit
    from collegium.flare.kits.revoked import Revoked

    Revoked(read_kit(kit, "site").folder).remove(lead)
    typer.echo(f"This site takes orders from {lead} again.")


def _book(kit: Path) -> Installations:
    from collegium.flare.coordinator.installations import Installations
    from collegium.flare.kits.kit import read_kit

    return Installations(read_kit(kit, "server").folder / "coordinator")
