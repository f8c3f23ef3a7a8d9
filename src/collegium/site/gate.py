"""The only way out of a site: admit -> run -> seal. What leaves is written to the ledger first."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import InitVar, dataclass, fields, replace
from typing import Any, Final

import numpy as np

from collegium import wire
from collegium.core.labels import Labels
from collegium.core.masking import Masking, masking
from collegium.core.meeting import beside_others
from collegium.core.releases import HardLabels, Nothing, Release
from collegium.core.sensitivity import Sensitivity
from collegium.core.site import ActiveSite
from collegium.core.steps import INSTALLED, Step
from collegium.errors import ConfigError, LedgerError, Refused, WireError
from collegium.privacy.budget import Budget, write_charges
from collegium.privacy.claims import SEEDED_NOISE, Account, Charge
from collegium.privacy.mechanisms.base import Mechanism
from collegium.privacy.mechanisms.named import build_mechanism
from collegium.site.exposure import NO_PRIVATE_DATA, Exposure
from collegium.site.ledger import Entry, Ledger
from collegium.site.policy import Policy
from collegium.wire.orders import Request
from collegium.wire.replies import REFUSAL, Row

_GATE_ONLY: Final = object()
_FIXED: Final = frozenset({Labels, str, int, float, bool, type(None)})


@dataclass(frozen=True)
class Sealed:
    """A release that passed the gate, as bytes, with the hash of its ledger row. Only the gate makes one."""

    kind: str
    packed: wire.Packed
    sha256: str
    entry: str | None = None
    charges: tuple[Charge, ...] | None = None
    shared: Release | None = None
    """The release itself, if nothing in it can be changed: who reads it in this process need not read its bytes."""
    key: InitVar[object] = None

    def __post_init__(self, key: object) -> None:
        if key is not _GATE_ONLY:
            raise TypeError("Only Gate.seal makes a Sealed: return a Release from the step instead.")

    def row(self, published: Sequence[Charge] | None) -> Row:
        """What a reply says about it, with the charges that may be published."""
        privacy = None if published is None else write_charges(published)
        return Row(self.kind, self.packed.content_bytes, self.sha256, self.entry, privacy)


class Gate:
    """A site's gate: its policy, its privacy budget and its ledger."""

    def __init__(
        self, site: str, policy: Policy, ledger: Ledger, *, simulation: bool, budget: Budget | None = None
    ) -> None:
        self.site = site
        self.policy = policy
        self.ledger = ledger
        self.budget = budget
        self.simulation = simulation
        self.hides_failures = not simulation and (budget is not None or policy.requires is not None)
        """A real site that promises differential privacy must not tell by refusals what its data is like."""

    def admit(self, request: Request) -> Step[Any, Any]:
        """The step to run, or a refusal."""
        installed = INSTALLED.get(request.step)
        if installed is None:
            raise Refused("unknown-step", f"{self.site} has no step {request.step!r} installed.")
        if installed.digest != request.digest:
            raise Refused("other-version", f"{self.site} has another version of step {request.step!r}.")
        if not self.policy.allows_step(request.step):
            raise Refused("step-denied", f"The policy of {self.site} does not allow step {request.step!r}.")
        if self.policy.public_sha256 is not None and request.public_sha256 != self.policy.public_sha256:
            raise Refused("other-public-set", f"{self.site} answers for the public set that it has pinned only.")
        if installed.releases.never_protected:  # before it runs: whether it fails may depend on private rows
            self._require_allowed(installed.releases.kind)
        return installed

    def require_budget(self, charges: Sequence[Charge]) -> None:
        """Refuse what the budget does not cover. With a damaged ledger, nothing is covered."""
        if self.budget is None:
            return
        try:
            spent = self.ledger.charges(of_all=self.budget.ledger is not None)
        except LedgerError as error:
            raise Refused("ledger-damaged", f"{error} Nothing more can be spent.") from None
        self.budget.require(spent, charges)

    def seal(self, request: Request, release: object, reference: Labels | None, site: ActiveSite) -> Sealed:
        """Check a release, protect it, write it to the ledger and turn it into bytes. Call inside a transaction."""
        mask, masks = request.mask, self._masking(request)
        charges: list[Charge] | None = None
        if mask is not None and masks is not None and mask.again is not None:
            checked, charges = masks.kept(site, mask)
        else:
            checked = self._checked(request, release)
        if isinstance(checked, Nothing):
            packed = self._pack(request, checked, reference)
            return Sealed(checked.kind, packed, packed.sha256, shared=_shared(checked), key=_GATE_ONLY)
        if checked.simulation_only and not self.simulation:
            raise Refused("release-denied", f"{checked.kind} never leaves a site outside a simulation.")
        if mask is not None and mask.again is not None:
            pass  # noise and charges are those of the first time
        elif request.mechanism is None:
            charges = self._bill(checked, site)
        else:
            checked, charge = self._protect(request, request.mechanism, checked, site)
            charges = site.exposure.bill(charge)
        bare = checked
        if bare.masked_only and mask is None:
            raise Refused("mask-denied", f"{self.site} releases {bare.kind} in a masked sum only.")
        if mask is not None and masks is not None:
            checked = masks.masked(site, mask, bare)
        self._require_claim(checked, charges)
        self.require_budget(charges or ())
        packed = self._pack(request, checked, reference)
        self._check_size(request, packed)
        if mask is not None and masks is not None and mask.again is None:
            masks.keep(site, mask, bare, charges)
        return self._written(request, checked.kind, packed, charges, _shared(checked))

    def hash_again(self, request: Request, release: object, reference: Labels | None, site: ActiveSite) -> str:
        """The hash of what `seal` would make of a release that has left before; nothing is written or charged."""
        checked = self._checked(request, release)
        if request.mechanism is not None:
            checked, _ = self._protect(request, request.mechanism, checked, site)
        return self._pack(request, checked, reference).sha256

    def _masking(self, request: Request) -> Masking | None:
        if request.mask is None:
            return None
        try:
            return masking(request.mask.protocol)
        except ConfigError as error:
            raise Refused("mask-denied", f"{self.site} cannot mask its release: {error}") from None

    def pay_refusal(self, request: Request, exposure: Exposure) -> Sealed:
        """Record the cost of a refusal that depends on private fits. Call inside a transaction."""
        return self._written(request, REFUSAL, wire.Packed((), 0), exposure.bill())

    def _written(
        self,
        request: Request,
        kind: str,
        packed: wire.Packed,
        charges: list[Charge] | None,
        shared: Release | None = None,
    ) -> Sealed:
        """What may leave, once its row is in the ledger."""
        with beside_others(len(packed)):
            sha256 = packed.sha256
        privacy = None if charges is None else tuple(charges)
        event = None if privacy is None else write_charges(privacy, self.budget)
        claim = None if privacy is None else "; ".join(str(each) for each in Account(privacy).claims())
        order = (request.run, request.number, request.round, request.step)
        entry = Entry(*order, kind, packed.content_bytes, len(packed), sha256, event, claim)
        try:
            row = self.ledger.append(entry)
        except LedgerError as error:
            raise Refused("ledger-damaged", f"{error} Nothing more can leave.") from None
        return Sealed(kind, packed, sha256, row, privacy, shared, key=_GATE_ONLY)

    @staticmethod
    def pays(request: Request, release: object, exposure: Exposure) -> bool:
        """Does sealing this release charge what private fits owe? Not if it leaves unprotected: they still owe it."""
        if not isinstance(release, Release) or isinstance(release, Nothing) or not release.holds_data:
            return False
        return request.mechanism is not None or not (release.never_protected or exposure.read)

    @staticmethod
    def _bill(release: Release, site: ActiveSite) -> list[Charge] | None:
        """The cost of a release without a mechanism; None if nothing protects it."""
        if release.never_protected:
            return None
        return site.exposure.bill() if release.holds_data else [Charge((), assumptions=(NO_PRIVATE_DATA,))]

    def _checked(self, request: Request, release: object) -> Release:
        if not isinstance(release, Release):
            raise Refused("not-a-release", f"Step {request.step!r} returned {type(release).__name__}, not a Release.")
        declared = INSTALLED[request.step].releases
        if type(release) is not declared:
            raise Refused(
                "not-declared", f"Step {request.step!r} declares {declared.kind} and returned {release.kind}."
            )
        return release

    def _pack(self, request: Request, release: Release, reference: Labels | None) -> wire.Packed:
        try:
            return wire.pack(release.to_plain(), reference)
        except WireError as error:
            raise Refused(
                "not-a-release", f"Step {request.step!r} returned something that is not plain data: {error}"
            ) from None

    def _protect(
        self, request: Request, plain: Mapping[str, Any], release: Release, site: ActiveSite
    ) -> tuple[Release, Charge]:
        """Noise on a release, and what it costs by what the step declares that one record may change."""
        try:
            mechanism, declared = mechanism_for(INSTALLED[request.step], plain, request.args)
            if mechanism.takes is not type(release):
                raise ConfigError(f"{mechanism.name} takes {mechanism.takes.kind}, got {release.kind}.")
            observed = None if mechanism.neighbours is None else site.observed_change(mechanism.neighbours)
            records = site.size if self.simulation else None  # the claim of a real site does not say how many
            charge = mechanism.charge(_size(release), site.n_classes, records=records, observed=observed)
            if declared is not None:
                charge = replace(charge, unit=declared.unit, relation=declared.relation)
        except ConfigError as error:
            raise Refused("mechanism-denied", f"{self.site} cannot answer through that mechanism: {error}") from None
        try:
            noisy = mechanism.apply(release, site.noise)
        except ConfigError as error:
            raise Refused("step-failed", f"The noise cannot go on what {request.step!r} returned: {error}") from None
        return noisy, charge.assuming(SEEDED_NOISE) if site.noise.seeded else charge

    def stand_in(self, last: Request, site: ActiveSite) -> Release | None:
        """What leaves instead, where private data made a step fail before `last` was answered.

        Nothing, where nothing would have left; and through noise on labels any labels, since all of them are paid for.
        None: there is nothing that would look the same.
        """
        declared = self.admit(last).releases
        if declared is Nothing:
            return Nothing()
        if last.mechanism is None:
            if site.exposure.read and not self.policy.allows_unprotected(declared.kind, strict=True):
                raise Refused("unprotected", f"{self.site} does not release {declared.kind} without a mechanism.")
            return None
        if declared is not HardLabels:
            return None
        return HardLabels(Labels(np.zeros(len(site.public), dtype=np.int64), site.n_classes))

    def _require_claim(self, release: Release, charges: Sequence[Charge] | None) -> None:
        """Without a claim of differential privacy, only what the policy allows."""
        if charges is not None and all(charge.kind == "dp" for charge in charges):
            return
        self._require_allowed(release.kind)

    def _require_allowed(self, kind: str) -> None:
        """Refuse what the policy does not let go unprotected."""
        if not self.policy.allows_unprotected(kind, strict=self.budget is not None):
            raise Refused("unprotected", f"{self.site} does not release {kind} without differential privacy.")

    def _check_size(self, request: Request, packed: wire.Packed) -> None:
        if len(packed) > self.policy.max_release_bytes:
            raise Refused("too-large", f"A release of {len(packed)} bytes is over the limit of {self.site}.")
        if self.ledger.bytes_of(request.run) + packed.content_bytes > self.policy.max_run_bytes:
            raise Refused("bytes-exhausted", f"{self.site} would exceed its limit of bytes for this run.")


def mechanism_for(
    step: Step[Any, Any], plain: Mapping[str, Any], args: Mapping[str, Any]
) -> tuple[Mechanism, Sensitivity | None]:
    """The mechanism that an order names, as this step is answered through it, and what the step declares."""
    declared = step.sensitivity(args)
    return build_mechanism(plain).for_step(declared), declared


def _shared(release: Release) -> Release | None:
    """The release, if its values are read from the wire just as they are here, and cannot be changed."""
    return release if all(type(value) in _FIXED for value in release.to_plain().values()) else None


def _size(release: Release) -> int:
    """How many answers a release holds: one per public sample, or per row of an array."""
    values = [getattr(release, field.name) for field in fields(release)]
    return max(len(value) if isinstance(value, Labels) or np.ndim(value) else 1 for value in values)
