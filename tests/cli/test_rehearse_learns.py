"""`collegium rehearse` says who learns what, where a method sees to it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from collegium.cli.studies import rehearse

STUDY = """
name = "rehearsed"
algorithm = {algorithm}
[data]
source = "digits"
public = 0.2
train = 200
unlabeled = 0.5
[partition]
sites = 3
"""


@pytest.mark.parametrize(
    ("algorithm", "expected"),
    [
        ('{name = "xclp", bits = 32, hamming = "masked"}', "ALL sketches of ALL sites"),
        ('{name = "fedct", rounds = 2, votes = "secret"}', "the sum over the other participants"),
    ],
)
def test_a_rehearsal_says_who_learns_what(
    algorithm: str, expected: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "study.toml"
    file.write_text(STUDY.replace("{algorithm}", algorithm))
    rehearse(file, rounds=2, as_json=True)
    said = json.loads(capsys.readouterr().out)
    assert expected in " ".join(said["learns"].values())
    rehearse(file, rounds=2)
    assert "What each party learns" in capsys.readouterr().out
