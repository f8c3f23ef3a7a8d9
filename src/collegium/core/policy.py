"""What a site allows to run and to leave. Owned by the site, never sent by the coordinator."""

from __future__ import annotations

from dataclasses import dataclass
from fnmatch import fnmatchcase

from collegium.errors import ConfigError


@dataclass(frozen=True)
class Policy:
    """A site's own rules. Names may hold ``*``: ``steps=("fedct.*",)``."""

    steps: tuple[str, ...] = ("*",)
    """Steps that may run here."""
    unprotected: tuple[str, ...] = ("*",)
    """Kinds of release that may leave without a privacy mechanism."""
    max_release_bytes: int = 1 << 30
    """The largest single release."""
    max_run_bytes: int = 1 << 36
    """All releases of one run together."""
    public_sha256: str | None = None
    """The only public set that this site answers questions about (None: any)."""

    def __post_init__(self) -> None:
        for name in ("steps", "unprotected"):
            patterns = getattr(self, name)
            if isinstance(patterns, str) or not all(isinstance(p, str) for p in patterns):
                raise ConfigError(f"Policy.{name} is a tuple of names, such as ('fedct.*',), not {patterns!r}.")
            object.__setattr__(self, name, tuple(patterns))
        for name in ("max_release_bytes", "max_run_bytes"):
            if getattr(self, name) < 0:
                raise ConfigError(f"Policy.{name} cannot be negative.")

    def allows_step(self, name: str) -> bool:
        """May this step run here?"""
        return any(fnmatchcase(name, pattern) for pattern in self.steps)

    def allows_unprotected(self, kind: str) -> bool:
        """May this kind of release leave without a privacy mechanism?"""
        return any(fnmatchcase(kind, pattern) for pattern in self.unprotected)
