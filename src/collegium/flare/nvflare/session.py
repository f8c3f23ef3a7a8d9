"""Sessions over NVFlare: a job whose relay connects back to the coordinator's local socket."""

from __future__ import annotations

import contextlib
import io
import itertools
import json
import secrets
import tempfile
import threading
import time
from collections.abc import Iterator, Mapping
from concurrent.futures import Future
from concurrent.futures import TimeoutError as NoAnswer
from pathlib import Path
from typing import Any

from nvflare.fuel.f3.cellnet.defs import ReturnCode
from nvflare.fuel.flare_api.flare_api import Session as AdminSession
from nvflare.fuel.flare_api.flare_api import new_secure_session

from collegium.errors import ConfigError, Refused, StorageError
from collegium.flare.coordinator.link import PartyAway, PartyLost, SessionLost
from collegium.flare.coordinator.signed import LeadSignature, SignedSession
from collegium.flare.kits.kit import read_kit
from collegium.flare.kits.local_policy import RELAY
from collegium.flare.nvflare.admin import registered_sites
from collegium.flare.nvflare.relay import COORDINATOR_FOLDER
from collegium.flare.nvflare.streams import hold_little
from collegium.flare.supervise.sockets import Channel, ConnectionLost, LocalListener, tagged, untagged
from collegium.site.ledger import storage_errors

_CONNECT_SECONDS, _JOB_SECONDS, _SLACK = 10.0, 60.0, 15.0


class NvflareHost:
    """The federation's server, as a lead sees it. `server` is the server's kit, on this machine."""

    def __init__(self, server: Path, lead: Path, user: str) -> None:
        self._server, self._lead, self._user = server.resolve(), lead.resolve(), user
        folder = self._server / COORDINATOR_FOLDER
        self._admin: AdminSession | None = None
        self._lock = threading.RLock()
        hold_little()
        with storage_errors(self._server, StorageError):
            folder.mkdir(mode=0o700, exist_ok=True)
        self._signature = LeadSignature(read_kit(lead, "lead"), self._server, folder)
        try:
            self._signature.require_trusted()
        except Refused as refusal:
            raise ConfigError(f"{user} may not coordinate here: {refusal}") from None

    def seen(self) -> Mapping[str, float]:
        """When each connected site was last heard of."""
        with self._asking() as admin:
            return registered_sites(admin)

    def certificates(self) -> Mapping[str, float]:
        """Until when the certificates last that this lead knows, in seconds since 1970."""
        return self._signature.certificates()

    def begin(self, parties: frozenset[str]) -> SignedSession:
        """Submit a job for these sites and wait until its relay has connected."""
        name = secrets.token_hex(16)
        listener = LocalListener(self._server / COORDINATOR_FOLDER / f"{name}.sock")
        try:
            with tempfile.TemporaryDirectory(prefix="collegium-") as folder:
                _write_job(Path(folder), name, sorted(parties))
                with self._asking() as admin:
                    job = admin.submit_job(folder)
            return SignedSession(NvflareSession(self._accept(listener, job)), self._signature)
        finally:
            listener.close()

    def _accept(self, listener: LocalListener, job: str) -> Channel:
        end = time.monotonic() + _JOB_SECONDS
        while time.monotonic() < end:
            channel = listener.accept(timeout=0.5)
            if channel is not None:
                return channel
            with self._asking() as admin:
                status = str(admin.get_job_meta(job).get("status", ""))
            if status.startswith(("FINISHED", "FAILED")):
                raise SessionLost(f"the server ended the job before it began ({status})")
        raise SessionLost(f"the server did not start the job within {_JOB_SECONDS:.0f} s")

    @contextlib.contextmanager
    def _asking(self) -> Iterator[AdminSession]:
        """The admin's connection; whatever goes wrong with it, the next one is new."""
        with self._lock:
            try:
                with contextlib.redirect_stdout(io.StringIO()):  # NVFlare's client prints its progress
                    if self._admin is None:
                        self._admin = new_secure_session(self._user, str(self._lead), timeout=_CONNECT_SECONDS)
                    yield self._admin
            except (SessionLost, StorageError):
                raise
            except Exception as error:  # NVFlare raises many kinds; the remedy is always the same
                self.close()
                raise SessionLost(f"cannot reach the server ({type(error).__name__})") from None

    def close(self) -> None:
        """Close the admin's connection, which would keep the program from ending."""
        admin, self._admin = self._admin, None
        if admin is not None:
            with contextlib.suppress(Exception), contextlib.redirect_stdout(io.StringIO()):
                admin.close()


class NvflareSession:
    """One job, from its relay's connection to its end."""

    def __init__(self, channel: Channel) -> None:
        self._channel = channel
        self._numbers = itertools.count()
        self._waiting: dict[int, Future[tuple[str, bytes]]] = {}
        self._lock = threading.Lock()
        self._ended = False
        try:
            first = channel.receive(timeout=_JOB_SECONDS)
        except ConnectionLost:
            first = None
        if first is None:
            channel.close()
            raise SessionLost("the job ended before its sites were ready")
        self.ready = frozenset(untagged(first)[0]["ready"])
        threading.Thread(target=self._read, daemon=True).start()

    def request(self, party: str, message: bytes, timeout: float) -> bytes:
        """One question to one site."""
        answer: Future[tuple[str, bytes]] = Future()
        with self._lock:
            number = next(self._numbers)
            self._waiting[number] = answer
        try:
            if self._ended:
                raise ConnectionLost("The session is over.")
            self._channel.send(tagged({"id": number, "party": party, "timeout": timeout}, message))
            code, payload = answer.result(timeout=timeout + _SLACK)
        except ConnectionLost:
            raise SessionLost("the job ended") from None
        except NoAnswer:
            raise PartyLost(f"{party} did not answer in time") from None
        finally:
            with self._lock:
                self._waiting.pop(number, None)
        if code == ReturnCode.OK:
            return payload
        if code == ReturnCode.SERVICE_UNAVAILABLE:
            raise PartyAway(f"the agent of {party} is starting")
        raise PartyLost(f"cannot reach {party} ({code})")

    def _read(self) -> None:
        while True:
            try:
                message = self._channel.receive()
            except ConnectionLost:
                break
            tag, payload = untagged(message or b"")
            with self._lock:
                answer = self._waiting.get(int(tag["id"]))
            if answer is not None:
                answer.set_result((str(tag["code"]), payload))
        with self._lock:
            self._ended, waiting = True, list(self._waiting.values())
        for answer in waiting:
            with contextlib.suppress(Exception):  # answered in the same moment
                answer.set_exception(ConnectionLost("The session is over."))

    def close(self) -> None:
        """End the job: its relay finds the connection closed."""
        self._channel.close()


def _write_job(folder: Path, session: str, sites: list[str]) -> None:
    """A job without code: the name of an installed class. NVFlare takes none without sites; only the server runs it."""
    config = folder / "app" / "config"
    config.mkdir(parents=True)
    meta = {"name": "collegium", "resource_spec": {}, "deploy_map": {"app": ["server", *sites]}}
    relay = {"id": "link", "path": RELAY, "args": {"session": session, "sites": sites}}
    nothing: dict[str, Any] = {"format_version": 2, "components": []}
    files = {
        folder / "meta.json": meta,
        config / "config_fed_server.json": nothing | {"workflows": [relay]},
        config / "config_fed_client.json": nothing,
    }
    for file, content in files.items():
        file.write_text(json.dumps(content))
