"""The layout that pages share."""

from __future__ import annotations

from urllib.parse import quote

from tests.console.visiting import Visitor


def test_text_never_becomes_markup(console):
    attack = "<script>alert(1)</script><img src=x onerror=alert(1)>\"'"
    shown = Visitor.of(console).get(f"/?name={quote(attack)}").text
    assert "&lt;script&gt;alert(1)" in shown
    assert "<img" not in shown


def test_nothing_in_it_is_inline(console):
    shown = Visitor.of(console).get("/").text
    assert "<style" not in shown
    assert " style=" not in shown
    assert " onclick" not in shown
    assert shown.count("<script") == shown.count('<script src="/static/')


def test_keyboards_and_screen_readers_find_their_way(console):
    shown = Visitor.of(console).get("/").text
    assert shown.index('href="#main"') < shown.index("<header>")
    assert '<main id="main" tabindex="-1">' in shown
    assert 'role="status" aria-live="polite"' in shown
    assert '<html lang="en">' in shown
