"""Centralized: the pooled upper bound, in a simulation only."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import partial

import numpy as np
import pandas as pd
import pytest
from scipy import sparse
from sklearn.compose import make_column_selector, make_column_transformer
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder, StandardScaler
from sklearn.tree import DecisionTreeClassifier

import collegium as cg
from collegium.algorithms.centralized import hand_over
from collegium.core import Federation
from collegium.core.link import Answer
from collegium.errors import ConfigError, QuorumLost
from collegium.protocols.keyring import Keyring
from collegium.site.factory import open_site


def pooled(split) -> tuple[np.ndarray, np.ndarray]:
    return np.concatenate([X for X, _ in split.sites]), np.concatenate([y for _, y in split.sites])


def test_every_model_is_the_learner_fitted_on_the_pool(cancer) -> None:
    run = cancer.run(cg.Centralized(), DecisionTreeClassifier(max_features=3, random_state=0))
    by_hand = DecisionTreeClassifier(max_features=3, random_state=0).fit(*pooled(cancer.split))
    assert len(run.models) == 5
    for model in run.models.values():
        np.testing.assert_array_equal(model.predict(cancer.split.public), by_hand.predict(cancer.split.public))
    assert set(run.accuracy.iloc[-1]) == {by_hand.score(*cancer.split.test)}


def test_each_sites_own_learner_gets_its_own_upper_bound(cancer) -> None:
    learners = [DecisionTreeClassifier(random_state=0), make_pipeline(StandardScaler(), LogisticRegression())]
    parts = cancer.split.sites[:2]
    sites = [cg.Site(f"s{i}", *part, learner=learners[i]) for i, part in enumerate(parts)]
    run = cg.run(cg.Centralized(), sites=sites, test=cancer.split.test)
    X, y = (np.concatenate(both) for both in zip(*parts, strict=True))
    for site in sites:
        assert run.accuracy.loc[0, site.name] == site.learner.fit(X, y).score(*cancer.split.test)


def test_the_releases_show_what_it_costs(cancer) -> None:
    run = cancer.run(cg.Centralized())
    assert list(run.releases["kind"]) == ["RawRecords"] * 5
    assert (run.releases["bytes"] == 17 * (30 * 8 + 1)).all()
    assert run.labels is None


def test_a_site_that_keeps_its_records_is_left_out_of_the_pool(cancer) -> None:
    learner = DecisionTreeClassifier(random_state=0)
    sites = cancer.sites(learner)
    sites[4] = cg.Site("site4", sites[4].X, sites[4].y, learner=learner, policy=cg.Policy(unprotected=("HardLabels",)))
    with pytest.warns(cg.CollegiumWarning, match=r"site4.*unprotected"):
        run = cancer.run(cg.Centralized(), sites=sites)
    X, y = (np.concatenate(both) for both in zip(*cancer.split.sites[:4], strict=True))
    expected = DecisionTreeClassifier(random_state=0).fit(X, y).score(*cancer.split.test)
    assert run.accuracy.loc[0, "site0"] == expected


class Agents:
    """A link to agents that are no simulation: real sites, in this process."""

    def __init__(self, sites: list[cg.Site]) -> None:
        self.parties = tuple(site.name for site in sites)
        self.agents = {
            site.name: open_site(
                site,
                np.array(["benign", "malignant"]),
                None,
                0,
                "r",
                simulation=False,
                keyring=partial(Keyring.simulated, "r", site.name, self.parties),
                ledger=None,
                folder=None,
            )
            for site in sites
        }

    def exchange(self, orders: Mapping[str, bytes], deadline: float | None) -> Iterator[Answer]:
        for party, frame in orders.items():
            yield Answer(party, self.agents[party].serve(frame))


def test_no_record_leaves_a_site_outside_a_simulation(cancer) -> None:
    link = Agents(cancer.sites())
    fed = Federation(link, run="r", n_classes=2, seed=0)
    with pytest.raises(QuorumLost, match="release-denied"):
        cg.Centralized().coordinate(fed)
    assert {row["code"] for row in fed.observed.refusals} == {"release-denied"}
    assert not fed.observed.releases
    assert all(not agent.gate.ledger.rows() for agent in link.agents.values())
    assert cg.Centralized.simulation_only


def test_even_a_single_question_is_refused(cancer) -> None:
    fed = Federation(Agents(cancer.sites()), run="r", n_classes=2, seed=0)
    with pytest.raises(QuorumLost):
        fed.ask(hand_over(), ["site0"])


def test_data_frames_are_pooled_with_their_types(cancer) -> None:
    rng = np.random.default_rng(0)
    n = 300
    y = rng.choice(["sick", "well"], size=n)
    X = pd.DataFrame(
        {
            "ward": pd.Categorical(np.where(y == "sick", "a", rng.choice(["a", "b", "c"], size=n))),
            "age": rng.normal(size=n),
            "note": rng.choice(np.array(["x", "y"], dtype=object), size=n),
        }
    )
    X.loc[::9, "age"] = np.nan
    split = cg.split(X, y, sites=3, public=20, test=100, seed=0)
    words = make_column_selector(dtype_exclude="number")
    learner = make_pipeline(
        make_column_transformer((OneHotEncoder(handle_unknown="ignore"), words), remainder="passthrough"),
        DecisionTreeClassifier(max_depth=4, random_state=0),
    )
    sites = [cg.Site(f"s{i}", *part, learner=learner) for i, part in enumerate(split.sites)]
    run = cg.run(cg.Centralized(), sites=sites, test=split.test)
    pool = pd.concat([part for part, _ in split.sites], ignore_index=True)
    expected = learner.fit(pool, np.concatenate([labels for _, labels in split.sites])).score(*split.test)
    assert run.accuracy.loc[0].tolist() == [expected] * 3


def test_sparse_tables_are_pooled_sparse(digits) -> None:
    sites = [
        cg.Site(f"s{i}", sparse.csr_array(X), y, learner=DecisionTreeClassifier(random_state=0))
        for i, (X, y) in enumerate(digits.split.sites)
    ]
    test = (sparse.csr_array(digits.split.test[0]), digits.split.test[1])
    run = cg.run(cg.Centralized(), sites=sites, test=test)
    pool, labels = pooled(digits.split)
    expected = DecisionTreeClassifier(random_state=0).fit(sparse.csr_array(pool), labels).score(*test)
    assert run.accuracy.loc[0].tolist() == [expected] * 5
    assert run.refusals.empty


def test_it_is_an_upper_bound(digits) -> None:
    tree = DecisionTreeClassifier()
    pool, alone = (digits.run(algorithm, tree).accuracy.iloc[-1].mean() for algorithm in (cg.Centralized(), cg.Local()))
    assert pool > alone + 0.1


@pytest.mark.parametrize("name", ["rounds", "epochs", "steps"])
def test_counts_start_at_one(name: str) -> None:
    with pytest.raises(ConfigError, match=f"Centralized: {name}"):
        cg.Centralized(**{name: 0})
