"""Raw texts in studies, splits and ledgers: files of both kinds, and learners of all kinds."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from tests.learners.language.tiny_models import reviews, tiny_bert

import collegium as cg
from collegium.study.study import Study
from collegium.wire import tables

TOML = """
name = "reviews"
[data]
target = "opinion"
public = "public.{suffix}"
test = "test.parquet"
[algorithm]
name = "fedct"
rounds = 2
[sites.north]
data = "north.csv"
learner = {{ name = "text", model = "bert", train = "embed", max_length = 16 }}
[sites.east]
data = "east.parquet"
learner = {{ name = "text", model = "bert", train = "embed", head = "knn", max_length = 16 }}
[sites.south]
data = "south.csv"
learner = ["tfidf", "random_forest"]
"""
ODD = ["", "très émouvant, 很好 🎬", 'a "quoted", text\nof two lines', "great " * 3000]
pytestmark = pytest.mark.xdist_group("language models")


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    pytest.importorskip("transformers")
    tiny_bert(tmp_path / "models" / "bert")
    monkeypatch.setenv("COLLEGIUM_MODELS", str(tmp_path / "models"))
    for seed, name in enumerate(["north.csv", "east.parquet", "south.csv", "test.parquet"]):
        texts, y = reviews(40, seed)
        frame = pd.DataFrame({"review": [*ODD, *texts[len(ODD) :]], "opinion": y})
        frame.to_csv(tmp_path / name, index=False) if name.endswith("csv") else frame.to_parquet(tmp_path / name)
    public = pd.DataFrame({"review": [*ODD, *reviews(60, 9)[0]]})
    public.to_csv(tmp_path / "public.csv", index=False)
    public.to_parquet(tmp_path / "public.parquet")
    return tmp_path


@pytest.mark.parametrize("suffix", ["csv", "parquet"])
def test_a_study_of_texts_runs_from_files(folder: Path, suffix: str) -> None:
    (folder / "study.toml").write_text(TOML.format(suffix=suffix))
    study = Study.from_toml(folder / "study.toml")
    prepared = study.prepare(folder)
    assert [type(site.learner).__name__ for site in prepared.sites] == ["TextClassifier", "TextClassifier", "Pipeline"]
    run = study.run(base=folder, out=folder / "out")
    assert run.refusals.empty
    assert run.accuracy.to_numpy().mean() > 0.6
    # Sixty-four labels of two classes, and no text.
    assert run.releases.query("kind == 'HardLabels'")["bytes"].max() < 1000


def test_texts_are_split_like_any_table() -> None:
    texts, y = reviews(100)
    forms = {"list": texts, "series": pd.Series(texts), "frame": pd.DataFrame({"text": texts}, dtype=object)}
    splits = {name: cg.split(X, y, sites=3, public=30, test=20, seed=0) for name, X in forms.items()}
    for each in splits.values():
        assert tables.digest(each.public) == tables.digest(splits["list"].public)
        assert [texts[row] for row in each.indices["public"]] == each.public["text"].tolist()
    assert tables.digest(splits["list"].public) != tables.digest(tables.as_table(texts[:30], "public"))


def test_a_site_pins_public_texts_by_their_hash() -> None:
    from sklearn.feature_extraction.text import TfidfVectorizer
    from sklearn.linear_model import LogisticRegression
    from sklearn.pipeline import make_pipeline

    (texts, y), public = reviews(40), reviews(60, 9)[0]
    learner = make_pipeline(TfidfVectorizer(), LogisticRegression())
    changed = [*public[:-1], f"{public[-1]}!"]
    own = cg.Site("own", texts, y, learner=learner, public=pd.Series(public))
    run = cg.run(cg.FedCT(rounds=1), sites=[own, cg.Site("b", texts, y, learner=learner)], public=public)
    assert run.refusals.empty
    with pytest.raises(cg.SiteError, match="its own copy of the public set has hash"):
        cg.run(cg.FedCT(rounds=1), sites=[own, cg.Site("b", texts, y, learner=learner)], public=changed)


def test_the_ledger_has_hashes_of_labels_and_no_texts(tmp_path: Path) -> None:
    from sklearn.feature_extraction.text import TfidfVectorizer
    from sklearn.linear_model import LogisticRegression
    from sklearn.pipeline import make_pipeline

    learner = make_pipeline(TfidfVectorizer(), LogisticRegression())
    sites = [cg.Site(f"site{at}", *reviews(40, at), learner=learner) for at in range(2)]
    run = cg.run(cg.FedCT(rounds=2), sites=sites, public=reviews(60, 9)[0], out=tmp_path / "run")
    ledgers = list((tmp_path / "run").rglob("*.db"))
    assert ledgers
    for path in ledgers:
        cg.verify_ledger(path)
        kept = path.read_bytes()
        assert not any(text.encode() in kept for text in np.concatenate([site.X["text"] for site in sites]))
    assert run.releases["sha256"].str.len().eq(64).all()
