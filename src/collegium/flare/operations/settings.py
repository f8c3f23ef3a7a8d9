"""Where a monitoring program may read how a server or a site is doing. Nowhere, unless its owner says so."""

from __future__ import annotations

import tomllib
from pathlib import Path

from pydantic import Field, ValidationError

from collegium.study.sections import Section


class MetricsSection(Section):
    """The endpoint for Prometheus. It has no password: whoever can open the address can read it."""

    port: int | None = Field(None, ge=1, le=65535, description="a free port of this machine; without one, no endpoint")
    host: str = Field("127.0.0.1", min_length=1, description="an address of this machine to listen on")

    @property
    def address(self) -> str | None:
        """HOST:PORT, where there is to be an endpoint."""
        return None if self.port is None else (f"[{self.host}]" if ":" in self.host else self.host) + f":{self.port}"


def metrics_of_site(file: Path) -> MetricsSection:
    """What a site's file says of it. A file that cannot be read says nothing: the agent reads it too, and says why."""
    try:
        return MetricsSection.model_validate(tomllib.loads(file.read_text(encoding="utf-8")).get("metrics", {}))
    except (OSError, ValueError, ValidationError):
        return MetricsSection()
