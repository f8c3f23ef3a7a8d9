"""Sites in turns and together: every measure gives rows that can be compared, kept, and shown again."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from benchmarks.cohorts_measures import MEASURES, PIXELS, TINY, WARM, Clock, Place, difference, random_sites, tried
from tests.benchmarks.clothes import images, write_clothes

import collegium as cg
from benchmarks import cohorts
from collegium.data.sources import Dataset

QUICK = ("fedct", "ledger", "curve")
HERE = Place("cpu", Path())


def mlps(m: int) -> list[cg.Site]:
    return random_sites(m, 20, PIXELS, cg.TorchClassifier("mlp", batch_size=8, random_state=0))


@pytest.mark.parametrize(
    "name", [each if each in QUICK else pytest.param(each, marks=pytest.mark.slow) for each in TINY]
)
def test_every_measure_compares_the_two_ways(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_clothes(tmp_path)
    X, y = images(120, 28, 28)
    labels = y.astype(np.int64) % 2  # nets that have hardly learned anything agree now and then
    digits = Dataset("mnist", X, labels, (X[:60], labels[:60]), about="")
    monkeypatch.setattr("benchmarks.cohorts_measures.load_source", lambda *_, **__: digits)
    rows = list(MEASURES[name](Place("cpu", tmp_path), **TINY[name]))
    assert rows
    for row in rows:
        assert {"what", "sites", "unit", "turns", "together", "aim", "reached"} <= row.keys()
        assert (row["aim"] is None) == (row["reached"] is None)
        # SimCLR trains one net. Of what else may train alone, the runs' own tests say why.
        assert name == "simclr" or 0 <= row["joined"] <= row["sites"]


def test_all_measures_have_a_small_form() -> None:
    assert list(TINY) == list(MEASURES)


def test_alike_nets_of_all_sites_train_together() -> None:
    runs = {cohort: tried(HERE, cg.Local(steps=2), mlps(3), cohort) for cohort in ("off", "on")}
    assert runs["off"].joined == 0
    assert runs["on"].joined == 3


def test_the_clock_leaves_out_the_first_rounds() -> None:
    clock = Clock("cpu", ends=[0.0, 50.0, 51.0, 53.0, 54.0])
    assert WARM == 2
    assert clock.round_seconds() == 1
    assert clock.round_seconds(with_last=False) == 1.5
    trial = tried(HERE, cg.Local(rounds=4, steps=1), mlps(2), "off")
    assert len(trial.clock.ends) == 4
    assert trial.seconds > trial.clock.ends[-1] - trial.clock.ends[0]


def test_the_difference_is_the_largest_of_all_weights() -> None:
    one, same, longer = (tried(HERE, cg.Local(steps=steps), mlps(2), "off").run for steps in (1, 1, 2))
    assert difference(one, same) == 0
    apart = difference(one, longer)
    assert apart > 0
    weights = [run.models["s0001"].estimator.get_weights()["5.bias"] for run in (one, longer)]
    assert apart >= np.abs(weights[0] - weights[1]).max()


@pytest.mark.slow
def test_what_was_found_is_kept_when_another_measure_fails(tmp_path: Path) -> None:
    file = tmp_path / "rows.jsonl"
    with pytest.raises(cg.ConfigError, match="mnist"):
        cohorts.report(only="fedkt,curve", data=str(tmp_path), out=str(file), tiny=1)
    kept = [json.loads(line) for line in file.read_text().splitlines()]
    assert {row["measure"] for row in kept} == {"curve"}
    shown = cohorts.report(out=str(file), measure=0)
    assert list(shown.rows) == kept
    assert shown.machine == kept[0]["machine"]


def test_rows_that_were_measured_one_by_one_are_brought_together(tmp_path: Path) -> None:
    def row(what: str, together: float, measure: str = "fedct") -> dict[str, object]:
        same = {"sites": 5, "precision": "tf32", "unit": "ms", "machine": "one", "measure": measure}
        return {"what": what, "together": together} | same

    file, new = tmp_path / "all.jsonl", tmp_path / "new.jsonl"
    file.write_text("".join(json.dumps(each) + "\n" for each in (row("a", 1.0), row("b", 2.0))))
    new.write_text(json.dumps(row("b", 3.0)) + "\n" + json.dumps(row("c", 4.0, "mlp")) + "\n")
    shown = cohorts.report(out=str(new), measure=0, into=str(file))
    assert [(each["what"], each["together"]) for each in shown.rows] == [("c", 4.0), ("a", 1.0), ("b", 3.0)]
    assert [json.loads(line) for line in file.read_text().splitlines()] == list(shown.rows)
    with pytest.raises(SystemExit, match="say nothing about speed"):
        cohorts.report(tiny=1, into=str(file))


def test_some_rows_of_a_measure(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = []
    monkeypatch.setitem(MEASURES, "curve", lambda place, sites=(1, 2): asked.append(sites) or iter(()))
    monkeypatch.setitem(MEASURES, "resnet", lambda place, precisions=("tf32",): asked.append(precisions) or iter(()))
    cohorts.report(only="curve,resnet", sites="5,100", precisions="float32")
    assert asked == [[5, 100], ["float32"]]


def test_a_measure_that_there_is_not() -> None:
    with pytest.raises(SystemExit, match="There is no measure mpl; there are mlp, fedct"):
        cohorts.report(only="mpl")
