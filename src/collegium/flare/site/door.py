"""A site's door: only a lead of the federation gets through to the office, and only what that lead says now.

Between the coordinator and this process are programs that a site need not trust: the server, NVFlare, its job's
process, and whoever reaches one of them. A coordinator signs every message with a key that its lead's certificate
vouches for. A signature counts for this site, for this process of its agent, and once. Replies are signed too, with the
site's own key, and name the request that they answer.
"""

from __future__ import annotations

import re
import secrets
import threading
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, Final

from collegium import wire
from collegium.errors import CollegiumError, Refused, StorageError, WireError
from collegium.flare.agreement.envelopes import OTHER_TURN, REPLY, REQUEST, UNKNOWN, Envelope, enclose
from collegium.flare.kits.identity import AGENT, RUN_LEAD, Installation, read_turn, write_private, write_turn
from collegium.flare.kits.kit import Kit
from collegium.flare.kits.revoked import Revoked
from collegium.flare.kits.vouching import Authority, Member, OwnVoucher, Voucher
from collegium.protocols.keys import SiteKeys
from collegium.site.agent import SiteLog
from collegium.site.ledger import storage_errors

HELLO: Final = wire.join({"do": "hello"}, b"")
_MOST_CALLERS, _MOST_OUT_OF_ORDER = 64, 1024
_HEX: Final = re.compile(r"[0-9a-f]{32}")


@dataclass
class _Caller:
    """A coordinator's key that said hello, and the numbers that it has used."""

    lead: Member
    _highest: int = 0
    _used: set[int] = field(default_factory=set)

    def use(self, number: object) -> None:
        """Refuse what was said before. Messages may overtake each other, but not by far."""
        if not isinstance(number, int) or number in self._used or number <= self._highest - _MOST_OUT_OF_ORDER:
            raise Refused("replayed", "A message came a second time, or far too late.")
        self._used.add(number)
        self._highest = max(self._highest, number)
        if len(self._used) > 2 * _MOST_OUT_OF_ORDER:
            self._used = {each for each in self._used if each > self._highest - _MOST_OUT_OF_ORDER}


class Door:
    """Before a site's office. `answer` is the office's; `tell` reaches the site's owner."""

    def __init__(
        self, kit: Kit, keys: SiteKeys, place: str, answer: Callable[[bytes], bytes], tell: Callable[[str], None]
    ) -> None:
        self._name, self._folder = kit.name, kit.folder / AGENT
        self._keys, self._place = keys, place
        self._office, self._tell = answer, tell
        self._authority, self._revoked = Authority(kit), Revoked(kit.folder)
        self._own = OwnVoucher(kit, bytes.fromhex(keys.identity))
        self._challenge = secrets.token_hex(16)
        self._callers: dict[bytes, _Caller] = {}
        self._lock = threading.Lock()
        self._log, self._said = SiteLog(self._folder / "site.log"), set[str]()

    def answer(self, message: bytes) -> bytes:
        """One answer to one message, whatever it holds. Never raises."""
        try:
            letter = Envelope.read(REQUEST, message)
        except WireError:
            self._note("other-version", "a message came without a signature")
            return _refusal("other-version")
        words: dict[str, Any] = {}
        if self._own.renewed():
            self._forget_callers()
        try:
            reply = self._greeted(letter, words) if "voucher" in letter.head else self._served(letter, words)
        except Refused as refusal:
            self._note(refusal.code, str(refusal))
            words |= {"unknown": True} if refusal.code == UNKNOWN else {}
            reply = _refusal(refusal.code)
        except StorageError as error:
            self._note("storage-failed", str(error))
            reply = _refusal("storage-failed")
        except Exception as error:
            self._note("bad-message", type(error).__name__)
            reply = _refusal("bad-message")
        words |= {"from": self._name, "to": letter.signature.hex(), "challenge": self._challenge}
        return enclose(REPLY, self._keys.secret, words, reply)[0]

    @property
    def installation(self) -> Installation:
        """What the coordinator compares with the last time."""
        return Installation(self._keys.identity, self._place, read_turn(self._folder))

    def _greeted(self, letter: Envelope, words: dict[str, Any]) -> bytes:
        """A lead says hello with a new key. That can be replayed by anybody, and does nothing but introduce both."""
        key = self._addressed(letter)
        lead = self._authority.check(Voucher.from_plain(letter.head["voucher"]), key)
        if lead.kind != "lead":
            raise Refused("not-a-lead", f"{lead.name} is no lead, and gives no orders.")
        self._revoked.require_trusted(lead)
        with self._lock:
            if key not in self._callers and len(self._callers) >= _MOST_CALLERS:
                self._start_anew()
            self._callers.setdefault(key, _Caller(lead))  # a replayed hello must not forget used numbers
        here = self.installation
        words |= {"voucher": self._own.voucher.to_plain(), "identity": here.identity, "place": here.place}
        words |= {"turn": here.turn}
        return self._office(HELLO)

    def _forget_callers(self) -> None:
        """This site has another certificate: whoever knows the old one must see the new one."""
        with self._lock:
            self._start_anew()

    def _start_anew(self) -> None:
        """Who is forgotten greets again. What it said under the old challenge must not count a second time."""
        self._callers, self._challenge = {}, secrets.token_hex(16)

    def _served(self, letter: Envelope, words: dict[str, Any]) -> bytes:
        key = self._addressed(letter)
        with self._lock:
            caller = self._callers.get(key)
            if caller is None or letter.word("challenge") != self._challenge:
                raise Refused(UNKNOWN, "A key that has not said hello to this process.")
            caller.use(letter.head.get("number"))
        if caller.lead.expired:
            raise Refused("untrusted-certificate", f"The certificate of {caller.lead.name} has expired.")
        self._revoked.require_trusted(caller.lead)
        if "turn" in letter.head:
            self._take_turn(letter.word("turn"), letter.word("after"))
            return wire.join({"state": "turn"}, b"")
        if "notice" in letter.head:
            self._tell_owner()
            return wire.join({"state": "told"}, b"")
        return self._for_run(caller.lead.name, letter.message)

    def _addressed(self, letter: Envelope) -> bytes:
        """The key that signed, if the message is for this site."""
        key = letter.key("key")
        if letter.word("to") != self._name or not letter.is_from(key):
            raise Refused("bad-signature", "A message is for another site, or its signature is wrong.")
        return key

    def _for_run(self, lead: str, message: bytes) -> bytes:
        """A run belongs to the lead that opened it, also over restarts; others cannot join in."""
        header, _ = wire.cut(message)
        run = header.get("run")
        owner = self._folder / "runs" / run / RUN_LEAD if isinstance(run, str) and _HEX.fullmatch(run) else None
        with storage_errors(self._folder, StorageError):
            known = owner.read_text(encoding="utf-8") if owner is not None and owner.is_file() else lead
        if known != lead:
            raise Refused("other-lead", f"{lead} sent a message for a run of {known}.")
        reply = self._office(message)
        if owner is not None and header.get("do") == "open" and owner.parent.is_dir() and not owner.exists():
            write_private(owner, lead.encode())
        return reply

    def _take_turn(self, turn: str, after: str) -> None:
        """Two coordinators may give one at the same time: the second must hear of the first."""
        if not _HEX.fullmatch(turn):
            raise Refused("bad-message", "A turn must be 32 hexadecimal digits.")
        with self._lock:
            if read_turn(self._folder) != after:
                raise Refused(OTHER_TURN, "Another coordinator was quicker to give this site its turn.")
            write_turn(self._folder, turn)

    def _tell_owner(self) -> None:
        """The coordinator found another installation of this site: its owner must hear of it too."""
        name = self.installation.name
        text = (
            f"this site answered from two installations: a copy of its kit is in use, or it was moved or restored. The "
            f"coordinator takes part with neither until it confirms one. This one is {name}: tell the lead by telephone"
        )
        if text not in self._said:
            self._said.add(text)
            self._tell(text)
            self._note("other-installation", text)

    def _note(self, code: str, text: str) -> None:
        """For the owner; whoever is refused tries again and again."""
        with suppress(OSError, CollegiumError):  # a full disk must not keep the site from refusing
            self._log.write_again(f"door: {code}: {text}")


def _refusal(code: str) -> bytes:
    return wire.join({"state": "refused", "code": code}, b"")
