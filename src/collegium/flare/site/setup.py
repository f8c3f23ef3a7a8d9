"""A site as its file describes it, with its rows, its learner, its policy and its keys."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from collegium.core.building import build
from collegium.core.site import Site
from collegium.errors import ConfigError
from collegium.flare.kits.identity import read_keys
from collegium.flare.site.data import read_data, read_public, split_off
from collegium.flare.site.file import LEDGER, SITE_FILE, SiteFile
from collegium.learners.prepare import with_preparation
from collegium.privacy.budget import Budget
from collegium.privacy.learners.base import PrivateLearner, require_secret_noise
from collegium.protocols.keyring import Keyring
from collegium.site.policy import Policy
from collegium.study.sections import located
from collegium.wire import tables
from collegium.wire.tables import Table


@dataclass(frozen=True, eq=False)
class SiteSetup:
    """A site with its data loaded."""

    file: SiteFile
    site: Site
    held_out: tuple[Table, NDArray[Any]] | None

    @property
    def requires_dp(self) -> bool:
        """Whether even that a record is here may be private."""
        return self.file.policy.requires == "dp" or self.file.budget is not None

    def within(self, classes: Sequence[Any]) -> SiteSetup:
        """For a study of these classes: where privacy is required, without the rows that have other labels.

        A refusal would tell that such a row is here.
        """
        if not self.requires_dp:
            return self
        site, held_out = self.site, self.held_out
        X, y = _within(site.X, site.y, classes)
        return replace(
            self,
            site=replace(site, X=X, y=y),
            held_out=None if held_out is None else _within(*held_out, classes),
        )

    def with_public(self, public: Table) -> Site:
        """The site, once the public set is there.

        What stands before a private learner is chosen by public rows: even that a column has gaps may be private.
        """
        own = None if self.held_out is None else self.held_out[0]
        learner = _learner(self.file, self.site.X, public, own, self.site.unlabeled)
        return replace(self.site, public=public, learner=learner)


def load_site(kit: str | Path) -> SiteSetup:
    """Read a kit's site file, and the data that it names."""
    path = Path(kit) / SITE_FILE
    file = SiteFile.from_toml(path)
    try:
        rows, held_out = split_off(read_data(file.data, Path(kit)), file.data.held_out, file.name)
        budget = None if file.budget is None else Budget(file.budget.epsilon, file.budget.delta, Path(kit) / LEDGER)
        own = None if held_out is None else held_out[0]
        learner = _learner(file, rows.X, None, own, rows.unlabeled)
        require_secret_noise(file.name, learner)
        extra = {"policy": site_policy(file), "budget": budget, "unlabeled": rows.unlabeled}
        return SiteSetup(file, Site(file.name, rows.X, rows.y, learner=learner, **extra), held_out)
    except ConfigError as error:
        raise located(error, str(path)) from error.__cause__


def load_public(kit: str | Path, file: SiteFile) -> Table | None:
    """The site's own copy of the public set, the features only; None where the coordinator is to send it."""
    try:
        return read_public(file, Path(kit))
    except ConfigError as error:
        raise located(error, str(Path(kit) / SITE_FILE)) from None


def _within(X: Table, y: NDArray[Any], classes: Sequence[Any]) -> tuple[Table, NDArray[Any]]:
    known = set(classes)
    rows = np.flatnonzero([label in known for label in y.tolist()])
    return tables.take(X, rows), y[rows]


def _learner(file: SiteFile, X: Any, public: Any, *others: Any) -> Any:
    """The learner, with what prepares the rows that it learns from, and those that it will answer about."""
    learner = build("learner", file.learner, "learner")
    shown = (public,) if isinstance(learner, PrivateLearner) else (X, public, *others)
    return with_preparation(learner, *shown) if file.prepare == "auto" and shown[0] is not None else learner


def site_policy(file: SiteFile) -> Policy:
    """The part of the policy that the gate keeps to. Algorithms, approval and messages come before it."""
    return Policy(**file.policy.model_dump(exclude={"algorithms", "max_message_bytes", "approval"}))


def site_keyring(folder: Path, file: SiteFile) -> Keyring:
    """The site's own keys, in its agent's folder, and the identities that it knows."""
    own = read_keys(folder, file.name)
    if file.identities.get(file.name, own.identity) != own.identity:
        raise ConfigError(f"identities.{file.name}: expected the identity of this site's own key, {own.identity}.")
    return Keyring(own, {**file.identities, file.name: own.identity})
