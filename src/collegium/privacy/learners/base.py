"""What a private learner promises its site: every model it gives was made with noise, and its cost is known before.

The site asks for the `charge`, books it, lets the learner touch the private records once (`fit_private`) and goes on
with the `public_learner`, which sees public samples only: the labels that come out of a private fit, and all that is
learnt from them, are post-processing and cost nothing more.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any

from collegium.privacy.claims import Charge


class PrivateLearner(ABC):
    """A learner that is differentially private with respect to the records it is fitted on."""

    fits: int
    """How many fits on private data its epsilon and delta cover."""
    charge_: Charge
    """What the last fit cost."""

    @abstractmethod
    def check(self) -> None:
        """A ConfigError if the settings cannot work. A study calls this before it starts."""

    @abstractmethod
    def charge(self, n_records: int, n_public: int, n_classes: int) -> Charge:
        """What one fit costs, known before it runs: it depends on no value of any record."""

    @abstractmethod
    def fit_private(
        self, X: Any, y: Any, public: Any, pseudo: tuple[Any, Any] | None = None, *, classes: Any = None
    ) -> Any:
        """One private fit.

        `public` are the unlabeled public rows. `pseudo=(X_pub, y_pub)` are public rows with labels that depend on the
        private records through paid-for releases only. `classes` are all classes of the study; without them those in
        y are used, and the claim says that this was assumed to be harmless.
        """

    @abstractmethod
    def public_learner(self) -> Any:
        """An unfitted ordinary learner for the site to go on with, on public samples only."""
