"""Several studies of one federation at the same time: each comes out as it does alone, and they share one budget."""

from __future__ import annotations

import shutil
import threading
import tomllib
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from tests.flare.conftest import FEW_TREES, LEARNERS, NAMES
from tests.flare.offices import OfficeHost, write_site
from tests.waiting import seconds

from collegium import wire
from collegium.flare.coordinator.coordinate import coordinate
from collegium.flare.site.open_runs import open_runs
from collegium.privacy.budget import Budget
from collegium.privacy.mechanisms.randomized_response import RandomizedResponse
from collegium.privacy.spending import spent
from collegium.runs.callbacks import Callback, RoundReport
from collegium.runs.results import Run
from collegium.site.ledger import read_ledger, read_refusals, verify_ledger
from collegium.study.study import Study

pytestmark = pytest.mark.filterwarnings("ignore::collegium.errors.CollegiumWarning")
STUDIES = {
    "votes": '[algorithm]\nname = "fedct"\nrounds = 3\n',
    "teachers": '[algorithm]\nname = "fedct"\nrounds = 3\nconsensus = "dawid_skene"\n',
}
PRIVATE = '[algorithm]\nname = "fedct"\nrounds = 1\nmechanism = { name = "randomized_response", epsilon = 0.05 }\n'


class Together(Callback):
    """Nobody goes on after its first round before all are there."""

    def __init__(self, all_there: threading.Barrier, look: Callable[[], None]) -> None:
        self._all_there, self._look = all_there, look

    def on_round(self, report: RoundReport) -> None:
        if report.round == 0:
            if self._all_there.wait(seconds(60)) == 0:
                self._look()
            self._all_there.wait(seconds(60))


def study(name: str, algorithm: str) -> Study:
    text = f'name = "{name}"\nseed = {len(name)}\n[data]\nsource = "public.csv"\n{algorithm}'
    return Study.from_dict(tomllib.loads(text + '[federation]\nclasses = ["benign", "malignant"]\nat_least = 3\n'))


def carry_out(kits: Path, host: OfficeHost, name: str, algorithm: str, *callbacks: Callback) -> Run:
    out = kits / "out" / name
    return coordinate(study(name, algorithm), host, base=kits, out=out, progress=False, callbacks=callbacks)


def at_once(kits: Path, host: OfficeHost, algorithms: dict[str, str], look: Callable[[], None]) -> dict[str, Run]:
    barrier, outcomes = threading.Barrier(len(algorithms)), dict[str, Run | BaseException]()

    def work(name: str) -> None:
        try:
            outcomes[name] = carry_out(kits, host, name, algorithms[name], Together(barrier, look))
        except BaseException as error:
            barrier.abort()
            outcomes[name] = error

    threads = [threading.Thread(target=work, args=(name,)) for name in algorithms]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(seconds(180))
    for outcome in outcomes.values():
        if isinstance(outcome, BaseException):
            raise outcome
    return {name: outcome for name, outcome in outcomes.items() if isinstance(outcome, Run)}


@pytest.mark.parametrize(
    "turns",
    [pytest.param("", id="together"), pytest.param("[runs]\nat_once = 1\n", id="in turns", marks=pytest.mark.slow)],
)
def test_two_studies_at_once_come_out_as_each_does_alone(kits: Path, tmp_path: Path, turns: str) -> None:
    alone_kits = tmp_path / "alone"
    for name in NAMES:
        shutil.copytree(kits / name, alone_kits / name)
        file = kits / name / "site.toml"
        file.write_text(file.read_text() + turns)
    shutil.copy(kits / "public.csv", alone_kits)
    seen: list[int] = []
    host = OfficeHost({name: kits / name for name in NAMES})
    both = at_once(kits, host, STUDIES, lambda: seen.extend(len(open_runs(kits / name)) for name in NAMES))
    assert seen == [2, 2, 2], "both were open at every site"
    apart = OfficeHost({name: alone_kits / name for name in NAMES})
    for name, algorithm in STUDIES.items():
        alone = carry_out(alone_kits, apart, name, algorithm)
        assert np.array_equal(both[name].labels.codes, alone.labels.codes)
        assert both[name].metrics.equals(alone.metrics)
        assert both[name].refusals.empty
    for name in NAMES:
        ledger = kits / name / "agent" / "ledger.db"
        assert verify_ledger(ledger) == verify_ledger(alone_kits / name / "agent" / "ledger.db")
        assert {row["run"] for row in read_ledger(ledger)} == {run.about["run"] for run in both.values()}


class BothOpen(OfficeHost):
    """At every site, no order is given before both runs are open there: what is left of a budget was seen by both."""

    def __init__(self, kits: dict[str, Path]) -> None:
        super().__init__(kits)
        self._both = {name: threading.Barrier(2) for name in kits}
        self._met: set[tuple[str, str]] = set()

    def before_request(self, party: str, message: bytes) -> None:
        header, _ = wire.cut(message)
        who = (party, str(header.get("run")))
        if header["do"] == "order" and who not in self._met:
            self._met.add(who)
            self._both[party].wait(seconds(60))


def test_two_studies_at_once_share_one_budget(kits: Path) -> None:
    charge = RandomizedResponse(0.05).charge(150, 2)
    cost, both = (Budget(1e9).total([charge] * times) for times in (1, 2))
    for name in NAMES:
        limit = f"[budget]\nepsilon = {(cost + both) / 2}\n"
        write_site(kits / name, name, learner=LEARNERS[name], settings=FEW_TREES.get(name, ""), policy=limit)
    host = BothOpen({name: kits / name for name in NAMES})
    outcomes: dict[str, Run | Exception] = {}

    def work(name: str) -> None:
        try:
            outcomes[name] = carry_out(kits, host, name, PRIVATE)
        except Exception as error:  # where all sites had nothing left for it
            outcomes[name] = error

    threads = [threading.Thread(target=work, args=(name,)) for name in ("first", "second")]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(seconds(180))
    assert set(outcomes) == {"first", "second"}
    for name in NAMES:
        ledger = kits / name / "agent" / "ledger.db"
        assert [row["kind"] for row in read_ledger(ledger)] == ["HardLabels"], "there is not enough left for a second"
        assert spent(ledger)[name] == pytest.approx(cost)
        assert "budget-exhausted" in {row["code"] for row in read_refusals(ledger)}
