"""Names that a console answers to."""

from __future__ import annotations

import pytest

from collegium.console.hosts import Hosts
from collegium.errors import ConfigError


@pytest.mark.parametrize(
    ("host", "given", "allowed"),
    [
        ("127.0.0.1", "127.0.0.1:80", True),
        ("127.0.0.1", "127.0.0.2:80", False),
        ("127.0.0.1", "10.0.0.7:80", False),
        ("::1", "[::1]:80", True),
        ("0.0.0.0", "10.0.0.7:80", True),
        ("0.0.0.0", "[2001:db8::1]:80", True),
        ("0.0.0.0", "10.0.0.7:81", False),
        ("0.0.0.0", "10.0.0.7", False),
        ("0.0.0.0", "evil.example:80", False),
        ("0.0.0.0", "localhost:80", True),
        ("10.0.0.7", "10.0.0.7:80", True),
        ("10.0.0.7", "localhost:80", False),
        ("10.0.0.7", "10.0.0.8:80", False),
        ("lab.example", "LAB.example:80", True),
    ],
)
def test_which_names_are_ours(host, given, allowed):
    assert Hosts(host, 80).allow([given]) is allowed


@pytest.mark.parametrize("name", ["", "http://a.example", "a.example/x", "*", "*.example", "user@a.example", "a b"])
def test_what_is_no_name_is_refused(name):
    with pytest.raises(ConfigError, match="is not a name of a host"):
        Hosts("127.0.0.1", 80, [name])
