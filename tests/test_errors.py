"""Errors come whole out of a process of a pool, such as one that runs a grid of studies."""

from __future__ import annotations

import pickle
from typing import Any

import pytest

from collegium import errors

MADE: dict[type[errors.CollegiumError], tuple[Any, ...]] = {
    errors.SiteError: ("north", "it has no rows."),
    errors.MissingExtra: ("torch", "SimCLR"),
    errors.Refused: ("step-failed", "Step 'a' raised; see the log."),
}
KINDS = [kind for kind in vars(errors).values() if isinstance(kind, type) and issubclass(kind, errors.CollegiumError)]


@pytest.mark.parametrize("kind", KINDS)
def test_every_error_comes_whole_from_another_process(kind: type[errors.CollegiumError]) -> None:
    error = kind(*MADE.get(kind, ("It failed.",)))
    error.__dict__["also"] = 1
    again = pickle.loads(pickle.dumps(error))
    assert type(again) is kind
    assert (str(again), again.args, vars(again)) == (str(error), error.args, vars(error))
