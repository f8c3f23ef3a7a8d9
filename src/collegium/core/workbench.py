"""Where the coordinator works with nets whose weights it has: it tries them, and distils into them on public rows.

The nets are made from the learners that the sites' owners named in the study; nothing private is involved.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from collegium.core.public_set import PublicSet
from collegium.core.site import Exam, Site
from collegium.core.soft import Arrays, Shapes, shapes_of
from collegium.errors import ConfigError
from collegium.learners.base import SiteModel, Trainer


class Workbench:
    """One net per architecture. `like` is a party whose learner has that net."""

    def __init__(
        self, sites: Sequence[Site], classes: NDArray[Any], public: PublicSet | None, exam: Exam | None, seed: int
    ) -> None:
        self._sites = {site.name: site for site in sites}
        self._classes = classes
        self._public = public
        self._exam = exam
        self._seed = seed
        self._nets: dict[str, SiteModel] = {}

    def first_nets(self) -> tuple[dict[str, str], dict[str, Arrays]]:
        """Which net each site has, named by the first site that has it; and the weights that each such net starts from.

        A site whose learner cannot make its net is left out here, and will say so when it is asked.
        """
        like: dict[str, str] = {}
        first: dict[str, Arrays] = {}
        shapes: dict[str, Shapes] = {}
        made: dict[int, str] = {}
        for name, site in self._sites.items():
            if id(site.learner) not in made:
                with suppress(Exception):  # whatever a user's net may raise
                    weights: Arrays = self._new_net(site).estimator.get_weights()
                    own = shapes_of(weights)
                    made[id(site.learner)] = next((known for known in shapes if shapes[known] == own), name)
                    if made[id(site.learner)] == name:
                        first[name], shapes[name] = weights, own
            if id(site.learner) in made:
                like[name] = made[id(site.learner)]
        return like, first

    def net(self, like: str, weights: Mapping[str, NDArray[Any]]) -> SiteModel:
        """The net with these weights. It is the same net each time, so that its random stream goes on."""
        if like not in self._nets:
            self._nets[like] = self._new_net(self._sites[like])
        self._nets[like].estimator.set_weights(weights)
        return self._nets[like]

    def logits(self, like: str, weights: Mapping[str, NDArray[Any]]) -> NDArray[np.float32]:
        """What a net with these weights says of the public rows, before the softmax."""
        answers: NDArray[np.float32] = self.net(like, weights).estimator.predict_logits(self._rows)
        return answers

    def distill(
        self,
        like: str,
        weights: Mapping[str, NDArray[Any]],
        targets: NDArray[Any],
        *,
        epochs: int = 1,
        steps: int | None = None,
        lr: float,
        batch_size: int,
    ) -> Arrays:
        """The weights of a net that started from these and learned to answer the public rows with `targets`."""
        student = self.net(like, weights).estimator
        student.distill(self._rows, targets, epochs=epochs, steps=steps, lr=lr, batch_size=batch_size)
        learned: Arrays = student.get_weights()
        return learned

    def impression(self, like: str, weights: Mapping[str, NDArray[Any]]) -> NDArray[np.float64]:
        """What a net with these weights says of one row of noise, the same each time: alike nets say alike things."""
        net = self.net(like, weights)
        noise = np.random.default_rng(self._seed).normal(size=(1, *net.estimator.input_shape_)).astype(np.float32)
        names = getattr(net.estimator, "feature_names_in_", None)
        row = noise if names is None else pd.DataFrame(noise, columns=names)
        answer: NDArray[np.float64] = net.predict_proba(row)[0]
        return answer

    def accuracy(self, like: str, weights: Mapping[str, NDArray[Any]]) -> float | None:
        """On the simulation's test set, where there is one."""
        if self._exam is None:
            return None
        return float(np.mean(self.net(like, weights).predict_codes(self._exam.X) == self._exam.codes))

    def _new_net(self, site: Site) -> SiteModel:
        X = site.X if self._public is None else self._public.X
        return Trainer(site.learner, self._classes).untrained(X, self._seed)

    @property
    def _rows(self) -> Any:
        if self._public is None:
            raise ConfigError("This study has no public set.")
        return self._public.X
