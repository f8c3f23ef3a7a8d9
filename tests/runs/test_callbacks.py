from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

import collegium as cg
from collegium.runs.callbacks import Callback, EarlyStopping, RoundReport


class Diary(Callback):
    """Writes down who was told what."""

    def __init__(self, name="", pages=None):
        self.name = name
        self.pages = [] if pages is None else pages
        self.reports = []

    def on_start(self, about):
        self.about = about
        self.pages.append(f"{self.name}start")

    def on_round(self, report):
        self.reports.append(report)
        self.pages.append(f"{self.name}{report.round}")

    def on_end(self, run):
        self.run = run
        self.pages.append(f"{self.name}end")


class StopAfter(Callback):
    def __init__(self, number):
        self.number = number

    def on_round(self, report):
        return report.round == self.number


class Raises(Callback):
    """Fails at one point of the run."""

    def __init__(self, when):
        self.when = when

    def on_start(self, about):
        self._come("start")

    def on_round(self, report):
        self._come(report.round)

    def on_end(self, run):
        self._come("end")

    def _come(self, where):
        if where == self.when:
            raise RuntimeError(f"at {where}")


def test_callbacks_are_told_in_order(cancer):
    pages = []
    first, second = Diary("a", pages), Diary("b", pages)
    run = cancer.run(cg.FedCT(rounds=2), callbacks=[first, second])
    assert pages == ["astart", "bstart", "a0", "b0", "a1", "b1", "aend", "bend"]
    assert first.run is run
    assert first.about["parties"] == [f"site{i}" for i in range(5)]
    assert first.about["run"] == run.about["run"]
    assert first.about["algorithm"].startswith("FedCT(rounds=2")


def test_what_a_callback_does_to_its_copy_of_about_is_its_own_affair(cancer):
    class Vandal(Callback):
        def on_start(self, about):
            about.clear()

    diary = Diary()
    cancer.run(cg.Local(), callbacks=[Vandal(), diary])
    assert diary.about["seed"] == 0


def test_a_report_has_the_metrics_of_its_round(cancer):
    diary = Diary()
    run = cancer.run(cg.FedCT(rounds=3), callbacks=[diary])
    assert [(report.round, report.rounds) for report in diary.reports] == [(0, 3), (1, 3), (2, 3)]
    for report in diary.reports:
        assert {row["round"] for row in report.metrics} == {report.round}
        assert report.accuracy == pytest.approx(run.accuracy.loc[report.round].mean())
        assert report.mean("consensus_size", "public") == 1.0
        assert report.mean("consensus_size", "test") is None


@pytest.mark.parametrize("algorithm", [cg.FedCT(rounds=5), cg.Local(rounds=5)], ids=["FedCT", "Local"])
def test_a_callback_may_stop_the_run(cancer, algorithm):
    diary = Diary()
    run = cancer.run(algorithm, callbacks=[StopAfter(1), diary])
    assert diary.pages == ["start", "0", "1", "end"]
    assert list(run.accuracy.index) == [0, 1]
    assert len(run.models) == 5


def test_a_stopped_run_is_the_beginning_of_the_whole_one(cancer):
    whole = cancer.run(cg.FedCT(rounds=4))
    stopped = cancer.run(cg.FedCT(rounds=4), callbacks=[StopAfter(1)])
    pd.testing.assert_frame_equal(stopped.accuracy, whole.accuracy.loc[:1])
    assert len(stopped.releases) == 10


@pytest.mark.parametrize("algorithm", [cg.FedCT(rounds=2), cg.Local(rounds=2)], ids=["FedCT", "Local"])
def test_a_callback_may_add_metrics(cancer, algorithm):
    class Spread(Callback):
        def on_round(self, report):
            values = [row["value"] for row in report.metrics if row["metric"] == "accuracy"]
            return {"spread": max(values) - min(values), "sites": len(values)}

    later = Diary()
    run = cancer.run(algorithm, callbacks=[Spread(), later])
    added = run.metrics[run.metrics["split"] == "callback"]
    assert list(added["metric"]) == ["spread", "sites"] * 2
    assert list(added["round"]) == [0, 0, 1, 1]
    assert set(added["party"]) == {"coordinator"}
    spread = run.accuracy.max(axis=1) - run.accuracy.min(axis=1)
    np.testing.assert_allclose(added.loc[added["metric"] == "spread", "value"], spread)
    assert [report.mean("sites", "callback") for report in later.reports] == [5.0, 5.0]


def test_callbacks_change_nothing_else(cancer):
    class Counts(Callback):
        def on_round(self, report):
            return {"count": 1}

    plain = cancer.run(cg.FedCT(rounds=3))
    watched = cancer.run(cg.FedCT(rounds=3), callbacks=[Counts()])
    metrics = watched.metrics[watched.metrics["split"] != "callback"].reset_index(drop=True)
    pd.testing.assert_frame_equal(metrics, plain.metrics)
    assert list(watched.releases["sha256"]) == list(plain.releases["sha256"])


def reports(*accuracies):
    """Rounds in which two sites had these accuracies on average."""
    for number, value in enumerate(accuracies):
        rows = [] if value is None else [value - 0.1, value + 0.1]
        metrics = tuple(
            {"round": number, "party": "s", "split": "test", "metric": "accuracy", "value": row} for row in rows
        )
        yield RoundReport(number, len(accuracies), metrics)


@pytest.mark.parametrize(
    ("settings", "accuracies", "stops_at"),
    [
        ({"patience": 2}, [0.5, 0.6, 0.6, 0.6, 0.6], 3),
        ({"patience": 2}, [0.5, 0.4, 0.6, 0.5, 0.5], 4),
        ({"patience": 1}, [0.5, 0.5], 1),
        ({"patience": 2}, [0.5, None, None, 0.4, 0.4], 4),
        ({"patience": 2, "min_delta": 0.05}, [0.5, 0.52, 0.54, 0.56], 2),
        ({"patience": 2, "min_delta": 0.05}, [0.5, 0.56, 0.62, 0.68], None),
        ({}, [0.5, 0.6, 0.7, 0.8], None),
    ],
)
def test_early_stopping_waits_for_its_patience(settings, accuracies, stops_at):
    callback = EarlyStopping(**settings)
    for attempt in range(2):  # the second run finds nothing left of the first
        callback.on_start({})
        stops = [report.round for report in reports(*accuracies) if callback.on_round(report)]
        assert (stops[0] if stops else None) == stops_at, attempt


def test_early_stopping_ends_a_run_that_no_longer_improves(cancer):
    whole = cancer.run(cg.FedCT(rounds=30)).accuracy.mean(axis=1)
    best, waited = -1.0, 0
    for expected, value in enumerate(whole):  # noqa: B007
        best, waited = (value, 0) if value > best else (best, waited + 1)
        if waited == 2:
            break
    run = cancer.run(cg.FedCT(rounds=30), callbacks=[EarlyStopping(patience=2)])
    assert run.accuracy.index[-1] == expected < 29


def test_early_stopping_without_a_test_set_never_stops(cancer):
    diary = Diary()
    cancer.run(cg.FedCT(rounds=3), test=None, callbacks=[EarlyStopping(patience=1), diary])
    assert len(diary.reports) == 3


@pytest.mark.parametrize("workers", [0, pytest.param(1, marks=pytest.mark.slow)])
def test_a_callback_that_raises_ends_the_run_which_can_be_read_and_resumed(cancer, tmp_path, workers):
    with pytest.raises(RuntimeError, match="at 1"):
        cancer.run(cg.FedCT(rounds=3), callbacks=[Raises(1)], out=tmp_path / "run", workers=workers)
    left = cg.load(tmp_path / "run")
    assert not left.finished
    assert left.about["algorithm"].startswith("FedCT")
    again = cancer.run(cg.FedCT(rounds=3), out=tmp_path / "run", resume=True, workers=workers)
    pd.testing.assert_frame_equal(again.metrics, cancer.run(cg.FedCT(rounds=3)).metrics)
    assert cg.load(tmp_path / "run").finished
    assert set(cg.verify_ledger(tmp_path / "run" / "ledger.db").values()) == {3}


def test_a_callback_that_raises_at_the_start_leaves_a_run_to_resume(cancer, tmp_path):
    with pytest.raises(RuntimeError, match="at start"):
        cancer.run(cg.FedCT(rounds=2), callbacks=[Raises("start")], out=tmp_path / "run")
    with pytest.raises(cg.StorageError, match="resume=True"):
        cg.load(tmp_path / "run")
    assert cancer.run(cg.FedCT(rounds=2), out=tmp_path / "run", resume=True).finished


def test_a_callback_that_raises_at_the_end_takes_nothing_away(cancer, tmp_path):
    with pytest.raises(RuntimeError, match="at end"):
        cancer.run(cg.FedCT(rounds=2), callbacks=[Raises("end")], out=tmp_path / "run")
    stored = cg.load(tmp_path / "run")
    assert stored.finished
    assert len(stored.models) == 5


def test_a_resumed_run_tells_its_callbacks_of_all_rounds_again(cancer, tmp_path):
    with pytest.raises(RuntimeError):
        cancer.run(cg.FedCT(rounds=3), callbacks=[before := Diary(), Raises(1)], out=tmp_path / "run")
    after = Diary()
    cancer.run(cg.FedCT(rounds=3), callbacks=[after], out=tmp_path / "run", resume=True)
    assert after.pages == ["start", "0", "1", "2", "end"]
    assert after.about["run"] == before.about["run"]
    assert [report.metrics for report in after.reports[:2]] == [report.metrics for report in before.reports]


def test_an_exception_reaches_the_user_also_where_the_algorithm_stops_by_itself(cancer):
    class Records(Callback):
        rounds: list[int] = []  # noqa: RUF012

        def on_round(self, report):
            self.rounds.append(report.round)

    cancer.run(cg.FedCT(rounds=50, patience=1), callbacks=[Records()])
    last = Records.rounds[-1]
    assert last < 49

    class Raises(Callback):
        def on_round(self, report):
            if report.round == last:
                raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        cancer.run(cg.FedCT(rounds=50, patience=1), callbacks=[Raises()])


def test_the_last_report_has_what_was_trained_after_the_last_communication(cancer):
    class Last(Callback):
        def on_round(self, report):
            self.report = report

    last = Last()
    run = cancer.run(cg.FedCT(rounds=3, period=2), callbacks=[last])
    assert last.report.round == 2
    assert last.report.accuracy == pytest.approx(run.accuracy.loc[2].mean())


def test_a_comparison_of_numpy_stops_the_run(cancer):
    class Stops(Callback):
        def on_round(self, report):
            return np.float64(1) > 0

    run = cancer.run(cg.FedCT(rounds=5), callbacks=[Stops()])
    assert set(run.metrics["round"]) == {0}


@pytest.mark.parametrize("callback", [print, Callback, EarlyStopping, object()])
def test_what_is_no_callback_is_refused(cancer, callback):
    with pytest.raises(cg.ConfigError, match="callbacks"):
        cancer.run(cg.FedCT(rounds=1), callbacks=[callback])


@pytest.mark.parametrize("settings", [{"patience": 0}, {"min_delta": -1.0}])
def test_early_stopping_that_makes_no_sense_is_refused(settings):
    with pytest.raises(cg.ConfigError, match="EarlyStopping"):
        EarlyStopping(**settings)


class Listener(Callback):
    def __init__(self):
        self.heard = []

    def on_disclosure(self, disclosure):
        self.heard.append(disclosure)


def test_it_hears_what_becomes_known_to_whom(cancer):
    listener = Listener()
    cancer.run(cg.FedCT(rounds=2), callbacks=[listener])
    told = {(each.round, each.to, each.party, type(each.value).__name__) for each in listener.heard}
    parties = {site.name for site in cancer.sites()}
    expected = {(t, "coordinator", party, "HardLabels") for t in (0, 1) for party in parties}
    assert told == expected | {(t, "sites", "coordinator", "Labels") for t in (0, 1)}


def test_it_hears_of_models_and_of_secret_sums(cancer):
    net, votes = Listener(), Listener()
    cancer.run(cg.FedAvg(rounds=1), sites=cancer.sites(cg.TorchClassifier("linear")), public=None, callbacks=[net])
    assert any(each.to == "sites" and isinstance(each.value, dict) for each in net.heard)
    cancer.run(cg.FedCT(rounds=1, votes="secret"), callbacks=[votes])
    assert [type(each.value).__name__ for each in votes.heard if each.party == "sum"] == ["VoteSum"]
    assert not any(type(each.value).__name__ == "HardLabels" for each in votes.heard)
