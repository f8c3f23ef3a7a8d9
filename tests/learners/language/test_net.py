"""Language models that are trained where others of their kind are, one after the other."""

from __future__ import annotations

import copy
from typing import Any

import numpy as np
import pytest
import torch
from tests.learners.language.tiny_models import reviews

import collegium as cg
from collegium.learners.language import features
from collegium.learners.language.features import columns_of
from collegium.learners.language.reading import NOTHING
from collegium.learners.torch import cuda_graphs, lanes
from collegium.learners.torch.lanes import Lane
from collegium.learners.torch.together import stacks_well
from collegium.learners.torch.works import UpdateWork

pytestmark = pytest.mark.xdist_group("language models")
CLASSES = ["bad", "good"]


def texts(rows: int, seed: int, words: int) -> tuple[list[str], Any]:
    """Reviews that are cut to, or filled up with, so many words."""
    found, y = reviews(rows, seed)
    return [" ".join((text.split() * 9)[:words]) for text in found], y


@pytest.mark.parametrize("name", ["bert", "llama"])  # GPT-2 has dropout, which draws otherwise there
@pytest.mark.parametrize("peft", [None, "lora"])
def test_models_in_one_place_learn_what_they_learn_where_they_are(
    name: str, peft: Any, models: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(features, "STEP_CPU", 8)
    settings: dict[str, Any] = {"peft": peft, "lr": 2e-3, "batch_size": 8, "max_length": 32}
    alone = [cg.TextClassifier(models[name], random_state=seed, **settings) for seed in range(2)]
    placed, public = copy.deepcopy(alone), texts(20, 9, 14)
    place: list[Lane] = []
    seen: list[Any] = []

    def train(work: UpdateWork) -> Any:
        lane = place[0] if place else Lane(work.update, None)
        place[:] = [lane]
        lane.begin(work.update)
        seen.append(lane._seen)
        while not lane.step():
            pass
        return lane.end(torch.zeros(()))

    # Texts become longer: what was made for short ones must not cut them.
    for sweep, (words, pseudo) in enumerate([(3, None), (20, None), (20, public)]):
        for at, size in enumerate((13, 21)):
            how: dict[str, Any] = {"classes": CLASSES, "epochs": 1, "pseudo": pseudo}
            alone[at].update(*texts(size, at, words), **how)
            with monkeypatch.context() as patched:
                patched.setattr(UpdateWork, "alone", train)
                placed[at].update(*texts(size, at, words), **how)
            expected = alone[at].get_weights()
            for weight, value in placed[at].get_weights().items():
                np.testing.assert_allclose(value, expected[weight], atol=2e-4, err_msg=weight)
        if sweep == 1:
            place.clear()  # with public rows it is another kind of update
    assert seen[0] < seen[2]


def test_what_was_recorded_of_short_texts_serves_no_long_ones(
    models: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(features, "STEP_CPU", 8)
    monkeypatch.setattr(lanes, "can_record", lambda device: True)
    keys: list[Any] = []
    monkeypatch.setattr(lanes.Recorder, "__call__", lambda self, key, run, optimizer: keys.append(key) or run())
    learner = cg.TextClassifier(models["bert"], batch_size=8, max_length=32, random_state=0)
    place: list[Lane] = []

    def train(work: UpdateWork) -> Any:
        place[:] = place or [Lane(work.update, None)]
        place[0].begin(work.update)
        while not place[0].step():
            pass
        return place[0].end(torch.zeros(()))

    monkeypatch.setattr(UpdateWork, "alone", train)
    for words in (3, 20):
        learner.update(*texts(8, 0, words), classes=CLASSES, epochs=1)
    assert len(keys) == 2
    assert keys[0] != keys[1], "another number of columns is another computation"


def test_large_models_are_trained_few_at_a_time(models: dict[str, str], monkeypatch: pytest.MonkeyPatch) -> None:
    learner = cg.TextClassifier(models["bert"], peft="lora", max_length=24, random_state=0)
    learner.update(*texts(8, 0, 3), classes=CLASSES, epochs=1)
    training = learner._net._training
    assert not stacks_well(training), "several are not one computation"
    weights = sum(each.numel() for each in training.net.parameters())  # all of them: what is not trained computes, too
    assert lanes.places_for(training) == lanes.STREAMS
    monkeypatch.setattr(lanes, "MOST_WEIGHTS", 3 * weights)
    assert lanes.places_for(training) == 3
    monkeypatch.setattr(lanes, "MOST_WEIGHTS", weights // 2)
    assert lanes.places_for(training) == 1


def test_rows_are_read_as_far_as_one_has_tokens() -> None:
    ids = torch.full((3, 200), NOTHING)
    ids[1, :17] = 5
    assert columns_of(ids) == 32
    assert columns_of(ids[:, :16]) == 16
    assert columns_of(ids[:0]) == 200
    ids[2, :] = 5
    assert columns_of(ids) == 200


@pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no CUDA device here")
@pytest.mark.parametrize("name", ["bert", "gpt", "llama"])
@pytest.mark.parametrize("peft", [None, "lora"])
def test_steps_of_models_are_recorded_on_a_gpu(
    name: str, peft: Any, models: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def trained(recorded: bool) -> dict[str, Any]:
        monkeypatch.setenv("COLLEGIUM_CUDA_GRAPHS", "1" if recorded else "0")
        settings: dict[str, Any] = {"peft": peft, "lr": 2e-3, "batch_size": 8, "max_length": 32, "device": "cuda"}
        learner = cg.TextClassifier(models[name], random_state=0, **settings)
        before = len(made)
        learner.update(*texts(40, 0, 12), classes=CLASSES, epochs=3)
        assert learner._net._training.recordable
        assert (len(made) > before) == recorded
        return learner.get_weights()

    made: list[Any] = []
    record = cuda_graphs.record
    monkeypatch.setattr(cuda_graphs, "record", lambda *given: made.append(given) or record(*given))
    expected = trained(recorded=False)
    for weight, value in trained(recorded=True).items():
        if name != "gpt":  # which has dropout
            np.testing.assert_allclose(value, expected[weight], atol=5e-3, err_msg=weight)
