"""Where and how precisely the nets of a run compute: set on every learner, and what came of it."""

from __future__ import annotations

import copy
import warnings
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import replace
from typing import Any

from collegium.core.settings import check
from collegium.core.site import Site
from collegium.core.terms import Precision
from collegium.errors import CollegiumWarning
from collegium.learners.base import SiteModel, last_step


class Computing:
    """A device and a precision for all learners of a run; None leaves each learner its own."""

    def __init__(self, device: str | None, precision: Precision | None) -> None:
        given = {
            "device": check(str | None, device, "device"),
            "precision": check(Precision | None, precision, "precision"),
        }
        self._wanted = {name: value for name, value in given.items() if value is not None}
        self._found: set[str] = set()
        self._changed: dict[int, tuple[Any, Any]] = {}  # with the learner itself, so that its id stays its own

    def on_this_machine(self) -> None:
        """Take the CPU where there is no GPU, and say so once: learners would say it at every site."""
        if "device" not in self._wanted:
            return
        with suppress(ImportError):  # other libraries may find the device without torch
            from collegium.learners.torch.devices import find_device

            if find_device(self._wanted["device"]).type == "cpu":
                self._wanted["device"] = "cpu"

    @property
    def about(self) -> dict[str, str]:
        """What is set, for the record: results depend on it in their last digits, or in more."""
        return dict(self._wanted)

    def sites(self, sites: Iterable[Site]) -> tuple[Site, ...]:
        """The sites, with learners that compute so."""
        changed = []
        for site in sites:
            learner = self.learner(site.learner)
            changed.append(site if learner is site.learner else replace(site, learner=learner))
        return tuple(changed)

    def learner(self, learner: Any) -> Any:
        """The learner, or a copy of it that computes so, also inside Pipelines. Sites that share it share the copy."""
        if not self._wanted or not hasattr(learner, "get_params"):
            return learner
        if id(learner) not in self._changed:
            settings = {
                name: self._wanted[last]
                for name in learner.get_params(deep=True)
                if (last := name.rpartition("__")[2]) in self._wanted
            }
            self._found |= {name.rpartition("__")[2] for name in settings}
            # Not a clone, which would forget what a pre-trained learner knows.
            made = copy.deepcopy(learner).set_params(**settings) if settings else learner
            self._changed[id(learner)] = learner, made
        return self._changed[id(learner)][1]

    def warn_if_ignored(self) -> None:
        """Say so where no learner has such a setting."""
        for name, value in self._wanted.items():
            if name not in self._found:
                text = f"{name}={value!r} changes nothing: no learner of this run has a {name}."
                warnings.warn(text, CollegiumWarning, stacklevel=3)


def used(models: Iterable[SiteModel]) -> dict[str, str | None]:
    """The device and the precision that the models were trained with; several are listed."""
    devices, precisions = set[str](), set[str]()
    for estimator in (last_step(model.estimator) for model in models):
        report = getattr(estimator, "last_update_", None)
        device = str(getattr(estimator, "device", None) or "cpu") if report is None else report.device
        devices.add(device)
        precision = getattr(estimator, "precision", None)
        if precision is not None:  # a CPU has no TF32
            precisions.add("float32" if precision == "tf32" and device == "cpu" else precision)
    return {"device": _listed(devices) or "cpu", "precision": _listed(precisions) or None}


def _listed(names: set[str]) -> str:
    return ", ".join(sorted(names))
