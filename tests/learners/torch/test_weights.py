"""Weights as named arrays: round trips, parts, buffers, and what is said of weights of another net."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from sklearn.exceptions import NotFittedError
from torch import nn
from torch.nn import functional

from collegium.errors import ConfigError
from collegium.learners.torch import weights
from collegium.learners.torch.classifier import TorchClassifier

CLASSES = [0, 1, 2]
RNG = np.random.default_rng(0)
X, Y = RNG.normal(size=(20, 5)).astype(np.float32), np.arange(20) % 3
torch.set_num_threads(1)


class OwnNet(nn.Module):
    """A net of the user's own: its head is not its last attribute, and it has dropout and batch norm."""

    def __init__(self, outputs: int = 3) -> None:
        super().__init__()
        self.answer = nn.Linear(8, outputs)
        self.body = nn.Sequential(nn.Linear(5, 8), nn.BatchNorm1d(8))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        logits: torch.Tensor = self.answer(functional.dropout(self.body(x).relu(), 0.5, self.training))
        return logits


class NoHead(OwnNet):
    """Its last operation is no linear layer."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return super().forward(x) * 2


def own(seed: int = 0) -> TorchClassifier:
    return TorchClassifier(OwnNet(), random_state=seed, batch_size=8)


def averaged(models: list[TorchClassifier]) -> dict[str, NDArray[Any]]:
    each = [model.get_weights() for model in models]
    return {name: np.mean([weights[name] for weights in each], axis=0) for name in each[0]}


def test_weights_travel_bit_for_bit_with_batch_norms_buffers() -> None:
    model = own().update(X, Y, classes=CLASSES, steps=5)
    weights = model.get_weights()
    assert weights.keys() == {
        *("answer.weight", "answer.bias", "body.0.weight", "body.0.bias"),
        *("body.1.weight", "body.1.bias", "body.1.running_mean", "body.1.running_var"),
    }
    assert all(value.dtype == np.float32 for value in weights.values())
    assert weights["body.1.running_mean"].any()
    other = own(seed=1).initialize(X, CLASSES).set_weights(weights)
    np.testing.assert_equal(other.get_weights(), weights)
    np.testing.assert_array_equal(other.predict_logits(X), model.predict_logits(X))


def test_the_count_of_batches_stays_at_the_site() -> None:
    model = own().update(X, Y, classes=CLASSES, steps=5)
    model.set_weights(own().initialize(X, CLASSES).get_weights())
    assert model.to_module().body[1].num_batches_tracked == 5


def test_averages_can_be_set_in_double_precision() -> None:
    models = [own(seed).update(X, Y, classes=CLASSES, steps=5) for seed in range(3)]
    mean = averaged(models)
    model = own().initialize(X, CLASSES).set_weights({name: value.astype(float) for name, value in mean.items()})
    np.testing.assert_allclose(model.get_weights()["body.1.running_var"], mean["body.1.running_var"], rtol=1e-6)


def test_parts_are_taken_and_set_alone() -> None:
    model, other = (own(seed).update(X, Y, classes=CLASSES, steps=5) for seed in (0, 1))
    features, head = model.get_weights("features"), model.get_weights("head")
    assert head.keys() == {"answer.weight", "answer.bias"}
    assert features.keys() | head.keys() == model.get_weights().keys()
    kept = other.get_weights("head")
    other.set_weights(features, "features")
    np.testing.assert_equal(other.get_weights("head"), kept)
    np.testing.assert_array_equal(other.embed(X), model.embed(X))
    other.set_weights(head, "head")
    np.testing.assert_array_equal(other.predict_logits(X), model.predict_logits(X))


def test_every_fault_of_foreign_weights_is_named() -> None:
    model = own().initialize(X, CLASSES)
    weights = model.get_weights()
    with pytest.raises(
        ConfigError, match=r"another net: missing answer.bias; unknown z; body.0.weight .*\(5, 8\), not"
    ):
        model.set_weights(
            {name: value for name, value in weights.items() if name != "answer.bias"}
            | {"z": np.zeros(1), "body.0.weight": np.zeros((5, 8))}
        )
    with pytest.raises(ConfigError, match=r"weights of the features are of another net: .*unknown answer.bias"):
        model.set_weights(weights, "features")
    with pytest.raises(ConfigError, match="and 1 more"):
        model.set_weights({f"x{i}": np.zeros(1) for i in range(6)} | weights)
    with pytest.raises(ConfigError, match=r"body\.0\.bias are not numeric"):
        model.set_weights(weights | {"body.0.bias": np.array(list("abcdefgh"))})
    with pytest.raises(ConfigError, match="'all', 'features' or 'head', not 'tail'"):
        model.get_weights("tail")  # type: ignore[arg-type]
    np.testing.assert_equal(model.get_weights(), weights)


def test_embedding_is_what_the_head_gets_in_eval_mode() -> None:
    model = own().update(X, Y, classes=CLASSES, steps=5)
    before, features = model.get_weights(), model.embed(X)
    assert features.shape == (20, 8)
    np.testing.assert_allclose(
        features @ before["answer.weight"].T + before["answer.bias"], model.predict_logits(X), atol=1e-5
    )
    np.testing.assert_array_equal(model.embed(X), features)  # dropout is off
    np.testing.assert_allclose(model.embed(X[:1]), features[:1], atol=1e-6)  # batch norm looks at no other row
    model.embed(X + 100)
    np.testing.assert_equal(model.get_weights(), before)
    assert model.embed(X[:0]).shape == (0, 8)


@pytest.mark.parametrize("net", ["linear", "mlp"])
def test_named_nets_embed(net: str) -> None:
    model = TorchClassifier(net, random_state=0).initialize(X, CLASSES)
    assert model.embed(X).shape == (20, {"linear": 5, "mlp": 512}[net])


def test_a_net_that_is_one_layer_is_all_head() -> None:
    model = TorchClassifier(nn.Linear(5, 3)).initialize(X, CLASSES)
    assert model.get_weights("head").keys() == model.get_weights().keys()
    assert model.get_weights("features") == {}
    np.testing.assert_array_equal(model.embed(X), X)


def test_a_net_without_a_head_averages_but_does_not_embed() -> None:
    model = TorchClassifier(NoHead(), random_state=0).update(X, Y, classes=CLASSES, steps=1)
    model.set_weights(model.get_weights())
    for ask in (lambda: model.embed(X), lambda: model.get_weights("head")):
        with pytest.raises(ConfigError, match="no head"):
            ask()


def test_the_module_given_out_is_a_copy_in_eval_mode() -> None:
    model = own().update(X, Y, classes=CLASSES, steps=1)
    net = model.to_module()
    assert not net.training
    with torch.no_grad():
        np.testing.assert_array_equal(net(torch.from_numpy(X)).numpy(), model.predict_logits(X))
        net.answer.weight.zero_()
    assert model.get_weights()["answer.weight"].any()


@pytest.mark.parametrize(
    "ask",
    [
        lambda model: model.embed(X),
        lambda model: model.get_weights("head"),
        lambda model: model.to_module(),
        lambda model: model.diverged_,
    ],
)
def test_a_classifier_without_a_net(ask: Callable[[TorchClassifier], Any]) -> None:
    with pytest.raises(NotFittedError):
        ask(TorchClassifier())


@pytest.fixture
def there(monkeypatch: pytest.MonkeyPatch) -> Callable[[nn.Module, dict[str, Any]], None]:
    """Writes weights as on a GPU, where the last ones are kept."""
    monkeypatch.setattr(weights, "_locked", torch.empty)
    monkeypatch.setattr(weights, "_there", weights._There())
    return lambda net, given: weights._write_there(net.state_dict(), given)


def test_weights_that_many_nets_get_come_to_a_device_once(there: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    nets = [nn.Sequential(nn.Linear(3, 4), nn.Linear(4, 2)) for _ in range(3)]
    given = {name: value + 1 for name, value in weights.read(nets[0]).items()}
    for value in given.values():
        value.flags.writeable = False
    came = []
    monkeypatch.setattr(weights._There, "put", lambda *a, go=weights._There.put: came.append(1) or go(*a))
    for net in nets:
        there(net, given)
        for name, value in weights.read(net).items():
            np.testing.assert_array_equal(value, given[name])
    assert came == [1]
    there(nets[0], {name: value.copy() for name, value in given.items()})
    assert came == [1, 1]


def test_weights_that_were_changed_in_their_place_come_anew(there: Any) -> None:
    net = nn.Linear(3, 4)
    given = weights.read(net)
    there(net, given)
    given["weight"] += 1
    there(net, given)
    np.testing.assert_array_equal(weights.read(net)["weight"], given["weight"])


def test_other_arrays_in_the_place_of_those_that_have_gone_are_not_taken_for_them(there: Any) -> None:
    net = nn.Linear(3, 4)
    for number in range(50):  # a new array often has the address of the last one
        given = {name: np.full_like(value, number) for name, value in weights.read(net).items()}
        for value in given.values():
            value.flags.writeable = False
        there(net, given)
        assert (weights.read(net)["weight"] == number).all()


def test_weights_written_between_a_forward_pass_and_its_gradients_are_not_missed() -> None:
    net = nn.Sequential(nn.Linear(3, 3), nn.Linear(3, 2))
    answer = net(torch.ones(1, 3)).sum()
    weights.write(net, {name: value + 1 for name, value in weights.read(net).items()})
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        answer.backward()
