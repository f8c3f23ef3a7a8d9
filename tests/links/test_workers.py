from __future__ import annotations

import os

import numpy as np
import pytest
from sklearn.tree import DecisionTreeClassifier

import collegium as cg
from collegium.core import ActiveSite, Count, step
from collegium.core.federation import Federation
from collegium.core.public_set import PublicSet
from collegium.errors import ConfigError
from collegium.links.hosting import Hosting
from collegium.links.workers import WorkersLink


@step
def process_id(site: ActiveSite) -> Count:
    """Where this site lives."""
    return Count(os.getpid())


def hosting(sizes=(40, 10, 10, 10), learners=None) -> Hosting:
    rng = np.random.default_rng(0)
    sites = [
        cg.Site(f"s{i}", rng.normal(size=(n, 3)), rng.integers(2, size=n), learner=DecisionTreeClassifier())
        for i, n in enumerate(sizes)
    ]
    return Hosting(tuple(sites), np.arange(2), PublicSet(rng.normal(size=(20, 3))), None, 0)


@pytest.mark.slow
def test_sites_live_in_other_processes_and_stay_there():
    link = WorkersLink(hosting(), 2)
    try:
        fed = Federation(link, run="r", n_classes=2, seed=0)
        homes = [fed.ask(process_id()) for _ in range(3)]
        assert homes[0] == homes[1] == homes[2]
        pids = {party: count.samples for party, count in homes[0].items()}
        assert os.getpid() not in pids.values()
        assert len(set(pids.values())) == 2
        assert pids["s1"] == pids["s2"] == pids["s3"] != pids["s0"]  # the large site has a worker for itself
    finally:
        link.close()
    for pid in set(pids.values()):
        with pytest.raises(ProcessLookupError):
            os.kill(pid, 0)


@pytest.mark.slow
@pytest.mark.parametrize("workers", [1, 2, 3])
def test_the_same_result_bit_for_bit_with_any_number_of_workers(digits, workers):
    here, there = (digits.run(cg.FedCT(rounds=3), workers=each) for each in (0, workers))
    assert there.metrics.equals(here.metrics)
    assert list(there.releases["sha256"]) == list(here.releases["sha256"])
    assert list(there.models) == list(here.models)


@pytest.mark.slow
def test_more_workers_than_sites_is_fine(cancer):
    assert len(cancer.run(cg.Local(), workers=9).models) == 5


def test_a_negative_number_of_workers_is_an_error(cancer):
    with pytest.raises(ConfigError, match="workers"):
        cancer.run(cg.Local(), workers=-1)
