"""Everything Collegium raises.

    CollegiumError
    ├── ConfigError          the study cannot start as it is written; nothing was trained
    │   ├── SiteError        one named site is at fault (also a ConfigError)
    │   └── MissingExtra     an optional package is not installed
    ├── Refused              a site does not do, or does not release, what it was asked for (has a code)
    ├── QuorumLost           too few sites answered; the run can be resumed
    │   └── BudgetSpent      no site has privacy budget left; `cg.run` ends with what there is
    ├── WireError            bytes that are not a valid message
    └── StorageError         a ledger, record or run folder cannot be read or written
        ├── LedgerError      the ledger is corrupt, truncated or was changed
        └── RecordError      the coordinator's record is corrupt or belongs to another run

    CollegiumWarning         allowed, but probably not what you want
    Advice                   other settings are likely to serve these sites better
    DoubtfulResult           a run is over, and its result deserves a second look

Messages say what, where, and what next. They never quote a site's data: the text of an exception
that a site's learner raised stays in that site's own log.
"""

from __future__ import annotations

from typing import Any


class CollegiumError(Exception):
    """Base of all errors of this package."""

    def __reduce__(self) -> tuple[Any, ...]:
        """Sent from a process of a pool as it is: by default it would be made from its text alone, and fail."""
        return _made_again, (type(self), self.args, self.__dict__)


def _made_again(kind: type[CollegiumError], args: tuple[Any, ...], state: dict[str, Any]) -> CollegiumError:
    error = kind.__new__(kind, *args)
    error.__dict__.update(state)
    return error


class ConfigError(CollegiumError, ValueError):
    """The study cannot start as it is written; nothing was trained."""


class SiteError(ConfigError):
    """One named site cannot take part as it is declared."""

    def __init__(self, site: str, text: str) -> None:
        super().__init__(f"Site {site!r}: {text}")
        self.site = site


class MissingExtra(ConfigError, ImportError):
    """An optional package is not installed."""

    def __init__(self, extra: str, what: str) -> None:
        super().__init__(f"{what} needs an optional package: pip install 'collegium[{extra}]'")
        self.extra = extra


class Refused(CollegiumError):
    """A site does not do, or does not release, what it was asked for. Only the code leaves the site."""

    def __init__(self, code: str, text: str) -> None:
        super().__init__(text)
        self.code = code


class QuorumLost(CollegiumError):
    """Too few sites answered for the run to go on."""

    def __init__(self, message: str) -> None:
        super().__init__(message)
        self.logs: dict[str, list[str]] = {}
        """In a simulation: what the sites wrote to their own logs."""
        self.refused: dict[str, str] = {}
        """What each site that did not answer said: the code of its refusal, or `missing`."""


class BudgetSpent(QuorumLost):
    """No site has privacy budget left for what it was asked."""


class WireError(CollegiumError):
    """Bytes that are not a valid message."""


class StorageError(CollegiumError):
    """A ledger, record or run folder cannot be read or written."""


class LedgerError(StorageError):
    """The ledger is corrupt, truncated or was changed."""


class RecordError(StorageError):
    """The coordinator's record is corrupt or belongs to another run."""


class CollegiumWarning(UserWarning):
    """Allowed, but probably not what you want."""


class Advice(UserWarning):
    """Before a run: other settings are likely to serve these sites better."""


class DoubtfulResult(UserWarning):
    """A run went well, but its result deserves a second look: its consensus is nearly one class, for example."""


def in_one_line(error: Exception) -> str:
    """What a program says of an error before it ends, instead of a traceback."""
    if isinstance(error, CollegiumError):
        # Of a simulation: what was raised at its sites.
        cause = [str(error.__cause__)] if isinstance(error, QuorumLost) and error.__cause__ is not None else []
        return "\n  ".join([str(error), *cause, *getattr(error, "__notes__", [])])
    if isinstance(error, MemoryError):
        return "not enough memory for this run. Use fewer sites at a time (engine.workers=1)."
    if isinstance(error, OSError):
        return f"{error.strerror or 'input or output failed'}: {error.filename or ''}"
    return f"an unexpected {type(error).__name__}; run with --debug to see where."
