"""FedMatch: both parts travel and are averaged; helpers are the nets that are most alike."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import pandas as pd
import pytest
from tests.algorithms.few_labels import accuracy, disturbed, net, run, sites
from tests.algorithms.nets import close, mean, weights

import collegium as cg
from collegium.algorithms._semi_supervised import part_of
from collegium.algorithms.fedmatch import _nearest


def test_the_server_averages_both_parts_and_the_result_is_their_sum() -> None:
    with disturbed(cg.FedMatch(rounds=2, local_steps=4), "nobody", "") as (fed, link):
        sent = [plain["arrays"] for _, step, plain in link.releases if step == "fedmatch.update"]
        asked = [args["both"] for party, step, args in link.orders if (party, step) == ("a", "fedmatch.update")]
        ((_, final),) = fed.final_weights.items()
    first = part_of(asked[0], "sigma")
    close(part_of(asked[0], "psi"), {name: 0.2 * value for name, value in first.items()})
    close(asked[1], mean(sent[:4]))
    last = mean(sent[4:])
    close(final, {name: value + part_of(last, "psi")[name] for name, value in part_of(last, "sigma").items()})


def test_it_starts_from_the_weights_that_are_given() -> None:
    start = run(cg.FedAvg(rounds=2, local_epochs=10)).global_model
    still = run(cg.FedMatch(rounds=1, local_steps=1, start=start, l1=0, l2=0), sites(learner=net(lr=1e-9)))
    close(weights(still.global_model), weights(start), rtol=1e-3, atol=1e-5)


def test_helpers_are_sent_in_each_so_manieth_round_to_those_that_have_sent_a_net() -> None:
    with disturbed(cg.FedMatch(rounds=4, local_steps=1, every=2, helpers=2), "nobody", "") as (_, link):
        asked = [args for party, step, args in link.orders if (party, step) == ("b", "fedmatch.update")]
        sent = [(party, plain["arrays"]) for party, step, plain in link.releases if step == "fedmatch.update"]
    assert [len(args["helpers"]) for args in asked] == [0, 2, 0, 2]
    psis = {party: part_of(arrays, "psi") for party, arrays in sent[:4]}
    for helper in asked[1]["helpers"]:
        assert sum(np.array_equal(helper["1.weight"], psi["1.weight"]) for psi in psis.values()) == 1
        assert not np.array_equal(helper["1.weight"], psis["b"]["1.weight"])


def test_the_nearest_by_what_they_say_of_noise_help() -> None:
    impressions = {name: np.array([place, 0.0]) for name, place in {"a": 0.0, "b": 5.0, "c": 1.0, "d": 2.0}.items()}
    assert _nearest("a", impressions, 2) == ["c", "d"]
    assert _nearest("b", impressions, 9) == ["d", "c", "a"]
    assert _nearest("new", impressions, 2) == []


def test_columns_keep_their_names() -> None:
    named = []
    for site in sites():
        labelled, others = pd.DataFrame(site.X).add_prefix("pixel "), pd.DataFrame(site.unlabeled).add_prefix("pixel ")
        named.append(cg.Site(site.name, labelled, site.y, unlabeled=others, learner=net()))
    algorithm = cg.FedMatch(rounds=2, local_steps=1, every=1)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        result = run(algorithm, named, test=None)
    close(weights(result.global_model), weights(run(algorithm, test=None).global_model))


def test_psi_becomes_sparse() -> None:
    with disturbed(cg.FedMatch(rounds=1, local_steps=5, l1=1.0, l2=0.0), "nobody", "") as (_, link):
        psi = [part_of(p["arrays"], "psi")["1.weight"] for _, step, p in link.releases if step == "fedmatch.update"]
    assert np.mean(psi[0] == 0) > 0.5


@pytest.mark.slow
def test_it_learns() -> None:
    settings: dict[str, Any] = {"rounds": 8, "local_steps": 25, "every": 1}
    who = sites((120,) * 5, labels=6, learner=net(lr=0.01))
    assert accuracy(run(cg.FedMatch(**settings), who)) > 0.5
