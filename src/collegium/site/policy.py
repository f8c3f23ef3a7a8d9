"""What a site allows to run and to leave. Owned by the site, never sent by the coordinator."""

from __future__ import annotations

from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Literal

from collegium.core.settings import Names, NonNegativeInt, Settings


@dataclass(frozen=True)
class Policy(Settings):
    """A site's own rules. Names may hold ``*``: ``steps=("fedct.*",)``."""

    steps: Names = ("*",)
    """Steps that may run here."""
    unprotected: Names = ("*",)
    """Kinds of release that may leave without a privacy mechanism."""
    requires: Literal["dp"] | None = None
    """"dp": only releases with a claim of differential privacy leave, and kinds that `unprotected` names (not "*")."""
    max_release_bytes: NonNegativeInt = 1 << 30
    """The largest single release."""
    max_run_bytes: NonNegativeInt = 1 << 36
    """The largest size of all releases of one run together."""
    public_sha256: str | None = None
    """The only public set that this site answers for (None: any)."""

    def allows_step(self, name: str) -> bool:
        """May this step run here?"""
        return any(fnmatchcase(name, pattern) for pattern in self.steps)

    def allows_unprotected(self, kind: str, *, strict: bool = False) -> bool:
        """May this kind of release leave without a claim of differential privacy?

        Where such claims are required (`strict`: by this policy, or by a budget), "*" is not enough: the kind must be
        named, at least in part.
        """
        strict = strict or self.requires is not None
        return any(fnmatchcase(kind, pattern) for pattern in self.unprotected if not (strict and pattern == "*"))
