"""``"my_file:MyMethod"`` in a study: a class of ``my_file.py`` beside the study, or of a module that Python finds.

Such names are looked up, and their files run, only while a study of the user's own is read. What comes from elsewhere
(a plan, an order, a recipe) can only use what was loaded by then: no name that was sent ever imports anything.
"""

from __future__ import annotations

import importlib
import importlib.util
import linecache
import sys
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Final

from collegium import registry
from collegium.errors import ConfigError

KINDS: Final = ("algorithm", "consensus", "voters", "learner", "transformer", "mechanism", "pretraining")
FILES: Final[dict[str, OwnFile]] = {}
"""The files that studies have named, by module: another process of the same run needs them too."""
_folder: ContextVar[Path | None] = ContextVar("folder", default=None)


@dataclass(frozen=True)
class OwnFile:
    """A file as it was read."""

    module: str
    path: str
    source: bytes


@contextmanager
def allowed(folder: Path) -> Iterator[None]:
    """While a study in this folder is read, its names may be those of files there."""
    token = _folder.set(folder.resolve())
    try:
        yield
    finally:
        _folder.reset(token)


def load(kind: str, name: str) -> None:
    """Register ``my_file:MyMethod`` under that name. Outside the user's own study, it must be loaded already."""
    folder = _folder.get()
    if kind not in KINDS or (folder is None and (kind, name) in registry.OWN):
        return
    if folder is None:
        raise ConfigError(f"There is no {kind} {name!r} here: only your own study may name a class in a file.")
    where, _, attribute = name.partition(":")
    module = _module(where, folder)
    if not hasattr(module, attribute):
        classes = [key for key, value in vars(module).items() if isinstance(value, type)]
        place = getattr(module, "__file__", where)
        raise ConfigError(f"{name!r}: {place} has no {attribute!r}.{registry.nearest(attribute, classes)}")
    found = getattr(module, attribute)
    if kind == "mechanism" and getattr(found, "name", name) != name:
        raise ConfigError(
            f"{name!r}: orders and studies use one name for a mechanism: set name = {name!r} in the class."
        )
    registry.OWN[kind, name] = found


def adopt(files: dict[str, OwnFile]) -> None:
    """Load the files that another process of the same run has loaded."""
    for file in files.values():
        if file.module not in sys.modules:
            _run(file)


def _module(name: str, folder: Path) -> ModuleType:
    if not all(part.isidentifier() for part in name.split(".")):
        raise ConfigError(f"{name!r} is not a module: write 'my_file:MyMethod' for the class MyMethod in my_file.py.")
    for place in (folder, Path.cwd()):
        path = place / f"{name}.py"
        if path.is_file():
            file = OwnFile(name, str(path), path.read_bytes())
            module = _run(file)
            FILES[name] = file
            return module
    try:
        spec = importlib.util.find_spec(name)
    except (ModuleNotFoundError, ValueError):  # the package that it would be in is not there
        spec = None
    if spec is None:
        raise ConfigError(f"There is no {name}.py in {folder} or {Path.cwd()}, and no module {name!r} is installed.")
    with _explained(spec.origin or name):
        return importlib.import_module(name)


def _run(file: OwnFile) -> ModuleType:
    known = sys.modules.get(file.module)
    if known is not None:
        other = getattr(known, "__file__", None) or "Python itself"
        if Path(other).resolve() == Path(file.path).resolve():
            return known
        raise ConfigError(f"{file.path}: a module {file.module!r} from {other} is already loaded: rename the file.")
    registry.install_steps()  # so that a step that has the name of a built-in one is found out here
    if (beside := str(Path(file.path).parent)) not in sys.path:
        sys.path.append(beside)  # for what the file itself imports
    module = sys.modules[file.module] = ModuleType(file.module)
    module.__file__ = file.path
    try:
        with _explained(file.path):
            source = importlib.util.decode_source(file.source)
            # A process on another machine does not have the file; `inspect` finds its source here.
            linecache.cache[file.path] = (len(source), None, source.splitlines(keepends=True), file.path)
            exec(compile(source, file.path, "exec", dont_inherit=True), vars(module))  # noqa: S102 - the user's own file
    except ConfigError:
        del sys.modules[file.module]
        raise
    return module


@contextmanager
def _explained(path: str) -> Iterator[None]:
    """Turn any error of a file into a ConfigError that names the line."""
    try:
        yield
    except Exception as error:
        lines = [frame.lineno for frame in traceback.extract_tb(error.__traceback__) if frame.filename == path]
        if isinstance(error, SyntaxError) and error.filename == path:
            lines.append(error.lineno)
        where = f"{path}, line {lines[-1]}" if lines else path
        raise ConfigError(f"{where}: {type(error).__name__}: {error}") from error
