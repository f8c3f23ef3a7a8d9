from __future__ import annotations

import hashlib
import pickle
from dataclasses import replace

import cloudpickle
import numpy as np
import pytest
from sklearn.tree import DecisionTreeClassifier

import collegium as cg
from collegium import wire
from collegium.core import ActiveSite, Count, HardLabels, Labels, Nothing, SoftLabels, step
from collegium.core.attendance import Attendance
from collegium.core.meeting import Meeting
from collegium.core.places import Places
from collegium.core.public_set import PublicSet
from collegium.core.site import Exam
from collegium.errors import StorageError
from collegium.privacy.budget import read_charges
from collegium.privacy.claims import Charge
from collegium.privacy.events import Pure
from collegium.protocols.keyring import Keyring
from collegium.secure.acquaintance import greet
from collegium.site import agent as agents
from collegium.site.agent import Agent
from collegium.site.factory import open_site
from collegium.site.policy import Policy

PAID = Charge((Pure(1, 0.5),), unit="record", relation="add_remove", delta=1e-5)
X = np.arange(20.0).reshape(10, 2)
Y = np.array(["a", "b"] * 5)
CONSENSUS = Labels(np.array([0, 1] * 5), 2)
KNOWN = wire.KnownLabels()
KNOWN.remember(CONSENSUS)


@step
def fit_and_count(site: ActiveSite, L: Labels | None) -> Count:
    """Counts how often it ran, in the state that survives a crash."""
    site.state["ran"] = site.state.get("ran", 0) + 1
    site.fit(site.data)
    return Count(site.state["ran"])


@step
def keep_secret(site: ActiveSite, word: str) -> Nothing:
    """Keeps what must not outlive the run."""
    site.secret_state["word"] = f"SECRET {word}"
    return Nothing()


@step
def send_much(site: ActiveSite) -> SoftLabels:
    """More than a thread keeps its place for."""
    return SoftLabels(np.zeros((1 << 16, 2), np.float32))


@step
def draw(site: ActiveSite) -> Count:
    """A number from the site's generator."""
    return Count(int(site.rng.integers(2**31)))


@step
def fail_after_a_private_fit(site: ActiveSite) -> Nothing:
    """Noise decides that it fails."""
    site.exposure.note_fit(PAID)
    raise ValueError("no answer came through")


@step
def label_at_a_private_cost(site: ActiveSite) -> HardLabels:
    """Labels whose cost depends on private votes."""
    site.exposure.note_fit(replace(PAID, publishable=False))
    return HardLabels(Labels(np.zeros(10, dtype=int), 2))


@step
def explode(site: ActiveSite) -> Nothing:
    """Quotes data in its exception."""
    raise ValueError(f"patient {site.data.X[0]} is SECRET")


@step
def leak(site: ActiveSite) -> Nothing:
    """Returns no release."""
    return site.data.X  # type: ignore[return-value]


def agent(folder=None, *, policy: Policy | None = None, simulation: bool = False, seed: int = 0, exam=None) -> Agent:
    return open_site(
        cg.Site("ukb", X, Y, learner=DecisionTreeClassifier(), policy=policy or Policy()),
        np.array(["a", "b"]),
        PublicSet(X),
        seed,
        "r",
        simulation=simulation,
        keyring=lambda: Keyring.simulated("r", "ukb", ("ukb", "other")),
        ledger=None if folder is None else folder / "ledger.db",
        folder=None if folder is None else folder / "ukb",
        exam=exam,
    )


def frame(*orders, number: int = 1, run: str = "r", reference=None) -> bytes:
    plain = [
        {"number": number + i, "round": 0, "step": order.step, "digest": order.digest, "args": order.args}
        for i, order in enumerate(orders)
    ]
    head = {"run": run, "last": number + len(orders) - 1, "public": None}
    return wire.join(head, wire.pack({"orders": plain}, reference).data)


def answer(reply: bytes):
    """What a reply's header says, its row of the ledger included, and the release."""
    header, payload = wire.cut(reply)
    return header | (header.pop("row", None) or {}), (wire.unpack(payload, KNOWN) if payload else None)


def test_an_order_is_answered_with_a_sealed_release():
    header, release = answer(agent().serve(frame(fit_and_count(None))))
    assert header["kind"] == "Count"
    assert release == {"samples": 1}
    assert len(header["entry"]) == 64


def test_asked_again_the_same_bytes_come_and_nothing_runs():
    mine = agent()
    first = mine.serve(frame(fit_and_count(None)))
    assert mine.serve(frame(fit_and_count(None))) == first
    assert mine.site.state["ran"] == 1
    assert len(mine.gate.ledger.rows()) == 1


@pytest.mark.parametrize(("asked", "free"), [(send_much(), 1), (draw(), 0)])
def test_other_sites_may_work_while_a_large_reply_is_put_together(monkeypatch, asked, free):
    places, seen, write = Places(1), list[int](), agents.write_release
    monkeypatch.setattr(agents, "write_release", lambda *given: seen.append(places._free) or write(*given))
    mine = agent(simulation=True)
    with Meeting(1, Attendance(), places).attended("ukb"):
        assert "refused" not in wire.cut(mine.serve(frame(asked)))[0]
        assert places._free == 0
    assert seen == [free]


def test_another_order_under_the_same_number_is_refused():
    mine = agent()
    mine.serve(frame(fit_and_count(None)))
    header, _ = answer(mine.serve(frame(draw())))
    assert header["refused"] == "other-order"


def test_a_failure_without_a_private_fit_is_no_release():
    mine = agent()
    header, _ = answer(mine.serve(frame(explode())))
    assert "kind" not in header
    assert mine.gate.ledger.rows() == []


def test_a_cost_that_depends_on_private_data_stays_in_the_ledger():
    mine = agent()
    header, _ = answer(mine.serve(frame(label_at_a_private_cost())))
    (told,), _ = read_charges(header["privacy"])
    assert (told.events, told.publishable) == ((), False)
    assert [charge.events for charge in mine.gate.ledger.charges()] == [PAID.events]


def test_the_text_of_an_exception_stays_in_the_sites_log():
    mine = agent(simulation=True)
    reply = mine.serve(frame(explode()))
    assert b"SECRET" not in reply
    assert any("SECRET" in line for line in mine.log.lines)
    header, _ = answer(reply)
    assert header["refused"] == "step-failed"


def test_a_failed_tell_ends_the_batch():
    mine = agent()
    header, _ = answer(mine.serve(frame(explode(), fit_and_count(None))))
    assert (header["refused"], header["step"]) == ("step-failed", "test_agent.explode")
    assert "ran" not in mine.site.state


def test_what_is_no_release_does_not_leave():
    reply = agent().serve(frame(leak()))
    assert answer(reply)[0]["refused"] == "not-a-release"


@pytest.mark.parametrize("noise", [b"", b"noise", frame(draw())[:-4], wire.join({"run": "r"}, b"")])
def test_a_message_that_cannot_be_read_is_refused(noise):
    assert answer(agent().serve(noise))[0]["refused"] == "bad-message"


def test_labels_against_unknown_ones_are_refused_and_full_ones_are_taken():
    before, after = Labels(np.zeros(10, dtype=int), 2), Labels(np.eye(10, dtype=int)[0], 2)
    mine = agent()
    assert answer(mine.serve(frame(fit_and_count(after), reference=before)))[0]["refused"] == "bad-message"
    assert answer(mine.serve(frame(fit_and_count(after))))[0]["kind"] == "Count"


def test_randomness_depends_on_seed_site_and_number_only():
    def drawn(number, seed=0, before=()):
        mine = agent(seed=seed)
        for other in before:
            mine.serve(frame(draw(), number=other))
        return answer(mine.serve(frame(draw(), number=number)))[1]["samples"]

    assert drawn(5) == drawn(5, before=(1, 2, 3))
    assert drawn(5) != drawn(6)
    assert drawn(5) != drawn(5, seed=1)


def test_state_survives_a_restart(tmp_path):
    mine = agent(tmp_path)
    first = mine.serve(frame(fit_and_count(None), number=1))
    tree = mine.site.model
    mine.gate.ledger.close()
    again = agent(tmp_path)
    assert again.serve(frame(fit_and_count(None), number=1)) == first
    assert answer(again.serve(frame(fit_and_count(None), number=2)))[1] == {"samples": 2}
    np.testing.assert_array_equal(tree.predict(X), again.site.model.predict(X))
    assert len(list((tmp_path / "ukb").glob("state-*.pkl"))) == 1


def test_a_state_file_that_was_changed_is_not_used(tmp_path):
    mine = agent(tmp_path)
    mine.serve(frame(fit_and_count(None), number=1))
    mine.gate.ledger.close()
    (state,) = (tmp_path / "ukb").glob("state-*.pkl")
    state.write_bytes(cloudpickle.dumps((None, {"ran": 41}, None)))
    with pytest.raises(StorageError, match="damaged"):
        agent(tmp_path)


class MovedSince:
    """Stands for a class that had another module or name when the state was written."""


@pytest.mark.parametrize("gone", ["a field", "a module", "a class"])
def test_a_state_of_another_version_is_refused_in_one_line(tmp_path, gone):
    mine = agent(tmp_path)
    mine.serve(frame(fit_and_count(None), number=1))
    as_it_was = (mine.site.fingerprint, None, {"of": MovedSince}, {}, None, mine.site.exposure, 1)
    data = pickle.dumps(as_it_was[:-1] if gone == "a field" else as_it_was, protocol=0)
    if gone == "a module":
        data = data.replace(f"c{__name__}\n".encode(), b"ccollegium.core.codes\n")
    elif gone == "a class":
        data = data.replace(b"\nMovedSince\n", b"\nRenamed\n")
    (state,) = (tmp_path / "ukb").glob("state-*.pkl")
    state.write_bytes(data)
    with mine.gate.ledger.transaction():
        mine.gate.ledger.keep_state("r", state.name, hashlib.sha256(data).hexdigest())
    mine.gate.ledger.close()
    with pytest.raises(StorageError, match="another version of Collegium") as refused:
        agent(tmp_path)
    assert "\n" not in str(refused.value)
    error = {"a field": "ValueError", "a module": "ModuleNotFoundError", "a class": "AttributeError"}[gone]
    assert f"({error})" in str(refused.value)


def test_keys_of_a_run_that_is_over_are_forgotten_on_the_disk_too(tmp_path):
    mine = agent(tmp_path)
    answer(mine.serve(frame(greet("a circle"), number=1)))
    answer(mine.serve(frame(keep_secret("of the run"), number=2)))
    mine.gate.ledger.close()
    again = agent(tmp_path)  # after a crash
    assert again.site.secret_state["word"] == "SECRET of the run"
    assert again.site.secret_state["circles with other sites"]["a circle"]
    again.end("r")
    assert not again.site.secret_state
    again.gate.ledger.close()
    (state,) = (tmp_path / "ukb").glob("state-*.pkl")
    assert state.name == "state-over.pkl"
    assert b"SECRET" not in state.read_bytes()
    over = agent(tmp_path)
    assert not over.site.secret_state
    assert answer(over.serve(frame(greet("a circle"), number=3)))[0]["refused"] == "step-failed"


def test_what_is_no_secret_outlives_the_run(tmp_path):
    mine = agent(tmp_path)
    mine.serve(frame(fit_and_count(None), number=1))
    mine.serve(frame(keep_secret("of the run"), number=2))
    mine.end("r")
    mine.gate.ledger.close()
    assert agent(tmp_path).site.state == {"ran": 1}


def test_a_run_without_secrets_ends_as_it_is(tmp_path):
    mine = agent(tmp_path)
    mine.serve(frame(fit_and_count(None), number=1))
    before = sorted((tmp_path / "ukb").iterdir())
    mine.end("r")
    assert sorted((tmp_path / "ukb").iterdir()) == before
    agent().end("r")  # without a folder, or any order


def test_a_failure_that_depends_on_a_private_fit_is_paid_for_once(tmp_path):
    """That the step failed is an answer, too: the mechanism's noise decided it."""
    mine = agent(tmp_path)
    header, _ = answer(mine.serve(frame(fail_after_a_private_fit(), number=1)))
    assert (header["refused"], header["kind"]) == ("step-failed", "Refusal")
    (row,) = mine.gate.ledger.rows()
    assert (row["kind"], row["bytes"]) == ("Refusal", 0)
    assert read_charges(row["event"])[0] == read_charges(header["privacy"])[0] == [PAID]
    assert mine.gate.ledger.charges() == [PAID]
    again = mine.serve(frame(fail_after_a_private_fit(), number=1))
    assert answer(again)[0] == header
    assert answer(mine.serve(frame(explode(), number=2)))[0].get("entry") is None  # nothing more is owed
    assert len(mine.gate.ledger.rows()) == 1


def test_a_failure_leaves_the_same_state_after_a_restart(tmp_path):
    mine = agent(tmp_path)
    refused = mine.serve(frame(fit_and_count(None), explode(), number=1))
    mine.gate.ledger.close()
    again = agent(tmp_path)
    assert again.serve(frame(fit_and_count(None), explode(), number=1)) == refused
    assert answer(again.serve(frame(fit_and_count(None), number=3)))[1] == {"samples": 2}


def test_nothing_leaves_when_the_ledger_cannot_be_written(tmp_path):
    mine = agent(tmp_path)
    mine.gate.ledger._db.execute("PRAGMA query_only = 1")
    reply = mine.serve(frame(fit_and_count(None)))
    assert answer(reply)[0]["refused"] == "storage-failed"


def test_notes_are_made_in_a_simulation_only():
    exam = Exam(X, np.array([0, 1] * 5, dtype=np.int8))
    real, simulated = agent(exam=exam), agent(exam=exam, simulation=True)
    frames = [each.serve(frame(fit_and_count(None))) for each in (real, simulated)]
    assert real.notes is None
    assert simulated.notes is not None
    assert simulated.notes.accuracy == 1.0
    assert simulated.notes.seconds["fit"] > 0
    assert [sorted(wire.cut(each)[0]) for each in frames] == [["number", "row"]] * 2  # nothing of it is in the frame


def test_a_reply_that_is_sent_again_has_the_notes_it_had(tmp_path):
    exam = Exam(X, np.array([0, 1] * 5))
    mine = agent(tmp_path, exam=exam, simulation=True)
    mine.serve(frame(fit_and_count(None)))
    first = mine.notes
    again = agent(tmp_path, exam=exam, simulation=True)
    again.serve(frame(fit_and_count(None)))
    assert again.notes == first


def test_a_site_writes_its_log_into_its_own_folder(tmp_path):
    agent(tmp_path).serve(frame(explode()))
    assert "SECRET" in (tmp_path / "ukb" / "site.log").read_text()


def test_labels_release_is_small_once_the_consensus_is_known():
    from collegium.algorithms.fedct import label, train

    mine = agent()
    mine.serve(frame(train(None, None, None), label(), number=1))
    header, _ = answer(mine.serve(frame(train(CONSENSUS, None, None), label(), number=3)))
    assert header["kind"] == HardLabels.kind
    assert header["bytes"] == 0


@step
def unpackable(site: ActiveSite) -> Count:
    """A release that is no plain data."""
    return Count(object())  # type: ignore[arg-type]


def test_a_release_that_is_no_plain_data_is_refused():
    assert answer(agent().serve(frame(unpackable())))[0]["refused"] == "not-a-release"
