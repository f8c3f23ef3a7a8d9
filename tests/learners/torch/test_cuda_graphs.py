"""Steps that are recorded do what plain steps do; rows that cannot change are brought to a device once."""

from __future__ import annotations

import gc
import pickle
from typing import Any

import numpy as np
import pytest
import torch

from collegium.algorithms.fedprox import Proximal
from collegium.core.terms import LocalTerms, SoftTargets
from collegium.learners.torch import cuda_graphs, rows_on_gpu
from collegium.learners.torch.batches import Batches, Labelled, Rows, batches_of
from collegium.learners.torch.classifier import TorchClassifier
from collegium.learners.torch.cuda_graphs import put_optimizer
from collegium.learners.torch.devices import CPU
from collegium.wire import tables

needs_cuda = pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no CUDA device here")
rng = np.random.default_rng(0)
X = tables.frozen(rng.normal(size=(200, 3, 32, 32)).astype(np.float32))
Y = np.arange(200) % 4
SOFT = np.full((200, 4), 0.25, dtype=np.float32)


def trained(net: str, optimizer: str, terms: LocalTerms | None) -> dict[str, Any]:
    model = TorchClassifier(net, lr=1e-3, batch_size=32, optimizer=optimizer, device="cuda", random_state=0)
    for _ in range(2):
        model.update(X, Y, classes=range(4), pseudo=(X, Y), steps=7, terms=terms)
    model.update(X[:70], Y[:70], classes=range(4), epochs=3)  # the last batch of each sweep is shorter
    return model.distill(X, SOFT, steps=8, lr=1e-3).get_weights()


@needs_cuda
@pytest.mark.parametrize("net", ["mlp", "resnet8"])
@pytest.mark.parametrize("optimizer", ["adam", "sgd", "momentum"])
@pytest.mark.parametrize(
    "terms", [None, LocalTerms([Proximal(0.1)]), LocalTerms([SoftTargets(X, SOFT)], keep_optimizer=True)]
)
def test_recorded_steps_come_to_the_weights_of_plain_ones(
    net: str, optimizer: str, terms: LocalTerms | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    recorded = trained(net, optimizer, terms)
    monkeypatch.setenv("COLLEGIUM_CUDA_GRAPHS", "0")
    plain = trained(net, optimizer, terms)
    size = sum(float((value**2).sum()) for value in plain.values())
    apart = sum(float(((plain[name] - recorded[name]) ** 2).sum()) for name in plain)
    assert apart < 0.025**2 * size  # rounding; a step more or less is twice that


@needs_cuda
@pytest.mark.parametrize("precision", ["float32", "tf32", "bfloat16"])
@pytest.mark.parametrize("norm", ["batch", "group"])
def test_a_net_on_a_gpu_answers_as_on_a_cpu(norm: str, precision: str) -> None:
    model = TorchClassifier("resnet8", norm=norm, batch_size=32, device="cuda", precision=precision, random_state=0)
    model.update(X, Y, classes=range(4), steps=20)  # the running statistics are not those of the beginning
    there = model.predict_logits(X), model.embed(X)
    here = model.set_params(device="cpu", precision="float32")
    near = {"float32": 1e-3, "tf32": 1e-2, "bfloat16": 1e-1}[precision]
    for said, expected in zip(there, (here.predict_logits(X), here.embed(X)), strict=True):
        assert np.abs(said - expected).max() < near * np.abs(expected).max()


@needs_cuda
def test_a_net_goes_on_elsewhere() -> None:
    model = TorchClassifier("resnet8", batch_size=16, device="cuda", random_state=0)
    model.update(X, Y, classes=range(4), steps=8)
    copy = pickle.loads(pickle.dumps(model))
    for device in ("cpu", "cuda"):
        copy.set_params(device=device).update(X[:32], Y[:32], classes=range(4), steps=5)
        assert not copy.diverged_


@pytest.mark.parametrize("make", [torch.optim.Adam, torch.optim.SGD])
def test_an_optimizer_that_is_put_where_it_is_goes_on_with_the_same_bits(make: Any) -> None:
    def steps(moved: bool) -> torch.Tensor:
        weights = torch.nn.Parameter(torch.linspace(-1, 1, 6).reshape(2, 3))
        optimizer = make([weights], lr=0.1)
        for _ in range(4):
            optimizer.zero_grad()
            (weights**3).sum().backward()
            optimizer.step()
            if moved:
                put_optimizer(optimizer, CPU)
        return weights.detach()

    assert torch.equal(steps(moved=True), steps(moved=False))


def test_only_arrays_that_cannot_change_stay_on_a_device() -> None:
    array = np.zeros((3, 2), dtype=np.float32)
    assert rows_on_gpu.can_stay(tables.frozen(array))
    assert not rows_on_gpu.can_stay(array)
    assert not rows_on_gpu.can_stay(array.tolist())
    assert array.flags.writeable  # the user's own array is as it was


def test_a_copy_is_made_once_and_goes_with_its_array() -> None:
    made = []

    def make() -> torch.Tensor:
        made.append(1)
        return torch.zeros(2)

    array, other = tables.frozen(np.zeros(2)), tables.frozen(np.zeros(2))
    first = rows_on_gpu.keep(array, CPU, make)
    assert rows_on_gpu.keep(array, CPU, make) is first
    assert rows_on_gpu.keep(other, CPU, make) is not first
    assert len(made) == 2
    key = id(array), CPU
    assert key in rows_on_gpu._kept
    del array
    gc.collect()
    assert key not in rows_on_gpu._kept


def test_all_rows_on_a_device_are_the_rows() -> None:
    given = np.arange(24).reshape(6, 4)
    rows = Rows(given, (1, 2, 2))
    np.testing.assert_array_equal(rows.copy_to(CPU).numpy(), given.reshape(6, 1, 2, 2))
    sets = [labelled(given)]
    hands = Batches(np.random.default_rng(0)).deal(sets, None, batch_size=3, epochs=1, steps=None)
    batch = next(batches_of(hands, sets, None, CPU))
    assert batch.X.dtype == torch.float32
    assert [int(row[0]) // 4 for row in batch.X] == batch.codes.tolist()


def labelled(given: np.ndarray) -> Labelled:
    return Labelled(Rows(given), np.arange(len(given)), np.arange(len(given)))


def test_so_many_computations_are_recorded_at_most(monkeypatch: pytest.MonkeyPatch) -> None:
    class Graph:
        def replay(self) -> None:
            done.append("replayed")

    done: list[str] = []
    monkeypatch.setattr(cuda_graphs, "record", lambda run, optimizer: (Graph(), None))
    recorder = cuda_graphs.Recorder(enabled=True, most=2)
    for key in "abc":
        for _ in range(cuda_graphs.WARM_UP + 2):
            recorder(key, lambda: done.append("run"), torch.optim.SGD([torch.zeros(1)]))
    assert [recorder.knows(key) for key in "abc"] == [True, True, False]
    assert done.count("replayed") == 4


def test_what_is_made_of_recorded_computations_is_recorded_once_it_came_often(monkeypatch: pytest.MonkeyPatch) -> None:
    class Graph:
        def replay(self) -> None:
            done.append("replayed")

    done: list[str] = []
    monkeypatch.setattr(cuda_graphs, "record", lambda run, optimizer: (Graph(), None))
    recorder = cuda_graphs.Recorder(enabled=True, most=1)
    asked = [recorder.pays("aa") for _ in range(cuda_graphs.OFTEN + 2)]
    assert asked == [False] * cuda_graphs.OFTEN + [True, True]
    recorder("aa", lambda: done.append("run"), torch.optim.SGD([torch.zeros(1)]))
    assert done == ["replayed"]  # its parts were warm
    assert not any(recorder.pays("aaaa") for _ in range(cuda_graphs.OFTEN + 2))  # only so many of these, too
    for _ in range(cuda_graphs.WARM_UP + 1):
        recorder("a", lambda: done.append("run"), torch.optim.SGD([torch.zeros(1)]))
    assert recorder.knows("a")  # they do not take the place of others
