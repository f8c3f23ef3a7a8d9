from __future__ import annotations

import itertools
import os
import subprocess
import sys
import threading
import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.tree import DecisionTreeClassifier
from tests.waiting import seconds, until

import collegium as cg
from collegium.core.attendance import HAD_DEADLINE, NOBODY_ALIKE, NOBODY_ELSE
from collegium.core.meeting import meet
from collegium.core.one_core import OneCore
from collegium.errors import CollegiumWarning, ConfigError
from collegium.links.local import ALONE

ROOT = Path(__file__).resolve().parents[2]
NOT_A_NET = "DecisionTreeClassifier is not a net that trains with others"


@dataclass
class Growing:
    """A tree to be grown, which can be done with others of the same depth."""

    tree: Sociable
    X: Any
    y: Any
    why_alone: str = ""
    trains: bool = True

    @property
    def kind(self) -> Any:
        return self.tree.max_depth

    def alone(self) -> Any:
        if len(self.y) == self.tree.fails_with:
            raise ValueError("this one fails")
        return DecisionTreeClassifier.fit(self.tree, self.X, self.y)

    def together(self, others: Sequence[Growing]) -> list[Any]:
        outcomes: list[Any] = []
        for each in others:
            try:
                outcomes.append(each.alone())
            except Exception as error:
                outcomes.append(error)
        return outcomes


class Sociable(DecisionTreeClassifier):
    """A learner that joins a cohort. (A tree's work done together is the same, bit for bit.)"""

    def __init__(self, max_depth=4, random_state=None, fails_with=None, raises_with=None, fits=1):
        super().__init__(max_depth=max_depth, random_state=random_state)
        self.fails_with = fails_with
        self.raises_with = raises_with
        self.fits = fits

    def joins_cohort(self, mode: str) -> str | None:
        return None if mode == "on" else "its device is the CPU"

    def fit(self, X, y):
        if len(y) == self.raises_with:
            raise ValueError("this one never comes")
        for _ in range(self.fits):
            meet(Growing(self, X, y))
        return self


def trained(run: cg.Run) -> dict[str, Any]:
    cohort = run.about["cohort"]
    return {name: cohort[name] for name in ("together", "largest", "alone")}


def same(one: cg.Run, other: cg.Run) -> bool:
    return one.metrics.equals(other.metrics) and list(one.releases["sha256"]) == list(other.releases["sha256"])


def test_sites_of_one_process_are_trained_together_with_the_same_result(digits):
    off, on = (digits.run(cg.FedCT(rounds=3), Sociable(), cohort=cohort) for cohort in ("off", "on"))
    assert same(off, on)
    assert on.about["cohort"] == {"mode": "on", "together": 5, "largest": 5, "alone": {}}
    assert on.trained_together == "5 of 5 sites were trained together."
    assert trained(off) == {"together": 0, "largest": 0, "alone": dict.fromkeys(off.about["parties"], "cohort is off")}
    assert off.trained_together == ""
    assert not any([*off.logs.values(), *on.logs.values()])


def test_sites_that_train_on_a_gpu_are_on_one_core_until_the_run_ends(digits, monkeypatch):
    class Noted(OneCore):
        def __init__(self):
            self.threads: set[threading.Thread] = set()
            self.released = 0

        def stay(self):
            self.threads.add(threading.current_thread())

        def release(self):
            self.released += 1

    core = Noted()
    monkeypatch.setattr(OneCore, "claim", lambda: core)
    off = digits.run(cg.FedCT(rounds=3), Sociable(), cohort="on")
    assert not core.threads  # where several sites are at work at a time, each has the core that it finds
    monkeypatch.setattr("collegium.links.hosting.Hosting.is_on_gpu", lambda self: True)
    on = digits.run(cg.FedCT(rounds=3), Sociable(), cohort="on")
    assert same(off, on)
    assert len(core.threads) == 5
    assert threading.main_thread() not in core.threads
    assert core.released == 1


def test_a_site_that_meets_nobody_leaves_the_core_to_others(digits, monkeypatch):
    monkeypatch.setattr(OneCore, "claim", lambda: pytest.fail("nobody is on it"))
    monkeypatch.setattr("collegium.links.hosting.Hosting.is_on_gpu", lambda self: True)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", CollegiumWarning)
        digits.run(cg.Local(rounds=2), sites=digits.sites(Sociable())[:1], cohort="on")


@pytest.mark.parametrize("algorithm", [cg.FedCT(rounds=2), cg.FedAvg(rounds=2)], ids=lambda each: type(each).__name__)
def test_nets_learn_the_same_together_as_alone(digits, algorithm, monkeypatch):
    stacked = pytest.importorskip("collegium.learners.torch.stacked")
    steps = []
    monkeypatch.setattr(
        stacked.Part, "step", lambda part, *batch, go=stacked.Part.step: steps.append(1) or go(part, *batch)
    )
    net = cg.TorchClassifier("linear", steps=5, lr=0.1)
    off, auto = (digits.run(algorithm, net, cohort=cohort) for cohort in ("off", "auto"))
    assert same(off, auto)
    assert not steps
    on = digits.run(algorithm, net, cohort="on")
    assert steps
    assert auto.about["cohort"]["alone"] == dict.fromkeys(auto.about["parties"], "its device is the CPU")
    assert trained(on) == {"together": 5, "largest": 5, "alone": {}}
    for party, model in off.models.items():
        other = on.models[party].estimator.get_weights()
        for name, weights in model.estimator.get_weights().items():
            np.testing.assert_allclose(other[name], weights, atol=1e-4)


def test_auto_asks_each_learner(digits):
    run = digits.run(cg.FedCT(rounds=1), make_pipeline(StandardScaler(), Sociable()))
    assert run.about["cohort"]["mode"] == "auto"
    assert run.about["cohort"]["alone"] == dict.fromkeys(run.about["parties"], "its device is the CPU")


def test_others_are_trained_alone_and_the_run_says_why(digits):
    learners = [Sociable(), make_pipeline(StandardScaler(), Sociable()), Sociable(3), DecisionTreeClassifier(), None]
    sites = [cg.Site(f"s{i}", X, y, learner=each or learners[0]) for i, ((X, y), each) in enumerate(
        zip(digits.split.sites, learners, strict=True))]  # fmt: skip
    run = digits.run(cg.FedCT(rounds=2), sites=sites, cohort="on")
    assert trained(run) == {"together": 3, "largest": 3, "alone": {"s2": NOBODY_ALIKE, "s3": NOT_A_NET}}
    assert run.trained_together == f"3 of 5 sites were trained together; s2: {NOBODY_ALIKE}; s3: {NOT_A_NET}."
    said = {party: lines for party, lines in run.logs.items() if lines}
    assert said == {"s2": [f"{ALONE}: {NOBODY_ALIKE}"], "s3": [f"{ALONE}: {NOT_A_NET}"]}  # once, not in every round
    one = digits.run(cg.FedCT(rounds=2), sites=sites[2:4], cohort="on")
    assert trained(one) == {"together": 0, "largest": 0, "alone": {"s2": NOBODY_ELSE, "s3": NOT_A_NET}}


def sites_of_sizes(digits: Any, learner: Any) -> list[cg.Site]:
    return [cg.Site(f"s{i}", X[i:], y[i:], learner=learner) for i, (X, y) in enumerate(digits.split.sites)]


@pytest.mark.parametrize("how", ["fails_with", "raises_with"])
def test_a_site_that_fails_hurts_nobody(digits, how):
    learner = Sociable(**{how: 98})  # site s2
    with pytest.warns(CollegiumWarning, match="Site 's2' did not answer"):
        run = digits.run(cg.FedCT(rounds=1), sites=sites_of_sizes(digits, learner), cohort="on")
    assert set(run.refusals["party"]) == {"s2"}
    assert list(run.models) == ["s0", "s1", "s3", "s4"]
    assert run.about["cohort"]["together"] == (5 if how == "fails_with" else 4)


def test_sites_may_fit_differently_often(digits):
    sites = [cg.Site(f"s{i}", X, y, learner=Sociable(fits=i + 1)) for i, (X, y) in enumerate(digits.split.sites)]
    off, on = (digits.run(cg.FedCT(rounds=2), sites=sites, cohort=cohort) for cohort in ("off", "on"))
    assert same(off, on)
    assert trained(on) == {"together": 5, "largest": 5, "alone": {"s4": NOBODY_ALIKE}}


def test_nobody_waits_where_there_is_a_deadline(digits):
    run = digits.run(cg.FedCT(rounds=1), Sociable(), cohort="on", deadline=600.0)
    assert trained(run) == {
        "together": 0, "largest": 0, "alone": dict.fromkeys(run.about["parties"], HAD_DEADLINE)
    }  # fmt: skip


class Counted(Sociable):
    """Notes how many sites are at work at a time."""

    lock = threading.Lock()
    now = most = 0

    def fit(self, X, y):
        with Counted.lock:
            Counted.now += 1
            Counted.most = max(Counted.most, Counted.now)
        threading.Event().wait(0.01)  # one more would be seen
        with Counted.lock:
            Counted.now -= 1
        return super().fit(X, y)


def test_no_more_sites_are_at_work_than_wanted(digits):
    run = digits.run(cg.FedCT(rounds=2), Counted(), cohort="on", link="local", workers=2)
    assert run.about["cohort"]["largest"] == 5
    assert Counted.most == 2


def test_each_worker_process_has_a_cohort_of_its_own(digits):
    off = digits.run(cg.FedCT(rounds=2), Sociable(), cohort="off")
    on = digits.run(cg.FedCT(rounds=2), Sociable(), cohort="on", workers=2)
    assert same(off, on)
    assert trained(on) == {"together": 5, "largest": 3, "alone": {}}


@pytest.mark.slow
@pytest.mark.xdist_group("many processes")
def test_each_ray_actor_has_a_cohort_of_its_own(digits, ray_here):
    off = digits.run(cg.FedCT(rounds=2), Sociable(), cohort="off")
    on = digits.run(cg.FedCT(rounds=2), Sociable(), cohort="on", link="ray", workers=2)
    assert same(off, on)
    assert trained(on) == {"together": 5, "largest": 3, "alone": {}}


class Stops(cg.Callback):
    def on_round(self, report):
        if report.round == 1:
            raise InterruptedError


@pytest.mark.parametrize("later", ["on", "off"])
def test_a_run_that_was_cut_off_goes_on_with_the_same_result(digits, tmp_path, later):
    whole = digits.run(cg.FedCT(rounds=4), Sociable(), cohort="on")
    with pytest.raises(InterruptedError):
        digits.run(cg.FedCT(rounds=4), Sociable(), cohort="on", out=tmp_path, callbacks=[Stops()])
    rest = digits.run(cg.FedCT(rounds=4), Sociable(), cohort=later, out=tmp_path, resume=True)
    assert same(whole, rest)
    assert rest.about["cohort"].get("before") == (None if later == "on" else "on")
    again = digits.run(cg.FedCT(rounds=4), Sociable(), cohort=later, out=tmp_path, resume=True)
    assert again.about["cohort"] == rest.about["cohort"]  # nobody is trained again


class Mortal(Sociable):
    """Its process dies at a prediction, when other sites may have answered and others not, where it is told to."""

    predictions = itertools.count(1)

    def predict(self, X):
        if next(Mortal.predictions) == int(os.environ.get("DIES_AT", "0")):
            os._exit(9)
        return super().predict(X)


@pytest.mark.slow
@pytest.mark.parametrize("prediction", [3, 13, 18])
def test_a_killed_run_goes_on_with_the_same_result(digits, tmp_path, prediction):
    whole = digits.run(cg.FedCT(rounds=3), Mortal(), cohort="on")
    command = (
        "import sys; import collegium as cg; from tests.conftest import digits; "
        "from tests.links.test_cohorts import Mortal; "
        "digits.__wrapped__().run(cg.FedCT(rounds=3), Mortal(), cohort='on', out=sys.argv[1])"
    )
    paths = os.pathsep.join([str(ROOT / "src"), str(ROOT)])
    told = os.environ | {"DIES_AT": str(prediction), "PYTHONPATH": paths}
    done = subprocess.run([sys.executable, "-c", command, str(tmp_path / "run")], env=told, timeout=seconds(300))
    assert done.returncode == 9
    rest = digits.run(cg.FedCT(rounds=3), Mortal(), cohort="on", out=tmp_path / "run", resume=True)
    assert same(whole, rest)


def test_an_unknown_mode_is_an_error(digits):
    with pytest.raises(ConfigError, match=r"cohort must be 'auto', 'on' or 'off', got 'yes'"):
        digits.run(cg.FedCT(rounds=1), cohort="yes")


def test_models_of_a_run_that_is_over_keep_no_rows_of_others(digits):
    pytest.importorskip("torch")
    run = digits.run(cg.FedAvg(rounds=2), cg.TorchClassifier("linear", steps=5), cohort="on")
    assert trained(run)["together"] == 5
    assert [len(model.estimator._training._kept) for model in run.models.values()] == [0] * 5


def test_threads_end_with_the_run(digits):
    before = set(threading.enumerate())
    digits.run(cg.FedCT(rounds=1), Sociable(), cohort="on")
    until(lambda: not set(threading.enumerate()) - before, every=0.01)
