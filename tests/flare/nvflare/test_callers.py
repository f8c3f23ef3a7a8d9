"""Two processes with one name at the server, told from one that was killed, or whose connection broke."""

from __future__ import annotations

from pathlib import Path

import pytest

from collegium.errors import ConfigError
from collegium.flare.coordinator.installations import Installations, OtherInstallation
from collegium.flare.kits.identity import Installation
from collegium.flare.nvflare.callers import Callers, _process

SITE = "site-1"


def seen(*calls: tuple[str, int]) -> list[bool]:
    callers = Callers()
    return [callers.is_second(SITE, *call) for call in calls]


def test_a_copy_pushes_the_site_out_and_the_site_dials_again() -> None:
    assert seen(("site", 1), ("copy", 1), ("site", 2)) == [False, False, True]
    assert seen(("copy", 1), ("site", 1), ("copy", 2), ("site", 2)) == [False, False, True, True]


def test_a_copy_does_not_say_which_process_it_is() -> None:
    assert seen(("site", 1), ("", 0), ("", 0), ("site", 2)) == [False, False, False, True]


def test_a_clone_of_the_running_machine_dials_as_the_same_process() -> None:
    assert seen(("site", 1), ("site", 2), ("site", 2)) == [False, False, True]


def test_a_site_that_is_killed_again_and_again_is_one() -> None:
    """Nothing depends on when the server learns that the old connection is gone: it may be half open for minutes."""
    assert not any(seen(*((f"process {number}", 1) for number in range(5000))))


def test_a_site_whose_connection_breaks_again_and_again_is_one() -> None:
    assert not any(seen(*(("site", number) for number in range(1, 5000))))


def test_sites_and_their_sessions_are_apart() -> None:
    callers = Callers()
    names = ("site-1", "site-2", "site-1.session", "site-1", "site-2", "site-1.session")
    assert not any(callers.is_second(name, name, number) for number, name in enumerate(names, 1))


def test_a_stranger_cannot_fill_the_memory() -> None:
    callers = Callers()
    for number in range(10_000):
        callers.is_second(f"{SITE}.{number}", "p", 1)
        callers.is_second(SITE, str(number), 1)
    assert len(callers._last) == len(callers._replaced) == 4096
    assert len(callers._replaced[SITE]) == 1024


@pytest.mark.parametrize("said", [None, "x", [1, 2], ["p"], ["p", "1"], ["p" * 65, 1], {"p": 1}, [["p"], 1]])
def test_what_is_no_process_is_an_older_version(said: object) -> None:
    assert _process(said) == ("", 0)


def test_a_site_that_is_connected_twice_is_asked_nothing_until_one_is_confirmed(tmp_path: Path) -> None:
    book, known = Installations(tmp_path), Installation("a", "b", "")
    turn = book.meet(SITE, known)
    book.kept(SITE, turn)
    true = Installation("a", "b", turn)
    assert (book.shut_out(SITE), book.shut_out(SITE)) == (True, False), "said once"
    assert book.is_shut_out(SITE)
    with pytest.raises(ConfigError, match="has not answered"):
        book.confirm(SITE, "0" * 12, "lead")
    assert list(book.waiting()[SITE]) == [true.name], "the one that took part before"
    with pytest.raises(OtherInstallation, match="while another is connected too"):
        book.meet(SITE, true)
    book.confirm(SITE, true.name, "lead")
    assert book.meet(SITE, true)
    assert book.shut_out(SITE), "as long as both are there, it is found out again"
    assert "connected twice at the same time; shut out" in (tmp_path / "installations.log").read_text()


def test_a_site_is_connected_twice_before_it_ever_answered(tmp_path: Path) -> None:
    book, first = Installations(tmp_path), Installation("a", "b", "")
    assert book.shut_out(SITE)
    assert book.waiting() == {SITE: {}}
    with pytest.raises(OtherInstallation):
        book.meet(SITE, first)
    book.confirm(SITE, first.name, "lead")
    assert book.meet(SITE, first)
