"""What the package brings for browsers."""

from __future__ import annotations

import hashlib
from importlib import resources

import pytest
from tests.console.visiting import Visitor

from collegium.console.static_files import content

VENDORED = {
    "htmx.min.js": "a0abb04f2f45a1f89d1d4844023245537e5e6014c87b144553e0607b4cc32130",
    "uPlot.iife.min.js": "19c8d4c6ad88929a79f4ae49d6f7161566dfd0ba3d15cc495e974f787eb78f1f",
    "uPlot.min.css": "df630c6a8d6f8eeaff264b50f73ce5b114f646ffd9a0bb74f049b0a00135fa04",
}
"""As the npm registry has them: htmx.org 4.0.1 and uplot 1.6.32."""
FOLDER = resources.files("collegium.console") / "static"


@pytest.mark.parametrize("name", VENDORED)
def test_what_others_wrote_is_as_they_published_it(name):
    assert hashlib.sha256((FOLDER / name).read_bytes()).hexdigest() == VENDORED[name]


@pytest.mark.parametrize(("name", "said"), [("htmx.LICENSE", "Zero-Clause BSD"), ("uPlot.LICENSE", "MIT License")])
def test_licences_are_beside_it(name, said):
    assert said in (FOLDER / name).read_text(encoding="utf-8")


def test_a_page_with_everything_takes_at_most_200_kilobytes():
    names = [each.name for each in FOLDER.iterdir() if each.name.endswith((".js", ".css", ".svg"))]
    assert sum(len(content(name) or b"") for name in [*names, "report.css"]) < 180_000  # and 20 kB of HTML


def test_nothing_is_loaded_from_elsewhere():
    for name in ("console.css", "console.js", "report.css", "icon.svg"):
        text = (content(name) or b"").decode().replace("http://www.w3.org/2000/svg", "")
        assert "//" not in text.replace("// ", "")


@pytest.mark.parametrize(
    "name", ["..%2faccess.py", "access.py", "htmx.LICENSE", "%2e%2e/guard.py", "console.js%00", "nothing.js"]
)
def test_nothing_else_of_this_machine_is_served(console, name):
    assert Visitor.of(console).get(f"/static/{name}").status == 404


def test_kinds_are_said(console):
    visitor = Visitor.of(console)
    for name, kind in {"console.js": "text/javascript", "report.css": "text/css", "icon.svg": "image/svg+xml"}.items():
        assert visitor.get(f"/static/{name}").headers["content-type"].startswith(kind)
