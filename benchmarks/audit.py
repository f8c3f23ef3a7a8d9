"""False alarms and power of `cg.audit`: whole audits of sites that keep their claim, and of sites that do not.

    python -m benchmarks.audit [--audits 1_000] [--few 200] [--slow 40] [--jobs 0] [--keep FOLDER]

Every audit has its own seed: canaries, coins, run and noise are drawn anew. `PrivateTable` is a learner that an
attacker sees through as far as its claim allows, so that an audit that raised false alarms would raise them here; and
faults are planted into it, one at a time, while it claims the same. `audits` of it are correct, `few` have each fault,
and `slow` are of the library's own learners, and with shadows.
"""

from __future__ import annotations

import math
import warnings
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import KW_ONLY, dataclass, field
from typing import Any, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray
from sklearn.dummy import DummyClassifier
from sklearn.neighbors import NearestNeighbors
from sklearn.tree import DecisionTreeClassifier

import collegium as cg
from benchmarks.data import adult_numbers, data_folder
from benchmarks.pool import Found, Task, in_parallel, machines
from benchmarks.report import Column, Report, print_with_options, watched
from collegium.auditing.statistics import clopper_pearson
from collegium.core.labels import Codes
from collegium.core.samples import LabelledData
from collegium.core.settings import NonNegativeInt, OpenProbability, PositiveFloat, PositiveInt
from collegium.privacy.claims import Charge
from collegium.privacy.events import RandomizedResponse
from collegium.privacy.learners.classifier import PrivateClassifier
from collegium.privacy.noise import noise_source

EPSILON, CANARIES, SHADOWS, ROUNDS = 1.0, 400, 16, 3
BATCH: Final = 50
SMALL: dict[str, Any] = {"audits": 4, "few": 2, "slow": 1}
NO_FAULT, HALF, NONE, SEEDED, SENSITIVITY, COMPOSITION = (
    "none", "half the noise", "no noise", "seeded noise", "wrong sensitivity", "ignored composition",
)  # fmt: skip


@dataclass(eq=False, repr=False)
class PrivateTable(PrivateClassifier):
    """Remembers which public rows are nearest to a record of the last class, and says so by randomized response.

    Each record decides the labels of `reach` public rows, and randomized response is the worst that a given epsilon
    permits: what it claims is what it costs, unless it has a fault.
    """

    epsilon: PositiveFloat = EPSILON
    delta: OpenProbability = 1e-5
    _: KW_ONLY
    fits: PositiveInt = 1
    reach: PositiveInt = 1
    fault: str = NO_FAULT
    public: Any = None
    random_state: NonNegativeInt | None = None
    rows_: NearestNeighbors = field(init=False)
    codes_: Codes = field(init=False)

    def charge(self, n_records: int, n_public: int, n_classes: int) -> Charge:
        """One randomized response for each row that a record decides."""
        event = RandomizedResponse(self.reach, self.epsilon / self.reach / self.fits, n_classes)
        return Charge((event,), relation="add_remove", delta=self.delta, assumptions=self._seeding())

    def public_learner(self) -> Any:
        """What follows tells nothing about the records."""
        return DummyClassifier()

    def _learn(self, private: LabelledData, public: Any, pseudo: LabelledData | None, charge: Charge) -> None:
        noise = noise_source(np.random.default_rng(0)) if self.fault == SEEDED else self._noise_and_rng()[0]
        self.rows_ = NearestNeighbors().fit(public)
        known = private.X[private.codes == len(self.classes_) - 1]
        truth = np.zeros(len(public), dtype=np.int64)
        truth[self.rows_.kneighbors(known, self.reach, return_distance=False)] = len(self.classes_) - 1
        kept = noise.happens(1 / (1 + (len(self.classes_) - 1) * math.exp(-self._drawn_for())), len(truth))
        other = (truth + 1 + noise.below(len(self.classes_) - 1, len(truth))) % len(self.classes_)
        self.codes_ = np.where(kept, truth, other)

    def _drawn_for(self) -> float:
        """The epsilon of one label that the noise is drawn for."""
        too_much = {HALF: 2.0, NONE: math.inf, SENSITIVITY: float(self.reach), COMPOSITION: float(self.fits)}
        return self.epsilon / self.reach / self.fits * too_much.get(self.fault, 1.0)

    def _predict_codes(self, X: Any) -> Codes:
        return self.codes_[self.rows_.kneighbors(X, 1, return_distance=False)[:, 0]]


class VotingWithoutNoise(cg.PrivateVoting):
    """A fault in a private learner of the library: teachers vote, and nothing hides their votes."""

    def _noisy_winners(self, votes: NDArray[np.int64], event: Any, noise: Any) -> Codes:
        return np.asarray(votes.argmax(axis=1))


class Case(NamedTuple):
    """One kind of site, and how it is audited."""

    site: str
    learner: Any
    algorithm: cg.Algorithm
    options: Mapping[str, Any]
    share: str = "few"
    """Which of the numbers of audits."""
    fault: str = NO_FAULT
    on_adult: bool = False


def cases() -> list[Case]:
    """All kinds of sites."""
    one, three, noisy = (
        cg.FedCT(rounds=1),
        cg.FedCT(rounds=ROUNDS),
        cg.FedCT(rounds=1, mechanism=cg.RandomizedResponse(0.05)),
    )
    forged: dict[str, Any] = {"forged": True, "kinds": "ordinary", "canaries": CANARIES}
    honest, shadows = forged | {"forged": False}, forged | {"shadows": SHADOWS}
    tree, settings = DecisionTreeClassifier(max_depth=4), {"teachers": 40, "epsilon": EPSILON}
    sgd = cg.PrivateTorch("linear", epsilon=EPSILON, epochs=5, batch_size=128)
    adult: dict[str, Any] = {"options": forged | {"kinds": "mislabelled"}, "share": "slow", "on_adult": True}

    def faulty(site: str, fault: str, algorithm: cg.Algorithm, options: Mapping[str, Any], **own: Any) -> Case:
        share = "slow" if "shadows" in options else "few"
        return Case(site, PrivateTable(fault=fault, **own), algorithm, options, share, fault)

    return [
        Case("table", PrivateTable(), one, forged, "audits"),
        Case("table, 16 shadows", PrivateTable(), one, shadows, "slow"),
        Case("table, 3 fits", PrivateTable(fits=ROUNDS), three, forged),
        Case("table, 5 rows a record, honest set", PrivateTable(reach=5), one, honest),
        Case("PrivateVoting", cg.PrivateVoting(tree, **settings), one, **adult),
        Case("PrivateTorch, linear", sgd, one, **adult),
        Case("tree, RandomizedResponse on labels", tree, noisy, **adult),
        faulty("table", HALF, one, forged),
        faulty("table", NONE, one, forged),
        faulty("table, 16 shadows", SEEDED, one, shadows),
        faulty("table, no shadows", SEEDED, one, forged),
        faulty("table, 5 rows a record, honest set", SENSITIVITY, one, honest, reach=5),
        faulty("table, 10 rows a record, honest set", SENSITIVITY, one, honest, reach=10),
        faulty("table, 3 fits", COMPOSITION, three, forged, fits=ROUNDS),
        Case("PrivateVoting", VotingWithoutNoise(tree, **settings), one, fault=NONE, **adult),
    ]


def report(audits: int = 1_000, few: int = 200, slow: int = 40, jobs: int = 0, keep: str = "") -> Report:
    """Audit every kind of site, many times."""
    numbers, known = {"audits": audits, "few": few, "slow": slow}, cases()
    tasks = {
        f"{place}-{start}": Task(_audits, (place, start, min(start + BATCH, numbers[case.share])))
        for place, case in enumerate(known)
        for start in range(0, numbers[case.share], BATCH)
    }
    found: dict[int, list[Found]] = defaultdict(list)
    for key, part in watched(in_parallel(tasks, jobs, keep), "audits", len(tasks)):
        found[int(key.partition("-")[0])].append(part)
    rows = [_row(case, found[place]) for place, case in enumerate(known)]
    columns = {
        "site": Column("site"),
        "fault": Column("fault"),
        "claim": Column("claim", ".3f"),
        "audits": Column("audits", ",d"),
        "contradict the claim": Column("share", ".1%"),
        "95 % interval": Column("interval"),
        "mean AUC": Column("auc", ".3f"),
        "mean lower bound": Column("bound", ".3f"),
        "largest": Column("largest", ".3f"),
        "seconds each": Column("seconds", ".2f"),
    }
    notes = (
        f"FedCT, {CANARIES} canaries, alpha .05, view `coordinator`, forged public set where nothing else is said; 1 "
        f"round, or {ROUNDS} with 3 fits. Without a fault at most 5 % may contradict the claim. Noise that is the same "
        "in every run shows only beside other runs: an audit without shadows cannot find it. With an honest public set "
        "the attacker reads ten rows near a canary, of which a wrong sensitivity spoils five or all. What an attack "
        "does not see, it does not find: see the last row, where teachers vote without noise."
    )
    where = machines(part for parts in found.values() for part in parts)
    return Report("Audits that contradict the claim", columns, rows, notes, words=2, machine=where)


def _audits(place: int, start: int, stop: int) -> Found:
    """Audits with the seeds from `start` to `stop`."""
    case = cases()[place]
    outcomes = []
    for seed in range(start, stop):
        sites, public = _adult(case.learner, seed) if case.on_adult else _points(case.learner, seed)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", cg.CollegiumWarning)
            found = cg.audit(case.algorithm, sites, public, seed=seed, progress=False, **case.options)
        claim = math.nan if found.claim is None else found.claim.epsilon
        outcomes.append((found.verdict, claim, found.auc, found.epsilon_lower, found.seconds))
    verdicts, *numbers = zip(*outcomes, strict=True)
    return dict(zip(("claim", "auc", "bound", "seconds"), numbers, strict=True)) | {"verdicts": verdicts}


def _points(learner: Any, seed: int) -> tuple[list[cg.Site], Any]:
    """A site whose records all have the class that the public rows near them get; another that has both classes."""
    rng = np.random.default_rng([seed, 7])
    X, public = rng.normal(size=(CANARIES + 100, 2)), rng.normal(size=(5_000, 2))
    other = cg.Site("other", rng.normal(size=(60, 2)), np.arange(60) % 2, learner=DummyClassifier())
    return [cg.Site("site", X, np.ones(len(X), dtype=np.int64), learner=learner), other], public


def _adult(learner: Any, seed: int) -> tuple[list[cg.Site], Any]:
    """Census records: a site with 2,000 of them, another with 500; 500 are public."""
    X, y = adult_numbers(data_folder())
    drawn = np.random.default_rng([seed, 7]).permutation(len(X))[:3_000]
    X, y = X[drawn], y[drawn]
    other = cg.Site("other", X[2_000:2_500], y[2_000:2_500], learner=DecisionTreeClassifier(max_depth=4))
    return [cg.Site("site", X[:2_000], y[:2_000], learner=learner), other], X[2_500:]


def _row(case: Case, parts: list[Found]) -> dict[str, Any]:
    every = {key: [value for part in parts for value in part[key]] for key in parts[0] if key != "machine"}
    verdicts = every["verdicts"]
    if "no claim" in verdicts:
        raise RuntimeError(f"{case.site}: an audit found no claim, so nothing was measured.")
    flagged = verdicts.count("contradicts the claim")
    low, high = clopper_pearson(flagged, len(verdicts))
    return {
        "site": case.site,
        "fault": case.fault,
        "audits": len(verdicts),
        "share": flagged / len(verdicts),
        "interval": f"{low:.1%} to {high:.1%}",
        "largest": max(every["bound"]),
    } | {key: float(np.mean(every[key])) for key in ("claim", "auc", "bound", "seconds")}


if __name__ == "__main__":
    print_with_options(report, __doc__)
