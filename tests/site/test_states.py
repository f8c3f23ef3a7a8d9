"""A simulated site that stores its state with some orders only, and does the others again after a kill."""

from __future__ import annotations

import itertools
from types import SimpleNamespace

import numpy as np
import pytest
from sklearn.tree import DecisionTreeClassifier

import collegium as cg
from collegium import wire
from collegium.core import ActiveSite, Count, HardLabels, Labels, Nothing, step
from collegium.core.public_set import PublicSet
from collegium.errors import StorageError
from collegium.privacy.claims import Charge
from collegium.privacy.events import Pure
from collegium.protocols.keyring import Keyring
from collegium.runs.callbacks import Callback
from collegium.site import states
from collegium.site.agent import Agent
from collegium.site.factory import open_site
from collegium.site.ledger import read_ledger, verify_ledger
from collegium.site.states import Pace

X = np.arange(20.0).reshape(10, 2)
Y = np.array(["a", "b"] * 5)
FAILS: list[bool] = []
FRESH = itertools.count()


@step
def walk(site: ActiveSite, L: Labels | None) -> Count:
    """A number that depends on all orders before, and on the randomness of this one."""
    if FAILS:
        raise ValueError("not today")
    site.state["sum"] = site.state.get("sum", 0) + int(site.rng.integers(1000))
    return Count(site.state["sum"])


@step
def forget(site: ActiveSite) -> Count:
    """What does not follow from the seed."""
    return Count(next(FRESH))


@step
def fit_privately(site: ActiveSite) -> Nothing:
    """A private fit, which is charged."""
    site.exposure.note_fit(Charge((Pure(1, 0.5),), unit="record", relation="add_remove", delta=1e-5))
    return Nothing()


@step
def label_all(site: ActiveSite) -> HardLabels:
    """Labels, for noise to go on."""
    return HardLabels(Labels(np.zeros(10, dtype=int), 2))


@step
def hide(site: ActiveSite) -> Nothing:
    """Something for one use."""
    site.secret_state["key"] = "k"
    return Nothing()


def agent(folder, pace=None, *, budget=None, simulation=True) -> Agent:
    return open_site(
        cg.Site("ukb", X, Y, learner=DecisionTreeClassifier(), budget=budget),
        np.array(["a", "b"]),
        PublicSet(X),
        0,
        "r",
        simulation=simulation,
        keyring=lambda: Keyring.simulated("r", "ukb", ("ukb",)),
        ledger=folder / "ledger.db",
        folder=folder / "ukb",
        pace=Pace() if pace is None else pace,
    )


def frame(order, number: int, reference: Labels | None = None) -> bytes:
    plain = {"number": number, "round": 0, "step": order.step, "digest": order.digest, "args": order.args}
    plain |= {} if order.mechanism is None else {"mechanism": order.mechanism}
    orders = wire.pack({"orders": [plain]}, reference).data
    return wire.join({"run": "r", "last": number, "public": None}, orders)


def code(reply: bytes) -> str | None:
    return wire.cut(reply, wire.Limits(1 << 16, 1 << 10))[0].get("refused")


@pytest.fixture(autouse=True)
def _seldom(monkeypatch):
    monkeypatch.setattr(states, "_PAUSE", 1e9)  # the first state only
    FAILS.clear()


def killed(mine: Agent) -> None:
    mine.gate.ledger.close()  # and nothing else


def test_a_killed_site_does_again_what_its_state_lacks_and_answers_as_it_did(tmp_path):
    labels = [Labels(np.array([i, 0] * 5), 2) for i in (0, 1)]
    asked = [
        frame(walk(None), 1),
        frame(walk(labels[0]), 2),
        frame(walk(labels[1]), 3, labels[0]),
        frame(walk(None), 4),
    ]
    mine = agent(tmp_path)
    replies = [mine.serve(each) for each in asked]
    total, before = mine.site.state["sum"], read_ledger(tmp_path / "ledger.db")
    killed(mine)

    again = agent(tmp_path)
    assert again.behind == (2, 3, 4)
    assert code(again.serve(frame(walk(None), 5))) == "storage-failed"  # not from that state
    assert again.serve(asked[0]) == replies[0]
    assert [again.serve(each) for each in asked[1:]] == replies[1:]
    assert not again.behind
    assert again.site.state["sum"] == total
    assert read_ledger(tmp_path / "ledger.db") == before
    assert code(again.serve(frame(walk(None), 5))) is None
    assert not any("another release" in line for line in again.log.lines)
    assert verify_ledger(tmp_path / "ledger.db") == {"ukb": 5}


def test_a_site_that_is_closed_lacks_nothing(tmp_path):
    mine = agent(tmp_path)
    for number in (1, 2, 3):
        mine.serve(frame(walk(None), number))
    total = mine.site.state["sum"]
    mine.close()
    again = agent(tmp_path)
    assert not again.behind
    assert again.site.state["sum"] == total
    assert len(list((tmp_path / "ukb").glob("state-*.pkl"))) == 1


def test_a_site_killed_while_it_catches_up_catches_up_again(tmp_path):
    mine = agent(tmp_path)
    for number in (1, 2, 3):
        mine.serve(frame(walk(None), number))
    total = mine.site.state["sum"]
    killed(mine)
    halfway = agent(tmp_path)
    halfway.serve(frame(walk(None), 2))
    halfway.close()
    again = agent(tmp_path)
    assert again.behind == (3,)
    again.serve(frame(walk(None), 3))
    assert again.site.state["sum"] == total


def test_what_does_not_repeat_itself_is_said_in_the_log_and_the_first_answer_stays(tmp_path):
    mine = agent(tmp_path)
    mine.serve(frame(walk(None), 1))
    sent = mine.serve(frame(forget(), 2))
    killed(mine)
    again = agent(tmp_path)
    assert again.serve(frame(forget(), 2)) == sent
    assert any("order 2" in line and "another release" in line for line in again.log.lines)


def test_noise_is_drawn_again_as_it_was(tmp_path):
    asked = frame(label_all().through(cg.RandomizedResponse(epsilon=1.0)), 2)
    mine = agent(tmp_path)
    mine.serve(frame(walk(None), 1))
    sent = mine.serve(asked)
    killed(mine)
    again = agent(tmp_path)
    assert again.serve(asked) == sent
    assert not any("another release" in line for line in again.log.lines)


def test_a_step_that_fails_this_time_ends_the_run(tmp_path):
    mine = agent(tmp_path)
    for number in (1, 2):
        mine.serve(frame(walk(None), number))
    killed(mine)
    again = agent(tmp_path)
    FAILS.append(True)
    with pytest.raises(StorageError, match=r"'ukb' cannot do order 2 again"):
        again.serve(frame(walk(None), 2))
    again.close()
    FAILS.clear()
    assert agent(tmp_path).behind == (2,)


def test_a_refusal_is_repeated_with_what_it_had_done(tmp_path):
    mine = agent(tmp_path)
    mine.serve(frame(walk(None), 1))
    FAILS.append(True)
    refused = mine.serve(frame(walk(None), 2))
    killed(mine)
    assert agent(tmp_path).serve(frame(walk(None), 2)) == refused


@pytest.mark.parametrize("once", [hide(), fit_privately()], ids=["a key", "a private fit"])
def test_what_is_for_one_use_is_stored_each_time(tmp_path, once):
    mine = agent(tmp_path)
    mine.serve(frame(walk(None), 1))
    mine.serve(frame(walk(None), 2))
    mine.serve(frame(once, 3))
    killed(mine)
    assert not agent(tmp_path).behind
    mine = agent(tmp_path)
    mine.serve(frame(walk(None), 4))
    killed(mine)
    assert not agent(tmp_path).behind


@pytest.mark.parametrize(("budget", "simulation"), [(cg.Budget(epsilon=9), True), (None, False)])
def test_a_site_with_a_budget_and_a_real_one_store_each_state(tmp_path, budget, simulation):
    mine = agent(tmp_path, budget=budget, simulation=simulation)
    for number in (1, 2, 3):
        mine.serve(frame(walk(None), number))
    killed(mine)
    again = agent(tmp_path, budget=budget, simulation=simulation)
    assert not again.behind
    assert again.site.state == mine.site.state


def test_all_sites_store_their_states_after_the_same_orders_and_not_too_often(monkeypatch):
    now = iter([10.0, 10.9, 11.1, 11.2])
    monkeypatch.setattr(states, "_PAUSE", 10.0)
    monkeypatch.setattr(states, "time", SimpleNamespace(monotonic=lambda: next(now)))
    pace = Pace()
    assert [pace.due(1), pace.due(1)] == [True, True]
    pace.spent(0.04)
    pace.spent(0.06)
    assert not pace.due(2)
    assert [pace.due(3), pace.due(3)] == [True, True]
    assert pace.due(4)  # none has taken any time since


class _Ends(Callback):
    def __init__(self, after: int) -> None:
        self._after = after

    def on_round(self, report):
        if report.round == self._after:
            raise KeyboardInterrupt


def run_with_kills(federation, out, patched, *args, **options) -> cg.Run:
    """A run that is killed twice between states, and resumed."""
    patched.setattr(Agent, "close", killed)
    for after in (2, 4):
        with pytest.raises(KeyboardInterrupt):
            federation.run(*args, out=out, resume=True, callbacks=[_Ends(after)], **options)
    patched.undo()
    patched.setattr(states, "_PAUSE", 1e9)
    return federation.run(*args, out=out, resume=True, **options)


def same(run: cg.Run, whole: cg.Run, *folders) -> None:
    assert any("again" in line for line in run.logs["site0"])
    assert not any("another release" in line for lines in run.logs.values() for line in lines)
    assert run.labels == whole.labels
    assert run.metrics.equals(whole.metrics)
    told = [
        [(row["party"], row["number"], row["sha256"], row["event"]) for row in read_ledger(folder / "ledger.db")]
        for folder in folders
    ]
    assert told[0] == told[1]


@pytest.mark.parametrize("mechanism", [None, cg.RandomizedResponse(epsilon=3.0)])
def test_a_run_killed_between_states_ends_like_one_that_was_not(cancer, tmp_path, monkeypatch, mechanism):
    method = cg.FedCT(rounds=6, mechanism=mechanism), DecisionTreeClassifier(max_features=3)
    whole = cancer.run(*method, out=tmp_path / "whole")
    run = run_with_kills(cancer, tmp_path / "killed", monkeypatch, *method)
    same(run, whole, tmp_path / "killed", tmp_path / "whole")
    X = cancer.split.test[0]
    for party, model in whole.models.items():
        assert (model.predict(X) == run.models[party].predict(X)).all()


def test_nets_that_were_trained_together_are_trained_together_again(cancer, tmp_path, monkeypatch):
    method = cg.FedCT(rounds=6, steps=3), cg.TorchClassifier("linear", batch_size=8)
    whole = cancer.run(*method, out=tmp_path / "whole", cohort="on")
    run = run_with_kills(cancer, tmp_path / "killed", monkeypatch, *method, cohort="on")
    same(run, whole, tmp_path / "killed", tmp_path / "whole")
    assert run.about["cohort"]["largest"] == 5
    for party, model in whole.models.items():
        for name, value in model.estimator.get_weights().items():
            np.testing.assert_array_equal(run.models[party].estimator.get_weights()[name], value)
