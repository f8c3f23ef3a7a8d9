"""What of a site's private data has entered its model and state during a run.

Everything that a step computes may depend on everything that happened before in the run, so exposure only grows:
either all private data came in through private learners, whose fits are charged, or it was read as it is and
nothing but a mechanism at the gate can protect what leaves.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

from collegium.privacy.claims import Charge

POST_PROCESSING: Final = (
    "what left after that is post-processing of private fits that are charged already: it cost nothing more"
)
NO_PRIVATE_DATA: Final = "no private data was used"


@dataclass
class Exposure:
    """One site's exposure in one run."""

    read: bool = False
    """Private rows were read by a step, or by a learner that is not private."""
    fits: int = 0
    """Private fits so far."""
    unpaid: list[Charge] = field(default_factory=list)
    """Private fits that no release has been charged with yet."""

    def note_read(self) -> None:
        """Private rows were read as they are."""
        self.read = True

    def note_fit(self, charge: Charge) -> None:
        """A private learner used the private rows."""
        self.fits += 1
        self.unpaid.append(charge)

    def restate_fit(self, charge: Charge) -> None:
        """The last private fit, with what is known about its cost now that it is over."""
        self.unpaid[-1] = charge

    @property
    def touched(self) -> bool:
        """Has any private data been used, one way or the other?"""
        return self.read or self.fits > 0

    @property
    def owes(self) -> bool:
        """Are there private fits to pay for, and would that protect anything?"""
        return bool(self.unpaid) and not self.read

    def bill(self, noise: Charge | None = None) -> list[Charge] | None:
        """What the next release must be charged with; None where nothing protects it.

        `noise` is the cost of a mechanism on the release. Where all private data came in through private fits, it is
        noise on what is paid for already. Otherwise it is charged, and what is owed beside it.
        """
        if noise is not None and (self.read or not self.fits):
            return [noise, *self.unpaid]
        if self.read:
            return None
        if self.unpaid:
            return list(self.unpaid)
        return [Charge((), assumptions=(POST_PROCESSING if self.fits else NO_PRIVATE_DATA,))]

    def paid(self) -> None:
        """The bill is in the ledger."""
        self.unpaid = []

    def copy(self) -> Exposure:
        """For storing."""
        return Exposure(self.read, self.fits, list(self.unpaid))
