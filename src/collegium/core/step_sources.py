"""What a step's code is made of: its module, and all that this imports of its own package and of Collegium.

Sources are read as files, and imports found in their text wherever they stand, those for type checkers left out. So the
answer depends neither on what has been imported by now nor on which optional packages are installed.
"""

from __future__ import annotations

import hashlib
import re
import sys
from collections.abc import Iterator, Mapping
from contextlib import suppress
from functools import cache
from importlib.util import resolve_name
from pathlib import Path
from typing import Final

_GIVEN_TO_ALL: Final = "collegium.core.site"
"""Every step works with an ActiveSite, however its module came by the name."""
_FOR_TYPES: Final = re.compile(r"^if TYPE_CHECKING:\n(?:[ \t].*\n|\n)*", re.MULTILINE)
_IMPORT: Final = re.compile(
    r"^[ \t]*(?:from[ \t]+([.\w]+)[ \t]+)?import\b[ \t]*(\([^)]*\)|(?:[^\n\\]|\\\n)*)", re.MULTILINE
)
_NAME: Final = re.compile(r"([\w.]+)(?:\s+as\s+\w+)?\s*(?:,|$)", re.MULTILINE)


class Sources:
    """Source files of modules. `folders` says where a package is, by its name; others are where they were imported."""

    def __init__(self, folders: Mapping[str, Path] | None = None) -> None:
        self._folders = folders or {}
        self.digest = cache(self._digest)
        self._file = cache(self._find)
        self.imports = cache(lambda module: frozenset(self._imports(module)))
        self._hash = cache(lambda module: hashlib.sha256(_read(self._file(module)).encode()).hexdigest())

    def _digest(self, module: str) -> str | None:
        """Identifies all the code that a module's steps may run; None where the module has no source file."""
        if self._file(module) is None:
            return None
        used, waiting = set(), {module, _GIVEN_TO_ALL}
        while waiting:
            used.add(each := waiting.pop())
            waiting |= self.imports(each) - used
        listed = "\n".join(f"{name} {self._hash(name)}" for name in sorted(used))
        return hashlib.sha256(listed.encode()).hexdigest()

    def _imports(self, module: str) -> Iterator[str]:
        """The modules of Collegium and of its own package that a module names in its imports."""
        file, packages = self._file(module), {"collegium", module.partition(".")[0]}
        package = module if file is not None and file.stem == "__init__" else module.rpartition(".")[0]
        for base, names in _named(_read(file), package):
            for name in names:
                inner = name if base is None else f"{base}.{name}"
                if inner.partition(".")[0] not in packages:
                    continue
                if self._file(inner) is not None:
                    yield inner
                elif base is not None and self._file(base) is not None:
                    yield self._lazy(base).get(name, base)

    def _lazy(self, package: str) -> dict[str, str]:
        """Where a package that imports its names when they are first used gets them from, by the stub beside it."""
        file = self._file(package)
        stub = None if file is None else file.with_suffix(".pyi")
        if stub is None or not stub.is_file():
            return {}
        return {name: base for base, names in _named(_read(stub), package) if base is not None for name in names}

    def _find(self, module: str) -> Path | None:
        top, *inner = module.split(".")
        loaded = sys.modules.get(top)
        homes = [self._folders[top]] if top in self._folders else getattr(loaded, "__path__", [])
        places = [Path(home, *inner) for home in homes]
        files = [file for place in places for file in (place / "__init__.py", place.with_name(f"{place.name}.py"))]
        if not inner and not homes:  # a module by itself
            files = [Path(getattr(loaded, "__file__", None) or "")]
        return next((file for file in files if file.suffix == ".py" and file.is_file()), None)


def _read(file: Path | None) -> str:
    """A source as text: line ends are the same everywhere."""
    return "" if file is None else file.read_text(encoding="utf-8", errors="replace")


def _named(text: str, package: str) -> Iterator[tuple[str | None, list[str]]]:
    """What a source imports: from where (None: modules themselves), and which names."""
    for base, names in _IMPORT.findall(_FOR_TYPES.sub("", text)):
        plain = re.sub(r"#[^\n]*|[()\\]", "", names)
        with suppress(ImportError):  # words of a docstring that look like a relative import
            yield resolve_name(base, package) if base else None, _NAME.findall(plain)


digest_of_sources: Final = Sources().digest
