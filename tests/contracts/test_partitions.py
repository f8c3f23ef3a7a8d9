"""What every registered partition must do, through `cg.split`."""

from __future__ import annotations

from dataclasses import FrozenInstanceError, fields
from typing import Any

import numpy as np
import pandas as pd
import pytest
from scipy import sparse
from sklearn.tree import DecisionTreeClassifier

import collegium as cg
from collegium import registry
from collegium.data.partition import Partition

every_partition = pytest.mark.parametrize("name", registry.names("partition"))

EXAMPLES: dict[str, dict[str, Any]] = {
    "iid": {},
    "dirichlet": {"alpha": 1.0},
    "balanced_dirichlet": {"alpha": 0.5},
    "mixed_dirichlet": {"alpha1": 1.0, "alpha2": 5.0},
    "shard": {},
    "pathological": {},
    "by_column": {"column": 0},
}
SITES = 4
RNG = np.random.default_rng(0)
Y = RNG.choice(["ash", "birch", "cedar"], size=400)
# The first column holds the site of a row, the second its number.
X = np.column_stack([np.arange(400) % SITES, np.arange(400), RNG.normal(size=400)]).astype(float)
NUMBER = 1


def make(name: str) -> Partition:
    assert name in EXAMPLES, f"add settings for {name} to EXAMPLES"
    partition: Partition = registry.lookup("partition", name)(**EXAMPLES[name])
    return partition


def divide(name: str, table: Any = X, seed: int = 0) -> cg.Split:
    sites = None if name == "by_column" else SITES
    return cg.split(table, Y, sites=sites, public=100, test=50, partition=make(name), seed=seed)


@every_partition
def test_it_is_a_frozen_dataclass(name: str) -> None:
    partition = make(name)
    assert isinstance(partition, Partition)
    assert partition == make(name)
    for field in fields(partition):
        with pytest.raises(FrozenInstanceError):
            setattr(partition, field.name, None)


@every_partition
def test_every_private_row_goes_to_exactly_one_site(name: str) -> None:
    split = divide(name)
    assert len(split.sites) == len(split.names) == SITES
    together = np.concatenate([split.indices[part] for part in (*split.names, "public", "test")])
    np.testing.assert_array_equal(np.sort(together), np.arange(400))
    assert sum(len(y) for _, y in split.sites) == 250
    assert all(len(y) for _, y in split.sites)


@every_partition
def test_rows_keep_their_labels(name: str) -> None:
    split = divide(name)
    number = NUMBER if name != "by_column" else NUMBER - 1  # its column is taken out
    for (table, labels), site in zip(split.sites, split.names, strict=True):
        np.testing.assert_array_equal(table[:, number], split.indices[site])
        np.testing.assert_array_equal(labels, Y[split.indices[site]])
    np.testing.assert_array_equal(split.test[1], Y[split.indices["test"]])
    np.testing.assert_array_equal(split.public_truth, Y[split.indices["public"]])
    assert split.public.shape[1] == split.sites[0][0].shape[1]


@every_partition
def test_the_same_seed_gives_the_same_split_and_another_one_does_not(name: str) -> None:
    first, again, other = divide(name), divide(name), divide(name, seed=1)
    for part in first.indices:
        np.testing.assert_array_equal(first.indices[part], again.indices[part])
    assert any(not np.array_equal(first.indices[part], other.indices[part]) for part in first.names)


@every_partition
def test_the_kind_of_table_does_not_matter(name: str) -> None:
    plain = divide(name)
    for table in (pd.DataFrame(X), sparse.csr_array(X)):
        split = divide(name, table)
        assert type(split.public) is type(table)
        for part in plain.indices:
            np.testing.assert_array_equal(split.indices[part], plain.indices[part])


@every_partition
def test_its_sites_can_be_run(name: str) -> None:
    split = divide(name)
    sites = [
        cg.Site(name, table, labels, learner=DecisionTreeClassifier(max_depth=2))
        for name, (table, labels) in zip(split.names, split.sites, strict=True)
    ]
    run = cg.run(cg.FedCT(rounds=1), sites=sites, public=split.public, test=split.test)
    assert run.refusals.empty
    assert run.class_counts.to_numpy().sum() == 250
