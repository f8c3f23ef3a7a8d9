"""Nets that are trained together learn what each would learn alone."""

from __future__ import annotations

import copy
import threading
import weakref
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from tests.learners.torch.test_adam import launch_here
from torch import nn

from collegium.algorithms.fedprox import Proximal
from collegium.algorithms.scaffold import Correction
from collegium.core.attendance import Attendance
from collegium.core.meeting import Meeting
from collegium.core.terms import LocalTerms, SoftTargets
from collegium.errors import ConfigError
from collegium.learners.torch import adam, lanes, memory, together, works
from collegium.learners.torch.classifier import TorchClassifier
from collegium.wire import tables

DEVICES = [
    "cpu",
    pytest.param(
        "cuda", marks=pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no CUDA device here")
    ),
]
EXACT = {"cpu": 2e-7, "cuda": 1e-4}
"""How close the weights must be: on a CPU, dense layers and their gradients are the same bits."""
rng = np.random.default_rng(0)
SHAPE = (20,)
U = tables.frozen(rng.normal(size=(120, *SHAPE)).astype(np.float32))
L = rng.integers(0, 4, size=len(U))
SOFT = rng.dirichlet(np.ones(4), size=len(U)).astype(np.float32)


def small(shape: tuple[int, ...], n_classes: int) -> nn.Module:
    return nn.Sequential(nn.Linear(shape[0], 32), nn.ReLU(), nn.Linear(32, 16), nn.Tanh(), nn.Linear(16, n_classes))


def with_batch_norm(shape: tuple[int, ...], n_classes: int) -> nn.Module:
    return nn.Sequential(nn.Linear(shape[0], 32), nn.BatchNorm1d(32), nn.ReLU(), nn.Linear(32, n_classes))


def with_dropout(shape: tuple[int, ...], n_classes: int) -> nn.Module:
    return nn.Sequential(nn.Linear(shape[0], 32), nn.Dropout(0.5), nn.ReLU(), nn.Linear(32, n_classes))


def rows(n: int, seed: int, shape: tuple[int, ...] = SHAPE) -> tuple[Any, Any]:
    own = np.random.default_rng([n, seed])
    return tables.frozen(own.normal(size=(n, *shape)).astype(np.float32)), own.integers(0, 4, size=n)


class Sites:
    """Models of several sites, each with its rows."""

    def __init__(self, sizes: list[int], device: str = "cpu", net: Any = small, **settings: Any) -> None:
        shape = settings.pop("shape", SHAPE)
        self.data = [rows(n, at, shape) for at, n in enumerate(sizes)]
        settings = {"batch_size": 16} | settings
        self.models = [TorchClassifier(net, random_state=at, device=device, **settings) for at in range(len(sizes))]
        self.attendance = Attendance()

    def both(self, ask: Callable[[TorchClassifier, Any, Any], Any]) -> tuple[list[Any], list[Any]]:
        """What comes of asking each alone, and all of them in a meeting.

        On a CPU those that are alone stay so from then on; on a GPU, where rounding differs, they begin anew.
        """
        if not hasattr(self, "alone") or self.models[0].device != "cpu":
            self.alone = copy.deepcopy(self.models)
        alone = [ask(model, *data) for model, data in zip(self.alone, self.data, strict=True)]
        return alone, self.meet(ask)

    def meet(self, ask: Callable[[TorchClassifier, Any, Any], Any]) -> list[Any]:
        meeting = Meeting(len(self.models), self.attendance)
        outcomes: dict[int, Any] = {}

        def go(at: int) -> None:
            with meeting.attended(f"s{at:02}"):
                try:
                    outcomes[at] = ask(self.models[at], *self.data[at])
                except Exception as error:
                    outcomes[at] = error

        threads = [threading.Thread(target=go, args=(at,)) for at in range(len(self.models))]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        return [outcomes[at] for at in range(len(self.models))]

    def apart(self) -> float:
        """The largest difference of any weight between those trained alone and those trained together."""
        pairs = zip(self.alone, self.models, strict=True)
        return max(difference(one.get_weights(), other.get_weights()) for one, other in pairs)


def difference(one: Any, other: Any) -> float:
    return max(float(np.abs(one[name] - other[name]).max()) for name in one)


def updating(**how: Any) -> Callable[[TorchClassifier, Any, Any], Any]:
    return lambda model, X, y: model.update(X, y, classes=range(4), **how).last_update_


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize(
    ("optimizer", "pseudo"),
    [
        ("adam", None),
        ("adamw", (U, L)),
        ("sgd", None),
        ("momentum", (U, L)),
        pytest.param("adam", (U, L), marks=pytest.mark.slow),
        pytest.param("adamw", None, marks=pytest.mark.slow),
        pytest.param("sgd", (U, L), marks=pytest.mark.slow),
        pytest.param("momentum", None, marks=pytest.mark.slow),
    ],
)
def test_fifty_steps_round_after_round(optimizer: str, pseudo: Any, device: str) -> None:
    sites = Sites([40, 50, 60, 33], device, optimizer=optimizer, lr=0.01)
    for _ in range(3):
        alone, reports = sites.both(updating(steps=50, pseudo=pseudo))
        assert sites.apart() <= EXACT[device]
        assert [each.steps for each in reports] == [50] * 4
        assert [each.loss for each in reports] == pytest.approx([each.loss for each in alone], abs=1e-4)
    assert len(sites.attendance.together) == 4
    assert not sites.attendance.alone


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("sizes", [[40, 40, 40], [16, 48, 100, 101, 7, 300], [1, 1, 2, 3, 50]])
def test_sites_with_more_rows_go_on_when_others_are_done(sizes: list[int], device: str) -> None:
    sites = Sites(sizes, device)
    for _ in range(2):
        _, reports = sites.both(updating(epochs=2))
        assert sites.apart() <= EXACT[device]
    assert len({each.steps for each in reports}) == len(
        {2 * len(range(0, n, 16)) - (2 if n > 16 and n % 16 == 1 else 0) for n in sizes}
    )


def test_adams_kernel_counts_the_steps_of_each_site(monkeypatch: pytest.MonkeyPatch) -> None:
    """On any device: what launches it is tested, and computes as it does."""
    monkeypatch.setattr(adam, "_can_launch", lambda optimizer: True)
    monkeypatch.setattr(adam, "_kernel", lambda: SimpleNamespace(launch=launch_here))
    sites = Sites([16, 48, 100, 101, 7, 300])
    for _ in range(3):
        sites.both(updating(epochs=2))
        assert sites.apart() <= 1e-5


def test_most_of_what_is_computed_is_useful() -> None:
    own = np.random.default_rng(0)
    sizes = np.exp(own.uniform(0, np.log(5000), size=100)).astype(int).tolist()
    sites = Sites(sizes, batch_size=64)
    updates: list[Any] = []
    for model, (X, y) in zip(sites.models, sites.data, strict=True):
        model.initialize(X, range(4))
        model._carry_out = updates.append  # type: ignore[method-assign, assignment]
        model.update(X, y, classes=range(4), epochs=1)
    groups = [[updates[at] for at in group] for group in together.cohorts(updates)]
    together_with_others = [group for group in groups if len(group) > 1]
    slots = sum(shape.nets * shape.rows for group in together_with_others for shape in together.shapes_of(group))
    useful = sum(int(each.hands.sizes.sum()) for group in together_with_others for each in group)
    assert useful >= 0.8 * slots
    assert sum(map(len, together_with_others)) >= 60


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize(
    "terms",
    [
        lambda model: LocalTerms([Proximal(0.1, None)]),
        lambda model: LocalTerms([Proximal(0.5, {k: v + 0.1 for k, v in model.get_weights().items()})]),
        lambda model: LocalTerms([Correction({k: np.full_like(v, 0.01) for k, v in model.get_weights().items()})]),
        lambda model: LocalTerms([SoftTargets(U, SOFT, weight=0.5, temperature=2.0)]),
        lambda model: LocalTerms([], train="head"),
        lambda model: LocalTerms([], keep_optimizer=True),
    ],
    ids=["anchor of its own", "given anchor", "correction", "soft targets", "head only", "momentum kept"],
)
def test_local_terms_work_in_a_cohort(terms: Any, device: str) -> None:
    sites = Sites([40, 50, 48], device, optimizer="momentum", lr=0.05)
    for model, (X, _) in zip(sites.models, sites.data, strict=True):
        model.initialize(X, range(4))
    for _ in range(2):
        sites.both(lambda model, X, y: model.update(X, y, classes=range(4), steps=10, terms=terms(model)))
        assert sites.apart() <= EXACT[device]
    assert not sites.attendance.alone


@pytest.mark.parametrize("device", DEVICES)
def test_distilling_works_in_a_cohort(device: str) -> None:
    sites = Sites([40, 50, 48], device)
    sites.both(updating(steps=1))
    for _ in range(2):
        sites.both(lambda model, X, y: model.distill(U, SOFT, epochs=2, lr=1e-3, batch_size=32))
        assert sites.apart() <= EXACT[device]
    assert not sites.attendance.alone


def test_confidences_and_sample_weights_work_in_a_cohort() -> None:
    sites = Sites([40, 50, 48])
    sure = rng.uniform(size=len(U))
    sites.both(
        lambda model, X, y: model.update(
            X,
            y,
            classes=range(4),
            pseudo=(U, L),
            steps=10,
            sample_weight=1 + np.arange(len(y)) % 3,
            terms=LocalTerms(confidences=sure),
        )
    )
    assert sites.apart() <= 1e-6
    assert not sites.attendance.alone


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("ask", ["predict", "predict_logits", "predict_proba", "embed"])
def test_nets_are_asked_together_a_few_at_a_time(ask: str, device: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("collegium.learners.torch.answers.NETS_AT_ONCE", 2)
    sites = Sites([40, 50, 48, 44, 46], device)
    sites.both(updating(steps=5))
    alone, asked = sites.both(lambda model, X, y: getattr(model, ask)(U))
    for one, other in zip(alone, asked, strict=True):
        assert one.dtype == other.dtype
        if device == "cpu":
            assert np.array_equal(one, other)
        else:
            assert np.allclose(one, other, atol=1e-5)


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize(
    ("net", "shape", "settings"),
    [
        (with_batch_norm, SHAPE, {}),
        (with_dropout, SHAPE, {}),
        (small, SHAPE, {"augment": True}),
        ("lenet", (1, 20, 20), {}),
        pytest.param("resnet8", (3, 8, 8), {"lr": 1e-4}, marks=pytest.mark.slow),  # the last one does more
        ("cnn_cifar10", (3, 8, 8), {"lr": 1e-4}),
        ("resnet8", (3, 8, 8), {"augment": True, "lr": 1e-4}),
    ],
)
def test_any_net_can_be_in_a_meeting(net: Any, shape: tuple[int, ...], settings: Any, device: str) -> None:
    """Together, side by side or alone: nobody is hurt, and who draws random numbers draws its own."""
    sites = Sites([40, 50, 40], device, net=net, shape=shape, **settings)
    for _ in range(2):
        _, reports = sites.both(updating(epochs=1))
        assert [each.steps for each in reports] == [3, 4, 3]
        assert all(np.isfinite(each.loss) for each in reports)
        assert sites.apart() <= 2e-3


class AsksForGradients(nn.Module):
    """A net that does something else while it learns."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(SHAPE[0], 8), nn.Linear(8, 4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        inner = self.first(x)
        if inner.requires_grad:
            inner.register_hook(lambda gradient: gradient.clamp(-1e-3, 1e-3))
        answer: torch.Tensor = self.second(inner)
        return answer


class _Reversed(torch.autograd.Function):
    """The same numbers, with gradients that point the other way."""

    @staticmethod
    def forward(x: torch.Tensor) -> torch.Tensor:
        return x.clone()

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
        pass

    @staticmethod
    def backward(ctx: Any, *gradients: Any) -> Any:
        return -gradients[0]

    @staticmethod
    def vmap(_info: Any, in_dims: Any, x: torch.Tensor) -> tuple[torch.Tensor, Any]:
        return x.clone(), in_dims[0]


class Reverses(AsksForGradients):
    """A net with gradients of its own."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        answer: torch.Tensor = self.second(_Reversed.apply(self.first(x)))  # type: ignore[no-untyped-call]
        return answer


@pytest.mark.parametrize("net", [AsksForGradients(), Reverses()])
def test_a_net_that_sees_gradients_sees_them_in_a_cohort(net: Any) -> None:
    sites = Sites([30, 40], net=net, lr=0.1, optimizer="sgd")
    sites.both(updating(steps=5))
    assert len(sites.attendance.together) == 2
    assert sites.apart() <= 1e-6


def drawing_unseen(shape: tuple[int, ...], n_classes: int) -> nn.Module:
    class Drawing(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.last = nn.Linear(shape[0], n_classes)

        def forward(self, X: torch.Tensor) -> torch.Tensor:
            return self.last(nn.functional.dropout(X, 0.5, self.training))  # type: ignore[no-any-return]

    return Drawing()


@pytest.mark.parametrize(("net", "why"), [(with_dropout, "random numbers"), (drawing_unseen, "cannot be computed")])
def test_a_net_that_draws_has_the_weights_that_it_has_alone(net: Any, why: str) -> None:
    sites = Sites([40, 50, 48], net=net)
    for _ in range(2):
        sites.both(updating(steps=10))
    assert sites.apart() == 0
    assert len(sites.attendance.alone) == 3
    assert all(why in reason for reason in sites.attendance.alone.values())


def test_a_site_that_fails_or_diverges_hurts_nobody() -> None:
    sites = Sites([40, 50, 48, 44], net="linear")
    broken = sites.data[1][0].copy()
    broken[:] = np.nan
    sites.data[1] = tables.frozen(broken), sites.data[1][1]
    huge = 3e38 * np.sign(sites.data[2][0])
    sites.data[2] = tables.frozen(huge), sites.data[2][1]
    expected = copy.deepcopy(sites.models)
    outcomes = sites.meet(updating(steps=10))
    assert isinstance(outcomes[1], ConfigError)
    assert sites.models[2].diverged_
    assert sites.attendance.together == {"s00", "s02", "s03"}
    for at in (0, 3):
        alone = expected[at].update(*sites.data[at], classes=range(4), steps=10)
        assert difference(alone.get_weights(), sites.models[at].get_weights()) <= 2e-7


def test_nets_that_differ_are_not_one_computation() -> None:
    sites = Sites([40, 50, 48])
    sites.models[1].set_params(lr=0.5)
    sites.models[2].set_params(net=with_batch_norm)
    sites.both(updating(steps=5))
    assert sites.apart() == 0
    assert set(sites.attendance.alone) == {"s00", "s01", "s02"}


def test_nets_with_other_layers_of_the_same_shape_are_not_one_computation() -> None:
    def flat(shape: tuple[int, ...], n_classes: int) -> nn.Module:
        return nn.Sequential(nn.Linear(shape[0], 32), nn.Tanh(), nn.Linear(32, 16), nn.ReLU(), nn.Linear(16, n_classes))

    sites = Sites([40, 50])
    sites.models[1].set_params(net=flat)
    sites.both(updating(steps=5))
    assert sites.apart() == 0
    alone, asked = sites.both(lambda model, X, y: model.predict_logits(U))
    for one, other in zip(alone, asked, strict=True):
        assert np.array_equal(one, other)
    assert set(sites.attendance.alone) == {"s00", "s01"}


def test_optimizers_that_have_taken_different_numbers_of_steps() -> None:
    """Adam corrects for how many steps it has taken."""
    sites = Sites([40, 100, 300])
    sites.both(updating(epochs=1))
    sites.both(updating(steps=20))
    assert sites.apart() <= 2e-7
    assert not sites.attendance.alone


def test_on_a_cpu_nets_are_shared_out_among_cores_where_that_is_worth_it(monkeypatch: pytest.MonkeyPatch) -> None:
    sizes, asked = [], []
    train, ask = together.Cohort.train, works.answers_of_several
    monkeypatch.setattr(
        together.Cohort, "train", lambda own, updates, done: sizes.append(len(updates)) or train(own, updates, done)
    )
    monkeypatch.setattr(works, "answers_of_several", lambda nets, *how: asked.append(len(nets)) or ask(nets, *how))
    sites = Sites([40, 50, 48, 44, 46], batch_size=16)
    for worth, parts in ((2**26, [5]), (2**10, [2, 3])):
        monkeypatch.setattr(together, "WORTH_A_CORE", worth)
        for _ in range(2):
            sizes.clear()
            sites.both(updating(steps=5))
            assert sorted(sizes) == parts
            assert sites.apart() == 0
        asked.clear()
        alone, answers = sites.both(lambda model, X, y: model.predict_logits(U))
        assert sorted(asked) == parts
        assert all(np.array_equal(one, other) for one, other in zip(alone, answers, strict=True))
    assert not sites.attendance.alone
    assert sites.attendance.largest == 5


def test_memory_that_is_short_makes_smaller_cohorts(monkeypatch: pytest.MonkeyPatch) -> None:
    train = together.Cohort.train
    monkeypatch.setattr(memory, "_keepers", weakref.WeakSet())  # other tests' nets have nothing to give back

    def short(self: Any, updates: Any, reports: Any) -> None:
        if len(updates) > 2:
            raise torch.cuda.OutOfMemoryError("CUDA out of memory.")
        train(self, updates, reports)

    monkeypatch.setattr(together.Cohort, "train", short)
    sites = Sites([40, 50, 48, 44])
    with pytest.warns(match="4 nets do not fit into the memory of the GPU: 2 are trained at a time"):
        sites.both(updating(steps=5))
    assert sites.apart() <= 2e-7
    assert sites.attendance.together


def test_rows_that_are_bad_late_do_not_train_those_twice_who_are_done() -> None:
    sites = Sites([300, 50, 50], net="linear")
    late = sites.data[0][0].copy()
    late[7] = np.inf
    sites.data[0] = tables.frozen(late), sites.data[0][1]
    expected = copy.deepcopy(sites.models)
    steps = {len(sites.data[0][1]): 60, 50: 1}

    def update(model: TorchClassifier, X: Any, y: Any) -> TorchClassifier:
        return model.update(X, y, classes=range(4), steps=steps[len(y)])

    outcomes = sites.meet(update)
    assert isinstance(outcomes[0], ConfigError)
    for at in (1, 2):
        alone = update(expected[at], *sites.data[at])
        assert difference(alone.get_weights(), sites.models[at].get_weights()) == 0


@pytest.fixture
def beside(monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """Nets are trained side by side without a GPU: one after the other, with what happens there."""
    told: dict[str, Any] = {"most": 99, "groups": []}
    monkeypatch.setattr(memory, "_keepers", weakref.WeakSet())  # other tests' nets have nothing to give back

    def train(updates: Any, done: dict[int, Any]) -> None:
        told["groups"].append(len(updates))
        for at, update in enumerate(updates):
            if len(updates) > told["most"] and at > 0:
                raise torch.cuda.OutOfMemoryError("CUDA out of memory.")
            done[at] = update.carry_out()

    monkeypatch.setattr(lanes, "has_lane", lambda update: True)
    monkeypatch.setattr(lanes, "train_side_by_side", train)
    return told


def test_nets_side_by_side_that_take_too_much_memory_are_fewer_at_a_time(
    beside: dict[str, Any],
) -> None:
    sites = Sites([40, 50, 48, 44], net=with_batch_norm, optimizer="momentum", lr=0.1)
    for model, (X, _) in zip(sites.models, sites.data, strict=True):
        model.initialize(X, range(4))
    expected = copy.deepcopy(sites.models)
    beside["most"] = 2
    with pytest.warns(match="3 nets do not fit into the memory of the GPU: 2 are trained at a time"):
        sites.meet(updating(steps=5))
    assert sorted(beside["groups"]) == [1, 2, 4]
    for at, model in enumerate(expected):
        alone = model.update(*sites.data[at], classes=range(4), steps=5)
        assert difference(alone.get_weights(), sites.models[at].get_weights()) < 1e-6


def test_a_net_side_by_side_that_fails_hurts_nobody(beside: dict[str, Any]) -> None:
    sites = Sites([40, 50, 48], net=with_batch_norm)
    broken = sites.data[1][0].copy()
    broken[:] = np.nan
    sites.data[1] = tables.frozen(broken), sites.data[1][1]
    expected = copy.deepcopy(sites.models)
    outcomes = sites.meet(updating(steps=5))
    assert isinstance(outcomes[1], ConfigError)
    assert beside["groups"] == [3, 1, 1]
    for at in (0, 2):
        alone = expected[at].update(*sites.data[at], classes=range(4), steps=5)
        assert difference(alone.get_weights(), sites.models[at].get_weights()) < 1e-6
    assert "cannot be trained" in sites.attendance.alone["s02"]


def test_a_model_gives_back_what_others_rows_it_kept() -> None:
    sites = Sites([40, 50])
    sites.meet(updating(steps=5))
    kept = weakref.ref(sites.models[0]._training._kept[-1])
    assert kept() is not None
    for model in sites.models:
        model.release()
    assert kept() is None


def test_a_net_that_cannot_be_computed_with_others_is_trained_alone() -> None:
    def reads_values(shape: tuple[int, ...], n_classes: int) -> nn.Module:
        class Odd(nn.Module):
            def __init__(self) -> None:
                super().__init__()
                self.last = nn.Linear(shape[0], n_classes)

            def forward(self, X: torch.Tensor) -> torch.Tensor:
                return self.last(X) if float(X.sum()) > -1e9 else self.last(-X)  # type: ignore[no-any-return]

        return Odd()

    sites = Sites([40, 50], net=reads_values)
    sites.both(updating(steps=5))
    assert sites.apart() == 0
    assert all("cannot be computed with others" in why for why in sites.attendance.alone.values())
