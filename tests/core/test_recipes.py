from __future__ import annotations

import sys

import pytest
from sklearn.ensemble import RandomForestClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.tree import DecisionTreeClassifier

import collegium as cg
from collegium import registry, wire
from collegium.core.recipes import build_learner, describe, named_learner
from collegium.errors import ConfigError, MissingExtra


@pytest.mark.parametrize("name", registry.names("learner"))
def test_every_registered_learner_survives_its_recipe(name: str) -> None:
    try:
        learner = registry.lookup("learner", name)()
    except MissingExtra as missing:
        pytest.skip(str(missing))
    back = build_learner(wire.unpack(wire.pack(describe(learner, "here")).data))
    assert type(back) is type(learner)
    assert repr(back.get_params()) == repr(learner.get_params())


def test_settings_travel_and_inner_learners_too() -> None:
    learner = cg.PrivateVoting(DecisionTreeClassifier(max_depth=3), teachers=7, student=RandomForestClassifier(5))
    recipe = describe(learner, "here")
    assert recipe == {
        "name": "private_voting",
        "settings": {
            "base": {"name": "decision_tree", "settings": {"max_depth": 3}},
            "teachers": 7,
            "student": {"name": "random_forest", "settings": {"n_estimators": 5}},
        },
    }
    back = build_learner(recipe)
    assert back.base.max_depth == 3
    assert back.student.n_estimators == 5


def test_nothing_is_everybodys_own() -> None:
    assert describe(None, "here") is None
    assert named_learner(None, "here") is None


def test_a_name_or_a_table_stands_for_a_learner_and_a_learner_for_itself() -> None:
    assert type(named_learner("decision_tree", "here")) is DecisionTreeClassifier
    assert named_learner({"name": "decision_tree", "max_depth": 3}, "here").max_depth == 3
    tree = DecisionTreeClassifier()
    assert named_learner(tree, "here") is tree


def test_an_unknown_name_is_answered_with_the_nearest_one() -> None:
    with pytest.raises(ConfigError, match=r"FedKT: teacher.*no learner 'decision_tre'. Did you mean 'decision_tree'"):
        named_learner("decision_tre", "FedKT: teacher")
    with pytest.raises(ConfigError, match="FedKT: teacher: expected a name"):
        named_learner({"max_depth": 3}, "FedKT: teacher")


def test_a_name_whose_package_is_missing_is_answered_with_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "xgboost", None)
    with pytest.raises(MissingExtra, match=r"FedKT: student.*pip install 'collegium\[xgboost\]'"):
        named_learner("xgboost", "FedKT: student")


def test_what_has_no_registered_name_cannot_be_asked_for() -> None:
    with pytest.raises(ConfigError, match="FedKT: teacher: Pipeline has no registered name"):
        describe(make_pipeline(StandardScaler(), DecisionTreeClassifier()), "FedKT: teacher")


def test_what_is_no_plain_data_cannot_be_sent() -> None:
    with pytest.raises(ConfigError, match="class_weight is a dict"):
        describe(DecisionTreeClassifier(class_weight={0: 1.0}), "here")


@pytest.mark.parametrize(
    "recipe",
    [{}, {"name": "decision_tree"}, {"name": "os.system", "settings": {}}, {"name": "sgd", "settings": {"x": 1}}],
)
def test_what_is_no_recipe_builds_nothing(recipe) -> None:
    with pytest.raises(ConfigError):
        build_learner(recipe)
