"""Private fits of several sites at once: the same samples, clipping and noise as alone."""

from __future__ import annotations

import copy
import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

import collegium as cg
from collegium.core.meeting import Alone
from collegium.privacy.events import SampledGaussian
from collegium.privacy.noise import Noise, noise_source

torch = pytest.importorskip("torch")
pytest.importorskip("opacus")
from torch import nn  # noqa: E402

from collegium.learners.torch.batches import Labelled  # noqa: E402
from collegium.learners.torch.devices import CPU, RandomStream  # noqa: E402
from collegium.privacy.learners import dp_together, dp_training  # noqa: E402
from collegium.privacy.learners.dp_together import PrivateFit, _Fits, _parts  # noqa: E402

pytestmark = pytest.mark.xdist_group("DP-SGD")


def net_of(seed: int) -> nn.Module:
    torch.manual_seed(seed)
    return nn.Sequential(nn.Linear(5, 8), nn.ReLU(), nn.Linear(8, 3))


def fit_of(number: int, records: int = 60, *, net: nn.Module | None = None, **settings: Any) -> PrivateFit:
    """The fit of one site, whose rows, net and noise are its own."""
    rng = np.random.default_rng(number)
    X = rng.normal(size=(records, 5)).astype(np.float32)
    X[: records // 20] *= 1e6  # some records whose gradients are clipped by far
    data = Labelled(dp_training.CleanRows(X), rng.integers(3, size=records), np.arange(3))
    sampling = settings.pop("sampling", 0.4)
    event = SampledGaussian(settings.pop("steps", 6), settings.pop("multiplier", 1.0), sampling)
    options: dict[str, Any] = {
        "noise": noise_source(number),
        "optimizer": "adam",
        "lr": 0.05,
        "weight_decay": 0.01,
        "max_grad_norm": 0.7,
        **settings,
    }
    own = net_of(number) if net is None else net
    return PrivateFit(own, data, event, stream=RandomStream(number), size=records, device=CPU, is_named=True, **options)


def trained(fits: Sequence[PrivateFit]) -> None:
    assert fits[0].together(fits) == [None] * len(fits)


def numbers(net: nn.Module) -> Any:
    return torch.cat([each.detach().ravel() for each in net.parameters()]).numpy()


@pytest.mark.parametrize(("optimizer", "at_once"), [("adam", 2**26), ("momentum", 83 * 20)])
def test_nets_and_noise_are_those_of_fits_alone(optimizer: str, at_once: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dp_training, "VALUES_AT_ONCE", at_once)

    def fits() -> list[PrivateFit]:
        steps = [4, 50, 50, 1]
        return [
            fit_of(n, 60 + 2 * n, optimizer=optimizer, steps=own, multiplier=1.0 + n) for n, own in enumerate(steps)
        ]

    alone, together = fits(), fits()
    for each in alone:
        each.alone()
    trained(together)
    for one, other in zip(alone, together, strict=True):
        np.testing.assert_allclose(numbers(other.net), numbers(one.net), atol=1e-4)
        # Both sources have drawn as much: samples and noise were the same ones.
        np.testing.assert_array_equal(other.noise.words(3), one.noise.words(3))


def test_short_memory_takes_fewer_records_at_a_time_and_draws_nothing_again(monkeypatch: pytest.MonkeyPatch) -> None:
    gradients, widths = dp_together._gradients, []

    def short(layers: Any, weights: Any, buffers: Any, X: Any, y: Any) -> Any:
        widths.append(X.shape[1])
        if X.shape[1] > 8:
            raise torch.cuda.OutOfMemoryError("CUDA out of memory.")
        return gradients(layers, weights, buffers, X, y)

    alone, work = ([fit_of(n, 40 + n, steps=3) for n in range(3)] for _ in range(2))
    for each in alone:
        each.alone()
    monkeypatch.setattr(dp_together, "_gradients", short)
    with pytest.warns(cg.CollegiumWarning, match="records of 3 private fits do not fit into the memory of the GPU"):
        trained(work)
    assert [width <= 8 for width in widths].count(False) <= 3  # it remembers
    for one, other in zip(alone, work, strict=True):
        np.testing.assert_allclose(numbers(other.net), numbers(one.net), atol=1e-4)
        np.testing.assert_array_equal(other.noise.words(3), one.noise.words(3))


def test_clipped_sums_are_those_of_each_site_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """Seen where noise would be added."""
    seen: dict[int, list[Any]] = {}

    def add_nothing(source: Noise, values: Any, sigma: float, sensitivity: float) -> Any:
        seen.setdefault(id(source), []).append(np.array(values))
        return np.asarray(values, dtype=np.float64)

    monkeypatch.setattr(Noise, "add_normal", add_nothing)
    alone, together = ([fit_of(n, 40 + n) for n in range(4)] for _ in range(2))
    for each in alone:
        each.alone()
    trained(together)
    for one, other in zip(alone, together, strict=True):
        sums, others = seen[id(one.noise)], seen[id(other.noise)]
        assert len(sums) == len(others) == 6
        for before, after in zip(sums, others, strict=True):
            np.testing.assert_allclose(after, before, atol=1e-4)
            assert np.linalg.norm(after) > 0


@pytest.mark.parametrize("size", [1e3, 1e9, 3e38, math.nan, math.inf])
def test_one_record_moves_its_own_sum_by_the_clipped_length_and_no_other(size: float) -> None:
    fits = [fit_of(n, 30) for n in range(3)]
    work = _Fits(fits)
    everybody = [np.arange(30)] * 3
    before = work._clipped_sums(everybody)
    without = work._clipped_sums([everybody[0], np.arange(1, 30), everybody[2]])
    fits[1].data.rows._values[0] = size
    changed = work._clipped_sums(everybody)
    assert changed.isfinite().all()
    for sums in (before, changed):
        assert float((sums[1] - without[1]).norm()) <= 0.7 * (1 + 1e-6)
        for other in (0, 2):
            torch.testing.assert_close(sums[other], without[other], atol=1e-6, rtol=0)


def test_rows_that_fill_up_a_sample_are_zeros_that_count_for_nothing() -> None:
    fits = [fit_of(n, 30) for n in range(2)]
    (X, _, is_there), *rest = _parts(fits, [np.arange(5), np.arange(2)], 100)
    assert not rest
    assert (X[1, 2:] == 0).all()
    assert is_there.tolist() == [[True] * 5, [True, True, False, False, False]]


def test_noise_has_its_law_and_is_independent_between_sites() -> None:
    """Steps on samples without a record are noise alone: one of size 1 over the expected number."""

    def fits() -> list[PrivateFit]:
        wide = [nn.Sequential(nn.Linear(5, 900), nn.Linear(900, 3)) for _ in range(4)]
        return [
            fit_of(
                n, net=wide[n], sampling=1e-9, steps=1, optimizer="sgd", lr=1e-9 * 60, weight_decay=0.0, multiplier=m
            )
            for n, m in enumerate([1.0, 2.0, 2.0, 4.0])
        ]

    work = fits()
    for each in work:  # so that what a step adds is seen exactly
        for parameter in each.net.parameters():
            parameter.data.zero_()
    trained(work)
    noise = np.stack([numbers(each.net).astype(np.float64) for each in work])
    np.testing.assert_allclose(noise.std(axis=1), 0.7 * np.array([1.0, 2.0, 2.0, 4.0]), rtol=0.03)
    assert np.abs(noise.mean(axis=1)).max() < 0.1
    among = np.corrcoef(noise) - np.eye(4)
    assert np.abs(among).max() < 5 / math.sqrt(noise.shape[1])
    shares = np.mean(np.abs(noise[0]) < 0.7)
    assert shares == pytest.approx(math.erf(math.sqrt(0.5)), abs=0.02)


def test_secure_noise_differs_between_sites_and_fits() -> None:
    same = [copy.deepcopy(net_of(0)) for _ in range(3)]
    work = [fit_of(0, net=net, noise=noise_source(None)) for net in same]
    trained(work)
    found = {numbers(each.net).tobytes() for each in work}
    assert len(found) == 3


def test_a_net_that_cannot_be_computed_with_others_is_fitted_alone_and_has_drawn_nothing() -> None:
    class Picky(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = nn.Linear(5, 3)

        def forward(self, X: Any) -> Any:
            return self.layer(X) if float(X.sum()) > -1e30 else self.layer(-X)

    work = [fit_of(n, net=Picky()) for n in range(2)]
    outcomes = work[0].together(work)
    assert [isinstance(each, Alone) and "cannot be computed with others" in each.why for each in outcomes] == [True] * 2
    np.testing.assert_array_equal(work[0].noise.words(2), noise_source(0).words(2))


@pytest.mark.parametrize(
    ("layers", "why"),
    [
        ([nn.Unflatten(1, (1, 5)), nn.Conv1d(1, 2, 3), nn.Flatten(), nn.Linear(6, 3)], "one net at a time"),
        ([nn.Dropout(), nn.Linear(5, 3)], "draws random numbers"),
        ([nn.Linear(5, 5).requires_grad_(False), nn.Linear(5, 3)], "do not learn"),
    ],
)
def test_nets_of_some_kinds_are_fitted_alone(layers: list[nn.Module], why: str) -> None:
    fit = fit_of(0, net=nn.Sequential(*layers))
    assert fit.kind is None
    assert why in fit.why_alone


def test_only_fits_with_about_equally_large_samples_are_one_kind() -> None:
    assert fit_of(0, 60).kind == fit_of(1, 62).kind
    assert fit_of(0, 60).kind != fit_of(1, 200).kind
    assert fit_of(0).kind != fit_of(1, lr=0.1).kind


def test_a_run_gives_the_same_together_as_alone() -> None:
    rng = np.random.default_rng(0)
    y = np.arange(400) % 3
    X = (rng.normal(size=(400, 6)) + 3 * np.eye(3, 6)[y]).astype(np.float32)
    learner = cg.PrivateTorch(noise_multiplier=1.0, steps=8, batch_size=20)
    split = cg.split(X, y, sites=4, public=80, test=60, seed=0)
    sites = [cg.Site(name, *part, learner=learner) for name, part in zip(split.names, split.sites, strict=True)]
    shared: dict[str, Any] = {"sites": sites, "public": split.public, "test": split.test, "seed": 1}
    alone = cg.run(cg.FedCT(rounds=2), cohort="off", **shared)
    together = cg.run(cg.FedCT(rounds=2), cohort="on", **shared)
    assert together.about["cohort"]["together"] == 4
    assert together.labels is not None
    assert together.labels == alone.labels
    assert together.releases["privacy"].tolist() == alone.releases["privacy"].tolist()
