"""Sessions in which every message is signed: requests for the lead, replies by the sites.

Around any session of a host; the link neither knows nor cares. A site is greeted when it is first asked, and again
when its agent was started anew.
"""

from __future__ import annotations

import itertools
import re
import secrets
import threading
from collections import defaultdict
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any, Final

from collegium import wire
from collegium.errors import ConfigError, Refused, WireError
from collegium.flare.agreement.envelopes import OTHER_TURN, REPLY, REQUEST, UNKNOWN, Envelope, enclose
from collegium.flare.coordinator.installations import Installations, OtherInstallation
from collegium.flare.coordinator.link import PartyBarred, PartyLost, Session, state_of
from collegium.flare.kits.identity import Installation
from collegium.flare.kits.kit import Kit, read_kit
from collegium.flare.kits.revoked import Revoked
from collegium.flare.kits.vouching import Authority, Member, OwnVoucher, Voucher
from collegium.protocols.primitives import ed25519_public

_GREETING_SECONDS, _TRIES = 30.0, 5
_PLACE: Final = re.compile(r"[0-9a-f]{64}")
_TURN: Final = re.compile(r"([0-9a-f]{32})?")


@dataclass(frozen=True)
class _Signer:
    """A key that signs messages, for which the lead's certificate vouches."""

    secret: bytes
    public: bytes
    own: OwnVoucher
    member: Member


class LeadSignature:
    """A key for as long as this program runs, or until the lead's certificate was renewed: then there is another.

    `folder` has the book of installations, and `server` the list of who is not trusted any more.
    """

    def __init__(self, lead: Kit, server: Path, folder: Path) -> None:
        self._lead = lead
        self.authority, self.installations = Authority(lead), Installations(folder)
        self._revoked = Revoked(server)
        self._numbers = itertools.count(1)
        self._server = server
        self._met: dict[str, datetime] = {}
        self._lock = threading.Lock()
        self._signer = self._new_signer()

    @property
    def signer(self) -> _Signer:
        """Who signs now."""
        with self._lock:
            if self._signer.own.renewed():
                self._signer = self._new_signer()
            return self._signer

    def require_trusted(self, member: Member | None = None) -> None:
        """Refuse a member, or this lead itself, whom the server's list names."""
        self._revoked.require_trusted(member or self._signer.member)

    def is_revoked(self, member: Member) -> bool:
        """Whether the list names a member's certificate, and not the member: it may have another one by now."""
        return member.serial in self._revoked and member.name not in self._revoked

    def meet(self, site: Member) -> None:
        """Remember how long a site's certificate lasts."""
        self._met[site.name] = site.until

    def certificates(self) -> dict[str, float]:
        """Until when certificates last, in seconds since 1970: the server's, this lead's, those of sites it has met."""
        found = {name: until.timestamp() for name, until in sorted(dict(self._met).items())}
        found[self._signer.member.name] = self._signer.member.until.timestamp()
        with suppress(ConfigError):  # whoever starts the server hears of it
            found["server"] = read_kit(self._server, "server", valid=False).expires
        return found

    def enclose(
        self, party: str, challenge: str, words: Mapping[str, Any], message: bytes, signer: _Signer | None = None
    ) -> tuple[bytes, bytes]:
        """A request to one site, and its signature."""
        by, number = signer or self._signer, next(self._numbers)
        head = {"to": party, "key": by.public.hex(), "challenge": challenge, "number": number, **words}
        return enclose(REQUEST, by.secret, head, message)

    def _new_signer(self) -> _Signer:
        secret = secrets.token_bytes(32)
        public = ed25519_public(secret)
        own = OwnVoucher(self._lead, public)
        return _Signer(secret, public, own, self.authority.check(own.voucher, public))


@dataclass(frozen=True)
class _Site:
    """What a site's agent said when it was greeted."""

    identity: bytes
    challenge: str
    member: Member
    signer: _Signer
    """Whom it was greeted by."""


class SignedSession:
    """A session whose sites are known by their keys."""

    def __init__(self, session: Session, lead: LeadSignature) -> None:
        self._session, self._lead = session, lead
        self._greeting: dict[str, threading.Lock] = defaultdict(threading.Lock)
        self._sites: dict[str, _Site] = {}

    @property
    def ready(self) -> frozenset[str]:
        """The sites that were there when it began."""
        return self._session.ready

    def close(self) -> None:
        """End it."""
        self._session.close()

    def request(self, party: str, message: bytes, timeout: float) -> bytes:
        """One question to one site. Raises PartyBarred where it is not to be asked."""
        try:
            signer = self._lead.signer
            self._lead.require_trusted()
            shut_out = self._lead.installations.is_shut_out(party)
            known = self._sites.get(party)
            is_stale = shut_out or (
                known is not None and (known.signer is not signer or self._lead.is_revoked(known.member))
            )
            site = self._greeted(party, known if is_stale else None)
            for _ in range(_TRIES):
                self._lead.require_trusted(site.member)
                letter = self._ask(party, site, {}, message, timeout)
                if "unknown" not in letter.head:
                    return letter.message
                site = self._greeted(party, site)  # its agent is another process than the one that was greeted
        except Refused as refusal:
            raise PartyBarred(f"{party} is not asked: {refusal}", refusal.code) from None
        raise PartyLost(f"the agent of {party} is started again and again")

    def _greeted(self, party: str, stale: _Site | None) -> _Site:
        """The site, greeted if it has not been since it was `stale`."""
        with self._greeting[party]:
            if self._sites.get(party) in (None, stale):
                self._sites[party] = self._greet(party)
            return self._sites[party]

    def _greet(self, party: str) -> _Site:
        for _ in range(_TRIES):
            site, turn, state = self._give_turn(party)
            if state == "turn":
                self._lead.installations.kept(party, turn)
                return site
            if state not in (OTHER_TURN, UNKNOWN):
                raise PartyBarred(f"{party} could not keep its turn: {state}", state)
        raise PartyLost(f"{party} could not be given its turn")

    def _give_turn(self, party: str) -> tuple[_Site, str, str]:
        """Greet a site and give it the next turn; and what it says to that."""
        signer = self._lead.signer
        words = {"voucher": signer.own.voucher.to_plain()}
        raw, name = self._lead.enclose(party, "", words, b"", signer)
        reply = self._session.request(party, raw, _GREETING_SECONDS)
        try:
            letter = Envelope.read(REPLY, reply)
            identity = letter.key("identity")
            if "voucher" not in letter.head:
                code = state_of(wire.cut(letter.message)[0])
                raise PartyBarred(f"{party} did not accept this lead: {code}", code)
            member = self._lead.authority.check(Voucher.from_plain(letter.head["voucher"]), identity)
        except WireError:
            raise PartyBarred(
                f"{party} answered without a signature: it has another version", "other-version"
            ) from None
        if member.kind != "site" or member.name != party or not _answers(letter, party, identity, name):
            raise PartyLost(f"{party} was answered for by somebody else")
        self._lead.require_trusted(member)
        self._lead.meet(member)
        site = _Site(identity, letter.word("challenge"), member, signer)
        found = Installation(identity.hex(), letter.word("place"), letter.word("turn"))
        if not _PLACE.fullmatch(found.place) or not _TURN.fullmatch(found.turn):
            raise WireError(f"{party} does not say which installation it is.")
        try:
            turn = self._lead.installations.meet(party, found)
        except OtherInstallation as error:
            self._ask(party, site, {"notice": True}, b"", _GREETING_SECONDS)
            raise PartyBarred(str(error), "other-installation") from None
        given = {"turn": turn, "after": found.turn}
        said = wire.cut(self._ask(party, site, given, b"", _GREETING_SECONDS).message)[0]
        return site, turn, state_of(said)

    def _ask(self, party: str, site: _Site, words: Mapping[str, Any], message: bytes, timeout: float) -> Envelope:
        raw, name = self._lead.enclose(party, site.challenge, words, message, site.signer)
        try:
            letter = Envelope.read(REPLY, self._session.request(party, raw, timeout))
        except WireError:
            letter = None
        if letter is None or not _answers(letter, party, site.identity, name):
            raise PartyLost(f"{party} was answered for by somebody else")
        return letter


def _answers(letter: Envelope, party: str, identity: bytes, name: bytes) -> bool:
    """Whether this is that site's answer to that request."""
    return letter.word("from") == party and letter.word("to") == name.hex() and letter.is_from(identity)
