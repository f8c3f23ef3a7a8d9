"""FedMD: labels of the public set that are learned from, and a consensus of scores."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.special import softmax
from sklearn.datasets import load_digits
from tests.algorithms.nets import PARTS, PUBLIC, SEEN, TEST, TRUTH, RecordingNet, sites_of

import collegium as cg
from collegium.errors import ConfigError

NET = cg.TorchClassifier("linear", lr=0.02, batch_size=32)
TAUGHT: list[tuple[np.ndarray, np.ndarray, np.ndarray]] = []


class Student(RecordingNet):
    """Keeps what it was to digest, and what it would have said before."""

    def distill(self, X, targets, **options):
        TAUGHT.append((np.array(X), np.array(targets), self.predict_logits(X)))
        return super().distill(X, targets, **options)


@pytest.fixture(autouse=True)
def _forget() -> None:
    SEEN.clear()
    TAUGHT.clear()


def run(algorithm, learner=NET, **options):
    options = {"public": (PUBLIC, TRUTH), "test": TEST} | options
    return cg.run(algorithm, sites=sites_of(PARTS, learner), **options)


def test_transfer_learning_is_the_public_set_with_its_labels_and_then_the_private_data():
    algorithm = cg.FedMD(rounds=2, public_epochs=3, private_epochs=2, revisit_epochs=1)
    run(algorithm, lambda name: Student(site=name), global_learner=NET)
    for name, calls in SEEN.items():
        assert [call["epochs"] for call in calls] == [3, 2, 1, 1], name
    result = run(cg.FedMD(rounds=1, public_epochs=40, private_epochs=1, samples=1))
    assert np.mean(result.models["a"].predict(PUBLIC) == TRUTH) > 0.9


def test_sites_digest_the_softmax_of_the_mean_of_their_scores():
    run(cg.FedMD(rounds=2, samples=50, public_epochs=2, private_epochs=1), lambda name: Student(site=name))
    assert len(TAUGHT) == 6
    for number in (0, 1):
        taught = TAUGHT[3 * number : 3 * number + 3]
        assert all(len(X) == 50 and np.array_equal(X, taught[0][0]) for X, _, _ in taught)
        expected = softmax(np.mean([logits for *_, logits in taught], axis=0), axis=1)
        for _, targets, _ in taught:
            np.testing.assert_allclose(targets, expected, atol=1e-5)
    assert not np.array_equal(TAUGHT[0][0], TAUGHT[3][0])  # drawn anew


def test_it_needs_the_labels_and_says_how_to_give_them():
    for public in (PUBLIC, None):
        with pytest.raises(ConfigError, match=r"public=\(X, y\)"):
            run(cg.FedMD(rounds=1), public=public, public_truth=None if public is None else TRUTH)


def test_labels_of_the_public_set_reach_no_method_that_does_not_ask_for_them():
    with pytest.raises(ConfigError, match="without labels"):
        run(cg.FedCT(rounds=1), public=(PUBLIC, TRUTH))


def test_labels_that_do_not_fit_are_an_error():
    with pytest.raises(ConfigError, match="labels"):
        run(cg.FedMD(rounds=1), public=(PUBLIC, TRUTH[:-1]))
    with pytest.raises(ConfigError, match="strings"):
        run(cg.FedMD(rounds=1), public=(PUBLIC, TRUTH.astype(str)))


def test_the_public_set_may_have_classes_that_no_site_has():
    sites = [cg.Site(n, X[y < 6], y[y < 6], learner=NET) for n, (X, y) in zip("abc", PARTS, strict=True)]
    algorithm = cg.FedMD(rounds=1, public_epochs=30, private_epochs=1, revisit_epochs=1)
    result = cg.run(algorithm, sites=sites, public=(PUBLIC, TRUTH), test=TEST)
    assert list(result.classes) == list(range(10))
    high = TEST[1] >= 6
    assert np.mean(result.models["a"].predict(TEST[0])[high] == TEST[1][high]) > 0.4


def test_superclasses_are_learned_from_sites_that_have_one_class_of_each():
    X, digit = load_digits(return_X_y=True)
    X, coarse = (X / 16).astype(np.float32), digit // 5  # two superclasses of five digits each
    held, public = np.arange(len(X)) % 5 == 0, np.arange(len(X)) % 5 == 1
    train = ~(held | public)
    sites = []
    for i in range(5):
        own = train & (digit % 5 == i)
        sites.append(cg.Site(f"s{i}", X[own][:60], coarse[own][:60], learner=NET))
        assert set(digit[own]) == {i, i + 5}
    test, shared = (X[held], coarse[held]), (X[public], coarse[public])
    alone = cg.run(cg.Local(), sites=sites, test=test).accuracy.iloc[-1].mean()
    algorithm = cg.FedMD(rounds=2, public_epochs=15, private_epochs=2, revisit_epochs=1, digest_epochs=3)
    taught = cg.run(algorithm, sites=sites, public=shared, test=test).accuracy.iloc[-1].mean()
    assert alone < 0.75
    assert taught > alone + 0.05


def test_different_nets_can_teach_each_other():
    net = {"a": cg.TorchClassifier("mlp"), "b": NET, "c": NET}
    algorithm = cg.FedMD(rounds=1, public_epochs=1, private_epochs=1)
    result = run(algorithm, lambda name: net[name])
    assert set(result.models) == {"a", "b", "c"}
    assert set(result.releases["kind"]) == {"SomeSoftLabels"}


@pytest.mark.parametrize(
    "settings",
    [
        {"rounds": 0}, {"samples": 0}, {"public_epochs": 0}, {"digest_lr": 0}, {"participation": 0},
        {"participation": "0.5"}, {"participation": None},
    ],
)  # fmt: skip
def test_settings_that_make_no_sense_are_an_error(settings):
    with pytest.raises(ConfigError, match=next(iter(settings))):
        cg.FedMD(**settings)
