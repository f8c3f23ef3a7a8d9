"""The interface of private learners: every model is trained with noise, and its cost is known beforehand.

The site asks for the `charge`, records it, lets the learner use the private records once (`fit_private`) and continues
with the `public_learner`, which sees public samples only: the labels from a private fit, and everything learned from
them, are post-processing and cost nothing more.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any

from collegium.errors import SiteError
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
        """The cost of one fit, known beforehand: it does not depend on the values of any record."""

    @abstractmethod
    def fit_private(
        self, X: Any, y: Any, public: Any, pseudo: tuple[Any, Any] | None = None, *, classes: Any = None,
        size: int | None = None,
    ) -> Any:  # fmt: skip
        """One private fit.

        `public` are the unlabeled public rows. `pseudo=(X_pub, y_pub)` are public rows with labels that depend on the
        private records only through releases already charged for. `classes` are all classes of the study; by default
        those in y are used, and the claim states this as an assumption. `size` stands for the number of records in
        `charge` where X has not all of them: a site leaves out rows of classes that the study lacks, and how many is a
        secret.
        """

    @abstractmethod
    def public_learner(self) -> Any:
        """An unfitted ordinary learner for the site to continue with, on public samples only."""


def require_secret_noise(site: str, learner: Any) -> None:
    """Refuse a private learner whose noise follows from a number: whoever knows or guesses it removes the noise."""
    seed = getattr(learner, "random_state", None) if isinstance(learner, PrivateLearner) else None
    if seed is not None:
        raise SiteError(
            site,
            f"{type(learner).__name__} has random_state={seed}, so its noise can be repeated and "
            "protects nothing. Remove random_state: the noise then comes from the operating system.",
        )
