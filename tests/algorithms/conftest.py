"""What tests of algorithms have in common."""

from __future__ import annotations

import pytest
from tests.algorithms.nets import SEEN
from tests.algorithms.recorder import FITTED


@pytest.fixture(autouse=True)
def _forget_what_learners_saw() -> None:
    SEEN.clear()
    FITTED.clear()
