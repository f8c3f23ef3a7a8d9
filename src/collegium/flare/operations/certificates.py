"""A kit's certificate, as operators see it."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime

from collegium.flare.kits.kit import SOON_DAYS, Kit, read_certificate


@dataclass(frozen=True)
class Certificate:
    """Which one it is, and how long it lasts."""

    serial: str
    """As `collegium server revoke` takes it."""
    until: str
    days: int
    """Whole days that are left."""
    soon: bool
    """Whether it is time to have it renewed."""


def certificate_of(kit: Kit) -> Certificate:
    """The certificate of a kit's holder."""
    serial = f"{read_certificate(kit.certificate).serial_number:x}"
    until = datetime.fromtimestamp(kit.expires, UTC).isoformat(timespec="seconds")
    return Certificate(serial, until, int(kit.days_left), kit.days_left < SOON_DAYS)
