"""Kernels that are there, that cannot be compiled, and that nobody wants."""

from __future__ import annotations

import sys
from types import ModuleType

import pytest
import torch

from collegium.errors import CollegiumWarning
from collegium.learners import kernels

NAME = "kernels_of_a_test"
compiled = kernels.compiled.__wrapped__  # which does not remember


@pytest.fixture
def module(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    found = ModuleType(NAME)
    found.try_out = lambda: None  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, NAME, found)
    monkeypatch.setattr(kernels, "find_spec", lambda name: name == "triton" or None)
    monkeypatch.delenv("COLLEGIUM_KERNELS", raising=False)
    return found


def test_kernels_that_run_serve(module: ModuleType) -> None:
    assert compiled(NAME) is module


def test_without_triton_and_where_nobody_wants_them_there_are_none(
    module: ModuleType, monkeypatch: pytest.MonkeyPatch, recwarn: pytest.WarningsRecorder
) -> None:
    monkeypatch.setenv("COLLEGIUM_KERNELS", "0")
    assert compiled(NAME) is None
    monkeypatch.delenv("COLLEGIUM_KERNELS")
    monkeypatch.setattr(kernels, "find_spec", lambda name: None)
    assert compiled(NAME) is None
    assert not recwarn.list


def test_kernels_that_cannot_be_compiled_or_imported_are_done_without_and_that_is_said(module: ModuleType) -> None:
    module.try_out = lambda: 1 / 0  # type: ignore[attr-defined]
    with pytest.warns(CollegiumWarning, match=r"cannot compile kernels on this machine \(ZeroDivisionError\)"):
        assert compiled(NAME) is None
    with pytest.warns(CollegiumWarning, match="ModuleNotFoundError"):
        assert compiled("kernels_that_are_not_there") is None


def test_on_the_cpu_nothing_is_launched_beside() -> None:
    with kernels.launching_beside(torch.zeros(1)):
        pass
