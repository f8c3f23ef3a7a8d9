"""A place for sites to meet."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack

import pytest
from tests.consensus.meetings import Meetings


@pytest.fixture
def meeting() -> Iterator[Meetings]:
    with ExitStack() as links:
        yield Meetings(links)
