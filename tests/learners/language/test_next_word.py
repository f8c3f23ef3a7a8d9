"""Pre-training on texts without labels."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from tests.learners.language.tiny_models import reviews

import collegium as cg
from collegium.learners.language.next_word import _Task

pytestmark = pytest.mark.xdist_group("language models")
TEXTS, _ = reviews(150, seed=3)


def make(model: str, **settings: Any) -> cg.TextClassifier:
    learner = cg.TextClassifier(model, max_length=16, random_state=0, **settings)
    return learner.initialize(TEXTS, ["bad", "good"]) if learner.train != "embed" else learner


def loss(learner: cg.TextClassifier) -> float:
    task, ids = _Task(learner.to_module(), 0.3), torch.from_numpy(learner.token_ids(TEXTS[:60]).copy()).long()
    with torch.random.fork_rng(devices=[]), torch.no_grad():
        torch.manual_seed(0)
        return float(task.loss(ids))


@pytest.mark.parametrize("name", ["bert", "gpt"])
@pytest.mark.parametrize("peft", [None, "lora"])
def test_words_are_predicted_better(name: str, peft: Any, models: dict[str, str]) -> None:
    learner = make(models[name], peft=peft)
    first, head = learner.get_weights(), learner.get_weights("head")
    weights = cg.NextWord(steps=40, lr=5e-3).pretrain(learner, TEXTS)
    before = loss(learner)
    np.testing.assert_equal(learner.get_weights(), first)  # it is not modified
    assert set(weights) == set(learner.get_weights("features"))
    learner.set_weights(weights, "features")
    assert loss(learner) < before - (0.05 if peft else 0.5)  # adapters of a random net learn little
    np.testing.assert_equal(learner.get_weights("head"), head)


def test_what_a_model_reads_both_ways_is_hidden_from_it(models: dict[str, str]) -> None:
    """A BERT that saw the words it is asked for would have nothing to learn."""
    seen: list[torch.Tensor] = []
    learner = make(models["bert"])
    net, ids = learner.to_module(), torch.from_numpy(learner.token_ids(TEXTS[:20]).copy()).long()
    net.body.register_forward_pre_hook(lambda _, args, given: seen.append(given["input_ids"]), with_kwargs=True)
    _Task(net, 0.5).loss(ids)
    changed = seen[0] != ids.clamp(min=0)
    assert 0.3 < changed[ids >= 0].float().mean() < 0.7
    assert len(set(seen[0][changed].tolist())) == 1
    assert not changed[ids < 0].any()


def test_fedaux_pretrains_on_public_texts(models: dict[str, str]) -> None:
    sites = [
        cg.Site(f"site{at}", *reviews(30, seed=at), learner=cg.TextClassifier(models["bert"], max_length=16, lr=2e-3))
        for at in range(3)
    ]
    algorithm = cg.FedAUX(
        rounds=1, local_epochs=6, participation=1.0, pretrain="next_word", epsilon=50.0, distill_lr=1e-3
    )
    run = cg.run(algorithm, sites=sites, public=TEXTS, test=reviews(60, seed=11))
    assert run.refusals.empty
    assert run.accuracy.to_numpy().mean() > 0.7


def test_a_frozen_model_has_nothing_to_pretrain(models: dict[str, str]) -> None:
    with pytest.raises(cg.ConfigError, match="train='head' has no features to pre-train"):
        cg.NextWord().pretrain(make(models["bert"], train="head"), TEXTS)
    with pytest.raises(cg.ConfigError, match="initialize"):
        cg.NextWord().pretrain(cg.TextClassifier(models["bert"]), TEXTS)
