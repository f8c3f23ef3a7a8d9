"""The benchmarks of texts, on made-up ones."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from benchmarks import text, text_audit
from collegium.data.sources import load_source


@pytest.fixture(autouse=True)
def made_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(text, "_reviews", lambda _: load_source("reviews"))


@pytest.mark.filterwarnings("ignore")
def test_every_rule_is_beside_the_best_kind_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    setting = text.Setting(1, samples=20, public=100, test=100, rules="majority,informed", kept=str(tmp_path / "kept"))
    local, majority, informed = found = text.measure(setting)
    best = max(local[kind] for kind in text.KINDS)
    assert majority["gain"] == pytest.approx(majority["accuracy"] - best)
    assert local["losers"] is None
    assert 0 <= informed["losers"] <= 10
    assert 0 < majority["kb"] < 1
    monkeypatch.setattr(text, "_outcome", None)  # all that is asked for is kept
    np.testing.assert_equal(text.measure(setting), found)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
def test_what_leaves_is_attacked() -> None:
    pytest.importorskip("transformers")
    assert all(0 < row["auc"] < 1 for row in text_audit.measure(**text_audit.SMALL))
