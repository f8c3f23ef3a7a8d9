"""Batches of texts of about one length."""

from __future__ import annotations

from typing import Any

import pytest
import torch

import collegium as cg
from collegium.learners.language import features
from collegium.learners.language.features import AT_ONCE_CPU, AT_ONCE_GPU, Rows, cut, in_batches
from collegium.learners.language.reading import NOTHING
from collegium.learners.torch import memory

CPU, GPU = torch.device("cpu"), torch.device("cuda")


def texts(*tokens: int, width: int = 128) -> torch.Tensor:
    ids = torch.full((len(tokens), width), NOTHING)
    for row, n in enumerate(tokens):
        ids[row, :n] = n
    return ids


def shapes_read(ids: torch.Tensor, rows: Rows) -> tuple[list[tuple[int, int]], torch.Tensor]:
    shapes: list[tuple[int, int]] = []

    def read(batch: torch.Tensor) -> torch.Tensor:
        shapes.append((batch.shape[0], batch.shape[1]))
        return batch[:, :1]

    return shapes, in_batches(ids, read, rows)


@pytest.fixture
def as_on_a_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(features, "step_on", lambda device: features.STEP_GPU)


def test_on_a_cpu_a_batch_has_so_many_rows_of_whatever_length() -> None:
    shapes, found = shapes_read(texts(3, 100, 17, 3), Rows.to_read_on(CPU))
    assert shapes == [(AT_ONCE_CPU, 16), (AT_ONCE_CPU, 32), (AT_ONCE_CPU, 112)]
    assert found.ravel().tolist() == [3, 100, 17, 3]


def test_on_a_gpu_there_are_few_batches_each_of_as_many_tokens(as_on_a_gpu: Any) -> None:
    shapes, found = shapes_read(texts(3, 100, 17, 64, 65, 128), Rows.to_read_on(GPU))
    assert shapes == [(2 * AT_ONCE_GPU, 64), (AT_ONCE_GPU, 128)]
    assert found.ravel().tolist() == [3, 100, 17, 64, 65, 128]


def test_without_memory_half_as_many_are_read_until_it_is_one_text(as_on_a_gpu: Any) -> None:
    rows, most = Rows.to_read_on(GPU), 5

    def read(batch: torch.Tensor) -> torch.Tensor:
        if len(batch) > most:
            raise torch.OutOfMemoryError
        return batch[:, :1]

    ids = texts(3, 100, 17)
    with pytest.warns(cg.CollegiumWarning) as said:
        found = in_batches(ids, read, rows)
    assert "There is no memory for 256 texts at a time: 128 are read" in str(said[0].message)
    assert found.ravel().tolist() == [3, 100, 17]
    assert rows.of(64) == 4
    most = 0
    with pytest.raises(torch.OutOfMemoryError), pytest.warns(cg.CollegiumWarning) as said:
        in_batches(ids, read, rows)
    told = [str(each.message) for each in said]
    assert "There is no memory for 2 texts at a time: one is read at a time from now on." in told
    assert told[-1] == "There is no memory for a single text: set a smaller max_length, or device='cpu'."


def test_without_memory_others_give_back_before_fewer_are_read(
    as_on_a_gpu: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    given: list[int] = []
    monkeypatch.setattr(memory, "give_back", lambda: not given.append(1) and len(given) == 1)
    rows, asked = Rows.to_read_on(GPU), list[int]()

    def read(batch: torch.Tensor) -> torch.Tensor:
        asked.append(len(batch))
        if len(asked) == 1:
            raise torch.OutOfMemoryError
        return batch[:, :1]

    assert in_batches(texts(3), read, rows).tolist() == [[3]]
    assert asked == [2 * AT_ONCE_GPU] * 2


def test_rows_are_cut_to_the_longest_of_them(as_on_a_gpu: Any) -> None:
    assert cut(texts(3, 60)).shape == (2, 64)
    assert cut(texts(3, 65)).shape == (2, 128)
    short = texts(3, width=64)
    assert cut(short) is short


def test_without_memory_for_long_texts_all_lengths_are_halved_as_said() -> None:
    rows = Rows(128, 128)
    with pytest.warns(cg.CollegiumWarning, match="no memory for 32 texts at a time: 16 are read"):
        assert rows.lower(rows.of(512))
    assert (rows.of(512), rows.of(128)) == (16, 64)
