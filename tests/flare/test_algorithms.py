"""Every algorithm runs between organisations, unchanged, and comes to what its simulation comes to."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import fields
from pathlib import Path
from typing import Any

import cloudpickle
import numpy as np
import pandas as pd
import pytest
from tests.flare.conftest import NAMES
from tests.flare.offices import OfficeHost, write_data

import collegium as cg
from collegium import registry
from collegium.core.correspondence import Correspondence
from collegium.core.link import Answer
from collegium.core.site import ActiveSite
from collegium.errors import ConfigError
from collegium.flare.coordinator.coordinate import coordinate
from collegium.flare.kits.identity import make_agent_folder, read_keys
from collegium.flare.site.setup import load_site
from collegium.protocols.keys import Member, SiteKeys
from collegium.study.preparing import coordinators_part
from collegium.study.study import Study

EVERY = [name for name in registry.names("algorithm") if not registry.lookup("algorithm", name).makes_public]
REAL = [name for name in EVERY if not registry.lookup("algorithm", name)().simulation_only]
QUICK = ("fedct", "aimhi", "fedkt", "fedaux", "xclp", "fedavg", "dp_fedavg", "scaffold")
"""One of each way of working; the others, which send nothing that these do not, are slow."""
SETTINGS: dict[str, dict[str, Any]] = {
    "aimhi": {"period": 1},
    "dp_fedavg": {"clip": 1.0, "noise": 1.0},
    "fedkt": {"subsets": 2},
    "fedmd": {"public_epochs": 1, "private_epochs": 1},
    "fedaux": {"epsilon": 1.0},
    "fedbe": {"samples": 2},
    "xclp": {"bits": 64, "k": 5, "hamming": "masked"},
    "fedavg_xclp": {"xclp": {"name": "xclp", "bits": 64, "k": 5, "hamming": "masked"}},
}
# What they draw at random comes from the operating system, at sites and at the coordinator: no two runs are the same.
NOISY = {"dp_fedavg", "fedaux", "fedbe"}


def study_of(name: str) -> Study:
    cls = registry.lookup("algorithm", name)
    known = {field.name for field in fields(cls)}
    few = {key: value for key, value in {"rounds": 2, "local_epochs": 1}.items() if key in known}
    table: dict[str, Any] = {
        "name": name,
        "seed": 1,
        "data": {"source": "public.csv"},
        "algorithm": {"name": name} | few | SETTINGS.get(name, {}),
        "sites": [{"learner": learner_of(name), "prepare": "none"}],
        "federation": {"classes": ["benign", "malignant"], "parties": list(NAMES)},
    }
    if cls.learns_public_labels:
        table["data"] = {"source": "labelled.csv", "target": "diagnosis"}
    return Study.from_dict(table)


def learner_of(name: str) -> dict[str, Any]:
    if registry.lookup("algorithm", name).needs:
        return {"name": "torch", "net": "mlp", "lr": 0.01, "batch_size": 16, "epochs": 1, "device": "cpu"}
    return {"name": "decision_tree"}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Sites that know each other's identities, with labelled and unlabeled rows."""
    write_data(tmp_path, NAMES)
    public = pd.read_csv(tmp_path / "public.csv")
    public.assign(diagnosis=np.where(public["mean radius"] < 14, "benign", "malignant")).to_csv(
        tmp_path / "labelled.csv", index=False
    )
    return tmp_path


def kits_for(folder: Path, name: str) -> Iterator[tuple[str, Path]]:
    identities = {site: read_keys(make_agent_folder(folder / site), site).identity for site in NAMES}
    known = "\n".join(f'"{site}" = "{identity}"' for site, identity in identities.items())
    settings = ", ".join(f"{key} = {value!r}" for key, value in learner_of(name).items())
    own_points = not registry.lookup("algorithm", name).needs_labels
    for site in NAMES:
        rows = pd.read_csv(folder / site / "train.csv")
        if own_points:
            rows[1::2].drop(columns="diagnosis").to_csv(folder / site / "unlabeled.csv", index=False)
            rows[::2].to_csv(folder / site / "train.csv", index=False)
        extra = 'unlabeled = "unlabeled.csv"' if own_points else ""
        (folder / site / "site.toml").write_text(
            f'name = "{site}"\nprepare = "none"\nlearner = {{ {settings} }}\n'
            f'[data]\nsource = "train.csv"\ntarget = "diagnosis"\n{extra}\n'
            f'held_out = 0.2\n[policy]\napproval = "auto"\n[identities]\n{known}\n'
        )
        yield site, folder / site


@pytest.mark.parametrize(
    "name", [name if name in QUICK else pytest.param(name, marks=pytest.mark.slow) for name in REAL]
)
def test_it_runs_between_organisations_as_in_a_simulation(name: str, folder: Path) -> None:
    study, host = study_of(name), OfficeHost(dict(kits_for(folder, name)))
    run = coordinate(study, host, base=folder, out=folder / "out", progress=False)
    assert run.refusals.empty, run.refusals
    assert set(run.orders["party"]) == set(NAMES)
    if name in NOISY:
        return
    part = coordinators_part(study, folder)
    sites = []
    for site in NAMES:
        setup = load_site(folder / site)
        sites.append(setup.site if part.public is None else setup.with_public(part.public))
    simulated = cg.run(part.algorithm, sites=sites, public=part.shared, classes=part.classes, seed=1, progress=False)
    if isinstance(simulated.labels, dict):
        for site, labels in simulated.labels.items():
            kept = pd.read_csv(folder / site / "agent" / "runs" / run.about["run"] / "labels.csv")
            assert len(kept) == len(labels)
            if not part.algorithm.fresh_secrets:  # such as the seed of the sketches, which only the sites know
                assert kept["label"].tolist() == labels.tolist()
    else:
        assert run.labels == simulated.labels
    if not part.algorithm.fresh_secrets:
        ours = run.releases[run.releases["kind"] != "Scores"]
        assert sorted(ours["sha256"]) == sorted(simulated.releases["sha256"])


def test_secret_votes_come_to_what_plain_ones_come_to(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    kits = dict(kits_for(folder, "fedct"))
    plain = coordinate(study_of("fedct"), OfficeHost(kits), base=folder, out=folder / "plain", progress=False)
    monkeypatch.setitem(SETTINGS, "fedct", {"votes": "secret"})
    secret = coordinate(study_of("fedct"), OfficeHost(kits), base=folder, out=folder / "secret", progress=False)
    assert secret.refusals.empty, secret.refusals
    assert {"MaskedVotes", "MaskShares"} <= set(secret.releases["kind"])
    assert "HardLabels" not in set(secret.releases["kind"])
    assert secret.labels == plain.labels
    for site in NAMES:
        (state,) = (folder / site / "agent" / "runs" / secret.about["run"]).glob("state-*.pkl")
        _, _, own, secrets, *_ = cloudpickle.loads(state.read_bytes())
        assert secrets == {}
        assert own["names of circles that were joined"], "a name stays used"


@pytest.mark.parametrize("name", sorted(set(EVERY) - set(REAL)))
def test_what_only_a_simulation_may_do_is_refused(name: str, folder: Path) -> None:
    with pytest.raises(ConfigError, match="can only be simulated"):
        coordinators_part(study_of(name), folder)


@pytest.mark.parametrize("name", ["xclp", "fedavg_xclp"])
def test_sketches_in_the_clear_are_refused_before_anything_is_asked(
    name: str, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(SETTINGS, "xclp", {"hamming": "plain"})
    monkeypatch.setitem(SETTINGS, "fedavg_xclp", {"xclp": {"name": "xclp", "hamming": "plain"}})
    with pytest.raises(ConfigError, match="can only be simulated"):
        coordinators_part(study_of(name), folder)


@pytest.mark.parametrize(
    ("step", "backend", "again"),
    [
        ("sketches.compare", "masked", 1), ("distances.talk", "masked", 1), ("distances.talk", "ot", 2),
        ("distances.share", "ot", 1), ("row_sums.submit", "masked", 1),
    ],
)  # fmt: skip
def test_a_site_that_was_left_out_keeps_no_key_of_the_run(
    step: str, backend: str, again: int, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Neither keys of its circle, nor the seed of the sketches, which is also what `masked` sketches are masked by."""
    monkeypatch.setitem(SETTINGS, "xclp", {"bits": 64, "k": 3, "hamming": backend})
    secrets = watch_secrets(monkeypatch)
    host = OfficeHost(dict(kits_for(folder, "xclp")))
    lose_answers(monkeypatch, "site-3", step, again)
    with pytest.warns(cg.CollegiumWarning):
        run = coordinate(study_of("xclp"), host, base=folder, out=folder / "out", progress=False)
    assert set(run.refusals["party"]) == {"site-3"}
    kept = [file for site in NAMES for file in (folder / site / "agent" / "runs").rglob("*") if file.is_file()]
    assert [file.name for file in kept if "site-3" in file.parts and file.suffix == ".pkl"] == ["state-over.pkl"]
    assert len(secrets) >= 2 * len(NAMES)
    for file in kept:
        content = file.read_bytes()
        assert not [what for what, secret in secrets if secret in content], file


def test_an_organisation_with_columns_in_another_order_reads_why_it_was_left_out(folder: Path) -> None:
    kits = dict(kits_for(folder, "xclp"))
    for file in (folder / "site-3" / "train.csv", folder / "site-3" / "unlabeled.csv"):
        rows = pd.read_csv(file)
        rows[rows.columns[::-1]].to_csv(file, index=False)
    host = OfficeHost(kits)
    with pytest.warns(cg.CollegiumWarning):
        run = coordinate(study_of("xclp"), host, base=folder, out=folder / "out", progress=False)
    assert run.refusals[["party", "step", "code"]].values.tolist() == [["site-3", "sketches.compare", "protocol"]]
    (log,) = (folder / "site-3" / "agent" / "runs" / run.about["run"]).rglob("site.log")
    assert "Party 'site-1' has columns with other names or in another order than this site" in log.read_text()


def watch_secrets(patched: pytest.MonkeyPatch) -> list[tuple[str, bytes]]:
    """All fresh keys and seeds that are drawn from now on, and the identity keys that sign them."""
    secrets: list[tuple[str, bytes]] = []
    begin, draw = Member.__init__, ActiveSite.draw_secret

    def watched(self: Member, keys: SiteKeys, name: str) -> None:
        begin(self, keys, name)
        secrets.extend([("circle", self._secret), ("identity", keys.secret)])

    def drawn(self: ActiveSite, size: int) -> bytes:
        secrets.append(("seed", draw(self, size)))
        return secrets[-1][1]

    patched.setattr(Member, "__init__", watched)
    patched.setattr(ActiveSite, "draw_secret", drawn)
    return secrets


def lose_answers(patched: pytest.MonkeyPatch, party: str, step: str, again: int) -> None:
    """The coordinator cannot read what a site answers to a step, from the so manieth time on."""
    receive, asked = Correspondence._receive, []

    def received(self: Correspondence, answer: Answer, awaited: Any, outcome: Any) -> Any:
        if (answer.party, awaited.requests[-1].step) == (party, step):
            asked.append(answer)
            answer = answer if len(asked) < again else answer._replace(frame=b"")
        return receive(self, answer, awaited, outcome)

    patched.setattr(Correspondence, "_receive", received)


def test_a_public_set_is_made_between_organisations(folder: Path) -> None:
    kits = dict(kits_for(folder, "fedct"))
    X = pd.read_csv(folder / NAMES[0] / "train.csv").drop(columns="diagnosis")
    columns = {name: [0.0, float(10 ** np.ceil(np.log10(X[name].max())))] for name in X}
    table = {
        "name": "made",
        "data": {"source": "none"},
        "algorithm": {"name": "together", "columns": columns, "rows": 40, "epsilon": 50.0},
        "federation": {"classes": ["benign", "malignant"], "parties": list(NAMES)},
    }
    run = coordinate(Study.from_dict(table), OfficeHost(kits), base=folder, out=folder / "made", progress=False)
    assert run.refusals.empty, run.refusals
    assert {"MaskedCounts", "MaskShares"} <= set(run.releases["kind"])
    assert not run.privacy["kind"].eq("unprotected").any()
    rows = pd.read_parquet(folder / "made" / "public.parquet")
    assert list(rows.columns) == list(X.columns)
    assert len(rows) == 40
    # The next study labels these rows, and its coordinator knows what their model says of them: here, nonsense.
    opinion = pd.read_parquet(folder / "made" / "opinion.parquet")
    assert list(opinion.columns) == ["benign", "malignant"]
    opinion.assign(benign=1.0, malignant=0.0).to_parquet(folder / "nonsense.parquet")
    labelling = table | {
        "name": "used",
        "sites": [{"learner": learner_of("fedct"), "prepare": "none"}],
        "data": {"source": "made/public.parquet", "opinion": "nonsense.parquet"},
        "algorithm": {"name": "fedct", "rounds": 1, "consensus": "informed"},
    }
    run = coordinate(Study.from_dict(labelling), OfficeHost(kits), base=folder, out=folder / "used", progress=False)
    assert set(run.labels.codes) == {0}


def test_values_that_nobody_declared_are_found_between_organisations(folder: Path) -> None:
    kits = dict(kits_for(folder, "fedct"))
    for number, name in enumerate(NAMES):
        file = folder / name / "train.csv"
        rows = pd.read_csv(file)[["mean radius", "diagnosis"]]
        rows["ward"] = np.where(rows["mean radius"] > 14, "surgery", "day care")
        rows.loc[rows.index[:3], "ward"] = f"room {number}"
        rows.to_csv(file, index=False)
    table = {
        "name": "found",
        "data": {"source": "none"},
        "algorithm": {
            "name": "together",
            "columns": {"mean radius": "real", "ward": "category"},
            "rows": 60,
            "epsilon": 20.0,
        },
        "federation": {"classes": ["benign", "malignant"], "parties": list(NAMES)},
    }
    run = coordinate(Study.from_dict(table), OfficeHost(kits), base=folder, out=folder / "found", progress=False)
    assert run.refusals.empty, run.refusals
    assert "MaskedWords" in set(run.releases["kind"])
    assert not run.privacy["kind"].eq("unprotected").any()
    rows = pd.read_parquet(folder / "found" / "public.parquet")
    assert set(rows["ward"]) == {"surgery", "day care"}
    assert rows["mean radius"].between(0, 64).all()
