"""Secret votes: the same consensus, of which nobody sees a single site's part."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sklearn.tree import DecisionTreeClassifier
from tests.core.exchanges import Disturbed, killed_after, last_comes_first

import collegium as cg
from collegium.core import Federation, HardLabels, Nothing, step
from collegium.core.labels import Labels
from collegium.core.public_set import PublicSet
from collegium.core.site import ActiveSite
from collegium.errors import BudgetSpent, ConfigError, QuorumLost
from collegium.links.hosting import Hosting
from collegium.links.local import LocalLink
from collegium.privacy.budget import read_charges
from collegium.protocols import ProtocolError
from collegium.protocols.masked_sum import Submission, SumServer
from collegium.secure.acquaintance import greet, meet
from collegium.secure.secret_votes import open_masks
from collegium.site.ledger import read_ledger
from collegium.wire.orders import Mask

RNG = np.random.default_rng(0)
VOTES = RNG.integers(-1, 3, (5, 40))
LEARNER = DecisionTreeClassifier(max_features=3)
Vote = Callable[..., tuple[Any, Federation, Disturbed]]


@step
def cast(site: ActiveSite) -> HardLabels:
    """The votes that the test handed to this site as its data."""
    return HardLabels(Labels(site.data.X[0].astype(int), site.n_classes))


@step
def learn(site: ActiveSite) -> Nothing:
    """A model that is trained: what it votes is new."""
    site.fit(site.data)
    return Nothing()


@pytest.fixture
def vote() -> Iterator[Vote]:
    """One secret total over a disturbed link, of the sites s0 .. s4."""
    with ExitStack() as links:

        def hold(party: str = "nobody", asked: str = "", change: Any = None, order: Any = None, **settings: Any) -> Any:
            votes = VOTES if order is None else abs(VOTES)  # with noise everybody votes on everything
            public = PublicSet(np.arange(VOTES.shape[1])[:, None])
            sites = [cg.Site(f"s{i}", row[None], [0], learner=LEARNER, **settings) for i, row in enumerate(votes)]
            inner = LocalLink(Hosting(tuple(sites), np.arange(3), public, None, 0, "run 1"))
            links.callback(inner.close)
            link = Disturbed(inner, party, asked, change)
            fed = Federation(link, run="run 1", n_classes=3, seed=0, public=public)
            return fed.total((cast() if order is None else order).secretly()), fed, link

        yield hold


def counts(rows: Any) -> Any:
    return np.stack([(VOTES[rows] == code).sum(axis=0) for code in range(3)])


def test_the_total_is_that_of_all_votes(vote: Vote) -> None:
    total, fed, _ = vote()
    assert np.array_equal(total.tally.counts, counts(range(5)))
    assert total.voters == 5
    assert {row["kind"] for row in fed.observed.releases} == {"Greeting", "Met", "MaskedVotes", "MaskShares"}


def test_what_a_site_sends_looks_like_nothing_at_all(vote: Vote) -> None:
    _, _, link = vote()
    sent = [plain["counts"] for _, asked, plain in link.releases if asked == "test_secret_votes.cast"]
    assert len(sent) == 5
    for words, votes in zip(sent, VOTES, strict=True):
        assert words.dtype == np.uint8
        assert not np.array_equal(words, np.stack([votes == code for code in range(3)]))
        assert len(np.unique(words)) > 50  # of 120 words; plain votes are 0 and 1


@pytest.mark.parametrize("asked", ["acquaintance.greet", "acquaintance.meet", "test_secret_votes.cast"])
def test_the_others_are_counted_when_a_site_goes(vote: Vote, asked: str) -> None:
    total, fed, link = vote("s2", asked)
    assert np.array_equal(total.tally.counts, counts([0, 1, 3, 4]))
    assert total.voters == 4
    assert {(row["party"], row["code"]) for row in fed.observed.refusals} == {("s2", "missing")}
    rounds = {args["round"] for _, name, args in link.masks if name == "test_secret_votes.cast"}
    assert rounds == ({"sum 1", "sum 2"} if asked == "test_secret_votes.cast" else {"sum 1"})


def test_who_goes_while_masks_are_opened_has_voted(vote: Vote) -> None:
    total, fed, link = vote("s2", "secret_votes.open_masks")
    assert np.array_equal(total.tally.counts, counts(range(5)))
    assert {(row["party"], row["step"]) for row in fed.observed.refusals} == {("s2", "secret_votes.open_masks")}
    assert {args["round"] for _, _, args in link.masks} == {"sum 1"}


def test_a_late_message_of_a_site_that_was_left_out_cannot_be_read(vote: Vote) -> None:
    """The coordinator keeps what comes after the others have gone on, and asks everybody to open that round, too."""
    total, fed, link = vote("s2", "test_secret_votes.cast")
    link._gone, link._party = False, "nobody"
    circle, everybody = link.masks[0][2]["circle"], [f"s{i}" for i in range(5)]
    late = Mask("secret_votes", circle, "sum 1", everybody)
    fed.ask({"s2": replace(cast(), mask=late, gives="MaskedVotes")})
    first = {party: sent for party, asked, sent in reversed(link.releases) if asked == "test_secret_votes.cast"}
    for party in ("s0", "s1", "s3", "s4"):
        letters = {other: first[other]["letters"][party] for other in everybody if other != party}
        with pytest.raises(QuorumLost):
            fed.ask({party: open_masks(circle, "sum 1", letters)})
    with_it = sum(first[party]["counts"] for party in everybody)
    difference = with_it - total.tally.counts.astype(np.uint8)
    assert np.mean(difference == np.stack([VOTES[2] == code for code in range(3)])) < 0.1


def test_votes_whose_masks_were_opened_are_not_masked_again(vote: Vote) -> None:
    _, fed, link = vote()
    again = Mask("secret_votes", link.masks[0][2]["circle"], "sum 9", ["s0", "s1", "s2"], "sum 1")
    with pytest.raises(QuorumLost):
        fed.ask({"s0": replace(cast(), mask=again, gives="MaskedVotes")})
    assert [row["code"] for row in fed.observed.refusals] == ["mask-denied"]


def test_too_few_to_open_ends_the_run_with_nothing_revealed(vote: Vote, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("collegium.protocols.masked_sum.majority", lambda participants: participants)
    with pytest.raises(QuorumLost, match="nothing was revealed"):
        vote("s2", "secret_votes.open_masks")


def test_when_a_site_goes_the_others_mask_the_same_votes_again_at_no_further_cost(vote: Vote) -> None:
    noisy = cast().through(cg.RandomizedResponse(epsilon=2))
    total, fed, _ = vote("s2", "test_secret_votes.cast", order=noisy)
    assert total.tally.counts.sum() == 4 * VOTES.shape[1]
    said = [row for row in fed.observed.releases if (row["party"], row["kind"]) == ("s0", "MaskedVotes")]
    first, second = ([bool(charge.events) for charge in read_charges(row["privacy"])[0]] for row in said)
    assert first == [True]
    assert second == [False]


def wrong_size(plain: Any) -> None:
    plain["counts"] = plain["counts"].astype(np.uint16)


def false_signature(plain: Any) -> None:
    plain["signature"] = "00" * 64


def no_digests(plain: Any) -> None:
    plain["digests"] = {}


@pytest.mark.parametrize(
    ("asked", "change"),
    [
        ("test_secret_votes.cast", wrong_size),
        ("test_secret_votes.cast", no_digests),
        ("acquaintance.greet", false_signature),
    ],
)  # fmt: skip
def test_who_does_not_follow_is_named_and_left_out(vote: Vote, asked: str, change: Any) -> None:
    total, fed, _ = vote("s1", asked, change)
    assert np.array_equal(total.tally.counts, counts([0, 2, 3, 4]))
    assert {(row["party"], row["code"]) for row in fed.observed.refusals} == {("s1", "protocol")}


def test_a_changed_share_is_named_and_not_used(vote: Vote) -> None:
    def wrong(plain: Any) -> None:
        plain["shares"]["s3"] = plain["shares"]["s3"] ^ np.uint8(1)

    total, fed, _ = vote("s1", "secret_votes.open_masks", wrong)
    assert np.array_equal(total.tally.counts, counts(range(5)))
    assert {(row["party"], row["code"]) for row in fed.observed.refusals} == {("s1", "protocol"), ("s3", "protocol")}


def test_an_impossible_sum_is_not_handed_out(vote: Vote) -> None:
    def wild(plain: Any) -> None:
        plain["counts"] = plain["counts"] + np.uint8(100)

    with pytest.raises(ProtocolError, match="impossible"):
        vote("s1", "test_secret_votes.cast", wild)


def test_a_secret_order_cannot_be_asked(vote: Vote) -> None:
    _, fed, _ = vote()
    with pytest.raises(ConfigError, match="only be totaled"):
        fed.ask(cast().secretly())


def test_a_round_that_was_used_is_refused(vote: Vote) -> None:
    _, fed, _ = vote()
    fed._secret_totals["secret_votes"]._rounds = 0
    with pytest.raises(QuorumLost):
        fed.total(cast().secretly())
    assert {row["code"] for row in fed.observed.refusals} == {"mask-denied"}


def test_a_policy_of_differential_privacy_lets_keys_pass_and_bare_votes_not(vote: Vote) -> None:
    strict = cg.Policy(requires="dp")
    total, _, _ = vote(order=cast().through(cg.RandomizedResponse(epsilon=2)), policy=strict)
    assert total.voters == 5
    with pytest.raises(QuorumLost):
        vote(policy=strict)


# A coordinator that does not follow the protocol.

EVERYBODY = [f"s{i}" for i in range(5)]
WITHOUT_S2 = ["s0", "s1", "s3", "s4"]


@pytest.fixture
def ask() -> Iterator[Callable[..., Federation]]:
    """A coordinator that writes its orders by hand."""
    with ExitStack() as links:

        def hold(parties: tuple[str, ...] = (), **settings: Any) -> Federation:
            public = PublicSet(np.arange(VOTES.shape[1])[:, None])
            rows = abs(VOTES)
            sites = [cg.Site(f"s{i}", row[None], [0], learner=LEARNER, **settings) for i, row in enumerate(rows)]
            link = LocalLink(Hosting(tuple(sites), np.arange(3), public, None, 0, "run 1", parties=parties))
            links.callback(link.close)
            return Federation(link, run="run 1", n_classes=3, seed=0, public=public)

        yield hold


def begin(fed: Federation, circle: str) -> None:
    hellos = {party: said.to_plain() for party, said in fed.ask(greet(circle)).items()}
    fed.ask(meet(circle, hellos))


def submit(fed: Federation, order: Any, circle: str, name: str, parties: list[str], again: Any = None) -> SumServer:
    mask = Mask("secret_votes", circle, name, parties, again)
    server = SumServer(parties, (3, VOTES.shape[1]))
    sent = fed.ask({party: replace(order, mask=mask, gives="MaskedVotes") for party in parties})
    for party, each in sent.items():
        server.add(party, Submission(each.counts, each.letters, each.digests, each.key_digest))
    return server


def opened(fed: Federation, server: SumServer, circle: str, name: str) -> Any:
    asked = {party: open_masks(circle, name, server.letters_for(party)) for party in server.senders}
    for party, said in fed.ask(asked).items():
        server.opened(party, said.shares)
    return server.total()


def test_votes_cannot_be_opened_in_two_circles(ask: Any) -> None:
    fed = ask()
    begin(fed, "A")
    begin(fed, "B")
    noisy = cast().through(cg.RandomizedResponse(epsilon=2))
    first = submit(fed, noisy, "A", "r", EVERYBODY)
    with pytest.raises(QuorumLost):  # what was kept for one circle is not there for the other
        submit(fed, noisy, "B", "r2", WITHOUT_S2, again="r")
    with pytest.raises(QuorumLost):  # nor are the same votes asked for anew
        submit(fed, noisy, "B", "r3", WITHOUT_S2)
    fed.tell(learn())
    second = submit(fed, noisy, "B", "r4", WITHOUT_S2)
    said = fed.ask({party: open_masks("A", "r", first.letters_for(party)) for party in EVERYBODY})
    assert set(said) == {"s2"}  # whose one share opens nothing
    assert opened(fed, second, "B", "r4").sum() == 4 * VOTES.shape[1]


def test_votes_of_another_round_are_not_masked_again(ask: Any) -> None:
    fed = ask()
    begin(fed, "A")
    submit(fed, cast(), "A", "r", EVERYBODY)
    with pytest.raises(QuorumLost):
        submit(fed, cast(), "A", "r2", WITHOUT_S2, again="another")
    assert {row["code"] for row in fed.observed.refusals} == {"mask-denied"}


def test_what_the_budget_does_not_cover_is_not_to_be_had_by_asking_again(ask: Any) -> None:
    fed = ask(budget=cg.Budget(epsilon=1, delta=1e-5))
    begin(fed, "A")
    noisy = cast().through(cg.RandomizedResponse(epsilon=50))
    with pytest.raises(BudgetSpent):
        submit(fed, noisy, "A", "r", EVERYBODY)
    with pytest.raises(QuorumLost):
        submit(fed, noisy, "A", "r2", EVERYBODY, again="r")
    assert {row["code"] for row in fed.observed.refusals} == {"budget-exhausted", "mask-denied"}


def test_bare_votes_that_are_masked_again_are_called_so(ask: Any) -> None:
    fed = ask()
    begin(fed, "A")
    submit(fed, cast(), "A", "r", EVERYBODY)
    submit(fed, cast(), "A", "r2", WITHOUT_S2, again="r")
    assert {row["privacy"] for row in fed.observed.releases if row["kind"] == "MaskedVotes"} == {None}


def test_two_of_five_are_no_company(ask: Any) -> None:
    fed = ask()
    begin(fed, "A")
    for few in (["s0", "s1"], ["s0", "s1", "s1"]):
        with pytest.raises(QuorumLost):
            submit(fed, cast(), "A", f"r {few}", few)
    assert {row["code"] for row in fed.observed.refusals} == {"mask-denied"}


def test_too_few_are_told_of_beforehand(ask: Any) -> None:
    with pytest.raises(ConfigError, match=r"at least 3 sites .* not 2"):
        ask().total(cast().secretly(), ["s0", "s1"])


def test_the_same_votes_are_in_one_sum(ask: Any) -> None:
    """All sites, then all but one: the difference would be that one's votes."""
    fed = ask()
    begin(fed, "A")
    first = submit(fed, cast(), "A", "r", EVERYBODY)
    assert opened(fed, first, "A", "r").sum() == 5 * VOTES.shape[1]
    with pytest.raises(QuorumLost):
        submit(fed, cast(), "A", "r2", WITHOUT_S2)
    assert {row["code"] for row in fed.observed.refusals} == {"mask-denied"}
    fed.tell(learn())
    assert opened(fed, submit(fed, cast(), "A", "r3", WITHOUT_S2), "A", "r3").sum() == 4 * VOTES.shape[1]


def test_votes_are_masked_again_for_fewer_sites_only(ask: Any) -> None:
    """Drop-outs that are made up: if sites could go back to the larger sum, s0 and s1 would open the small one and the
    others the large one, and their difference would be the votes of s3 and s4."""
    fed = ask()
    begin(fed, "A")
    submit(fed, cast(), "A", "r", EVERYBODY)
    submit(fed, cast(), "A", "small", ["s0", "s1", "s2"], again="r")
    for parties in (EVERYBODY, ["s0", "s1", "s2"], ["s1", "s2", "s3"], ["s0", "s1", "s2", "s3"]):
        mask = Mask("secret_votes", "A", f"{parties}", parties, "r")
        with pytest.raises(QuorumLost):
            fed.ask({"s2": replace(cast(), mask=mask, gives="MaskedVotes")})
    assert [row["code"] for row in fed.observed.refusals] == 4 * ["mask-denied"]


@pytest.mark.parametrize("asked", ["acquaintance.meet", "test_secret_votes.cast", "secret_votes.open_masks"])
def test_of_three_all_must_vote(asked: str) -> None:
    public = PublicSet(np.arange(VOTES.shape[1])[:, None])
    sites = [cg.Site(f"s{i}", row[None], [0], learner=LEARNER) for i, row in enumerate(VOTES[:3])]
    inner = LocalLink(Hosting(tuple(sites), np.arange(3), public, None, 0, "run 1"))
    link = Disturbed(inner, "s1", asked)
    fed = Federation(link, run="run 1", n_classes=3, seed=0, public=public)
    if asked == "secret_votes.open_masks":  # who goes then has voted
        assert np.array_equal(fed.total(cast().secretly()).tally.counts, counts([0, 1, 2]))
    else:
        with pytest.raises(QuorumLost, match=r"2 of 3 sites are left .* 3 are needed"):
            fed.total(cast().secretly())
    inner.close()


# Sites that do not follow it, or come late.


def test_who_was_late_to_greet_comes_in_the_next_time(ask: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    fed = ask()
    link, lost = fed._correspondence._link, []
    exchange = link.exchange

    def late(orders: Any, deadline: float | None) -> Any:
        for answer in exchange(orders, deadline):
            if answer.party == "s2" and not lost:
                lost.append(answer.party)
            else:
                yield answer

    monkeypatch.setattr(link, "exchange", late)
    voters = []
    for _ in range(2):
        fed.tell(learn())
        voters.append(fed.total(cast().secretly()).voters)
    assert voters == [4, 5]


def test_too_few_for_the_quorum_are_not_counted(ask: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    fed = ask()
    link = fed._correspondence._link
    exchange = link.exchange
    monkeypatch.setattr(
        link, "exchange", lambda orders, deadline: exchange({p: orders[p] for p in orders if p != "s2"}, deadline)
    )
    with pytest.raises(QuorumLost, match="4 of 5 sites are left"):
        fed.total(cast().secretly(), quorum=1.0)
    fed.tell(learn(), WITHOUT_S2)
    assert fed.total(cast().secretly(), quorum=0.8).voters == 4


def test_votes_and_masks_have_the_deadline_of_the_total(ask: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    fed = ask()
    link, deadlines = fed._correspondence._link, []
    exchange = link.exchange

    def noted(orders: Any, deadline: float | None) -> Any:
        deadlines.append(deadline)
        return exchange(orders, deadline)

    monkeypatch.setattr(link, "exchange", noted)
    fed.total(cast().secretly(), deadline=60.0)
    assert deadlines[-2:] == [60.0, 60.0]


def spoilt(letters: dict[str, Any], parties: Any) -> dict[str, Any]:
    return {party: letter ^ np.uint8(party in parties) for party, letter in letters.items()}


def test_who_seals_nonsense_for_all_is_left_out(vote: Vote) -> None:
    def bad(plain: Any) -> None:
        plain["letters"] = spoilt(plain["letters"], EVERYBODY)

    total, fed, _ = vote("s1", "test_secret_votes.cast", bad)
    assert np.array_equal(total.tally.counts, counts([0, 2, 3, 4]))
    assert {(row["party"], row["code"]) for row in fed.observed.refusals} == {("s1", "protocol")}


def test_who_seals_nonsense_for_one_is_named_and_counts(vote: Vote) -> None:
    def bad(plain: Any) -> None:
        plain["letters"] = spoilt(plain["letters"], ["s4"])

    total, fed, _ = vote("s1", "test_secret_votes.cast", bad)
    assert np.array_equal(total.tally.counts, counts(range(5)))
    assert {row["party"] for row in fed.observed.refusals} == {"s1", "s4"}  # nobody can tell which


def test_letters_that_are_no_bytes_are_refused(vote: Vote) -> None:
    def bad(plain: Any) -> None:
        plain["letters"] = {party: letter.astype(np.uint16) for party, letter in plain["letters"].items()}

    total, fed, _ = vote("s1", "test_secret_votes.cast", bad)
    assert np.array_equal(total.tally.counts, counts([0, 2, 3, 4]))
    assert {row["party"] for row in fed.observed.refusals} == {"s1"}


def test_a_site_that_nobody_knows_stays_outside(ask: Any) -> None:
    fed = ask(parties=tuple(EVERYBODY[:4]))
    assert fed.total(cast().secretly(), EVERYBODY[:4]).voters == 4
    fed.tell(learn())
    assert fed.total(cast().secretly(), EVERYBODY).voters == 4
    assert {row["party"] for row in fed.observed.refusals} == {"s4"}


def test_more_votes_than_sites_are_not_counted(vote: Vote) -> None:
    def stuff(plain: Any) -> None:
        plain["counts"] = plain["counts"] + (np.arange(3) == 0).astype(np.uint8)[:, None]

    with pytest.raises(ProtocolError, match="more votes than one"):
        vote("s1", "test_secret_votes.cast", stuff, order=cast())


# FedCT with secret votes.


def test_a_draw_of_one_site_has_no_secret_votes(cancer: Any) -> None:
    with pytest.raises(ConfigError, match="in every communication"):
        cancer.run(cg.FedCT(rounds=1, votes="secret", participation=0.2), LEARNER)


@pytest.mark.parametrize(
    "settings",
    [
        {}, {"consensus": cg.QualifiedMajority(0.8)}, {"participation": 0.6}, {"voters": cg.Familiar()},
        {"mechanism": cg.RandomizedResponse(epsilon=4)}, {"mechanism": cg.UnaryEncoding(epsilon=4)},
    ],
)  # fmt: skip
def test_fedct_comes_to_the_same_consensus(settings: dict[str, Any], cancer: Any) -> None:
    plain = cancer.run(cg.FedCT(rounds=3, **settings), LEARNER)
    secret = cancer.run(cg.FedCT(rounds=3, votes="secret", **settings), LEARNER)
    assert plain.labels == secret.labels
    assert plain.metrics.equals(secret.metrics)
    assert secret.refusals.empty
    assert set(secret.releases["kind"]) == {"Greeting", "Met", "MaskedVotes", "MaskShares"}


def test_it_is_the_same_whoever_answers_first_and_after_a_replay(cancer: Any, tmp_path: Path) -> None:
    algorithm = cg.FedCT(rounds=2, votes="secret")
    here = cancer.run(algorithm, LEARNER, out=tmp_path / "run")
    rows = read_ledger(tmp_path / "run" / "ledger.db")
    again = cancer.run(algorithm, LEARNER, out=tmp_path / "run", resume=True)
    with last_comes_first():
        other = cancer.run(algorithm, LEARNER)
    assert here.labels == again.labels == other.labels
    assert list(here.releases["sha256"]) == list(again.releases["sha256"])
    assert read_ledger(tmp_path / "run" / "ledger.db") == rows
    assert [row["kind"] for row in rows].count("MaskedVotes") == 10


@pytest.mark.parametrize("after", [1, 3, 4])
def test_it_goes_on_where_it_was_killed(after: int, cancer: Any, tmp_path: Path) -> None:
    algorithm = cg.FedCT(rounds=3, votes="secret")

    with killed_after(after):
        cancer.run(algorithm, LEARNER, out=tmp_path / "run")
    resumed = cancer.run(algorithm, LEARNER, out=tmp_path / "run", resume=True)
    assert resumed.labels == cancer.run(algorithm, LEARNER).labels
    assert resumed.refusals.empty


def test_a_failing_site_changes_the_consensus_no_more_than_with_plain_votes(cancer: Any) -> None:
    class Fails(DecisionTreeClassifier):
        def fit(self, X, y):
            raise RuntimeError

    def run(votes: str) -> cg.Run:
        sites = cancer.sites(LEARNER)
        sites[3] = cg.Site("failing", sites[3].X, sites[3].y, learner=Fails())
        with pytest.warns(cg.CollegiumWarning, match="failing"):
            return cancer.run(cg.FedCT(rounds=2, votes=votes), sites=sites)

    assert run("plain").labels == run("secret").labels


@pytest.mark.parametrize("rule", [cg.WeightedMajority(), cg.DawidSkene()])
def test_rules_that_compare_sites_are_refused(rule: Any) -> None:
    with pytest.raises(ConfigError, match=r"only their total.*Majority"):
        cg.FedCT(consensus=rule, votes="secret")


def test_other_words_for_votes_are_refused() -> None:
    with pytest.raises(ConfigError, match="'plain' or 'secret'"):
        cg.FedCT(votes="hidden")


def test_one_site_and_two_have_no_secret_votes(cancer: Any) -> None:
    sites = cancer.sites(LEARNER)
    with pytest.warns(cg.CollegiumWarning, match="one site"), pytest.raises(ConfigError, match="at least 3 sites"):
        cancer.run(cg.FedCT(rounds=1, votes="secret"), sites=sites[:1])
    with pytest.raises(ConfigError, match="at least 3 sites"):
        cancer.run(cg.FedCT(rounds=1, votes="secret"), sites=sites[:2])
