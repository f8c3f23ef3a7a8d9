"""A local loss of one's own: where it takes part in a step, what it draws, and when a step may be recorded."""

from __future__ import annotations

import copy
import subprocess
import sys
from dataclasses import dataclass
from importlib.metadata import EntryPoint
from typing import Any, ClassVar

import numpy as np
import pytest
import torch
from scipy.special import softmax
from torch import nn
from torch.nn import functional

from collegium import registry
from collegium.algorithms.fedmatch import Disjoint
from collegium.algorithms.fedprox import Proximal
from collegium.algorithms.fedsiam import Siamese
from collegium.algorithms.scaffold import Correction
from collegium.core.terms import LocalTerm, LocalTerms, SoftTargets, Unlabeled
from collegium.errors import ConfigError
from collegium.learners.torch import Batch, LocalLoss, TorchClassifier
from collegium.learners.torch.descent import Descent
from collegium.learners.torch.losses import SoftTargetsLoss, cross_entropies

torch.set_num_threads(1)
rng = np.random.default_rng(0)
CLASSES, LR = [0, 1, 2], 0.5
X, Y = rng.normal(size=(12, 5)).astype(np.float32), np.arange(12) % 3


@dataclass(frozen=True, eq=False)
class Smoothing(LocalTerm):
    """Labels that are right with probability 1 - share, and any class otherwise."""

    loss: ClassVar[str] = "smoothing"
    share: float


class SmoothingLoss(LocalLoss):
    """share x (the cross-entropy of all classes alike - that of the labels) is added."""

    term: Smoothing
    recordable = True

    def loss(self, batch: Batch, logits: torch.Tensor) -> torch.Tensor:
        said = logits.log_softmax(dim=1)
        right = said.gather(1, batch.codes[:, None])[:, 0]
        return self.term.share * (right - said.mean(dim=1)).mean()


@dataclass(frozen=True, eq=False)
class Restless(LocalTerm):
    """Noise on the weights after each step, from rows without labels whose number the report tells."""

    loss: ClassVar[str] = "restless"
    X: Any

    @property
    def unlabeled(self) -> Unlabeled:
        return Unlabeled(self.X)


class RestlessLoss(LocalLoss):
    """It draws at the start and in every step, and counts the rows it is given."""

    term: Restless

    def begin(self) -> None:
        self._scale, self._seen = torch.rand(()), 0

    def step(self, batch: Batch, take: Any) -> torch.Tensor:
        loss: torch.Tensor = take(batch)
        self._seen += len(batch.X) - len(batch.codes)
        with torch.no_grad():
            for each in self.net.parameters():
                each.add_(torch.randn_like(each), alpha=float(self._scale))
        return loss

    def parts(self) -> Any:
        return {"seen": {"rows": np.array(self._seen)}}


@pytest.fixture(autouse=True)
def plugged(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Both losses, found as those of an installed package are."""
    losses = {"smoothing": SmoothingLoss, "restless": RestlessLoss}
    group = "collegium.local_loss"
    points = [EntryPoint(name, f"{__name__}:{each.__name__}", group) for name, each in losses.items()]
    monkeypatch.setattr(registry, "entry_points", lambda *, group: [each for each in points if each.group == group])
    registry._table.cache_clear()
    yield
    registry._table.cache_clear()


def linear(**settings: Any) -> TorchClassifier:
    settings = {"optimizer": "sgd", "lr": LR, "batch_size": 12, "random_state": 0} | settings
    return TorchClassifier("linear", **settings).initialize(X, CLASSES)


def update(model: TorchClassifier, *added: LocalTerm, rows: int = 12, steps: int = 1) -> Any:
    terms = LocalTerms(added)
    return model.update(X[:rows], Y[:rows], classes=CLASSES, steps=steps, terms=terms).get_weights()


def test_a_new_loss_is_added_to_that_of_the_labels() -> None:
    w = linear().get_weights()
    smooth = 0.7 * np.eye(3)[Y] + 0.3 / 3
    errors = softmax(X @ w["1.weight"].T + w["1.bias"], axis=1) - smooth
    found = update(linear(), Smoothing(0.3))
    np.testing.assert_allclose(found["1.weight"], w["1.weight"] - LR * errors.T @ X / 12, atol=1e-6)
    np.testing.assert_allclose(found["1.bias"], w["1.bias"] - LR * errors.mean(axis=0), atol=1e-6)


def test_it_goes_together_with_those_that_are_there() -> None:
    model = linear()
    w, ones = model.get_weights(), {"1.weight": np.ones((3, 5)), "1.bias": np.ones(3)}
    alone = update(linear(), Smoothing(0.3))
    both = update(model, Smoothing(0.3), Correction(ones))
    for name in w:
        np.testing.assert_allclose(both[name], alone[name] - LR, atol=1e-6)


def test_what_it_draws_is_the_learners_own_and_what_it_counts_is_reported() -> None:
    torch.manual_seed(1)
    before = torch.get_rng_state()
    model = linear()
    found = [update(each, Restless(X), rows=6, steps=4) for each in (model, linear())]
    assert torch.equal(torch.get_rng_state(), before)
    np.testing.assert_equal(*found)
    assert model.last_update_.parts["seen"]["rows"] == 4 * 12
    other_seed = linear(random_state=1).set_weights(linear().get_weights())
    assert not np.allclose(found[0]["1.weight"], update(other_seed, Restless(X), rows=6, steps=4)["1.weight"])


def test_a_loss_that_nobody_registered_is_named_with_the_nearest() -> None:
    class Smoother(Smoothing):
        loss = "smoothin"

    model = linear()
    before = model.get_weights()
    with pytest.raises(ConfigError, match=r"no local_loss 'smoothin'\. Did you mean 'smoothing'"):
        update(model, Smoother(0.3))
    np.testing.assert_equal(model.get_weights(), before)


W = linear().get_weights()


@pytest.mark.parametrize(
    ("terms", "recordable"),
    [
        ([], True),
        ([Proximal(0.1), Correction(W)], True),
        ([SoftTargets(X, np.full((12, 3), 1 / 3))], True),
        ([Smoothing(0.3), Proximal(0.1)], True),
        ([Siamese(X, W)], False),
        ([Disjoint(X, W)], False),
        ([Smoothing(0.3), Restless(X)], False),
    ],
)
def test_only_steps_that_draw_nothing_may_be_recorded(terms: list[LocalTerm], recordable: bool) -> None:
    net = linear().to_module()
    losses = [registry.lookup("local_loss", each.loss)(each, net, torch.optim.SGD) for each in terms]
    optimizer = torch.optim.SGD(net.parameters())
    assert Descent(net, optimizer, losses, augment=False).draws != recordable
    assert Descent(net, optimizer, losses, augment=True).draws


def test_losses_wrap_each_others_steps_and_gradients_come_in_between() -> None:
    calls: list[str] = []

    class Noted(LocalLoss):
        def loss(self, batch: Batch, logits: torch.Tensor) -> torch.Tensor:
            calls.append(f"{self.term} loss")
            return logits.sum() * 0

        def add_to_gradients(self) -> None:
            calls.append(f"{self.term} gradients")

        def step(self, batch: Batch, take: Any) -> torch.Tensor:
            calls.append(f"{self.term} before")
            loss: torch.Tensor = take(batch)
            calls.append(f"{self.term} after")
            return loss

    net = nn.Linear(5, 3)
    start = copy.deepcopy(net.state_dict())
    optimizer = torch.optim.SGD(net.parameters(), lr=LR)
    descent = Descent(net, optimizer, [Noted(name, net, torch.optim.SGD) for name in "ab"], augment=False)
    loss = descent.step(Batch(torch.from_numpy(X), torch.from_numpy(Y), None, None))
    assert calls == [
        "b before", "a before", "a loss", "b loss", "a gradients", "b gradients", "a after", "b after",
    ]  # fmt: skip
    net.load_state_dict(start)
    assert loss == nn.functional.cross_entropy(net(torch.from_numpy(X)), torch.from_numpy(Y))


def test_the_package_offers_its_names_without_importing_torch() -> None:
    program = "import sys, collegium.learners.torch as t; print('torch' in sys.modules, t.TorchClassifier.__name__)"
    said = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True).stdout
    assert said.split() == ["False", "TorchClassifier"]


@pytest.mark.parametrize("temperature", [1.0, 2.0])
def test_soft_targets_are_the_divergence_of_pytorch(temperature: float) -> None:
    logits = torch.from_numpy(rng.normal(size=(5, 3))).requires_grad_()
    targets = torch.tensor([[0.0, 1.0, 0.0], [0.2, 0.3, 0.5], [1.0, 0.0, 0.0], [0.5, 0.5, 0.0]], dtype=torch.float64)
    term = SoftTargets(X[:4], targets.numpy().astype(np.float32), weight=2.0, temperature=temperature)
    batch = Batch(torch.zeros(5, 5), torch.zeros(1, dtype=torch.long), None, targets, torch.arange(4))
    found = SoftTargetsLoss(term, nn.Linear(5, 3), torch.optim.SGD).loss(batch, logits)  # type: ignore[arg-type]
    softened = targets ** (1 / temperature) / (targets ** (1 / temperature)).sum(dim=1, keepdim=True)
    expected = (
        2.0
        * temperature**2
        * functional.kl_div(functional.log_softmax(logits[1:] / temperature, dim=1), softened, reduction="batchmean")
    )
    assert found is not None
    torch.testing.assert_close(found, expected)
    slopes = [torch.autograd.grad(each, logits, retain_graph=True)[0] for each in (found, expected)]
    assert bool(slopes[0].isfinite().all())
    torch.testing.assert_close(*slopes)


def test_cross_entropies_are_those_of_pytorch() -> None:
    logits, codes = torch.from_numpy(rng.normal(size=(2, 7, 3))), torch.arange(14).reshape(2, 7) % 3
    found = torch.func.vmap(cross_entropies)(logits, codes)
    for own, its, expected in zip(found, logits, codes, strict=True):
        torch.testing.assert_close(own, functional.cross_entropy(its, expected, reduction="none"))
