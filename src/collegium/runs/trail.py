"""What a run writes while it goes on, for whoever watches it: one JSON object per line, in ``trail.jsonl``.

Lines are only ever appended, several times a second where something happened. They are written by a thread that looks
at what the coordinator has noted: the run itself only wakes it up when a round is over. Results do not depend on this
file, and a run whose trail cannot be written goes on.

A line has a kind ``k`` and a time ``t``; parties are numbers, in the order in which they were named:

    open     a process has begun: its number, its version, and the command that would continue the run
    start    what the run is: parties, algorithm, seed, ...
    joined   further parties
    m        metrics of a round: by name, of all parties or of some, and of the coordinator
    done     a round has ended: bytes and seconds of all parties together
    now      the round at present, which parties are at work, and on what
    total    bytes, releases and answers by party so far, and the latest releases
    fail     refusals: round, party, step, code, how often
    site     what is known of one site of a federation: its state, its version
    heard    when the sites of a federation were last heard of
    until    when the certificates of a federation's members expire
    say      a message for people
    end      the process has ended: how, and why

A run that is resumed appends to the same file, and tells again what it had told: of a round, the last word counts.
"""

from __future__ import annotations

import json
import os
import signal
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from contextvars import ContextVar
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Final

from collegium import __version__
from collegium.errors import in_one_line
from collegium.runs import locks

if TYPE_CHECKING:
    from collegium.runs.tracing import Tracer

FILE: Final = "trail.jsonl"
STOP: Final = "stop"
"""A file of this name in a run's folder asks the run to stop."""
FORMAT: Final = 1
TICK: Final = 0.12
"""Seconds between looks, at least; where no round ends, twice as many, and three times as many where nothing does."""
COMMAND: ContextVar[Sequence[str] | None] = ContextVar("COMMAND", default=None)
"""What `collegium` would be called with to continue the runs that are started now."""
_ENCODE: Final = json.JSONEncoder(separators=(",", ":"), ensure_ascii=False).encode


class Trail:
    """The trail of one run. It does not exist before something is told; then this process has it until it is closed."""

    def __init__(self, folder: Path, *, tick: float = TICK) -> None:
        self._path, self._tick = folder / FILE, tick
        self._stop = folder / STOP
        self._file: Any = None
        self._lock = threading.Lock()
        self._thread: threading.Thread | None = None
        self._over = threading.Event()
        self._tracer: Tracer | None = None
        self._sites: dict[str, dict[str, Any]] = {}
        self._until: dict[str, float] = {}
        self.stop_asked = False
        """Has somebody asked for the run to end, where it cannot be interrupted from here?"""

    def start(self, about: Mapping[str, Any], tracer: Tracer) -> None:
        """The run starts, or is resumed; from now on the tracer is looked at."""
        self._write([{"k": "start", "about": _plain(about)}])
        if self._file is not None:
            self._tracer = tracer
            interruptible = threading.current_thread() is threading.main_thread()
            self._thread = threading.Thread(target=self._look, args=(interruptible,), name="trail", daemon=True)
            self._thread.start()

    def say(self, text: str) -> None:
        """Keep a message for people."""
        self._write([{"k": "say", "text": text}])

    def speaking(self, say: Callable[[str], None]) -> Callable[[str], None]:
        """Say things as before, and keep them."""

        def both(text: str) -> None:
            say(text)
            self.say(text)

        return both

    def site(self, party: str, **facts: Any) -> None:
        """Keep what is known of a site of a federation, where it is new."""
        known = self._sites.setdefault(party, {})
        if any(known.get(name) != value for name, value in facts.items()):
            known |= facts
            self._write([{"k": "site", "party": party, **facts}])

    def heard(self, times: Mapping[str, float]) -> None:
        """Keep when sites were last heard of."""
        self._write([{"k": "heard", "at": {party: round(when, 1) for party, when in times.items()}}])

    def certificates(self, until: Mapping[str, float]) -> None:
        """Keep until when certificates last, where that is new."""
        if self._until != until:
            self._until = dict(until)
            self._write([{"k": "until", "at": self._until}])

    def finish(self) -> None:
        """The run is over, and its results are written."""
        self._end("finished", "")

    def close(self) -> None:
        """Let go of the file."""
        self._rest()
        with self._lock:
            file, self._file = self._file, None
        if file is not None:
            file.close()

    def __enter__(self) -> Trail:
        """For as long as the run's own work takes; what comes after it, `finish` ends."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if error is None:
            self._rest()
        elif isinstance(error, KeyboardInterrupt):
            self._end("interrupted", "")
        else:
            self._end("failed", in_one_line(error) if isinstance(error, Exception) else type(error).__name__)

    def _end(self, how: str, why: str) -> None:
        if self._file is not None:
            self._rest()
            self._write([{"k": "end", "how": how, "why": why}])
        self.close()

    def _rest(self) -> None:
        """Stop looking; what was noted until now is told."""
        thread, self._thread = self._thread, None
        if thread is not None and thread is not threading.current_thread():
            self._over.set()
            if self._tracer is not None:
                self._tracer.stirred.set()
            thread.join()

    def _look(self, interruptible: bool) -> None:
        tracer = self._tracer
        while tracer is not None:
            if not self._over.wait(self._tick):
                tracer.stirred.wait(2 * self._tick if tracer.is_calm else self._tick)
            over = self._over.is_set()
            lines = tracer.news(last=over)
            if lines:
                self._write(lines)
            if over:
                return
            if not self.stop_asked and self._stop.exists():
                self._take_stop(interruptible)

    def _take_stop(self, interruptible: bool) -> None:
        """End as by Ctrl-C. Where this process takes no such signal, or does other things beside, after the round."""
        with suppress(OSError):
            self._stop.unlink()
        self._write([{"k": "say", "text": "asked to stop"}])
        for number in (signal.SIGINT, signal.SIGTERM):
            if interruptible and callable(signal.getsignal(number)):
                os.kill(os.getpid(), number)
                return
        self.stop_asked = True

    def _open(self) -> None:
        file = self._path.open("ab", buffering=0)
        if not locks.take(file):
            file.close()
            raise OSError("another process has it")
        begun = file.tell() > 0
        with suppress(OSError):
            self._stop.unlink()  # it was for a process that is no more
        command = COMMAND.get()
        first = {
            "k": "open", "t": _now(), "trail": FORMAT, "pid": os.getpid(), "version": __version__, "again": begun,
            "command": None if command is None else list(command),
        }  # fmt: skip
        # After a kill the last line may be half a line.
        file.write((("\n" if begun else "") + _ENCODE(first) + "\n").encode("utf-8", "replace"))
        self._file = file

    def _write(self, lines: Sequence[dict[str, Any]]) -> None:
        now = _now()
        text = "".join(f"{_ENCODE({'k': line['k'], 't': now} | line)}\n" for line in lines)
        with self._lock, suppress(OSError):
            if self._file is None:
                if self._over.is_set():
                    return
                self._open()
            self._file.write(text.encode("utf-8", "replace"))


def _now() -> float:
    return round(time.time(), 3)


def _plain(about: Mapping[str, Any]) -> dict[str, Any]:
    """What JSON can hold of it."""
    return dict(json.loads(json.dumps(dict(about), default=str)))
