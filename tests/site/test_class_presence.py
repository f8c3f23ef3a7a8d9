"""That a site has a record of a class which the study does not know must not show."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from tests.site.real_sites import ask, open_really, rows

import collegium as cg
from collegium.algorithms import fedct
from collegium.errors import ConfigError

PRIVATE = cg.PrivateVoting(teachers=10, epsilon=0.9)


def site(label: str | None, **settings: Any) -> cg.Site:
    X, y = rows()
    y = y.astype(object)
    if label is not None:
        y[3] = label
    return cg.Site("ukb", X, y.astype(str), learner=PRIVATE, **settings)


@pytest.mark.parametrize("settings", [{"policy": cg.Policy(requires="dp", unprotected=())}, {"budget": cg.Budget(2.0)}])
def test_a_record_of_another_class_is_left_out_and_nobody_sees_it(settings: dict[str, Any]) -> None:
    headers = []
    for label in (None, "hiv"):
        agent = open_really(site(label, **settings))
        header, payload = ask(agent, 1, fedct.train(None, None, None), fedct.label())
        headers.append((header["kind"], header["bytes"], header["privacy"], len(payload)))
        assert any("left out 1 rows" in line for line in agent.log.lines) == (label == "hiv")
    assert headers[0] == headers[1]


@pytest.mark.parametrize(
    "learner",
    [
        pytest.param(cg.PrivateTorch(epsilon=0.5, epochs=1, batch_size=16), id="torch", marks=pytest.mark.slow),
        pytest.param(PRIVATE, id="voting"),
    ],
)
def test_a_study_of_one_class_does_not_count_its_records(learner: Any) -> None:
    X, y = rows()
    seen = []
    for many in (0, 1, 40):
        labels = np.where(np.arange(len(y)) < many, "hiv", y)
        odd = cg.Site("ukb", X, labels, learner=learner, policy=cg.Policy(requires="dp", unprotected=()))
        agent = open_really(odd, classes=("hiv", "no such class"))
        header, _ = ask(agent, 1, fedct.train(None, None, None), fedct.label())
        seen.append((header.get("kind"), header.get("bytes"), header.get("privacy")))
        assert not any("failed" in line for line in agent.log.lines), "what stands in for a fit would show"
    assert seen[0] == seen[1] == seen[2]
    assert seen[0][0] == "HardLabels"


def test_a_site_that_promises_nothing_refuses_and_says_why() -> None:
    with pytest.raises(ConfigError, match="hiv"):
        open_really(site("hiv"))


def test_rows_are_left_out_one_by_one() -> None:
    odd = site("hiv").within(np.array(["ill", "well"]))
    X, y = rows()
    assert np.array_equal(odd.X, np.delete(X, 3, axis=0))
    assert np.array_equal(odd.y, np.delete(y, 3))
    numbers = cg.Site("ukb", X, np.arange(len(X)) % 3)
    assert set(numbers.within(np.array([0, 2])).y.tolist()) == {0, 2}
