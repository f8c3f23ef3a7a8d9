from __future__ import annotations

import shutil
import sqlite3

import pytest

from collegium.core.link import Answer
from collegium.core.observations import Notes
from collegium.errors import RecordError, StorageError
from collegium.runs.record import Record

ANSWERS = [Answer("a", b"one", Notes()), Answer("b", b"two")]
ABOUT = {"run": "r1", "algorithm": "FedCT()", "seed": 0}


def write(record: Record, number: int) -> None:
    list(record.write(number, f"orders{number}", iter(ANSWERS)))


@pytest.fixture
def path(tmp_path):
    record = Record(tmp_path / "record", ABOUT, resume=False)
    for number in range(3):
        write(record, number)
    record.close()
    return tmp_path / "record"


def test_exchanges_come_back_and_the_run_keeps_its_id(path):
    record = Record(path, ABOUT | {"run": "another"}, resume=True)
    assert record.length == 3
    assert record.run == "r1"
    assert list(record.answers(1)) == ANSWERS
    assert record.orders_hash(2) == "orders2"
    write(record, 3)
    assert record.length == 4


def test_an_exchange_counts_only_when_it_is_whole(tmp_path):
    record = Record(tmp_path / "record", ABOUT, resume=False)

    def breaks():
        yield ANSWERS[0]
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        list(record.write(0, "orders0", breaks()))
    assert record.length == 0
    write(record, 0)
    record.close()
    assert Record(tmp_path / "record", ABOUT, resume=True).length == 1


def test_another_run_is_refused_and_the_difference_named(path):
    with pytest.raises(RecordError, match="seed differ"):
        Record(path, ABOUT | {"seed": 1}, resume=True)


@pytest.mark.parametrize("statement", ["DELETE FROM run", "UPDATE run SET value = '3'"])
def test_a_record_of_another_version_is_refused_in_one_line(path, statement):
    db = sqlite3.connect(path)
    db.execute(f"{statement} WHERE key = 'version'")
    db.commit()
    db.close()
    with pytest.raises(RecordError, match="was written by another version of Collegium") as caught:
        Record(path, ABOUT | {"seed": 1}, resume=True)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    "statement",
    [
        "UPDATE reply SET frame = x'00' WHERE exchange = 1 AND party = 'a'",
        "DELETE FROM reply WHERE exchange = 2 AND party = 'b'",
        "DELETE FROM exchange WHERE number = 1",
        "DELETE FROM exchange WHERE number = 2",
        "UPDATE exchange SET orders = 'x' WHERE number = 0",
    ],
)
def test_every_change_is_found(path, statement):
    db = sqlite3.connect(path)
    db.execute(statement)
    db.commit()
    db.close()
    with pytest.raises(RecordError):
        Record(path, ABOUT, resume=True)


def test_a_truncated_record_is_found(path):
    data = path.read_bytes()
    for size in (len(data) // 2, 100):
        path.write_bytes(data[:size])
        with pytest.raises(RecordError):
            Record(path, ABOUT, resume=True)


def test_a_file_that_is_no_record_is_refused(tmp_path):
    (tmp_path / "record").write_text("not a database, not a database, not a database" * 30)
    with pytest.raises(StorageError):
        Record(tmp_path / "record", ABOUT, resume=True)


@pytest.fixture
def durable(tmp_path):
    """A record of three exchanges that are all in the write-ahead log, as a killed run leaves it."""
    record = Record(tmp_path / "whole", ABOUT, resume=False, durable=True)
    for number in range(3):
        write(record, number)
    for name in ("whole", "whole-wal", "whole.head"):
        shutil.copy(tmp_path / name, tmp_path / name.replace("whole", "record"))
    record.close()
    return tmp_path / "record"


def test_a_durable_record_goes_on_after_a_kill(durable):
    record = Record(durable, ABOUT, resume=True, durable=True)
    assert record.length == 3
    write(record, 3)
    record.close()
    assert Record(durable, ABOUT, resume=True, durable=True).length == 4


@pytest.mark.parametrize("left", [0.0, 0.3, 0.9])
def test_a_lost_or_truncated_write_ahead_log_is_found(durable, left):
    log = durable.with_name("record-wal")
    content = log.read_bytes()
    log.unlink()
    if left:
        log.write_bytes(content[: int(left * len(content))])
    with pytest.raises(RecordError, match=r"lost.* Restore record, and record-wal"):
        Record(durable, ABOUT, resume=True, durable=True)


def test_a_damaged_write_ahead_log_is_found(durable):
    log = durable.with_name("record-wal")
    content = bytearray(log.read_bytes())
    content[len(content) // 2] ^= 0xFF
    log.write_bytes(content)
    with pytest.raises(RecordError, match="lost"):
        Record(durable, ABOUT, resume=True, durable=True)


def test_a_record_that_is_gone_is_not_begun_again(durable):
    for name in ("record", "record-wal"):
        durable.with_name(name).unlink()
    for _ in range(2):  # the first attempt leaves an empty file behind
        with pytest.raises(RecordError, match="its record is lost"):
            Record(durable, ABOUT, resume=True, durable=True)
    durable.with_name("record.head").unlink()
    with pytest.raises(RecordError, match="its record is lost"):
        Record(durable, ABOUT, resume=True, durable=True, begun_by=[durable.with_name("whole")])


def test_a_record_may_be_ahead_of_the_file_beside_it(durable):
    """A kill between the two writes."""
    head = durable.with_name("record.head")
    record = Record(durable, ABOUT, resume=True, durable=True)
    before = head.read_bytes()
    write(record, 3)
    record.close()
    head.write_bytes(before)
    assert Record(durable, ABOUT, resume=True, durable=True).length == 4
