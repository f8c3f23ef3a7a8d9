"""Nets that take turns in one place learn what each would learn where it is."""

from __future__ import annotations

import copy
import gc
import weakref
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from collegium.algorithms.fedprox import Proximal
from collegium.core.terms import LocalTerms, SoftTargets, UpdateReport
from collegium.errors import CollegiumWarning, ConfigError
from collegium.learners.torch import cuda_graphs, lanes, memory, training
from collegium.learners.torch.classifier import TorchClassifier
from collegium.learners.torch.lanes import Lane
from collegium.learners.torch.training import MOST_KEPT, Update
from collegium.learners.torch.works import UpdateWork
from collegium.wire import tables

CLASSES = 4
DEVICES = [
    "cpu",
    pytest.param(
        "cuda", marks=pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no CUDA device here")
    ),
]
rng = np.random.default_rng(0)
U = tables.frozen(rng.normal(size=(60, 3, 8, 8)).astype(np.float32))
L = rng.integers(0, CLASSES, size=len(U))
SOFT = rng.dirichlet(np.ones(CLASSES), size=len(U)).astype(np.float32)


def convolutions(shape: tuple[int, ...], n_classes: int) -> nn.Module:
    return nn.Sequential(
        nn.Conv2d(shape[0], 6, 3, bias=False), nn.BatchNorm2d(6), nn.ReLU(), nn.Flatten(), nn.Linear(6 * 36, n_classes)
    )


def with_dropout(shape: tuple[int, ...], n_classes: int) -> nn.Module:
    return nn.Sequential(nn.Conv2d(shape[0], 6, 3), nn.Dropout(0.5), nn.Flatten(), nn.Linear(6 * 36, n_classes))


def rows(n: int) -> tuple[Any, Any]:
    own = np.random.default_rng(n)
    return tables.frozen(own.normal(size=(n, 3, 8, 8)).astype(np.float32)), own.integers(0, CLASSES, size=n)


class InOnePlace:
    """Trains every net in the same lane, in turn."""

    def __init__(self) -> None:
        self.lane: Lane | None = None

    def __call__(self, update: Update) -> UpdateReport:
        if self.lane is None:
            self.lane = Lane(update, None)
        self.lane.begin(update)
        while not self.lane.step():
            pass
        total = torch.zeros(())
        report = self.lane.end(total)
        assert np.isfinite(float(total))
        return report


TERMS = [
    None,
    LocalTerms([Proximal(0.1)]),
    LocalTerms([Proximal(0.1)], keep_optimizer=True),
    LocalTerms([SoftTargets(U, SOFT, temperature=2.0)], keep_optimizer=True),
    LocalTerms(train="head", keep_optimizer=True),
]


@pytest.mark.parametrize("terms", TERMS, ids=["plain", "proximal", "proximal kept", "soft", "head"])
@pytest.mark.parametrize("optimizer", ["adam", "adamw", "sgd", "momentum"])
@pytest.mark.parametrize("pseudo", [None, (U, L)], ids=["own rows", "with public rows"])
def test_nets_in_one_place_learn_what_they_learn_where_they_are(
    optimizer: str, terms: LocalTerms | None, pseudo: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    if pseudo is not None and terms is not None and terms.unlabeled is not None:
        pytest.skip("an update has one kind of public rows")
    settings = {"optimizer": optimizer, "lr": 0.01, "batch_size": 10, "weight_decay": 0.01}
    alone = [TorchClassifier(convolutions, random_state=seed, **settings) for seed in range(3)]
    placed = copy.deepcopy(alone)
    place = InOnePlace()
    for sweep in range(2):
        for at, size in enumerate((20, 31, 16)):
            X, y = rows(size)
            how: dict[str, Any] = {"classes": range(CLASSES), "epochs": 2, "pseudo": pseudo, "terms": terms}
            if sweep:
                for models in (alone, placed):
                    models[at].set_params(lr=0.02)
            alone[at].update(X, y, **how)
            with monkeypatch.context() as patched:
                patched.setattr(UpdateWork, "alone", lambda work: place(work.update))
                placed[at].update(X, y, **how)
            expected = alone[at].get_weights()
            for name, value in placed[at].get_weights().items():
                np.testing.assert_allclose(value, expected[name], atol=2e-5, err_msg=name)
            assert placed[at].last_update_.steps == alone[at].last_update_.steps


@pytest.mark.parametrize("kept", [True, False])
def test_nets_are_distilled_in_one_place_as_where_they_are(kept: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    alone = [TorchClassifier(convolutions, random_state=seed).initialize(U, range(CLASSES)) for seed in range(2)]
    placed = copy.deepcopy(alone)
    place = InOnePlace()
    for at in (0, 1, 0, 1):
        how: dict[str, Any] = {"epochs": 1, "lr": 0.01, "batch_size": 16, "keep_optimizer": kept}
        expected = alone[at].distill(U, SOFT, **how).get_weights()
        with monkeypatch.context() as patched:
            patched.setattr(UpdateWork, "alone", lambda work: place(work.update))
            placed[at].distill(U, SOFT, **how)
        for name, value in placed[at].get_weights().items():
            np.testing.assert_allclose(value, expected[name], atol=2e-5, err_msg=name)


class Played:
    """Stands for a recording: it computes what was recorded, when it is replayed."""

    def __init__(self, run: Any) -> None:
        self.replay = run


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("net", [convolutions, with_dropout])
def test_many_small_steps_are_replayed_as_one(net: Any, device: str, monkeypatch: pytest.MonkeyPatch) -> None:
    if device == "cpu" and net is with_dropout:
        pytest.skip("what stands for a recording here draws from any stream")

    def train(in_one: bool) -> tuple[list[dict[str, Any]], list[int]]:
        taken = []

        def take(lane: Lane, shape: Any, steps: int, usual: Any = Lane._take) -> None:
            taken.append(steps)
            usual(lane, shape, steps)

        models = [TorchClassifier(net, batch_size=5, random_state=seed, device=device) for seed in range(2)]
        place = InOnePlace()
        lanes._lanes.clear()  # what was recorded for others
        with monkeypatch.context() as patched:
            patched.setattr(lanes, "SMALL", 2**16 if in_one else 0)
            patched.setattr(Lane, "_take", take)
            if device == "cpu":
                patched.setattr(lanes, "can_record", lambda _device: True)
                patched.setattr(cuda_graphs, "record", lambda run, optimizer: (Played(run), None))
                patched.setattr(UpdateWork, "alone", lambda work: place(work.update))
            for model, size in zip(models, (43, 82), strict=True):  # 8 batches of 5 and one of 3, 16 of 5 and one of 2
                for _ in range(2):
                    model.update(*rows(size), classes=range(CLASSES), epochs=12)
                assert model.last_update_.steps == 12 * -(-size // 5)
        return [model.get_weights() for model in models], taken

    (some, taken), (singly, one_by_one) = train(in_one=True), train(in_one=False)
    assert set(one_by_one) == {1}
    assert {8, 16} < set(taken)
    if device == "cpu":  # a GPU computes what was recorded without a further call
        assert len(taken) < len(one_by_one) / 3
        assert sum(taken) == sum(one_by_one)
    for own, expected in zip(some, singly, strict=True):
        for name, value in own.items():
            np.testing.assert_array_equal(value, expected[name], err_msg=name)


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("net", [convolutions, with_dropout])
def test_an_update_that_fails_leaves_the_net_as_it_was(net: Any, device: str, monkeypatch: pytest.MonkeyPatch) -> None:
    model = TorchClassifier(net, batch_size=8, random_state=0, device=device)
    X, y = rows(40)
    model.update(X, y, classes=range(CLASSES), epochs=1)
    before = model.get_weights()
    if device == "cpu":
        place = InOnePlace()
        monkeypatch.setattr(UpdateWork, "alone", lambda work: place(work.update))
    taken = []

    def failing(lane: Lane, go: Any = Lane.step) -> bool:
        taken.append(1)
        if len(taken) == 3:
            raise ConfigError("no more")
        return bool(go(lane))

    monkeypatch.setattr(lanes.Lane, "step", failing)
    with pytest.raises(ConfigError, match="no more"):
        model.update(X, y, classes=range(CLASSES), epochs=1)
    for name, value in model.get_weights().items():
        np.testing.assert_array_equal(value, before[name])
    model.update(X, y, classes=range(CLASSES), epochs=1)
    assert not model.diverged_


def test_a_net_that_ends_without_memory_has_no_half_made_optimizer(monkeypatch: pytest.MonkeyPatch) -> None:
    X, y = rows(40)
    model = TorchClassifier(convolutions, random_state=0)
    expected = TorchClassifier(convolutions, random_state=0)
    for _ in range(2):
        expected.update(X, y, classes=range(CLASSES), steps=3, terms=LocalTerms(keep_optimizer=True))
    place, made = InOnePlace(), []

    def short(value: torch.Tensor, usual: Any = torch.empty_like) -> torch.Tensor:
        made.append(value)
        if len(made) == 4:
            raise torch.OutOfMemoryError("CUDA out of memory.")
        return torch.full_like(value, 777)

    def train(updates: Any, done: dict[int, Any]) -> None:
        with monkeypatch.context() as patched:
            patched.setattr(torch, "empty_like", short)
            done[0] = place(updates[0])

    monkeypatch.setattr(lanes, "can_record", lambda device: False)
    monkeypatch.setattr(lanes, "has_lane", lambda update: update.training.recordable)
    monkeypatch.setattr(lanes, "train_side_by_side", train)
    monkeypatch.setattr(memory, "_keepers", type(memory._keepers)())
    with pytest.warns(CollegiumWarning, match="OutOfMemoryError"):
        model.update(X, y, classes=range(CLASSES), steps=3, terms=LocalTerms(keep_optimizer=True))
    model.update(X, y, classes=range(CLASSES), steps=3, terms=LocalTerms(keep_optimizer=True))
    assert len(made) == 4
    for name, value in model.get_weights().items():
        np.testing.assert_allclose(value, expected.get_weights()[name], atol=2e-5, err_msg=name)


def test_what_a_place_held_goes_with_it() -> None:
    X, y = rows(20)
    place = InOnePlace()
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(UpdateWork, "alone", lambda work: place(work.update))
        TorchClassifier(convolutions, random_state=0).update(X, y, classes=range(CLASSES), steps=2)
    assert place.lane is not None
    held = [weakref.ref(each) for each in (place.lane._net, place.lane._optimizer, place.lane._descent)]
    gc.disable()  # a GPU's memory must not wait for it
    try:
        place.lane = None
        assert [each() for each in held] == [None] * 3
    finally:
        gc.enable()


def test_a_named_net_that_cannot_be_recorded_is_not_recorded_elsewhere(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = []
    model = TorchClassifier("mlp", random_state=0).initialize(U, range(CLASSES))
    usual = training.stepping
    monkeypatch.setattr(
        training, "stepping", lambda *given, recorded: asked.append(recorded) or usual(*given, recorded=False)
    )
    for recordable in (True, False):
        model._training.recordable = recordable
        model.update(U, L, classes=range(CLASSES), steps=1)
    assert asked == [True, False]


def test_what_is_shared_is_not_copied_onto_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    shared, place, value = torch.ones(2), torch.zeros(2), torch.ones(2)
    copied: list[Any] = []
    monkeypatch.setattr(torch, "_foreach_copy_", lambda places, values: copied.extend(zip(places, values, strict=True)))
    lanes._copy([shared, place], [shared, value])
    assert len(copied) == 1
    assert copied[0][0] is place


def test_rows_that_are_refused_are_not_tried_without_recording(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(updates: Any, done: Any) -> None:
        raise ConfigError("X contains NaN")

    monkeypatch.setattr(lanes, "can_record", lambda device: True)
    monkeypatch.setattr(lanes, "train_side_by_side", refuse)
    monkeypatch.setattr(Update, "carry_out", lambda update: pytest.fail("it was tried"))
    X, y = rows(20)
    model = TorchClassifier(convolutions, random_state=0).initialize(X, range(CLASSES))
    with pytest.raises(ConfigError, match="contains NaN"):
        model.update(X, y, classes=range(CLASSES), steps=1)
    assert model._training.recordable


def test_a_net_that_cannot_be_recorded_is_trained_without(monkeypatch: pytest.MonkeyPatch) -> None:
    tried = []

    def fail(updates: Any, done: Any) -> None:
        tried.append(updates)
        raise RuntimeError("an operation that a GPU cannot record")

    X, y = rows(40)
    expected = TorchClassifier(convolutions, random_state=0).update(X, y, classes=range(CLASSES), steps=4)
    monkeypatch.setattr(lanes, "can_record", lambda device: True)
    monkeypatch.setattr(lanes, "train_side_by_side", fail)
    model = TorchClassifier(convolutions, random_state=0)
    with pytest.warns(CollegiumWarning, match=r"cannot be recorded on this GPU \(RuntimeError\)"):
        model.update(X, y, classes=range(CLASSES), steps=2)
    model.update(X, y, classes=range(CLASSES), steps=2)
    assert len(tried) == 1, "it is not tried again"
    for name, value in model.get_weights().items():
        np.testing.assert_array_equal(value, expected.get_weights()[name])


@pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no CUDA device here")
@pytest.mark.parametrize("precision", ["float32", "tf32", "bfloat16"])
@pytest.mark.parametrize("net", [convolutions, with_dropout])
def test_places_on_a_gpu_serve_more_nets_than_there_are(net: Any, precision: str) -> None:
    def trained() -> list[dict[str, Any]]:
        models = [
            TorchClassifier(net, batch_size=8, random_state=seed, device="cuda", precision=precision, lr=0.01)
            for seed in range(len(data))
        ]
        updates: list[Update] = []
        for _ in range(3):
            updates.clear()
            for model, (X, y) in zip(models, data, strict=True):
                if not hasattr(model, "_training"):
                    model.initialize(X, range(CLASSES))
                with pytest.MonkeyPatch.context() as patched:
                    patched.setattr(TorchClassifier, "_carry_out", lambda _model, update: updates.append(update))
                    model.update(X, y, classes=range(CLASSES), epochs=2)
            if together:
                done: dict[int, Any] = {}
                lanes.train_side_by_side(updates, done)
                assert sorted(done) == list(range(len(models)))
            else:
                for update in updates:
                    update.carry_out()
        return [model.get_weights() for model in models]

    data = [rows(20 + at % 5) for at in range(2 * lanes.STREAMS + 3)]
    together = True
    first, again = trained(), trained()
    together = False
    alone = trained()
    for one, same, other in zip(first, again, alone, strict=True):
        for name, value in one.items():
            np.testing.assert_array_equal(value, same[name])
            np.testing.assert_allclose(value, other[name], atol=2e-2 if precision == "bfloat16" else 1e-3)


def test_nets_that_hold_numbers_of_their_own_are_like_no_other() -> None:
    class Scaled(nn.Module):
        def __init__(self, scale: float) -> None:
            super().__init__()
            self.layer = nn.Linear(3, 2)
            self.scale = scale

        def forward(self, X: torch.Tensor) -> torch.Tensor:
            return self.layer(X) * self.scale

    scales = iter((1.0, 1.0, 2.0))

    def make(shape: tuple[int, ...], n_classes: int) -> nn.Module:
        return Scaled(next(scales))

    X = np.zeros((4, 3), dtype=np.float32)
    first, same, other = (
        TorchClassifier(make, random_state=seed).initialize(X, range(2))._training.layers for seed in range(3)
    )
    assert first == same != other


def test_nets_whose_class_is_defined_anew_are_alike() -> None:
    def make(shape: tuple[int, ...], n_classes: int) -> nn.Module:
        class Own(nn.Module):
            def __init__(self) -> None:
                super().__init__()
                self.layers = nn.Sequential(nn.Linear(shape[0], 5), nn.ReLU(), nn.Linear(5, n_classes))

            def forward(self, X: torch.Tensor) -> torch.Tensor:
                return self.layers(X)

        return Own()

    X = np.zeros((4, 3), dtype=np.float32)
    one, other = (TorchClassifier(make, random_state=seed).initialize(X, range(2))._training for seed in range(2))
    assert one.layers == other.layers
    wider = TorchClassifier(make).initialize(np.zeros((4, 6), dtype=np.float32), range(2))._training
    assert wider.layers != one.layers


def test_a_net_keeps_the_few_places_where_it_is_trained_in_turns() -> None:
    training = TorchClassifier("linear").initialize(np.zeros((4, 3), dtype=np.float32), range(2))._training
    own, others = object(), object()
    for _ in range(MOST_KEPT):
        training.keep(own)
        training.keep(others)
    assert list(training._kept) == [own, others]
    training.forget()
    assert not training._kept


def test_a_place_is_made_on_the_stream_where_it_is_used(monkeypatch: pytest.MonkeyPatch) -> None:
    """A busy GPU may carry out what another stream was told first after what this one was told later."""
    current: list[Any] = ["main"]
    made_on = []
    monkeypatch.setattr(lanes, "_streams", lambda _device: ["one", "two"])
    monkeypatch.setattr(torch.cuda, "set_stream", current.append)
    monkeypatch.setattr(lanes, "Lane", lambda _update, stream: made_on.append((stream, current[-1])) or stream)
    model = TorchClassifier(convolutions, random_state=0)
    work: list[Update] = []
    monkeypatch.setattr(TorchClassifier, "_carry_out", lambda _model, update: work.append(update))
    model.update(*rows(20), classes=range(CLASSES), epochs=1)
    places = lanes.Lanes()
    assert [places.take(work[0]) for _ in range(3)] == ["one", "two", None]
    assert made_on == [("one", "one"), ("two", "two")]


@pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no CUDA device here")
def test_a_place_made_on_a_busy_gpu_trains_its_net(monkeypatch: pytest.MonkeyPatch) -> None:
    def slowly(lane: Lane, update: Update, stream: Any, make: Any = Lane.__init__) -> None:
        torch.cuda._sleep(10**9)
        make(lane, update, stream)

    def learned() -> dict[str, Any]:
        lanes._lanes.clear()
        model = TorchClassifier(convolutions, batch_size=8, random_state=0, device="cuda")
        model.update(X, y, classes=range(CLASSES), epochs=2)
        return model.get_weights()

    X, y = rows(40)
    quickly = learned()
    monkeypatch.setattr(Lane, "__init__", slowly)
    for name, value in learned().items():
        np.testing.assert_array_equal(value, quickly[name])
