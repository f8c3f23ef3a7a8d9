"""The only door out of a site: admit -> run -> seal. What passes is written to the ledger first."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import Any, Final

from collegium.core import wire
from collegium.core.labels import Labels
from collegium.core.ledger import Entry, Ledger
from collegium.core.policy import Policy
from collegium.core.releases import Nothing, Release
from collegium.core.steps import INSTALLED, Step
from collegium.errors import Refused, WireError

_GATE_ONLY: Final = object()


@dataclass(frozen=True)
class Request:
    """One order as it reached the site."""

    run: str
    number: int
    round: int
    step: str
    digest: str
    public_sha256: str | None


class Sealed:
    """A release that passed the gate, as bytes, with the hash of its ledger row. Only the gate makes one."""

    def __init__(self, kind: str, packed: wire.Packed, sha256: str, entry: str | None, *, key: object = None) -> None:
        if key is not _GATE_ONLY:
            raise TypeError("Only Gate.seal makes a Sealed: return a Release from the step instead.")
        self.kind, self.packed, self.sha256, self.entry = kind, packed, sha256, entry


class Gate:
    """A site's gate: its policy and its ledger."""

    def __init__(self, site: str, policy: Policy, ledger: Ledger, *, simulation: bool) -> None:
        self.site = site
        self.policy = policy
        self.ledger = ledger
        self._simulation = simulation

    def admit(self, request: Request) -> Step[Any, Any]:
        """The step to run, or a refusal."""
        installed = INSTALLED.get(request.step)
        if installed is None:
            raise Refused("unknown-step", f"{self.site} has no step {request.step!r} installed.")
        if installed.digest != request.digest:
            raise Refused("other-version", f"{self.site} has another version of step {request.step!r}.")
        if not self.policy.allows_step(request.step):
            raise Refused("step-denied", f"{self.site} does not allow step {request.step!r}.")
        if self.policy.public_sha256 is not None and request.public_sha256 != self.policy.public_sha256:
            raise Refused("other-public-set", f"{self.site} answers only about the public set that it has pinned.")
        return installed

    def seal(self, request: Request, release: object, reference: Labels | None) -> Sealed:
        """Check a release, write it to the ledger and turn it into bytes. Call inside a ledger transaction."""
        if not isinstance(release, Release):
            raise Refused("not-a-release", f"Step {request.step!r} returned {type(release).__name__}, not a Release.")
        declared = INSTALLED[request.step].releases
        if type(release) is not declared:
            raise Refused(
                "not-declared", f"Step {request.step!r} declares {declared.kind} and returned {release.kind}."
            )
        try:
            packed = wire.pack(release.to_plain(), reference)
        except WireError as error:
            raise Refused(
                "not-a-release", f"Step {request.step!r} returned something that is no plain data: {error}"
            ) from None
        sha256 = hashlib.sha256(packed.data).hexdigest()
        if isinstance(release, Nothing):
            return Sealed(release.kind, packed, sha256, None, key=_GATE_ONLY)
        if release.simulation_only and not self._simulation:
            raise Refused("release-denied", f"{release.kind} never leaves a site outside a simulation.")
        if not self.policy.allows_unprotected(release.kind):
            raise Refused("unprotected", f"{self.site} does not release {release.kind} without a privacy mechanism.")
        self._check_size(request, packed)
        entry = Entry(
            request.run,
            request.number,
            request.round,
            request.step,
            release.kind,
            packed.content_bytes,
            len(packed.data),
            sha256,
        )
        return Sealed(release.kind, packed, sha256, self.ledger.append(entry), key=_GATE_ONLY)

    def _check_size(self, request: Request, packed: wire.Packed) -> None:
        if len(packed.data) > self.policy.max_release_bytes:
            raise Refused("too-large", f"A release of {len(packed.data)} bytes is over {self.site}'s limit.")
        if self.ledger.bytes_of(request.run) + packed.content_bytes > self.policy.max_run_bytes:
            raise Refused("bytes-exhausted", f"{self.site} would pass its limit of bytes for this run.")
