"""Familiar: sites that know few classes vote only where a public sample looks like their own data."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import pytest
from scipy import sparse
from sklearn.compose import make_column_selector, make_column_transformer
from sklearn.datasets import load_digits
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.impute import SimpleImputer
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer, MaxAbsScaler, OneHotEncoder, StandardScaler
from sklearn.tree import DecisionTreeClassifier

import collegium as cg
from collegium.algorithms.fedct import label, train
from collegium.consensus.familiar import familiarity, vote_where_familiar
from collegium.core import Federation
from collegium.core.public_set import PublicSet
from collegium.data.public import Split
from collegium.errors import ConfigError
from collegium.links.hosting import Hosting
from collegium.links.local import LocalLink

pytestmark = pytest.mark.xdist_group("familiar")  # its fixtures are made once

LEARNER = make_pipeline(StandardScaler(), LogisticRegression(max_iter=300))


def split_digits(partition: Any, sites: int = 5, make: Any = np.asarray) -> Split:
    X, y = load_digits(return_X_y=True)
    return cg.split(make(X), y, sites=sites, public=500, test=400, train=400, partition=partition, seed=0)


def run(split: Split, learner: Any, voters: cg.Voters | None, rounds: int = 2, **settings: Any) -> cg.Run:
    sites = [cg.Site(f"site{i}", X, y, learner=learner) for i, (X, y) in enumerate(split.sites)]
    return cg.run(
        cg.FedCT(rounds=rounds, voters=voters, **settings),
        sites=sites,
        public=split.public,
        test=split.test,
        public_truth=split.public_truth,
    )


def accuracy(result: cg.Run) -> float:
    return float(result.accuracy.iloc[-1].mean())


@pytest.fixture(scope="module")
def skewed() -> Split:
    return split_digits(cg.Pathological(2))


@pytest.fixture(scope="module")
def familiar_run(skewed: Split) -> cg.Run:
    return run(skewed, LEARNER, cg.Familiar(), rounds=3)


def test_it_beats_the_majority_by_far_where_sites_know_two_classes(skewed: Split, familiar_run: cg.Run) -> None:
    majority = accuracy(run(skewed, LEARNER, None, rounds=3))
    assert majority < 0.6
    assert accuracy(familiar_run) > majority + 0.3
    assert accuracy(familiar_run) > 0.85


def test_it_beats_the_majority_under_dirichlet_skew_too() -> None:
    split = split_digits(cg.BalancedDirichlet(0.01))
    assert accuracy(run(split, LEARNER, cg.Familiar())) > accuracy(run(split, LEARNER, None)) + 0.2


def test_only_hard_labels_leave_the_sites(familiar_run: cg.Run) -> None:
    assert set(familiar_run.releases["kind"]) == {"HardLabels"}
    assert len(familiar_run.releases) == 5 * 3


def test_sites_abstain_in_the_first_communication_only(familiar_run: cg.Run) -> None:
    size = familiar_run.metrics.query("metric == 'consensus_size'")["value"].tolist()
    assert 0.3 < size[0] < 0.95
    assert size[1:] == [1, 1]
    steps = familiar_run.releases.groupby("round")["step"].unique().map(list).tolist()
    assert steps == [["familiar.vote_where_familiar"], ["fedct.label"], ["fedct.label"]]


def test_more_communications_can_be_asked_for(skewed: Split) -> None:
    result = run(skewed, LEARNER, cg.Familiar(communications=2), rounds=6, period=2)
    steps = result.releases.groupby("round")["step"].first()
    assert steps.to_dict() == {1: "familiar.vote_where_familiar", 3: "familiar.vote_where_familiar", 5: "fedct.label"}


def test_a_site_votes_for_its_own_classes_and_where_it_votes_it_is_mostly_right(skewed: Split) -> None:
    public = PublicSet(skewed.public)
    sites = tuple(cg.Site(f"site{i}", X, y, learner=LEARNER) for i, (X, y) in enumerate(skewed.sites))
    link = LocalLink(Hosting(sites, np.arange(10), public, None, 0))
    try:
        fed = Federation(link, run="r", n_classes=10, seed=0, public=public)
        fed.tell(train(None, None, None))
        votes = {party: release.labels for party, release in fed.ask(vote_where_familiar(1.0)).items()}
        strict = {party: release.labels for party, release in fed.ask(vote_where_familiar(4.0)).items()}
        opinions = {party: release.labels for party, release in fed.ask(label()).items()}
    finally:
        link.close()
    assert set(votes) == {site.name for site in sites}
    for site in sites:
        cast = votes[site.name]
        assert set(cast.codes[cast.known]) == set(site.y)
        np.testing.assert_array_equal(cast.codes[cast.known], opinions[site.name].codes[cast.known])
        own = np.isin(skewed.public_truth, site.y)
        assert cast.known[own].mean() > 0.5
        assert cast.known[~own].mean() < 0.1
        assert np.mean(cast.codes[cast.known] == skewed.public_truth[cast.known]) > 0.8
        assert strict[site.name].coverage <= cast.coverage


def test_the_same_seed_gives_the_same_votes(skewed: Split, familiar_run: cg.Run) -> None:
    again = run(skewed, LEARNER, cg.Familiar(), rounds=3)
    assert list(again.releases["sha256"]) == list(familiar_run.releases["sha256"])


def test_rows_like_ones_own_are_familiar_and_others_are_not() -> None:
    rng = np.random.default_rng(0)
    own = rng.normal(size=(60, 2))
    public = np.concatenate([rng.normal(size=(50, 2)), rng.normal(size=(250, 2)) + 6])
    known = familiarity(own, public, 1.0, rng)
    assert known.shape == (300,)
    assert known[:50].mean() > 0.8
    assert known[50:].mean() < 0.02


def test_a_class_that_fills_the_public_set_stays_familiar() -> None:
    rng = np.random.default_rng(0)
    own, public = rng.normal(size=(200, 2)), rng.normal(size=(300, 2))
    assert familiarity(own, public, 3.0, rng).mean() > 0.1  # no row can have log odds of 3 here


# Kinds of data


def patients(n: int, rng: np.random.Generator) -> tuple[pd.DataFrame, np.ndarray]:
    """Three diseases, told apart by a number and by words, with holes in both."""
    y = rng.integers(3, size=n)
    ward = np.array(["skin", "heart", "lung"], dtype=object)[np.where(rng.random(n) < 0.9, y, rng.integers(3, size=n))]
    marker = rng.normal(size=n) + 6.0 * y
    marker[rng.random(n) < 0.1] = np.nan
    ward[rng.random(n) < 0.1] = None
    frame = pd.DataFrame(
        {
            "marker": marker,
            "ward": pd.Categorical(ward),
            "smoker": rng.random(n) < 0.5,
            "visits": pd.array(rng.integers(9, size=n), dtype="Int64"),
            "empty": np.full(n, np.nan),
        }
    )
    frame.loc[::7, "visits"] = pd.NA
    return frame, np.array(["eczema", "infarct", "asthma"])[y]


def test_data_frames_with_categories_and_missing_values() -> None:
    X, y = patients(900, np.random.default_rng(0))
    split = cg.split(X, y, sites=3, public=400, test=200, partition=cg.Pathological(1), seed=0)
    learner = make_pipeline(
        make_column_transformer(
            (SimpleImputer(keep_empty_features=True), make_column_selector(dtype_include="number")),
            (OneHotEncoder(handle_unknown="ignore"), make_column_selector(dtype_exclude="number")),
        ),
        DecisionTreeClassifier(max_depth=4),
    )
    result = run(split, learner, cg.Familiar())
    assert result.refusals.empty
    assert accuracy(result) > 0.85
    assert accuracy(run(split, learner, None)) < 0.6


def test_sparse_rows() -> None:
    split = split_digits(cg.Pathological(2), make=sparse.csr_array)
    learner = make_pipeline(MaxAbsScaler(), LogisticRegression(max_iter=300))
    result = run(split, learner, cg.Familiar())
    assert sparse.issparse(split.public)
    assert result.refusals.empty
    assert accuracy(result) > accuracy(run(split, learner, None)) + 0.2


OTHERS = "the patient says that it was there before and is now worse than last week"
SPOKEN_OF = {
    "heart": "pulse artery valve beat chest pressure",
    "skin": "rash itch red sore spot cream",
    "lung": "cough breath smoke wheeze air phlegm",
}


def notes(rows: int, rng: np.random.Generator) -> tuple[pd.DataFrame, np.ndarray]:
    """Texts of which no two are the same, about three diseases."""
    y = rng.choice(sorted(SPOKEN_OF), rows)
    texts = [" ".join([*rng.choice(SPOKEN_OF[each].split(), 4), *rng.choice(OTHERS.split(), 8)]) for each in y]
    texts[0] = None  # type: ignore[call-overload]
    return pd.DataFrame({"note": pd.Series(texts, dtype=object)}), y


def test_texts_are_compared_by_their_words() -> None:
    """Hardly two of them are the same: as values of a category, none would be like another."""
    X, y = notes(500, np.random.default_rng(0))
    split = cg.split(X, y, sites=3, public=250, test=100, partition=cg.Pathological(1), seed=0)
    learner = make_pipeline(FunctionTransformer(written), TfidfVectorizer(), LogisticRegression())
    result = run(split, learner, cg.Familiar())
    assert result.refusals.empty
    assert accuracy(result) > 0.85
    assert accuracy(run(split, learner, None)) < 0.6


def written(X: pd.DataFrame) -> list[str]:
    return list(X["note"].fillna(""))


def flatten(X: np.ndarray) -> np.ndarray:
    return X.reshape(len(X), -1)


def test_images_are_compared_as_rows_of_numbers(skewed: Split, familiar_run: cg.Run) -> None:
    images = split_digits(cg.Pathological(2), make=lambda X: X.reshape(-1, 1, 8, 8))
    learner = make_pipeline(FunctionTransformer(flatten), *(step for _, step in LEARNER.steps))
    result = run(images, learner, cg.Familiar(), rounds=3)
    assert images.public.ndim == 4
    assert result.refusals.empty
    assert result.labels == familiar_run.labels


def test_sites_with_one_class_each() -> None:
    split = split_digits(cg.Pathological(1), sites=10)
    assert all(len(np.unique(y)) == 1 for _, y in split.sites)
    result = run(split, LEARNER, cg.Familiar())
    assert result.refusals.empty
    assert accuracy(result) > 0.8
    assert accuracy(run(split, LEARNER, None)) < 0.3


def test_a_site_does_not_vote_for_a_class_of_which_it_has_fewer_than_five_rows() -> None:
    rng = np.random.default_rng(0)
    y = np.repeat([0, 1], [4, 40])
    X = rng.normal(size=(44, 2)) + 8 * y[:, None]
    U = rng.normal(size=(200, 2)) + 8 * np.repeat([0, 1], 100)[:, None]
    public = PublicSet(U)
    site = cg.Site("small", X, y, learner=DecisionTreeClassifier(random_state=0))
    link = LocalLink(Hosting((site,), np.arange(2), public, None, 0))
    try:
        fed = Federation(link, run="r", n_classes=2, seed=0, public=public)
        fed.tell(train(None, None, None))
        codes = fed.ask(vote_where_familiar(1.0))["small"].labels.codes
    finally:
        link.close()
    assert set(codes[:100]) == {-1}
    assert np.mean(codes[100:] == 1) > 0.3


def test_tiny_sites_all_abstain_and_the_run_goes_on() -> None:
    X, y = load_digits(return_X_y=True)
    sites = [cg.Site(f"site{i}", X[i::500][:3], y[i::500][:3], learner=DecisionTreeClassifier()) for i in range(4)]
    result = cg.run(cg.FedCT(rounds=2, voters=cg.Familiar()), sites=sites, public=X[1000:1200])
    assert result.refusals.empty
    size = result.metrics.query("metric == 'consensus_size'")["value"].tolist()
    assert size == [0, 1]  # then all vote
    with pytest.warns(cg.CollegiumWarning, match="No global model"):
        alone = cg.run(cg.FedCT(rounds=1, voters=cg.Familiar()), sites=sites, public=X[1000:1200])
    assert not alone.labels.known.any()
    assert alone.global_model is None


@pytest.mark.parametrize("settings", [{"threshold": float("nan")}, {"threshold": float("inf")}, {"communications": 0}])
def test_bad_settings_are_an_error(settings: dict[str, float]) -> None:
    with pytest.raises(ConfigError, match=next(iter(settings))):
        cg.Familiar(**settings)


def test_arrays_of_words_are_compared_too(digits):
    split = digits.split
    words = np.array(["none", "some", "much"])
    public, test = (words[np.digitize(X, [4, 10])] for X in (split.public, split.test[0]))
    learner = make_pipeline(OneHotEncoder(handle_unknown="ignore"), LogisticRegression(max_iter=200))
    sites = [
        cg.Site(name, words[np.digitize(X, [4, 10])], y, learner=learner)
        for name, (X, y) in zip(split.names, split.sites, strict=True)
    ]
    algorithm = cg.FedCT(rounds=2, voters=cg.Familiar())
    run = cg.run(algorithm, sites=sites, public=public, test=(test, split.test[1]))
    assert run.refusals.empty
    assert run.summary().loc["mean", "accuracy"] > 0.8


def test_on_a_handful_of_public_samples_everybody_votes(digits):
    run = digits.run(cg.FedCT(rounds=2, voters=cg.Familiar()), public=digits.split.public[:2])
    assert run.refusals.empty
    assert run.labels.known.all()
