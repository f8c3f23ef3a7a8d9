"""At a site: how its net learns from its own rows that nobody has labelled. All of it goes through `site.fit`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from collegium.core.samples import LabelledData
from collegium.core.terms import LocalTerms
from collegium.core.weights import Arrays
from collegium.errors import Refused

if TYPE_CHECKING:
    from collegium.core.site import ActiveSite

NOTHING_TO_LEARN = "nothing-to-learn"
"""The code of a refusal: the site has neither labels of its own nor found ones."""


def learn_found(site: ActiveSite, epochs: int | None, steps: int | None) -> None:
    """Learn the rows with labels and, as much as each is sure, those whose labels were found last."""
    found = site.found_labels
    if found is not None and found.confidences.any():
        pseudo = LabelledData(site.unlabeled.X, found.codes)
        site.fit(site.data + pseudo, epochs, steps, LocalTerms(confidences=found.confidences))
    elif site.records:
        site.fit(site.data, epochs, steps, LocalTerms())
    else:
        raise Refused(NOTHING_TO_LEARN, f"{site.name} has no labels, and none were found for its points.")


def joined(parts: Mapping[str, Arrays]) -> Arrays:
    """Several nets' weights as one, which travels and is averaged like one."""
    return {f"{part}: {name}": value for part, net in parts.items() for name, value in net.items()}


def part_of(both: Arrays, part: str) -> Arrays:
    """One of the nets again."""
    own = f"{part}: "
    return {name.removeprefix(own): value for name, value in both.items() if name.startswith(own)}
