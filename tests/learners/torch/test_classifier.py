"""TorchClassifier: the scikit-learn interface, going on training, pseudo-labels, reproducibility, errors."""

from __future__ import annotations

import copy
import os
import pickle
import re
import subprocess
import sys
import threading
import tracemalloc
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pandas as pd
import pytest
import torch
from numpy.typing import NDArray
from scipy import sparse
from sklearn.base import clone
from sklearn.exceptions import NotFittedError
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils.estimator_checks import check_estimator
from tests.learners.no_torch import said_without_torch
from torch import nn
from torch.nn import functional

import collegium as cg
from collegium.errors import CollegiumWarning, ConfigError
from collegium.learners.nets import named as nets
from collegium.learners.torch import devices
from collegium.learners.torch.classifier import TorchClassifier, _check_net

Data = tuple[NDArray[Any], NDArray[Any]]


@pytest.fixture(autouse=True)
def _one_thread() -> Iterator[None]:
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


@pytest.fixture
def blobs() -> Data:
    return make_blobs(n=90, seed=0)


def make_blobs(n: int, seed: int, classes: int = 3) -> Data:
    """Classes that are easy to tell apart: feature c is large in class c."""
    rng = np.random.default_rng(seed)
    y = np.arange(n) % classes
    X = rng.normal(size=(n, 5)) + 4 * np.eye(classes, 5)[y]
    return X.astype(np.float32), y


class Net(nn.Module):
    """A net of the user's own, with everything that is hard: batch norm, and dropout in `forward`."""

    def __init__(self, inputs: int = 5, outputs: int = 3) -> None:
        super().__init__()
        self.hidden = nn.Linear(inputs, 8)
        self.norm = nn.BatchNorm1d(8)
        self.out = nn.Linear(8, outputs)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        hidden = functional.dropout(self.norm(self.hidden(x)).relu(), 0.5, self.training)
        logits: torch.Tensor = self.out(hidden)
        return logits


def make_net(input_shape: tuple[int, ...], n_classes: int) -> nn.Module:
    return Net(input_shape[0], n_classes)


def same(a: TorchClassifier, b: TorchClassifier) -> bool:
    """Whether the weights and buffers are the same, bit for bit."""
    first, second = a.get_weights(), b.get_weights()
    return first.keys() == second.keys() and all(np.array_equal(first[name], second[name]) for name in first)


# The scikit-learn interface


def test_learns_and_predicts(blobs: Data) -> None:
    X, y = blobs
    model = TorchClassifier("mlp", random_state=0).fit(X, y)
    assert model.score(X, y) > 0.95
    probabilities = model.predict_proba(X)
    assert probabilities.shape == (90, 3)
    np.testing.assert_allclose(probabilities.sum(axis=1), 1, atol=1e-12)
    logits = model.predict_logits(X)
    assert np.array_equal(model.predict(X), logits.argmax(axis=1))
    np.testing.assert_allclose(
        np.log(probabilities[:, 0] / probabilities[:, 1]), logits[:, 0] - logits[:, 1], atol=1e-3
    )


def test_scikit_learn_checks() -> None:
    check_estimator(
        TorchClassifier("linear", lr=0.1, random_state=0),
        on_skip=None,
        expected_failed_checks={
            "check_complex_data": "refused, in other words",
            "check_dtype_object": "numbers must have a numeric dtype",
            "check_supervised_y_2d": "a column of labels is refused, not guessed at",
            "check_sample_weight_equivalence_on_dense_data": "equal within float32, not float64",
            "check_sample_weight_equivalence_on_sparse_data": "equal within float32, not float64",
        },
    )


def test_arguments_are_stored_unchanged_and_clone_works(blobs: Data) -> None:
    net, shape = Net(), [1, 1, 5]
    model = TorchClassifier(net, lr=0.5, image_shape=shape)
    assert model.get_params()["net"] is net
    assert model.image_shape is shape
    copied = clone(TorchClassifier(net, lr=0.5).fit(*blobs))
    assert copied.lr == 0.5
    assert isinstance(copied.net, Net)
    with pytest.raises(NotFittedError):
        copied.predict(blobs[0])
    assert model.set_params(lr=0.25).lr == 0.25


def test_works_in_a_pipeline(blobs: Data) -> None:
    assert make_pipeline(StandardScaler(), TorchClassifier("linear", lr=0.1)).fit(*blobs).score(*blobs) > 0.9


@pytest.mark.parametrize("method", ["predict", "predict_proba", "predict_logits"])
def test_predicting_before_fitting(method: str, blobs: Data) -> None:
    with pytest.raises(NotFittedError):
        getattr(TorchClassifier(), method)(blobs[0])


def test_fit_starts_anew_unless_warm_start(blobs: Data) -> None:
    once = TorchClassifier(random_state=0, epochs=2).fit(*blobs)
    assert same(once, copy.deepcopy(once).fit(*blobs))
    twice = TorchClassifier(random_state=0, epochs=2, warm_start=True).fit(*blobs).fit(*blobs)
    assert same(twice, TorchClassifier(random_state=0, epochs=4).fit(*blobs))
    with pytest.raises(ConfigError, match="not among the classes"):
        twice.fit(blobs[0], blobs[1] + 1)


def test_a_failed_fit_leaves_the_fitted_net_alone(blobs: Data) -> None:
    X, y = blobs
    model = TorchClassifier("linear", random_state=0).fit(X, y)
    before = model.get_weights()
    with pytest.raises(ConfigError):
        model.fit(np.concatenate([X[:-1], np.full((1, 5), np.nan)]), y)
    np.testing.assert_equal(model.get_weights(), before)


def test_steps_take_the_place_of_epochs(blobs: Data) -> None:
    X, y = blobs
    by_steps = TorchClassifier(random_state=0, steps=6, epochs=50, batch_size=30).fit(X, y)
    assert same(by_steps, TorchClassifier(random_state=0, epochs=2, batch_size=30).fit(X, y))


def test_settings_of_the_optimizer_are_used(blobs: Data) -> None:
    settings: list[dict[str, Any]] = [
        {},
        {"optimizer": "sgd"},
        {"optimizer": "adamw", "weight_decay": 0.1},
        {"lr": 1e-2},
    ]
    settings += [{"weight_decay": 0.1}, {"batch_size": 7}, {"random_state": 1}]
    models = [TorchClassifier("linear", **({"random_state": 0} | each)).fit(*blobs) for each in settings]
    assert not any(same(a, b) for i, a in enumerate(models) for b in models[:i])


# Nets


def test_a_module_is_copied_and_never_trained_in_place(blobs: Data) -> None:
    net = Net()
    before = copy.deepcopy(net.state_dict())
    model = TorchClassifier(net, random_state=0, epochs=1).fit(*blobs)
    assert all(torch.equal(value, before[name]) for name, value in net.state_dict().items())
    assert net.training
    assert not np.array_equal(model.get_weights()["out.weight"], before["out.weight"].numpy())


def test_a_module_starts_from_its_own_weights(blobs: Data) -> None:
    net = Net()
    model = TorchClassifier(net, lr=0).fit(*blobs)
    assert np.array_equal(model.get_weights()["out.weight"], net.out.weight.detach().numpy())


def test_a_function_makes_the_net(blobs: Data) -> None:
    model = TorchClassifier(make_net, random_state=0, lr=1e-2, epochs=20).fit(*blobs)
    assert model.score(*blobs) > 0.9
    assert same(model, clone(model).fit(*blobs))


def test_lazy_layers_are_trained(blobs: Data) -> None:
    net = nn.Sequential(nn.LazyLinear(4), nn.ReLU(), nn.LazyLinear(3))
    model = TorchClassifier(net, random_state=0, lr=1e-2, epochs=30).fit(*blobs)
    assert model.score(*blobs) > 0.9
    assert same(model, clone(model).fit(*blobs))


@pytest.mark.parametrize("net", [Net(outputs=2), lambda shape, n: Net(outputs=2)])
def test_a_net_with_the_wrong_number_of_outputs(net: Any, blobs: Data) -> None:
    with pytest.raises(ConfigError, match=r"must give 3 outputs .* but gives 2"):
        TorchClassifier(net).fit(*blobs)


@pytest.mark.parametrize(
    ("net", "text"),
    [
        ("mpl", "Did you mean 'mlp'"),
        (42, "net must be a name"),
        (lambda shape, n: "mlp", "net must be a name"),
        (Net(inputs=9), r"does not take rows of shape \(5,\)"),
        ("cnn_svhn", r"image_shape=\(channels, height, width\)"),
    ],
)
def test_nets_that_cannot_be(net: Any, text: str, blobs: Data) -> None:
    with pytest.raises(ConfigError, match=text):
        TorchClassifier(net).fit(*blobs)


def test_flat_features_become_images() -> None:
    rng = np.random.default_rng(0)
    images, y = rng.random((12, 1, 10, 12), dtype=np.float32), np.arange(12) % 2
    from_images = TorchClassifier("cnn_aimhi", random_state=0, epochs=1).fit(images, y)
    assert from_images.input_shape_ == (1, 10, 12)
    assert from_images.n_features_in_ == 120
    flat = TorchClassifier("cnn_aimhi", random_state=0, epochs=1, image_shape=[1, 10, 12])
    assert same(from_images, flat.fit(images.reshape(12, -1), y))
    assert same(from_images, flat.fit(images, y))
    assert same(from_images, flat.fit(images[:, 0], y))
    np.testing.assert_array_equal(flat.predict_logits(images.reshape(12, -1)), from_images.predict_logits(images))


def test_images_of_another_shape_are_refused_not_scrambled() -> None:
    channels_last, y = np.zeros((4, 32, 32, 3), dtype=np.float32), [0, 1, 0, 1]
    with pytest.raises(ConfigError, match="bring the axes into that order"):
        TorchClassifier("cnn_svhn", image_shape=(3, 32, 32)).fit(channels_last, y)
    with pytest.raises(ConfigError, match="3072 features are needed"):
        TorchClassifier("cnn_svhn", image_shape=(3, 32, 32)).fit(channels_last.reshape(4, -1)[:, :100], y)


# Going on


@pytest.mark.parametrize("net", ["mlp", Net(), nn.Sequential(nn.Linear(5, 8), nn.Dropout(), nn.Linear(8, 3))])
@pytest.mark.parametrize("optimizer", ["adam", "sgd"])
@pytest.mark.parametrize("with_pseudo", [False, True])
def test_two_updates_are_one_long_update(net: Any, optimizer: str, with_pseudo: bool, blobs: Data) -> None:
    settings: dict[str, Any] = {"optimizer": optimizer, "random_state": 3, "batch_size": 16}
    data: dict[str, Any] = {"classes": [0, 1, 2], "pseudo": make_blobs(50, seed=1) if with_pseudo else None}
    long = TorchClassifier(net, **settings).update(*blobs, **data, steps=10)
    short = TorchClassifier(net, **settings).update(*blobs, **data, steps=5)
    assert not same(long, short)
    torch.manual_seed(99)  # what others do with torch's generator in between does not matter
    assert same(long, short.update(*blobs, **data, steps=5))


def test_the_optimizer_is_never_reset(blobs: Data) -> None:
    model = TorchClassifier("linear", random_state=0).update(*blobs, classes=[0, 1, 2], steps=50)
    other = TorchClassifier("linear", random_state=1).update(*blobs, classes=[0, 1, 2], steps=50)
    other.set_weights(model.get_weights())
    whole = blobs[0][:64], blobs[1][:64]  # one batch is all rows, so only the optimizers differ
    model.update(*whole, classes=[0, 1, 2], steps=1)
    other.update(*whole, classes=[0, 1, 2], steps=1)
    assert not np.allclose(model.get_weights()["1.weight"], other.get_weights()["1.weight"], atol=1e-6)


def test_a_new_learning_rate_holds_from_the_next_update(blobs: Data) -> None:
    model = TorchClassifier("linear", random_state=0).update(*blobs, classes=[0, 1, 2])
    before = model.get_weights()
    model.set_params(lr=0).update(*blobs, classes=[0, 1, 2])
    np.testing.assert_equal(model.get_weights(), before)


def test_update_defaults_to_the_constructors_length(blobs: Data) -> None:
    X, y = blobs
    settings: dict[str, Any] = {"random_state": 0, "batch_size": 30}
    five = TorchClassifier(**settings, steps=6).update(X, y, classes=[0, 1, 2])
    assert same(five, TorchClassifier(**settings, epochs=2).update(X, y, classes=[0, 1, 2]))
    assert same(five, TorchClassifier(**settings, steps=1).update(X, y, classes=[0, 1, 2], epochs=2))
    assert same(five, TorchClassifier(**settings, epochs=9).update(X, y, classes=[0, 1, 2], steps=6))


def test_update_goes_on_after_fit(blobs: Data) -> None:
    model = TorchClassifier(random_state=0, epochs=1).fit(*blobs).update(*blobs, classes=[0, 1, 2])
    assert same(model, TorchClassifier(random_state=0, epochs=2).fit(*blobs))


def test_a_class_that_a_site_lacks_is_learned_later(blobs: Data) -> None:
    X, y = blobs
    model = TorchClassifier("linear", lr=0.1, random_state=0)
    model.update(X[y != 1], y[y != 1], classes=[0, 1, 2])
    assert model.predict_proba(X).shape == (90, 3)
    assert model.score(X, y) < 0.7
    assert model.update(X, y, classes=[0, 1, 2]).score(X, y) > 0.95


def test_columns_follow_the_classes_given(blobs: Data) -> None:
    X, y = blobs
    names = np.array(["ill", "well", "dead"])[y]
    fitted = TorchClassifier("linear", lr=0.1, random_state=0).fit(X, names)
    assert fitted.classes_.tolist() == ["dead", "ill", "well"]
    updated = TorchClassifier("linear", lr=0.1, random_state=0).update(X, names, classes=["well", "dead", "ill"])
    assert updated.classes_.tolist() == ["well", "dead", "ill"]
    assert np.mean(updated.predict(X) == names) > 0.95
    assert np.mean(updated.predict_proba(X)[:, 0].round() == (names == "well")) > 0.95


@pytest.mark.parametrize("labels", [["no", "yes"], [False, True], [-1, 7], [0.0, 1.0]])
@pytest.mark.parametrize("container", [np.array, list, pd.Series, pd.Categorical])
def test_any_labels(labels: list[Any], container: Callable[[Any], Any]) -> None:
    X, codes = make_blobs(40, seed=0, classes=2)
    y = [labels[code] for code in codes]
    model = TorchClassifier("linear", lr=0.1, random_state=0).fit(X, container(y))
    assert model.classes_.tolist() == labels
    assert np.mean(model.predict(X) == np.array(y)) > 0.9


@pytest.mark.parametrize("classes", [[0, 1], [0, 1, 2, 3], [2, 1, 0], ["0", "1", "2"]])
def test_other_classes_later_are_refused(classes: list[Any], blobs: Data) -> None:
    model = TorchClassifier("linear").update(*blobs, classes=[0, 1, 2], steps=1)
    with pytest.raises(ConfigError, match="not the classes"):
        model.update(*blobs, classes=classes)


@pytest.mark.parametrize("classes", [[], [0, 1, 2, 2], [[0, 1, 2]], 3])
def test_classes_must_be_distinct(classes: Any, blobs: Data) -> None:
    with pytest.raises(ConfigError, match="distinct classes"):
        TorchClassifier("linear").update(*blobs, classes=classes)


# Pseudo-labels


def test_pseudo_labels_are_learned_from(blobs: Data) -> None:
    X, y = blobs
    public = make_blobs(60, seed=1)
    known = y != 2
    model = TorchClassifier("linear", lr=0.1, random_state=0)
    alone = clone(model).update(X[known], y[known], classes=[0, 1, 2])
    together = clone(model).update(X[known], y[known], classes=[0, 1, 2], pseudo=public)
    assert np.mean(alone.predict(X[~known]) == 2) < 0.5 < 0.9 < np.mean(together.predict(X[~known]) == 2)


def test_fit_has_the_classes_of_both(blobs: Data) -> None:
    X, y = blobs
    model = TorchClassifier("linear", lr=0.1, random_state=0).fit(X[y != 2], y[y != 2], pseudo=make_blobs(60, seed=1))
    assert model.classes_.tolist() == [0, 1, 2]
    assert model.score(X, y) > 0.9


def test_the_loss_is_the_mean_over_the_joint_batch(blobs: Data) -> None:
    (X, y), (U, L) = (blobs[0][:8], blobs[1][:8]), make_blobs(8, seed=1)
    model = TorchClassifier("linear", optimizer="sgd", lr=0.5, batch_size=8, random_state=0)
    before = clone(model).set_params(lr=0).fit(X, y, pseudo=(U, L)).get_weights()["1.weight"]
    bias = clone(model).set_params(lr=0).fit(X, y, pseudo=(U, L)).get_weights()["1.bias"]
    both, labels = np.concatenate([X, U]), np.concatenate([y, L])
    scores = np.exp(both @ before.T + bias)
    gradient = (scores / scores.sum(axis=1, keepdims=True) - np.eye(3)[labels]).T @ both / 16
    after = model.set_params(steps=1).fit(X, y, pseudo=(U, L)).get_weights()["1.weight"]
    np.testing.assert_allclose(after, before - 0.5 * gradient, atol=1e-5)


def test_no_pseudo_labelled_rows_is_the_same_as_none(blobs: Data) -> None:
    plain = TorchClassifier("linear", random_state=0).fit(*blobs)
    assert same(plain, clone(plain).fit(*blobs, pseudo=(np.zeros((0, 5)), np.zeros(0, dtype=int))))


def test_public_rows_alone_will_do(blobs: Data) -> None:
    none = np.zeros((0, 5)), np.zeros(0, dtype=int)
    model = TorchClassifier("linear", lr=0.1, random_state=0).update(*none, classes=[0, 1, 2], pseudo=blobs)
    assert model.score(*blobs) > 0.9
    with pytest.raises(ConfigError, match="no rows"):
        model.update(*none, classes=[0, 1, 2])


def test_pseudo_labelled_rows_must_fit(blobs: Data) -> None:
    X, y = blobs
    with pytest.raises(ValueError, match="features"):
        TorchClassifier("linear").fit(X, y, pseudo=(X[:, :4], y))
    with pytest.raises(ConfigError, match="90 rows, but 80 labels in the pseudo-labels"):
        TorchClassifier("linear").fit(X, y, pseudo=(X, y[:80]))
    with pytest.raises(ConfigError, match="not among the classes"):
        TorchClassifier("linear").update(X, y, classes=[0, 1, 2], pseudo=(X, y + 1))


# Batch norm and dropout


def test_predicts_in_eval_mode(blobs: Data) -> None:
    X, y = blobs
    model = TorchClassifier(Net(), random_state=0, epochs=3).fit(X, y)
    logits = model.predict_logits(X)
    np.testing.assert_array_equal(model.predict_logits(X), logits)  # dropout is off
    before = model.get_weights()
    np.testing.assert_allclose(model.predict_logits(X[:1]), logits[:1], atol=1e-5)  # batch norm looks at no other row
    model.predict_logits(X + 100)
    np.testing.assert_equal(model.get_weights(), before)  # and keeps its running means


def test_trains_in_training_mode_also_after_predicting(blobs: Data) -> None:
    model = TorchClassifier(Net(), random_state=0, epochs=1).update(*blobs, classes=[0, 1, 2])
    without = copy.deepcopy(model).update(*blobs, classes=[0, 1, 2])
    model.predict(blobs[0])
    model.update(*blobs, classes=[0, 1, 2])
    assert same(model, without)
    assert model.to_module().norm.num_batches_tracked == 4


@pytest.mark.parametrize(("n", "batch_size"), [(65, 64), (9, 4), (2, 64)])
def test_a_last_row_alone_does_not_crash_batch_norm(n: int, batch_size: int, blobs: Data) -> None:
    X, y = blobs[0][:n], blobs[1][:n]
    model = TorchClassifier(make_net, batch_size=batch_size, epochs=2, random_state=0).fit(X, y)
    assert np.isfinite(model.predict_logits(X)).all()


def test_batches_of_one_row_are_refused_for_batch_norm_only(blobs: Data) -> None:
    X, y = blobs
    with pytest.raises(ConfigError, match="batches of one row"):
        TorchClassifier(make_net, batch_size=1).fit(X, y)
    with pytest.raises(ConfigError, match="batches of one row"):
        TorchClassifier(make_net).fit(X[:1], y[:1])
    TorchClassifier(make_net, batch_size=1, epochs=1).fit(X, y, pseudo=(X, y))
    TorchClassifier("linear", batch_size=1, epochs=1).fit(X[:1], y[:1])


# What X may be


def test_sparse_rows_are_the_same_as_dense_ones(blobs: Data) -> None:
    X, y = blobs
    X = np.where(abs(X) > 1, X, 0)
    dense = TorchClassifier("linear", random_state=0).fit(X, y, pseudo=(X, y))
    for kind in (sparse.csr_matrix, sparse.csr_array, sparse.csc_matrix, sparse.coo_array):
        model = clone(dense).fit(kind(X), y, pseudo=(kind(X), y))
        assert same(dense, model)
        np.testing.assert_array_equal(model.predict_logits(kind(X)), dense.predict_logits(X))


def test_data_frames_of_numbers(blobs: Data) -> None:
    X, y = blobs
    frame = pd.DataFrame({"a": X[:, 0], "b": X[:, 1] > 0, "c": (X[:, 2] * 9).astype("int8"), "d": X[:, 3]})
    frame["e"] = pd.array((X[:, 4] * 9).astype(int), dtype="Int64")
    model = TorchClassifier("linear", random_state=0).fit(frame, y)
    assert same(model, clone(model).fit(frame.to_numpy(dtype=float), y))
    assert model.feature_names_in_.tolist() == list("abcde")
    with pytest.raises(ValueError, match="feature names"):
        model.predict(frame[list("edcba")])


def test_a_read_only_memory_map_is_neither_copied_nor_warned_of(tmp_path: Path) -> None:
    X = np.random.default_rng(0).normal(size=(20_000, 200)).astype(np.float32)
    np.save(tmp_path / "X.npy", X)
    mapped = np.load(tmp_path / "X.npy", mmap_mode="r")
    y = np.arange(len(X)) % 2
    model = TorchClassifier("linear", random_state=0, steps=3)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        tracemalloc.start()
        model.fit(mapped, y, pseudo=(mapped, y)).predict(mapped)
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
    assert peak < X.nbytes / 2
    assert same(model, clone(model).fit(X, y, pseudo=(X, y)))


def test_predicts_in_chunks_what_it_predicts_at_once() -> None:
    X, y = make_blobs(10_000, seed=0)
    model = TorchClassifier("linear", lr=0.1, random_state=0, steps=20).fit(X, y)
    np.testing.assert_allclose(model.predict_logits(X)[4090:4100], model.predict_logits(X[4090:4100]), atol=1e-5)
    assert model.predict_proba(X[:0]).shape == (0, 3)


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf, 1e300])
@pytest.mark.parametrize("where", ["fit", "pseudo", "update", "predict", "sparse"])
def test_nan_and_infinity_are_refused(value: float, where: str, blobs: Data) -> None:
    X, y = blobs[0].astype(float), blobs[1]
    model = TorchClassifier("linear", steps=1).fit(X, y)
    bad = X.copy()
    bad[-1, 3] = value
    calls: dict[str, Callable[[], Any]] = {
        "fit": lambda: model.fit(bad, y),
        "pseudo": lambda: model.fit(X, y, pseudo=(bad, y)),
        "update": lambda: model.update(bad, y, classes=[0, 1, 2], steps=2),
        "predict": lambda: model.predict(bad),
        "sparse": lambda: model.predict(sparse.csr_matrix(bad)),
    }
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with pytest.raises(ConfigError, match="NaN, infinite or too large") as caught:
            calls[where]()
    assert str(bad[0, 0]) not in str(caught.value)
    assert "1e+300" not in str(caught.value)


def test_a_single_step_reads_only_its_own_rows(blobs: Data) -> None:
    X, y = blobs
    X[-1] = np.nan
    model = TorchClassifier("linear", batch_size=1, random_state=0)
    for _ in range(3):
        model.update(X, y, classes=[0, 1, 2], steps=1)
    with pytest.raises(ConfigError, match="NaN"):
        model.update(X, y, classes=[0, 1, 2], steps=87)


@pytest.mark.parametrize(
    ("X", "text"),
    [
        (pd.DataFrame({"age": [1, 2], "name": ["a", "b"], "born": pd.to_datetime(["2020", "2021"])}), "name, born"),
        (np.array([["a"], ["b"]]), "must contain real numbers"),
        (np.array([[1], ["b"]], dtype=object), "must contain real numbers"),
        (np.array([[1j], [2j]]), "must contain real numbers"),
        (np.array([1.0, 2.0]), "two dimensions"),
        (pd.DataFrame({"age": [1.0, None]}), "NaN"),
        (pd.DataFrame({"age": pd.array([1, None], dtype="Int64")}), "NaN"),
        (np.zeros((2, 0)), "0 feature"),
        (np.zeros((3, 2)), "3 rows, but 2 labels"),
    ],
)
def test_inputs_that_cannot_be_learned_from(X: Any, text: str) -> None:
    with pytest.raises(ConfigError, match=text):
        TorchClassifier("linear").fit(X, [0, 1])


@pytest.mark.parametrize(
    ("y", "text"),
    [
        ([0, None, 1], "missing"),
        ([0, np.nan, 1], "missing"),
        ([0.5, 1.5, 0.2], "continuous"),
        (np.array([0, "a", 1], dtype=object), "different types"),
        ([[0], [1], [0]], "one label per row"),
        (None, "requires y"),
    ],
)
def test_labels_that_cannot_be_learned_from(y: Any, text: str) -> None:
    with pytest.raises(ConfigError, match=text):
        TorchClassifier("linear").fit(np.zeros((3, 2)), y)


def test_rows_of_another_shape_are_refused_later(blobs: Data) -> None:
    X, y = blobs
    model = TorchClassifier("linear").fit(X, y)
    with pytest.raises(ValueError, match="features"):
        model.predict(X[:, :4])
    with pytest.raises(ConfigError, match=r"shape \(5, 1\), but the net takes \(5,\)"):
        model.predict(X[:, :, None])


@pytest.mark.parametrize(
    ("settings", "text"),
    [
        ({"optimizer": "adm"}, "Did you mean 'adam'"),
        ({"device": "gpu"}, "Unknown device 'gpu'"),
        ({"device": "meta"}, "Unknown device 'meta'"),
        ({"epochs": 0}, "epochs must be"),
        ({"steps": 0}, "steps must be"),
        ({"batch_size": 0}, "batch_size must be"),
        ({"batch_size": 2.5}, "batch_size must be an integer"),
        ({"epochs": True}, "epochs must be"),
        ({"lr": -1}, "lr must be"),
        ({"lr": float("nan")}, "lr must be"),
        ({"weight_decay": -1}, "weight_decay must be"),
        ({"random_state": -1}, "random_state must be"),
        ({"random_state": "x"}, "random_state must be"),
    ],
)
def test_settings_that_cannot_be(settings: dict[str, Any], text: str, blobs: Data) -> None:
    with pytest.raises(ConfigError, match=text):
        TorchClassifier("linear").set_params(**settings).fit(*blobs)


@pytest.mark.parametrize("length", [{"epochs": 0}, {"steps": 0}])
def test_an_update_of_no_length(length: dict[str, Any], blobs: Data) -> None:
    with pytest.raises(ConfigError, match="at least 1"):
        TorchClassifier("linear").update(*blobs, classes=[0, 1, 2], **length)


def test_cuda_that_is_not_there(blobs: Data, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    with pytest.warns(CollegiumWarning, match=r"device='cuda', but .* no CUDA device here: the CPU is used"):
        model = TorchClassifier("linear", device="cuda", random_state=0).fit(*blobs)
    assert model.last_update_.device == "cpu"
    assert same(model, TorchClassifier("linear", random_state=0).fit(*blobs))


# Reproducibility


@pytest.mark.parametrize(
    "net", ["linear", "mlp", make_net, nn.Sequential(nn.Linear(5, 8), nn.Dropout(), nn.Linear(8, 3))]
)
def test_same_seed_same_bits(net: Any, blobs: Data) -> None:
    first = TorchClassifier(net, random_state=7, epochs=2).fit(*blobs)
    torch.manual_seed(1)
    np.random.seed(1)
    assert same(first, clone(first).fit(*blobs))
    assert not same(first, clone(first).set_params(random_state=8).fit(*blobs))
    assert not same(*(clone(first).set_params(random_state=None).fit(*blobs) for _ in range(2)))


def test_a_named_net_with_dropout_is_reproducible_too() -> None:
    X, y = np.random.default_rng(0).random((16, 3, 8, 8), dtype=np.float32), np.arange(16) % 2
    first = TorchClassifier("cnn_svhn", random_state=7, batch_size=8, epochs=1).fit(X, y)
    torch.manual_seed(1)
    state = torch.get_rng_state()
    assert same(first, clone(first).fit(X, y))
    assert torch.equal(torch.get_rng_state(), state)


def test_every_step_draws_new_random_numbers(blobs: Data) -> None:
    class Recorder(nn.Linear):
        draws: ClassVar[list[float]] = []

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            if self.training:
                self.draws.append(torch.rand(()).item())
            return super().forward(x)

    model = TorchClassifier(Recorder(5, 3), random_state=0)
    for _ in range(3):
        model.update(*blobs, classes=[0, 1, 2], steps=4)
    assert len(set(Recorder.draws)) == 12


def test_another_number_of_classes_does_not_share_the_batches_stream(blobs: Data) -> None:
    """Batches come from a generator of their own, so that they do not depend on the size of the net."""
    X, y = blobs
    orders = []
    for n_classes in (3, 4):
        model = TorchClassifier("linear", random_state=0).update(X, y, classes=range(n_classes), steps=1)
        orders.append(model._training._batches._decks[0].deal(20).tolist())
    assert orders[0] == orders[1]


@pytest.mark.parametrize("net", ["linear", Net()])
def test_global_generators_are_left_alone(net: Any, blobs: Data) -> None:
    torch.manual_seed(5)
    np.random.seed(5)
    state = torch.get_rng_state()
    TorchClassifier(net, epochs=2).fit(*blobs).update(*blobs, classes=[0, 1, 2]).predict(blobs[0])
    with pytest.raises(ConfigError):
        TorchClassifier(lambda shape, n: torch.rand(3)).fit(*blobs)
    assert torch.equal(torch.get_rng_state(), state)
    assert np.random.random() == np.random.RandomState(5).random()


@pytest.mark.parametrize("net", [pytest.param("mlp", marks=pytest.mark.slow), make_net])
def test_other_threads_do_not_matter(net: Any, blobs: Data) -> None:
    alone = TorchClassifier(net, random_state=0, steps=150).fit(*blobs)
    done = threading.Event()

    def disturb(seed: int) -> None:
        while not done.is_set():
            TorchClassifier(make_net, random_state=seed, steps=3).fit(*blobs)

    others = [threading.Thread(target=disturb, args=(seed,)) for seed in range(2)]
    for other in others:
        other.start()
    try:
        assert all(same(alone, clone(alone).fit(*blobs)) for _ in range(2))
    finally:
        done.set()
        for other in others:
            other.join()


@pytest.mark.parametrize(("net", "waits"), [("mlp", False), (make_net, True)])
def test_only_nets_that_may_be_random_wait_for_the_lock(net: Any, waits: bool, blobs: Data) -> None:
    model = TorchClassifier(net, random_state=0).update(*blobs, classes=[0, 1, 2], steps=1)
    thread = threading.Thread(target=lambda: model.update(*blobs, classes=[0, 1, 2], steps=1))
    with devices.GLOBAL_GENERATOR:
        thread.start()
        thread.join(timeout=0.5 if waits else 300)
        assert thread.is_alive() == waits
    thread.join(timeout=300)
    assert not thread.is_alive()


# Pickles


@pytest.mark.parametrize("net", ["mlp", Net(), make_net])
@pytest.mark.parametrize("duplicate", [copy.deepcopy, lambda model: pickle.loads(pickle.dumps(model))])
def test_a_pickled_classifier_goes_on_with_the_same_bits(net: Any, duplicate: Callable[..., Any], blobs: Data) -> None:
    data: dict[str, Any] = {"classes": [0, 1, 2], "pseudo": make_blobs(50, seed=1)}
    model = TorchClassifier(net, random_state=0, batch_size=16).update(*blobs, **data, steps=7)
    other = duplicate(model)
    assert same(model, other)
    np.testing.assert_array_equal(model.predict_logits(blobs[0]), other.predict_logits(blobs[0]))
    model.update(*blobs, **data, steps=7)
    assert not same(model, other)
    assert same(model, other.update(*blobs, **data, steps=7))


def test_an_unfitted_classifier_can_be_pickled(blobs: Data) -> None:
    model = pickle.loads(pickle.dumps(TorchClassifier("linear", lr=0.1)))
    assert model.fit(*blobs).lr == 0.1


def test_a_cuda_classifier_predicts_where_there_is_no_cuda(blobs: Data, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    model = TorchClassifier("linear", random_state=0).fit(*blobs)
    elsewhere = pickle.loads(pickle.dumps(model.set_params(device="cuda")))
    assert np.array_equal(elsewhere.predict(blobs[0]), model.set_params(device="cpu").predict(blobs[0]))
    with pytest.warns(CollegiumWarning, match="the CPU is used"):
        elsewhere.update(*blobs, classes=[0, 1, 2])


# Weights


def test_weights_can_be_read_and_written(blobs: Data) -> None:
    model = TorchClassifier(Net(), random_state=0, epochs=2).fit(*blobs)
    weights = model.get_weights()
    assert set(weights) == set(Net().state_dict()) - {"norm.num_batches_tracked"}  # with running means
    assert all(type(value) is np.ndarray and value.dtype == np.float32 for value in weights.values())
    other = TorchClassifier(Net(), random_state=1, epochs=1).fit(*blobs)
    assert not same(model, other)
    assert other.set_weights(weights) is other
    assert same(model, other)
    np.testing.assert_array_equal(model.predict_logits(blobs[0]), other.predict_logits(blobs[0]))


def test_weights_are_copies(blobs: Data) -> None:
    model = TorchClassifier("linear", random_state=0).fit(*blobs)
    weights = model.get_weights()
    model.set_weights(weights)
    weights["1.weight"][:] = 0
    assert model.get_weights()["1.weight"].any()
    model.update(*blobs, classes=[0, 1, 2])
    assert not weights["1.weight"].any()


def test_weights_that_are_set_are_trained_on(blobs: Data) -> None:
    model = TorchClassifier("linear", random_state=0, lr=1e-3, steps=1).fit(*blobs)
    model.set_weights({name: np.full_like(value, 5) for name, value in model.get_weights().items()})
    model.update(*blobs, classes=[0, 1, 2])
    assert np.allclose(model.get_weights()["1.weight"], 5, atol=0.01)
    assert not np.all(model.get_weights()["1.weight"] == 5)


def test_weights_of_another_net_are_refused(blobs: Data) -> None:
    model = TorchClassifier("linear", random_state=0).fit(*blobs)
    weights = model.get_weights()
    for wrong in (
        {"1.weight": weights["1.weight"]},
        weights | {"2.bias": weights["1.bias"]},
        weights | {"1.bias": np.zeros(4)},
    ):
        with pytest.raises(ConfigError, match=r"another net.*bias"):
            model.set_weights(wrong)
    np.testing.assert_equal(model.get_weights(), weights)


def test_weights_before_fitting() -> None:
    for call in (TorchClassifier().get_weights, lambda: TorchClassifier().set_weights({})):
        with pytest.raises(NotFittedError):
            call()


# torch is optional


def test_without_torch_the_extra_is_named() -> None:
    said = said_without_torch(
        "from collegium.errors import MissingExtra\n"
        "try: import collegium.learners.torch.classifier\n"
        "except MissingExtra as missing: print(missing, missing.extra)\n"
    )
    assert said == "TorchClassifier needs an optional package: pip install 'collegium[torch]' torch"


# CUDA

cuda = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")


@cuda
@pytest.mark.parametrize("net", ["mlp", make_net, nn.Sequential(nn.Linear(5, 8), nn.Dropout(), nn.Linear(8, 3))])
def test_cuda_goes_on_after_a_pickle_and_leaves_the_generator_alone(net: Any, blobs: Data) -> None:
    torch.cuda.manual_seed(5)
    state = torch.cuda.get_rng_state()
    model = TorchClassifier(net, random_state=0, device="cuda", batch_size=16)
    model.update(*blobs, classes=[0, 1, 2], steps=5).predict(blobs[0])
    other = pickle.loads(pickle.dumps(model))
    long = clone(model).update(*blobs, classes=[0, 1, 2], steps=10)
    assert same(long, model.update(*blobs, classes=[0, 1, 2], steps=5))
    assert same(long, other.update(*blobs, classes=[0, 1, 2], steps=5))
    assert torch.equal(torch.cuda.get_rng_state(), state)
    assert long.set_params(device="cpu").update(*blobs, classes=[0, 1, 2], epochs=20).score(*blobs) > 0.8


@cuda
def test_a_cuda_pickle_is_read_without_cuda(blobs: Data, tmp_path: Path) -> None:
    model = TorchClassifier("mlp", random_state=0, device="cuda").fit(*blobs)
    (tmp_path / "model").write_bytes(pickle.dumps((model, blobs)))
    program = (
        "import pickle, sys, torch; assert not torch.cuda.is_available()\n"
        "model, (X, y) = pickle.load(open(sys.argv[1], 'rb'))\n"
        "model.predict(X); model.set_params(device='cpu').update(X, y, classes=[0, 1, 2]); print(model.score(X, y))\n"
    )
    answer = subprocess.run(
        [sys.executable, "-c", program, tmp_path / "model"],
        env=os.environ | {"PYTHONPATH": os.pathsep.join(sys.path), "CUDA_VISIBLE_DEVICES": ""},
        capture_output=True,
        text=True,
        check=True,
    )
    assert float(answer.stdout) > 0.9


def test_batch_norms_may_use_the_statistics_of_each_batch_and_keep_their_own() -> None:
    def net(shape: tuple[int, ...], n_classes: int) -> nn.Module:
        return nn.Sequential(nn.BatchNorm1d(4), nn.Dropout(0.5), nn.Linear(4, n_classes))

    X = np.random.default_rng(0).normal(3, 2, size=(61, 4)).astype(np.float32)
    fitted = TorchClassifier(net, epochs=1, random_state=0).fit(X, np.arange(61) % 2)
    weights, usual = fitted.get_weights(), fitted.predict_logits(X)
    by_batch = fitted.predict_logits(X, norm_batch=30)
    head = weights["2.weight"], weights["2.bias"]
    for part in (slice(0, 30), slice(30, 61)):  # 61 rows in two batches, none of which is a single row
        rows = X[part]
        normed = (rows - rows.mean(axis=0)) / np.sqrt(rows.var(axis=0) + 1e-5)
        normed = normed * weights["0.weight"] + weights["0.bias"]
        expected = normed @ head[0].T + head[1]
        np.testing.assert_allclose(by_batch[part], expected, atol=1e-4)
    np.testing.assert_array_equal(fitted.predict_logits(X), usual)  # the running statistics are as they were
    assert np.abs(by_batch - usual).max() > 1e-3


def test_batch_norms_may_use_the_statistics_of_some_rows_for_all() -> None:
    def net(shape: tuple[int, ...], n_classes: int) -> nn.Module:
        return nn.Sequential(nn.Linear(4, 5), nn.BatchNorm1d(5), nn.ReLU(), nn.BatchNorm1d(5), nn.Linear(5, n_classes))

    X = np.random.default_rng(0).normal(3, 2, size=(61, 4)).astype(np.float32)
    fitted = TorchClassifier(net, epochs=1, random_state=0).fit(X, np.arange(61) % 2)
    before, usual = fitted.to_module().state_dict(), fitted.predict_logits(X)
    some, every = fitted.predict_logits(X, norm_rows=30), fitted.predict_logits(X, norm_rows=5000)
    assert np.abs(some - usual).max() > 1e-3 < np.abs(some - every).max()
    np.testing.assert_allclose(every, fitted.predict_logits(X, norm_batch=61), atol=0.1)  # but for n - 1 instead of n
    after = fitted.to_module().state_dict()  # also its count of batches
    assert all(torch.equal(before[name], after[name]) for name in before)
    np.testing.assert_array_equal(fitted.predict_logits(X), usual)
    # An answer depends on its own row alone.
    spread = X[np.linspace(0, 60, 30).round().astype(int)]
    np.testing.assert_allclose(fitted.predict_logits(np.concatenate([spread, spread]), norm_rows=60)[:30],
                               fitted.predict_logits(spread, norm_rows=30), atol=0.05)  # fmt: skip
    with pytest.raises(ConfigError, match="no statistics of a single row"):
        fitted.predict_logits(X, norm_rows=1)
    np.testing.assert_array_equal(fitted.predict_logits(X), usual)
    with pytest.raises(ConfigError, match="predict_logits: norm_batch"):
        fitted.predict_logits(X, norm_batch=0)
    with pytest.raises(ConfigError, match="norm_batch or norm_rows, not both"):
        fitted.predict_logits(X, norm_batch=3, norm_rows=3)


def test_a_net_that_many_sites_begin_with_is_copied_and_each_copy_is_its_own() -> None:
    calls = []

    def made(input_shape: Any, n_classes: int) -> nn.Module:
        return nn.Sequential(nn.Linear(*input_shape, 4), nn.Dropout(), nn.Linear(4, n_classes))

    X, y = np.random.default_rng(0).normal(size=(40, 3)).astype(np.float32), np.arange(40) % 2

    def counted(input_shape: Any, n_classes: int) -> nn.Module:
        calls.append(n_classes)  # it has a memory of its own
        return made(input_shape, n_classes)

    def trained(net: Any, seed: int) -> tuple[dict[str, Any], dict[str, Any]]:
        model = TorchClassifier(net, random_state=seed, steps=3).initialize(X, [0, 1])
        before = model.get_weights()
        return before, model.update(X, y, classes=[0, 1]).get_weights()

    first = trained(made, 5)
    for _ in range(3):
        for one, other in zip(first, trained(made, 5), strict=True):  # weights, batches and dropout
            for name, value in one.items():
                np.testing.assert_array_equal(other[name], value)
    assert not np.array_equal(trained(made, 6)[0]["0.weight"], first[0]["0.weight"])
    np.testing.assert_array_equal(trained(made, 5)[0]["0.weight"], first[0]["0.weight"])
    for _ in range(4):
        trained(counted, 5)
    assert len(calls) == 4


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"net": "mpl"}, "There is no net 'mpl'. Did you mean 'mlp'?"),
        ({"net": "timm:resnet18"}, "use cg.VisionClassifier"),
        ({"net": "lenet"}, "expected images, but a row has shape (6,)"),
        ({"net": 5}, "not <class 'int'>"),
        ({"lr": -1.0}, "lr must be a finite number of at least 0, got -1"),
        ({"device": "cud"}, "Unknown device 'cud'"),
        ({"image_shape": (3, 3)}, "which does not fit image_shape=(3, 3): 9 features are needed"),
    ],
)
def test_what_cannot_be_trained_is_said_before_a_run(settings: dict[str, Any], said: str) -> None:
    """In it, sites would fail one by one, and only their own logs would say why."""
    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(40, 6)), np.arange(40) % 2
    learner = TorchClassifier(**settings)
    with pytest.raises(cg.SiteError, match=f"Site 'a': .*{re.escape(said)}"):
        cg.run(cg.FedCT(1), sites=[cg.Site("a", X, y, learner=learner)], public=X, progress=False)
    if "shape" not in said:  # behind a scaler, rows are not known yet
        behind = make_pipeline(StandardScaler(), learner)
        with pytest.raises(cg.SiteError, match=re.escape(said)):
            cg.run(cg.FedCT(1), sites=[cg.Site("a", X, y, learner=behind)], public=X, progress=False)


def test_looking_at_rows_makes_no_net_twice_and_draws_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    made = []
    _check_net.cache_clear()
    build = nets.build
    monkeypatch.setattr(nets, "build", lambda *given: made.append(given) or build(*given))
    before = torch.get_rng_state()
    for table in (np.zeros((5, 7)), pd.DataFrame(np.zeros((5, 7))), sparse.csr_matrix(np.zeros((5, 7)))):
        TorchClassifier("mlp").check_rows(table)
    TorchClassifier("mlp").check_rows(np.zeros((0, 7)))
    assert len(made) == 1
    assert torch.equal(torch.get_rng_state(), before)
    TorchClassifier(lambda shape, n: pytest.fail("it was made")).check_rows(np.zeros((5, 7)))
