"""PrivateTorch: clipped gradients, noise and samples from our source, and a claim that follows from them."""

from __future__ import annotations

import copy
import math
import pickle
import sys
from typing import Any

import numpy as np
import pandas as pd
import pytest
from numpy.typing import NDArray
from scipy import sparse
from sklearn.base import clone
from sklearn.compose import make_column_transformer
from sklearn.exceptions import NotFittedError
from sklearn.pipeline import Pipeline
from sklearn.preprocessing import OneHotEncoder, StandardScaler
from sklearn.tree import DecisionTreeClassifier

from collegium.errors import ConfigError, MissingExtra
from collegium.privacy import accountant
from collegium.privacy.claims import SEEDED_NOISE
from collegium.privacy.events import SampledGaussian
from collegium.privacy.learners.base import PrivateLearner
from collegium.privacy.learners.classifier import KNOWN_CLASSES, KNOWN_SIZE
from collegium.privacy.learners.sgd import PrivateTorch

torch = pytest.importorskip("torch")
pytest.importorskip("opacus")
from torch import nn  # noqa: E402

from collegium.learners.torch.classifier import TorchClassifier  # noqa: E402
from collegium.privacy.learners import dp_training  # noqa: E402

pytestmark = pytest.mark.xdist_group("DP-SGD")  # its noise is calibrated once

Data = tuple[NDArray[Any], NDArray[Any]]
QUICK: dict[str, Any] = {"epochs": 1, "noise_multiplier": 1.0}  # nothing to calibrate


@pytest.fixture(scope="module")
def blobs() -> Data:
    rng = np.random.default_rng(0)
    y = np.arange(300) % 3
    X = rng.normal(size=(300, 5)) + 4 * np.eye(3, 5)[y]
    return X.astype(np.float32), np.array(["a", "b", "c"])[y]


def event_of(learner: PrivateTorch, n: int = 300) -> SampledGaussian:
    (event,) = learner.charge(n, 0, 3).events
    assert isinstance(event, SampledGaussian)
    return event


# What it costs


@pytest.mark.parametrize(("epsilon", "fits"), [(1.0, 1), (2.0, 3)])
def test_all_fits_together_cost_epsilon(epsilon: float, fits: int) -> None:
    learner = PrivateTorch(epsilon=epsilon, fits=fits, epochs=5, batch_size=50)
    event = event_of(learner, 1000)
    assert (event.count, event.sampling) == (100, 0.05)
    total, how = accountant.epsilon_of([event.times(fits)], 1e-5)
    assert epsilon * (1 - 1e-3) <= total <= epsilon * (1 + 1e-9)
    assert how.startswith("PLD")


def test_opacus_own_accountant_claims_no_less() -> None:
    from opacus.accountants import RDPAccountant

    event = event_of(PrivateTorch(epsilon=1.0, epochs=5, batch_size=50), 1000)
    theirs = RDPAccountant()
    for _ in range(event.count):
        theirs.step(noise_multiplier=event.noise_multiplier, sample_rate=event.sampling)
    assert 1.0 <= theirs.get_epsilon(1e-5) < 1.3


def test_the_claim(blobs: Data) -> None:
    learner = PrivateTorch(epsilon=1.0, epochs=2, batch_size=50, random_state=0)
    before = learner.charge(300, 0, 3)
    learner.fit_private(*blobs, None, classes=["a", "b", "c"])
    assert learner.charge_ == before
    claim = learner.privacy_
    assert claim.epsilon == pytest.approx(1.0, rel=1e-3)
    assert (claim.kind, claim.unit, claim.relation) == ("dp", "record", "add_remove")
    assert claim.assumptions == (KNOWN_SIZE, SEEDED_NOISE)
    assert KNOWN_CLASSES in learner.fit(*blobs).privacy_.assumptions
    assert SEEDED_NOISE not in PrivateTorch(**QUICK).fit(*blobs).privacy_.assumptions


def test_a_noise_multiplier_instead_of_epsilon(blobs: Data) -> None:
    learner = PrivateTorch(noise_multiplier=1.5, steps=7, batch_size=30, random_state=0).fit(*blobs)
    assert learner.charge_.events == (SampledGaussian(7, 1.5, 0.1),)
    assert learner.privacy_.epsilon == accountant.epsilon_of([SampledGaussian(7, 1.5, 0.1)], 1e-5)[0]


def test_few_records_are_all_drawn(blobs: Data) -> None:
    learner = PrivateTorch(epsilon=1.0, epochs=3, batch_size=256, random_state=0).fit(blobs[0][:20], blobs[1][:20])
    assert learner.charge_.events[0].sampling == 1.0  # type: ignore[attr-defined]
    assert learner.privacy_.epsilon == pytest.approx(1.0, abs=1e-6)


# What a step does


def train(data: Data, steps: int = 1, sampling: float = 1.0, multiplier: float = 1e-6, **settings: Any) -> Any:
    """One net before and after, with a noise that can be told."""
    from collegium.learners.torch.batches import Labelled, Rows
    from collegium.learners.torch.devices import CPU, RandomStream
    from collegium.privacy.noise import noise_source

    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(5, 8), nn.ReLU(), nn.Linear(8, 3))
    before = copy.deepcopy(net)
    rows = Labelled(Rows(data[0]), np.searchsorted(["a", "b", "c"], data[1]), np.arange(3))
    options: dict[str, Any] = {
        "optimizer": "sgd",
        "lr": 1.0,
        "weight_decay": 0.0,
        "max_grad_norm": 0.5,
        "size": len(data[1]),
        "deterministic": True,
        **settings,
    }
    event = SampledGaussian(steps, multiplier, sampling)
    dp_training.train_privately(net, rows, event, noise_source(0), RandomStream(0), device=CPU, **options)
    return before, net


def pairs(before: Any, net: Any) -> Any:
    return zip(before.parameters(), net.parameters(), strict=True)


def moved(before: Any, net: Any) -> float:
    return math.sqrt(sum(float(((a - b) ** 2).sum().detach()) for a, b in pairs(before, net)))


@pytest.mark.parametrize("size", [1e3, 1e9, 3e38])
def test_a_huge_record_moves_the_net_by_the_clipped_length_at_most(blobs: Data, size: float) -> None:
    X = blobs[0][:10].copy()
    _, without = train((X[1:], blobs[1][1:10]), lr=9.0)  # sums over records: lr is divided by their expected number
    X[0] = size
    _, with_it = train((X, blobs[1][:10]), lr=10.0)
    assert moved(without, with_it) <= 0.5 * (1 + 1e-4)
    assert all(p.isfinite().all() for p in with_it.parameters())


def test_the_sum_of_all_records_is_clipped_record_by_record(blobs: Data) -> None:
    assert moved(*train((blobs[0][:50], blobs[1][:50]), max_grad_norm=1e-3)) <= 1e-3 * (1 + 1e-4)
    # Gradients that are not clipped are those of ordinary training.
    before, net = train(blobs, max_grad_norm=1e6, multiplier=1e-12)
    codes = torch.from_numpy(np.searchsorted(["a", "b", "c"], blobs[1]))
    nn.functional.cross_entropy(before(torch.from_numpy(blobs[0])), codes).backward()
    for a, b in pairs(before, net):
        torch.testing.assert_close(b, a - a.grad, atol=1e-5, rtol=1e-4)


def test_parts_of_a_batch_give_the_same_step(blobs: Data, monkeypatch: Any) -> None:
    _, whole = train(blobs, multiplier=0.1)
    monkeypatch.setattr(dp_training, "VALUES_AT_ONCE", 7 * 80)
    _, parts = train(blobs, multiplier=0.1)
    for a, b in pairs(whole, parts):
        torch.testing.assert_close(a, b, atol=1e-5, rtol=1e-4)


def test_noise_has_the_size_that_the_charge_says(blobs: Data) -> None:
    zero = np.zeros_like(blobs[0][:100])
    before, net = train((zero, blobs[1][:100]), steps=200, sampling=0.01, multiplier=4.0, lr=1e-6)
    changes = np.concatenate([(b - a).detach().numpy().ravel() for a, b in pairs(before, net)])
    # 200 steps of lr * noise, over an expected batch of one record; clipped gradients add little to that.
    assert np.std(changes) == pytest.approx(1e-6 * math.sqrt(200) * 4.0 * 0.5, rel=0.3)


def test_steps_without_any_record_are_noise(blobs: Data) -> None:
    before, net = train((blobs[0][:3], blobs[1][:3]), steps=3, sampling=1e-9, multiplier=1e-12)
    assert moved(before, net) < 1.0
    assert moved(before, net) > 0


def test_nothing_without_noise_stays_with_the_net(blobs: Data) -> None:
    _, net = train(blobs)
    for p in net.parameters():
        assert p.grad is None
        assert getattr(p, "summed_grad", None) is None
        assert getattr(p, "grad_sample", None) is None


# What it learns


class WithDropout(nn.Module):  # type: ignore[misc]
    """Dropout that no layer tells of."""

    def __init__(self) -> None:
        super().__init__()
        self.out = nn.Linear(5, 3)

    def forward(self, x: Any) -> Any:
        return self.out(nn.functional.dropout(x, 0.5, self.training))


def test_it_learns(blobs: Data) -> None:
    learner = PrivateTorch(noise_multiplier=1.1, epochs=10, batch_size=50, lr=0.05, random_state=0).fit(*blobs)
    assert learner.score(*blobs) > 0.9
    assert learner.n_features_in_ == 5
    np.testing.assert_array_equal(learner.classes_, ["a", "b", "c"])
    probabilities = learner.predict_proba(blobs[0])
    np.testing.assert_array_equal(learner.classes_[probabilities.argmax(axis=1)], learner.predict(blobs[0]))
    again = pickle.loads(pickle.dumps(learner))
    np.testing.assert_array_equal(again.predict(blobs[0]), learner.predict(blobs[0]))


def test_seeds_and_secure_noise(blobs: Data) -> None:
    seeded = [PrivateTorch(**QUICK, random_state=5).fit(*blobs).predict_proba(blobs[0]) for _ in range(2)]
    np.testing.assert_array_equal(*seeded)
    secure = [PrivateTorch(**QUICK).fit(*blobs).predict_proba(blobs[0]) for _ in range(2)]
    assert not np.array_equal(*secure)
    state = torch.get_rng_state()
    PrivateTorch(**QUICK).fit(*blobs)
    assert torch.equal(torch.get_rng_state(), state)


def test_it_predicts_in_eval_mode(blobs: Data) -> None:
    net = WithDropout()
    learner = PrivateTorch(net, **QUICK, random_state=0).fit(*blobs)
    np.testing.assert_array_equal(learner.predict_proba(blobs[0]), learner.predict_proba(blobs[0]))
    again = PrivateTorch(net, **QUICK, random_state=0).fit(*blobs)  # dropout is seeded too
    np.testing.assert_array_equal(learner.predict_proba(blobs[0]), again.predict_proba(blobs[0]))


def test_a_class_without_records_has_a_column(blobs: Data) -> None:
    learner = PrivateTorch(**QUICK, random_state=0)
    learner.fit_private(*blobs, None, classes=["a", "b", "c", "never"])
    assert learner.predict_proba(blobs[0]).shape == (300, 4)


def test_preparation_is_fitted_on_public_rows_only(blobs: Data) -> None:
    rng = np.random.default_rng(0)
    frame = pd.DataFrame({"w": rng.choice(["x", "y"], 200), "n": rng.normal(size=200)})
    y = np.where(frame["w"] == "x", 1, 0)
    prepare = make_column_transformer((OneHotEncoder(handle_unknown="ignore"), ["w"]), (StandardScaler(), ["n"]))
    learner = PrivateTorch(noise_multiplier=1.1, epochs=10, batch_size=40, lr=0.1, prepare=prepare, random_state=0)
    public = frame[:50].assign(n=frame["n"][:50] + 100)
    learner.fit(frame[50:], y[50:], public)
    scaler = learner.prepare_.named_transformers_["standardscaler"]
    assert scaler.mean_[0] == pytest.approx(public["n"].mean())
    assert learner.score(public, y[:50]) > 0.9
    assert isinstance(learner.public_learner(), Pipeline)
    with pytest.raises(ConfigError, match="`public`"):
        learner.fit(frame[50:], y[50:])


def test_images_and_nets_with_norms(blobs: Data) -> None:
    X = np.random.default_rng(0).normal(size=(20, 64)).astype(np.float32)
    learner = PrivateTorch("cnn_mri", steps=2, noise_multiplier=1.0, image_shape=(1, 8, 8), random_state=0).fit(
        X, np.arange(20) % 2
    )
    assert not any(isinstance(m, nn.BatchNorm2d) for m in learner.model_.to_module().modules())
    assert learner.predict(X).shape == (20,)


def test_the_site_goes_on_from_the_private_weights(blobs: Data) -> None:
    X, y = blobs
    learner = PrivateTorch("mlp", steps=3, noise_multiplier=1.0, random_state=0)
    assert learner.public_learner().net == "mlp"
    learner.fit(X, y)
    other = learner.public_learner()
    assert isinstance(other, TorchClassifier)
    other.set_params(lr=0.0).update(X, y, classes=["a", "b", "c"], steps=1)
    np.testing.assert_allclose(other.predict_proba(X), learner.predict_proba(X), atol=1e-6)
    assert isinstance(PrivateTorch(student=DecisionTreeClassifier()).public_learner(), DecisionTreeClassifier)


# No record is an error: whether a fit fails would tell of the records, and for free


BAD_CELLS = [np.nan, np.inf, -1e300, 1e300, 1e42]


@pytest.mark.parametrize("cell", BAD_CELLS)
def test_a_record_with_a_gap_or_a_huge_value_is_no_error(blobs: Data, cell: float) -> None:
    X = blobs[0].astype(np.float64)
    X[7, 2] = cell
    kept = copy.deepcopy(X)
    for table in (X, pd.DataFrame(X), sparse.csr_matrix(X), X.astype(object)):
        learner = PrivateTorch(**QUICK, random_state=0).fit_private(table, blobs[1], blobs[0], classes=["a", "b", "c"])
        assert np.isfinite(learner.predict_proba(blobs[0])).all()
    np.testing.assert_array_equal(X, kept)


def test_a_forged_public_column_does_not_tell_whether_any_record_has_the_flag() -> None:
    """The public column is so small that, scaled like it, a flag of 1 is beyond float32."""
    rng = np.random.default_rng(0)
    public = pd.DataFrame({"n": rng.normal(size=120), "flag": np.where(np.arange(120) % 2, 1e-42, -1e-42)})
    weights = []
    for flag in (0.0, 1.0):
        frame = pd.DataFrame({"n": rng.normal(size=90), "flag": 0.0})
        frame.loc[17, "flag"] = flag
        learner = PrivateTorch(prepare=StandardScaler(), **QUICK, random_state=0)
        weights.append(learner.fit(frame, np.arange(90) % 2, public).model_.get_weights())
    assert all(np.isfinite(value).all() for one in weights for value in one.values())


def test_a_record_that_cannot_be_prepared_counts_as_zeros_and_moves_no_other() -> None:
    frame = pd.DataFrame({"w": ["x", "y"] * 30, "n": np.arange(60.0)})
    prepare = make_column_transformer((OneHotEncoder(), ["w"]), (StandardScaler(), ["n"]))
    learner = PrivateTorch(prepare=prepare, **QUICK)
    learner._fit_preparation(frame)
    records = frame.copy().astype({"n": object})
    records.loc[11, "w"] = "never seen"
    records.loc[40, "n"] = "ill-formed"
    clean, dirty = (learner._clean_rows(table, frame).take(slice(None)) for table in (frame, records))
    bad = np.isin(np.arange(60), [11, 40])
    assert (dirty[bad] == 0).all()
    np.testing.assert_array_equal(dirty[~bad], clean[~bad])


class Picky(nn.Module):  # type: ignore[misc]
    """A net that fails on some rows."""

    def __init__(self, always: bool = False) -> None:
        super().__init__()
        self.out = nn.Linear(5, 3)
        self.always = always

    def forward(self, x: Any) -> Any:
        if self.always or (x > 1000).any():
            raise RuntimeError("too large")
        return self.out(x)


def test_a_record_on_which_the_net_fails_counts_as_zeros(blobs: Data) -> None:
    X, net = blobs[0].copy(), Picky()
    X[[3, 250]] = 5000
    with_it = PrivateTorch(net, **QUICK, random_state=0).fit(X, blobs[1])
    X[[3, 250]] = 0
    as_zeros = PrivateTorch(net, **QUICK, random_state=0).fit(X, blobs[1])
    np.testing.assert_array_equal(with_it.predict_proba(blobs[0]), as_zeros.predict_proba(blobs[0]))
    with pytest.raises(ConfigError, match="does not take rows"):
        PrivateTorch(Picky(always=True), **QUICK).fit(*blobs)


def test_what_cannot_work_is_said_of_public_rows_and_columns(blobs: Data) -> None:
    frame = pd.DataFrame({"w": ["x", "y"] * 30, "n": np.arange(60.0)})
    y = np.arange(60) % 2
    with pytest.raises(ConfigError, match="not numeric: w"):
        PrivateTorch(**QUICK).fit(frame, y, frame)
    with pytest.raises(ConfigError, match="not numeric: w"):
        PrivateTorch(**QUICK).fit(frame, y)
    with pytest.raises(ConfigError, match="same columns"):
        PrivateTorch(prepare=StandardScaler(), **QUICK).fit(frame, y, frame[["n"]])


# Settings and errors


@pytest.mark.parametrize("affine", [True, False])
def test_batch_norm_is_refused(blobs: Data, affine: bool) -> None:
    net = nn.Sequential(nn.Linear(5, 8), nn.BatchNorm1d(8, affine=affine), nn.Linear(8, 3))
    with pytest.raises(ConfigError, match=r"batch norm.*GroupNorm"):
        PrivateTorch(net, **QUICK).fit(*blobs)


def test_other_layers_that_keep_statistics_are_refused(blobs: Data) -> None:
    net = nn.Sequential(nn.Unflatten(1, (1, 5)), nn.InstanceNorm1d(1, affine=True, track_running_stats=True))
    with pytest.raises(ConfigError, match="PrivateTorch cannot train this net"):
        PrivateTorch(nn.Sequential(net, nn.Flatten(), nn.Linear(5, 3)), **QUICK).fit(*blobs)


def test_settings_are_kept_and_cloned(blobs: Data) -> None:
    learner = PrivateTorch("mlp", 2.0, 1e-6, lr=0.5, fits=3, image_shape=(1, 1, 5))
    assert isinstance(learner, PrivateLearner)
    assert repr(clone(learner).get_params()) == repr(learner.get_params())
    with pytest.raises(NotFittedError):
        learner.predict(blobs[0])


@pytest.mark.parametrize(
    "settings",
    [
        {"epsilon": 0}, {"delta": 1.5}, {"fits": 0}, {"epochs": 0}, {"batch_size": 0}, {"steps": 0}, {"lr": 0},
        {"max_grad_norm": -1}, {"noise_multiplier": 0},
    ],
)  # fmt: skip
def test_settings_that_cannot_work(settings: dict[str, Any], blobs: Data) -> None:
    learner = PrivateTorch(**settings)
    for attempt in (learner.check, lambda: learner.fit(*blobs)):
        with pytest.raises(ConfigError, match=f"PrivateTorch: {next(iter(settings))} "):
            attempt()


def test_unknown_names_are_refused(blobs: Data) -> None:
    with pytest.raises(ConfigError, match="optimizer"):
        PrivateTorch(optimizer="adm").check()
    with pytest.raises(ConfigError, match="device"):
        PrivateTorch(device="abacus").check()
    with pytest.raises(ConfigError, match="Did you mean 'linear'"):
        PrivateTorch("linaer", **QUICK).fit(*blobs)
    with pytest.raises(ConfigError, match="no records"):
        PrivateTorch().charge(0, 10, 2)


def test_a_missing_package_is_named(monkeypatch: Any) -> None:
    monkeypatch.setitem(sys.modules, "opacus", None)
    monkeypatch.delitem(sys.modules, "collegium.privacy.learners.dp_training", raising=False)
    with pytest.raises(MissingExtra, match=r"collegium\[opacus\]"):
        PrivateTorch().check()
