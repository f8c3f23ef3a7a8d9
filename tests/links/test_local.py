from __future__ import annotations

import pickle
import sys
import threading
import time

import numpy as np
from sklearn.tree import DecisionTreeClassifier
from tests.waiting import seconds
from threadpoolctl import threadpool_info

import collegium as cg
from collegium.core.link import Answer, OwnAnswer
from collegium.core.releases import Nothing
from collegium.links.hosting import numerical_libraries
from collegium.wire.replies import Reply, Row


class Concurrent(DecisionTreeClassifier):
    """Notes how many fits run at the same time, and how many threads each may use."""

    lock = threading.Lock()
    now = most = begun = 0
    meeting = threading.Barrier(3)
    threads: set[int] = set()  # noqa: RUF012

    def fit(self, X, y):
        with Concurrent.lock:
            Concurrent.now += 1
            Concurrent.most = max(Concurrent.most, Concurrent.now)
            Concurrent.threads |= {library["num_threads"] for library in threadpool_info()}
            first = Concurrent.begun = Concurrent.begun + 1
        if first <= 3:
            Concurrent.meeting.wait(seconds(60))  # three are at work, or this fails
        time.sleep(0.05)  # one more would be seen
        with Concurrent.lock:
            Concurrent.now -= 1
        return super().fit(X, y)


def test_sites_work_side_by_side_each_with_one_thread(cancer, monkeypatch):
    monkeypatch.setattr("collegium.links.local.available_cores", lambda: 3)
    before = [library["num_threads"] for library in threadpool_info()]
    cancer.run(cg.Local(), Concurrent())
    assert Concurrent.most == 3
    assert Concurrent.threads == {1}
    assert [library["num_threads"] for library in threadpool_info()] == before


def test_numerical_libraries_are_looked_for_again_after_an_import(monkeypatch):
    found = numerical_libraries()
    assert numerical_libraries() is found
    monkeypatch.setitem(sys.modules, "imported_since", sys)
    assert numerical_libraries() is not found


def test_the_same_seed_gives_the_same_result_and_another_one_does_not(digits):
    first, again = (digits.run(cg.FedCT(rounds=3), DecisionTreeClassifier(max_features=8)) for _ in range(2))
    other = digits.run(cg.FedCT(rounds=3), DecisionTreeClassifier(max_features=8), seed=1)
    assert first.metrics.equals(again.metrics)
    assert list(first.releases["sha256"]) == list(again.releases["sha256"])
    assert list(first.releases["sha256"]) != list(other.releases["sha256"])


def test_a_users_own_random_state_is_kept(digits):
    run = digits.run(cg.Local(), DecisionTreeClassifier(random_state=7))
    assert {model.estimator.random_state for model in run.models.values()} == {7}
    drawn = digits.run(cg.Local(), DecisionTreeClassifier())
    seeds = [model.estimator.random_state for model in drawn.models.values()]
    assert len(set(seeds)) == 5
    assert np.all([isinstance(seed, int) for seed in seeds])


def test_what_an_answer_says_is_known_where_it_was_made_and_nowhere_else():
    answer = OwnAnswer("a", b"frame")
    answer.reply, answer.release = Reply(1, Row("Nothing", 0, "0" * 64, None, None), b""), Nothing()
    assert list(answer) == ["a", b"frame", None]
    changed = answer._replace(frame=b"another")
    assert (changed.reply, changed.release) == (None, None)
    sent = pickle.loads(pickle.dumps(answer))
    assert (type(sent), sent) == (Answer, answer)
