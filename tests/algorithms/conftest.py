"""What tests of algorithms have in common."""

from __future__ import annotations

import pytest
from tests.algorithms.nets import SEEN


@pytest.fixture(autouse=True)
def _forget_what_nets_saw() -> None:
    SEEN.clear()
