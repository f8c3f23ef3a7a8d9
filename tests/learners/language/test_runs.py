"""Language models at sites: beside other learners, in methods that share labels, soft labels and weights."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from sklearn.ensemble import RandomForestClassifier
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.neighbors import KNeighborsClassifier, KNeighborsRegressor
from sklearn.pipeline import make_pipeline
from tests.learners.language.tiny_models import reviews

import collegium as cg

pytestmark = pytest.mark.xdist_group("language models")
ROWS = 30
PUBLIC, PUBLIC_TRUTH = reviews(80, seed=10)
TEST = reviews(60, seed=11)


def learner(model: str, **settings: Any) -> cg.TextClassifier:
    return cg.TextClassifier(model, **{"max_length": 16, "lr": 5e-3, "epochs": 6, **settings})


def federate(algorithm: Any, *learners: Any, forms: Any = (), **options: Any) -> cg.Run:
    forms = forms or [list] * len(learners)
    parts = [reviews(ROWS, seed=at) for at in range(len(learners))]
    sites = [
        cg.Site(f"site{at}", form(X), y, learner=each)
        for at, ((X, y), each, form) in enumerate(zip(parts, learners, forms, strict=True))
    ]
    return cg.run(algorithm, sites=sites, **{"public": PUBLIC, "test": TEST, **options})


def mixed(models: dict[str, str]) -> list[Any]:
    """Five kinds of learner, and three tokenizers."""
    return [
        learner(models["llama"], peft="lora"),
        learner(models["bert"], train="embed"),
        make_pipeline(TfidfVectorizer(), RandomForestClassifier(20)),
        learner(models["gpt"], train="embed", head=KNeighborsClassifier(5)),
        learner(models["bert"], train="head"),
    ]


@pytest.mark.parametrize(
    ("algorithm", "least"),
    [(cg.FedCT(rounds=2), 0.7), (cg.AIMHI(rounds=2, period=1), 0.7), (cg.FedKT(partitions=1, subsets=2), 0.55)],
    ids=["fedct", "aimhi", "fedkt"],
)
def test_kinds_of_all_sorts_share_labels(algorithm: cg.Algorithm, least: float, models: dict[str, str]) -> None:
    run = federate(algorithm, *mixed(models))
    assert run.refusals.empty
    assert run.accuracy.to_numpy().mean() > least


def test_pseudo_labels_weigh_what_they_are_worth(models: dict[str, str]) -> None:
    """A head that takes no weights draws its rows instead."""
    run = federate(cg.FedCT(rounds=1, weights="confidence", guard=True), *mixed(models)[1:4])
    assert run.refusals.empty
    assert run.accuracy.to_numpy().mean() > 0.6


@pytest.mark.parametrize(
    ("algorithm", "public"),
    [
        (cg.DistributedDistillation(rounds=2), PUBLIC),
        (cg.FedMD(rounds=1, public_epochs=4, private_epochs=4, revisit_epochs=1), (PUBLIC, PUBLIC_TRUTH)),
    ],
    ids=["dd", "fedmd"],
)
def test_soft_labels_are_shared(algorithm: cg.Algorithm, public: Any, models: dict[str, str]) -> None:
    run = federate(algorithm, learner(models["llama"], peft="lora"), learner(models["bert"]), public=public)
    assert run.refusals.empty
    assert run.accuracy.to_numpy().mean() > 0.6


@pytest.mark.parametrize("settings", [{"peft": "lora"}, {"train": "head"}, {}], ids=["lora", "head", "all"])
def test_what_is_trained_is_averaged(settings: dict[str, Any], models: dict[str, str]) -> None:
    learners = [learner(models["bert"], **settings) for _ in range(3)]
    run = federate(cg.FedAvg(rounds=2, local_epochs=1), *learners)
    assert run.refusals.empty
    one, other = (run.models[name].estimator.get_weights() for name in ("site0", "site1"))
    for name in one:
        np.testing.assert_array_equal(one[name], other[name])
    sizes = {"lora": 2 * 2 * 2 * 8 * 32 + 66, "head": 66}
    expected = sizes.get(settings.get("peft") or settings.get("train", ""))
    if expected is not None:
        assert sum(value.size for value in one.values()) == expected
        assert run.releases["bytes"].max() < 4 * expected + 3000


def test_nets_are_distilled_at_the_coordinator(models: dict[str, str]) -> None:
    run = federate(cg.FedDF(rounds=2, local_epochs=6, distill_lr=1e-3), *[learner(models["bert"], peft="lora")] * 3)
    assert run.refusals.empty
    assert run.accuracy.to_numpy().mean() > 0.6


@pytest.mark.parametrize("other", ["other", "wide", "gpt"])
def test_different_models_are_not_averaged(other: str, models: dict[str, str]) -> None:
    """Not even where adapters of the same shapes stand beside other weights."""
    with pytest.raises(cg.ConfigError, match="one architecture only: the nets of sites 'site0' and 'site1' differ"):
        federate(
            cg.FedAvg(rounds=1), learner(models["bert"], peft="lora"), learner(models[other], peft="lora"), public=None
        )


@pytest.mark.parametrize("settings", [{"lora_alpha": 1.0}, {"pooling": "first"}])
def test_what_weights_mean_must_be_the_same(settings: dict[str, Any], models: dict[str, str]) -> None:
    """Even where a net shows no difference before it is trained: adapters begin with zeros."""
    one, other = (learner(models["bert"], peft="lora", **each) for each in ({}, settings))
    with pytest.raises(cg.ConfigError, match="the nets of sites 'site0' and 'site1' differ"):
        federate(cg.FedAvg(rounds=1), one, other, public=None)


def test_frozen_features_have_no_weights_to_average(models: dict[str, str]) -> None:
    why = "TextClassifier has no 'initialize' with train='embed'. Use train='head', .*, or use a method that shares"
    with pytest.raises(cg.ConfigError, match=why):
        federate(cg.FedAvg(rounds=1), learner(models["bert"], train="embed"), learner(models["bert"]), public=None)


def test_texts_of_every_form_take_part(models: dict[str, str]) -> None:
    kinds = [learner(models["bert"], train="embed")] * 3
    forms = [list, pd.Series, lambda texts: pd.DataFrame({"text": texts})]
    run = federate(cg.FedCT(rounds=1), *kinds, forms=forms, public=pd.Series(PUBLIC))
    plain = federate(cg.FedCT(rounds=1), *kinds)
    assert list(run.releases["sha256"]) == list(plain.releases["sha256"])


@pytest.mark.slow
def test_sites_in_processes_of_their_own_give_the_same(models: dict[str, str]) -> None:
    learners = [learner(models["bert"], train="embed"), learner(models["bert"], peft="lora")]
    here = federate(cg.FedCT(rounds=2), *learners)
    there = federate(cg.FedCT(rounds=2), *learners, workers=2)
    assert list(here.releases["sha256"]) == list(there.releases["sha256"])
    assert here.metrics.equals(there.metrics)


def test_a_stored_run_is_loaded_again(models: dict[str, str], tmp_path: Path) -> None:
    learners = [learner(models["bert"], epochs=1), learner(models["bert"], epochs=1, peft="lora")]
    run = federate(cg.FedCT(rounds=1), *learners, out=tmp_path / "r")
    again = cg.load(tmp_path / "r")
    for name, model in run.models.items():
        np.testing.assert_array_equal(again.models[name].predict(TEST[0]), model.predict(TEST[0]))


def test_empty_and_missing_texts_take_part(models: dict[str, str]) -> None:
    def with_gaps(texts: list[str]) -> pd.DataFrame:
        return pd.DataFrame({"text": [None, "", *texts[2:]]})

    run = federate(cg.FedCT(rounds=1), *[learner(models["bert"], train="embed")] * 2, forms=[with_gaps] * 2)
    assert run.refusals.empty


def test_words_are_counted_where_texts_are_missing() -> None:
    """At a site, in the public set and in the test set: scikit-learn's own vectorizers refuse a missing text."""
    words = make_pipeline(TfidfVectorizer(), RandomForestClassifier(5))
    gaps = [None, float("nan"), pd.NA]
    run = federate(
        cg.FedCT(rounds=1), words, words,
        forms=[lambda texts: [*gaps, *texts[3:]], lambda texts: pd.Series([*gaps[:1], *texts[1:]], dtype="category")],
        public=[*gaps, *PUBLIC[3:]], test=([*gaps, *TEST[0][3:]], TEST[1]),
    )  # fmt: skip
    assert run.refusals.empty
    assert run.accuracy.notna().all(axis=None)


@pytest.mark.parametrize(
    ("settings", "why"),
    [
        ({"model": "nowhere"}, "Site 'site0': There is no model 'nowhere'"),
        ({"max_length": 999}, "Site 'site0': TextClassifier: max_length=999, but the model reads"),
        ({"train": "some"}, "Site 'site0': TextClassifier: train must be 'all', 'head' or 'embed', got 'some'"),
        ({"train": "all", "head": KNeighborsClassifier()}, "Site 'site0': TextClassifier: a head is for train='embed'"),
        ({"head": KNeighborsClassifier}, "head must be a classifier, such as .*, not the class KNeighborsClassifier"),
        ({"head": "random_forest"}, "head must be a classifier, such as .*, not str"),
        ({"head": KNeighborsRegressor()}, "the head, a KNeighborsRegressor, is a regressor"),
        ({"head": cg.TextClassifier("tiny")}, "the head, a TextClassifier, takes texts"),
        ({"device": "gpu"}, "Unknown device 'gpu'"),
    ],
)
def test_what_no_model_can_do_is_said_before_the_run(
    settings: dict[str, Any], why: str, models: dict[str, str]
) -> None:
    """Not by a site that drops out of it."""
    wrong = cg.TextClassifier(**{"model": models["bert"], "max_length": 16, "train": "embed", **settings})
    with pytest.raises(cg.SiteError, match=why):
        federate(cg.FedCT(rounds=1), wrong, learner(models["bert"], train="embed"))


WORDS = make_pipeline(TfidfVectorizer(), RandomForestClassifier(5))


@pytest.mark.parametrize("kind", ["language model", "words"])
@pytest.mark.parametrize(
    ("where", "given", "why"),
    [
        ("public", pd.DataFrame({"text": range(ROWS)}), "the public set holds values of type int"),
        ("test", pd.DataFrame({"text": range(len(TEST[1]))}), "the test set holds values of type int"),
        ("site", pd.DataFrame({"text": range(ROWS)}), "X holds values of type int"),
        ("site", [""] * (ROWS - 2) + [None, "  "], "X has (none|no text) with a word in it"),
        ("site", [None] * ROWS, "X has (none|no text) with a word in it"),
        ("site", ["a", 3] * (ROWS // 2), "X: texts must be strings, .* among them is a value of type int"),
        ("site", [b"a"] * ROWS, "X: texts must be strings, .* among them is a value of type bytes"),
        ("site", pd.DataFrame({"one": ["a film"] * ROWS, "two": "a plot"}), "X has 2 columns"),
    ],
)
def test_what_is_no_text_is_refused_before_the_run(
    kind: str, where: str, given: Any, why: str, models: dict[str, str]
) -> None:
    each = learner(models["bert"], train="embed") if kind == "language model" else WORDS
    forms = [(lambda _: given) if where == "site" else list, list]
    others = {"public": {"public": given}, "test": {"test": (given, TEST[1])}}.get(where, {})
    with pytest.raises(cg.ConfigError, match=why):
        federate(cg.FedCT(rounds=1), each, each, forms=forms, **others)


@pytest.mark.parametrize("settings", [{"peft": "lora"}, {"train": "head"}], ids=["lora", "head"])
def test_nets_of_texts_in_cohorts_learn_what_they_would_alone(settings: dict[str, Any], models: dict[str, str]) -> None:
    """Linear heads in one computation; whole nets one after the other, since their texts differ in length."""
    learners = [learner(models["bert"], epochs=1, **settings) for _ in range(3)]
    runs = {mode: federate(cg.FedCT(rounds=2), *learners, cohort=mode) for mode in ("on", "off")}
    for name, model in runs["on"].models.items():
        alone = runs["off"].models[name].estimator.get_weights()
        for part, value in model.estimator.get_weights().items():
            np.testing.assert_allclose(value, alone[part], atol=1e-4)
