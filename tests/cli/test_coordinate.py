"""`collegium coordinate` and `federation demo`: what people do wrong before anything runs."""

from __future__ import annotations

from pathlib import Path

import pytest

from collegium.cli.coordinate import _kits, federation_demo
from collegium.cli.coordinate import coordinate as coordinate_study
from collegium.errors import ConfigError

STUDY = """
name = "test"
[data]
source = "public.csv"
[algorithm]
name = "fedct"
[federation]
classes = ["a", "b"]
"""


@pytest.fixture
def study(tmp_path: Path) -> Path:
    file = tmp_path / "study.toml"
    file.write_text(STUDY)
    return file


def coordinate(study: Path, kits: Path | None = None, server: Path | None = None, lead: Path | None = None) -> None:
    out = study.parent / "out"
    coordinate_study(study, kits, server, lead, out=out)


def test_without_kits(study: Path) -> None:
    with pytest.raises(ConfigError, match="--kits FOLDER"):
        coordinate(study)
    assert not (study.parent / "out").exists()


def test_folders_that_are_no_kits(study: Path) -> None:
    with pytest.raises(ConfigError, match=r"Kit .* not found"):
        coordinate(study, server=study.parent / "none", lead=study.parent / "none")
    (study.parent / "empty").mkdir()
    with pytest.raises(ConfigError, match="kit"):
        coordinate(study, server=study.parent / "empty", lead=study.parent / "empty")


def test_one_of_several_leads_must_be_named(tmp_path: Path) -> None:
    for name in ("server", "a@x.org", "b@x.org"):
        (tmp_path / name).mkdir()
    with pytest.raises(ConfigError, match=r"a@x.org, b@x.org"):
        _kits(tmp_path, None, None)
    assert _kits(tmp_path, None, tmp_path / "b@x.org") == (tmp_path / "server", tmp_path / "b@x.org")


def test_a_study_that_only_simulates(study: Path) -> None:
    study.write_text(STUDY.replace("fedct", "centralized"))
    from collegium.study.preparing import coordinators_part
    from collegium.study.study import Study

    with pytest.raises(ConfigError, match="can only be simulated"):
        coordinators_part(Study.from_toml(study), study.parent)


def test_a_study_of_a_federation_is_not_run_by_itself(study: Path) -> None:
    from collegium.study.study import Study

    with pytest.raises(ConfigError, match="collegium coordinate"):
        Study.from_toml(study).run()


def test_a_study_of_a_federation_can_be_rehearsed(study: Path) -> None:
    from collegium.study.rehearsal import rehearse
    from collegium.study.study import Study

    (study.parent / "public.csv").write_text("x,y\n" + "\n".join(f"{i},{i % 7}" for i in range(30)))
    run = rehearse(Study.from_toml(study), rounds=1, base=study.parent)
    assert set(run.releases["kind"]) == {"HardLabels"}


def test_the_demo_does_not_overwrite_what_is_no_demo(tmp_path: Path) -> None:
    (tmp_path / "thesis.txt").write_text("important")
    with pytest.raises(ConfigError, match="not an earlier demo"):
        federation_demo(tmp_path)
    assert (tmp_path / "thesis.txt").read_text() == "important"
