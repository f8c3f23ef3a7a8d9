from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from tests.flare.offices import OfficeHost, write_data, write_site
from tests.waiting import seconds

from collegium import registry

if TYPE_CHECKING:
    from collegium.flare.supervise.loopback import LoopbackFederation

NAMES = ("site-1", "site-2", "site-3")
LEARNERS = dict(zip(NAMES, ("decision_tree", "random_forest", "logistic_regression"), strict=True))


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
        write_site(tmp_path / name, name, learner=learner)
    return tmp_path


@pytest.fixture
def host(kits: Path) -> OfficeHost:
    """Their offices."""
    return OfficeHost({name: kits / name for name in NAMES})
