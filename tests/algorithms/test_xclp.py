"""XCLP: the same labels through every backend, who drops out or misbehaves, bad input, and that it helps."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from benchmarks.xclp import accuracy
from scipy import sparse
from sklearn.datasets import load_digits
from tests.core.exchanges import Disturbed, killed_after

import collegium as cg
from collegium.core import Federation
from collegium.core.gate import Gate, Request
from collegium.core.ledger import Ledger
from collegium.core.messages import OpenPoints
from collegium.core.site import ActiveSite
from collegium.core.steps import INSTALLED
from collegium.errors import ConfigError, QuorumLost, Refused, SiteError
from collegium.links.hosting import Hosting
from collegium.links.local import LocalLink
from collegium.protocols.hamming import BACKENDS

X, Y = load_digits(return_X_y=True)
SMALL = cg.XCLP(bits=128, k=5, hamming="masked")
Play = Callable[..., tuple[dict[str, Any], Federation, Disturbed]]


def sites(sizes: tuple[int, ...] = (30, 25, 20, 15), labelled: int = 8, **changes: Any) -> list[cg.Site]:
    """Digits as sites a, b, c ..., each with its first rows labelled by words."""
    rng = np.random.default_rng(0)
    rows = np.split(rng.permutation(len(Y))[: sum(sizes)], np.cumsum(sizes)[:-1])
    return [
        cg.Site(name, X[r[:labelled]], words(Y[r[:labelled]]), unlabeled=X[r[labelled:]], **changes)
        for name, r in zip("abcdefgh", rows, strict=False)
    ]


def words(y: Any) -> Any:
    return np.array([f"digit {value}" for value in y])


def same(a: cg.Run, b: cg.Run, parties: str = "abcd") -> bool:
    return all(
        np.array_equal(a.labels[p], b.labels[p]) and np.array_equal(a.confidences[p], b.confidences[p]) for p in parties
    )


@pytest.fixture(scope="module")
def usual() -> cg.Run:
    return cg.run(SMALL, sites=sites())


@pytest.fixture
def play() -> Iterator[Play]:
    """XCLP over a disturbed link: what each site found, the federation and the link."""
    with ExitStack() as links:

        def run(algorithm: cg.XCLP, party: str, step: str, change: Any = None, who: Any = None) -> Any:
            classes = words(range(10))
            hosting = Hosting(tuple(who or sites()), classes, None, None, 0, "run 1")
            inner = LocalLink(hosting)
            links.callback(inner.close)
            link = Disturbed(inner, party, step, change)
            fed = Federation(link, run="run 1", n_classes=10, seed=0)
            algorithm.coordinate(fed)
            return {p: classes[found.codes] for p, found in inner.found_labels.items()}, fed, link

        yield run


# What comes out.


def test_labels_and_confidences_are_by_site_in_the_order_of_its_points(usual: cg.Run) -> None:
    assert list(usual.labels) == ["a", "b", "c", "d"]
    for site in sites():
        assert usual.labels[site.name].shape == usual.confidences[site.name].shape == (len(site.unlabeled),)
        assert set(usual.labels[site.name]) <= set(words(range(10)))
        assert ((usual.confidences[site.name] >= 0) & (usual.confidences[site.name] <= 1)).all()
    assert usual.models == {}
    assert usual.refusals.empty


@pytest.mark.parametrize("backend", BACKENDS)
def test_every_backend_gives_the_same_labels(backend: str) -> None:
    if backend == "bfv":
        pytest.importorskip("tenseal")
    few = sites((7, 6, 5), labelled=3)
    run = cg.run(cg.XCLP(bits=24, k=3, hamming=backend), sites=few)
    assert same(run, cg.run(cg.XCLP(bits=24, k=3, hamming="plain"), sites=few), "abc")


def test_both_ways_to_sum_give_the_same_labels(usual: cg.Run) -> None:
    recipient = cg.run(cg.XCLP(bits=128, k=5, hamming="masked", sums="recipient"), sites=sites())
    assert same(usual, recipient)


def test_it_is_the_same_in_workers_and_after_a_replay_and_a_load(usual: cg.Run, tmp_path: Path) -> None:
    assert same(usual, cg.run(SMALL, sites=sites(), workers=2))
    assert same(usual, cg.run(SMALL, sites=sites(), out=tmp_path / "run"))
    again = cg.run(SMALL, sites=sites(), out=tmp_path / "run", resume=True)
    assert same(usual, again)
    assert same(usual, cg.load(tmp_path / "run"))


@pytest.mark.parametrize("after", [2, 5, 7, 9])
def test_it_goes_on_where_it_was_killed(after: int, tmp_path: Path) -> None:
    algorithm = cg.XCLP(bits=32, k=3, hamming="ot")

    with killed_after(after):
        cg.run(algorithm, sites=sites(), out=tmp_path / "run")
    resumed = cg.run(algorithm, sites=sites(), out=tmp_path / "run", resume=True)
    assert resumed.refusals.empty
    assert same(resumed, cg.run(algorithm, sites=sites()))


def test_another_seed_draws_other_codes(usual: cg.Run) -> None:
    assert not all(
        np.array_equal(usual.confidences[p], v) for p, v in cg.run(SMALL, sites=sites(), seed=1).confidences.items()
    )


def test_many_labels_alike_in_one_graph_are_better_than_alone() -> None:
    """A small case of benchmarks/xclp.py: ten sites with 5 % of all digits labelled."""
    for way, at_least in ((cg.XCLP(bits=None), 0.946), (cg.XCLP(hamming="plain"), 0.94)):
        assert accuracy(way, cg.Iid(), 0.05, seed=1) >= at_least
    assert accuracy(cg.LocalLabelPropagation(), cg.Iid(), 0.05, seed=1) < 0.7


# Who has what.


def test_a_site_may_have_only_labels_or_none() -> None:
    some = sites((40, 30, 30), labelled=20)
    only_labels = cg.Site("only labels", some[0].X, some[0].y)
    no_labels = cg.Site("no labels", None, None, unlabeled=some[1].unlabeled)
    run = cg.run(SMALL, sites=[only_labels, no_labels, some[2]])
    assert run.labels["only labels"].shape == (0,)
    assert len(run.labels["no labels"]) == len(some[1].unlabeled)


def test_tables_sparse_rows_and_images_are_points_too(usual: cg.Run) -> None:
    def changed(change: Any) -> list[cg.Site]:
        return [cg.Site(s.name, change(s.X), s.y, unlabeled=change(s.unlabeled)) for s in sites()]

    for change in (pd.DataFrame, sparse.csr_array, lambda x: x.reshape(-1, 8, 8)):
        assert same(usual, cg.run(SMALL, sites=changed(change)))


def test_features_may_come_from_a_trained_learner() -> None:
    class First32:
        def embed(self, X: Any) -> Any:
            return X[:, :32] + 1

        def fit(self, X: Any, y: Any) -> None: ...

        def predict(self, X: Any) -> None: ...

    embedded = cg.run(cg.XCLP(bits=128, k=5, hamming="masked", embed=True), sites=sites(learner=First32()))
    cut = [cg.Site(s.name, s.X[:, :32] + 1, s.y, unlabeled=s.unlabeled[:, :32] + 1) for s in sites()]
    assert same(embedded, cg.run(SMALL, sites=cut))
    with pytest.raises(SiteError, match=r"'a'.*embed"):
        cg.run(cg.XCLP(embed=True), sites=sites())


def test_one_site_alone_labels_its_points_as_local_propagation_would() -> None:
    alone = sites((60,), labelled=30)
    with pytest.warns(cg.CollegiumWarning, match="one site only"):
        run = cg.run(cg.XCLP(bits=None, k=5), sites=alone)
    with pytest.warns(cg.CollegiumWarning, match="one site only"):
        local = cg.run(cg.LocalLabelPropagation(k=5), sites=alone)
    assert np.array_equal(run.labels["a"], local.labels["a"])


def test_two_sites_are_warned_that_sums_hide_little() -> None:
    with pytest.warns(cg.CollegiumWarning, match="Only 2 sites"):
        assert list(cg.run(SMALL, sites=sites((20, 20))).labels) == ["a", "b"]


def test_of_one_class_everything_is_certain() -> None:
    one = [cg.Site(s.name, s.X, np.zeros(len(s.y), int), unlabeled=s.unlabeled) for s in sites()]
    run = cg.run(SMALL, sites=one)
    assert all((labels == 0).all() for labels in run.labels.values())
    assert set(np.concatenate(list(run.confidences.values()))) <= {0.0, 1.0}


def test_a_site_with_one_point_takes_part() -> None:
    who = sites()
    run = cg.run(SMALL, sites=[*who, cg.Site("e", None, None, unlabeled=who[0].X[:1])])
    assert len(run.labels["e"]) == 1


# Bad input.


@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_missing_values_are_refused_with_the_row(bad: float) -> None:
    who = sites()
    who[1].unlabeled[3, 2] = bad
    with pytest.raises(SiteError, match=r"'b'.*unlabeled: row 3.*impute"):
        cg.run(SMALL, sites=who)


def test_zero_vectors_are_refused_with_the_row() -> None:
    who = sites()
    who[0].X[1] = 0
    with pytest.raises(SiteError, match=r"'a'.*X: row 1.*no direction"):
        cg.run(SMALL, sites=who)


def test_words_are_no_points() -> None:
    table = pd.DataFrame({"colour": ["red", "blue"]})
    with pytest.raises(SiteError, match=r"'colour'.*encode"):
        cg.run(SMALL, sites=[cg.Site("a", table, [0, 1], unlabeled=table)])


def test_without_labels_or_points_to_label_it_says_so() -> None:
    none = [cg.Site(s.name, None, None, unlabeled=s.unlabeled) for s in sites()]
    with pytest.raises(ConfigError, match="no site has any"):
        cg.run(SMALL, sites=none, classes=words(range(10)))
    with pytest.raises(ConfigError, match="unlabeled=X"):
        cg.run(SMALL, sites=[cg.Site(s.name, s.X, s.y) for s in sites()])


@pytest.mark.parametrize(
    ("settings", "match"),
    [
        ({"bits": 0}, "bits"), ({"k": 0}, "k must"), ({"alpha": 1.0}, "alpha"), ({"hamming": "magic"}, "magic"),
        ({"sums": "x"}, "pairwise"), ({"power": 0}, "power"), ({"balance": "x"}, "balance"),
    ],
)  # fmt: skip
def test_settings_out_of_range_are_refused(settings: dict[str, Any], match: str) -> None:
    with pytest.raises(ConfigError, match=match):
        cg.XCLP(**settings)


def test_points_in_the_clear_never_leave_outside_a_simulation() -> None:
    gate = Gate("a", cg.Policy(), Ledger("a"), simulation=False)
    site = ActiveSite(sites()[0], words(range(10)), None, 0, simulation=False)
    request = Request("run", 1, 0, "codes.show", INSTALLED["codes.show"].digest, None)
    with pytest.raises(Refused) as refusal, gate.ledger.transaction():
        gate.seal(request, OpenPoints(1, X[:2]), None, site)
    assert refusal.value.code == "release-denied"


# What is said about it.


def test_the_claim_is_confidentiality_and_not_differential_privacy(usual: cg.Run) -> None:
    assert set(usual.privacy["kind"]) == {"unprotected"}
    said = usual.privacy["assumptions"].iloc[0]
    assert "parties that do not collude, which is not differential privacy" in said
    assert "the distance of every two points of different sites" in said


def test_it_says_who_learns_what() -> None:
    learns = cg.XCLP(hamming="masked").learns()
    assert "ALL codes" in learns["server and one site, from distances"]
    assert "labels and confidences of its own points" in learns["site"]


# Drop-outs: the others finish as if it had never been there.

STAGES = ["sessions.greet", "sessions.meet", "codes.encode", "distances.talk", "distances.share"]


@pytest.mark.parametrize("backend", ["ot", "masked"])
@pytest.mark.parametrize(("party", "step"), [(p, s) for p in "ac" for s in STAGES] + [("a", "codes.draw_seed")])
def test_the_others_finish_when_a_site_goes_before_the_sums(play: Play, party: str, step: str, backend: str) -> None:
    algorithm = cg.XCLP(bits=32, k=3, hamming=backend)
    found, fed, _ = play(algorithm, party, step)
    left = [p for p in "abcd" if p != party]
    assert list(found) == left
    assert {(row["party"], row["code"]) for row in fed.observed.refusals} == {(party, "missing")}
    if party != "a":  # the seed is another when another site draws it
        alone, _, _ = play(algorithm, "nobody", step, who=[s for s in sites() if s.name in left])
        assert all(np.array_equal(found[p], alone[p]) for p in left)


def test_a_site_that_goes_during_the_sums_takes_its_rows_with_it(play: Play) -> None:
    found, _, link = play(SMALL, "c", "rowsums.submit")
    assert list(found) == ["a", "b", "d"]
    rounds = [args for _, step, args in link.orders if step == "rowsums.submit"]
    assert [args["participants"] for args in rounds[:4]] == [["a", "b", "c", "d"]] * 4
    assert {args["round_name"] for args in rounds[:4]} == {"rows 0"}
    assert all(args["participants"] == ["a", "b", "d"] and args["round_name"] == "rows 1" for args in rounds[4:])
    second = [plain["rows"] for party, step, plain in link.releases if step == "rowsums.submit"][3:]
    assert len(second) == 3
    assert all("c" not in rows for rows in second)


def test_with_recipients_nobody_sums_again(play: Play) -> None:
    found, _, link = play(cg.XCLP(bits=128, k=5, hamming="masked", sums="recipient"), "c", "rowsums.submit")
    assert list(found) == ["a", "b", "d"]
    assert {args["round_name"] for _, step, args in link.orders if step == "rowsums.submit"} == {"rows 0"}


def test_a_site_that_goes_at_the_very_end_changes_nothing_for_the_others(play: Play) -> None:
    found, _, _ = play(SMALL, "c", "xclp.adopt")
    whole, _, _ = play(SMALL, "nobody", "")
    assert all(np.array_equal(found[p], whole[p]) for p in "abd")


def test_it_stops_when_all_labels_have_gone(play: Play) -> None:
    who = [s if s.name == "a" else cg.Site(s.name, None, None, unlabeled=s.unlabeled) for s in sites()]
    with pytest.raises(QuorumLost, match="nothing to propagate"):
        play(SMALL, "a", "codes.encode", who=[*who[1:], who[0]])


# Sites that do not follow are named and left out.


def broken_letter(plain: Any) -> None:
    for envelope in plain["letters"].values():
        envelope[-1] ^= 1


def short_shares(plain: Any) -> None:
    plain["shares"] = {party: share[:-1] for party, share in plain["shares"].items()}


def wild_shares(plain: Any) -> None:
    plain["shares"] = {party: share + np.uint16(40000) for party, share in plain["shares"].items()}


def other_rows(plain: Any) -> None:
    plain["rows"] = {party: rows[:, :-1] for party, rows in plain["rows"].items()}


def false_signature(plain: Any) -> None:
    plain["signature"] = "00" * 64


@pytest.mark.parametrize(
    ("backend", "step", "change"),
    [
        ("ot", "sessions.greet", false_signature), ("ot", "distances.talk", broken_letter),
        ("masked", "distances.share", short_shares), ("masked", "distances.share", wild_shares),
        ("masked", "rowsums.submit", other_rows),
    ],
)  # fmt: skip
def test_who_does_not_follow_is_named_and_left_out(play: Play, backend: str, step: str, change: Any) -> None:
    found, fed, _ = play(cg.XCLP(bits=32, k=3, hamming=backend), "b", step, change)
    assert list(found) == ["a", "c", "d"]
    assert {(row["party"], row["code"]) for row in fed.observed.refusals} == {("b", "protocol")}


@pytest.mark.parametrize("change", [lambda p: p.update(labelled=99), lambda p: p["columns"].fill(99)])
def test_a_neighbourhood_that_cannot_be_is_a_bad_reply(play: Play, change: Any) -> None:
    found, fed, _ = play(SMALL, "b", "codes.encode", change)
    assert list(found) == ["a", "c", "d"]
    assert {(row["party"], row["code"]) for row in fed.observed.refusals} == {("b", "bad-reply")}


def test_a_session_that_was_begun_is_not_begun_again(play: Play) -> None:
    _, fed, _ = play(SMALL, "nobody", "")
    with pytest.raises(QuorumLost):
        SMALL.propagate(fed)
    assert {row["code"] for row in fed.observed.refusals} == {"step-failed"}
