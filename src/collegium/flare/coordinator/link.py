"""The link to sites at other organisations: opens the run at each, delivers orders, and outlives sessions.

A session (an NVFlare job) is disposable. When it dies, or when a site that was away is back, the next one is begun and
whatever has no reply yet is asked again: sites know what they have answered, so nothing is done or released twice.
"""

from __future__ import annotations

import hashlib
import math
import queue
import re
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, Final, Protocol

from collegium import wire
from collegium.core.correspondence import BAD_REPLY
from collegium.core.link import Answer
from collegium.errors import CollegiumError, WireError
from collegium.flare import PROTOCOL
from collegium.flare.agreement.approvals import DENIED, EXPIRED
from collegium.flare.agreement.journal import MOST_REASON
from collegium.flare.agreement.planning import Plan
from collegium.flare.agreement.usage import SPENT
from collegium.flare.site.pause import PAUSED
from collegium.flare.site.public_store import PIECE
from collegium.wire.replies import UNREAD, Refusal, write_refusal

_POLL, _ASK_AGAIN, _LOOK_SECONDS = 10.0, 0.5, 1.0
_REQUEST_SECONDS: Final = 60.0
_FRESH_SECONDS: Final = 30.0
_TRIES: Final = 3
_LOOK_AT_CLOCKS: Final = 0.2
_LONGEST_VERSION: Final = 32
_UNSTORED: Final = "storage-failed"
"""The code of a site whose disk is full: it did nothing, and is asked again as one that is away."""
_LEAST_LIMIT, _REHEARSED = 64 << 20, 8
"""A reply may have so many bytes, or so many times those of the largest release in the rehearsal of the plan."""


class SessionLost(CollegiumError):
    """The session is over: a job process died, or the server cannot be reached."""


class PartyLost(CollegiumError):
    """One site does not answer in this session."""


class PartyBarred(PartyLost):
    """One site is not to be asked: the text says why and what a person can do, the code goes to the record."""

    def __init__(self, text: str, code: str) -> None:
        super().__init__(text)
        self.code = code


class PartyAway(CollegiumError):
    """A site is connected, but its agent is still starting."""


class Session(Protocol):
    """Sites that can be asked, for as long as it lasts."""

    @property
    def ready(self) -> frozenset[str]:
        """The sites that were there when it began."""

    def request(self, party: str, message: bytes, timeout: float) -> bytes:
        """One question to one site. Raises SessionLost, PartyLost, PartyBarred or PartyAway."""

    def close(self) -> None:
        """End it."""


class Host(Protocol):
    """Where sessions come from."""

    def seen(self) -> Mapping[str, float]:
        """When each connected site was last heard of, in this machine's seconds. Raises SessionLost."""

    def begin(self, parties: frozenset[str]) -> Session:
        """A session with these sites. Raises SessionLost."""


class _Clock:
    """Counts a site's seconds from the moment it is given an order: how long it takes to reach it is not its fault."""

    def __init__(self, deadline: float | None) -> None:
        self._deadline = deadline
        self._end: float | None = None

    def start(self) -> None:
        """Unless it has been started: an order that is awaited has no more time."""
        if self._end is None and self._deadline is not None:
            self._end = time.monotonic() + self._deadline

    def reset(self) -> None:
        """The order did not get there, or nothing came of it: it will be given again."""
        self._end = None

    @property
    def left(self) -> float:
        """In seconds."""
        return math.inf if self._end is None else self._end - time.monotonic()

    @property
    def over(self) -> bool:
        """Has it had its time?"""
        return self.left <= 0


@dataclass(eq=False, repr=False)
class RemoteLink:
    """Orders to sites elsewhere."""

    host: Host
    """Where sessions come from."""
    run: str
    plan: Plan
    """What sites are asked to agree to."""
    public: bytes | None
    """The public set, for sites that have no copy of it."""
    parties: tuple[str, ...]
    welcome: bool = False
    """Whether sites that connect later may join between rounds."""
    patience: float = 30.0
    """Seconds to wait for a site that is away before going on without it."""
    outage: float = 600.0
    """Seconds to wait for a server that is away before giving the run up (it can be resumed)."""
    instances: dict[str, str] = field(default_factory=dict)
    """Which installation of each site took part first."""
    say: Callable[[str], None] = lambda text: None
    """Called with short messages for a person."""
    note: Callable[..., None] = lambda party, **facts: None
    """Called with what becomes known of a site: ``note("north", state="busy")``, ``note("north", version="0.1.0")``."""

    def __post_init__(self) -> None:
        self._session: Session | None = None
        self._opened: set[str] = set()
        self._gone: dict[str, float] = {}
        self._looked = 0.0
        self._told: set[str] = set()
        self._unstored: set[str] = set()
        self._closing = False
        self._most_bytes = max(_LEAST_LIMIT, _REHEARSED * max((step.bytes for step in self.plan.steps), default=0))
        self._lock = threading.RLock()

    def exchange(self, orders: Mapping[str, bytes], deadline: float | None) -> Iterator[Answer]:
        """One frame to each party; answers as they come."""
        # One that joined before this program was started again is known from the record.
        self.parties += tuple(party for party in orders if party not in self.parties)
        stop, replies = threading.Event(), queue.Queue[tuple[str, bytes | BaseException | None]]()
        clocks = {party: _Clock(deadline) for party in orders}

        def deliver(party: str, frame: bytes) -> None:
            try:
                replies.put((party, self._deliver(party, frame, clocks[party], stop)))
            except BaseException as error:  # raised where the algorithm runs
                replies.put((party, error))

        for party, frame in orders.items():
            threading.Thread(target=deliver, args=(party, frame), daemon=True).start()
        pending = set(orders)
        try:
            while pending and not all(clocks[party].over for party in pending):
                try:
                    party, reply = replies.get(timeout=None if deadline is None else _LOOK_AT_CLOCKS)
                except queue.Empty:
                    continue
                pending.discard(party)
                if isinstance(reply, BaseException):
                    raise reply
                if reply is not None:
                    yield Answer(party, reply)
        finally:
            stop.set()
            for party in pending:
                self._cancel(party, orders[party])

    def newcomers(self) -> tuple[str, ...]:
        """Sites that have connected since, where the study is open to them; they are parties from now on."""
        if not self.welcome:
            return ()
        with self._lock:
            fresh: tuple[str, ...] = ()
            with suppress(SessionLost):  # a server that is away is waited for in the exchange
                fresh = tuple(sorted(set(self._fresh()) - set(self.parties)))
            if fresh:
                self.parties += fresh
                self.say(f"{', '.join(fresh)} joined")
                self._end_session()  # the next one has them in it
            return fresh

    def farewell(self) -> None:
        """Tell the sites that the run is over, so that each keeps its model and its report."""
        with self._lock:
            session, here = self._session, sorted(self._opened)
        if session is None:
            return
        for party in here:
            with suppress(SessionLost, PartyLost, PartyAway, WireError):
                if self._close_at(session, party) == "not-open":  # it sleeps there, and keeps its keys until it is over
                    self._opened.discard(party)
                    if self._open(session, party) is None:
                        self._close_at(session, party)

    def _close_at(self, session: Session, party: str) -> str:
        return state_of(self._ask(session, party, {"do": "close", "run": self.run})[0])

    def close(self) -> None:
        """End the session, and all waiting for one."""
        self._closing = True  # without the lock: a thread that waits for a server may hold it
        self._end_session()

    # One order to one site.

    def _deliver(self, party: str, frame: bytes, clock: _Clock, stop: threading.Event) -> bytes | None:
        name, away, given = hashlib.sha256(frame).hexdigest()[:32], 0.0, False
        while not stop.is_set() and not clock.over:
            session = self._session_with(party)
            if session is None:
                self.note(party, state="away")
                away = away or time.monotonic()
                if time.monotonic() - away > self.patience:
                    return None
                stop.wait(_ASK_AGAIN)
                continue
            try:
                state, payload = self._open(session, party), b""
                if state is None:
                    clock.start()
                    wait = min(_POLL, max(0.1, clock.left))
                    words = {"do": "await" if given else "order", "run": self.run, "order": name, "wait": wait}
                    header, payload = self._ask(session, party, words, b"" if given else frame)
                    state = state_of(header)
                    if state in (PAUSED, DENIED):
                        self._tell_once(f"{party} {self._explained(state, reason_in(header))}")
            except PartyBarred as error:
                self._tell_once(str(error))
                state, payload = error.code, b""
            except (SessionLost, PartyLost) as lost:
                if not given:
                    clock.reset()
                if isinstance(lost, PartyLost):
                    self._lose(session, party)
                else:
                    self._forget(session)
                continue
            except PartyAway:
                state, payload = "away", b""
            except WireError:  # that site's own affair: it is there, and says something that cannot be read
                return write_refusal(Refusal(UNREAD, BAD_REPLY, ""))
            self.note(party, state=state)
            if state == "done":
                self._unstored.discard(party)
                return payload if len(payload) <= self._most_bytes else write_refusal(Refusal(UNREAD, BAD_REPLY, ""))
            if state == _UNSTORED:
                self._tell_of_storage(party)
            if state == "busy":
                away = 0.0
            elif state in ("away", "waiting", PAUSED, _UNSTORED):
                away = away or time.monotonic()
                if state == "waiting":  # for a person, who has as long as the study says
                    clock.start()
                elif time.monotonic() - away > self.patience:
                    return None if state == "away" else write_refusal(Refusal(UNREAD, state, ""))
            if state in ("not-open", "away", PAUSED, _UNSTORED):
                clock.reset()
                with self._lock:
                    self._opened.discard(party)
            elif state not in ("busy", "waiting"):
                return write_refusal(Refusal(UNREAD, state, ""))
            given = state == "busy"
            if not given:
                stop.wait(_ASK_AGAIN)
        return None

    def _tell_of_storage(self, party: str) -> None:
        if party not in self._unstored:
            self._unstored.add(party)
            self.say(f"{party} cannot store what it does ({_UNSTORED}); asking again for up to {self.patience:.0f} s")

    @staticmethod
    def _ask(
        session: Session, party: str, words: Mapping[str, Any], payload: bytes = b""
    ) -> tuple[dict[str, Any], bytes]:
        return wire.cut(session.request(party, wire.join(words, payload), _REQUEST_SECONDS))

    def _open(self, session: Session, party: str) -> str | None:
        """Open the run at a site, once per session; a refusal's code where the site will not."""
        with self._lock:
            if party in self._opened:
                return None
        header, _ = self._ask(session, party, {"do": "hello"})
        self.note(party, version=str(header.get("version"))[:_LONGEST_VERSION])
        if header.get("party") != party or header.get("protocol") != PROTOCOL:
            return "other-version"
        pinned = self.instances.setdefault(party, str(header.get("instance")))
        if pinned != header.get("instance"):
            self._tell_once(f"{party} answers from a different installation than before: its kit is in use twice")
            return "other-instance"
        plan = wire.pack(self.plan.to_plain()).data
        for _ in range(_TRIES):
            header, _ = self._ask(session, party, {"do": "open", "run": self.run}, plan)
            if header.get("state") == "open":
                with self._lock:
                    self._opened.add(party)
                return None
            if header.get("state") != "needs-public" or self.public is None:
                code = state_of(header)
                self._tell_once(f"{party} {self._explained(code, reason_in(header))}")
                return code
            refusal = self._send_public(session, party, header.get("have"))
            if refusal is not None:
                return refusal
        return "no-public-set"  # it was sent, and the site still asks for it

    def _explained(self, code: str, reason: str = "") -> str:
        """What a site's answer to the plan means, and what its owner can do about it."""
        again = f"its owner can sign the plan again: collegium site approve KIT {self.plan.digest[:12]}"
        return {
            "waiting": "waits for its owner to approve the plan",
            SPENT: f"refused: {SPENT}; all runs that its owner approved have begun, and {again} --runs N",
            EXPIRED: f"refused: {EXPIRED}; the day until which its owner approved is over, and {again} --until DATE",
            DENIED: f"refused: {DENIED}; its owner does not agree to the plan" + (f": {reason!r}" if reason else ""),
            PAUSED: f"is paused by its owner; asking again for up to {self.patience:.0f} s in each exchange",
        }.get(code, f"refused: {code}")

    def _send_public(self, session: Session, party: str, have: object) -> str | None:
        data = self.public or b""
        if type(have) is not int or not 0 <= have <= len(data):
            raise WireError(f"{party} has a part of the public set that does not exist.")
        words = {"do": "public", "run": self.run, "sha256": self.plan.public_sha256, "total": len(data)}
        for offset in range(have, len(data), PIECE):
            header, _ = self._ask(session, party, words | {"offset": offset}, data[offset : offset + PIECE])
            if header.get("state") != "public":
                return state_of(header)
        return None

    def _cancel(self, party: str, frame: bytes) -> None:
        name = hashlib.sha256(frame).hexdigest()[:32]
        session = self._session
        if session is not None and party in self._opened:
            with suppress(SessionLost, PartyLost, PartyAway):
                session.request(party, wire.join({"do": "cancel", "run": self.run, "order": name}, b""), 2.0)

    # Sessions.

    def _session_with(self, party: str) -> Session | None:
        """The present session if this site is in it. A site that is back is worth a new session."""
        with self._lock:
            if self._session is None:
                self._renew()
            if self._session is not None and party in self._session.ready and party not in self._gone:
                return self._session
            if time.monotonic() - self._looked > _LOOK_SECONDS:
                self._looked = time.monotonic()
                heard: float | None = None
                with suppress(SessionLost):
                    heard = self.host.seen().get(party)
                if heard is not None and heard > self._gone.setdefault(party, time.time()):
                    self.say(f"{party} is back")
                    self._renew()
                    return self._session_with(party)
            return None

    def _renew(self) -> None:
        """Begin a new session with the sites that are connected; keep trying for `outage` seconds."""
        end, session = time.monotonic() + self.outage, None
        self._end_session()
        while session is None:
            try:
                here = frozenset(self._fresh()) & frozenset(self.parties)
                session = self.host.begin(here) if here else None
            except SessionLost as error:
                self._tell_once(f"no session yet ({error}); trying again")
            if self._closing:
                raise SessionLost("The run was stopped.")
            if session is None and time.monotonic() > end:
                raise SessionLost(
                    f"No session with any site for {self.outage:.0f} s. Check that the server is running and that "
                    "sites have joined, then resume the run: collegium coordinate ... --resume"
                )
            if session is None:
                time.sleep(_ASK_AGAIN)
        now = time.time()
        self._session, self._opened = session, set()
        self._gone = {party: now for party in self.parties if party not in session.ready}

    def _fresh(self) -> list[str]:
        """Who was heard of lately, and since it was lost."""
        since = time.time() - _FRESH_SECONDS
        return [party for party, heard in self.host.seen().items() if heard > max(since, self._gone.get(party, 0.0))]

    def _forget(self, session: Session) -> None:
        with self._lock:
            if self._session is session:
                self.say("the session ended; starting another")
                self._end_session()

    def _end_session(self) -> None:
        session, self._session = self._session, None
        if session is not None:
            session.close()

    def _tell_once(self, text: str) -> None:
        if text not in self._told:
            self._told.add(text)
            self.say(text)

    def _lose(self, session: Session, party: str) -> None:
        with self._lock:
            if self._session is session and party not in self._gone:
                self.say(f"{party} is away")
                self._gone[party] = time.time()
                self._opened.discard(party)


def reason_in(header: Mapping[str, Any]) -> str:
    """Why a site's owner says no, where that is to be told. It is shown to people, so only plain text will do."""
    reason = header.get("reason")
    return reason if isinstance(reason, str) and reason.isprintable() and len(reason) <= MOST_REASON else ""


def state_of(header: Mapping[str, Any]) -> str:
    """What a site says: its state, or the code of its refusal. It is shown to people, so only words will do."""
    word = header.get("code") if header.get("state") == "refused" else header.get("state")
    if not isinstance(word, str) or not re.fullmatch(r"[a-z0-9-]{1,64}", word):
        raise WireError("A site's answer is not a word.")
    return word
