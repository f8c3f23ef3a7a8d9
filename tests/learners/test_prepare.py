from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from scipy import sparse
from sklearn.ensemble import HistGradientBoostingClassifier
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import Pipeline, make_pipeline
from sklearn.tree import DecisionTreeClassifier

from collegium.learners.prepare import with_preparation
from collegium.privacy.learners.voting import PrivateVoting
from collegium.runs.checks import takes_missing_values

Y = np.array([0, 1] * 20)
RNG = np.random.default_rng(0)


def frame(*, words: bool = True, gaps: bool = True) -> pd.DataFrame:
    table = pd.DataFrame({"a": RNG.normal(size=40), "b": RNG.integers(5, size=40), "ok": RNG.random(40) > 0.5})
    if not words:
        table = table.drop(columns="ok")
    else:
        table["ward"] = RNG.choice(["x", "y", None], 40)
    if gaps:
        table.loc[3, "a"] = np.nan
    return table


def test_a_learner_that_needs_nothing_is_left_as_it_is():
    tree = DecisionTreeClassifier()
    for X in (RNG.normal(size=(40, 3)), frame(words=False, gaps=False), sparse.csr_array(np.eye(40))):
        assert with_preparation(tree, X) is tree
    pipeline = make_pipeline(LogisticRegression())
    assert with_preparation(pipeline, frame()) is pipeline


@pytest.mark.parametrize("learner", [DecisionTreeClassifier(), LogisticRegression(), HistGradientBoostingClassifier()])
def test_words_and_gaps_are_dealt_with(learner):
    X = frame()
    prepared = with_preparation(learner, X)
    assert isinstance(prepared, Pipeline)
    prepared.fit(X, Y)
    unseen = X.assign(ward="never seen before")
    assert len(prepared.predict(unseen)) == 40


def test_gaps_are_filled_only_where_the_learner_cannot_take_them():
    X = np.where(RNG.random((40, 3)) < 0.1, np.nan, 1.0)
    assert isinstance(with_preparation(LogisticRegression(), X), Pipeline)
    boosting = HistGradientBoostingClassifier()
    assert with_preparation(boosting, X) is boosting


def test_features_are_scaled_for_learners_that_need_it():
    X = RNG.normal(size=(40, 2)) * [1, 1e6]
    fitted = with_preparation(LogisticRegression(), X).fit(X, Y)
    assert np.allclose(fitted[:-1].transform(X).std(axis=0), 1)


def test_images_are_flattened_for_learners_of_tables():
    X = RNG.random((40, 3, 4, 4))
    assert with_preparation(DecisionTreeClassifier(), X).fit(X, Y).predict(X).shape == (40,)


def test_images_stay_images_for_nets():
    torch = pytest.importorskip("collegium.learners.torch.classifier")
    net = torch.TorchClassifier("cnn_aimhi")
    assert with_preparation(net, RNG.random((40, 1, 28, 28))) is net


@pytest.mark.parametrize("learner", [LogisticRegression(), DecisionTreeClassifier()])
@pytest.mark.parametrize("blank", [np.nan, None, pd.NA])
@pytest.mark.parametrize("column", ["a", "b", "ward"])
def test_a_blank_cell_may_be_in_the_rows_to_answer_about_alone(learner, blank, column):
    X = frame(gaps=False).astype({"b": "Int64"})
    asked = X.copy()
    asked.loc[5, column] = blank
    fitted = with_preparation(learner, X, None, asked).fit(X, Y)
    assert len(fitted.predict(asked)) == 40


@pytest.mark.parametrize("where", [0, 1])
@pytest.mark.parametrize("column", ["a", "ward"])
@pytest.mark.parametrize("blank", [np.nan, None])
def test_a_column_that_is_blank_in_one_table_has_the_type_it_has_in_the_other(where, column, blank):
    shown = [frame(gaps=False), frame(gaps=False)]
    shown[where][column] = pd.Series([blank] * 40, dtype=float if blank is np.nan else object)
    fitted = with_preparation(LogisticRegression(), *shown).fit(shown[0], Y)
    assert len(fitted.predict(shown[1])) == 40


def test_a_private_learner_fills_blank_cells_whether_its_rows_have_any_or_not():
    X = RNG.normal(size=(40, 3))
    with_gaps = np.where(RNG.random((40, 3)) < 0.1, np.nan, X)
    voting = with_preparation(PrivateVoting(LogisticRegression(), teachers=2, epsilon=4.0), X)
    assert voting.base.fit(with_gaps, Y).predict(with_gaps).shape == (40,)
    assert takes_missing_values(voting)
    assert not takes_missing_values(PrivateVoting(LogisticRegression(), teachers=2, epsilon=4.0))
