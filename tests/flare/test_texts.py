"""Texts in a federation: in each site's own file, and as a public set that the coordinator hands out."""

from __future__ import annotations

from pathlib import Path

import pandas as pd
import pytest
from tests.flare.offices import OfficeHost, write_site
from tests.learners.language.tiny_models import reviews, tiny_bert

from collegium.flare.coordinator.coordinate import coordinate
from collegium.study.study import Study

NAMES = ("north", "south")
TEXT = ', model = "bert", train = "embed", max_length = 16'
STUDY = """
name = "reviews"
[data]
source = "public.{suffix}"
[algorithm]
name = "fedct"
rounds = 2
[[sites]]
learner = {{ name = "text"{text} }}
[federation]
classes = ["bad", "good"]
wait = 0.2
"""


@pytest.mark.xdist_group("language models")
@pytest.mark.parametrize("suffix", ["csv", "parquet"])
def test_a_federation_shares_labels_of_texts(suffix: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("transformers")
    tiny_bert(tmp_path / "models" / "bert")
    monkeypatch.setenv("COLLEGIUM_MODELS", str(tmp_path / "models"))

    def write(frame: pd.DataFrame, file: Path) -> None:
        frame.to_csv(file, index=False) if suffix == "csv" else frame.to_parquet(file)

    write(pd.DataFrame({"note": [*reviews(60, 9)[0], "🎬 très émouvant"]}), tmp_path / f"public.{suffix}")
    (tmp_path / "study.toml").write_text(STUDY.format(suffix=suffix, text=TEXT))
    for seed, name in enumerate(NAMES):
        write_site(tmp_path / name, name, learner="text", settings=TEXT)
        file = tmp_path / name / "site.toml"
        text = file.read_text().replace("train.csv", f"train.{suffix}").replace('"diagnosis"', '"opinion"')
        if name == "south":  # another kind of learner, in the same study
            text = text.replace(f'{{ name = "text"{TEXT} }}', '["tfidf", "logistic_regression"]')
        file.write_text(text)
        texts, y = reviews(60, seed)
        write(pd.DataFrame({"note": texts, "opinion": y}), tmp_path / name / f"train.{suffix}")
    host = OfficeHost({name: tmp_path / name for name in NAMES})
    study = Study.from_toml(tmp_path / "study.toml")
    run = coordinate(study, host, base=tmp_path, out=tmp_path / "out", progress=False)
    logs = [file.read_text() for file in tmp_path.glob("*/agent/**/site.log")]
    assert run.refusals.empty, logs
    assert run.global_model is not None
    assert set(run.releases["kind"]) >= {"HardLabels", "Scores"}
