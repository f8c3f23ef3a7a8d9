"""A lead's connection to the server: who is registered, and who may be."""

from __future__ import annotations

import contextlib
import io
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from collegium.errors import CollegiumError, ConfigError, MissingExtra
from collegium.flare.kits.kit import Kit, read_kit
from collegium.flare.supervise.dialling import why_unreachable


class ServerAway(CollegiumError):
    """Cannot reach the federation's server, or it rejected this lead."""


@contextlib.contextmanager
def connection(kit: Kit, timeout: float = 20.0) -> Iterator[Any]:
    """NVFlare's administration API. It is closed at the end: an open connection keeps a program from ending."""
    try:
        from nvflare.fuel.flare_api.flare_api import new_secure_session
    except ImportError:
        raise MissingExtra("flare", "A federation") from None
    reason = why_unreachable(kit)
    if reason is not None:
        raise ServerAway(f"{kit.name}: {reason}.")
    try:
        with contextlib.redirect_stdout(io.StringIO()):  # it says that it is connecting
            opened = new_secure_session(kit.name, str(kit.folder), timeout=timeout)
    except Exception as error:
        raise ServerAway(f"{kit.address} rejected {kit.name}: {error}.") from None
    try:
        yield opened
    finally:
        opened.close()


def registered_sites(opened: Any) -> dict[str, float]:
    """Every registered site, and when the server last heard of it. A dead one is listed for a minute."""
    return {client.name: float(client.last_connect_time or 0.0) for client in opened.get_system_info().client_info}


def set_enabled(folder: str | Path, site: str, *, enabled: bool, absent: bool = False) -> str:
    """Let a site register, or shut it out. The server knows the sites that are connected; `absent`: also another."""
    kit = read_kit(folder, "lead")
    with connection(kit) as opened:
        here = registered_sites(opened)
        if not enabled and not absent and site not in here:
            raise ConfigError(
                f"No site {site!r} is connected to {kit.address} (connected: {', '.join(sorted(here)) or 'none'}). "
                "To disable one that is away: --absent."
            )
        try:
            if enabled:
                changed = opened.enable_client(site)["clients"][0]["was_disabled"]
                if not changed:
                    raise ConfigError(f"No site {site!r} is disabled at {kit.address}.")
            else:
                opened.disable_client(site)
        except ConfigError:
            raise
        except Exception as error:
            if "not authorized" in str(error).lower() or "notauthorized" in type(error).__name__.lower():
                raise ConfigError(
                    f"{kit.name} may not do that: only leads of the organisation that runs the server may."
                ) from None
            raise CollegiumError(
                f"{kit.address} could not {'enable' if enabled else 'disable'} {site}: {error}."
            ) from None
    return (
        f"{site} may take part again."
        if enabled
        else f"{site} is disabled. To enable it again: collegium server enable {site}"
    )
