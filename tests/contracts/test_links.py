"""What every registered link of a simulation must do. That every algorithm runs on each is in test_algorithms."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path
from typing import Any

import joblib
import numpy as np
import pandas as pd
import pytest
from scipy import sparse
from sklearn.tree import DecisionTreeClassifier
from tests.waiting import seconds

import collegium as cg
from collegium import registry
from collegium.core import ActiveSite, Algorithm, Count, step
from collegium.core.federation import Federation
from collegium.errors import ConfigError
from collegium.site.ledger import read_ledger, verify_ledger

pytestmark = pytest.mark.xdist_group("many processes")

LEARNER = DecisionTreeClassifier(max_features=3)
PRIVATE = 25
"""More rows than a site has of its own: what learns from fewer has no labels of the others yet."""
CASES: dict[str, tuple[Algorithm, Any]] = {
    "secret votes": (cg.FedCT(rounds=2, votes="secret"), LEARNER),
    "noisy votes": (cg.FedCT(rounds=2, mechanism=cg.RandomizedResponse(epsilon=4.0)), LEARNER),
    "plain distances": (cg.XCLP(bits=64, k=5, hamming="plain"), None),
}


# Ray is in the quick tests of its own link; here it is slow.
LINKS = [pytest.param(name, marks=pytest.mark.slow if name == "ray" else ()) for name in registry.names("link")]


@pytest.fixture(params=LINKS)
def link(request: pytest.FixtureRequest) -> str:
    """Each of them."""
    if request.param == "ray":
        request.getfixturevalue("ray_here")
    return str(request.param)


apart = pytest.mark.parametrize("link", [each for each in LINKS if each.values != ("local",)], indirect=True)


def sites_of(cancer: Any, learner: Any, algorithm: Algorithm | None = None) -> list[cg.Site]:
    sites: list[cg.Site] = cancer.sites(learner)
    if algorithm is None or not algorithm.labels_own_points:
        return sites
    return [cg.Site(s.name, s.X[::2], s.y[::2], unlabeled=s.X[1::2]) for s in sites]


def same(a: cg.Run, b: cg.Run, *, fresh_secrets: bool = False) -> None:
    """Bit for bit: what was measured, what was sent, and the labels and trees that came of it."""
    pd.testing.assert_frame_equal(a.metrics, b.metrics, check_exact=True)
    sent = ["party", "round", "step", "kind", "bytes", *([] if fresh_secrets else ["sha256"])]
    pd.testing.assert_frame_equal(a.releases[sent], b.releases[sent])
    if isinstance(a.labels, dict):
        np.testing.assert_equal(a.labels, b.labels)
        np.testing.assert_equal(a.confidences, b.confidences)
    else:
        assert a.labels == b.labels
    assert list(a.models) == list(b.models)
    for party, model in a.models.items():
        assert joblib.hash(model.estimator.tree_) == joblib.hash(b.models[party].estimator.tree_)


@apart
@pytest.mark.parametrize(
    "case", [pytest.param(each, marks=pytest.mark.slow if each == "plain distances" else ()) for each in CASES]
)
def test_the_result_is_that_of_one_process_bit_for_bit(case: str, link: str, cancer: Any) -> None:
    algorithm, learner = CASES[case]
    here, there = (
        cancer.run(algorithm, sites=sites_of(cancer, learner, algorithm), link=name, workers=1)
        for name in ("local", link)
    )
    # Masks are drawn for each run.
    same(here, there, fresh_secrets=algorithm.fresh_secrets or case == "secret votes")
    assert (here.about["link"], there.about["link"]) == ("local", link)


@apart
@pytest.mark.parametrize("table", [pd.DataFrame, sparse.csr_matrix], ids=["frame", "sparse"])
def test_public_sets_of_any_kind_are_shared(table: Any, link: str, cancer: Any) -> None:
    sites = [cg.Site(s.name, table(s.X), s.y, learner=LEARNER) for s in cancer.sites()]
    X, y = cancer.split.test
    shared = {"sites": sites, "public": table(cancer.split.public), "test": (table(X), y)}
    here, there = (cancer.run(cg.FedCT(rounds=2), **shared, link=name, workers=1) for name in ("local", link))
    same(here, there)


class Fails(DecisionTreeClassifier):
    """A learner of a user's own that gives up."""

    def fit(self, X, y):
        raise RuntimeError("SECRET")


class SlowAtFirst(DecisionTreeClassifier):
    """Takes longer than its first deadline: until a file is there, in whatever process it is."""

    def __init__(self, until: Path | None = None) -> None:
        super().__init__()
        self.until = until

    def fit(self, X, y):
        while len(X) < PRIVATE and not self.until.exists():
            time.sleep(0.02)
        return super().fit(X, y)


class DiesAtFirst(DecisionTreeClassifier):
    """Native code that crashes: the whole process is gone."""

    def fit(self, X, y):
        if len(X) < PRIVATE:
            os.kill(os.getpid(), signal.SIGKILL)
        return super().fit(X, y)


def one_other(cancer: Any, learner: Any) -> list[cg.Site]:
    sites: list[cg.Site] = cancer.sites()
    return [*sites[:4], cg.Site("other", sites[4].X[:20], sites[4].y[:20], learner=learner)]


def test_a_site_that_raises_is_reported_and_the_others_go_on(link: str, cancer: Any) -> None:
    with pytest.warns(cg.CollegiumWarning, match="'other' did not answer 2 time"):
        run = cancer.run(cg.FedCT(rounds=2), sites=one_other(cancer, Fails()), link=link, workers=1)
    assert list(run.models) == ["site0", "site1", "site2", "site3"]
    assert list(run.refusals["code"]) == ["step-failed"] * 2
    assert "SECRET" in "".join(run.logs["other"])


class Releases(cg.Callback):
    """After the first round the slow site gets on."""

    def __init__(self, file: Path) -> None:
        self.file = file

    def on_round(self, report: Any) -> None:
        self.file.touch()


def test_a_site_past_its_deadline_is_missing_and_comes_back(link: str, cancer: Any, tmp_path: Path) -> None:
    sites, released = one_other(cancer, SlowAtFirst(tmp_path / "go on")), Releases(tmp_path / "go on")
    # Time enough for the others: the first round takes all of it.
    within = {"deadline": seconds(4), "callbacks": [released], "link": link, "workers": 2}
    with pytest.warns(cg.CollegiumWarning, match="'other' did not answer 1 time"):
        run = cancer.run(cg.FedCT(rounds=2), sites=sites, **within)
    assert run.refusals[["party", "round", "code"]].to_numpy().tolist() == [["other", 0, "missing"]]
    assert len(run.models) == 5


@apart
def test_a_process_that_is_killed_takes_only_its_own_sites(link: str, cancer: Any) -> None:
    with pytest.warns(cg.CollegiumWarning, match="did not answer"):
        run = cancer.run(cg.FedCT(rounds=2), sites=one_other(cancer, DiesAtFirst()), link=link, workers=2)
    gone = set(run.refusals["party"])
    assert list(run.refusals["party"]).count("other") == 2
    assert set(run.models) == {"site0", "site1", "site2", "site3", "other"} - gone
    assert len(run.models) >= 2
    assert set(run.refusals["code"]) == {"missing"}


class Interrupts(cg.Callback):
    """Somebody presses Ctrl-C after the first round."""

    def on_round(self, report: Any) -> None:
        raise KeyboardInterrupt


def test_a_run_that_was_interrupted_is_resumed(link: str, cancer: Any, tmp_path: Path) -> None:
    algorithm, out = cg.FedCT(rounds=3), tmp_path / "run"
    with pytest.raises(KeyboardInterrupt):
        cancer.run(algorithm, LEARNER, out=out, callbacks=[Interrupts()], link=link, workers=1)
    resumed = cancer.run(algorithm, LEARNER, out=out, resume=True, link=link, workers=1)
    same(cancer.run(algorithm, LEARNER), resumed)
    verify_ledger(out / "ledger.db")
    assert len(read_ledger(out / "ledger.db")) == len(resumed.releases)  # nothing left a site twice


@step
def process_id(site: ActiveSite) -> Count:
    """Where this site lives."""
    return Count(os.getpid())


class Whereabouts(Algorithm):
    """A user's own, with a step of its own."""

    asks_for = (process_id,)

    def coordinate(self, fed: Federation) -> None:
        for _ in range(2):
            for party, count in fed.ask(process_id()).items():
                fed.note("pid", count.samples, party)


def test_steps_of_a_users_own_reach_the_sites_and_sites_stay_where_they_are(link: str, cancer: Any) -> None:
    notes = cancer.run(Whereabouts(), link=link, workers=1).metrics
    homes = notes[notes["metric"] == "pid"].groupby("party")["value"]
    assert (homes.count() == 2).all()
    assert (homes.nunique() == 1).all()
    pids = {int(pid) for pid in homes.first()}
    assert len(pids) == 1
    assert (os.getpid() in pids) == (link == "local")


def test_a_misspelt_link_is_answered_with_the_nearest(cancer: Any) -> None:
    with pytest.raises(ConfigError, match=r"no link 'worker'. Did you mean 'workers'\? Known: local, ray, workers"):
        cancer.run(cg.Local(), link="worker")


@pytest.mark.parametrize("link", ["local", "workers"])
def test_an_address_is_for_clusters(link: str, cancer: Any) -> None:
    with pytest.raises(ConfigError, match=f"{registry.lookup('link', link).__name__} runs on this machine only"):
        cancer.run(cg.Local(), link=link, address="auto")
