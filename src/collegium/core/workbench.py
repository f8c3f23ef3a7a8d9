"""Where the coordinator works with nets whose weights it has: it evaluates them, and distills into them.

The nets are made from the learners that the sites' owners named in the study; nothing private is involved.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import partial
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from collegium.core.public_set import PublicSet
from collegium.core.site import Exam, Site
from collegium.core.weights import Arrays, shapes_of
from collegium.errors import ConfigError, SiteError
from collegium.learners.base import SiteModel, Trainer


def scores_of(model: SiteModel, exam: Exam) -> dict[str, float]:
    """A model's accuracy and other metrics on a test set."""
    return {"accuracy": float(np.mean(model.predict_codes(exam.X) == exam.codes)), **exam.measure(model)[0]}


def _equal(one: Any, other: Any) -> bool:
    """Whether two learners hold the same, so that they make the same net: a large one is then not made to compare it.

    False where it takes more than a look at plain values to tell.
    """
    if type(one) is not type(other) or not hasattr(one, "__dict__"):
        return False
    own, its = vars(one), vars(other)
    plain = (str, int, float, type(None))
    return own.keys() == its.keys() and all(
        value is its[name] or (isinstance(value, plain) and type(value) is type(its[name]) and value == its[name])
        for name, value in own.items()
    )


class Workbench:
    """One net per architecture. `like` is a party whose learner has that net."""

    def __init__(
        self, sites: Sequence[Site], classes: NDArray[Any], public: PublicSet | None, exam: Exam | None, seed: int
    ) -> None:
        self._sites = {site.name: site for site in sites}
        self.classes = classes
        self._public = public
        self._exam = exam
        self._seed = seed
        self._nets: dict[str, SiteModel] = {}

    def first_nets(self) -> tuple[dict[str, str], dict[str, Arrays]]:
        """Which net each site has, named by the first site that has it; and the weights that each such net starts from.

        A site whose learner cannot build its net is left out here, and will refuse when it is asked: its own log has
        the reason. If no site's can, the first reason is raised.
        """
        first: dict[str, Arrays] = {}
        nets: dict[str, Any] = {}
        made: dict[int, str] = {}
        failed: dict[str, Exception] = {}
        for name, site in self._sites.items():
            if id(site.learner) in made:
                continue
            same = next((known for known in first if _equal(site.learner, self._sites[known].learner)), None)
            if same is not None:
                made[id(site.learner)] = same
                continue
            try:
                net = self._new_net(site).estimator
                weights: Arrays = net.get_weights()
            except Exception as error:  # whatever a user's net may raise
                failed[name] = error
                continue
            alike = (known for known in first if self._alike(net, nets[known], first[known]))
            made[id(site.learner)] = next(alike, name)
            if made[id(site.learner)] == name:
                first[name], nets[name] = weights, net
        if not made:
            name, reason = next(iter(failed.items()))
            why = str(reason) if isinstance(reason, ConfigError) else f"{type(reason).__name__}: {reason}"
            raise SiteError(name, f"neither its learner nor any other site's can build its net. {why}") from reason
        return {n: made[id(site.learner)] for n, site in self._sites.items() if id(site.learner) in made}, first

    def _alike(self, net: Any, known: Any, weights: Arrays) -> bool:
        """Do two nets have the same weights by name and shape, and the same outputs with these?

        Nets that differ in what has no weights, such as a ReLU in the place of a Tanh, cannot be averaged either.
        """
        if shapes_of(net.get_weights()) != shapes_of(weights):
            return False
        # What is multiplied with zeros does not show, such as the scale of adapters, which begin with them.
        shown = {name: value if value.any() else np.full_like(value, 0.1) for name, value in weights.items()}
        own, other = self._opinion(net, shown), self._opinion(known, shown)
        return own is None or other is None or np.allclose(own, other, rtol=1e-3, atol=1e-5, equal_nan=True)

    def _opinion(self, net: Any, weights: Arrays) -> NDArray[Any] | None:
        """A net's outputs for a few rows of noise, the same each time; None if it cannot take any."""
        net.set_weights(weights)
        with suppress(Exception):  # whatever a user's net may raise
            if "device" in net.get_params():
                net.set_params(device="cpu")  # a GPU's last digits are others
            return np.asarray(net.predict_logits(self._noise(net, 4)))
        return None

    def net(self, like: str, weights: Mapping[str, NDArray[Any]]) -> SiteModel:
        """The net with these weights. It is the same net each time, so that its random stream goes on."""
        if like not in self._nets:
            self._nets[like] = self._new_net(self._sites[like])
        self._nets[like].estimator.set_weights(weights)
        return self._nets[like]

    def logits_of_each(
        self, nets: Iterable[tuple[str, Mapping[str, NDArray[Any]]]], rows: Any = None, **norm: int
    ) -> Iterator[NDArray[np.float32]]:
        """The outputs of several nets, before the softmax, for these rows (default: the public ones), net by net.

        `nets` says of each what it is like, and its weights; `norm`, which statistics batch norms use, if not the
        running ones: see `TorchClassifier.predict_logits`. While a net's answer is looked at, a GPU computes the next.
        """
        X = self._rows if rows is None else rows
        last: Callable[[], NDArray[np.float32]] | None = None
        for like, weights in nets:
            net = self.net(like, weights).estimator
            if _begins_what_it_predicts(type(net)):
                begun = net.begin_logits(X, **norm)
            else:
                begun = partial(np.asarray, net.predict_logits(X, **norm))
            if last is not None:
                yield last()
            last = begun
        if last is not None:
            yield last()

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
        keep_optimizer: bool = False,
    ) -> Arrays:
        """The weights of a net that started from these and learned to answer the public rows with `targets`."""
        student = self.net(like, weights).estimator
        kept = {"keep_optimizer": True} if keep_optimizer else {}
        student.distill(self._rows, targets, epochs=epochs, steps=steps, lr=lr, batch_size=batch_size, **kept)
        learned: Arrays = student.get_weights()
        return learned

    def impression(self, like: str, weights: Mapping[str, NDArray[Any]]) -> NDArray[np.float64]:
        """The answer of a net with these weights to one row of noise, the same each time: similar nets answer alike."""
        net = self.net(like, weights)
        answer: NDArray[np.float64] = net.predict_proba(self._noise(net.estimator, 1))[0]
        return answer

    def _noise(self, net: Any, rows: int) -> Any:
        if hasattr(net, "made_up_rows"):  # one whose rows are no numbers
            return net.made_up_rows(rows, np.random.default_rng(self._seed))
        noise = np.random.default_rng(self._seed).normal(size=(rows, *net.input_shape_)).astype(np.float32)
        names = getattr(net, "feature_names_in_", None)
        return noise if names is None else pd.DataFrame(noise.reshape(rows, -1), columns=names)

    def scores(self, like: str, weights: Mapping[str, NDArray[Any]]) -> dict[str, float]:
        """Accuracy and the run's metrics on the simulation's test set; empty where there is none."""
        return {} if self._exam is None else scores_of(self.net(like, weights), self._exam)

    def _new_net(self, site: Site) -> SiteModel:
        X = site.X if self._public is None else self._public.X
        return Trainer(site.learner, self.classes).untrained(X, self._seed)

    @property
    def _rows(self) -> Any:
        if self._public is None:
            raise ConfigError("This study has no public set.")
        return self._public.X


def _begins_what_it_predicts(kind: type) -> bool:
    """Whether its `begin_logits` belongs to its `predict_logits`: a subclass may have changed this one alone."""
    for each in kind.__mro__:
        if "begin_logits" in vars(each):
            return True
        if "predict_logits" in vars(each):
            return False
    return False
