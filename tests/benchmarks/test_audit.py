"""Audits of sites that keep their claim and of sites that do not: what is measured is what the table says."""

from __future__ import annotations

import numpy as np
import pytest

import collegium as cg
from benchmarks import audit

CASES = audit.cases()
OF_TABLES = [place for place, case in enumerate(CASES) if not case.on_adult and "shadows" not in case.options]


def found(place: int, audits: int = 3) -> dict[str, object]:
    return audit._row(CASES[place], [audit._audits(place, 0, audits)])


@pytest.mark.parametrize("place", [place for place in OF_TABLES if CASES[place].fault == audit.NO_FAULT])
def test_a_table_without_a_fault_spends_what_it_claims(place: int) -> None:
    row = found(place)
    assert row["claim"] == pytest.approx(1, abs=0.01)
    assert (row["audits"], row["share"]) == (3, 0)


@pytest.mark.parametrize("fault", [audit.HALF, audit.NONE, audit.COMPOSITION])
def test_a_fault_is_found_and_changes_no_claim(fault: str) -> None:
    row = found(next(place for place in OF_TABLES if CASES[place].fault == fault))
    assert row["claim"] == pytest.approx(1, abs=0.01)
    assert row["share"] == 1


@pytest.mark.parametrize(("reach", "fits"), [(1, 1), (4, 1), (2, 3)])
def test_a_table_answers_as_randomized_response_does(reach: int, fits: int) -> None:
    rng = np.random.default_rng(0)
    public, far = rng.normal(size=(20_000, 2)), np.full((1, 2), 1e3)
    labels = audit.PrivateTable(reach=reach, fits=fits, random_state=0).fit_private(far, [1], public, classes=[0, 1])
    kept = np.mean(labels.predict(public[np.argsort(public.sum(axis=1))[:-reach]]) == 0)
    assert kept == pytest.approx(1 / (1 + np.exp(-1 / reach / fits)), abs=0.015)


def test_audits_without_a_claim_are_no_measurement() -> None:
    case = CASES[0]._replace(learner=cg.PrivateVoting())
    part = {"verdicts": ["no claim"], "claim": [np.nan], "auc": [0.5], "bound": [0.0], "seconds": [0.1]}
    with pytest.raises(RuntimeError, match="found no claim"):
        audit._row(case, [part])
