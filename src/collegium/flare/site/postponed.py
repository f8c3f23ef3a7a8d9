"""Modules that other packages import in passing, and a site's agent seldom or never uses: loaded when they are.

A site's processes may be many on one machine, and run for months. Importing scikit-learn loads all of SciPy's
statistics for three functions, and its optimization and interpolation for one each: 30 MB.
"""

from __future__ import annotations

import importlib
import sys
import threading
import tomllib
from collections.abc import Sequence
from contextlib import suppress
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from importlib.util import find_spec
from pathlib import Path
from types import FrameType, ModuleType
from typing import Any, Final

SELDOM_USED: Final[dict[str, tuple[str, ...]]] = {
    "numpy.f2py": (),
    "numpy.testing": (),
    "scipy.integrate": ("trapezoid",),
    "scipy.interpolate": ("BSpline",),
    "scipy.optimize": ("brentq", "linear_sum_assignment", "linprog", "minimize", "minimize_scalar"),
    "scipy.stats": ("rankdata", "gmean", "spearmanr"),
    "sklearn.covariance": ("empirical_covariance", "ledoit_wolf", "shrunk_covariance"),
    "sklearn.neighbors": (),
    "sklearn.neighbors._base": ("_get_weights",),
}
"""What any learner of scikit-learn's loads, and few use; with what modules of SciPy's and scikit-learn's take out of it
and use no earlier than they are used themselves."""
_ALONE: Final = frozenset({"sklearn.neighbors._base", "sklearn.neighbors._quad_tree"})
"""Parts that are loaded without the rest of their package. Trees need the second."""
_IMPORTS: Final = "importlib._bootstrap"
_INSIDE: Final = ("collegium.", "scipy.", "sklearn.")
_LOCK: Final = threading.Lock()


def postpone(packages: dict[str, tuple[str, ...]]) -> None:
    """Load these packages when something of them is used, unless they are loaded already."""
    sys.meta_path.insert(0, _Parts())
    for name, taken in packages.items():
        if name not in sys.modules and (spec := find_spec(name)) is not None:
            sys.modules[name] = stand_in = _Postponed(name, spec.submodule_search_locations or [], taken)
            parent, _, part = name.rpartition(".")
            setattr(sys.modules[parent], part, stand_in)


def do_without_arrow(site_file: Path) -> None:
    """Load pandas without Arrow for a site whose tables are CSV or npz files: it takes 8 MB.

    Arrow itself stays importable. Pandas keeps text in Python's strings, which changes no value. Where either is loaded
    already, there is nothing to save.
    """
    if "pandas" in sys.modules or "pyarrow" in sys.modules:
        return
    with suppress(OSError, UnicodeDecodeError, tomllib.TOMLDecodeError):  # reading it for good says what is wrong
        text = site_file.read_text(encoding="utf-8")
        if "source" in tomllib.loads(text).get("data", {}) and ".parquet" not in text.lower():
            sys.modules["pyarrow"] = None  # type: ignore[assignment]  # importing it is an ImportError
            importlib.import_module("pandas")
            del sys.modules["pyarrow"]


class _Postponed(ModuleType):
    """Stands in for a package until something of it is used."""

    def __init__(self, name: str, path: Sequence[str], taken: Sequence[str]) -> None:
        super().__init__(name)
        self.__path__ = list(path)
        self.__taken = {each: _Later(self, each) for each in taken}

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):  # what an import asks of a module that it finds
            raise AttributeError(name)
        if name in self.__taken and _asking().startswith(_INSIDE):
            return self.__taken[name]
        return getattr(_load(self), name)


def _asking() -> str:
    """The module that takes something out of a stand-in: not Python's own, which first sees whether it is there."""
    frame: FrameType | None = sys._getframe(2)
    while frame is not None and frame.f_globals["__name__"] == _IMPORTS:
        frame = frame.f_back
    return "" if frame is None else str(frame.f_globals["__name__"])


class _Later:
    """Stands in for a function or a class until it is called, or something of it is used."""

    def __init__(self, package: _Postponed, name: str) -> None:
        self.__package, self.__name = package, name

    def __call__(self, *arguments: Any, **options: Any) -> Any:
        return self.__real()(*arguments, **options)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.__real(), name)

    def __real(self) -> Any:
        return getattr(_load(self.__package), self.__name)


class _Parts(MetaPathFinder, Loader):
    """Who imports a part of such a package gets that of the package, which is loaded first."""

    def find_spec(self, name: str, path: object, target: object = None) -> ModuleSpec | None:
        package = sys.modules.get(name.rpartition(".")[0])
        if not isinstance(package, _Postponed) or name in _ALONE:
            return None
        _load(package)
        part = sys.modules.get(name)
        if part is None:
            return None
        part.__spec__ = spec = ModuleSpec(name, self, loader_state=part.__spec__)
        return spec  # by the part's own specification, Python would load it a second time

    def create_module(self, spec: ModuleSpec) -> ModuleType:
        return sys.modules[spec.name]

    def exec_module(self, module: ModuleType) -> None:
        """It has been; what is left to do is to let it say again where it is from."""
        if module.__spec__ is not None and module.__spec__.loader is self:
            module.__spec__ = module.__spec__.loader_state


def _load(stand_in: _Postponed) -> ModuleType:
    name = stand_in.__name__
    with _LOCK:  # not for longer: imports have locks of their own
        if sys.modules.get(name) is stand_in:
            del sys.modules[name]
    return importlib.import_module(name)
