"""The order of units and how long they take: what gives most comes first, and nothing before what it needs."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.cli.commands import collegium
from tests.reproduction.test_declared import table
from tests.reproduction.test_pieces import NETS, declare, piece

from collegium.errors import ConfigError
from collegium.reproduction import declared, pieces, units
from collegium.reproduction.page import page
from collegium.reproduction.plan import Estimates, Expected, described, ordered
from collegium.reproduction.results import Results
from collegium.reproduction.units import Conditions, Unit, carry_out

FOUND: Mapping[str, Any] = {"last": 0.5, "best": 0.5}
LOCAL = '[[rows]]\nname = "local"'
MANY = LOCAL + "\ntrainings = 3"


class Known(Estimates):
    """Minutes by row."""

    def __init__(self, takes: Mapping[str, float], device: str = "cpu") -> None:
        super().__init__({}, device)
        self._takes = takes

    def of(self, unit: Unit) -> Expected:
        return Expected(self._takes[unit.row], measured=True)


def nobody(_: Unit) -> bool:
    return False


def test_what_gives_most_in_little_time_comes_first(monkeypatch: pytest.MonkeyPatch) -> None:
    own = table()
    declare(monkeypatch, own)
    takes = {"FedCT": 4.0, "local": 0.5}
    order = ordered(list(pieces.units_of("small", own, [0, 1])), Known(takes), nobody)
    assert [unit.key for unit in order] == [
        "local | all | 0",  # quick, although no paper prints it
        "local | all | 1",
        "FedCT | all | 0",  # printed in the paper
        "FedCT | few public rows | 0",
        "FedCT | all | 1",
        "FedCT | few public rows | 1",
    ]


def test_what_others_need_comes_before_them_and_shares_their_time(monkeypatch: pytest.MonkeyPatch) -> None:
    own = table(('[[rows]]\nname = "local"', NETS + '[[rows]]\nname = "local"'))
    declare(monkeypatch, own)
    every = [unit for unit in pieces.units_of("small", own, [0]) if unit.row in ("first", "second", "local")]
    takes = {"first": 3.0, "second": 1.0, "local": 4.0}

    def keys(done: tuple[str, ...] = ()) -> list[tuple[str, int]]:
        left = [unit for unit in every if unit.row not in done]
        return [(unit.row, unit.part) for unit in ordered(left, Known(takes), lambda unit: unit.row in done)]

    # The second takes 3 / 3 + 1 + 1 minutes with what it needs, of which the first is shared by three.
    assert keys() == [("first", 0), ("second", 0), ("second", 1), ("local", 0)]
    takes["second"] = 9.0
    assert keys() == [("first", 0), ("local", 0), ("second", 0), ("second", 1)]
    takes["second"] = 1.0
    assert keys(done=("first",)) == [("second", 0), ("second", 1), ("local", 0)]


def test_a_row_may_say_how_long_it_takes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    own = table((LOCAL, LOCAL + "\nminutes = 7"), ('title = "a small one"', 'title = "a small one"\nminutes = 2'))
    declare(monkeypatch, own)
    results = Results(tmp_path, "small")
    first, other = Unit("small", "FedCT", "all", 0), Unit("small", "local", "all", 0)
    estimates = Estimates({"small": results})
    assert [estimates.of(unit).minutes for unit in (first, other)] == [2.0, 7.0]
    results.add(first, {**FOUND, "seconds": 6.0})  # which says nothing of a row that has its own time
    assert estimates.of(other) == Expected(7.0, measured=False)
    results.add(other, {**FOUND, "seconds": 30.0})
    assert estimates.of(Unit("small", "local", "all", 1)) == Expected(0.5, measured=True)


def test_a_result_of_other_settings_is_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    declare(monkeypatch, table())
    unit, other = Unit("small", "FedCT", "all", 0), Unit("small", "local", "all", 0)
    results = Results(tmp_path, "small")
    for each in (unit, other):
        results.add(each, {**FOUND, "seconds": 6.0})
    assert results.get(unit) is not None
    assert unit.digest != other.digest
    file = tmp_path / "small.json"
    kept = json.loads(file.read_text())
    kept[unit.key]["settings"] = "of another"
    del kept[other.key]["settings"]  # as before settings were kept
    file.write_text(json.dumps(kept))
    changed = Results(tmp_path, "small")
    assert changed.get(unit) is None
    assert changed.get(other) is not None
    declare(monkeypatch, table(("rounds = 2", "rounds = 3")))
    assert results.get(unit) is None  # other settings since


def test_pretraining_takes_what_the_table_says() -> None:
    of_paper = declared.tables()["fedaux_table2"]
    results = {"fedaux_table2": Results(Path("nowhere"), "fedaux_table2")}
    took = Estimates(results, "cuda").of(units.pretraining("fedaux_table2")).minutes
    assert took == of_paper.pretraining_minutes
    assert took < of_paper.minutes


def test_times_are_those_of_such_a_device(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    own = table(('title = "a small one"', 'title = "a small one"\ndevice = "cuda"\nminutes = 2'))
    declare(monkeypatch, own)
    results = Results(tmp_path, "small")
    unit = Unit("small", "FedCT", "all", 1)
    assert Estimates({"small": results}, "cuda:1").of(unit) == Expected(2.0, measured=False)
    other = Unit("small", "local", "all", 0)
    assert Estimates({"small": results}).of(unit).minutes > 20  # it is meant for a GPU
    for seed, device, seconds in ((0, "cuda:0", 60.0), (2, "cuda", 90.0), (0, "cpu", 1200.0)):
        monkeypatch.setattr("collegium.reproduction.results.machine", lambda of=device: f"another, on {of}")
        results.add(Unit("small", "FedCT", "all", seed), {**FOUND, "seconds": seconds}, device=device)
    monkeypatch.setattr("collegium.reproduction.results.machine", lambda: "this one")
    assert Estimates({"small": results}).of(unit) == Expected(20.0, measured=True)
    results.add(Unit("small", "FedCT", "all", 3), {**FOUND, "seconds": 30.0}, device="cuda")
    assert Estimates({"small": results}, "cuda").of(unit) == Expected(0.5, measured=True)  # those of this machine
    assert Estimates({"small": results}, "cuda").of(other) == Expected(0.5, measured=False)  # as other cells took


def test_a_device_is_for_the_tables_that_are_meant_for_it(monkeypatch: pytest.MonkeyPatch) -> None:
    small, large = table(), table(('title = "a small one"', 'title = "a large one"\ndevice = "cuda"\nworth = 2.0'))
    for module in (declared, units):
        monkeypatch.setattr(module, "tables", lambda: {"small": small, "large": large})
    both = [Unit("small", "FedCT", "all", 0), Unit("large", "FedCT", "all", 0)]
    assert ordered(both, Known({"FedCT": 1.0}, "cuda"), nobody) == both[::-1]
    assert ordered(both, Known({"FedCT": 1.0}), nobody) == both


def test_the_plan_says_what_fits_and_what_is_left(monkeypatch: pytest.MonkeyPatch) -> None:
    declare(monkeypatch, own := table())
    every = list(pieces.units_of("small", own, [0]))
    takes = {"FedCT | all | 0": 3.0, "local | all | 0": 30.0, "FedCT | few public rows | 0": 4.0}
    lines = described(every, lambda unit: Expected(takes[unit.key], measured=unit.row == "local"), 10.0)
    assert [line.split()[:2] for line in lines[1:3]] == [["3.0", "3.0?"], ["7.0", "4.0?"]]
    assert lines[3:] == [
        "2 runs in about 7 minutes; 1 are left (0.5 h).",
        "1 of those are each longer than 10 minutes.",
    ]
    assert len(described(every, lambda _: Expected(1.0, measured=True), None)) == 5


def test_several_trainings_share_a_split(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    own = table((LOCAL, MANY))
    declare(monkeypatch, own)
    assert own.runs() == 2 * 3 + 3 * 3
    several = [unit for unit in pieces.units_of("small", own, [0, 1]) if unit.row == "local"]
    assert [(unit.seed, unit.split) for unit in several] == [(0, 0), (1, 0), (2, 0), (3, 1), (4, 1), (5, 1)]
    results = Results(tmp_path, "small")
    for unit in several[:4]:
        results.add(unit, {**FOUND, "seconds": 1.0}, device="cpu")
    assert "| local | all |  | 0.500 | 0.000 | 0.500 | 4 (2 splits) |" in page({"small": own}, {"small": results})
    with pytest.raises(ConfigError, match="give both as many"):
        table((LOCAL, f'{MANY}\nafter = "FedCT"'))


def test_a_training_has_the_data_of_its_split_and_draws_of_its_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    declare(monkeypatch, table((LOCAL, MANY)))
    runs: list[tuple[int, bytes]] = []
    run = units.run

    def spied(algorithm: Any, **options: Any) -> Any:
        runs.append((options["seed"], np.asarray(options["sites"][0].X).tobytes()))
        return run(algorithm, **options)

    monkeypatch.setattr(units, "run", spied)
    for seed in (0, 2, 3):
        carry_out(Unit("small", "local", "all", seed), Conditions(tmp_path, quick=True))
    assert [seed for seed, _ in runs] == [0, 2, 3]
    assert runs[0][1] == runs[1][1] != runs[2][1]


def test_results_of_another_machine_are_added(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    declare(monkeypatch, own := table())
    monkeypatch.setattr(pieces, "tables", lambda: {"small": own})
    here, there = tmp_path / "here", tmp_path / "there"
    every = list(pieces.units_of("small", own, [0]))
    Results(here, "small").add(every[0], {**FOUND, "seconds": 1.0})
    for unit in every[:2]:
        Results(there, "small").add(unit, {**FOUND, "seconds": 2.0})
    said: list[str] = []
    pieces.take(there, here, said.append)
    assert said == [f"small: 1 runs from {there}"]
    kept = Results(here, "small")
    assert [kept.get(unit) and kept.get(unit)["seconds"] for unit in every] == [1.0, 2.0, None]  # type: ignore[index]
    assert [unit.key for unit in piece(own, here).waiting] == ["FedCT | few public rows | 0"]
    with pytest.raises(ConfigError, match="no folder of results"):
        pieces.take(tmp_path / "nowhere", here, said.append)


def test_two_processes_may_add_to_one_table(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    declare(monkeypatch, own := table())
    first, second = Results(tmp_path, "small"), Results(tmp_path, "small")
    every = list(pieces.units_of("small", own, [0]))
    first.add(every[0], {**FOUND, "seconds": 1.0})
    second.add(every[1], {**FOUND, "seconds": 1.0})
    assert all(Results(tmp_path, "small").get(unit) for unit in every[:2])


def test_the_command_prints_the_plan_and_runs_nothing(tmp_path: Path) -> None:
    done = collegium("reproduce", "fedct_table6", "--plan", "--quick", "--out", str(tmp_path), "--minutes", "5")
    assert done.returncode == 0, done.stderr
    assert "2.0? fedct_table6, BreastCancer: DT, RF, RuleFit, XGBoost, RF |  | 0" in done.stdout
    assert done.stdout.endswith("2 runs in about 4 minutes; 2 are left (0.1 h).\n")
    assert not list(tmp_path.iterdir())
