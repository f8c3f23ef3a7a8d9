"""A coordinator gets the hash of a ledger row, and knows or guesses all that the row says."""

from __future__ import annotations

from sklearn.tree import DecisionTreeClassifier
from tests.site.real_sites import U, ask, open_really, rows

import collegium as cg
from collegium.algorithms import fedkt
from collegium.site.ledger import genesis, row_hash, verify_ledger


def test_the_votes_behind_a_charge_cannot_be_searched_for(tmp_path) -> None:
    method = cg.FedKT(level="L2", partitions=1, subsets=25, queries=2, gamma=0.5, accounting="data_dependent")
    site = cg.Site("ukb", *rows(), learner=DecisionTreeClassifier(), policy=cg.Policy(requires="dp", unprotected=()))
    agent = open_really(site, tmp_path)
    header, _ = ask(agent, 1, method._learn(len(U)), fedkt.vote())
    (row,) = agent.gate.ledger.rows()
    assert header["entry"] == row["hash"]
    # Whoever searches all votes, times and counts comes to this row, and hashes it in vain.
    assert row_hash(row, genesis("ukb")) != header["entry"]
    assert verify_ledger(tmp_path / "ledger.db") == {"ukb": 1}
