"""A few hundred of the mutants whose ten thousands `python -m benchmarks fuzz` sends."""

from __future__ import annotations

import tracemalloc
from pathlib import Path
from typing import Any

import pytest
from benchmarks.fuzz import to_coordinator, to_site

from collegium import registry


@pytest.mark.parametrize("direction", [to_site, to_coordinator])
@pytest.mark.parametrize("seed", [1, pytest.param(2, marks=pytest.mark.slow)])
def test_mutants_are_refused_in_little_memory_and_the_same_order_has_the_same_answer(
    tmp_path: Path, direction: Any, seed: int
) -> None:
    registry.install_steps()
    found = direction(200, seed, tmp_path)
    assert found["unforeseen"] == 0
    assert found["refused"] > 150
    assert 0 < found["taken"] < 50
    assert found["same"]


@pytest.mark.slow
def test_a_mutant_that_is_read_takes_no_more_than_was_said(tmp_path: Path) -> None:
    registry.install_steps()
    tracemalloc.start()
    try:
        to_coordinator(50, 3, tmp_path)
        assert tracemalloc.get_traced_memory()[1] < 128 << 20
    finally:
        tracemalloc.stop()
