"""VisionClassifier: a net on a backbone's features, frozen or trained with them, alone and in federations."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import cloudpickle
import numpy as np
import pytest
import torch
from sklearn.base import clone
from sklearn.datasets import load_digits
from tests.learners.vision.tiny_backbones import tiny_backbone

import collegium as cg
from collegium.errors import CollegiumWarning, ConfigError, SiteError
from collegium.learners.vision import features as module

X = (load_digits().images / 16).astype(np.float32)[:, None]
Y = load_digits().target


@pytest.fixture(scope="module")
def split() -> cg.Split:
    return cg.split(X, Y, sites=3, public=200, test=200, train=300, seed=0)


def sites(split: cg.Split, *learners: Any) -> list[cg.Site]:
    every = learners * len(split.sites) if len(learners) == 1 else learners
    return [cg.Site(name, *part, learner=own) for name, part, own in zip(split.names, split.sites, every, strict=True)]


def make(**settings: Any) -> cg.VisionClassifier:
    return cg.VisionClassifier(**{"model": tiny_backbone(), "lr": 0.1, "epochs": 5, "random_state": 0, **settings})


def test_a_frozen_backbone_learns_by_its_head_alone() -> None:
    net = make(epochs=20).fit(X[:400], Y[:400])
    assert np.mean(net.predict(X[400:800]) == Y[400:800]) > 0.5  # random features
    backbone, own = net.backbone_, net.get_weights()
    assert {name: value.shape for name, value in own.items()} == {
        f"{backbone}.1.weight": (10, 64),
        f"{backbone}.1.bias": (10,),
    }
    assert net.get_weights("features") == {}
    assert net.input_shape_ == (1, 8, 8)
    np.testing.assert_array_equal(net.embed(X[:5]), make().embed(X[:5]))  # as before any training


def test_the_whole_net_is_what_it_says() -> None:
    for train in ("head", "all"):
        net = make(train=train, epochs=1).fit(X[:64], Y[:64])
        whole = net.to_module()
        with torch.no_grad():
            np.testing.assert_allclose(whole(torch.from_numpy(X[:9])), net.predict_logits(X[:9]), atol=1e-5)


def test_fine_tuning_starts_from_the_backbone_and_changes_it() -> None:
    net = make(train="all", epochs=1).initialize(X[:1], range(10))
    before = net.get_weights("features")
    np.testing.assert_allclose(net.embed(X[:5]), make().embed(X[:5]), atol=1e-5)
    net.update(X[:200], Y[:200], classes=range(10))
    after = net.get_weights("features")
    assert before.keys() == after.keys()
    assert all(name.startswith("backbone.") for name in after)
    assert not np.array_equal(before["backbone.0.weight"], after["backbone.0.weight"])
    np.testing.assert_array_equal(make().embed(X[:5]), make().embed(X[:5]))  # others' backbone stays as it was


def test_it_goes_on_from_its_weights() -> None:
    net = make(epochs=1).update(X[:200], Y[:200], classes=range(10))
    first = net.last_update_.loss
    for _ in range(5):
        net.update(X[:200], Y[:200], classes=range(10))
    assert net.last_update_.loss < first


def test_features_are_computed_once_for_all_sites_and_rounds(split: cg.Split, monkeypatch: Any) -> None:
    computed: list[int] = []
    compute = module.Features._compute

    def counted(self: Any, pictures: Any, rows: Any) -> Any:
        computed.append(len(rows))
        return compute(self, pictures, rows)

    monkeypatch.setattr(module.Features, "_compute", counted)
    net = make(model=tiny_backbone(seed=5))
    cg.run(cg.FedCT(rounds=3, consensus=cg.QualifiedMajority(0.7)), sites=sites(split, net), public=split.public)
    # Two digits may be the same image.
    assert sum(computed) == len(np.unique(np.concatenate([split.public, *(part[0] for part in split.sites)]), axis=0))


def test_heads_are_trained_together_as_they_are_alone(split: cg.Split) -> None:
    runs = [
        cg.run(cg.FedCT(rounds=2), sites=sites(split, make(epochs=1)), public=split.public, test=split.test, cohort=how)
        for how in ("on", "off")
    ]
    assert runs[0].trained_together == "3 of 3 sites were trained together."
    np.testing.assert_allclose(runs[0].accuracy, runs[1].accuracy, atol=0.02)


@pytest.mark.parametrize("train", ["head", "all"])
def test_every_way_of_sharing_takes_it(split: cg.Split, train: str) -> None:
    net = make(train=train, epochs=1)
    for method in (cg.FedCT(rounds=2), cg.FedAvg(rounds=2), cg.FedAUX(rounds=1, epsilon=10), cg.FedDF(rounds=1)):
        run = cg.run(method, sites=sites(split, net), public=split.public, test=split.test)
        assert run.refusals.empty, type(method).__name__
    assert all(len(model.estimator.get_weights()) == (2 if train == "head" else 8) for model in run.models.values())


def test_averaged_heads_are_all_that_is_sent(split: cg.Split) -> None:
    frozen, trained = (
        cg.run(cg.FedAvg(rounds=1), sites=sites(split, make(train=how, epochs=1)), test=split.test)
        for how in ("head", "all")
    )
    assert frozen.releases["bytes"].max() < trained.releases["bytes"].max() / 10


def test_different_backbones_share_labels_and_no_weights(split: cg.Split) -> None:
    own = [make(model=tiny_backbone(seed), epochs=1) for seed in range(3)]
    run = cg.run(cg.FedCT(rounds=2), sites=sites(split, *own), public=split.public, test=split.test)
    assert run.refusals.empty
    with pytest.raises(ConfigError, match="one architecture only"):
        cg.run(cg.FedAvg(rounds=1), sites=sites(split, *own), test=split.test)


def test_label_propagation_by_a_backbones_features() -> None:
    def federation(*models: str) -> list[cg.Site]:
        parts = [slice(i, 320, 4) for i in range(4)]
        return [
            cg.Site(f"s{i}", X[p][:20], Y[p][:20], unlabeled=X[p][20:], learner=make(model=model))
            for i, (p, model) in enumerate(zip(parts, models, strict=True))
        ]

    method = cg.XCLP(embed=True, bits=512, hamming="masked")
    same = cg.run(method, sites=federation(*[tiny_backbone()] * 4))
    truth = np.concatenate([Y[i:320:4][20:] for i in range(4)])
    assert np.mean(np.concatenate([same.labels[f"s{i}"] for i in range(4)]) == truth) > 0.6
    # The last one's features are as many and mean something else: no graph joins them.
    with pytest.warns(CollegiumWarning, match="'s3' did not answer"):
        other = cg.run(method, sites=federation(*[tiny_backbone()] * 3, tiny_backbone(1)))
    assert list(other.refusals["party"]) == ["s3"]


def test_stored_models_have_the_head_and_the_name_of_the_backbone(tmp_path: Path) -> None:
    folder = shutil.copytree(tiny_backbone(), tmp_path / "own")
    net = make(model=str(folder)).fit(X[:100], Y[:100])
    stored = cloudpickle.dumps(net)
    assert len(stored) < 60_000 < (folder / "model.safetensors").stat().st_size
    loaded = cloudpickle.loads(stored)
    np.testing.assert_array_equal(loaded.predict(X[:50]), net.predict(X[:50]))
    shutil.rmtree(folder)
    shutil.copytree(tiny_backbone(seed=1), folder)
    with pytest.raises(ConfigError, match="was trained on the backbone"):
        loaded.predict(X[:50])
    assert loaded.fit(X[:100], Y[:100]).backbone_ != net.backbone_


def test_settings_that_cannot_work() -> None:
    for settings, why in (
        ({"augment": True}, "train='all'"),
        ({"train": "all", "norm": "group"}, "leave it out"),
        ({"train": "some"}, "train"),
        ({"size": 30}, "leave size out"),
        ({"model": ""}, "model must name"),
    ):
        with pytest.raises(ConfigError, match=why):
            make(**settings).fit(X[:20], Y[:20])


def test_a_clone_has_its_settings() -> None:
    net = make(train="all", size=12, net="mlp")
    assert clone(net).get_params() == net.get_params()
    assert cg.VisionClassifier("folder").model == "folder"


@pytest.mark.parametrize(
    ("settings", "why"),
    [
        ({"net": "lineer"}, "There is no net 'lineer'. Did you mean 'linear'"),
        ({"net": "cnn_aimhi"}, "."),
        ({"augment": True}, "augment=True makes new images"),
        ({"train": "all", "norm": "group"}, "norm='group' would take the place"),
    ],
)
def test_settings_that_do_not_fit_are_said_before_the_run(settings: dict[str, Any], why: str, split: cg.Split) -> None:
    """Of one site, which would drop out of it."""
    own = (make(**settings), make(), make())
    with pytest.raises(SiteError, match=f"Site 'site0': {why}"):
        cg.run(cg.FedCT(rounds=1), sites=sites(split, *own), public=split.public)


@pytest.mark.parametrize("which", ["public", "test"])
def test_images_that_all_share_are_looked_at_before_the_run(which: str, split: cg.Split) -> None:
    bright = {"public": {"public": split.public * 255}, "test": {"public": split.public, "test": (X * 255, Y)}}[which]
    with pytest.raises(SiteError, match=f"the {which} set contains pixels from 0 to 255"):
        cg.run(cg.FedCT(rounds=1), sites=sites(split, make()), **bright)


def test_what_cannot_begin_is_said_before_the_run(split: cg.Split) -> None:
    lost = [make(), make(), make(model="no/where/at/all")]
    with pytest.raises(SiteError, match=rf"{split.names[2]}.*no such folder"):
        cg.run(cg.FedCT(rounds=1), sites=sites(split, *lost), public=split.public)
    bright = [cg.Site(f"s{i}", 16 * own, y, learner=make()) for i, (own, y) in enumerate(split.sites)]
    with pytest.raises(SiteError, match="from 0 to 16"):
        cg.run(cg.FedCT(rounds=1), sites=bright, public=split.public)


def test_less_memory_means_smaller_batches(monkeypatch: Any) -> None:
    from collegium.learners.torch.training import Training

    whole, sizes = Training.carry_out, []

    def short_of_memory(self: Training, update: Any) -> Any:
        sizes.append(update.schedule.batch_size)
        if sizes[-1] > 16:
            raise torch.cuda.OutOfMemoryError("CUDA out of memory.")
        return whole(self, update)

    monkeypatch.setattr(Training, "carry_out", short_of_memory)
    net = make(train="all", epochs=1)
    with pytest.warns(CollegiumWarning, match="do not fit into memory") as said:
        net.update(X[:100], Y[:100], classes=range(10))
    assert str(said[0].message) == "64 images do not fit into memory: 32 are trained at a time."
    assert sizes == [64, 32, 16]
    net.update(X[:100], Y[:100], classes=range(10))
    assert sizes == [64, 32, 16, 16]
    sizes.clear()
    with pytest.raises(torch.cuda.OutOfMemoryError):  # a head is not what fills a memory
        make(epochs=1).fit(X[:100], Y[:100])
