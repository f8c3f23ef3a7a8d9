"""FedSiam: net and target travel and are averaged; the target is the result; consistency grows."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from tests.algorithms.few_labels import accuracy, disturbed, run, sites
from tests.algorithms.nets import close, mean, weights

import collegium as cg
from collegium.algorithms._semi_supervised import part_of


def test_the_server_averages_both_and_every_site_ends_with_the_target() -> None:
    with disturbed(cg.FedSiam(rounds=1, local_steps=4), "nobody", "") as (fed, link):
        sent = [plain["arrays"] for _, step, plain in link.releases if step == "fedsiam.update"]
        ((_, final),) = fed.final_weights.items()
    assert len(sent) == 4
    close(final, mean([part_of(each, "target") for each in sent]))
    assert not np.allclose(part_of(sent[0], "target")["1.weight"], part_of(sent[0], "online")["1.weight"], atol=1e-6)
    result = run(cg.FedSiam(rounds=2, local_steps=4))
    assert all(
        np.array_equal(weights(m)["1.weight"], weights(result.global_model)["1.weight"]) for m in result.models.values()
    )


def test_consistency_and_decay_grow_with_the_rounds() -> None:
    with disturbed(cg.FedSiam(rounds=6, local_steps=1, ramp=4, consistency=2.0, decay=0.8), "nobody", "") as (_, link):
        asked = [args for party, step, args in link.orders if (party, step) == ("a", "fedsiam.update")]
    ramp = [2 * np.exp(-5 * (1 - min(1, (t + 1) / 4)) ** 2) for t in range(6)]
    assert [args["weight"] for args in asked] == pytest.approx(ramp)
    assert [args["decay"] for args in asked] == pytest.approx([1 / 2, 2 / 3, 3 / 4, 0.8, 0.8, 0.8])


@pytest.mark.slow
def test_it_learns() -> None:
    settings: dict[str, Any] = {"rounds": 8, "local_steps": 25}
    assert accuracy(run(cg.FedSiam(**settings), sites((120,) * 5, labels=6), test_sites=False)) > 0.5
