from __future__ import annotations

from typing import Any

import pytest
from tests.flare.offices import write_data


@pytest.fixture(scope="module")
def public(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """The rows that everybody has."""
    return write_data(tmp_path_factory.mktemp("data"), ["site-1"])
