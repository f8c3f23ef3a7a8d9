from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from scipy import sparse

from collegium.errors import Refused
from collegium.flare.site.public_store import PublicStore, pack_public
from collegium.wire import tables

TABLES: list[Any] = [
    np.arange(600.0).reshape(100, 6),
    sparse.csr_array(np.eye(20)),
    pd.DataFrame({"age": [1, 2, 3], "sex": ["f", "m", None]}),
]


@pytest.mark.parametrize("table", TABLES, ids=["array", "sparse", "frame"])
def test_a_set_that_was_sent_in_pieces_is_the_same(tmp_path: Path, table: Any) -> None:
    store, data, name = PublicStore(tmp_path, 1 << 20), pack_public(table), tables.digest(table)
    for offset in range(0, len(data), 100):
        assert store.get(name) is None
        store.add(name, offset, len(data), data[offset : offset + 100])
    received = store.get(name)
    assert received is not None
    assert received.digest == name
    again = PublicStore(tmp_path, 1 << 20).get(name)
    assert again is not None
    assert tables.digest(again.X) == name


def test_pieces_that_come_twice_or_too_early_do_no_harm(tmp_path: Path) -> None:
    data, name = pack_public(TABLES[0]), tables.digest(TABLES[0])
    store = PublicStore(tmp_path, 1 << 20)
    assert store.add(name, 50, len(data), data[50:100]) == 0
    assert store.add(name, 0, len(data), data[:50]) == 50
    assert store.add(name, 0, len(data), data[:50]) == 50
    assert store.add(name, 50, len(data), data[50:]) == len(data)
    assert store.get(name) is not None


def test_a_forged_set_is_refused_and_leaves_nothing(tmp_path: Path) -> None:
    data, name = pack_public(TABLES[0] + 1), tables.digest(TABLES[0])
    store = PublicStore(tmp_path, 1 << 20)
    with pytest.raises(Refused) as refusal:
        store.add(name, 0, len(data), data)
    assert refusal.value.code == "other-public-set"
    assert list(tmp_path.iterdir()) == []


def test_bytes_that_are_no_table(tmp_path: Path) -> None:
    with pytest.raises(Refused, match="does not match its hash"):
        PublicStore(tmp_path, 1 << 20).add("0" * 64, 0, 3, b"abc")


@pytest.mark.parametrize("name", ["", "../../etc/passwd", "A" * 64, "0" * 63])
def test_names_that_are_no_hash_never_become_a_path(tmp_path: Path, name: str) -> None:
    with pytest.raises(Refused, match="identified by its hash"):
        PublicStore(tmp_path / "public", 1 << 20).add(name, 0, 1, b"x")
    assert list((tmp_path / "public").iterdir()) == []


def test_a_set_over_the_limit(tmp_path: Path) -> None:
    with pytest.raises(Refused) as refusal:
        PublicStore(tmp_path, 10).add("0" * 64, 0, 11, b"x")
    assert refusal.value.code == "too-large"


def test_a_damaged_file_is_fetched_again(tmp_path: Path) -> None:
    data, name = pack_public(TABLES[0]), tables.digest(TABLES[0])
    PublicStore(tmp_path, 1 << 20).add(name, 0, len(data), data)
    (tmp_path / f"{name}.table").write_bytes(data[:-5])
    store = PublicStore(tmp_path, 1 << 20)
    assert store.get(name) is None
    assert store.have(name) == 0


def test_the_owners_own_copy(tmp_path: Path) -> None:
    store = PublicStore(tmp_path, 0, TABLES[0])
    assert store.get(tables.digest(TABLES[0])) is not None
