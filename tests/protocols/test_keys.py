from __future__ import annotations

import pickle
from typing import Any

import numpy as np
import pytest

from collegium.errors import ConfigError
from collegium.protocols import ProtocolError, Reused
from collegium.protocols.keys import SiteKeys, new_secret


def test_an_envelope_reaches_its_addressee_only(meet: Any) -> None:
    sites = meet("a", "b", "c")
    message = {"words": "for b", "numbers": np.arange(3), "list": [1.5, None]}
    envelope = sites["a"].seal("b", message, "greeting")
    assert b"for b" not in envelope.tobytes()
    with pytest.raises(ProtocolError, match="'a'"):
        sites["c"].open("a", envelope, "greeting")
    opened = sites["b"].open("a", envelope, "greeting")
    assert opened["words"] == "for b"
    assert opened["list"] == [1.5, None]
    assert np.array_equal(opened["numbers"], np.arange(3))


def test_an_envelope_is_bound_to_sender_context_and_contents(meet: Any) -> None:
    sites = meet("a", "b", "c")
    envelope = sites["a"].seal("b", 1, "one")
    changed = envelope.copy()
    changed[40] ^= 1
    for sender, sent, context in (("c", envelope, "one"), ("a", envelope, "two"), ("a", changed, "one")):
        with pytest.raises(ProtocolError, match="cannot be opened"):
            sites["b"].open(sender, sent, context)
    with pytest.raises(ProtocolError, match="cannot be opened"):
        sites["b"].open("a", envelope[:20], "one")
    for nonsense in ("text", np.zeros(40), np.zeros((2, 20), np.uint8)):
        with pytest.raises(ProtocolError, match="array of bytes"):
            sites["b"].open("a", nonsense, "one")
    assert sites["b"].open("a", envelope, "one") == 1


def test_an_envelope_cannot_be_sent_back_to_its_sender(meet: Any) -> None:
    sites = meet("a", "b")
    with pytest.raises(ProtocolError):
        sites["a"].open("b", sites["a"].seal("b", 1, "one"), "one")


def test_replays_and_reused_contexts_raise(meet: Any) -> None:
    sites = meet("a", "b")
    envelope = sites["a"].seal("b", 1, "one")
    sites["b"].open("a", envelope, "one")
    with pytest.raises(Reused, match="second time"):
        sites["b"].open("a", envelope, "one")
    with pytest.raises(Reused, match="second time"):
        sites["a"].seal("b", 2, "one")
    sites["b"].seal("a", 2, "one")


def test_a_site_that_is_set_back_repeats_no_key_stream(meet: Any) -> None:
    site = meet("a", "b")["a"]
    earlier = pickle.loads(pickle.dumps(site))
    assert not np.array_equal(site.seal("b", 1, "one"), earlier.seal("b", 1, "one"))


def test_a_circle_name_is_used_once() -> None:
    keys = SiteKeys("a", new_secret())
    keys.join("run 1")
    keys.join("run 2")
    with pytest.raises(Reused, match="run 1"):
        keys.join("run 1")


def test_hellos_are_checked_against_identities(meet: Any) -> None:
    a, b, intruder = (SiteKeys(name, new_secret()) for name in ("a", "b", "b"))
    member = a.join("s")
    with pytest.raises(ProtocolError, match="another identity"):
        member.meet({"b": intruder.join("s").hello()}, {"b": b.identity})
    with pytest.raises(ProtocolError, match="another identity"):
        member.meet({"b": b.join("older circle").hello()}, {"b": b.identity})
    with pytest.raises(ConfigError, match="not known"):
        member.meet({"b": b.join("s").hello()}, {})
    with pytest.raises(ConfigError, match="has not met"):
        member.seal("b", 1, "one")


@pytest.mark.parametrize("key", ["00", "zz" * 32, 5, None])
def test_malformed_keys_are_named(key: Any) -> None:
    a, b = SiteKeys("a", new_secret()), SiteKeys("b", new_secret())
    hello = b.join("s").hello() | {"key": key}
    with pytest.raises(ProtocolError, match="'b'"):
        a.join("s").meet({"b": hello}, {"b": b.identity})


def test_a_key_of_small_order_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    from collegium.protocols import primitives

    a, b = SiteKeys("a", new_secret()), SiteKeys("b", new_secret())
    monkeypatch.setattr(primitives, "x25519_public", lambda secret: bytes(32))
    hello = b.join("s").hello()
    monkeypatch.undo()
    with pytest.raises(ProtocolError, match="not a point of the curve"):
        a.join("s").meet({"b": hello}, {"b": b.identity})


def test_a_second_hello_is_refused(meet: Any) -> None:
    site = meet("a", "b")["a"]
    with pytest.raises(Reused, match="hello twice"):
        site.meet({"b": {}}, {"b": ""})


def test_keys_differ_by_pair_purpose_and_circle(meet: Any) -> None:
    sites = meet("a", "b", "c")
    assert sites["a"].key("b", "masks") == sites["b"].key("a", "masks")
    assert len({sites["a"].key(party, purpose) for party in "bc" for purpose in ("masks", "seed")}) == 4
    other = meet("a", "b", name="other")
    assert other["a"].key("b", "masks") != sites["a"].key("b", "masks")


def test_secrets_are_not_shown() -> None:
    keys = SiteKeys("a", b"s" * 32)
    assert "sss" not in repr(keys)
    with pytest.raises(ConfigError, match="32"):
        SiteKeys("a", b"short")
