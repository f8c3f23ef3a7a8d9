from __future__ import annotations

import errno
import itertools
import json
import shutil
import struct
import sys
from collections import Counter
from pathlib import Path

import pandas as pd
import pytest
from sklearn.tree import DecisionTreeClassifier

import collegium as cg
from collegium.errors import MissingExtra
from collegium.runs.callbacks import Callback, RoundReport
from collegium.runs.trackers import MLflowTracker, TensorBoardTracker
from collegium.study.study import Study

pytestmark = pytest.mark.xdist_group("trackers")  # MLflow takes seconds to import, and to make its tables
KINDS = [
    pytest.param((MLflowTracker, "mlflow", "mlflow"), id="mlflow"),
    pytest.param((TensorBoardTracker, "tensorboardX", "tensorboard"), id="tensorboard"),
]


class Counted(Callback):
    """A number that is another one each time it is taken, like the time of day."""

    numbers = itertools.count()

    def on_round(self, report):
        return {"count": next(self.numbers)}


class Raises(Callback):
    def on_round(self, report):
        if report.round == 2:
            raise RuntimeError("in round 2")


class Does(Callback):
    """Something happens at the end of round 1."""

    def __init__(self, action):
        self.action = action

    def on_round(self, report):
        if report.round == 1:
            self.action()


class MLflowLog:
    """A real MLflow database, and what is in it."""

    def __init__(self, folder):
        from mlflow.tracking import MlflowClient

        self.file = folder / "mlflow.db"
        self.uri = f"sqlite:///{self.file}"
        self.client = MlflowClient(self.uri)

    def tracker(self, **options):
        return MLflowTracker(**{"experiment": "study", "tracking_uri": self.uri} | options)

    def runs(self):
        return self.client.search_runs([self.client.get_experiment_by_name("study").experiment_id])

    def numbers(self):
        """(name, step) -> value; a step that was logged twice is an error."""
        (run,) = self.runs()
        entries = [e for name in run.data.metrics for e in self.client.get_metric_history(run.info.run_id, name)]
        steps = Counter((entry.key, entry.step) for entry in entries)
        assert max(steps.values()) == 1, steps.most_common(1)
        return {(entry.key, entry.step): entry.value for entry in entries}

    def artifact(self, name):
        (run,) = self.runs()
        return Path(self.client.download_artifacts(run.info.run_id, name)).read_bytes()

    def loses_its_store(self):
        self.file.write_bytes(b"this is no database any more")


class TensorBoardLog:
    """Real event files, read as TensorBoard reads them."""

    def __init__(self, folder, monkeypatch):
        self.folder = folder
        self._monkeypatch = monkeypatch

    def tracker(self):
        return TensorBoardTracker(self.folder)

    def events(self):
        from tensorboardX.proto.event_pb2 import Event

        for file in sorted(self.folder.rglob("events.*")):
            data = file.read_bytes()
            while data:
                (size,) = struct.unpack("<Q", data[:8])
                yield Event.FromString(data[12 : 12 + size])
                data = data[16 + size :]

    def numbers(self):
        numbers = {}
        for event in self.events():
            if event.HasField("session_log"):  # a restart: what was at this step and beyond is void
                numbers = {key: value for key, value in numbers.items() if key[1] < event.step}
            for value in event.summary.value:
                if value.WhichOneof("value") == "simple_value":
                    assert (value.tag, event.step) not in numbers
                    numbers[value.tag, event.step] = value.simple_value
        return numbers

    def texts(self):
        return {
            v.tag: v.tensor.string_val[0].decode() for e in self.events() for v in e.summary.value if v.tensor.dtype
        }

    def loses_its_store(self):
        def full(writer):
            raise OSError(errno.ENOSPC, "No space left on device")

        self._monkeypatch.setattr("tensorboardX.event_file_writer.EventsWriter.flush", full)


@pytest.fixture(scope="session")
def empty_database(tmp_path_factory):
    """MLflow takes seconds to make its tables: made once, then copied."""
    pytest.importorskip("mlflow", reason="the extra mlflow is not installed")
    pytest.importorskip("sqlalchemy", reason="MLflow needs SQLAlchemy to write to a file")
    folder = tmp_path_factory.mktemp("mlflow")
    MLflowLog(folder).client.search_experiments()
    return folder / "mlflow.db"


@pytest.fixture
def mlflow_log(empty_database, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)  # MLflow puts artifacts into ./mlruns
    shutil.copy(empty_database, tmp_path / "mlflow.db")
    return MLflowLog(tmp_path)


@pytest.fixture
def tensorboard_log(tmp_path, monkeypatch):
    pytest.importorskip("tensorboardX", reason="the extra tensorboard is not installed")
    return TensorBoardLog(tmp_path / "tensorboard", monkeypatch)


@pytest.fixture(params=[pytest.param("mlflow_log", marks=pytest.mark.slow), "tensorboard_log"])
def log(request):
    return request.getfixturevalue(request.param)


def expected_numbers(run):
    """What a tracker must have of a run's metrics."""
    rows = run.metrics.set_index(["split", "metric", "party", "round"])["value"]
    numbers = {(f"{split}/{metric}/{party}", step): value for (split, metric, party, step), value in rows.items()}
    return numbers | {("test/accuracy/mean", step): value for step, value in run.accuracy.mean(axis=1).items()}


def metrics_of(log):
    return {key: value for key, value in log.numbers().items() if not key[0].startswith(("summary/", "total/"))}


def test_every_metric_of_every_round_is_logged(cancer, log):
    run = cancer.run(cg.FedCT(rounds=3), callbacks=[log.tracker(), Counted()], public_truth=cancer.split.public_truth)
    assert metrics_of(log) == pytest.approx(expected_numbers(run), rel=1e-6)


def test_rounds_are_logged_as_they_end(cancer, log):
    seen = []
    look = Does(lambda: seen.append(set(log.numbers())))
    cancer.run(cg.FedCT(rounds=3), callbacks=[log.tracker(), look])
    assert {step for name, step in seen[0] if name == "test/accuracy/site0"} == {0, 1}


def test_what_is_trained_after_the_last_round_ended_is_logged_too(cancer, log):
    run = cancer.run(cg.FedCT(rounds=3, period=2), callbacks=[log.tracker()])
    assert list(run.accuracy.index) == [1, 2]
    assert metrics_of(log) == pytest.approx(expected_numbers(run), rel=1e-6)


def test_summary_and_costs_are_logged_at_the_end(cancer, log):
    run = cancer.run(cg.FedCT(rounds=2), callbacks=[log.tracker()])
    numbers = {name: value for (name, _), value in log.numbers().items()}
    summary = run.summary()
    assert numbers["summary/accuracy/mean"] == pytest.approx(summary.loc["mean", "accuracy"])
    assert numbers["summary/samples/site3"] == summary.loc["site3", "samples"]
    assert numbers["total/bytes_up"] == run.costs["bytes_up"].sum() > 0
    assert numbers["total/seconds_fit"] == pytest.approx(run.costs["seconds_fit"].sum())
    assert numbers["total/seconds"] == pytest.approx(run.about["seconds"])


def test_a_run_without_a_test_set_is_logged(cancer, log):
    cancer.run(cg.Local(), test=None, callbacks=[log.tracker()])
    names = {name for name, _ in log.numbers()}
    assert "total/seconds_fit" in names
    assert not any("accuracy" in name for name in names)


def test_each_party_keeps_a_name_of_its_own(cancer, log):
    names = ["St. Ann (Köln)", "St. Ann [Köln]", "mean?", "coordinator?", "a" * 120]
    sites = [
        cg.Site(name, X, y, learner=DecisionTreeClassifier(max_depth=4))
        for name, (X, y) in zip(names, cancer.split.sites, strict=True)
    ]
    run = cancer.run(cg.FedCT(rounds=1), sites=sites, callbacks=[log.tracker()])
    numbers = {name.rpartition("/")[2]: value for (name, _), value in metrics_of(log).items() if "/accuracy/" in name}
    clean = ["St._Ann__Köln_", "St._Ann__Köln__2", "mean_", "coordinator_", "a" * 80]
    expected = dict(zip(clean, run.accuracy.iloc[-1], strict=True))
    assert numbers == pytest.approx(expected | {"mean": run.accuracy.iloc[-1].mean()})


def test_metrics_of_callbacks_may_have_any_name(cancer, log):
    class Odd(Callback):
        def on_round(self, report):
            return {"../a b": 1.0, "../a?b": 2.0, "ä/ö": 3.0}

    cancer.run(cg.Local(), callbacks=[Odd(), log.tracker()])
    odd = {name: value for (name, _), value in log.numbers().items() if name.startswith("callback/")}
    assert sorted(odd.values()) == [1.0, 2.0, 3.0]


def test_a_resumed_run_goes_on_in_the_same_log_and_no_step_counts_twice(cancer, tmp_path, log):
    settings = {"out": tmp_path / "run", "resume": True}
    with pytest.raises(RuntimeError, match="in round 2"):
        cancer.run(cg.FedCT(rounds=4), callbacks=[Counted(), log.tracker(), Raises()], **settings)
    before = log.numbers()
    assert before["callback/count/coordinator", 2] == before["callback/count/coordinator", 0] + 2
    run = cancer.run(cg.FedCT(rounds=4), callbacks=[Counted(), log.tracker()], **settings)
    after = metrics_of(log)
    assert {step for _, step in after} == {0, 1, 2, 3}
    replayed = {key: value for key, value in expected_numbers(run).items() if not key[0].startswith("callback/")}
    assert {key: after[key] for key in replayed} == pytest.approx(replayed, rel=1e-6)
    counts = [after["callback/count/coordinator", step] for step in range(4)]
    if isinstance(log, MLflowLog):  # keeps what it has
        assert counts[:3] == [before["callback/count/coordinator", step] for step in range(3)]
    else:  # shows the replay
        assert counts == [counts[0] + step for step in range(4)]
        assert counts[0] > before["callback/count/coordinator", 2]


def test_a_finished_run_that_is_resumed_adds_nothing(cancer, tmp_path, log):
    for _ in range(2):
        cancer.run(cg.FedCT(rounds=2), callbacks=[log.tracker()], out=tmp_path / "run", resume=True)
    names = Counter(name for name, _ in log.numbers())
    assert names["test/accuracy/site0"] == 2
    assert names["total/seconds"] == 1


def test_one_tracker_logs_several_runs_apart(cancer, tmp_path, tensorboard_log, mlflow_log):
    trackers = [tensorboard_log.tracker(), mlflow_log.tracker()]
    runs = [cancer.run(cg.Local(), callbacks=trackers, seed=seed) for seed in (1, 2)]
    folders = {folder.name for folder in tensorboard_log.folder.iterdir()}
    assert folders == {f"Local-{run.about['run'][:8]}" for run in runs}
    assert {run.data.tags["collegium.run"] for run in mlflow_log.runs()} == {run.about["run"] for run in runs}


def test_a_finished_run_can_be_logged_later(cancer, tmp_path, log):
    cancer.run(cg.FedCT(rounds=2), out=tmp_path / "run")
    run, tracker = cg.load(tmp_path / "run"), log.tracker()
    tracker.on_start(run.about)
    tracker.on_end(run)
    assert metrics_of(log) == pytest.approx(expected_numbers(run), rel=1e-6)


def test_a_store_that_is_gone_in_the_middle_does_not_end_the_run(cancer, log):
    tracker = log.tracker()
    with pytest.warns(cg.CollegiumWarning, match="stopped logging; the run continues") as caught:
        run = cancer.run(cg.FedCT(rounds=5), callbacks=[tracker, Does(log.loses_its_store)])
    assert len([warning for warning in caught if warning.category is cg.CollegiumWarning]) == 1
    pd.testing.assert_frame_equal(run.metrics, cancer.run(cg.FedCT(rounds=5)).metrics)


def test_a_store_that_was_never_there_is_an_error_at_the_start(cancer, tmp_path, tensorboard_log, mlflow_log):
    (tmp_path / "file").write_text("this is neither a folder nor a database")
    trained = Does(lambda: pytest.fail("the run went on"))
    for tracker in (TensorBoardTracker(tmp_path / "file"), MLflowTracker(tracking_uri=f"sqlite:///{tmp_path}/file")):
        with pytest.raises(cg.ConfigError, match=f"{type(tracker).__name__} cannot start its log"):
            cancer.run(cg.FedCT(rounds=2), callbacks=[tracker, trained])


def test_mlflow_has_settings_and_files(cancer, mlflow_log):
    run = cancer.run(cg.FedCT(rounds=2), callbacks=[mlflow_log.tracker(run_name="mine")], seed=3)
    (logged,) = mlflow_log.runs()
    assert logged.info.status == "FINISHED"
    assert logged.info.run_name == "mine"
    assert logged.data.params["seed"] == "3"
    assert logged.data.params["sites"] == "5"
    assert logged.data.params["algorithm"] == run.about["algorithm"]
    assert mlflow_log.artifact("plot.png").startswith(b"\x89PNG")
    assert json.loads(mlflow_log.artifact("about.json")) == run.about
    assert mlflow_log.artifact("summary.csv").decode() == run.summary().to_csv()


def test_mlflow_has_the_study(mlflow_log):
    table = {
        "name": "small",
        "data": {"source": "breast_cancer", "public": 100, "test": 100},
        "partition": {"sites": 2},
        "algorithm": "local",
        "sites": {"learner": "naive_bayes"},
    }
    study = Study.from_dict(table)
    study.run(callbacks=[mlflow_log.tracker()])
    assert mlflow_log.artifact("study.toml").decode() == study.to_toml()
    assert mlflow_log.runs()[0].info.run_name == "small"


def test_mlflow_uses_its_environment_variables(cancer, mlflow_log, monkeypatch):
    monkeypatch.setenv("MLFLOW_TRACKING_URI", mlflow_log.uri)
    monkeypatch.setenv("MLFLOW_EXPERIMENT_NAME", "study")
    cancer.run(cg.Local(), callbacks=[MLflowTracker()])
    assert len(mlflow_log.runs()) == 1


def test_many_numbers_go_to_mlflow_in_requests_that_a_server_takes(mlflow_log, monkeypatch):
    from mlflow.tracking import MlflowClient
    from mlflow.utils.validation import MAX_METRICS_PER_BATCH

    sizes, log_batch = [], MlflowClient.log_batch

    def watched(client, run_id, metrics=(), **others):
        sizes.append(len(metrics))
        return log_batch(client, run_id, metrics, **others)

    monkeypatch.setattr(MlflowClient, "log_batch", watched)
    tracker = mlflow_log.tracker()
    about = {"parties": [f"s{i}" for i in range(1200)], "classes": [], "run": "r", "study": None, "algorithm": "A()"}
    tracker.on_start(about)
    rows = [{"split": "test", "metric": "x", "party": party, "round": 0, "value": 1.0} for party in about["parties"]]
    tracker.on_round(RoundReport(0, 1, tuple(rows)))
    assert sum(sizes) == 1201
    assert max(sizes) <= MAX_METRICS_PER_BATCH
    assert mlflow_log.runs()[0].data.metrics["test/x/mean"] == 1.0


def test_tensorboard_has_settings_and_summary(cancer, tensorboard_log):
    run = cancer.run(cg.FedCT(rounds=2), callbacks=[tensorboard_log.tracker()], seed=3)
    texts = tensorboard_log.texts()
    assert "    seed: 3" in texts["settings/text_summary"].splitlines()
    assert f"    algorithm: {run.about['algorithm']}" in texts["settings/text_summary"].splitlines()
    assert "site4" in texts["summary/text_summary"]


@pytest.mark.parametrize("kind", KINDS)
def test_a_missing_package_is_named_when_the_tracker_is_made(kind, monkeypatch, tmp_path):
    tracker, package, extra = kind
    monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(MissingExtra, match=rf"{tracker.__name__} needs .*collegium\[{extra}\]"):
        tracker(str(tmp_path))
