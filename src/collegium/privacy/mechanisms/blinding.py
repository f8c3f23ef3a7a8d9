"""Blinding: values are spelled in a masked sum over sites so that nobody learns how many sites, or which, have them.

Every value is a row of whole numbers b, and a site adds (r, r b) with a random word r of its own, modulo 2^64. The sum
over all sites that have the value is (R, R b): R is uniform, whoever has it and however many, and b can be read off.

Blinding hides who. That a value is spelled at all tells nothing of a record as long as other records have the value,
too: the step has to see to that, and declares with what probability it may fail.
"""

from __future__ import annotations

from typing import Any, ClassVar, cast

import numpy as np
from numpy.typing import ArrayLike, NDArray

from collegium.core.releases import BlindedSpellings, Release, Spellings
from collegium.core.sensitivity import Sensitivity
from collegium.core.settings import OpenProbability, checked
from collegium.errors import ConfigError
from collegium.privacy import events
from collegium.privacy.claims import Charge, Relation
from collegium.privacy.mechanisms.base import Mechanism
from collegium.privacy.noise import Noise, NoiseSource, noise_source


class Blinding(Mechanism):
    """Random multiples of what a site spells, which leave it in a masked sum only.

    Parameters
    ----------
    delta:
        The delta at which the cost is reported.
    chance, relation:
        With what probability one record changes what all sites together spell, as the step declares it.
    """

    name: ClassVar[str] = "blinding"
    takes: ClassVar[type[Release]] = Spellings
    gives: ClassVar[type[Release]] = BlindedSpellings
    delta: float
    chance: float
    relation: Relation

    @checked
    def __init__(
        self, *, delta: OpenProbability = 1e-5, chance: OpenProbability = 1e-6, relation: Relation = "add_remove"
    ) -> None:
        own: dict[str, Any] = {"delta": delta, "chance": chance, "relation": relation}
        self._keep(own, **own)

    def release(self, words: ArrayLike, places: ArrayLike, size: int, rng: NoiseSource = None) -> NDArray[np.uint64]:
        """What a site adds to the sum: for every place a word that says whether anything is there, and the value's."""
        spelled, where = np.asarray(words, dtype=np.uint64), np.asarray(places, dtype=np.int64)
        marked = np.concatenate([np.ones((len(spelled), 1), dtype=np.uint64), spelled], axis=1)
        blinded = marked * noise_source(rng).words(len(marked))[:, None]
        summed = np.zeros((size, marked.shape[1]), dtype=np.uint64)
        for place in where.T:
            np.add.at(summed, place, blinded)
        return summed.ravel()

    def apply(self, release: Any, noise: Noise) -> BlindedSpellings:
        return BlindedSpellings(self.release(release.words, release.places, release.size, noise))

    def for_step(self, declared: Sensitivity | None) -> Blinding:
        if declared is None or declared.chance is None:
            raise ConfigError(
                "Blinding needs a step that declares how probably one record changes what is spelled: "
                "@step(sensitivity=Sensitivity(chance=...))."
            )
        return cast(Blinding, self._with(chance=declared.chance, relation=declared.relation))

    def charge(
        self, release_size: int, n_classes: int, *, records: int | None = None, observed: int | None = None
    ) -> Charge:
        used = (events.Failure(1, self.chance),) if release_size else ()
        return Charge(used, relation=self.relation, delta=self.delta)
