"""Features are computed once, whoever asks, and kept by the content of each image."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from sklearn.neighbors import KNeighborsClassifier
from sklearn.pipeline import make_pipeline
from tests.learners.vision.tiny_backbones import tiny_backbone

import collegium as cg
from collegium.errors import CollegiumWarning, StorageError
from collegium.learners.torch.devices import CPU
from collegium.learners.vision import features as module
from collegium.learners.vision.backbones import find_backbone
from collegium.learners.vision.features import Features
from collegium.learners.vision.pictures import Pictures

IMAGES = np.random.default_rng(0).random((40, 1, 8, 8), dtype=np.float32)


@pytest.fixture
def made() -> Features:
    return Features(find_backbone(tiny_backbone()), None, CPU, "float32")


@pytest.fixture
def computed(monkeypatch: Any) -> list[int]:
    rows: list[int] = []
    whole = Features._answers

    def counted(self: Features, pictures: Pictures, some: Any) -> Any:
        rows.append(len(some))
        return whole(self, pictures, some)

    monkeypatch.setattr(Features, "_answers", counted)
    return rows


def test_any_rows_of_known_images_cost_nothing(made: Features, computed: list[int]) -> None:
    every = made.of(Pictures(IMAGES))
    assert sum(computed) == 40
    order = np.array([7, 3, 3, 39, 0])
    np.testing.assert_array_equal(made.of(Pictures(IMAGES[order])), every[order])
    assert sum(computed) == 40
    made.of(Pictures(np.concatenate([IMAGES[:5], 1 - IMAGES[:2], 1 - IMAGES[:2]])))
    assert sum(computed) == 42
    assert not every.flags.writeable


def test_a_fixed_array_has_one_array_of_features(made: Features) -> None:
    fixed = IMAGES.copy()
    fixed.setflags(write=False)
    assert made.of(Pictures(fixed)) is made.of(Pictures(fixed))


def test_an_array_that_was_changed_has_others(made: Features) -> None:
    own = IMAGES.copy()
    first = made.of(Pictures(own))
    own[0] = 1 - own[0]
    second = made.of(Pictures(own))
    assert not np.allclose(first[0], second[0])
    np.testing.assert_array_equal(first[1:], second[1:])


def test_two_who_ask_at_once_compute_once(made: Features, computed: list[int]) -> None:
    threads = [threading.Thread(target=made.of, args=(Pictures(IMAGES),)) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sum(computed) == 40


def test_the_oldest_go_where_there_are_too_many(made: Features, computed: list[int], monkeypatch: Any) -> None:
    monkeypatch.setattr(module, "MOST_VALUES", 64 * 30)
    halves = [Pictures(IMAGES[:20]), Pictures(IMAGES[20:])]
    expected = [made.of(half) for half in halves]
    assert np.array_equal(made.of(Pictures(IMAGES)), np.concatenate(expected))
    assert sum(computed) == 40
    made.of(Pictures(IMAGES[:5]))
    assert sum(computed) == 45


def test_less_memory_means_fewer_at_a_time(made: Features, monkeypatch: Any) -> None:
    expected = Features(find_backbone(tiny_backbone()), None, CPU, "float32").of(Pictures(IMAGES))
    whole, sizes = Features._answers, []

    def short_of_memory(self: Features, pictures: Pictures, rows: Any) -> Any:
        sizes.append(len(rows))
        if len(rows) > 10:
            raise RuntimeError("[enforce fail at alloc_cpu.cpp:117] DefaultCPUAllocator: can't allocate memory")
        return whole(self, pictures, rows)

    monkeypatch.setattr(Features, "_answers", short_of_memory)
    made._batch = 32
    with pytest.warns(CollegiumWarning, match="do not fit into memory with 'cnn_aimhi': .* are computed at a time"):
        np.testing.assert_allclose(made.of(Pictures(IMAGES)), expected, atol=1e-4)
    assert sizes == [32, 16, 8, 8, 8, 8, 8]
    monkeypatch.setattr(Features, "_answers", lambda *_: (_ for _ in ()).throw(RuntimeError("something else")))
    with pytest.raises(RuntimeError, match="something else"):
        made.of(Pictures(1 - IMAGES))


def test_they_are_kept_for_other_processes_where_a_folder_is_named(
    tmp_path: Path, computed: list[int], monkeypatch: Any
) -> None:
    monkeypatch.setenv("COLLEGIUM_FEATURES", str(tmp_path / "kept"))

    def another() -> Features:
        return Features(find_backbone(tiny_backbone()), None, CPU, "float32")

    early = another()
    first = another().of(Pictures(IMAGES[:30]))
    assert sum(computed) == 30
    np.testing.assert_array_equal(early.of(Pictures(IMAGES[10:]))[:20], first[10:])
    assert sum(computed) == 40
    np.testing.assert_array_equal(another().of(Pictures(IMAGES[::-1]))[10:], first[::-1])
    assert sum(computed) == 40
    assert (tmp_path / "kept").stat().st_mode & 0o077 == 0 or not any((tmp_path / "kept").glob("*.npy"))
    other = Features(find_backbone(tiny_backbone(1)), None, CPU, "float32")
    assert not np.allclose(other.of(Pictures(IMAGES[:30])), first)


def test_a_folder_that_cannot_be_written(tmp_path: Path, monkeypatch: Any) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("COLLEGIUM_FEATURES", str(tmp_path / "file"))
    with pytest.raises(StorageError, match="COLLEGIUM_FEATURES"):
        Features(find_backbone(tiny_backbone()), None, CPU, "float32").of(Pictures(IMAGES))


def test_any_learner_takes_them() -> None:
    y = np.where(IMAGES.mean(axis=(1, 2, 3)) > np.median(IMAGES.mean(axis=(1, 2, 3))), "bright", "dark")
    model = make_pipeline(cg.ImageFeatures(tiny_backbone()), KNeighborsClassifier(1)).fit(IMAGES, y)
    np.testing.assert_array_equal(model.predict(IMAGES), y)
    np.testing.assert_array_equal(
        cg.ImageFeatures(tiny_backbone()).fit_transform(IMAGES), cg.VisionClassifier(tiny_backbone()).embed(IMAGES)
    )


def test_a_private_learner_takes_them() -> None:
    pytest.importorskip("opacus")
    X = np.random.default_rng(0).random((300, 1, 8, 8), dtype=np.float32)
    y = (X[:, 0, :4].mean(axis=(1, 2)) > 0.5).astype(int)
    features = cg.ImageFeatures(tiny_backbone())
    net = cg.PrivateTorch("linear", prepare=features, epochs=2, noise_multiplier=1.0, random_state=0)
    assert net.fit(X, y, public=X[:50]).predict(X).shape == (300,)


def test_rows_depend_on_no_others() -> None:
    together = cg.VisionClassifier(tiny_backbone(7)).embed(IMAGES)
    alone = Features(find_backbone(tiny_backbone(7)), None, CPU, "float32")
    np.testing.assert_array_equal(alone.of(Pictures(IMAGES[5:6])), together[5:6])  # bit for bit
    assert torch.is_grad_enabled()
