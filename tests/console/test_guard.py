"""Attacks on what stands before every page."""

from __future__ import annotations

import socket

import pytest
from tests.console.visiting import Visitor

from collegium.console.guard import HEADERS, MOST_BYTES


def test_a_link_opens_the_page_once(console):
    link = console.link()
    first = Visitor(console)
    entered = first.open(link)
    assert entered.status == 200
    assert 'content="0;url=/"' in entered.text
    assert first.get("/").status == 200
    second = Visitor(console)
    again = second.open(link)
    assert again.status == 403
    assert again.line.startswith("This link has been used")
    assert "collegium watch" in again.line
    assert "set-cookie" not in again.headers


def test_the_browser_that_opened_a_link_may_open_it_again(console):
    link = console.link()
    visitor = Visitor(console)
    visitor.open(link)
    again = visitor.open(link)
    assert (again.status, again.headers["location"]) == (303, "/")


def test_the_cookie_is_for_this_console_and_for_no_script(console):
    answer = Visitor(console).open(console.link())
    name, *attributes = answer.headers["set-cookie"].split("; ")
    assert name.startswith(f"collegium-{console.port}=")
    assert {"httponly", "samesite=strict", "path=/"} <= {each.lower() for each in attributes}


@pytest.mark.parametrize("path", ["/", "/events", "/static/console.js", "/nowhere", "/?token=", "/?token=guess"])
def test_without_the_link_there_is_one_line_and_nothing_else(console, path):
    console.link()
    answer = Visitor(console).get(path)
    assert answer.status == 403
    assert "`collegium watch`" in answer.line
    assert answer.headers["content-type"].startswith("text/plain")


def test_a_cookie_of_somebody_else_opens_nothing(console):
    visitor = Visitor(console, {"Cookie": f"collegium-{console.port}=AAAA; other=1"})
    assert visitor.get("/").status == 403


def test_looking_ahead_does_not_use_a_link_up(console):
    link = console.link()
    assert Visitor(console).open(link, Sec_Purpose="prefetch;prerender").status == 403
    assert Visitor(console).send("HEAD", link.partition(str(console.port))[2]).status == 403
    assert Visitor(console).open(link).status == 200


@pytest.mark.parametrize(
    "name", ["evil.example", "evil.example:{port}", "127.0.0.1", "127.0.0.1:1", "localhost.evil.example:{port}", ""]
)
def test_rebinding_a_name_gets_nothing_even_with_the_cookie(console, name):
    visitor = Visitor.of(console)
    answer = visitor.get("/", Host=name.format(port=console.port))
    assert answer.status == 421
    assert answer.line.startswith("This console does not answer to that name.")


@pytest.mark.parametrize("name", ["localhost:{port}", "127.0.0.1:{port}", "[::1]:{port}", "LOCALHOST:{port}"])
def test_names_of_this_machine_are_answered(console, name):
    assert Visitor.of(console).get("/", Host=name.format(port=console.port)).status == 200


def test_rebinding_cannot_use_up_a_link(console):
    link = console.link()
    assert Visitor(console).open(link, Host="evil.example").status == 421
    assert Visitor(console).open(link).status == 200


@pytest.mark.parametrize("hosts", ["", "Host: 127.0.0.1:{port}\r\nHost: evil.example\r\n"])
def test_no_name_or_two_names_get_nothing(console, hosts):
    with socket.create_connection(("127.0.0.1", console.port), timeout=60) as raw:
        raw.sendall(f"GET / HTTP/1.1\r\n{hosts.format(port=console.port)}Connection: close\r\n\r\n".encode())
        assert raw.recv(4096).split()[1] in (b"400", b"421")


def test_every_answer_has_the_strict_headers(console):
    visitor = Visitor.of(console)
    answers = [visitor.get(path) for path in ("/", "/static/console.js", "/nowhere", "/fail", "/events")]
    for answer in [*answers, Visitor(console).get("/"), visitor.get("/", Host="evil.example")]:
        for name, value in HEADERS.items():
            assert answer.headers[name.lower()] == value
    policy = HEADERS["Content-Security-Policy"]
    assert "unsafe" not in policy
    assert policy.startswith("default-src 'none'")
    assert "frame-ancestors 'none'" in policy


def test_a_form_of_the_page_acts(console):
    visitor = Visitor.of(console)
    answer = visitor.post("/act", {"csrf": visitor.csrf(), "what": "stop"})
    assert answer.status == 200
    assert answer.text.startswith("did stop, csrf=")


def test_a_form_without_the_visits_secret_does_nothing(console):
    visitor, other = Visitor.of(console), Visitor.of(console)
    for secret in ("", "guess", other.csrf()):
        answer = visitor.post("/act", {"csrf": secret, "what": "stop"})
        assert answer.status == 403
        assert "reload the page" in answer.line
    assert visitor.post("/act", {"what": "stop"}).status == 403


@pytest.mark.parametrize("origin", ["null", "http://evil.example", "http://127.0.0.1:1", "", "file://", "https://"])
def test_a_form_from_elsewhere_does_nothing(console, origin):
    visitor = Visitor.of(console)
    answer = visitor.post("/act", {"csrf": visitor.csrf(), "what": "stop"}, Origin=origin)
    assert answer.status == 403
    assert answer.line.startswith("This form was not sent from this page")


def test_a_guest_looks_and_does_not_act(console):
    guest = Visitor.of(console, "guest")
    shown = guest.get("/")
    assert shown.status == 200
    assert "You can look at this page, not act on it." in shown.text
    answer = guest.post("/act", {"csrf": guest.csrf(), "what": "stop"})
    assert answer.status == 403
    assert answer.line == "This link is for looking only: ask its owner to act."


@pytest.mark.parametrize("kind", ["text/plain", "application/json", "multipart/form-data; boundary=x", ""])
def test_other_kinds_of_bodies_do_nothing(console, kind):
    visitor = Visitor.of(console)
    assert visitor.post("/act", {"csrf": visitor.csrf(), "what": "stop"}, Content_Type=kind).status == 415


def test_a_long_form_is_not_read(console):
    visitor = Visitor.of(console)
    answer = visitor.post("/act", {"csrf": visitor.csrf(), "what": "x" * MOST_BYTES})
    assert answer.status == 413


@pytest.mark.parametrize("site", ["cross-site", "same-site"])
def test_another_website_cannot_load_parts_of_it(console, site):
    visitor = Visitor.of(console)
    assert visitor.get("/events", Sec_Fetch_Site=site, Sec_Fetch_Mode="no-cors").status == 403
    assert visitor.get("/", Sec_Fetch_Site=site, Sec_Fetch_Mode="navigate").status == 200


def test_an_error_is_one_line(console):
    answer = Visitor.of(console).get("/fail")
    assert (answer.status, answer.line) == (409, "The study is not there: name another one.")
