"""A coordinator in the process of its sites does not read again what they have just written; it checks all the same."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import pytest
from sklearn.naive_bayes import GaussianNB

import collegium as cg
from collegium.core import ActiveSite, Federation, HardLabels, Labels, step
from collegium.core.link import Answer, OwnAnswer
from collegium.core.releases import Count, Numbers
from collegium.core.weights import Weights
from collegium.links.local import LocalLink

X = np.random.default_rng(0).normal(size=(40, 2))
KEPT: dict[str, np.ndarray[Any, Any]] = {}


@step
def keep_numbers(site: ActiveSite) -> Numbers:
    KEPT[site.name] = np.arange(3.0)
    return Numbers(KEPT[site.name])


@step
def too_few_labels(site: ActiveSite) -> HardLabels:
    return HardLabels(Labels(np.zeros(len(site.public) - (site.name == "b"), np.int64), site.n_classes))


@step
def count(site: ActiveSite) -> Count:
    return Count(np.int64(site.records) if site.name == "a" else site.records)  # type: ignore[arg-type]


@step
def keep_weights(site: ActiveSite) -> Weights:
    KEPT[site.name] = np.arange(50_000, dtype=np.float32)
    return Weights({"large": KEPT[site.name], "small": KEPT[site.name][:3]}, 1)


class Asking(cg.Algorithm):
    """Does what a test says."""

    asks_for = (keep_numbers, too_few_labels, count, keep_weights)
    found: Any = None

    def coordinate(self, fed: Federation) -> None:
        self.__class__.found = self.ask(fed)

    def ask(self, fed: Federation) -> Any:
        raise NotImplementedError


def asked(ask: Any, link: str = "local") -> Any:
    method = type("Once", (Asking,), {"ask": lambda self, fed: ask(fed)})
    sites = [cg.Site(name, X, np.arange(40) % 2, GaussianNB()) for name in "ab"]
    cg.run(method(), sites=sites, public=X, link=link, progress=False)
    return method.found


def test_arrays_of_a_site_are_not_those_of_the_coordinator() -> None:
    def ask(fed: Federation) -> list[list[float]]:
        replies = fed.ask(keep_numbers())
        for values in KEPT.values():
            values[:] = -1.0
        replies["a"].values[0] = 7.0  # nor are they frozen
        return [replies[party].values.tolist() for party in "ab"]

    assert asked(ask) == [[7.0, 1.0, 2.0], [0.0, 1.0, 2.0]]


@pytest.mark.filterwarnings("ignore::collegium.errors.CollegiumWarning")
def test_what_does_not_fit_the_study_is_refused_in_one_process_too() -> None:
    def ask(fed: Federation) -> tuple[list[str], dict[str, str]]:
        replies = fed.ask(too_few_labels())
        return list(replies), replies.refused

    assert asked(ask) == (["a"], {"b": "bad-reply"})


def test_numbers_are_what_they_would_be_over_the_wire() -> None:
    found = asked(lambda fed: [type(release.samples) for release in fed.ask(count()).values()])
    assert found == [int, int]


@pytest.mark.filterwarnings("ignore::collegium.errors.CollegiumWarning")
def test_an_answer_that_was_changed_on_its_way_is_read_and_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    exchange = LocalLink.exchange

    def changed(self: LocalLink, orders: Mapping[str, bytes], deadline: float | None) -> Iterator[Answer]:
        for answer in exchange(self, orders, deadline):
            assert isinstance(answer, OwnAnswer)
            assert answer.reply is not None
            other = answer.frame[:-1] + bytes([answer.frame[-1] ^ 1])
            yield answer._replace(frame=other) if answer.party == "b" else answer

    monkeypatch.setattr(LocalLink, "exchange", changed)
    assert asked(lambda fed: fed.ask(count()).refused) == {"b": "bad-reply"}


def test_labels_are_shared_and_cannot_be_changed(monkeypatch: pytest.MonkeyPatch) -> None:
    def ask(fed: Federation) -> bool:
        reading = fed._correspondence  # type: ignore[attr-defined]
        own = reading._read
        shared = []
        monkeypatch.setattr(reading, "_read", lambda answer, awaited: shared.append(answer) or own(answer, awaited))
        replies = fed.ask(too_few_labels(), ["a"])
        with pytest.raises(ValueError, match="read-only"):
            replies["a"].labels.codes[0] = 1
        return replies["a"] is shared[0].release

    assert asked(ask)


@pytest.mark.parametrize("link", ["local", "workers"])
def test_weights_are_read_where_they_lie_and_cannot_be_changed(link: str) -> None:
    def ask(fed: Federation) -> list[float]:
        arrays = fed.ask(keep_weights(), ["a"])["a"].arrays
        for values in KEPT.values():
            values[:] = -1.0
        for array in arrays.values():
            with pytest.raises(ValueError, match="read-only"):
                array[0] = 7.0
        large, small = arrays["large"], arrays["small"]
        assert large.flags.aligned
        at: Any = large
        while isinstance(at, np.ndarray):
            at = at.base
        assert isinstance(at, memoryview)  # of the answer's own bytes
        assert small.base is None or not isinstance(small.base.base, memoryview)  # nor does it keep all of them
        return [*large[[0, 1, -1]].tolist(), *small.tolist()]

    assert asked(ask, link) == [0.0, 1.0, 49_999.0, 0.0, 1.0, 2.0]
