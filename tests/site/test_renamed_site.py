"""What is left of a budget depends neither on what a site is called nor on how its teachers voted."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn.tree import DecisionTreeClassifier
from tests.site.real_sites import U, ask, charges, open_really, rows

import collegium as cg
from collegium.algorithms import fedct, fedkt

PRIVATE = cg.PrivateVoting(teachers=10, epsilon=0.9)


def test_a_site_under_a_new_name_has_no_new_budget(tmp_path) -> None:
    codes = []
    for name in ("ukb", "ukb2"):
        site = cg.Site(name, *rows(), learner=PRIVATE, budget=cg.Budget(1.0, ledger=tmp_path / "ledger.db"))
        header, _ = ask(open_really(site, tmp_path), 1, fedct.train(None, None, None), fedct.label())
        codes.append(header.get("refused"))
    assert codes == [None, "budget-exhausted"]


def test_two_sites_of_one_run_each_have_their_own_budget(tmp_path) -> None:
    sites = [cg.Site(name, *rows(), learner=PRIVATE, budget=cg.Budget(1.0)) for name in ("a", "b")]
    run = cg.run(cg.FedCT(rounds=1), sites=sites, public=U, out=tmp_path / "run", progress=False)
    assert run.refusals.empty


@pytest.mark.parametrize("agree", [True, False])
def test_refusals_do_not_tell_whether_teachers_agreed(tmp_path, agree: bool) -> None:
    X, y = rows(400)
    y = y if agree else np.random.default_rng(0).permutation(y)
    method = cg.FedKT(level="L2", partitions=1, subsets=40, queries=30, gamma=0.15, accounting="data_dependent")
    site = cg.Site(
        "ukb",
        X,
        y,
        learner=DecisionTreeClassifier(max_depth=1),
        policy=cg.Policy(requires="dp", unprotected=()),
        budget=cg.Budget(18.0, ledger=tmp_path / "ledger.db"),
    )
    codes = []
    for number in range(5):
        run = f"{number:032x}"
        agent = open_really(site, tmp_path, run=run)
        header, _ = ask(agent, 1, method._learn(len(U)), fedkt.vote(), run=run)
        codes.append(header.get("refused"))
        if not codes[-1]:
            (charge,) = charges(header)
            assert charge["events"] == [{"event": "Pure", "count": 30, "epsilon": 0.3}]  # known beforehand
            assert "beforehand" not in charge
            assert "not for publication" in agent.gate.ledger.rows()[-1]["claim"]  # hindsight, for the owner
    assert codes == [None, None, None, "budget-exhausted", "budget-exhausted"]
