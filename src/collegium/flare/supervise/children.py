"""Child processes of a supervisor: their output goes to a log of limited size, and ending them leaves none behind."""

from __future__ import annotations

import contextlib
import fcntl
import logging
import logging.handlers
import os
import re
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Final

from collegium.errors import ConfigError, MissingExtra
from collegium.flare.nvflare.guarded import PARENT
from collegium.flare.supervise.standing import Part

MARK: Final = "COLLEGIUM_KIT"
_LOG_BYTES, _LOG_FILES = 5_000_000, 3
_TRIES, _TRY_SECONDS = 5, 0.05
_FIRST_DELAY, _LONGEST_DELAY, _STEADY_SECONDS = 0.5, 30.0, 60.0
_TOKEN: Final = re.compile(r"(?i)(token(?:_signature)?['\"]?\s*[:=]\s*['\"]?)[^\s'\",]{8,}")
_KEY: Final = re.compile(r"-----BEGIN [A-Z ]*PRIVATE KEY-----.*")

try:
    import psutil
except ImportError:  # it comes with NVFlare
    raise MissingExtra("flare", "A federation") from None


@dataclass(eq=False)
class Child:
    """One program that is kept running."""

    name: str
    arguments: Sequence[str]
    kit: Path
    hear: Callable[[str], None]
    """Called with every line that it prints."""
    pid_file: Path | None = None
    restart_at: float | None = None
    last_line: str = ""
    restarts: int = -1

    def __post_init__(self) -> None:
        self._delay = _FIRST_DELAY
        self._started = 0.0
        self._process: subprocess.Popen[str] | None = None
        self._log = _log_file(self.kit / "logs" / f"{self.name}.log")

    def start(self) -> None:
        """Start it. Call this from the main thread: the child ends with the thread that started it."""
        environment = os.environ | {
            MARK: str(self.kit),
            PARENT: str(os.getpid()),
            "PYTHONPATH": import_paths(),
            "PYTHONUNBUFFERED": "1",
            "MALLOC_ARENA_MAX": "2",  # NVFlare has many threads, each with a heap of its own
            "MALLOC_TRIM_THRESHOLD_": "131072",  # what is free goes back to the system
            "ARROW_DEFAULT_MEMORY_POOL": "system",  # its own takes 4 MB for the smallest table
            "NVFLARE_CLIENT_OUTCOME_WAIT_TIMEOUT": "5",  # else a session waits a quarter of an hour for a dead site
        }
        self._process = subprocess.Popen(
            [sys.executable, "-m", "collegium.flare.nvflare.guarded", *self.arguments],
            env=environment,
            cwd=self.kit,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            start_new_session=True,  # Ctrl-C reaches the supervisor alone, which ends its children in order
            text=True,
            errors="replace",
        )
        self.restart_at, self._started = None, time.monotonic()
        self.restarts += 1
        if self.pid_file is not None:
            self.pid_file.write_text(f"{self._process.pid}\n")
        threading.Thread(target=self._read, args=(self._process.stdout,), daemon=True).start()

    @property
    def part(self) -> Part:
        """What others are told about it."""
        return Part(None if self._process is None else self._process.pid, max(0, self.restarts))

    def end(self) -> None:
        """Ask it to end; it is then started again."""
        if self._process is not None:
            self._process.terminate()

    def ended(self) -> int | None:
        """Its exit code, once, when it has ended; the next start is then due at `restart_at`."""
        if self._process is None or (code := self._process.poll()) is None:
            return None
        if time.monotonic() - self._started > _STEADY_SECONDS:
            self._delay = _FIRST_DELAY
        self.restart_at = time.monotonic() + self._delay
        self._delay = min(2 * self._delay, _LONGEST_DELAY)
        self.forget()
        return code

    def forget(self) -> None:
        """It has ended, or is about to."""
        self._process = None
        if self.pid_file is not None:
            self.pid_file.unlink(missing_ok=True)

    def _read(self, output: IO[str] | None) -> None:
        for line in output or ():
            text = without_secrets(line.rstrip())
            if not text:
                continue
            self.last_line = text
            self._log.info(text)
            self.hear(text)


def without_secrets(line: str) -> str:
    """A line of a log without tokens and keys."""
    return _KEY.sub("(a private key)", _TOKEN.sub(r"\1***", line))


def _log_file(path: Path) -> logging.Logger:
    path.parent.mkdir(mode=0o700, exist_ok=True)
    handler = logging.handlers.RotatingFileHandler(path, maxBytes=_LOG_BYTES, backupCount=_LOG_FILES, encoding="utf-8")
    log = logging.Logger(path.stem)
    log.addHandler(handler)
    return log


def import_paths() -> str:
    """Where children find this package, however their parent found it."""
    here = str(Path(__file__).resolve().parents[3])
    return os.pathsep.join([here, *filter(None, [os.environ.get("PYTHONPATH")])])


def members(kit: Path) -> list[psutil.Process]:
    """All processes of a kit: the children, and the job processes that NVFlare started."""
    found = []
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error, OSError):
            if process.pid != os.getpid() and process.environ().get(MARK) == str(kit):
                found.append(process)
    return found


def end_members(kit: Path, grace: float = 3.0) -> None:
    """Ask all processes of a kit to end; those that have not after `grace` seconds are killed."""
    for process in members(kit):
        with contextlib.suppress(psutil.Error):
            process.terminate()
    end = time.monotonic() + grace
    while (left := members(kit)) and time.monotonic() < end:
        psutil.wait_procs(left, timeout=0.2)
    while left := members(kit):
        for process in left:
            with contextlib.suppress(psutil.Error):
                process.kill()
        psutil.wait_procs(left, timeout=1.0)


@contextlib.contextmanager
def locked(path: Path, kit: Path) -> Iterator[None]:
    """Hold a kit for this process: started twice, the second would silently push the first out of the federation."""
    path.parent.mkdir(mode=0o700, exist_ok=True)
    with path.open("a+", encoding="utf-8") as file:
        if not _taken(file):
            file.seek(0)
            pid = file.read().strip() or "unknown"
            raise ConfigError(f"{kit} is already running as process {pid}: stop that one first (kill {pid}).")
        file.truncate(0)
        file.write(f"{os.getpid()}\n")
        file.flush()
        try:
            yield
        finally:
            file.truncate(0)


def _taken(file: IO[str]) -> bool:
    """Whether the lock could be had. Whoever looks who has it, as probes do, has it for a moment: try again."""
    for again in (True,) * _TRIES + (False,):
        with contextlib.suppress(OSError):
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return True
        if again:
            time.sleep(_TRY_SECONDS)
    return False
