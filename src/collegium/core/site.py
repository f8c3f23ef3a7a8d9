"""A site: as its owner declares it (`Site`), and as the steps of an algorithm find it (`ActiveSite`)."""

from __future__ import annotations

import hashlib
import re
import traceback
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, Final, TypeVar

import numpy as np
from numpy.typing import NDArray

from collegium.core.labels import Codes, Labels, as_labels, encode_labels
from collegium.core.meeting import beside_others
from collegium.core.public_set import PublicSet
from collegium.core.recipes import Recipe, build_learner
from collegium.core.samples import LabelledData, Mixture, PrivateData, PrivateRows, PseudoLabelled
from collegium.core.stopwatch import Stopwatch
from collegium.core.terms import LocalTerm, LocalTerms, Trained
from collegium.core.weights import LARGEST, Arrays, clip, with_noise, with_true_variances
from collegium.errors import ConfigError, Refused, SiteError
from collegium.learners.base import LocalUpdate, SiteModel, Trainer
from collegium.privacy.budget import Budget
from collegium.privacy.claims import SEEDED_NOISE, Charge
from collegium.privacy.learners.base import PrivateLearner
from collegium.privacy.noise import Noise, SecureNoise, SeededNoise
from collegium.site.exposure import Exposure
from collegium.site.policy import Policy
from collegium.wire import tables

if TYPE_CHECKING:
    from collegium.graphs import Labelled
    from collegium.learners.metrics import Metric
    from collegium.protocols.keyring import Keyring

T = TypeVar("T")
_OWN_LABELS: Final = "labels of the public set by the private learner"
_FOUND: Final = "labels of the site's own unlabeled points"
_REHEARSAL_ROWS: Final = 50


@dataclass(frozen=True, eq=False)
class Site:
    """An organisation with private labeled data, a learner and a policy.

    ``Site("ukb", X, y, learner=RandomForestClassifier())``. `X` is an array, a sparse matrix or a DataFrame, `y` holds
    labels of any type. `public` may hold the site's own copy of the public set: its hash must then be the study's.
    `budget` is all the privacy that the site may ever spend: ``Budget(epsilon=4, delta=1e-5, ledger="site.db")``.
    `unlabeled` holds rows of its own without labels, for methods that label or use them; a site that has no others
    passes ``X=None, y=None``.
    """

    name: str
    X: Any = field(repr=False)  # rows belong in no log and no notebook
    y: Any = field(repr=False)
    learner: Any = None
    policy: Policy = field(default_factory=Policy)
    public: Any = field(default=None, repr=False)
    budget: Budget | None = None
    unlabeled: Any = field(default=None, repr=False)

    def __post_init__(self) -> None:
        if not isinstance(self.name, str) or re.fullmatch(r"[^./\\\0][^/\\\0]*", self.name) is None:
            raise ConfigError(f"A site's name must be a string that can name a folder, got {self.name!r}.")
        if self.name in ("coordinator", "mean"):
            raise ConfigError(f"A site cannot be called {self.name!r}: tables use that name for something else.")
        for name in ("unlabeled", "public", "X"):
            if name == "X" and self.X is None and self.y is None and self.unlabeled is not None:
                object.__setattr__(self, "X", tables.take(self.unlabeled, []))
                object.__setattr__(self, "y", np.zeros(0, dtype=np.int64))
            if name == "X" or getattr(self, name) is not None:
                object.__setattr__(self, name, tables.as_table(getattr(self, name), f"Site {self.name!r}: {name}"))
        object.__setattr__(self, "y", as_labels(self.y, f"Site {self.name!r}: y"))
        if tables.n_rows(self.X) != len(self.y):
            raise SiteError(self.name, f"X has {tables.n_rows(self.X)} rows and y has {len(self.y)} labels.")
        if self.budget is not None and not isinstance(self.budget, Budget):
            raise SiteError(self.name, f"its budget must be a cg.Budget, got {self.budget!r}.")

    def __len__(self) -> int:
        return len(self.y)

    @property
    def requires_dp(self) -> bool:
        """Whether it releases with differential privacy only: its policy says so, or it has a budget."""
        return self.policy.requires is not None or self.budget is not None

    def within(self, classes: NDArray[Any]) -> Site:
        """Without the rows whose labels are none of these classes."""
        known = set(classes.tolist())
        kept = np.flatnonzero([label in known for label in self.y.tolist()])
        return self if len(kept) == len(self) else replace(self, X=tables.take(self.X, kept), y=self.y[kept])


@dataclass(frozen=True, eq=False)
class Exam:
    """A test set for a simulation: sites are scored on it and never train on it."""

    X: Any
    codes: Codes
    metrics: tuple[Metric, ...] = ()
    """What is measured on it beside accuracy."""
    every: int = 1
    """A site is scored after every so many orders that have changed its model."""

    def measure(self, model: SiteModel) -> tuple[dict[str, float], list[str]]:
        """The metrics of a model, and why some cannot be had."""
        if not self.metrics:
            return {}, []
        from collegium.learners.metrics import measure  # 10 MB, for runs that ask for metrics

        return measure(self.metrics, model, self.X, self.codes)


class ActiveSite:
    """A site during one run, as a step sees it: data, public set, model, generator, and room for state."""

    def __init__(
        self, site: Site, classes: NDArray[Any], public: PublicSet | None, seed: int, *, simulation: bool
    ) -> None:
        self.name = site.name
        self.classes = classes
        self.n_classes = len(classes)
        self.exposure = Exposure()
        rows = LabelledData(tables.frozen(site.X), encode_labels(site.y, classes, f"Site {site.name!r}"))
        self.data = PrivateData(rows, lambda: self.exposure.note_read())
        own = tables.take(site.X, []) if site.unlabeled is None else site.unlabeled
        self.unlabeled = PrivateRows(own, lambda: self.exposure.note_read())
        self.size = len(rows)
        """How many records the site has, for noise alone: a claim that stands on it says that the size is public.

        Those that are left out for their labels count: without them it would tell how many have which class."""
        self.held_out: LabelledData | None = None
        """Rows of its own that a real site keeps for testing and never trains on."""
        self.before_private_fit: Callable[[Charge], None] = lambda charge: None
        self.keyring: Callable[[], Keyring] = _no_keyring
        """Who this site is among the others, read when a protocol first asks for it."""
        self.log: Callable[[str], None] = lambda text: None
        """Writes into the site's own log."""
        self._simulation = simulation
        self.model: SiteModel | None = None
        self.state: dict[str, Any] = {}
        """What steps keep from one order to the next. It survives a crash, and the end of the run."""
        self.secret_state: dict[str, Any] = {}
        """Keys, masks and what they hide. It survives a crash, and is wiped from memory and disk when the run ends."""
        self._name = int.from_bytes(hashlib.sha256(self.name.encode()).digest()[:8])
        self._order = 0
        self._rng: np.random.Generator | None = np.random.default_rng(seed)
        self._noise: Noise | None = SecureNoise()
        self.watch = Stopwatch()
        self.noted: dict[str, float] = {}
        """Numbers that a simulation puts into its metrics. A real site sends none of them."""
        self._public = public
        self._seed = seed
        self._site = site
        self._trainer = Trainer(site.learner, classes)
        self._last_fit: tuple[Mixture, LocalUpdate, Any] | None = None

    @property
    def records(self) -> int:
        """How many private rows there are. That is private data too: what leaves after this is unprotected."""
        return len(self.data)  # which is noted as read

    @cached_property
    def fingerprint(self) -> str:
        """Tells whether data and learner are the same as when the run began. It stays at the site."""
        labels = hashlib.sha256(self.data.closed().codes.tobytes()).hexdigest()
        learner = re.sub(r" at 0x[0-9a-f]+", "", repr(self._site.learner))  # addresses differ between processes
        own = "" if self._site.unlabeled is None else tables.digest(self._site.unlabeled)
        return hashlib.sha256(f"{tables.digest(self._site.X)} {own} {labels} {learner}".encode()).hexdigest()

    @property
    def public(self) -> PublicSet:
        """The public set."""
        if self._public is None:
            raise ConfigError("This study has no public set.")
        return self._public

    def begin(self, number: int) -> None:
        """Start order `number`: its randomness depends on nothing that came before it."""
        self._order, self._rng = number, None
        if self._simulation:  # repeatable; a real site's noise never is
            self._noise = None

    @property
    def rng(self) -> np.random.Generator:
        """The site's randomness in this order, made when it is first used: most orders need none."""
        if self._rng is None:
            self._rng = self._generator_of(self._order)
        return self._rng

    def _generator_of(self, order: int) -> np.random.Generator:
        return np.random.default_rng([self._seed, self._name, order])

    @property
    def _drawn(self) -> tuple[int, Any]:
        """The order, and the state of its generator if something was drawn from it."""
        return self._order, None if self._rng is None else self._rng.bit_generator.state

    @property
    def noise(self) -> Noise:
        """What claims of privacy stand on: from the operating system, or repeatable in a simulation."""
        if self._noise is None:
            self._noise = SeededNoise(np.random.default_rng([self._seed, self._name, self._order, 1]))
        return self._noise

    def draw_secret(self, size: int) -> bytes:
        """Random bytes for the sites alone: from the operating system, or repeatable in a simulation."""
        return self.noise.words(-(-size // 8)).tobytes()[:size]

    def embed(self, X: Any) -> NDArray[Any]:
        """Features of rows by this site's model, or by its learner if that came pre-trained."""
        with self.watch.time("predict"):
            features = (self._site.learner if self.model is None else self.model.estimator).embed(X)
        return np.asarray(features)

    @property
    def backbone(self) -> str | None:
        """Name and hash of the pre-trained net that its learner's features come from; None if there is none."""
        found: str | None = getattr(self._site.learner, "backbone_in_use", None)
        return found

    def keep_labels(self, found: Labelled) -> None:
        """Keep labels of this site's own unlabeled points. They never leave it; a simulation looks them up."""
        self.state[_FOUND] = found

    @property
    def found_labels(self) -> Labelled | None:
        """The labels that were kept last."""
        found: Labelled | None = self.state.get(_FOUND)
        return found

    def fit(
        self,
        data: LabelledData | Mixture,
        epochs: int | None = None,
        steps: int | None = None,
        terms: LocalTerms | None = None,
    ) -> SiteModel:
        """Train this site's model, the only way to train it, and keep it as `site.model`.

        With a private learner the private rows are used as often as it says (`fits`) and charged each time; after
        that the site learns from public rows only. `terms` are for learners with weights.
        """
        mixture, update = self._mixture(data), LocalUpdate(epochs, steps, terms)
        with self.watch.time("fit"):
            if isinstance(self._site.learner, PrivateLearner):
                self.model = self._fit_privately(self._site.learner, mixture, update)
            else:
                opened = _opened(mixture)
                self._last_fit = (opened, update, self._drawn)
                self.model = self._trainer.fit(opened, self.model, lambda: self.rng, update)
        return self.model

    @property
    def has_learner(self) -> bool:
        """Whether the site brings a learner of its own."""
        return self._site.learner is not None

    @property
    def has_private_learner(self) -> bool:
        """Whether the site's own learner has a claim of its own."""
        return isinstance(self._site.learner, PrivateLearner)

    def fits_anew(self, epochs: int | None = None, steps: int | None = None) -> bool:
        """Whether every fit of the site's learner starts from scratch, so that it depends on its rows alone."""
        return self._trainer.fits_anew(LocalUpdate(epochs, steps))

    def trainer(self, learner: Recipe | None = None) -> Trainer:
        """The trainer of a described learner (None: the site's own)."""
        return self._trainer if learner is None else Trainer(build_learner(learner), self.classes)

    def train(self, data: LabelledData | Mixture, learner: Recipe | None = None) -> SiteModel:
        """Train a model beside the site's own, with the site's learner or a described one; it is not kept."""
        with self.watch.time("fit"):
            return self.trainer(learner).fit(_opened(self._mixture(data)), None, self.rng, LocalUpdate())

    def _fit_privately(self, learner: PrivateLearner, mixture: Mixture, update: LocalUpdate) -> SiteModel:
        if isinstance(mixture.private, PrivateData) and self.exposure.fits < learner.fits:
            model, self.state[_OWN_LABELS] = self._private_model(learner, mixture.private.closed(), mixture.pseudo)
            return model
        own = self.state.get(_OWN_LABELS)
        if own is None:
            raise ConfigError(
                "A private learner must first label the public set from private rows, and there were none."
            )
        codes = own.copy()
        if isinstance(mixture.pseudo, PseudoLabelled):
            codes[mixture.pseudo.known] = mixture.pseudo.codes
        return self._trainer.fit_public(LabelledData(self.public.X, codes), self.model, self.rng, update)

    def _private_model(
        self, learner: PrivateLearner, rows: LabelledData, pseudo: LabelledData
    ) -> tuple[SiteModel, Codes]:
        """One private fit, and its labels of the public set."""
        charge = learner.charge(self.size, len(self.public), self.n_classes)
        if not self._simulation and not self.exposure.fits:
            self.before_private_fit(charge)
            self._rehearse_private_fit()

        def fit() -> tuple[SiteModel, Codes]:
            rng = self.rng if self._simulation else None
            model = self._trainer.fit_private(rows, pseudo, self.public.X, rng, size=self.size)
            return model, model.predict_codes(self.public.X)

        def constant() -> tuple[SiteModel, Codes]:
            model = self._trainer.constant()
            return model, model.predict_codes(self.public.X)

        fitted = self.privately(charge, fit, constant)
        if self._simulation:  # its claim says whether its noise came from the seed
            self.exposure.restate_fit(fitted[0].estimator.charge_)
        return fitted

    def _rehearse_private_fit(self) -> None:
        """Fit public rows with made-up labels: settings that cannot work fail here, where that tells of no record."""
        rows = tables.take(self.public.X, np.arange(min(_REHEARSAL_ROWS, len(self.public))))
        made_up = (np.arange(tables.n_rows(rows)) % self.n_classes).astype(self.data.closed().codes.dtype)
        nothing = LabelledData(tables.take(rows, []), made_up[:0])
        self._trainer.fit_private(LabelledData(rows, made_up), nothing, self.public.X, None)

    def privately(self, charge: Charge, use: Callable[[], T], instead: Callable[[], T]) -> T:
        """Let `use` have the private rows, for what it costs: that is owed before a row is touched.

        At a real site an error in it would tell of the rows. It goes into the site's own log, and the answer is that
        of `instead`, which must not depend on them. A simulation has nothing to hide, and raises.
        """
        self.before_private_fit(charge)
        self.exposure.note_fit(charge)
        try:
            return use()
        except Exception:
            if self._simulation:
                raise
            self.log(f"a private fit failed; a fixed answer stands in for it:\n{traceback.format_exc()}")
            return instead()

    def observed_change(self, neighbours: int) -> int:
        """A diagnostic: the most labels of the public set that change when one private row is left out of the last fit.

        Over a sample of `neighbours` rows, all else as it was. Other rows, or rounds before, may change more.
        """
        if self._last_fit is None or self.model is None:
            raise ConfigError("Nothing was fitted on private rows in this process: there is no change to observe.")
        mixture, update, (order, state) = self._last_fit
        if not self._trainer.fits_anew(update):
            raise ConfigError(
                f"{type(self._site.learner).__name__} continues from its weights: it has no change to observe."
            )
        labels = self.model.predict_codes(self.public.X)
        left_out = self.rng.choice(len(mixture.private), size=min(neighbours, len(mixture.private)), replace=False)
        most = 0
        for row in left_out:
            keep = np.arange(len(mixture.private)) != row
            fewer = LabelledData(tables.take(mixture.private.X, keep), mixture.private.codes[keep])
            generator = self._generator_of(order)
            if state is not None:
                generator.bit_generator.state = state
            other = self._trainer.fit(replace(mixture, private=fewer), None, generator, update)
            most = max(most, int(np.count_nonzero(other.predict_codes(self.public.X) != labels)))
        return most

    def weights(self) -> Arrays:
        """The weights of this site's model; a Refused if any is NaN or infinite."""
        arrays: Arrays = self._net().get_weights()
        with beside_others(sum(value.nbytes for value in arrays.values())):
            finite = all(np.isfinite(value).all() for value in arrays.values())
        if not finite:
            raise Refused("diverged", f"The net of {self.name} has diverged: its weights are NaN or infinite.")
        return arrays

    def load(self, weights: Mapping[str, NDArray[Any]]) -> None:
        """Load weights into this site's model, which is created first if there is none yet."""
        if self.model is None:
            like = tables.take(self.data.closed().X, [])  # no private row is looked at
            self.model = self._trainer.untrained(like, int(self.rng.integers(2**31)))
        with self.watch.time("load"):
            self._net().set_weights(weights)

    def use_plain_sgd(self, lr: float | None) -> None:
        """Train this site's net by plain SGD from now on.

        Without a rate: at the learner's own, or at .1 where that is another optimizer's.
        """
        net = self._net()
        own = net.lr if net.optimizer == "sgd" else 0.1
        net.set_params(optimizer="sgd", lr=own if lr is None else lr)

    def train_net(
        self,
        epochs: int | None,
        steps: int | None,
        *terms: LocalTerm,
        train: Trained = "all",
        keep_optimizer: bool = False,
        rate: float = 1.0,
    ) -> float:
        """Train on from the present weights; returns its mini-batch steps x learning rate.

        With `train` = "head" only the last layer learns (linear evaluation). The optimizer is new, unless it is kept;
        `rate` times the learner's own is its learning rate.
        """
        asked = LocalTerms(terms, train=train, keep_optimizer=keep_optimizer, rate=rate)
        model = self.fit(self.data, epochs, steps, asked)
        report = model.estimator.last_update_
        return float(report.steps * report.lr)

    def train_net_privately(
        self, epochs: int | None, steps: int | None, *, bound: float, sigma: float, charge: Charge
    ) -> Arrays:
        """Train on from the present weights with the private rows; then clip all weights to `bound` and add noise.

        From then on the net has those noisy weights and no others, so that all that follows is post-processing of
        what is charged here. A net that diverged counts as zeros: a refusal would reveal it.
        """
        charge = charge.assuming(SEEDED_NOISE) if self.noise.seeded else charge
        start, model = self._net().get_weights(), self.model
        self.model = None

        def train() -> dict[str, NDArray[np.float64]]:
            with self.watch.time("fit"):
                mixture = self._mixture(self.data.closed())
                trained = self._trainer.fit(mixture, model, self.rng, LocalUpdate(epochs, steps, LocalTerms()))
            return clip(trained.estimator.get_weights(), bound)

        def zeros() -> dict[str, NDArray[np.float64]]:
            return {name: np.zeros(value.shape) for name, value in start.items()}

        clipped = self.privately(charge, train, zeros)
        noisy = with_true_variances(with_noise(clipped, sigma, 2 * bound, self.noise))
        self.load(noisy)
        return noisy

    def distill(self, rows: NDArray[np.integer[Any]], targets: NDArray[Any], epochs: int, lr: float) -> None:
        """Train this site's net to predict the class probabilities `targets` for these rows of the public set."""
        with self.watch.time("fit"):
            self._net().distill(self.public.take(rows), targets, epochs=epochs, lr=lr)

    def probabilities(self, X: PublicSet | Any) -> NDArray[np.float32]:
        """The class probabilities of this site's model, one column per class of the study."""
        with self.watch.time("predict"):
            known = self._trained().predict_proba(X.X if isinstance(X, PublicSet) else X)
        return self._numbers(known.astype(np.float32))

    def logits(self, rows: NDArray[np.integer[Any]]) -> NDArray[np.float32]:
        """The outputs of this site's net for these rows of the public set, before the softmax."""
        self._trained()
        with self.watch.time("predict"):
            answers: NDArray[np.float32] = self._net().predict_logits(self.public.take(rows))
        return self._numbers(answers)

    def _numbers(self, answers: NDArray[np.float32]) -> NDArray[np.float32]:
        """Answers that may leave; a Refused for those of a net that has diverged."""
        if not (np.abs(answers) <= LARGEST).all():  # which NaN is not, either
            raise Refused(
                "diverged", f"The net of {self.name} has diverged: its answers are NaN, infinite or too large."
            )
        return answers

    def _net(self) -> Any:
        if self.model is None or not hasattr(self.model.estimator, "set_weights"):
            raise ConfigError("This site's model has no weights.")
        return self.model.estimator

    def predict(self, X: PublicSet | Any) -> Labels:
        """The predictions of this site's model, as class codes."""
        model = self._trained()
        with self.watch.time("predict"):
            codes = model.predict_codes(X.X if isinstance(X, PublicSet) else X)
        return Labels(codes, self.n_classes)

    def _trained(self) -> SiteModel:
        if self.model is None:
            raise ConfigError("This site has no model yet: train before asking for labels.")
        return self.model

    def _mixture(self, data: LabelledData | Mixture) -> Mixture:
        """Rows as a mixture: those that come alone have no public rows beside them."""
        rows = self.data.closed()
        return data if isinstance(data, Mixture) else data + LabelledData(tables.take(rows.X, []), rows.codes[:0])


def _no_keyring() -> Keyring:
    raise ConfigError("This site has no identity key: it cannot take part in protocols between sites.")


def _opened(mixture: Mixture) -> Mixture:
    """The same, with its private rows noted as read."""
    rows = mixture.private
    return Mixture(rows.opened(), mixture.pseudo, mixture.weights) if isinstance(rows, PrivateData) else mixture
