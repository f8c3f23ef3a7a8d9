"""XCLP: the same labels through every backend, who drops out or misbehaves, bad input, and that it helps."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, nullcontext
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from benchmarks.xclp import accuracy
from scipy import sparse
from sklearn.datasets import load_digits
from tests.core.exchanges import Disturbed, killed_after, last_comes_first

import collegium as cg
from collegium.algorithms import xclp
from collegium.core import Federation
from collegium.core.building import build
from collegium.core.site import ActiveSite
from collegium.core.steps import INSTALLED
from collegium.errors import ConfigError, QuorumLost, Refused, SiteError
from collegium.links.hosting import Hosting
from collegium.links.local import LocalLink
from collegium.protocols.hamming import BACKENDS
from collegium.protocols.masks import MODES
from collegium.secure.messages import OpenPoints
from collegium.secure.row_sums import finish
from collegium.secure.sketches import encode
from collegium.site.gate import Gate
from collegium.site.ledger import Ledger
from collegium.wire.orders import Request

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


@pytest.mark.parametrize(
    "backend",
    # Real keys take their time; tests/protocols has them between two sites.
    [pytest.param(each, marks=pytest.mark.slow) if each == "paillier" else each for each in BACKENDS],
)
def test_every_backend_gives_the_same_labels(backend: str) -> None:
    if backend == "bfv":
        pytest.importorskip("tenseal")
    few = sites((7, 6, 5), labelled=3)
    run = cg.run(cg.XCLP(bits=24, k=3, hamming=backend), sites=few)
    assert same(run, cg.run(cg.XCLP(bits=24, k=3, hamming="plain"), sites=few), "abc")


def test_both_ways_to_sum_give_the_same_labels(usual: cg.Run) -> None:
    recipient = cg.run(cg.XCLP(bits=128, k=5, hamming="masked", sums="recipient"), sites=sites())
    assert same(usual, recipient)


def test_it_is_the_same_whoever_answers_first_and_after_a_replay_and_a_load(usual: cg.Run, tmp_path: Path) -> None:
    with last_comes_first():
        assert same(usual, cg.run(SMALL, sites=sites()))
    assert same(usual, cg.run(SMALL, sites=sites(), out=tmp_path / "run"))
    again = cg.run(SMALL, sites=sites(), out=tmp_path / "run", resume=True)
    assert same(usual, again)
    assert same(usual, cg.load(tmp_path / "run"))


@pytest.mark.parametrize("after", [2, 7, *(pytest.param(n, marks=pytest.mark.slow) for n in (5, 9))])
def test_it_goes_on_where_it_was_killed(after: int, tmp_path: Path) -> None:
    algorithm = cg.XCLP(bits=32, k=3, hamming="ot")

    with killed_after(after):
        cg.run(algorithm, sites=sites(), out=tmp_path / "run")
    resumed = cg.run(algorithm, sites=sites(), out=tmp_path / "run", resume=True)
    assert resumed.refusals.empty
    assert same(resumed, cg.run(algorithm, sites=sites()))


def test_another_seed_draws_other_sketches(usual: cg.Run) -> None:
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


class Dead:
    """A learner whose features are all zero for rows that begin with a 99."""

    def embed(self, X: Any) -> Any:
        return np.where(X[:, :1] == 99, 0.0, X + 1)

    def fit(self, X: Any, y: Any) -> None: ...

    def predict(self, X: Any) -> None: ...


@pytest.mark.parametrize("bits", [None, 16, 128])
def test_of_points_without_features_only_they_themselves_get_no_label(bits: int | None) -> None:
    algorithm = cg.XCLP(bits=bits, k=5, hamming="masked", embed=True, power=1.0)
    who = sites(learner=Dead())
    for site, rows in ((who[0], [1, 4]), (who[2], [0])):
        site.unlabeled[rows, 0] = 99
    who[1].X[3, 0] = 99  # a label without a point has nobody to tell
    run = cg.run(algorithm, sites=who)
    assert run.refusals.empty
    assert np.flatnonzero(run.confidences["a"] == 0).tolist() == [1, 4]
    assert np.flatnonzero(run.confidences["c"] == 0).tolist() == [0]
    assert len({*run.labels["a"][[1, 4]], run.labels["c"][0]}) == 1  # the class with the largest total
    assert (run.confidences["b"] > 0).all()


@pytest.mark.parametrize("size", [2.0**-1000, 2.0**1000])
@pytest.mark.parametrize("algorithm", [SMALL, cg.XCLP(bits=None, k=5), cg.LocalLabelPropagation(k=5)])
def test_the_size_of_the_features_does_not_matter(algorithm: cg.Algorithm, size: float) -> None:
    scaled = [cg.Site(s.name, s.X * size, s.y, unlabeled=s.unlabeled * size) for s in sites()]
    assert same(cg.run(algorithm, sites=scaled), cg.run(algorithm, sites=sites()))


@pytest.mark.parametrize("alpha", [0.01, 0.1])
def test_with_a_small_alpha_sums_say_what_one_site_alone_would_find(alpha: float) -> None:
    """All rows at one site, which needs no sums, and over four sites, in fixed point."""
    who = sites((40, 30, 30, 30), labelled=4)
    whole = cg.Site(
        "all",
        np.concatenate([s.X for s in who]),
        np.concatenate([s.y for s in who]),
        unlabeled=np.concatenate([s.unlabeled for s in who]),
    )
    with pytest.warns(cg.CollegiumWarning, match="only one site"):
        alone = cg.run(cg.LocalLabelPropagation(k=5, alpha=alpha), sites=[whole])
    found = cg.run(cg.XCLP(bits=None, k=5, alpha=alpha), sites=who)
    confidences = np.concatenate([found.confidences[s.name] for s in who])
    assert np.mean(alone.confidences["all"] > 0) > 0.99
    assert np.mean(confidences > 0) > 0.99
    reached = confidences > 0
    labels = np.concatenate([found.labels[s.name] for s in who])
    assert np.mean(labels[reached] == alone.labels["all"][reached]) > 0.99


def test_one_site_alone_labels_its_points_as_local_propagation_would() -> None:
    alone = sites((60,), labelled=30)
    with pytest.warns(cg.CollegiumWarning, match="only one site"):
        run = cg.run(cg.XCLP(bits=None, k=5), sites=alone)
    with pytest.warns(cg.CollegiumWarning, match="only one site"):
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
        ({"alpha": "0.9"}, "XCLP: alpha"), ({"alpha": None}, "XCLP: alpha"), ({"alpha": 1 - 1e-8}, "at most 0.99999"),
        ({"power": "3"}, "XCLP: power"), ({"power": float("inf")}, "finite"), ({"power": True}, "XCLP: power"),
        ({"relative_confidence": "no"}, "XCLP: relative_confidence"), ({"embed": "yes"}, "XCLP: embed"),
        ({"bits": 40000, "hamming": "masked"}, "at most 32767 bits, not 40000: take hamming='ot' or 'paillier' or"),
        ({"bits": 70000, "hamming": "bfv"}, "at most 65535 bits"), ({"bits": 2**32}, "fewer bits"),
    ],
)  # fmt: skip
def test_settings_out_of_range_are_refused(settings: dict[str, Any], match: str) -> None:
    with pytest.raises(ConfigError, match=match):
        cg.XCLP(**settings)


@pytest.mark.parametrize(
    ("settings", "match"),
    [
        ({"alpha": "x"}, "alpha"), ({"alpha": 1.0}, "alpha"), ({"power": None}, "power"), ({"k": 0}, "k"),
        ({"embed": "no"}, "embed"),
    ],
)  # fmt: skip
def test_settings_of_local_propagation_are_looked_at_too(settings: dict[str, Any], match: str) -> None:
    with pytest.raises(ConfigError, match=f"LocalLabelPropagation: {match}"):
        cg.LocalLabelPropagation(**settings)


def test_a_study_with_an_infinite_power_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"algorithm\.power must be a finite number above 0"):
        build("algorithm", {"name": "xclp", "power": float("inf")}, "algorithm")


@pytest.mark.parametrize(
    ("settings", "simulated"),
    [({}, False), ({"hamming": "masked"}, False), ({"hamming": "plain"}, True), ({"bits": None}, True)],
)
def test_what_shows_points_or_sketches_can_only_be_simulated(settings: dict[str, Any], simulated: bool) -> None:
    algorithm = cg.XCLP(**settings)
    assert algorithm.simulation_only is cg.FedAvgXCLP(xclp=algorithm).simulation_only is simulated
    assert algorithm == cg.XCLP(**settings)


def test_points_in_the_clear_never_leave_outside_a_simulation() -> None:
    gate = Gate("a", cg.Policy(), Ledger("a"), simulation=False)
    site = ActiveSite(sites()[0], words(range(10)), None, 0, simulation=False)
    request = Request("run", None, 1, 0, "sketches.show", INSTALLED["sketches.show"].digest, {})
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
    assert "ALL sketches" in learns["server and one site, from distances"]
    for what in ("labels and confidences of its own points", "how many points each other site has", "total influence"):
        assert what in learns["site"]
    assert "the number of labels of each class" in cg.XCLP(balance="count").learns()["site"]


@pytest.mark.parametrize("sums", MODES)
def test_coordinator_and_one_site_together_find_all_labels_and_it_says_so(
    play: Play, monkeypatch: pytest.MonkeyPatch, sums: str
) -> None:
    sums_of = {}

    def kept(site: Any, *args: Any) -> Any:
        sums_of[site.name] = finish(site, *args)
        return sums_of[site.name].copy()

    monkeypatch.setattr(xclp, "finish", kept)
    who = sites((80, 30, 30), labelled=10)
    algorithm = cg.XCLP(bits=128, k=5, hamming="masked", sums=sums)
    _, _, link = play(algorithm, "nobody", "", who=who)
    S = np.hstack([args["S"] for _, step, args in link.orders if step == "xclp.spread"])  # known to the coordinator
    Y_found = np.linalg.lstsq(S[:80], sums_of["a"][:-1], rcond=None)[0]  # the site's rows of S and of S Y
    assert np.array_equal(words(Y_found.argmax(axis=1)), np.concatenate([site.y for site in who]))
    assert "labels of all labeled points of all sites" in algorithm.learns()["coordinator and one site"]
    assert "labels" in algorithm.learns()["server and one site, from row sums"]
    for page in ("SECURITY.md", "docs/methods/xclp.md"):
        text = " ".join((Path(__file__).parents[2] / page).read_text().split())
        assert "the labels of all labeled points of all sites" in text


# Drop-outs: the others finish as if it had never been there.

STAGES = [
    "acquaintance.greet",
    "acquaintance.meet",
    "sketches.compare",
    "sketches.encode",
    "distances.talk",
    "distances.share",
]
LEADING = [("a", "sketches.draw_seed"), ("c", "sketches.announce")]


@pytest.mark.parametrize("backend", [pytest.param("ot", marks=pytest.mark.slow), "masked"])
@pytest.mark.parametrize(("party", "step"), [(p, s) for p in "ac" for s in STAGES] + LEADING)
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
    found, _, link = play(SMALL, "c", "row_sums.submit")
    assert list(found) == ["a", "b", "d"]
    rounds = [args for _, step, args in link.orders if step == "row_sums.submit"]
    assert [args["participants"] for args in rounds[:4]] == [["a", "b", "c", "d"]] * 4
    assert {args["round_name"] for args in rounds[:4]} == {"rows 0"}
    assert all(args["participants"] == ["a", "b", "d"] and args["round_name"] == "rows 1" for args in rounds[4:])
    second = [plain["rows"] for party, step, plain in link.releases if step == "row_sums.submit"][3:]
    assert len(second) == 3
    assert all("c" not in rows for rows in second)


def test_with_recipients_nobody_sums_again(play: Play) -> None:
    found, _, link = play(cg.XCLP(bits=128, k=5, hamming="masked", sums="recipient"), "c", "row_sums.submit")
    assert list(found) == ["a", "b", "d"]
    assert {args["round_name"] for _, step, args in link.orders if step == "row_sums.submit"} == {"rows 0"}


def test_a_site_that_goes_at_the_very_end_changes_nothing_for_the_others(play: Play) -> None:
    found, _, _ = play(SMALL, "c", "xclp.adopt")
    whole, _, _ = play(SMALL, "nobody", "")
    assert all(np.array_equal(found[p], whole[p]) for p in "abd")


def test_it_stops_when_all_labels_have_gone(play: Play) -> None:
    who = [s if s.name == "a" else cg.Site(s.name, None, None, unlabeled=s.unlabeled) for s in sites()]
    with pytest.raises(QuorumLost, match="nothing to propagate"):
        play(SMALL, "a", "sketches.encode", who=[*who[1:], who[0]])


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
        ("ot", "acquaintance.greet", false_signature), ("ot", "distances.talk", broken_letter),
        ("masked", "distances.share", short_shares), ("masked", "distances.share", wild_shares),
        ("masked", "row_sums.submit", other_rows),
    ],
)  # fmt: skip
def test_who_does_not_follow_is_named_and_left_out(play: Play, backend: str, step: str, change: Any) -> None:
    found, fed, _ = play(cg.XCLP(bits=32, k=3, hamming=backend), "b", step, change)
    assert list(found) == ["a", "c", "d"]
    assert {(row["party"], row["code"]) for row in fed.observed.refusals} == {("b", "protocol")}


@pytest.mark.parametrize("change", [lambda p: p.update(labelled=99), lambda p: p["columns"].fill(99)])
def test_a_neighbourhood_that_cannot_be_is_a_bad_reply(play: Play, change: Any) -> None:
    found, fed, _ = play(SMALL, "b", "sketches.encode", change)
    assert list(found) == ["a", "c", "d"]
    assert {(row["party"], row["code"]) for row in fed.observed.refusals} == {("b", "bad-reply")}


def far(plain: Any) -> None:
    plain["distances"] = np.full(plain["distances"].shape, 2 * 128, np.uint16)  # the cosine of a whole turn is 1


def own_point(plain: Any) -> None:
    plain["columns"][:, 0] = np.arange(len(plain["columns"]))


def twice(plain: Any) -> None:
    plain["columns"][:, 1] = plain["columns"][:, 0]


def wide(plain: Any) -> None:
    for name in ("columns", "distances"):
        plain[name] = np.repeat(plain[name], 100, axis=1)


@pytest.mark.parametrize("change", [far, own_point, twice, wide])
def test_neighbours_that_cannot_be_the_nearest_are_not_used(play: Play, change: Any) -> None:
    found, fed, _ = play(SMALL, "b", "sketches.encode", change)
    assert [(row["party"], row["step"], row["code"]) for row in fed.observed.refusals] == [
        ("b", "sketches.encode", "protocol")
    ]
    without, _, _ = play(SMALL, "b", "sketches.encode")
    assert list(found) == list(without) == ["a", "c", "d"]
    assert all(np.array_equal(found[p], without[p]) for p in found)


def no_letters(plain: Any) -> None:
    plain["letters"] = {}


def one_broken_letter(plain: Any) -> None:
    plain["letters"]["c"][-1] ^= 1


@pytest.mark.parametrize(("change", "out"), [(broken_letter, "a"), (no_letters, "a"), (one_broken_letter, "ac")])
def test_of_a_leader_whose_seed_does_not_arrive_another_takes_the_place(play: Play, change: Any, out: str) -> None:
    with pytest.warns(cg.CollegiumWarning, match="Only 2") if len(out) == 2 else nullcontext():
        found, fed, link = play(SMALL, "a", "sketches.draw_seed", change)
    assert list(found) == [p for p in "abcd" if p not in out]
    assert {(row["party"], row["code"]) for row in fed.observed.refusals} == {(p, "protocol") for p in out}
    assert [(party, args["draw"]) for party, step, args in link.orders if step == "sketches.draw_seed"] == [
        ("a", 0),
        ("b", 1),
    ]
    (again,) = [plain for party, step, plain in link.releases if (party, step) == ("b", "sketches.draw_seed")]
    assert set(again["letters"]) == set(found) - {"b"}
    assert [args["draw"] for party, step, args in link.orders if step == "sketches.encode"] == [1] * len(found)


@pytest.mark.parametrize("faults", [["a", "c", "d"], ["nobody"], ["b"]])
def test_who_accuses_everybody_or_nobody_is_left_out_of_the_sketches(play: Play, faults: list[str]) -> None:
    found, fed, _ = play(SMALL, "b", "sketches.compare", lambda plain: plain.update(faults=faults))
    assert list(found) == ["a", "c", "d"]
    assert {(row["party"], row["code"]) for row in fed.observed.refusals} == {("b", "protocol")}


def test_sketches_are_not_drawn_by_a_seed_that_not_all_have(play: Play) -> None:
    _, fed, link = play(SMALL, "nobody", "")
    (args,) = [args for party, step, args in link.orders if (party, step) == ("b", "sketches.encode")]
    with pytest.raises(QuorumLost, match="b: step-failed"):
        fed.ask(encode(**args), ["b"])
    assert "a seed that this site does not hold" in "".join(link.inner._pool.agents["b"].log.lines)


@pytest.mark.parametrize("backend", ["ot", "masked"])
def test_who_never_stops_writing_is_left_out(play: Play, backend: str) -> None:
    def writes(plain: Any) -> None:
        plain["letters"] = {party: np.zeros(50, np.uint8) for party in "acd"}

    found, fed, link = play(cg.XCLP(bits=32, k=3, hamming=backend), "b", "distances.talk", writes)
    assert list(found) == ["a", "c", "d"]
    assert {(row["party"], row["code"]) for row in fed.observed.refusals} == {("b", "protocol")}
    assert len([1 for party, step, _ in link.orders if (party, step) == ("b", "distances.talk")]) <= 5


# Sites whose points cannot be compared.


def with_columns(changes: dict[str, Any]) -> list[cg.Site]:
    """Sites with named columns, changed at some."""
    named = {
        s.name: (pd.DataFrame(s.X).add_prefix("pixel "), pd.DataFrame(s.unlabeled).add_prefix("pixel "))
        for s in sites()
    }
    named |= {name: tuple(change(table) for table in named[name]) for name, change in changes.items()}
    return [cg.Site(s.name, named[s.name][0], s.y, unlabeled=named[s.name][1]) for s in sites()]


@pytest.mark.parametrize("party", ["a", "c"])
@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda table: table.iloc[:, 1:], "points with 63 features, this site 64"),
        (lambda table: table.iloc[:, ::-1], "in another order"),
        (lambda table: table.rename(columns={"pixel 9": "pixel nine"}), "other names"),
    ],
    ids=["number", "order", "names"],
)
def test_a_site_with_other_columns_is_named_and_the_others_go_on(
    play: Play, party: str, change: Any, said: str
) -> None:
    found, fed, link = play(SMALL, "nobody", "", who=with_columns({party: change}))
    assert list(found) == [p for p in "abcd" if p != party]
    assert [(row["party"], row["step"], row["code"]) for row in fed.observed.refusals] == [
        (party, "sketches.compare", "protocol")
    ]
    assert said in "".join(link.inner._pool.agents["b"].log.lines)
    assert "agree on" in "".join(link.inner._pool.agents[party].log.lines)
    assert not [1 for asked, step, _ in link.orders if (asked, step) == (party, "sketches.encode")]


def test_columns_without_names_are_compared_by_their_number(play: Play) -> None:
    found, fed, _ = play(SMALL, "nobody", "", who=with_columns({"c": lambda table: table.to_numpy()}))
    assert list(found) == list("abcd")
    assert not fed.observed.refusals


class FirstFew:
    """Embeds rows by their first features, as many as it was told."""

    def __init__(self, many: int = 8) -> None:
        self.many = many

    def embed(self, X: Any) -> Any:
        return X[:, : self.many] + 1

    def fit(self, X: Any, y: Any) -> None: ...

    def predict(self, X: Any) -> None: ...


def embedded(**many: int) -> list[cg.Site]:
    return [cg.Site(s.name, s.X, s.y, unlabeled=s.unlabeled, learner=FirstFew(many.get(s.name, 8))) for s in sites()]


def test_features_of_another_length_are_not_compared(play: Play) -> None:
    found, fed, _ = play(cg.XCLP(bits=32, k=3, hamming="masked", embed=True), "nobody", "", who=embedded(b=9))
    assert list(found) == ["a", "c", "d"]
    assert {(row["party"], row["code"]) for row in fed.observed.refusals} == {("b", "protocol")}


def test_exact_similarities_of_points_of_different_lengths_name_both_sites(play: Play) -> None:
    differ = "a: 8, b: 9"
    with pytest.raises(ConfigError, match=differ):
        cg.run(cg.XCLP(bits=None, k=3, embed=True), sites=embedded(b=9))
    narrow = [s if s.name != "b" else cg.Site("b", s.X[:, :9], s.y, unlabeled=s.unlabeled[:, :9]) for s in sites()]
    with pytest.raises(ConfigError, match="a: 64, b: 9"):
        play(cg.XCLP(bits=None, k=3), "nobody", "", who=narrow)


# Nobody comes.


@pytest.mark.parametrize("algorithm", [SMALL, cg.XCLP(bits=None, k=3)])
def test_where_nobody_comes_it_says_whom_it_asked_and_what_they_said(algorithm: cg.XCLP) -> None:
    who = sites(policy=cg.Policy(steps=("fedct.*",)))
    with pytest.raises(QuorumLost, match=r"0 of 4 sites .* a: step-denied.* d: step-denied"):
        cg.run(algorithm, sites=who)


def test_where_too_few_come_for_the_quorum_it_says_who_did_not() -> None:
    who = sites()
    who[2] = cg.Site("c", who[2].X, who[2].y, unlabeled=who[2].unlabeled, policy=cg.Policy(steps=("fedct.*",)))
    with pytest.raises(QuorumLost, match=r"3 of 4 sites .* 4 are needed.* c: step-denied"):
        cg.run(SMALL, sites=who, quorum=1.0)


def test_a_circle_that_was_begun_is_not_begun_again(play: Play) -> None:
    _, fed, _ = play(SMALL, "nobody", "")
    with pytest.raises(QuorumLost):
        SMALL.propagate(fed)
    assert {row["code"] for row in fed.observed.refusals} == {"step-failed"}
