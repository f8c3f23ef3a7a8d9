from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from sklearn.tree import DecisionTreeClassifier

import collegium as cg

pytestmark = pytest.mark.xdist_group("results")  # its fixtures are made once


@pytest.fixture(scope="module")
def run(cancer):
    return cancer.run(cg.FedCT(rounds=3), public_truth=cancer.split.public_truth)


def test_the_summary_has_a_row_per_site_and_their_mean(run):
    table = run.summary()
    assert list(table.index) == [f"site{i}" for i in range(5)] + ["mean"]
    assert (table["learner"].iloc[:5] == "DecisionTreeClassifier").all()
    assert table.loc["mean", "accuracy"] == pytest.approx(table["accuracy"].iloc[:5].mean())
    assert table.loc["site0", "accuracy"] == run.accuracy["site0"].iloc[-1]
    assert table.loc["site0", "first_accuracy"] == run.accuracy["site0"].iloc[0]
    assert (table["releases"] == 3).all()
    assert (table["failures"] == 0).all()


def test_80_columns_show_the_whole_summary_accuracy_and_bytes_first(run):
    shown = str(run.summary()).splitlines()
    assert max(map(len, shown)) <= 80
    assert shown[0].split()[:3] == ["first_accuracy", "accuracy", "bytes_up"]
    assert {"releases", "failures"} <= {word for line in shown for word in line.split()}
    assert "..." not in str(run.summary())
    assert type(run.summary().iloc[:2]) is pd.DataFrame


def test_tables_are_in_the_order_of_rounds_and_sites(run):
    releases = run.releases
    assert list(releases["party"]) == [f"site{i}" for i in range(5)] * 3
    assert list(releases["round"]) == [0] * 5 + [1] * 5 + [2] * 5
    assert releases["sha256"].str.len().eq(64).all()
    assert not releases["protected"].any()


def test_the_consensus_of_a_round_is_the_last_that_was_noted(run):
    assert list(run.consensus["consensus_size"]) == [1.0] * 3
    noted_again = run.metrics[run.metrics["metric"] == "consensus_size"].assign(value=[np.nan, 0.5, 0.25])
    table = replace(run, metrics=pd.concat([run.metrics, noted_again])).consensus
    assert list(table["consensus_size"]) == [1.0, 0.5, 0.25]
    assert table["consensus_quality"].equals(run.consensus["consensus_quality"])


def test_the_plot_has_a_line_per_site_and_the_consensus(run, tmp_path):
    figure = run.plot(tmp_path / "run.png")
    assert figure._repr_png_().startswith(b"\x89PNG")  # what a notebook shows
    accuracy, consensus, traffic = figure.axes
    assert len(accuracy.lines) == 6
    assert len(consensus.lines) == 3
    assert len(traffic.patches) == 5
    assert (tmp_path / "run.png").stat().st_size > 10_000


@pytest.mark.parametrize("algorithm", [cg.Local(), cg.FedCT(rounds=1)])
def test_runs_without_consensus_or_test_set_can_be_drawn(cancer, algorithm):
    assert cancer.run(algorithm, test=None).plot() is not None


def test_many_sites_can_be_drawn_and_summed_up():
    rng = np.random.default_rng(0)
    sites = [cg.Site(f"s{i}", rng.normal(size=(6, 2)), [0, 1] * 3, learner=DecisionTreeClassifier()) for i in range(30)]
    run = cg.run(cg.FedCT(rounds=2), sites=sites, public=rng.normal(size=(10, 2)))
    assert len(run.summary()) == 31
    assert run.plot() is not None


@pytest.mark.parametrize("rule", [cg.Majority(), cg.DawidSkene()])
def test_a_run_says_how_sure_the_rule_was_of_each_label(cancer, rule):
    run = cancer.run(cg.FedCT(rounds=1, consensus=rule))
    sure = run.consensus_confidences
    assert sure.shape == run.labels.codes.shape
    assert (sure > 0.5).all()  # two classes, and five sites
    assert (sure <= 1).all()
    assert len(np.unique(sure)) > 1


def test_a_saved_run_comes_back(run, cancer, tmp_path):
    run.save(tmp_path / "run")
    back = cg.load(tmp_path / "run")
    for name in ("metrics", "releases", "costs", "refusals", "class_counts"):
        pd.testing.assert_frame_equal(getattr(back, name), getattr(run, name), check_dtype=False)
    assert back.labels == run.labels
    np.testing.assert_array_equal(back.consensus_confidences, run.consensus_confidences)
    assert back.about == run.about
    X = cancer.split.test[0]
    for party, model in run.models.items():
        np.testing.assert_array_equal(back.models[party].predict(X), model.predict(X))
    np.testing.assert_array_equal(back.global_model.predict(X), run.global_model.predict(X))
    pd.testing.assert_frame_equal(back.summary(), run.summary())
    assert back.plot() is not None


def test_a_run_that_made_no_global_model_comes_back(cancer, tmp_path):
    cancer.run(cg.Local()).save(tmp_path / "run")
    back = cg.load(tmp_path / "run")
    assert back.global_model is None
    assert back.labels is None
    assert back.consensus_confidences is None
    assert len(back.models) == 5


def test_saving_does_not_overwrite_another_run(run, tmp_path):
    run.save(tmp_path / "run")
    with pytest.raises(cg.ConfigError, match="already"):
        run.save(tmp_path / "run")
    run.save(tmp_path / "run", overwrite=True)


def test_nothing_of_an_earlier_run_stays_and_nothing_of_anybody_elses_goes(run, cancer, tmp_path):
    folder = tmp_path / "run"
    folder.mkdir()
    (folder / "public.parquet").write_bytes(b"rows of the user's own")
    run.save(folder, overwrite=True)
    assert (folder / "public.parquet").read_bytes() == b"rows of the user's own"
    assert (folder / "labels.npy").exists()
    told = pd.DataFrame({"benign": [1.0], "malignant": [0.0]})
    replace(run, opinion=told, known_verdict=told).save(folder, overwrite=True)
    assert cg.load(folder).known_verdict is not None
    assert (folder / "opinion.parquet").exists()
    alone = cancer.run(cg.Local())
    replace(alone, _models={"site0": alone.models["site0"]}, known_verdict=None).save(folder, overwrite=True)
    assert not [
        name for name in ("labels.npy", "opinion.parquet", "tables/verdict.parquet") if (folder / name).exists()
    ]
    assert [file.name for file in (folder / "models").iterdir()] == ["0-site0.pkl"]
    assert (folder / "public.parquet").read_bytes() == b"rows of the user's own"
    loaded = cg.load(folder)
    assert (loaded.labels, loaded.made, loaded.opinion, loaded.known_verdict) == (None, None, None, None)


def test_files_of_the_users_own_beside_a_run_stay(cancer, tmp_path):
    (tmp_path / "labels.npy").write_bytes(b"mine")
    with pytest.raises(cg.errors.ConfigError, match="not empty, and holds no run: choose another folder"):
        cancer.run(cg.FedCT(rounds=1), out=tmp_path)
    with pytest.raises(cg.errors.ConfigError, match="no run that could be resumed"):
        cancer.run(cg.FedCT(rounds=1), out=tmp_path, resume=True)
    folder = tmp_path / "run"
    cancer.run(cg.FedCT(rounds=1), out=folder)
    (folder / "public.parquet").write_bytes(b"rows of the user's own")
    cancer.run(cg.FedCT(rounds=1), out=folder, resume=True)
    assert (folder / "public.parquet").read_bytes() == b"rows of the user's own"
    assert cg.load(folder).labels is not None
    assert (tmp_path / "labels.npy").read_bytes() == b"mine"
    assert cg.load(folder).made is None
    with pytest.raises(cg.errors.ConfigError, match=r"no run wrote there \('public.parquet'\), so it is not removed"):
        cancer.run(cg.FedCT(rounds=1), out=folder, overwrite=True)
    (folder / "public.parquet").rename(tmp_path / "public.parquet")
    cancer.run(cg.FedCT(rounds=1), out=folder, overwrite=True)


def test_a_file_of_that_name_is_no_run(cancer, tmp_path):
    (tmp_path / "record").write_text("my thesis")
    with pytest.raises(cg.errors.ConfigError, match="not empty and not a run"):
        cancer.run(cg.FedCT(rounds=1), out=tmp_path, overwrite=True)
    assert (tmp_path / "record").read_text() == "my thesis"


def test_files_in_the_way_are_kept(run, cancer, tmp_path):
    (tmp_path / "labels.npy").write_bytes(b"mine")
    for overwrite in (False, True):
        with pytest.raises(cg.errors.ConfigError, match=r"files that no run wrote there \('labels.npy'\)"):
            run.save(tmp_path, overwrite=overwrite)
    with pytest.warns(cg.CollegiumWarning, match=r"labels.npy was not written by this run: it is now labels.npy.1"):
        run.write(tmp_path)  # as a run does that ends: what it has found must not be lost, either
    assert (tmp_path / "labels.npy.1").read_bytes() == b"mine"
    assert cg.load(tmp_path).labels is not None
    other = tmp_path / "other"
    cancer.run(cg.FedCT(rounds=1), out=other)
    with pytest.raises(cg.errors.ConfigError, match="the record and the ledger of another run"):
        run.save(other, overwrite=True)


def test_a_run_whose_end_is_interrupted_goes_on_with_its_own_files(cancer, tmp_path, monkeypatch):
    written = cg.Run.write_about

    def interrupted(run, *args, finished, **more):
        if finished:
            raise OSError(28, "No space left on device")
        written(run, *args, finished=finished, **more)

    monkeypatch.setattr(cg.Run, "write_about", interrupted)
    with pytest.raises(cg.StorageError, match="No space left"):
        cancer.run(cg.FedCT(rounds=1), out=tmp_path)
    assert (tmp_path / "labels.npy").exists()
    assert "labels.npy" in json.loads((tmp_path / "run.json").read_text())["files"]
    monkeypatch.undo()
    cancer.run(cg.FedCT(rounds=1), out=tmp_path, resume=True)
    assert cg.load(tmp_path).finished
    assert not list(tmp_path.glob("labels.npy.*"))
    (tmp_path / "run.json").unlink()  # the record shows that a run was here
    cancer.run(cg.FedCT(rounds=1), out=tmp_path, resume=True)
    assert not list(tmp_path.glob("labels.npy.*"))


def test_what_is_put_beside_a_run_while_it_goes_on_is_kept(cancer, tmp_path):
    class Busy(cg.Callback):
        def on_round(self, report):
            for name in ("labels.npy", "confidences.npz", "study.toml"):
                (tmp_path / name).write_bytes(b"mine")

    with pytest.warns(cg.CollegiumWarning, match="it is now labels.npy.1"):
        cancer.run(cg.FedCT(rounds=2), out=tmp_path, callbacks=[Busy()])
    for name in ("labels.npy.1", "confidences.npz", "study.toml"):
        assert (tmp_path / name).read_bytes() == b"mine"
    assert cg.load(tmp_path).study is None


@pytest.mark.parametrize("files", [None, 3, [1, "", "../x", "/x", "models"], "absent"])
def test_a_list_of_files_that_is_none_removes_nothing(run, cancer, tmp_path, files):
    folder = run.save(tmp_path / "run")
    about = json.loads((folder / "run.json").read_text())
    if files == "absent":  # as earlier versions wrote it
        del about["files"]
    else:
        about["files"] = files
    (folder / "run.json").write_text(json.dumps(about))
    (tmp_path / "x").write_text("mine")
    (folder / "public.parquet").write_text("mine")
    assert cg.load(folder).made is None
    alone = cancer.run(cg.Local())
    if files != "absent":
        for name in ("labels.npy", "consensus_confidences.npy"):
            (folder / name).unlink(missing_ok=True)
    replace(alone, _models={}, known_verdict=None).save(folder, overwrite=True)
    assert (tmp_path / "x").read_text() == (folder / "public.parquet").read_text() == "mine"
    assert cg.load(folder).labels is None
    assert files != "absent" or not list((folder / "models").iterdir())


def test_the_study_of_another_run_is_not_this_ones(run, tmp_path):
    folder = replace(run, study="seed = 1").save(tmp_path / "run")
    assert cg.load(folder).study == "seed = 1"
    run.save(folder, overwrite=True)
    assert cg.load(folder).study is None
    assert not (folder / "study.toml").exists()
    (folder / "study.toml").write_text("seed = 2")
    assert cg.load(folder).study is None


def test_a_run_with_a_folder_is_saved_there_as_it_ends(cancer, tmp_path):
    run = cancer.run(cg.FedCT(rounds=2), out=tmp_path / "run")
    assert cg.load(tmp_path / "run").metrics.equals(run.metrics)
    assert cg.verify_ledger(tmp_path / "run" / "ledger.db") == {f"site{i}": 2 for i in range(5)}
    assert list(run.releases["entry"]) != []


def test_the_coordinator_holds_the_hash_of_every_ledger_row(cancer, tmp_path):
    from collegium.site.ledger import read_ledger

    run = cancer.run(cg.FedCT(rounds=2), out=tmp_path / "run")
    rows = read_ledger(tmp_path / "run" / "ledger.db")
    assert {row["hash"] for row in rows} == set(run.releases["entry"])
    assert {row["sha256"] for row in rows} == set(run.releases["sha256"])


@pytest.mark.parametrize("damage", ["missing", "empty", "cut table", "no table", "no json", "unfinished"])
def test_a_folder_that_holds_no_readable_run_says_so(run, tmp_path, damage):
    folder = tmp_path / "run"
    if damage == "empty":
        folder.mkdir()
    elif damage == "unfinished":
        folder.mkdir()
        (folder / "record").touch()
    elif damage != "missing":
        run.save(folder)
        table = folder / "tables" / "metrics.parquet"
        if damage == "cut table":
            table.write_bytes(table.read_bytes()[:100])
        elif damage == "no table":
            table.unlink()
        else:
            (folder / "run.json").write_text("{")
    with pytest.raises(cg.StorageError, match="resume" if damage == "unfinished" else "run"):
        cg.load(folder)


def test_a_model_of_a_class_that_is_gone_is_refused_in_one_line_and_the_tables_can_be_read(run, tmp_path):
    folder = run.save(tmp_path / "run")
    for pickled in (b"ccollegium.core.that_moved\nModel\n.", b"ccollegium.core.labels\nThatIsGone\n."):
        next((folder / "models").glob("0-*.pkl")).write_bytes(pickled)
        back = cg.load(folder)
        assert back.metrics.equals(run.metrics)
        with pytest.raises(cg.StorageError, match="written by another version") as caught:
            back.models  # noqa: B018
        assert "\n" not in str(caught.value)


def test_a_full_disk_loses_nothing_that_was_there(run, tmp_path, monkeypatch):
    import errno

    run.save(tmp_path / "run")
    good = (tmp_path / "run" / "run.json").read_text()

    def full(*args, **kwargs):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr("pandas.DataFrame.to_parquet", full)
    with pytest.raises(cg.StorageError, match="No space left"):
        run.save(tmp_path / "run", overwrite=True)
    monkeypatch.undo()
    assert (tmp_path / "run" / "run.json").read_text() == good
    assert cg.load(tmp_path / "run").metrics.equals(run.metrics)
    assert not list((tmp_path / "run").rglob("*.part"))


class NeedsMoreRows(DecisionTreeClassifier):
    """Cannot learn from its site's rows alone."""

    def fit(self, X, y):
        if len(X) < 50:
            raise ValueError("too few rows")
        return super().fit(X, y)


def test_a_site_that_failed_at_first_has_no_first_accuracy(cancer):
    sites = cancer.sites()
    sites[2] = cg.Site("site2", sites[2].X, sites[2].y, learner=NeedsMoreRows())
    with pytest.warns(cg.CollegiumWarning, match="site2"):
        table = cancer.run(cg.FedCT(rounds=3), sites=sites).summary()
    assert np.isnan(table.loc["site2", "first_accuracy"])
    assert table.loc["site2", "accuracy"] > 0.5
    assert table.loc["mean", "first_accuracy"] == table["first_accuracy"].iloc[:5].mean()


def test_a_run_is_shown_in_one_line(cancer):
    run = cancer.run(cg.FedCT(rounds=2))
    mean = run.accuracy.iloc[-1].mean()
    assert repr(run) == f"<Run of FedCT: {len(run.models)} sites, 2 rounds, mean accuracy {mean:.3f}>"
    untested = cancer.run(cg.FedCT(rounds=1), test=None)
    assert repr(untested) == f"<Run of FedCT: {len(run.models)} sites, 1 round>"
