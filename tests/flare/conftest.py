from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import pandas as pd
import pytest
from tests.flare.offices import OfficeHost, write_data, write_site
from tests.waiting import seconds

from collegium import registry
from collegium.flare.kits.identity import read_keys

if TYPE_CHECKING:
    from tests.flare.faults import FaultyFederation

    from collegium.flare.supervise.loopback import LoopbackFederation

NAMES = ("site-1", "site-2", "site-3")
LEARNERS = dict(zip(NAMES, ("decision_tree", "random_forest", "logistic_regression"), strict=True))
FEW_TREES = {"site-2": ", n_estimators = 10"}
MANY_TREES = {"site-2": ", n_estimators = 200"}
"""It needs about half a second for an order: time to be killed in the middle of one."""


@contextmanager
def started(federation: LoopbackFederation) -> Iterator[None]:
    """With all its processes, which a busy machine may take its time to start."""
    try:
        federation.start(seconds(60))
        yield
    finally:
        federation.stop()


@pytest.fixture(scope="session", autouse=True)
def _steps() -> None:
    registry.install_steps()


@pytest.fixture
def kits(tmp_path: Path) -> Path:
    """Three sites' folders, and the public rows beside them."""
    write_data(tmp_path, NAMES)
    for name, learner in LEARNERS.items():
        write_site(tmp_path / name, name, learner=learner, settings=FEW_TREES.get(name, ""))
    return tmp_path


@pytest.fixture
def host(kits: Path) -> OfficeHost:
    """Their offices."""
    return OfficeHost({name: kits / name for name in NAMES})


@pytest.fixture(scope="session")
def federation(tmp_path_factory: pytest.TempPathFactory) -> Iterator[FaultyFederation]:
    """A server and three sites as real processes, for tests that leave them as they were: they take long to start."""
    pytest.importorskip("nvflare")
    from tests.flare.faults import FaultyFederation

    from collegium.flare.supervise.loopback import free_port

    ports = {name: free_port() for name in ("server", "site-1")}
    options = ["--metrics-port", str(ports["server"])]
    loopback = FaultyFederation(tmp_path_factory.mktemp("federation"), NAMES, server_options=options)
    loopback.metrics = ports
    write_data(loopback.kits, NAMES)
    for name in NAMES:
        write_site(loopback.site_kit(name), name, learner=LEARNERS[name], settings=MANY_TREES.get(name, ""))
    identities = {name: read_keys(loopback.site_kit(name) / "agent", name).identity for name in NAMES}
    known = "".join(f'"{name}" = "{identity}"\n' for name, identity in identities.items())
    for name in NAMES:
        file = loopback.site_kit(name) / "site.toml"
        rows = pd.read_csv(loopback.site_kit(name) / "train.csv").drop(columns="diagnosis")
        rows[::3].to_csv(loopback.site_kit(name) / "unlabeled.csv", index=False)
        text = file.read_text().replace("held_out", 'unlabeled = "unlabeled.csv"\nheld_out')
        metrics = f"[metrics]\nport = {ports[name]}\n" if name in ports else ""
        file.write_text(f"{text}\n{metrics}[identities]\n{known}")
    with started(loopback):
        yield loopback
