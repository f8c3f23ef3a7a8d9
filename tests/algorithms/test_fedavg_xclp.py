"""FedAvgXCLP: that it helps, that cryptography changes nothing, what it tells, and who drops out while it labels."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from tests.algorithms.few_labels import accuracy, disturbed, net, right, run, sites
from tests.algorithms.nets import same, weights

import collegium as cg
from collegium.core.building import build
from collegium.errors import ConfigError, SiteError

FEW: dict[str, Any] = {"rounds": 2, "local_steps": 5}


@pytest.mark.slow
def test_found_labels_make_a_better_net_than_labels_alone() -> None:
    who = sites((120,) * 5, labels=6)
    settings: dict[str, Any] = {"rounds": 8, "local_steps": 25}
    found = run(cg.FedAvgXCLP(**settings, xclp=cg.XCLP(bits=None)), who, test_sites=False)
    alone = run(cg.FedAvg(**settings, weighting="equal"), who, test_sites=False)
    assert right(found, who) > 0.65  # of ten classes, three labels of each at all sites together
    assert accuracy(found) > accuracy(alone) + 0.04


@pytest.mark.parametrize("sums", ["pairwise", "recipient"])
def test_cryptography_gives_what_sketches_in_the_clear_give(sums: str) -> None:
    found = [
        run(cg.FedAvgXCLP(rounds=1, local_steps=5, xclp=cg.XCLP(bits=64, k=5, hamming=backend, sums=sums)))
        for backend in ("plain", "masked")
    ]
    assert all(np.array_equal(found[0].labels[p], found[1].labels[p]) for p in "abcd")
    assert same(*(weights(each.global_model) for each in found))


def test_it_always_sees_the_features_of_the_net() -> None:
    algorithm = cg.FedAvgXCLP(xclp=cg.XCLP(bits=32))
    assert algorithm.xclp == cg.XCLP(bits=32, embed=True)
    who = sites(learner=net())
    who[0] = cg.Site("a", who[0].X, who[0].y, learner=WithoutFeatures("mlp"), unlabeled=who[0].unlabeled)
    with pytest.raises(SiteError, match=r"'a'.*labels points by their features"):
        run(cg.FedAvgXCLP(**FEW), who)


class WithoutFeatures(cg.TorchClassifier):
    """A learner that keeps its features to itself."""

    @property
    def embed(self) -> Any:
        raise AttributeError("embed")


@pytest.mark.parametrize("bits", [None, 64])
def test_points_whose_features_are_all_zero_are_like_no_others(bits: int | None) -> None:
    start = {name: np.zeros_like(value) for name, value in weights(run(cg.FedAvg(rounds=1)).global_model).items()}
    result = run(cg.FedAvgXCLP(rounds=1, local_steps=2, start=start, xclp=cg.XCLP(bits=bits, hamming="masked")))
    assert result.refusals.empty
    assert all((confidences == 0).all() for confidences in result.confidences.values())


def test_the_others_go_on_when_a_site_drops_out_while_labels_are_propagated() -> None:
    with disturbed(cg.FedAvgXCLP(**FEW, xclp=cg.XCLP(bits=32, k=3, hamming="masked")), "c", "row_sums.submit") as (
        fed,
        _,
    ):
        assert {row["party"] for row in fed.observed.refusals} == {"c"}


def test_a_site_that_does_not_follow_the_protocol_is_left_out_of_it_and_learns_its_labels() -> None:
    def other_rows(plain: Any) -> None:
        plain["rows"] = {party: rows[:, :-1] for party, rows in plain["rows"].items()}

    algorithm = cg.FedAvgXCLP(**FEW, xclp=cg.XCLP(bits=32, k=3, hamming="masked"))
    with disturbed(algorithm, "b", "row_sums.submit", other_rows) as (fed, link):
        assert {(row["party"], row["code"]) for row in fed.observed.refusals} == {("b", "protocol")}
        learned = [party for party, step, _ in link.releases if step == "semi_supervised.learn"]
        assert sorted(learned) == sorted("abcd" * 2)
        assert link.inner.found_labels.keys() == {"a", "c", "d"}


def test_of_a_leader_whose_seed_does_not_arrive_another_takes_the_place() -> None:
    def broken(plain: Any) -> None:
        for envelope in plain["letters"].values():
            envelope[-1] ^= 1

    algorithm = cg.FedAvgXCLP(**FEW, xclp=cg.XCLP(bits=32, k=3, hamming="masked"))
    with disturbed(algorithm, "a", "sketches.draw_seed", broken) as (fed, link):
        assert {(row["party"], row["step"], row["code"]) for row in fed.observed.refusals} == {
            ("a", "sketches.compare", "protocol")
        }
        assert link.inner.found_labels.keys() == {"b", "c", "d"}


def test_it_says_what_everybody_learns() -> None:
    told = cg.FedAvgXCLP(xclp=cg.XCLP(hamming="masked")).learns()
    assert told.items() >= cg.XCLP(hamming="masked").learns().items()
    assert "weights" in told["coordinator, from averaging"]


def test_sketches_that_are_too_long_for_a_backend_are_refused_at_once() -> None:
    table = {"name": "fedavg_xclp", "xclp": {"name": "xclp", "bits": 40000, "hamming": "masked"}}
    with pytest.raises(ConfigError, match=r"algorithm.xclp: XCLP: .*at most 32767 bits.*'ot'"):
        build("algorithm", table, "algorithm")


def test_a_study_names_its_settings() -> None:
    table = {"name": "fedavg_xclp", "rounds": 3, "xclp": {"name": "xclp", "bits": 64, "hamming": "masked"}}
    assert build("algorithm", table, "algorithm") == cg.FedAvgXCLP(rounds=3, xclp=cg.XCLP(bits=64, hamming="masked"))
    with pytest.raises(ConfigError, match=r"algorithm.xclp.bits"):
        build("algorithm", table | {"xclp": {"name": "xclp", "bits": "many"}}, "algorithm")
    with pytest.raises(ConfigError, match="xclp must be an instance of XCLP"):
        build("algorithm", table | {"xclp": "local"}, "algorithm")
