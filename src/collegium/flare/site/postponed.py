"""Modules that other packages import in passing, and a site's agent seldom or never uses: loaded when they are.

A site's processes may be many on one machine, and run for months. Importing scikit-learn loads all of SciPy's
statistics for three functions: 17 MB.
"""

from __future__ import annotations

import importlib
import sys
import threading
from collections.abc import Callable, Sequence
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from importlib.util import find_spec
from types import ModuleType
from typing import Any, Final

SELDOM_USED: Final[dict[str, tuple[str, ...]]] = {
    "numpy.f2py": (),
    "scipy.stats": ("rankdata", "gmean", "spearmanr"),
    "sklearn.covariance": ("empirical_covariance", "ledoit_wolf", "shrunk_covariance"),
}
"""What any learner of scikit-learn's loads, and few use; with the functions that other modules take out of it."""
_LOCK: Final = threading.Lock()


def postpone(packages: dict[str, tuple[str, ...]]) -> None:
    """Load these packages when something of them is used, unless they are loaded already."""
    sys.meta_path.insert(0, _Parts())
    for name, functions in packages.items():
        if name not in sys.modules and (spec := find_spec(name)) is not None:
            sys.modules[name] = stand_in = _Postponed(name, spec.submodule_search_locations or [], functions)
            parent, _, part = name.rpartition(".")
            setattr(sys.modules[parent], part, stand_in)


class _Postponed(ModuleType):
    """Stands in for a package until something of it is used."""

    def __init__(self, name: str, path: Sequence[str], functions: Sequence[str]) -> None:
        super().__init__(name)
        self.__path__ = list(path)
        self.__dict__.update({function: _calling(self, function) for function in functions})

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):  # what an import asks of a module that it finds
            raise AttributeError(name)
        return getattr(_load(self), name)


class _Parts(MetaPathFinder, Loader):
    """Who imports a part of such a package gets that of the package, which is loaded first."""

    def find_spec(self, name: str, path: object, target: object = None) -> ModuleSpec | None:
        package = sys.modules.get(name.rpartition(".")[0])
        if not isinstance(package, _Postponed):
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


def _calling(stand_in: _Postponed, name: str) -> Callable[..., Any]:
    def call(*arguments: Any, **options: Any) -> Any:
        return getattr(_load(stand_in), name)(*arguments, **options)

    return call
