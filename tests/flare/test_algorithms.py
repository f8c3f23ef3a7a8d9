"""Every algorithm runs between organisations, unchanged, and comes to what its simulation comes to."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import fields
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from tests.flare.conftest import NAMES
from tests.flare.offices import OfficeHost, write_data

import collegium as cg
from collegium import registry
from collegium.errors import ConfigError
from collegium.flare.coordinate import coordinate
from collegium.flare.identity import make_agent_folder, read_keys
from collegium.flare.site_file import load_site
from collegium.study import Study
from collegium.study_data import coordinators_part

EVERY = registry.names("algorithm")
REAL = [name for name in EVERY if not registry.lookup("algorithm", name)().simulation_only]
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
# Their noise or keys are drawn by the operating system at each site: no two runs are the same.
NOISY = {"dp_fedavg", "fedaux"}


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
    """Sites that know each other's identities, with labelled and unlabelled rows."""
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


@pytest.mark.parametrize("name", REAL)
def test_it_runs_between_organisations_as_in_a_simulation(name: str, folder: Path) -> None:
    study, host = study_of(name), OfficeHost(dict(kits_for(folder, name)))
    run = coordinate(study, host, base=folder, out=folder / "out", progress=False)
    assert run.refusals.empty, run.refusals
    assert set(run.orders["party"]) == set(NAMES)
    part = coordinators_part(study, folder)
    sites = []
    for site in NAMES:
        setup = load_site(folder / site)
        sites.append(setup.site if part.public is None else setup.with_public(part.public))
    shared = (part.public, part.truth) if part.algorithm.learns_public_labels else part.public
    simulated = cg.run(part.algorithm, sites=sites, public=shared, classes=part.classes, seed=1, progress=False)
    if name in NOISY:
        return
    if isinstance(simulated.labels, dict):
        for site, labels in simulated.labels.items():
            kept = pd.read_csv(folder / site / "agent" / "runs" / run.about["run"] / "labels.csv")
            assert len(kept) == len(labels)
            if not part.algorithm.fresh_secrets:  # such as the seed of the codes, which only the sites know
                assert kept["label"].tolist() == labels.tolist()
    else:
        assert run.labels == simulated.labels
    if not part.algorithm.fresh_secrets:
        ours = run.releases[run.releases["kind"] != "Scores"]
        assert sorted(ours["sha256"]) == sorted(simulated.releases["sha256"])


@pytest.mark.parametrize("name", sorted(set(EVERY) - set(REAL)))
def test_what_only_a_simulation_may_do_is_refused(name: str, folder: Path) -> None:
    with pytest.raises(ConfigError, match="can only be simulated"):
        coordinators_part(study_of(name), folder)
