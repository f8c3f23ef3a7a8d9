"""What a coordinator draws is its secret: a site that knows the plan, and so the seed, cannot repeat it."""

from __future__ import annotations

import shutil
import stat
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.flare.conftest import NAMES
from tests.flare.offices import OfficeHost, write_data, write_site

import collegium as cg
from collegium.errors import RecordError
from collegium.flare.coordinator.coordinate import coordinate
from collegium.flare.coordinator.run_key import FILE, run_key
from collegium.flare.site.setup import load_site
from collegium.privacy.claims import SEEDED_NOISE
from collegium.runs.callbacks import Callback
from collegium.runs.results import Run
from collegium.site.ledger import verify_ledger
from collegium.study.preparing import coordinators_part
from collegium.study.study import Study

NET = {"name": "torch", "net": "linear", "random_state": 0}
DP_FEDAVG = {"name": "dp_fedavg", "rounds": 2, "noise": 50.0, "clip": 1.0}
FEDKT = {"name": "fedkt", "level": "L1", "partitions": 1, "gamma": 0.05, "queries": 50}
DP_PATE = {"name": "dp_pate", "teachers": "sites", "gamma": 0.05, "queries": 50}


class Federation:
    """Three sites, a study, and what one of them can do with the seed that it finds in the plan."""

    def __init__(self, folder: Path, algorithm: dict[str, Any], learner: dict[str, Any]) -> None:
        write_data(folder, NAMES)
        settings = "".join(f", {name} = {value!r}" for name, value in learner.items() if name != "name")
        for name in NAMES:
            write_site(folder / name, name, learner=learner["name"], settings=settings)
            file = folder / name / "site.toml"
            file.write_text('prepare = "none"\n' + file.read_text())
        table = {
            "name": "t",
            "seed": 7,
            "data": {"source": "public.csv"},
            "algorithm": algorithm,
            "sites": [{"learner": learner, "prepare": "none"}],
            "federation": {"classes": ["benign", "malignant"], "parties": list(NAMES), "metrics": False, "patience": 2},
        }
        self.folder, self.study = folder, Study.from_dict(table)
        self.host = OfficeHost({name: folder / name for name in NAMES})

    def coordinate(self, **options: Any) -> Run:
        return coordinate(self.study, self.host, base=self.folder, out=self.folder / "out", progress=False, **options)

    def simulate(self, own: str) -> Run:
        """The same study by a curious site: its own rows stand for everybody's, the seed is the plan's."""
        part, setup = coordinators_part(self.study, self.folder), load_site(self.folder / own)
        site = setup.with_public(part.public)
        sites = [cg.Site(name, site.X, site.y, learner=site.learner) for name in NAMES]
        return cg.run(part.algorithm, sites=sites, public=part.shared, classes=part.classes, seed=7, progress=False)


def distance(run: Run, other: Run) -> float:
    """Between two published models."""
    ours, theirs = (each.global_model.estimator.get_weights() for each in (run, other))
    return float(np.sqrt(sum(np.square(ours[name] - theirs[name]).sum() for name in ours)))


def test_a_site_cannot_subtract_the_noise_on_the_published_model(tmp_path: Path) -> None:
    federation = Federation(tmp_path, DP_FEDAVG, NET)
    guessed, other = federation.simulate("site-1"), federation.simulate("site-2")
    # Where noise follows from the seed it cancels: two updates clipped to 1 are left, in each of two rounds.
    assert distance(guessed, other) <= 4
    run = federation.coordinate()
    assert distance(run, guessed) > 40
    assert SEEDED_NOISE in guessed.privacy.iloc[-1]["assumptions"]
    assert SEEDED_NOISE not in run.privacy.iloc[-1]["assumptions"]


@pytest.mark.parametrize("algorithm", [FEDKT, DP_PATE], ids=["fedkt", "dp_pate"])
def test_a_site_cannot_repeat_the_draws_behind_noisy_votes(algorithm: dict[str, Any], tmp_path: Path) -> None:
    federation = Federation(tmp_path, algorithm, {"name": "decision_tree"})
    guessed, other = federation.simulate("site-1"), federation.simulate("site-2")
    assert np.array_equal(guessed.labels.known, other.labels.known)
    run = federation.coordinate()
    assert run.labels.known.sum() == guessed.labels.known.sum() == 50
    assert not np.array_equal(run.labels.known, guessed.labels.known)
    assert SEEDED_NOISE in guessed.privacy.iloc[-1]["assumptions"]
    assert SEEDED_NOISE not in run.privacy.iloc[-1]["assumptions"]


class Killed(Callback):
    def on_round(self, report: Any) -> None:
        raise KeyboardInterrupt


def test_a_killed_coordinator_gives_the_same_orders_again_and_wipes_its_key_in_the_end(tmp_path: Path) -> None:
    federation = Federation(tmp_path, DP_FEDAVG, NET)
    with pytest.raises(KeyboardInterrupt):
        federation.coordinate(callbacks=[Killed()])
    key = tmp_path / "out" / FILE
    secret = key.read_bytes()
    assert len(secret) == 32
    assert stat.S_IMODE(key.stat().st_mode) == 0o600
    run = federation.coordinate(resume=True)  # an order that differs from the record would be an error
    assert run.refusals.empty
    assert not key.exists()
    for file in tmp_path.rglob("*"):
        assert not file.is_file() or not holds(file, secret), file
    again = federation.coordinate(resume=True)
    assert distance(run, again) == 0, "a finished run is read, not repeated"


def holds(file: Path, secret: bytes) -> bool:
    content = file.read_bytes()
    return secret in content or secret.hex().encode() in content


def test_a_run_whose_key_was_lost_is_not_resumed_with_other_noise(tmp_path: Path) -> None:
    federation = Federation(tmp_path, DP_FEDAVG, NET)
    with pytest.raises(KeyboardInterrupt):
        federation.coordinate(callbacks=[Killed()])
    (tmp_path / "out" / FILE).unlink()
    with pytest.raises(RecordError, match=r"run\.key is missing or damaged"):
        federation.coordinate(resume=True)


def test_a_run_that_lost_its_record_does_not_begin_again(tmp_path: Path) -> None:
    federation = Federation(tmp_path, DP_FEDAVG, NET)
    with pytest.raises(KeyboardInterrupt):
        federation.coordinate(callbacks=[Killed()])
    before = {name: verify_ledger(tmp_path / name / "agent" / "ledger.db") for name in NAMES}
    for file in (tmp_path / "out").glob("record*"):
        file.unlink()
    with pytest.raises(RecordError, match=r"its record is lost.* Restore record"):
        federation.coordinate(resume=True)
    assert {name: verify_ledger(tmp_path / name / "agent" / "ledger.db") for name in NAMES} == before


def test_a_key_without_its_record_does_not_put_the_same_noise_on_other_answers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The difference of the two models would be the update of the site that is away the second time."""
    federation = Federation(tmp_path, DP_FEDAVG | {"rounds": 1}, NET)
    key = run_key(tmp_path, begun=False)
    monkeypatch.setattr("collegium.flare.coordinator.coordinate.run_key", lambda folder, begun: key)
    published = []

    class Reader(Killed):
        def on_disclosure(self, disclosure: Any) -> None:
            if disclosure.party == "coordinator" and isinstance(disclosure.value, dict):
                published.append(disclosure.value)

    for away in (set(), {"site-3"}):
        federation.host.away = away
        shutil.rmtree(tmp_path / "out", ignore_errors=True)
        with pytest.raises(KeyboardInterrupt):
            federation.coordinate(callbacks=[Reader()])
    with_it, without = published
    change = np.sqrt(sum(np.square(with_it[name] - without[name]).sum() for name in with_it))
    assert change > 1, "an update is clipped to 1, and divided by three sites"
