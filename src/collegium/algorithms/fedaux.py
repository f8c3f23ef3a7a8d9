"""FedAUX: pre-training on public data, and distillation weighted by how certain each site is.

Sattler, Korjakow, Rischke, Samek: "FedAUX: Leveraging Unlabeled Auxiliary Data in Federated Learning", IEEE TNNLS 2021,
arXiv 2102.02514, Algorithms 1 (preparation) and 2 (training). The paper's lines are named beside ours.

Reproduces: the FedAUX rows of Tables 1 to 3. ``rounds=1`` is its one-shot setting, ``mode="head"`` its linear
evaluation, and sites with different nets are its model prototypes.

Privacy: only the scoring models w_i have a claim, (epsilon, delta) for replacing one record. The trained weights that
sites send every round are NOT protected by it, and `run.privacy` says so. With ``score_loss="sum"``, which is what the
authors' code computes, nothing is protected and nothing is claimed.

Deviations from the paper, on purpose (docs/methods/fedaux.md has the numbers):

- The loss of the scoring model is log(1 + exp(-t <w, h>)). The paper prints no minus, which scores own rows lowest.
- Features are bounded by a PUBLIC norm, a low quantile of those of the public rows, so that nearly all have norm 1:
  more signal under the same noise. The paper divides by the largest norm of all rows, private ones too: then one record
  rescales all others, and the sensitivity that it proves does not hold.
- The noise is that of the analytic Gaussian mechanism, for |D_i| + |D^-| rows, with the solver's error added.
- ``scorer="mean"`` is ours: sites tell the mean of their features instead of a separator. A record moves it so little
  that scores are worth something under a true epsilon of 1.
- ``mode="head"`` still sends whole nets, whose features stay as they were.
- A site that sent no w has the score xi: its net is averaged and teaches almost nothing.
- A net whose logits are NaN or infinite has diverged: it is left out of that round, and reported. A round without any
  net changes nothing.

In `run.metrics`, the accuracy that a site has in round 0 without having been drawn is that of the pre-trained start.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import numpy as np
from numpy.typing import NDArray

from collegium.algorithms._averaging import LastRounds, average_or, receive, shares, updates
from collegium.algorithms._certainty import (
    XI,
    bounded,
    certainty,
    likeness,
    noisy_mean,
    noisy_separator,
    summed_separator,
    whitening,
)
from collegium.algorithms._starting import Start, as_start, prototypes
from collegium.algorithms.fedavg import update
from collegium.algorithms.feddf import Distilling, can_teach
from collegium.core import ActiveSite, Federation, Steps, Weights, step
from collegium.core.building import build
from collegium.core.pretraining import Pretraining
from collegium.core.releases import Numbers
from collegium.core.settings import OpenProbability, PositiveFloat, PositiveInt, Probability, Share
from collegium.core.softmax import softmax
from collegium.core.steps import Step
from collegium.core.weights import Arrays
from collegium.errors import ConfigError
from collegium.wire import tables

Mode = Literal["all", "head"]
ScoreLoss = Literal["mean", "sum"]
Scorer = Literal["separator", "mean"]
Rows = NDArray[np.intp]
FEWEST = 2  # batch norm has no statistics of a single row


@step
def score(
    site: ActiveSite,
    h_0: Arrays,
    negatives: Rows,
    bound: float,
    ridge: float,
    epsilon: float,
    delta: float,
    loss: ScoreLoss = "mean",
) -> Numbers:
    """w_i <- argmin J(w, h_0, D_i, D^-) + N(0, sigma^2 I)."""
    site.load(h_0)
    separator = noisy_separator if loss == "mean" else summed_separator
    return Numbers(separator(site, negatives, bound, ridge, epsilon, delta))


@step
def tell_mean(
    site: ActiveSite,
    h_0: Arrays,
    center: NDArray[np.float64],
    directions: NDArray[np.float64],
    bound: float,
    epsilon: float,
    delta: float,
) -> Numbers:
    """The mean of h_0(x) over D_i, as public rows scatter, + N(0, sigma^2 I)."""
    site.load(h_0)
    return Numbers(noisy_mean(site, center, directions, bound, epsilon, delta))


@step
def update_head(
    site: ActiveSite, theta: Arrays, epochs: int, steps: int | None, keep_optimizer: bool = False
) -> Weights:
    """Local training of the head g alone: the features stay as they were sent."""
    site.load(theta)
    site.train_net(epochs, steps, train="head", keep_optimizer=keep_optimizer)
    return Weights(site.weights(), site.records)


@dataclass(frozen=True)
class FedAUX(Distilling):
    """FedDF from pre-trained features, in which sites teach most where public rows look like their own."""

    asks_for: ClassVar[Steps] = (score, tell_mean, update, update_head, receive)
    needs: ClassVar[Mapping[str, str]] = {**Distilling.needs, "embed": "scores rows by a net's features"}
    participation: Share = 0.4
    """C: share of the sites, drawn anew for every round."""
    pretrain: Pretraining | Any = None
    """What pre-trains the features on the public rows: ``cg.SimCLR(epochs=100)``, its name, or anything with
    ``pretrain(net, X) -> weights``, such as ``cg.Pretrained("folder")``, which reads them; or weights that are
    pre-trained already, as for `start`: with a `start` of its own, such as the model of an earlier run that goes on
    here, they are what scores look at. None: features are those of the start, such as a `VisionClassifier`'s
    backbone."""
    epsilon: PositiveFloat = 0.1
    """Of each site's scoring model, at `delta`."""
    delta: OpenProbability = 1e-5
    scorer: Scorer = "separator"
    """What a site tells of its rows: what separates them from public ones, as in the paper; or their mean, in the
    `components` main directions of public features. A mean needs far less noise for the same epsilon: ours."""
    components: PositiveInt = 64
    """Of ``scorer="mean"``: more tell more, and need more records; 32 are better for an epsilon of .1."""
    ridge: PositiveFloat = 0.1
    """lambda: less of it separates own rows from others better, and needs more noise."""
    score_loss: ScoreLoss = "mean"
    """The loss J of a scoring model: the mean over its rows, as printed, for which `epsilon` is true; or their sum, as
    in the authors' code. That tells sites apart far better and is NOT private: `epsilon` then only says how much noise
    there is, no claim is made, and sites send w unprotected."""
    norm_quantile: Probability = 0.1
    """gamma: the bound on features is this quantile of the public rows' norms, and longer ones are cut to it. 1: the
    largest, which leaves most features short beside the noise."""
    negatives: OpenProbability = 0.2
    """The share of the public set that is D^-, drawn at random; the rest is for distillation."""
    mode: Mode = "all"
    """What is trained: the whole net, or its last layer ("head")."""

    def __post_init__(self) -> None:
        me = type(self).__name__
        if isinstance(self.pretrain, type):
            raise ConfigError(f"{me}: pretrain is a class: pass an instance, such as {self.pretrain.__name__}().")
        if isinstance(self.pretrain, str):
            object.__setattr__(self, "pretrain", build("pretraining", self.pretrain, f"{me}: pretrain"))
        if self.pretrain is not None and not hasattr(self.pretrain, "pretrain"):
            # Without a start of their own, nets start from what is pre-trained.
            first = self.start is None
            object.__setattr__(self, "start" if first else "pretrain", as_start(self.pretrain, f"{me}: pretrain"))
            if first:
                object.__setattr__(self, "pretrain", None)
        super().__post_init__()

    def unasked(self) -> Steps:
        return (
            update_head if self.mode == "all" else update,
            tell_mean if self.scorer == "separator" else score,
        )

    def coordinate(self, fed: Federation) -> None:
        negatives, distill = self._split(fed)  # D^- u D_distill <- D_aux
        R, theta = prototypes(fed, self.start)  # R maps a site to its prototype P
        theta, h_0 = self._pretrain(fed, theta)
        s = self._scores(fed, R, h_0, negatives, distill)
        D_distill = tables.frozen(tables.take(fed.public.X, distill))
        last = LastRounds(self.averaged_rounds)
        for _ in fed.rounds(self.rounds):
            S = fed.sample(self.participation)  # S_t
            settings = self.local_epochs, self.local_steps, self.keeps_optimizer
            order = {P: self._local(theta[P], *settings) for P in theta}
            theta_i = updates(fed, {i: order[R[i]] for i in S}, {i: theta[R[i]] for i in S})  # Local Training
            theta_i, y = self._ensemble(fed, R, theta_i, s, D_distill)
            for P in theta:
                group = {i: part for i, part in theta_i.items() if R[i] == P}
                # Parameter Averaging; a prototype without an answer goes on from what it was.
                student = average_or(theta[P], group, shares(group, "samples"))
                theta[P] = self._distill(fed, P, student, D_distill, y) if theta_i else student
                fed.publish(last.mean(P, theta[P]), P)
        for P in theta:
            fed.tell(receive(last.mean(P)), [i for i in R if R[i] == P])

    @property
    def _local(self) -> Step[..., Weights]:
        """Local training, of what the mode says."""
        return update if self.mode == "all" else update_head

    def _split(self, fed: Federation) -> tuple[Rows, Rows]:
        """D^- and D_distill: which rows of the public set."""
        n = round(self.negatives * len(fed.public))
        if min(n, len(fed.public) - n) < FEWEST:
            raise ConfigError(
                f"FedAUX: a public set of {len(fed.public)} rows is too small for {self.negatives:.0%} negatives and "
                f"the rest for distillation, at least {FEWEST} rows each: give it more public rows."
            )
        drawn = fed.rng.permutation(len(fed.public))
        return np.sort(drawn[:n]), np.sort(drawn[n:])

    def _pretrain(self, fed: Federation, theta: dict[str, Arrays]) -> tuple[dict[str, Arrays], dict[str, Arrays]]:
        """h_0^P <- train_self_supervised(h^P, D_aux); the head is the start's. And what scores look at: that."""
        if isinstance(self.pretrain, Start):  # of an earlier run, whose model is the start
            before = dict(theta)
            self.pretrain.put_into(before)
            return theta, before
        if self.pretrain is not None:
            with fed.timed("pretrain"):
                for P in theta:
                    net = {P: theta[P]}
                    h_0 = self.pretrain.pretrain(fed.workbench.net(P, theta[P]).estimator, fed.public.X)
                    Start([h_0]).put_into(net)  # an error where it is of another net
                    theta |= net
        return theta, theta

    def fixed(self, public_size: int) -> Mapping[str, Mapping[str, Any]]:
        said: dict[str, Any] = {"epsilon": self.epsilon, "delta": self.delta}
        if self.scorer == "mean":
            return {tell_mean.name: said}
        return {score.name: said | {"ridge": self.ridge, "loss": self.score_loss}}

    def _scores(
        self, fed: Federation, R: Mapping[str, str], h_0: Mapping[str, Arrays], negatives: Rows, distill: Rows
    ) -> dict[str, NDArray[Any]]:
        """s_i[x] for x in D_distill: every site sends w_i once."""
        features, bound, order = {}, {}, {}
        with fed.timed("scores"):
            for P in h_0:
                h = np.asarray(fed.workbench.net(P, h_0[P]).estimator.embed(fed.public.X), dtype=np.float64)
                if not 0 < np.linalg.norm(h, axis=1).max() < np.inf:
                    raise ConfigError(f"FedAUX: the features of the net of site {P!r} are all 0, NaN or infinite.")
                private = self.epsilon, self.delta
                if self.scorer == "mean":
                    center, directions = whitening(h, self.components)
                    h = (h - center) @ directions
                    bound[P] = self._bound(h)
                    order[P] = tell_mean(h_0[P], center, directions, bound[P], *private)
                else:
                    bound[P] = self._bound(h)
                    order[P] = score(h_0[P], negatives, bound[P], self.ridge, *private, self.score_loss)
                features[P] = bounded(h[distill], bound[P])
        w = fed.ask({i: order[P] for i, P in R.items()})
        for i in [i for i in w if w[i].values.shape != features[R[i]].shape[1:]]:
            del w[i]
            fed.reject(i)
        if self.scorer == "mean":
            return {i: likeness(w[i].values, features[R[i]], bound[R[i]]) for i in w}
        return {i: certainty(w[i].values, features[R[i]]) for i in w}

    def _bound(self, h: NDArray[Any]) -> float:
        """gamma, of public rows only."""
        norms = np.linalg.norm(h, axis=1)
        return float(np.quantile(norms[norms > 0], self.norm_quantile))

    def _ensemble(
        self, fed: Federation, R: Mapping[str, str], theta_i: Mapping[str, Weights], s: Mapping[str, Any], X: Any
    ) -> tuple[dict[str, Weights], NDArray[Any]]:
        """The nets that can teach, and y: the softmax of the mean of their logits, weighted by scores, row by row."""
        total, weight = np.zeros((tables.n_rows(X), fed.n_classes)), np.zeros((tables.n_rows(X), 1))
        heard = {}
        with fed.timed("ensemble"):
            nets = ((R[i], part.arrays) for i, part in theta_i.items())
            answers = fed.workbench.logits_of_each(nets, X, **self.norm)
            for (i, part), logits in zip(theta_i.items(), answers, strict=True):
                s_i = np.reshape(s[i], (-1, 1)) if i in s else np.full_like(weight, XI)
                if can_teach(fed, i, self._local.name, logits):
                    heard[i] = part
                    total += s_i * logits
                    weight += s_i
            return heard, np.asarray(softmax(total / np.maximum(weight, XI)), dtype=np.float32)

    def _distill(self, fed: Federation, P: str, student: Arrays, X: Any, y: NDArray[Any]) -> Arrays:
        """theta^P <- theta^P - eta d KL(y, softmax f(x, theta^P)), over mini-batches of D_distill."""
        settings: dict[str, Any] = {"lr": self.distill_lr, "batch_size": self.distill_batch, "train": self.mode}
        settings |= {"keep_optimizer": True} if self.keeps_optimizer else {}
        with fed.timed("distill"):
            net = fed.workbench.net(P, student).estimator
            learned: Arrays = net.distill(X, y, epochs=self.distill_epochs, **settings).get_weights()
            return learned
