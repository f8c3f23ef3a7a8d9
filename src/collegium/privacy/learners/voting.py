"""Makes any learner differentially private: teachers vote with noise, a student learns the votes (PATE).

Papernot, Abadi, Erlingsson, Goodfellow, Talwar: "Semi-supervised Knowledge Transfer for Deep Learning from Private
Training Data", arXiv 1610.05755; with Gaussian noise as in their "Scalable Private Learning with PATE", arXiv
1802.08908. It is the first tier of FedKT's example-level privacy (arXiv 2010.01017).

The records are divided among teachers, each of which learns from its own and votes on some public samples. Adding or
removing a record changes one teacher, so at most one vote per sample moves from one class to another: the counts of a
sample change by 2 in L1 and by sqrt(2) in L2. Replacing a record may affect two teachers: two votes move, perhaps both
between the same two classes: 4 in L1 and 2 sqrt(2) in L2.

Deviation from the papers: the accounting does not look at the votes, so the stated epsilon may be published.

What to expect: at epsilon 1, the noise on each of 100 queries is that of 53 votes. On census records (Adult), with 6200
at each of five sites and 10,000 public samples, one student's test accuracy is .79, with trees or logistic regressions
as teachers, and that of FedCT's sites .78 to .81; without privacy it is .86, with `PrivateTorch` .848. One student, by
teachers: 50 .71, 100 .79, 200 .80, 300 .77 (20 records teach little); by queries: 50 .79, 100 .79, 500 .75, 2000 .65.
If a linear model or a net can learn the task at all, prefer `PrivateTorch`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import KW_ONLY, dataclass, field
from math import sqrt
from typing import Any, Final, Literal

import numpy as np
from numpy.typing import NDArray
from sklearn.base import clone
from sklearn.ensemble import RandomForestClassifier
from sklearn.pipeline import Pipeline
from sklearn.tree import DecisionTreeClassifier
from sklearn.utils.metaestimators import available_if

from collegium.core.labels import Codes
from collegium.core.samples import LabelledData
from collegium.core.settings import Learner, NonNegativeInt, OpenProbability, PositiveFloat, PositiveInt
from collegium.learners.base import LocalUpdate, SiteModel, Trainer
from collegium.learners.prepare import takes_gaps
from collegium.privacy.claims import Charge
from collegium.privacy.events import Event, Gaussian, Laplace
from collegium.privacy.learners.assignment import teacher_of
from collegium.privacy.learners.classifier import PrivateClassifier
from collegium.privacy.noise import Noise
from collegium.wire import tables

Counts = NDArray[np.int64]
QUERIES: Final = 100
"""More labels with more noise, or fewer with less: see above for what was measured."""
_REHEARSAL_ROWS: Final = 50
_L1: Final = {"add_remove": 2.0, "replace": 4.0}
_L2: Final = {"add_remove": sqrt(2), "replace": 2 * sqrt(2)}


@dataclass(eq=False, repr=False)
class PrivateVoting(PrivateClassifier):
    """Teachers on disjoint records vote with noise on public samples; a student learns the winners.

    Parameters
    ----------
    base
        The teachers' learner: any classifier or Pipeline (None: a decision tree). Put preprocessing into its Pipeline,
        where each teacher fits its own; in front of this learner it would see all records unprotected.
    teachers
        How many. More of them outvote more noise but have fewer records each; start with 50 records for each. Do not
        derive the number from the exact number of records: one more would then move them all.
    epsilon, delta
        The privacy of all `fits` fits together.
    student
        What learns the votes (None: like `base`, or a random forest if that is None too). Some of the labels are wrong:
        a learner that averages, such as a forest, does better than one that fits them all, such as a tree.
    noise
        "gaussian" or "laplace". Gaussian is better for more than a few queries.
    queries
        How many public samples the teachers vote on, drawn at random (None: 100, or all if there are fewer). Twice the
        queries means 1.4 times the noise on each.
    fits
        How many private fits `epsilon` and `delta` cover.
    relation
        What a neighbouring data set is: one with a record more or less ("add_remove"), or with one record replaced
        ("replace", twice the noise).
    public
        Public rows, used if `fit` is given none.
    random_state
        None: secure noise. An integer: a reproducible simulation.

    Attributes
    ----------
    classes_ : the classes.
    student_ : the fitted student.
    charge_, privacy_ : what this fit cost.
    """

    base: Learner = None
    teachers: PositiveInt = 100
    epsilon: PositiveFloat = 1.0
    delta: OpenProbability = 1e-5
    _: KW_ONLY
    student: Learner = None
    noise: Literal["gaussian", "laplace"] = "gaussian"
    queries: PositiveInt | None = None
    fits: PositiveInt = 1
    relation: Literal["add_remove", "replace"] = "add_remove"
    public: Any = None
    random_state: NonNegativeInt | None = None
    student_: SiteModel = field(init=False)

    def charge(self, n_records: int, n_public: int, n_classes: int) -> Charge:
        """One noisy count of votes per query. The numbers of records and classes do not change the cost."""
        from collegium.privacy import accountant

        queries = self._n_queries(n_public)
        event: Event
        if self.noise == "gaussian":
            event = Gaussian(queries, accountant.noise_multiplier(self.epsilon, self.delta, queries * self.fits))
        else:
            event = Laplace(queries, accountant.laplace_multiplier(self.epsilon, self.delta, queries * self.fits))
        return Charge((event,), relation=self.relation, delta=self.delta, assumptions=self._seeding())

    def with_preparation(self, wrap: Callable[[Any], Any]) -> PrivateVoting:
        """The same with the preprocessing that the data needs: each teacher prepares its own records."""
        prepared: PrivateVoting = clone(self, safe=False)
        prepared.set_params(base=wrap(self._base()), student=wrap(self._student()))
        return prepared

    def public_learner(self) -> Any:
        """Another student."""
        return clone(self._student(), safe=False)

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        parts = self._base(), self._student()
        tags.input_tags.allow_nan = all(isinstance(part, Pipeline) or takes_gaps(part) for part in parts)
        return tags

    @available_if(lambda self: hasattr(self._student(), "predict_proba"))  # type: ignore[untyped-decorator]
    def predict_proba(self, X: Any) -> NDArray[np.float64]:
        """The student's class probabilities, with columns in the order of `classes_`."""
        return self.student_.predict_proba(X)

    def _learn(self, private: LabelledData, public: Any, pseudo: LabelledData | None, charge: Charge) -> None:
        noise, rng = self._noise_and_rng()
        self._rehearse(public, rng)
        # The samples are drawn from the public set alone.
        queried = tables.take(public, rng.choice(tables.n_rows(public), self._n_queries(tables.n_rows(public)), False))
        labels = self._noisy_winners(self._votes(private, queried, pseudo, rng), charge.events[0], noise)
        self.student_ = _fit(self._student(), self.classes_, LabelledData(queried, labels), rng)

    def _votes(
        self, private: LabelledData, queried: Any, pseudo: LabelledData | None, rng: np.random.Generator
    ) -> Counts:
        """How many teachers vote for each class on each queried sample."""
        votes = np.zeros((tables.n_rows(queried), len(self.classes_)), dtype=np.int64)
        samples = np.arange(len(votes))
        place = teacher_of(private.X, self.teachers)
        # A generator for each teacher: what one of them draws moves no other one's numbers.
        for teacher, own_rng in enumerate(rng.spawn(self.teachers)):
            own = np.flatnonzero(place == teacher)
            if len(own):  # a teacher without records abstains
                records = LabelledData(tables.take(private.X, own), private.codes[own])
                votes[samples, self._opinion(records, queried, pseudo, own_rng)] += 1
        return votes

    def _opinion(
        self, records: LabelledData, queried: Any, pseudo: LabelledData | None, rng: np.random.Generator
    ) -> Codes | int:
        """One teacher's votes: a function of its own records and of public data only, whatever happens."""
        try:
            return _fit(self._base(), self.classes_, records, rng, pseudo).predict_codes(queried)
        except Exception:
            # An error that escapes would reveal something about these records.
            return int(np.bincount(records.codes).argmax())

    def _rehearse(self, public: Any, rng: np.random.Generator) -> None:
        """Fit a teacher on public samples with made-up labels, so that a learner that cannot work fails here."""
        rows = tables.take(public, np.arange(min(_REHEARSAL_ROWS, tables.n_rows(public))))
        made_up = (np.arange(tables.n_rows(rows)) % len(self.classes_)).astype(np.int64)
        _fit(self._base(), self.classes_, LabelledData(rows, made_up), rng).predict_codes(rows)

    def _noisy_winners(self, votes: Counts, event: Event, noise: Noise) -> Codes:
        if isinstance(event, Laplace):
            noisy = noise.add_laplace(votes, event.noise_multiplier * _L1[self.relation], _L1[self.relation])
        elif isinstance(event, Gaussian):
            noisy = noise.add_normal(votes, event.noise_multiplier * _L2[self.relation], _L2[self.relation])
        winners: Codes = noisy.argmax(axis=1)
        return winners

    def _predict_codes(self, X: Any) -> Codes:
        return self.student_.predict_codes(X)

    def _n_queries(self, n_public: int) -> int:
        return min(QUERIES if self.queries is None else int(self.queries), n_public)

    def _base(self) -> Any:
        return DecisionTreeClassifier() if self.base is None else self.base

    def _student(self) -> Any:
        if self.student is None:
            return RandomForestClassifier() if self.base is None else self.base
        return self.student


def _fit(
    learner: Any,
    classes: NDArray[Any],
    data: LabelledData,
    rng: np.random.Generator,
    pseudo: LabelledData | None = None,
) -> SiteModel:
    """A new model of the data, whatever classes it has, that knows the positions of all `classes`."""
    nothing = LabelledData(tables.take(data.X, np.zeros(0, dtype=np.intp)), data.codes[:0])
    return Trainer(learner, classes).fit(data + (pseudo or nothing), None, rng, LocalUpdate())
