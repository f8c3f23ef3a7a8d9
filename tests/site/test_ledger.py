from __future__ import annotations

import sqlite3

import pytest

from collegium.errors import LedgerError, StorageError
from collegium.privacy.budget import write_charges
from collegium.privacy.claims import Charge
from collegium.privacy.events import Pure
from collegium.site.ledger import Entry, Ledger, Sent, genesis, read_ledger, row_hash, verify_ledger
from collegium.site.run_ledger import LedgerFile, MemoryLedger, RunLedger


def entry(number: int = 1, **changes) -> Entry:
    return Entry(**({"run": "r", "number": number, "round": 0, "step": "s", "kind": "HardLabels"} | FIXED | changes))


FIXED = {"bytes": 10, "wire_bytes": 100, "sha256": "00"}


@pytest.fixture
def path(tmp_path):
    file = tmp_path / "ledger.db"
    for party in ("a", "b"):
        ledger = Ledger(party, file)
        for number in range(3):
            with ledger.transaction():
                ledger.append(entry(number))
        ledger.close()
    return file


def change(path, statement, *values):
    db = sqlite3.connect(path)
    db.execute(statement, values)
    db.commit()
    db.close()


def test_an_intact_chain_is_verified(path):
    assert verify_ledger(path) == {"a": 3, "b": 3}
    assert [row["number"] for row in read_ledger(path) if row["party"] == "a"] == [0, 1, 2]


@pytest.mark.parametrize(
    "statement",
    [
        "UPDATE ledger SET bytes = 11 WHERE party = 'a' AND seq = 2",
        "UPDATE ledger SET event = '{}' WHERE party = 'b' AND seq = 1",
        "UPDATE ledger SET time = '2000-01-01' WHERE seq = 3",
        "DELETE FROM ledger WHERE party = 'a' AND seq = 2",
        "DELETE FROM ledger WHERE party = 'a' AND seq = 3",
        "DELETE FROM ledger WHERE party = 'b'",
        "DELETE FROM head WHERE party = 'b'",
        "UPDATE ledger SET hash = 'x' WHERE seq = 3",
        "UPDATE ledger SET salt = '00' WHERE seq = 3",
        "UPDATE ledger SET salt = NULL WHERE party = 'a'",
        "UPDATE head SET seq = 2 WHERE party = 'a'",
    ],
)
def test_every_change_is_found(path, statement):
    change(path, statement)
    with pytest.raises(LedgerError):
        verify_ledger(path)


def test_a_row_that_was_forged_with_its_hash_is_found_by_the_next_one(path):
    forged = next(row for row in read_ledger(path) if (row["party"], row["seq"]) == ("a", 1)) | {"bytes": 1}
    with sqlite3.connect(path) as db:
        (salt,) = db.execute("SELECT salt FROM ledger WHERE party = 'a' AND seq = 1").fetchone()
    digest = row_hash(forged | {"salt": salt}, genesis("a"))
    change(path, "UPDATE ledger SET bytes = 1, hash = ? WHERE party = 'a' AND seq = 1", digest)
    change(path, "UPDATE ledger SET prev = ? WHERE party = 'a' AND seq = 2", digest)
    with pytest.raises(LedgerError, match="row 2 of 'a'"):
        verify_ledger(path)


@pytest.mark.parametrize(
    "statement",
    [
        "DELETE FROM ledger WHERE party = 'a' AND seq = 3",
        "DELETE FROM ledger WHERE party = 'a' AND seq = 1",
        "UPDATE ledger SET bytes = 11 WHERE party = 'a' AND seq = 2",
    ],
)
def test_nobody_knows_what_a_changed_ledger_has_spent(path, statement):
    change(path, statement)
    with pytest.raises(LedgerError):
        Ledger("a", path).charges()
    assert Ledger("b", path).charges() == []


def test_a_truncated_file_is_found(path):
    data = path.read_bytes()
    path.write_bytes(data[: len(data) // 2])
    with pytest.raises(LedgerError):
        verify_ledger(path)


def test_a_file_that_is_no_ledger_is_found(tmp_path):
    (tmp_path / "text").write_text("hello, this is no database" * 50)
    (tmp_path / "empty").touch()
    for name in ("text", "empty", "missing"):
        with pytest.raises(LedgerError):
            verify_ledger(tmp_path / name)
    with pytest.raises(LedgerError):
        Ledger("a", tmp_path / "text")


def test_a_transaction_stores_all_or_nothing(tmp_path):
    ledger = Ledger("a", tmp_path / "ledger.db")

    def interrupted():
        with ledger.transaction():
            ledger.append(entry())
            ledger.keep_reply("r", 1, Sent("q", b"reply"))
            raise RuntimeError

    with pytest.raises(RuntimeError):
        interrupted()
    assert ledger.rows() == []
    assert ledger.sent("r", 1) is None


def test_a_reply_is_kept_for_the_party_and_the_run(tmp_path):
    ledger, other = Ledger("a", tmp_path / "l.db"), Ledger("b", tmp_path / "l.db")
    with ledger.transaction():
        ledger.keep_reply("r", 7, Sent("request", b"reply", "notes"))
    assert ledger.sent("r", 7) == Sent("request", b"reply", "notes")
    assert ledger.sent("r2", 7) is None
    assert other.sent("r", 7) is None


def test_the_chain_goes_on_after_reopening(path):
    ledger = Ledger("a", path)
    with ledger.transaction():
        ledger.append(entry(9))
    ledger.close()
    assert verify_ledger(path) == {"a": 4, "b": 3}


def test_whoever_sends_nonsense_for_ever_fills_no_disk(monkeypatch):
    monkeypatch.setattr("collegium.site.ledger.KEPT_REFUSALS", 3)
    ledger = Ledger("a")
    for number in range(7):
        ledger.note_refusal("run", number, "step", "code")
    assert [row["number"] for row in ledger.refusals()] == [4, 5, 6]


@pytest.mark.parametrize(("durable", "level"), [(False, 1), (True, 2)])
def test_every_commit_is_synced_where_it_must_survive_a_power_cut(tmp_path, durable, level):
    ledger = Ledger("a", tmp_path / "ledger.db", durable=durable)
    assert tuple(ledger._db.execute("PRAGMA synchronous").fetchone()) == (level,)


def test_bytes_are_summed_per_run():
    ledger = Ledger("a")
    with ledger.transaction():
        ledger.append(entry(1))
        ledger.append(entry(2))
        ledger.append(entry(3, run="other"))
    assert ledger.bytes_of("r") == 20


def test_a_full_disk_is_told_in_one_line(tmp_path):
    ledger = Ledger("a", tmp_path / "ledger.db")
    pages = ledger._db.execute("PRAGMA page_count").fetchone()[0]
    ledger._db.execute(f"PRAGMA max_page_count = {pages + 1}")

    def fill():
        for number in range(100):
            with ledger.transaction():
                ledger.keep_reply("r", number, Sent("q", bytes(10_000)))

    with pytest.raises(StorageError, match="No space left"):
        fill()
    ledger._db.execute("PRAGMA max_page_count = 100000")
    with ledger.transaction():
        ledger.append(entry())
    assert verify_ledger(tmp_path / "ledger.db") == {"a": 1}


def test_a_folder_that_cannot_be_written_is_told(tmp_path):
    with pytest.raises(StorageError, match="Cannot write to"):
        Ledger("a", tmp_path / "missing" / "ledger.db")


def test_equal_rows_have_hashes_that_tell_nothing(path):
    a, b = ([row for row in read_ledger(path) if row["party"] == party] for party in "ab")
    assert "salt" not in a[0]  # what can be shown does not open the hash
    assert a[0]["hash"] != row_hash(a[0], genesis("a"))
    with sqlite3.connect(path) as db:
        salts = {bytes.fromhex(salt) for (salt,) in db.execute("SELECT salt FROM ledger")}
    assert len(salts) == len(a) + len(b)
    assert {len(salt) for salt in salts} == {32}


def test_a_ledger_of_an_earlier_version_is_verified_and_continued(tmp_path):
    file, party = tmp_path / "old.db", "a"
    ledger = Ledger(party, file)
    for number in range(2):
        with ledger.transaction():
            ledger.append(entry(number))
    ledger.close()
    prev = genesis(party)
    for row in read_ledger(file):  # as they were hashed before rows had salts
        digest = row_hash(row, prev)
        change(file, "UPDATE ledger SET prev = ?, hash = ? WHERE seq = ?", prev, digest, row["seq"])
        prev = digest
    change(file, "UPDATE head SET hash = ?", prev)
    change(file, "ALTER TABLE ledger DROP COLUMN salt")
    assert verify_ledger(file) == {"a": 2}
    assert len(read_ledger(file)) == 2
    ledger = Ledger(party, file)
    with ledger.transaction():
        ledger.append(entry(2))
    assert ledger.charges() == []
    ledger.close()
    assert verify_ledger(file) == {"a": 3}
    change(file, "UPDATE ledger SET bytes = 11 WHERE seq = 1")
    with pytest.raises(LedgerError):
        verify_ledger(file)


def test_charges_of_everybody_in_the_file_and_their_chains(path):
    other = Ledger("c", path)
    charge = Charge((Pure(1, 0.5),))
    with other.transaction():
        other.append(entry(1, event=write_charges([charge])))
    renamed = Ledger("d", path)
    assert renamed.charges() == []
    assert renamed.charges(of_all=True) == [charge]
    change(path, "UPDATE ledger SET bytes = 11 WHERE party = 'a' AND seq = 2")
    with pytest.raises(LedgerError):
        renamed.charges(of_all=True)


def _append_and_fail(ledger: Ledger) -> None:
    with ledger.transaction():
        ledger.append(entry(3))
        raise ZeroDivisionError


def filled(ledger: Ledger) -> Ledger:
    """Three rows, one that was taken back, and a refusal."""
    for number in range(3):
        with ledger.transaction():
            ledger.append(entry(number, event=write_charges([Charge((Pure(1, 0.5),))])))
            ledger.keep_reply("r", number, Sent(f"order {number}", b"reply", None))
    with pytest.raises(ZeroDivisionError):
        _append_and_fail(ledger)
    ledger.note_refusal("r", 4, "step", "unknown-step")
    return ledger


def test_the_ledgers_of_simulated_runs_say_what_any_other_does(tmp_path):
    file = LedgerFile(tmp_path / "run.db")
    file.take()
    plain = filled(Ledger("a", tmp_path / "plain.db"))
    plain_rows = [row | {"time": "", "prev": "", "hash": ""} for row in plain.rows()]
    for quick in (filled(RunLedger("a", file)), filled(MemoryLedger("a"))):
        assert [row | {"time": "", "prev": "", "hash": ""} for row in quick.rows()] == plain_rows
        assert [row["prev"] for row in quick.rows()] == [genesis("a"), *(row["hash"] for row in quick.rows()[:-1])]
        assert (quick.bytes_of("r"), quick.bytes_of("other")) == (plain.bytes_of("r"), 0) == (30, 0)
        assert quick.charges() == plain.charges()
        assert quick.sent("r", 2) == plain.sent("r", 2) == Sent("order 2", b"reply", None)
        assert quick.sent("r", 3) is None
        assert [row["code"] for row in quick.refusals()] == ["unknown-step"]
        quick.close()
    assert verify_ledger(tmp_path / "run.db") == {"a": 3}


def test_sites_share_a_runs_ledger_and_the_last_one_closes_it(tmp_path):
    file = LedgerFile(tmp_path / "run.db")
    one, two = RunLedger("a", file), RunLedger("b", file)
    one.close()
    with two.transaction():
        two.append(entry())
    two.close()
    with pytest.raises(sqlite3.ProgrammingError):
        file.db.execute("SELECT 1")
    again = RunLedger("b", LedgerFile(tmp_path / "run.db"))
    assert again.bytes_of("r") == 10
    with again.transaction():
        again.append(entry(2))
    again.close()
    assert verify_ledger(tmp_path / "run.db") == {"b": 2}


def test_a_runs_ledger_that_was_changed_before_it_was_opened_takes_no_more_rows(path):
    change(path, "UPDATE ledger SET bytes = 11 WHERE party = 'a' AND seq = 3")
    ledger = RunLedger("a", LedgerFile(path))
    with pytest.raises(LedgerError, match="changed or removed"), ledger.transaction():
        ledger.append(entry(4))
