"""Where the coordinator finds out which sites have the same net."""

from __future__ import annotations

import dataclasses

import numpy as np
import pandas as pd
import pytest
from torch import nn

import collegium as cg
from collegium.core.workbench import Workbench
from collegium.errors import SiteError

ROWS, LABELS = np.random.default_rng(0).normal(size=(6, 4)).astype(np.float32), np.arange(6) % 2


def first_nets(learners, X=ROWS):
    sites = [cg.Site(name, X, LABELS, learner=learner) for name, learner in zip("abcd", learners, strict=False)]
    return Workbench(sites, np.arange(2), None, None, 0).first_nets()


def with_layer(layer: nn.Module) -> cg.TorchClassifier:
    return cg.TorchClassifier(nn.Sequential(nn.Linear(4, 5), layer, nn.Linear(5, 2)))


class Words(nn.Module):
    """Takes the numbers of words only."""

    def __init__(self) -> None:
        super().__init__()
        self.meaning, self.head = nn.Embedding(8, 3), nn.Linear(3, 2)

    def forward(self, x):
        return self.head(self.meaning(x.long()).mean(dim=1))


def test_nets_are_the_same_that_say_the_same_with_the_same_weights():
    layers = (nn.ReLU(), nn.Tanh(), nn.ReLU(), nn.LeakyReLU(0.1))
    like, first = first_nets([with_layer(layer) for layer in layers])
    assert like == {"a": "a", "b": "b", "c": "a", "d": "d"}
    assert list(first) == ["a", "b", "d"]


def test_dropout_and_seeds_make_no_other_net():
    layers = [nn.Sequential(nn.Dropout(share), nn.ReLU()) for share in (0.1, 0.9)]
    like, first = first_nets([with_layer(layer).set_params(random_state=i) for i, layer in enumerate(layers)])
    assert like == {"a": "a", "b": "a"}
    assert first["a"]["0.weight"].std() > 0


def test_nets_that_take_no_noise_are_told_apart_by_their_weights():
    words = np.random.default_rng(0).integers(8, size=(6, 4))
    like, _ = first_nets([cg.TorchClassifier(Words()), cg.TorchClassifier(Words())], words)
    assert like == {"a": "a", "b": "a"}


@pytest.mark.parametrize(("width", "shape"), [(4, None), (64, (1, 8, 8))])
def test_nets_for_data_frames_are_compared_too(width, shape):
    frame = pd.DataFrame(np.zeros((6, width)), columns=[f"x{i}" for i in range(width)])
    nets = [
        cg.TorchClassifier(nn.Sequential(nn.Flatten(), nn.Linear(width, 5), layer, nn.Linear(5, 2)), image_shape=shape)
        for layer in (nn.ReLU(), nn.Tanh(), nn.ReLU())
    ]
    assert first_nets(nets, frame)[0] == {"a": "a", "b": "b", "c": "a"}


def test_where_no_net_can_be_made_the_error_names_the_first_site_and_says_why():
    def broken(shape, n_classes):
        raise RuntimeError("no such layer")

    assert first_nets([cg.TorchClassifier(broken), with_layer(nn.ReLU())])[0] == {"b": "b"}  # others go on
    with pytest.raises(SiteError, match=r"Site 'a': neither its learner .* RuntimeError: no such layer"):
        first_nets([cg.TorchClassifier(broken), cg.TorchClassifier("mpl")])
    colours = pd.DataFrame({"size": np.arange(6.0), "colour": ["red"] * 6})
    with pytest.raises(SiteError, match=r"Site 'a': .* not numeric: colour"):
        first_nets([cg.TorchClassifier("mlp")], colours)


def test_learners_with_equal_settings_make_one_net_between_them():
    made = []

    def net(shape, n_classes):
        made.append(shape)
        return nn.Linear(4, n_classes)

    like, _ = first_nets([cg.TorchClassifier(net) for _ in range(3)])
    assert like == {"a": "a", "b": "a", "c": "a"}
    assert len(made) == 1
    like, _ = first_nets([cg.TorchClassifier(net), cg.TorchClassifier(net, random_state=0)])
    assert like == {"a": "a", "b": "a"}
    assert len(made) == 3  # other settings: only the nets can tell
    assert first_nets([cg.TorchClassifier("linear"), cg.TorchClassifier("mlp")])[0] == {"a": "a", "b": "b"}


class NoLater:
    """A net of another library: it has no answers for later."""

    def __init__(self, net: cg.TorchClassifier) -> None:
        self._net = net

    def set_weights(self, weights):
        self._net.set_weights(weights)

    def predict_logits(self, X):
        return self._net.predict_logits(X)


@pytest.mark.parametrize("later", [True, False])
def test_the_logits_of_several_nets_are_those_of_each_in_their_order(later, monkeypatch):
    net = cg.TorchClassifier("mlp", random_state=0).initialize(ROWS, [0, 1])
    weights = [{name: factor * value for name, value in net.get_weights().items()} for factor in (1, -2, 0.5)]
    expected = [net.set_weights(each).predict_logits(ROWS) for each in weights]
    bench = Workbench([cg.Site("a", ROWS, LABELS, learner=net)], np.arange(2), None, None, 0)
    if not later:
        new = bench._new_net
        monkeypatch.setattr(
            bench, "_new_net", lambda site: dataclasses.replace(new(site), estimator=NoLater(new(site).estimator))
        )
    drawn = []

    def nets():
        for number, each in enumerate(weights):
            drawn.append(number)
            yield "a", each

    found = bench.logits_of_each(nets(), ROWS)
    np.testing.assert_array_equal(next(found), expected[0])
    assert drawn == [0, 1]  # the second one has begun
    np.testing.assert_array_equal(list(found), expected[1:])
    assert not list(bench.logits_of_each([], ROWS))


class Halved(cg.TorchClassifier):
    """A net whose answers somebody has changed."""

    def predict_logits(self, X, **norm):
        return super().predict_logits(X, **norm) / 2


def test_a_learner_that_answers_otherwise_is_asked_for_what_it_says():
    net = Halved("mlp", random_state=0).initialize(ROWS, [0, 1])
    weights = net.get_weights()
    bench = Workbench([cg.Site("a", ROWS, LABELS, learner=net)], np.arange(2), None, None, 0)
    (found,) = bench.logits_of_each([("a", weights)], ROWS)
    np.testing.assert_array_equal(found, net.predict_logits(ROWS))
    plain = cg.TorchClassifier("mlp", random_state=0).initialize(ROWS, [0, 1]).set_weights(weights)
    np.testing.assert_array_equal(2 * found, plain.predict_logits(ROWS))
