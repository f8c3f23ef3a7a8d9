from __future__ import annotations

import tomllib
from pathlib import Path

import jsonschema
import numpy as np
import pandas as pd
import pytest
from sklearn.ensemble import RandomForestClassifier
from sklearn.pipeline import Pipeline
from sklearn.tree import DecisionTreeClassifier

import collegium as cg
from collegium.core.building import build
from collegium.errors import ConfigError
from collegium.study.preparing import public_rows, scaled
from collegium.study.schema import json_schema
from collegium.study.study import Study

TOML = """
name = "breast-cancer"
seed = 0
[data]
source = "breast_cancer"
public = 370
test = 114
[partition]
name = "iid"
sites = 5
[algorithm]
name = "fedct"
rounds = 3
consensus = { name = "qualified_majority", quorum = 0.9 }
[[sites]]
learner = { name = "decision_tree" }
[[sites]]
learner = { name = "random_forest", n_estimators = 5 }
"""


@pytest.fixture
def file(tmp_path):
    path = tmp_path / "study.toml"
    path.write_text(TOML)
    return path


def refused(table: str, *parts: str) -> None:
    with pytest.raises(cg.ConfigError) as caught:
        Study.from_dict(tomllib.loads(table))
    for part in parts:
        assert part in str(caught.value), str(caught.value)


def changed(old: str, new: str) -> str:
    assert old in TOML
    return TOML.replace(old, new)


def test_a_study_file_becomes_an_algorithm_and_sites(file):
    study = Study.from_toml(file)
    prepared = study.prepare()
    assert prepared.algorithm == cg.FedCT(rounds=3, consensus=cg.QualifiedMajority(0.9))
    assert len(prepared.sites) == 5
    kinds = [type(site.learner) for site in prepared.sites]
    assert kinds == [DecisionTreeClassifier, RandomForestClassifier] * 2 + [DecisionTreeClassifier]
    assert prepared.sites[1].learner.n_estimators == 5
    assert len(prepared.public) == 370
    assert len(prepared.test[1]) == 114


def test_a_study_runs_and_keeps_itself_in_the_folder(file, tmp_path):
    study = Study.from_toml(file)
    run = study.run(tmp_path / "run")
    assert run.summary().loc["mean", "accuracy"] > 0.6
    assert Study.from_toml(tmp_path / "run" / "study.toml") == study
    assert {"study.toml", "record", "ledger.db", "tables", "models", "env.json", "report.html"} <= {
        path.name for path in (tmp_path / "run").iterdir()
    }
    assert cg.load(tmp_path / "run").study == study.to_toml()


def test_python_and_toml_give_the_same_study_and_the_same_result(file):
    table = tomllib.loads(TOML)
    study = Study.from_dict(table)
    assert study == Study.from_toml(file)
    split = cg.split(*_cancer(), sites=5, public=370, test=114, seed=0)
    learners = [DecisionTreeClassifier(), RandomForestClassifier(5)]
    sites = [cg.Site(f"site{i}", *part, learner=learners[i % 2]) for i, part in enumerate(split.sites)]
    by_hand = cg.run(
        cg.FedCT(rounds=3, consensus=cg.QualifiedMajority(0.9)), sites=sites, public=split.public, test=split.test
    )
    assert study.run().accuracy.equals(by_hand.accuracy)


def _cancer():
    from collegium.data.sources import load_source

    data = load_source("breast_cancer")
    return data.X, data.y


def test_settings_can_be_replaced_from_the_command_line(file):
    study = Study.from_toml(
        file, ["algorithm.rounds=7", "data.source=digits", "sites.0.learner.max_depth=3", "engine.workers=2", "name=x"]
    )
    assert study.build_algorithm().rounds == 7
    assert study.data.source == "digits"
    assert study.sites[0].learner == {"name": "decision_tree", "max_depth": 3}
    assert study.engine.workers == 2
    assert study.name == "x"
    named = Study.from_toml(file, ["algorithm=local"])
    assert named.build_algorithm() == cg.Local()
    deeper = Study.from_toml(file, ["algorithm.consensus=majority"])
    assert deeper.build_algorithm().consensus == cg.Majority()


@pytest.mark.parametrize("change", ["rounds", "=3", "sites.9.learner=x", "name.deeper=1"])
def test_a_replacement_that_means_nothing_is_refused(file, change):
    with pytest.raises(cg.ConfigError, match="--set"):
        Study.from_toml(file, [change])


def test_names_alone_are_enough():
    study = Study.from_dict({"data": {"source": "iris"}, "partition": {"sites": 3}, "algorithm": "fedct"})
    assert study.build_algorithm() == cg.FedCT()
    assert isinstance(study.prepare().sites[0].learner, RandomForestClassifier)


@pytest.mark.parametrize(
    ("old", "new", "parts"),
    [
        ("rounds = 3", "ruonds = 3", ["algorithm.ruonds", "'rounds'"]),
        ("rounds = 3", 'rounds = "three"', ["algorithm.rounds must be an integer of at least 1, got 'three'."]),
        ("rounds = 3", "rounds = 0", ["algorithm.rounds must be an integer of at least 1, got 0."]),
        ("rounds = 3", "rounds = true", ["algorithm.rounds"]),
        ('"fedct"', '"fedctt"', ["algorithm.name", "'fedct'"]),
        ('"qualified_majority"', '"qualified_mayority"', ["algorithm.consensus.name", "'qualified_majority'"]),
        (
            "quorum = 0.9",
            "quorum = 1.9",
            ["algorithm.consensus.quorum must be", "at most 1, got 1.9."],
        ),
        ("quorum = 0.9", "qourum = 0.9", ["algorithm.consensus.qourum", "'quorum'"]),
        ('"decision_tree"', '"decision_trea"', ["sites[0].learner.name", "'decision_tree'"]),
        ("n_estimators = 5", "n_estimater = 5", ["sites[1].learner.n_estimater", "'n_estimators'"]),
        ("n_estimators = 5", "n_estimators = -5", ["sites[1].learner", "n_estimators"]),
        ('"iid"', '"idd"', ["partition.name", "'iid'"]),
        ("sites = 5", "sites = 0", ["partition.sites", "greater than or equal to 1"]),
        ("sites = 5", "alpha = 5", ["partition.alpha"]),
        ("public = 370", "publik = 370", ["data.publik", "'public'"]),
        ("[data]", "[daten]", ["daten", "'data'"]),
        ("seed = 0", "seed = -1", ["seed", "greater than or equal to 0"]),
        ('source = "breast_cancer"', "", ["data.source", "required"]),
    ],
)
def test_mistakes_are_named_by_their_path_with_the_nearest_right_name(old, new, parts):
    refused(changed(old, new), *parts)


def test_more_than_one_mistake_is_named_at_once():
    refused(changed("public = 370", "publik = 370").replace("seed = 0", "seed = -1"), "data.publik", "seed")


@pytest.mark.parametrize(
    ("old", "new", "match"),
    [
        ('"breast_cancer"', '"brest_cancer"', "brest_cancer"),
        ("public = 370", "public = 900", "569"),
        ("test = 114", 'test = "own"', "own"),
    ],
)
def test_data_that_does_not_fit_is_refused(old, new, match):
    with pytest.raises(cg.ConfigError, match=match):
        Study.from_dict(tomllib.loads(changed(old, new))).prepare()


def test_files_that_are_no_studies(tmp_path):
    with pytest.raises(cg.ConfigError, match=r"no study file .*`collegium init` writes one"):
        Study.from_toml(tmp_path / "none.toml")
    (tmp_path / "bad.toml").write_text("name = [unclosed")
    with pytest.raises(cg.ConfigError, match="not valid TOML"):
        Study.from_toml(tmp_path / "bad.toml")
    (tmp_path / "binary.toml").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(cg.CollegiumError):
        Study.from_toml(tmp_path / "binary.toml")


def test_a_users_own_csv_with_words_and_gaps(tmp_path):
    rng = np.random.default_rng(0)
    frame = pd.DataFrame({"age": rng.normal(60, 9, 300), "ward": rng.choice(["icu", "er", "gp"], 300)})
    frame.loc[::7, ["age", "ward"]] = None
    frame["ill"] = np.where(frame["age"].fillna(60) + 5 * (frame["ward"] == "icu") > 62, "yes", "no")
    frame.to_csv(tmp_path / "patients.csv", index=False)
    table = {
        "data": {"source": "patients.csv", "target": "ill", "public": 0.3, "test": 0.2},
        "partition": {"sites": 3},
        "algorithm": {"name": "fedct", "rounds": 2},
        "sites": [{"learner": "decision_tree"}, {"learner": "logistic_regression"}, {"learner": "xgboost"}],
    }
    study = Study.from_dict(table)
    run = study.run(base=tmp_path)
    assert run.refusals.empty
    assert run.summary().loc["mean", "accuracy"] > 0.6
    assert isinstance(study.prepare(tmp_path).sites[0].learner, Pipeline)


def test_one_sites_table_may_stand_without_brackets():
    table = {"data": {"source": "iris"}, "partition": {"sites": 2}, "algorithm": "local", "sites": {"learner": "knn"}}
    assert Study.from_dict(table).sites[0].learner == "knn"


def test_a_policy_in_a_study_reaches_the_site():
    table = tomllib.loads(TOML) | {"sites": [{"learner": "knn", "policy": {"unprotected": ["Count"]}}]}
    site = Study.from_dict(table).prepare().sites[0]
    assert not site.policy.allows_unprotected("HardLabels")


def test_the_schema_knows_every_setting():
    schema = json_schema()
    algorithms = schema["$defs"]["algorithm"]["anyOf"]
    fedct = next(option for option in algorithms if option.get("title") == "fedct")
    assert fedct["properties"]["rounds"] == {"type": "integer", "minimum": 1}
    assert fedct["properties"]["participation"] == {"type": "number", "exclusiveMinimum": 0, "maximum": 1}
    assert fedct["properties"]["votes"] == {"type": "string", "enum": ["plain", "secret"]}
    assert fedct["properties"]["consensus"] == {"$ref": "#/$defs/consensus"}
    assert "data" in schema["required"]


FEDAUX = (
    TOML[: TOML.index("[algorithm]")]
    + """
[algorithm]
name = "fedaux"
pretrain = { name = "simclr", epochs = 50 }
[[sites]]
learner = { name = "torch", net = "mlp" }
"""
)


def test_a_pre_training_is_named_like_other_components():
    study = Study.from_dict(tomllib.loads(FEDAUX))
    assert study.build_algorithm().pretrain == cg.SimCLR(epochs=50)
    assert Study.from_dict(tomllib.loads(study.to_toml())) == study
    by_name = FEDAUX.replace('{ name = "simclr", epochs = 50 }', '"simclr"')
    assert Study.from_dict(tomllib.loads(by_name)).build_algorithm().pretrain == cg.SimCLR()
    schema = json_schema()["$defs"]
    fedaux = next(option for option in schema["algorithm"]["anyOf"] if option.get("title") == "fedaux")
    assert fedaux["properties"]["pretrain"] == {"$ref": "#/$defs/pretraining"}
    simclr = next(option for option in schema["pretraining"]["anyOf"] if option.get("title") == "simclr")
    assert simclr["properties"]["epochs"] == {"type": "integer", "minimum": 1}


@pytest.mark.parametrize(
    ("old", "new", "parts"),
    [
        ('name = "simclr"', 'name = "simcrl"', ["algorithm.pretrain.name", "simcrl", "Did you mean 'simclr'?"]),
        ("epochs = 50", "epoch = 50", ["algorithm.pretrain.epoch", "Did you mean 'epochs'?"]),
        ("epochs = 50", "epochs = 0", ["algorithm.pretrain.epochs must be an integer of at least 1, got 0."]),
    ],
)
def test_mistakes_in_a_pre_training_are_named_by_their_path(old, new, parts):
    refused(FEDAUX.replace(old, new), *parts)


def test_studies_are_valid_by_their_own_schema():
    jsonschema.validate(tomllib.loads(TOML), json_schema())
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate(tomllib.loads(changed("rounds = 3", "ruonds = 3")), json_schema())


def test_shipped_studies_are_valid_by_the_schema():
    schema = json_schema()
    jsonschema.Draft202012Validator.check_schema(schema)
    validator = jsonschema.Draft202012Validator(schema)
    files = sorted((Path(__file__).parents[2] / "studies").glob("*.toml"))
    assert len(files) > 10
    for file in files:
        validator.validate(tomllib.loads(file.read_text()))


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("rounds = 3", "rounds = 0"),
        ("quorum = 0.9", "quorum = 1.9"),
        ("rounds = 3", 'rounds = 3\nvotes = "open"'),
        ("rounds = 3", "rounds = 3\nmechanism = { name = 'laplace_noisy_max', gamma = -1 }"),
        ('"iid"', '"dirichlet"\nalpha = 0'),
        ('"iid"', '"dirichlet"'),
        ('"iid"', '"iid"\nalpha = 1'),
        ('"decision_tree"', '"torch", batch_size = 0'),
    ],
)
def test_schema_and_study_refuse_the_same(old, new):
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate(tomllib.loads(changed(old, new)), json_schema())
    refused(changed(old, new))


def test_settings_are_checked_by_their_types_in_a_class_that_inherits_them():
    assert build("algorithm", {"name": "fedprox", "weighting": "equal"}, "algorithm").weighting == "equal"
    with pytest.raises(ConfigError, match=r"algorithm\.participation"):
        build("algorithm", {"name": "fedprox", "participation": "half"}, "algorithm")


PATTERNS = """
[data]
source = "patterns"
public = 120
test = 100
train = 400
[partition]
sites = 4
[algorithm]
name = "fedavg"
[[sites]]
learner = { name = "torch", net = "cnn_aimhi" }
"""


def of_patterns(**data: object) -> Study:
    table = tomllib.loads(PATTERNS)
    return Study.from_dict(table | {"data": table["data"] | data})


def test_the_public_rows_may_come_from_another_source():
    own, other = (of_patterns(**more).prepare() for more in ({}, {"public_source": "patterns"}))
    assert (len(own.public_truth), other.public_truth) == (120, None)
    assert other.public.shape == own.public.shape
    assert [len(site) for site in other.sites] == [100] * 4
    assert not np.array_equal(other.public, own.public)
    np.testing.assert_array_equal(other.public, of_patterns(public_source="patterns").prepare().public)
    np.testing.assert_array_equal(other.public, public_rows(of_patterns(public_source="patterns")))
    np.testing.assert_array_equal(own.public, public_rows(of_patterns()))
    assert len(of_patterns(public_source="patterns", public=0.5).prepare().public) == 1000
    with pytest.raises(ConfigError, match=r"data.public: patterns has 2000 rows, but 3000"):
        of_patterns(public_source="patterns", public=3000).prepare()


def test_images_of_bytes_become_numbers_of_0_to_1():
    images = np.arange(512, dtype=np.uint8).reshape(2, 16, 16)
    np.testing.assert_array_equal(scaled(images), (images / 255.0).astype(np.float32), strict=True)
    for other in (images[0], images.astype(np.int64), images.astype(np.float32), None):
        assert scaled(other) is other


def test_images_may_be_standardized_by_fixed_numbers():
    numbers = {"mean": [0.1, 0.2, 0.3], "std": [1.0, 2.0, 4.0]}
    plain, standardized = of_patterns().prepare(), of_patterns(standardize=numbers).prepare()
    mean, std = (np.array(numbers[name], dtype=np.float32)[:, None, None] for name in ("mean", "std"))
    for before, after in (
        (plain.public, standardized.public), (plain.test[0], standardized.test[0]),
        (plain.sites[1].X, standardized.sites[1].X),
    ):  # fmt: skip
        np.testing.assert_allclose(after, (before - mean) / std, atol=1e-6)
    with pytest.raises(ConfigError, match=r"data.standardize: give one mean and one std for each of the images' 3"):
        of_patterns(standardize={"mean": [0.1], "std": [1.0]}).prepare()


def test_labels_may_be_kept_evenly_and_at_some_sites_only():
    even = of_patterns(unlabeled=0.8, labels="even", labeled_sites=0.5).prepare().sites
    assert [len(site) for site in even] == [20, 20, 0, 0]
    assert [len(site.unlabeled) for site in even] == [80, 80, 100, 100]
    assert all(np.bincount(site.y).tolist() == [2] * 10 for site in even[:2])
    any_rows = of_patterns(unlabeled=0.8).prepare().sites
    assert [len(site) for site in any_rows] == [20] * 4
    assert any(set(np.bincount(site.y)) != {2} for site in any_rows)


@pytest.mark.parametrize("learner", ["decision_tree", {"name": "decision_tree", "max_depth": 3}])
def test_a_learner_inside_a_component_may_be_a_name_or_a_table(learner):
    base = {"data": {"source": "iris"}, "algorithm": "fedct"}
    voting = {"name": "private_voting", "base": learner, "student": learner}
    study = Study.from_dict(base | {"sites": [{"learner": voting}]})
    built = build("learner", study.sites[0].learner, "learner")
    assert [type(each).__name__ for each in (built.base, built.student)] == ["DecisionTreeClassifier"] * 2
    fedkt = build("algorithm", {"name": "fedkt", "teacher": learner, "student": learner}, "algorithm")
    assert type(fedkt.teacher).__name__ == type(fedkt.student).__name__ == "DecisionTreeClassifier"
    wrong = voting | {"base": "decision_tre"}
    with pytest.raises(ConfigError, match=r"sites\[0\].learner.base.*Did you mean 'decision_tree'"):
        Study.from_dict(base | {"sites": [{"learner": wrong}]}).check()


def test_a_study_of_the_target_of_a_regression_is_refused(tmp_path):
    rng = np.random.default_rng(0)
    pd.DataFrame({"a": rng.normal(size=200), "pressure": rng.normal(size=200)}).to_csv(tmp_path / "rows.csv")
    data = {"source": "rows.csv", "target": "pressure", "public": 50, "test": 20}
    study = Study.from_dict({"data": data, "partition": {"sites": 2}, "algorithm": "local"})
    with pytest.raises(ConfigError, match=r"site0.*65 different numbers.*pandas.cut"):
        study.run(base=tmp_path)
