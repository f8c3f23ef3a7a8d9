"""The declared tables: each cell is a study, with the papers' sizes, and small in its quick form."""

from __future__ import annotations

import math
import tomllib
from pathlib import Path
from typing import Any

import pytest

from collegium.errors import ConfigError
from collegium.reproduction.declared import (
    PAPERS,
    PRETRAINING,
    Table,
    made_quick,
    merged,
    named,
    not_at_hand,
    tables,
)
from collegium.study.sections import validate

TABLE = """
paper = "FedCT"
number = "Table 0"
title = "a small one"
[study]
data = { source = "breast_cancer", public = 100, test = 60, train = 60 }
partition = { name = "iid", sites = 3 }
algorithm = { name = "fedct", rounds = 2 }
sites = [{ learner = { name = "random_forest", n_estimators = 5 } }]
[quick]
data = { train = 30 }
algorithm = { rounds = 1, local_steps = 1 }
learner = { n_estimators = 2 }
[[columns]]
name = "all"
[[columns]]
name = "few public rows"
set.data = { public = 20 }
[[rows]]
name = "FedCT"
paper = [0.9, nan]
[[rows]]
name = "local"
columns = ["all"]
set.algorithm = { name = "local" }
"""


def table(*changes: tuple[str, str]) -> Table:
    text = TABLE
    for old, new in changes:
        assert old in text
        text = text.replace(old, new)
    return validate(Table, tomllib.loads(text), "table", "table")


def test_rows_and_columns_change_the_study() -> None:
    small = table()
    assert [(row.name, column.name) for row, column in small.cells()] == [
        ("FedCT", "all"), ("local", "all"), ("FedCT", "few public rows"),
    ]  # fmt: skip
    study = small.study_of("FedCT", "few public rows", 7)
    assert (study.seed, study.data.public, study.data.train) == (7, 20, 60)
    assert small.study_of("local", "all", 0).algorithm == {
        "name": "local"
    }  # another method has no settings of this one
    assert small.number_of(small.rows[0].paper, small.columns[0]) == 0.9
    assert small.number_of(small.rows[0].paper, small.columns[1]) is None


def test_what_is_missing_is_shown_and_not_run() -> None:
    small = table(("set.data = { public = 20 }", 'missing = "nobody has it"'))
    assert len(small.shown()) == 3
    assert {column.name for _, column in small.cells()} == {"all"}


def test_a_component_of_another_name_replaces_the_whole() -> None:
    base = {"algorithm": {"name": "fedct", "rounds": 5, "consensus": {"name": "majority"}}, "seed": 1}
    assert merged(base, {"algorithm": {"rounds": 2}})["algorithm"]["consensus"] == {"name": "majority"}
    assert merged(base, {"algorithm": {"name": "local"}})["algorithm"] == {"name": "local"}
    assert base["algorithm"]["rounds"] == 5  # type: ignore[index]


def test_the_quick_form_changes_the_settings_that_there_are() -> None:
    quick = table().study_of("FedCT", "all", 0, quick=True)
    assert (quick.data.train, quick.data.public) == (30, 100)
    assert quick.algorithm == {"name": "fedct", "rounds": 1}
    assert quick.sites[0].learner == {"name": "random_forest", "n_estimators": 2}
    taught = {
        "data": {},
        "algorithm": {"name": "fedkt", "student": {"name": "random_forest"}},
        "sites": [{"learner": "svm"}],
    }
    small: dict[str, Any] = made_quick(taught, {"learner": {"n_estimators": 2}})
    assert small["algorithm"]["student"] == {"name": "random_forest", "n_estimators": 2}
    assert small["sites"] == [{"learner": {"name": "svm"}}]


@pytest.mark.parametrize(
    ("old", "new", "why"),
    [
        ("paper = [0.9, nan]", "paper = [0.9]", "one number for each of the 2 columns"),
        ("paper = [0.9, nan]", 'after = "nobody"', "no row 'nobody'"),
        ("paper = [0.9, nan]", "pretrained = true", "no pretraining"),
        ('number = "Table 0"', 'number = "Table 0"\ncolour = 1', "colour: unknown setting"),
    ],
)
def test_mistakes_in_a_declaration_are_found(old: str, new: str, why: str) -> None:
    with pytest.raises(ConfigError, match=why):
        table((old, new))


def test_every_cell_of_every_table_is_a_study_and_says_what_the_papers_say() -> None:
    declared = tables()
    assert {each.paper for each in declared.values()} == set(PAPERS)
    for name, each in declared.items():
        assert each.differs, name
        for row, column in each.cells():
            quick = each.study_of(row.name, column.name, 0, quick=True)
            assert quick.data.source in ("breast_cancer", "patterns", "digits", "reviews"), name
            assert each.study_of(row.name, column.name, 0).algorithm, name
        numbers = [value for row in each.rows for value in (*row.paper, *row.authors) if not math.isnan(value)]
        assert all(0 < value <= 1 for value in numbers), name


def test_missing_data_are_named(tmp_path: Path) -> None:
    mixed = tables()["fedct_table1_cifar10"]
    assert mixed.sources("FedCT", "") == {"cifar10"}
    both = mixed.sources("FedCT, public set of CIFAR-100 (Table 4)", "")
    assert not_at_hand(both, tmp_path) == ["cifar10", "cifar100"]
    assert not_at_hand(table().sources("FedCT", "all"), tmp_path) == []


def test_pretraining_needs_the_public_set_alone() -> None:
    of_paper = tables()["fedaux_table2"]
    assert of_paper.sources("FedDF+P", "alpha .01") == {"cifar10", "cifar100"}
    assert of_paper.sources(PRETRAINING, "") == {"cifar100"}


def test_tables_are_chosen_by_name_or_by_paper() -> None:
    assert list(named(["fedct_table6"])) == ["fedct_table6"]
    assert {each.paper for each in named(["aimhi", "XCLP"]).values()} == {"AIMHI", "XCLP"}
    assert named([]) == tables()
    with pytest.raises(ConfigError, match=r"no table 'fedct_table66'.*Did you mean 'fedct_table6'"):
        named(["fedct_table66"])
