"""The benchmarks of texts, on made-up ones."""

from __future__ import annotations

import pytest

from benchmarks import text, text_audit
from collegium.data.sources import load_source


@pytest.fixture(autouse=True)
def made_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(text, "load_source", lambda name, **_: load_source("reviews"))


@pytest.mark.filterwarnings("ignore")
def test_every_rule_is_beside_the_best_kind_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    kept = {name: text.RULES[name] for name in (text.LOCAL, "majority", "informed")}
    monkeypatch.setattr(text, "RULES", kept)
    local, majority, informed = text.measure(text.Setting(seeds=1, samples=20, public=100, test=100))
    best = max(local[kind] for kind in text.KINDS)
    assert majority["gain"] == pytest.approx(majority["accuracy"] - best)
    assert local["losers"] is None
    assert 0 <= informed["losers"] <= 10
    assert 0 < majority["kb"] < 1


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
def test_what_leaves_is_attacked() -> None:
    pytest.importorskip("transformers")
    assert all(0 < row["auc"] < 1 for row in text_audit.measure(**text_audit.SMALL))
