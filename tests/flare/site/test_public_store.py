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

RUN = "0123456789abcdef" * 2
TABLES: list[Any] = [
    np.arange(600.0).reshape(100, 6),
    sparse.csr_array(np.eye(20)),
    pd.DataFrame({"age": [1, 2, 3], "sex": ["f", "m", None]}),
]


@pytest.mark.parametrize("table", TABLES, ids=["array", "sparse", "frame"])
def test_a_set_that_was_sent_in_pieces_is_the_same(tmp_path: Path, table: Any) -> None:
    store, data, name = PublicStore(tmp_path, 1 << 20), pack_public(table), tables.digest(table)
    assert store.want(RUN, name) is None
    for offset in range(0, len(data), 100):
        assert store.get(name) is None
        store.add(RUN, name, offset, len(data), data[offset : offset + 100])
    received = store.get(name)
    assert received is not None
    assert received.digest == name
    again = PublicStore(tmp_path, 1 << 20).get(name)
    assert again is not None
    assert tables.digest(again.X) == name


def test_pieces_that_come_twice_or_too_early_do_no_harm(tmp_path: Path) -> None:
    data, name = pack_public(TABLES[0]), tables.digest(TABLES[0])
    store = PublicStore(tmp_path, 1 << 20)
    store.want(RUN, name)
    assert store.add(RUN, name, 50, len(data), data[50:100]) == 0
    assert store.add(RUN, name, 0, len(data), data[:50]) == 50
    assert store.add(RUN, name, 0, len(data), data[:50]) == 50
    assert store.add(RUN, name, 50, len(data), data[50:]) == len(data)
    assert store.get(name) is not None


def test_a_forged_set_is_refused_and_leaves_nothing(tmp_path: Path) -> None:
    data, name = pack_public(TABLES[0] + 1), tables.digest(TABLES[0])
    store = PublicStore(tmp_path, 1 << 20)
    store.want(RUN, name)
    with pytest.raises(Refused) as refusal:
        store.add(RUN, name, 0, len(data), data)
    assert refusal.value.code == "other-public-set"
    assert list(tmp_path.iterdir()) == []


def test_bytes_that_are_no_table(tmp_path: Path) -> None:
    store = PublicStore(tmp_path, 1 << 20)
    store.want(RUN, "0" * 64)
    with pytest.raises(Refused, match="does not match its hash"):
        store.add(RUN, "0" * 64, 0, 3, b"abc")


@pytest.mark.parametrize("name", ["", "../../etc/passwd", "A" * 64, "0" * 63])
def test_names_that_are_no_hash_never_become_a_path(tmp_path: Path, name: str) -> None:
    with pytest.raises(Refused, match="identified by its hash"):
        PublicStore(tmp_path / "public", 1 << 20).want(RUN, name)
    with pytest.raises(Refused, match="identified by its hash"):
        PublicStore(tmp_path / "public", 1 << 20).add(RUN, name, 0, 1, b"x")
    assert list((tmp_path / "public").iterdir()) == []


def test_a_set_over_the_limit(tmp_path: Path) -> None:
    store = PublicStore(tmp_path, 10)
    store.want(RUN, "0" * 64)
    for total, piece in ((11, b"x"), (1, b"xx")):
        with pytest.raises(Refused) as refusal:
            store.add(RUN, "0" * 64, 0, total, piece)
        assert refusal.value.code == "too-large"


def test_pieces_that_no_run_waits_for_are_refused(tmp_path: Path) -> None:
    store, data, name = PublicStore(tmp_path, 1 << 20), pack_public(TABLES[0]), tables.digest(TABLES[0])
    store.want(RUN, name)
    for run, sha256 in ((RUN, "0" * 64), ("f" * 32, name)):
        with pytest.raises(Refused) as refusal:
            store.add(run, sha256, 0, len(data), data)
        assert refusal.value.code == "not-open"
    assert list(tmp_path.iterdir()) == []


def test_half_a_set_goes_with_the_last_run_that_waits_for_it(tmp_path: Path) -> None:
    store, data, name = PublicStore(tmp_path, 1 << 20), pack_public(TABLES[0]), tables.digest(TABLES[0])
    for run in (RUN, "f" * 32):
        store.want(run, name)
    store.add(RUN, name, 0, len(data), data[:100])
    store.leave(RUN)
    assert store.have(name) == 100
    store.want("f" * 32, "0" * 64)  # another plan, and with it another set
    assert store.have(name) == 0
    store.leave("never seen")


def test_what_another_process_left_half_fetched_is_removed_when_the_next_starts(tmp_path: Path) -> None:
    store, data, name = PublicStore(tmp_path, 1 << 20), pack_public(TABLES[0]), tables.digest(TABLES[0])
    store.want(RUN, name)
    store.add(RUN, name, 0, len(data), data[:100])
    PublicStore(tmp_path, 1 << 20)  # somebody looks, while the agent fetches
    assert store.have(name) == 100
    PublicStore(tmp_path, 1 << 20).remove_parts()
    assert store.have(name) == 0


def test_all_sets_together_have_a_limit_on_disk(tmp_path: Path) -> None:
    sets = [pack_public(np.full((30, 4), float(number))) for number in range(7)]
    store, size = PublicStore(tmp_path, len(sets[0])), len(sets[0])
    names = [tables.digest(np.full((30, 4), float(number))) for number in range(7)]

    def fetch(number: int) -> None:
        store.want(str(number), names[number])
        store.add(str(number), names[number], 0, size, sets[number])

    for number in range(4):
        fetch(number)
    with pytest.raises(Refused) as refusal:
        fetch(4)
    assert refusal.value.code == "no-room"
    store.leave("4")
    for number in (0, 1):
        store.leave(str(number))
    assert store.get(names[0]) is not None  # needed again, and so younger than 1
    fetch(5)
    assert [store.get(name) is not None for name in names] == [True, False, True, True, False, True, False]
    assert sum(file.stat().st_size for file in tmp_path.iterdir()) == 4 * size


def test_a_damaged_file_is_fetched_again(tmp_path: Path) -> None:
    data, name = pack_public(TABLES[0]), tables.digest(TABLES[0])
    before = PublicStore(tmp_path, 1 << 20)
    before.want(RUN, name)
    before.add(RUN, name, 0, len(data), data)
    (tmp_path / f"{name}.table").write_bytes(data[:-5])
    store = PublicStore(tmp_path, 1 << 20)
    assert store.get(name) is None
    assert store.have(name) == 0


def test_the_owners_own_copy(tmp_path: Path) -> None:
    store = PublicStore(tmp_path, 0, TABLES[0])
    assert store.get(tables.digest(TABLES[0])) is not None
