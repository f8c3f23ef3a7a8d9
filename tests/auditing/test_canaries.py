from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from scipy import sparse
from tests.auditing.games import two_classes

import collegium as cg
from collegium.auditing.canaries import KINDS, make_canaries, write_canaries
from collegium.errors import ConfigError, SiteError

CLASSES = np.array([0, 1, 2])


def made(site: cg.Site, number: int = 40, **shares: float):
    return make_canaries(site, CLASSES, number, shares or {"mislabelled": 1.0}, np.random.default_rng(0))


def test_canaries_are_taken_out_of_the_site() -> None:
    X, y = two_classes(200)
    canaries, rest = made(cg.Site("a", X, y))
    assert (len(canaries), len(rest)) == (40, 160)
    assert not (rest.X[:, None, 0] == canaries.X[None, :, 0]).any()
    assert (canaries.y != canaries.truth).all()
    assert (CLASSES[canaries.codes] == canaries.y).all()


def test_each_kind_has_its_share() -> None:
    X, y = two_classes(400)
    canaries, _ = made(cg.Site("a", X, y), 80, **dict.fromkeys(KINDS, 1.0))
    assert canaries.in_words() == dict.fromkeys(canaries.in_words(), 20)
    assert set(canaries.in_words()) == set(KINDS)
    ordinary = canaries.kinds == "ordinary"
    assert (canaries.y[ordinary] == canaries.truth[ordinary]).all()
    known = {tuple(row) for row in X}
    strange = canaries.X[canaries.kinds == "out_of_distribution"]
    assert not any(tuple(row) in known for row in strange)


def test_duplicated_ones_are_there_four_times_and_no_claim_about_one_record_is_about_them() -> None:
    X, y = two_classes(200)
    canaries, _ = made(cg.Site("a", X, y), 20, duplicated=1.0)
    rows, labels = canaries.present(np.arange(20) < 5)
    assert len(rows) == len(labels) == 20
    assert not canaries.single.any()


def test_where_records_are_replaced_the_others_stand_as_they_were() -> None:
    X, y = two_classes(200)
    canaries, _ = made(cg.Site("a", X, y))
    coins = np.arange(40) % 2 == 0
    rows, labels = canaries.absent(coins)
    assert (rows == canaries.X[1::2]).all()
    assert (labels == canaries.truth[1::2]).all()


@pytest.mark.parametrize("as_table", [pd.DataFrame, sparse.csr_matrix, lambda X: X.reshape(-1, 2, 3)])
def test_tables_of_all_types_have_canaries(as_table) -> None:
    X, y = two_classes(100)
    canaries, rest = made(cg.Site("a", as_table(X), y), 30)
    assert len(canaries) == 30
    assert len(rest) == 70


def test_no_more_than_half_of_a_site_is_made_wrong() -> None:
    X, y = two_classes(100)
    assert len(made(cg.Site("a", X, y), 90)[0]) == 50
    assert len(made(cg.Site("a", X, y), 90, ordinary=7, mislabelled=1)[0]) == 90
    assert len(made(cg.Site("a", X, y), 500, ordinary=1)[0]) == 100


def test_what_cannot_be_is_said() -> None:
    X, y = two_classes(100)
    with pytest.raises(SiteError, match=r"Site 'a': with 30 records it is too small for an audit: 40 are needed"):
        made(cg.Site("a", X[:30], y[:30]))
    with pytest.raises(ConfigError, match="unknown: poisoned"):
        made(cg.Site("a", X, y), poisoned=1.0)
    with pytest.raises(ConfigError, match="at least 0"):
        made(cg.Site("a", X, y), ordinary=-1.0)
    with pytest.raises(SiteError, match="need an array or a DataFrame"):
        made(cg.Site("a", sparse.csr_matrix(X), y), out_of_distribution=1.0)


def test_a_list_of_canaries_is_for_its_owner_alone_even_where_a_file_was(tmp_path: Path) -> None:
    file = tmp_path / "canaries.csv"
    file.write_text("readable by all")
    file.chmod(0o644)
    canaries, _ = made(cg.Site("a", *two_classes(100)), 30)
    write_canaries(canaries, np.ones(30, dtype=np.bool_), np.zeros(30), file)
    assert file.stat().st_mode & 0o077 == 0
    assert len(file.read_text().splitlines()) == 31
