"""What a site holds to show who it is, and to know the others.

A real site keeps its secret in its own folder, and its owner enters the identities of the other sites, which come by
letter or telephone and never from the coordinator; both are read when the site's agent starts. In a simulation, where
nobody is to be kept out, they follow from the run's number, so that they are the same in every process and after a
resumed run.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import lru_cache

from collegium.protocols.keys import SiteKeys
from collegium.protocols.primitives import bind


@dataclass(frozen=True)
class Keyring:
    """A site's own keys, and the identities of the sites that it may talk to."""

    own: SiteKeys
    identities: Mapping[str, str]

    @classmethod
    def simulated(cls, run: str, party: str, parties: Iterable[str]) -> Keyring:
        """Of a site in a simulated run of these parties."""
        return cls(SiteKeys(party, _secret(run, party)), {other: _identity(run, other) for other in parties})


def _secret(run: str, party: str) -> bytes:
    return hashlib.sha256(bind("collegium simulated identity v1", run, party)).digest()


@lru_cache(maxsize=4096)
def _identity(run: str, party: str) -> str:
    return SiteKeys(party, _secret(run, party)).identity
