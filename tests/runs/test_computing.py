from __future__ import annotations

import warnings
from contextlib import suppress

import numpy as np
import pytest
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.tree import DecisionTreeClassifier

import collegium as cg
from collegium.errors import CollegiumWarning, ConfigError, RecordError

torch = pytest.importorskip("torch")
from collegium.learners.torch.classifier import TorchClassifier  # noqa: E402
from collegium.learners.torch.devices import CPU, computing  # noqa: E402
from collegium.runs.computing import Computing  # noqa: E402


def net(**settings):
    return TorchClassifier("linear", steps=5, random_state=0, **settings)


@pytest.fixture
def no_gpu(monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)


def test_every_learner_is_told_and_none_is_changed(digits, no_gpu):
    learner = make_pipeline(StandardScaler(), net())
    run = digits.run(cg.FedCT(rounds=1), learner, precision="bfloat16", device="cpu", global_learner=net())
    precisions = {model.estimator[-1].precision for model in run.models.values()}
    assert precisions == {run.global_model.estimator.precision} == {"bfloat16"}
    assert learner[-1].precision == "float32"
    assert (run.about["device"], run.about["precision"]) == ("cpu", "bfloat16")


def test_without_settings_each_learner_keeps_its_own(digits):
    run = digits.run(cg.FedCT(rounds=1), net(precision="bfloat16"))
    assert (run.about["device"], run.about["precision"]) == ("cpu", "bfloat16")
    trees = digits.run(cg.FedCT(rounds=1))
    assert (trees.about["device"], trees.about["precision"]) == ("cpu", None)


def test_a_missing_gpu_is_said_once_and_the_cpu_used(digits, no_gpu):
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        run = digits.run(cg.FedCT(rounds=2), net(), device="cuda", precision="tf32")
    said = [str(each.message) for each in caught if issubclass(each.category, CollegiumWarning)]
    assert said == ["device='cuda', but torch finds no CUDA device here: the CPU is used. Set device='cpu' instead."]
    assert caught[0].filename == digits.run.__func__.__code__.co_filename  # where cg.run was called
    assert (run.about["device"], run.about["precision"]) == ("cpu", "float32")


def test_a_setting_that_nobody_has_is_said(digits):
    with pytest.warns(CollegiumWarning, match="precision='tf32' changes nothing: no learner of this run has a prec"):
        digits.run(cg.FedCT(rounds=1), DecisionTreeClassifier(), precision="tf32")


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"precision": "float16"}, r"precision must be 'float32', 'tf32' or 'bfloat16' or None, got 'float16'"),
        ({"device": "tpu"}, r"Unknown device 'tpu'"),
        ({"device": 0}, r"device must be a string or None, got 0"),
    ],
)
def test_wrong_values(digits, wrong, message):
    with pytest.raises(ConfigError, match=message):
        digits.run(cg.FedCT(rounds=1), net(), **wrong)


def test_sites_that_share_a_learner_still_do_and_a_trained_one_keeps_what_it_knows(digits):
    trained = net().fit(*digits.split.sites[0])
    one, other = Computing(None, "bfloat16").sites(digits.sites(trained)[:2])
    assert one.learner is other.learner is not trained
    np.testing.assert_equal(one.learner.get_weights(), trained.get_weights())


def test_bfloat16_computes_less_precisely_and_float32_is_the_default(digits):
    X, y = digits.split.sites[0]
    plain, same, short = (net(**each).fit(X, y) for each in ({}, {"precision": "float32"}, {"precision": "bfloat16"}))
    np.testing.assert_equal(plain.get_weights(), same.get_weights())
    for name, weights in short.get_weights().items():
        assert weights.dtype == np.float32
        assert not np.array_equal(weights, plain.get_weights()[name])
        np.testing.assert_allclose(weights, plain.get_weights()[name], atol=5e-3)
    logits = short.predict_logits(X)
    assert logits.dtype == np.float32
    np.testing.assert_array_equal(logits, torch.from_numpy(logits).bfloat16().float().numpy())
    assert not np.array_equal(plain.predict_logits(X), short.predict_logits(X))
    assert short.embed(X).dtype == np.float32


def test_bfloat16_with_terms_and_distilling(digits):
    X, y = digits.split.sites[0]
    model = TorchClassifier("mlp", precision="bfloat16", random_state=0, epochs=20).fit(X, y)
    assert model.score(X, y) > 0.9
    model.distill(X, np.full((len(X), 10), 0.1), steps=3)
    assert not model.diverged_


def test_tf32_is_set_for_the_block_only():
    flags = torch.backends.cuda.matmul, torch.backends.cudnn
    before = [each.allow_tf32 for each in flags]
    for precision, wanted in [("tf32", True), ("float32", False), ("bfloat16", False)]:
        with suppress(RuntimeError), computing(torch.device("cuda", 0), precision):
            assert [each.allow_tf32 for each in flags] == [wanted] * 2
            raise RuntimeError
        assert [each.allow_tf32 for each in flags] == before
    with computing(CPU, "tf32"):
        assert [each.allow_tf32 for each in flags] == before


def test_a_run_goes_on_as_precisely_as_it_began(digits, tmp_path):
    digits.run(cg.FedCT(rounds=1), net(), out=tmp_path, precision="bfloat16")
    with pytest.raises(RecordError, match="precision differ"):
        digits.run(cg.FedCT(rounds=1), net(), out=tmp_path, resume=True)
    again = digits.run(cg.FedCT(rounds=1), net(), out=tmp_path, precision="bfloat16", resume=True)
    assert again.about["precision"] == "bfloat16"
