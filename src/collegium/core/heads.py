"""Linear evaluation at a site: only the last layer of its net learns."""

from __future__ import annotations

from collegium.core.site import ActiveSite
from collegium.learners.terms import LocalTerms


def train_head(site: ActiveSite, epochs: int | None, steps: int | None) -> None:
    """Go on from the present weights with the private rows and a new optimizer; all before the last layer stays."""
    site.fit(site.data, epochs, steps, LocalTerms(train="head"))
