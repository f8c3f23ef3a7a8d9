"""A site's rows, from where its file says they are. Errors say what to do and quote neither rows nor passwords."""

from __future__ import annotations

import hashlib
import os
import re
from dataclasses import dataclass, replace
from importlib.metadata import entry_points
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from collegium.core.labels import as_labels
from collegium.data.files import SUFFIXES, check_names, read_rows, read_table, some, take_target
from collegium.errors import ConfigError, MissingExtra
from collegium.registry import nearest
from collegium.study.preparing import scaled
from collegium.wire import tables
from collegium.wire.tables import Table

if TYPE_CHECKING:
    from collegium.flare.site.file import SiteData, SiteFile

GROUP: Final = "collegium.site_data"
_VARIABLE: Final = re.compile(r"\$\{([A-Za-z_][A-Za-z0-9_]*)\}")


@dataclass(frozen=True, eq=False)
class Rows:
    """What a site has: rows with labels, and maybe some without."""

    X: Any
    y: Any
    unlabeled: Any = None


def read_data(data: SiteData, kit: Path) -> Rows:
    """The rows that a site file names."""
    if data.source is not None:
        # A hospital may well have one class only: the others learn the rest from its colleagues.
        rows = Rows(*read_table(_file(data.source, "data.source", kit), data.target, least_classes=1))
    elif data.database is not None:
        rows = _from_database(data.database, str(data.query), str(data.target), kit)
    else:
        rows = _from_function(str(data.entry_point))
    if data.unlabeled is not None:
        if rows.unlabeled is not None:
            raise ConfigError(f"data.unlabeled: {data.entry_point!r} already returns unlabeled rows; leave this out.")
        without = () if data.target is None else (data.target,)
        rows = replace(rows, unlabeled=read_rows(_file(data.unlabeled, "data.unlabeled", kit), without))
    names = data.columns
    return Rows(_features(rows.X, names, "data"), rows.y, _features(rows.unlabeled, names, "data.unlabeled"))


def read_public(file: SiteFile, kit: Path) -> Table | None:
    """The site's own copy of the public set: the features only."""
    if file.public.path is None:
        return None
    without = [name for name in (file.public.target, file.data.target) if name is not None]
    table = read_rows(_file(file.public.path, "public.path", kit), without)
    public: Table | None = _features(table, file.data.columns, "public")
    return public


def split_off(rows: Rows, share: float, name: str) -> tuple[Rows, tuple[Table, NDArray[Any]] | None]:
    """Keep a share of the labeled rows from training: the same ones at every start."""
    if not share:
        return rows, None
    X, y = tables.as_table(rows.X, "data"), as_labels(rows.y, "data")
    size = max(1, round(share * len(y)))
    if size >= len(y):
        raise ConfigError(f"data.held_out: none of the {len(y)} rows would be left to learn from; hold out fewer.")
    seed = int.from_bytes(hashlib.sha256(f"collegium held out at {name}".encode()).digest()[:8])
    out, kept = (np.sort(part) for part in np.split(np.random.default_rng(seed).permutation(len(y)), [size]))
    return replace(rows, X=tables.take(X, kept), y=y[kept]), (tables.take(X, out), y[out])


def _file(text: str, setting: str, kit: Path) -> Path:
    if not text.lower().endswith(SUFFIXES):
        raise ConfigError(f"{setting}: {text!r} is not supported; expected a file that ends in {', '.join(SUFFIXES)}.")
    return kit / Path(text).expanduser()


def _features(X: Any, columns: list[str] | None, where: str) -> Any:
    """The columns that were chosen, in their order; images of bytes become numbers in 0 .. 1, as in a study."""
    if columns is None or X is None:
        return X if X is None else scaled(X)
    if not isinstance(X, pd.DataFrame):
        raise ConfigError(f"data.columns: the rows of {where} have no named columns; leave this out.")
    names = [str(name) for name in X.columns]
    for name in columns:
        if name not in names:
            raise ConfigError(
                f"data.columns: {where} has no column {name!r}.{nearest(name, names)} It has {some(names)}."
            )
    return X.iloc[:, [names.index(name) for name in columns]]


def _from_database(address: str, query: str, target: str, kit: Path) -> Rows:
    try:
        import sqlalchemy
    except ImportError:
        raise MissingExtra("sql", "data.database") from None
    engine = _engine(address, kit)
    try:
        # The query is sent as it stands: neither % nor : means anything but what the database makes of it.
        with engine.connect().execution_options(no_parameters=True) as connection:
            frame = pd.read_sql_query(query, connection)
    except Exception as error:  # what a database says may quote rows, or the address with its password
        cause = error.__cause__ if isinstance(error, pd.errors.DatabaseError) and error.__cause__ else error
        reached = not isinstance(cause, sqlalchemy.exc.OperationalError | sqlalchemy.exc.InterfaceError)
        what = "the query failed" if reached else "cannot query the database"
        raise ConfigError(
            f"data.query: {what} ({type(cause).__name__}). Try the query with the database's own program; its message "
            "is not shown here, since it may quote rows or a password."
        ) from None
    finally:
        engine.dispose()
    check_names([str(name) for name in frame.columns], "data.query")
    if frame.empty:
        raise ConfigError("data.query: the query returned no rows.")
    return Rows(*take_target(_in_own_order(frame), target, "data.query", least_classes=1))


def _engine(address: str, kit: Path) -> Any:
    import sqlalchemy

    try:
        url = sqlalchemy.make_url(_VARIABLE.sub(_from_environment, address))
    except sqlalchemy.exc.ArgumentError:
        raise ConfigError(
            "data.database: not a valid address; expected one such as postgresql://reader@host/wards."
        ) from None
    if url.get_backend_name() == "sqlite" and url.database and not url.database.startswith((":memory:", "file:")):
        path = kit / url.database
        if not path.is_file():  # SQLite would make an empty one
            raise ConfigError(f"data.database: {path} not found.")
        url = url.set(database=str(path))
    try:
        return sqlalchemy.create_engine(url)
    except sqlalchemy.exc.NoSuchModuleError:
        raise ConfigError(f"data.database: SQLAlchemy has no dialect {url.drivername!r}.") from None
    except ModuleNotFoundError as missing:
        raise ConfigError(
            f"data.database: {url.drivername} needs the Python package {missing.name!r}: install it."
        ) from None


def _from_environment(match: re.Match[str]) -> str:
    value = os.environ.get(match[1])
    if value is None:
        raise ConfigError(f"data.database: the environment variable {match[1]} is not set.")
    return value


def _in_own_order(frame: pd.DataFrame) -> pd.DataFrame:
    """Rows in an order that follows from themselves: a database may give them in another one each time.

    Held-out rows stay held out, and a site that starts again finds that its data is still what it was.
    """
    try:
        order = np.argsort(pd.util.hash_pandas_object(frame, index=False).to_numpy(), kind="stable")
    except TypeError:
        raise ConfigError("data.query: a column holds lists or tables; select only numbers and text.") from None
    return frame.iloc[order].reset_index(drop=True)


def _from_function(name: str) -> Rows:
    known = {point.name: point for point in entry_points(group=GROUP)}
    if name not in known:
        there = f"Installed: {', '.join(sorted(known))}." if known else "None is installed."
        raise ConfigError(
            f"data.entry_point: no installed package has an entry point {name!r} in the group {GROUP!r}."
            f"{nearest(name, known)} {there}"
        )
    try:
        given = known[name].load()()
    except Exception as error:
        raise ConfigError(
            f"data.entry_point: {known[name].value} raised {type(error).__name__}; call it by itself to see why."
        ) from error
    if not isinstance(given, tuple) or len(given) not in (2, 3):
        raise ConfigError(f"data.entry_point: {known[name].value} must return (X, y) or (X, y, unlabeled).")
    rows = Rows(*given)
    if not any(part is not None and np.shape(part) and np.shape(part)[0] for part in (rows.y, rows.unlabeled)):
        raise ConfigError(f"data.entry_point: {known[name].value} returned no rows.")
    return rows
