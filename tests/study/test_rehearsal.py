from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

from collegium.errors import ConfigError
from collegium.privacy.learners.base import PrivateLearner
from collegium.study.rehearsal import explain, rehearse, rehearse_federation, sent_at_most
from collegium.study.study import Study

TABLE = {
    "data": {"source": "digits", "public": 700, "test": 300},
    "partition": {"sites": 4},
    "algorithm": {"name": "fedct", "rounds": 50},
    "sites": [{"learner": "decision_tree"}],
}


def test_a_rehearsal_shows_the_orders_and_releases_of_the_first_rounds():
    run = rehearse(Study.from_dict(TABLE), rounds=2)
    assert set(run.orders["steps"]) == {"fedct.train fedct.label"}
    assert len(run.orders) == len(run.releases) == 8
    first = run.releases[run.releases["round"] == 0]
    assert (first["bytes"] <= 1.05 * 700 * np.log2(10) / 8).all()


def test_a_rehearsal_has_the_sizes_of_the_real_first_round():
    study = Study.from_dict(TABLE | {"algorithm": {"name": "fedct", "rounds": 1}})
    assert list(rehearse(study).releases["bytes"]) == list(study.run().releases["bytes"])


@pytest.mark.parametrize("algorithm", ["fedct", "fedkt"])
@pytest.mark.parametrize("learner", ["decision_tree", "naive_bayes"])
def test_no_site_sends_more_than_a_rehearsal_says(algorithm, learner):
    few = {"fedct": {"name": "fedct", "rounds": 3, "consensus": "qualified_majority"}}
    study = Study.from_dict(
        TABLE | {"algorithm": few.get(algorithm, algorithm), "sites": [{"learner": {"name": learner}}]}
    )
    rehearsed, done = rehearse(study), study.run(progress=False)
    most = sent_at_most(rehearsed).groupby([rehearsed.releases["round"], rehearsed.releases["party"]]).sum()
    sent = done.costs.set_index(["round", "party"])["bytes_up"].reindex(most.index)
    assert (sent > done.releases.set_index(["round", "party"])["bytes"].reindex(most.index)).all()
    assert (sent <= most).all()
    assert (most < sent.max() + 200).all()  # no bound that anything would keep


def test_a_rehearsal_trains_on_no_private_row():
    from sklearn.tree import DecisionTreeClassifier

    seen = []
    fit = DecisionTreeClassifier.fit
    study = Study.from_dict(TABLE)
    private = {row.tobytes() for site in study.prepare().sites for row in np.ascontiguousarray(site.X)}
    public = {row.tobytes() for row in np.ascontiguousarray(study.prepare().public)}

    def spy(self, X, y, **options):
        seen.extend(row.tobytes() for row in np.ascontiguousarray(X))
        return fit(self, X, y, **options)

    DecisionTreeClassifier.fit = spy
    try:
        rehearse(study, rounds=1)
    finally:
        DecisionTreeClassifier.fit = fit
    assert seen
    assert set(seen) <= public
    assert not set(seen) & (private - public)


PRIVATE = """
name = "private"
[data]
source = "breast_cancer"
public = 200
test = 100
[partition]
sites = 2
[algorithm]
name = "fedct"
rounds = 3
[[sites]]
learner = {name = "private_torch", net = "linear", noise_multiplier = 2.0, steps = 6, batch_size = 32}
"""


def test_what_a_private_learner_would_cost_is_what_it_then_costs(tmp_path):
    (tmp_path / "study.toml").write_text(PRIVATE)
    study = Study.from_toml(tmp_path / "study.toml")
    planned, done = explain(study), study.run(progress=False)
    pd.testing.assert_frame_equal(planned.privacy, done.privacy)
    assert set(done.privacy["kind"]) == {"dp"}
    assert (done.privacy["epsilon"] > 0.5).all()
    assert rehearse(study, rounds=2).privacy["epsilon"].tolist() == planned.privacy["epsilon"].tolist()


def test_a_learner_that_is_prepared_by_a_study_stays_private(tmp_path):
    net = '"private_torch", net = "linear", noise_multiplier = 2.0, steps = 6, batch_size = 32'
    voting = PRIVATE.replace(net, '"private_voting"')
    for text in (PRIVATE, voting):
        (tmp_path / "study.toml").write_text(text)
        prepared = Study.from_toml(tmp_path / "study.toml").prepare()
        assert isinstance(prepared.sites[0].learner, PrivateLearner)


def test_without_public_rows_there_is_nothing_to_make_sites_of():
    study = Study.from_dict(TABLE | {"data": {"source": "digits", "public": 0, "test": 300}, "algorithm": "local"})
    with pytest.raises(ConfigError, match="this study has none"):
        rehearse(study)


def test_a_coordinator_rehearses_with_public_rows_classes_and_names_alone():
    study = Study.from_dict(TABLE | {"algorithm": {"name": "fedct", "rounds": 2}})
    public = study.prepare().public
    run = rehearse_federation(study, public, range(10), ["north", "south"])
    assert set(run.orders["party"]) == {"north", "south"}
    assert len(run.releases) == 4
    same = rehearse(Study.from_dict(TABLE | {"algorithm": {"name": "fedct", "rounds": 1}}), rounds=1)
    assert set(run.releases["kind"]) == set(same.releases["kind"])
    with pytest.raises(ConfigError, match="this study has none"):
        rehearse_federation(study, None, range(10), ["north"])
