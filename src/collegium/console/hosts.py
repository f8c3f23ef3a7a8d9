"""Under which names a console answers.

A website can point a name of its own at 127.0.0.1, and its visitors' browsers then take a console on their machine for
a part of that website (DNS rebinding). The browser still says which name it looked up: others than ours get nothing.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Iterable

from collegium.errors import ConfigError


class Hosts:
    """The values of the Host header that a console answers to, ports included.

    Args:
        host: The address that it listens on.
        port: The port that it listens on.
        names: Further names, such as that of a proxy before it, each with its port if that is another one.
    """

    def __init__(self, host: str, port: int, names: Iterable[str] = ()) -> None:
        self._port = port
        address = _address(host)
        self._any_address = address is not None and address.is_unspecified
        here = ["127.0.0.1", "localhost", "[::1]"] if self._any_address or is_loopback(host) else []
        own = here if self._any_address else [*here, written(host)]
        self._allowed = {f"{name.lower()}:{port}" for name in own}
        for name in names:
            self._allowed |= _variants(name.lower(), port)

    def allow(self, given: list[str]) -> bool:
        """Is this the Host header of a browser that asked for us?"""
        if len(given) != 1:
            return False
        name = given[0].strip().lower()
        if name in self._allowed:
            return True
        if not self._any_address:
            return False
        # Rebinding needs a name. Who listens on every address is reached by any of them.
        host, colon, port = name.rpartition(":")
        return bool(colon) and port == str(self._port) and _address(host.strip("[]")) is not None


def is_loopback(host: str) -> bool:
    """Can only this machine reach this address?"""
    address = _address(host)
    return host.lower() == "localhost" if address is None else address.is_loopback


def written(host: str) -> str:
    """An address as it stands in a URL."""
    return f"[{host}]" if ":" in host else host


def _address(host: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address | None:
    try:
        return ipaddress.ip_address(host)
    except ValueError:
        return None


def _variants(name: str, port: int) -> set[str]:
    """A name that was allowed: as it is where it has a port; else with ours, and without one for a proxy."""
    if not name or any(letter in name for letter in "/@ ?#*"):
        raise ConfigError(f"{name!r} is not a name of a host: write it as in a URL, such as console.example.org:8443.")
    ends_in_port = name.rpartition(":")[2].isdigit() and (name.count(":") == 1 or "]:" in name)
    return {name} if ends_in_port else {name, f"{name}:{port}"}
