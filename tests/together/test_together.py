"""A public set from end to end: sites, sums, rows and what they cost."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd
import pytest
from sklearn.tree import DecisionTreeClassifier
from tests.together.tables import COLUMNS, rows, sites

import collegium as cg
from collegium.algorithms.together import edges, histograms, pairs, ranges
from collegium.core.public_set import with_opinion
from collegium.core.site import ActiveSite
from collegium.errors import ConfigError, DoubtfulResult, QuorumLost, RecordError, SiteError
from collegium.learners.prepare import with_preparation
from collegium.privacy import accountant
from collegium.privacy.budget import read_charges
from collegium.site.ledger import read_ledger
from collegium.together.columns import read_columns
from collegium.together.counting import count
from collegium.together.grids import grid_of


@pytest.fixture(scope="module")
def made() -> cg.PublicSet:
    return cg.public_together(sites(), epsilon=1, rows=3000, columns=COLUMNS, seed=3)


def test_rows_are_like_the_sites_own(made: cg.PublicSet) -> None:
    real, _ = rows(3000, 99)
    assert list(made.X.columns) == list(real.columns)
    assert (made.X.dtypes == real.dtypes).all()
    assert len(made.X) == 3000
    assert made.X["age"].between(18, 90).all()
    assert made.X["dose"].between(0, 50).all()
    assert set(made.X["sex"]) == {"F", "M"}
    assert set(made.X["ward"].dropna()) == {"A", "B", "C"}
    assert made.X["ward"].isna().mean() == pytest.approx(0.1, abs=0.06)
    assert (made.X["dose"] == 0).mean() == pytest.approx(0.6, abs=0.1)
    assert made.X["age"].mean() == pytest.approx(real["age"].mean(), abs=5)


def test_the_model_says_how_probable_each_class_is_for_each_row(made: cg.PublicSet, tmp_path: Any) -> None:
    opinion = made.opinion
    assert list(opinion.columns) == ["ill", "well"]
    np.testing.assert_allclose(opinion.sum(axis=1), 1)
    # Nobody who is well is on ward A, and nobody who is ill elsewhere.
    by_ward = opinion["ill"].groupby(made.X["ward"].to_numpy()).mean()
    assert by_ward["A"] > 0.9
    assert by_ward[["B", "C"]].max() < 0.1
    pd.testing.assert_frame_equal(cg.load(made.run.save(tmp_path / "run")).opinion, opinion)


def apart() -> list[cg.Site]:
    """Sites that know one class each, and say it of every row."""
    kept = [(site, "ill" if number % 2 else "well") for number, site in enumerate(sites())]
    known = [replace(site, X=site.X[site.y == only], y=site.y[site.y == only]) for site, only in kept]
    return [replace(site, learner=with_preparation(DecisionTreeClassifier(), sites()[0].X)) for site in known]


def test_what_the_model_says_tells_classes_apart_that_no_site_can(made: cg.PublicSet) -> None:
    method = cg.FedCT(2, consensus=cg.Informed())
    run = cg.run(method, sites=apart(), public=made, alone=False)
    plain = cg.run(method, sites=apart(), public=made.X, alone=False)
    by_ward = made.X["ward"].isin(["B", "C"]).to_numpy()  # where everybody is well; on A everybody is ill
    told = made.X["ward"].notna().to_numpy()
    assert np.mean(plain.labels.codes[told] == by_ward[told]) < 0.7  # nearly all are one class
    assert np.mean(run.labels.codes[told] == by_ward[told]) > 0.95


def test_what_a_model_says_of_other_classes_is_not_used_and_said(made: cg.PublicSet) -> None:
    others = [replace(site, y=np.where(site.y == "ill", "yes", "no")) for site in apart()]
    with pytest.warns(DoubtfulResult, match="made for the classes 'ill', 'well', and this run's are 'no', 'yes'"):
        run = cg.run(cg.FedCT(1, consensus=cg.Informed()), sites=others, public=made, alone=False)
    plain = cg.run(cg.FedCT(1, consensus=cg.Informed()), sites=others, public=made.X, alone=False)
    np.testing.assert_array_equal(run.labels.codes, plain.labels.codes)


def test_what_a_model_says_is_found_by_the_names_of_classes(made: cg.PublicSet) -> None:
    method = cg.FedCT(1, consensus=cg.Informed())
    turned = with_opinion(made, made.opinion[["well", "ill"]])
    runs = [cg.run(method, sites=apart(), public=public, alone=False) for public in (made, turned)]
    np.testing.assert_array_equal(runs[0].labels.codes, runs[1].labels.codes)
    assert runs[0].about["opinion_sha256"] != runs[1].about["opinion_sha256"]


@pytest.mark.parametrize(
    ("spoiled", "words"),
    [
        (lambda told: told.iloc[:10], "is about 10 rows, and there are 3000"),
        (lambda told: told.assign(ill=np.nan), "add up to 1 in each row: some are not"),
        (lambda told: told.assign(ill=-1.0), "add up to 1 in each row: some are not"),
        (lambda told: 100 * told, "add up to 1 in each row: some are not"),
        (lambda told: 0 * told, "add up to 1 in each row: some are not"),
        (lambda told: told.assign(ill="much"), "add up to 1 in each row: some are not"),
        (lambda told: told.to_numpy(), "a DataFrame with a column for each class"),
    ],
)
def test_what_no_model_can_have_said_of_these_rows_is_an_error(made: cg.PublicSet, spoiled: Any, words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        cg.run(cg.FedCT(1), sites=apart(), public=with_opinion(made, spoiled(made.opinion)), alone=False)


def test_a_run_goes_on_with_the_opinion_it_was_begun_with(made: cg.PublicSet, tmp_path: Any) -> None:
    method = cg.FedCT(1, consensus=cg.Informed())
    cg.run(method, sites=apart(), public=made, alone=False, out=tmp_path / "run")
    other = with_opinion(made, made.opinion[["well", "ill"]])
    with pytest.raises(RecordError, match="another run: opinion_sha256 differ"):
        cg.run(method, sites=apart(), public=other, alone=False, out=tmp_path / "run", resume=True)


def test_the_claim_is_what_the_sites_pay(made: cg.PublicSet) -> None:
    assert made.claim.epsilon == pytest.approx(1.0)
    assert (made.claim.delta, made.claim.unit, made.claim.relation) == (1e-5, "record", "add_remove")
    assert any("at least 4 sites" in text for text in made.claim.assumptions)
    for party in made.run.about["parties"]:
        paid = made.run.releases[(made.run.releases["party"] == party) & (made.run.releases["kind"] == "MaskedCounts")]
        charges = [charge for text in paid["privacy"] for charge in read_charges(text)[0]]
        assert len(charges) == 3  # everything was declared: no range had to be found
        assert accountant.claim(charges).epsilon == pytest.approx(1.0)


def test_what_leaves_is_small_masked_and_in_the_ledger(tmp_path: Any) -> None:
    run = cg.public_together(sites(), rows=10, columns=COLUMNS, out=tmp_path / "run").run
    kept = read_ledger(tmp_path / "run" / "ledger.db")
    assert len(kept) == len(run.releases)
    assert {row["kind"] for row in kept} == {"Greeting", "Met", "MaskedCounts", "MaskShares"}
    assert run.costs.groupby("party")["bytes_up"].sum().max() < 100_000
    assert not run.privacy[run.privacy["kind"] == "unprotected"].size
    stored = cg.load(tmp_path / "run").made
    pd.testing.assert_frame_equal(stored, run.made)


@pytest.mark.slow
def test_the_same_seed_makes_the_same_rows_on_every_link(made: cg.PublicSet) -> None:
    again = cg.public_together(sites(), rows=3000, columns=COLUMNS, seed=3, workers=2)
    pd.testing.assert_frame_equal(made.X, again.X)
    assert again.digest == made.digest
    other = cg.public_together(sites(), rows=3000, columns=COLUMNS, seed=4)
    assert not made.X.equals(other.X)


def test_ranges_that_are_not_declared_are_found_with_a_share_of_the_budget() -> None:
    made = cg.public_together(
        sites(n=1500), epsilon=3, rows=500, columns={name: COLUMNS[name] for name in ("sex", "ward")}
    )
    assert made.X["age"].between(0, 128).all()
    assert made.X["dose"].between(0, 64).all()
    assert made.claim.epsilon == pytest.approx(3.0)
    asked = {step for steps in made.run.orders["steps"] for step in str(steps).split()}
    assert {step.name for step in (ranges, histograms, pairs, edges)} <= asked
    paid = made.run.releases[made.run.releases["party"] == "s0"]["privacy"].dropna()
    charges = [charge for text in paid for charge in read_charges(text)[0] if charge.events]
    assert accountant.claim(charges).epsilon == pytest.approx(3.0)


def test_a_range_that_is_found_in_much_noise_comes_with_a_warning() -> None:
    with pytest.warns(cg.DoubtfulResult, match=r"'age' doubtful: declare them"):
        made = cg.public_together(sites(3, 20), columns={name: COLUMNS[name] for name in ("sex", "ward", "dose")})
    assert len(made.X) == 8000


def test_arrays_of_numbers_stay_arrays() -> None:
    X = np.random.default_rng(0).normal(size=(900, 3)).astype(np.float32)
    three = [cg.Site(f"s{i}", X[i::3], (X[i::3, 0] > 0).astype(int)) for i in range(3)]
    made = cg.public_together(three, rows=50, columns={0: (-3, 3), 1: (-3, 3), 2: (-3, 3)})
    assert made.X.shape == (50, 3)
    assert made.X.dtype == np.float32


def test_small_integers_stay_within_what_they_hold() -> None:
    X = np.random.default_rng(0).integers(200, 256, (3000, 2)).astype(np.uint8)
    three = [cg.Site(f"s{i}", X[i::3], (X[i::3, 0] > 220).astype(int)) for i in range(3)]
    made = cg.public_together(three, rows=500)  # the range that is found ends at 256
    assert made.X.dtype == np.uint8
    assert made.X.min() >= 128
    frames = [cg.Site(s.name, pd.DataFrame(s.X, columns=["a", "b"]), s.y) for s in three]
    assert cg.public_together(frames, rows=500).X.to_numpy().min() >= 128


def test_a_site_that_drops_out_in_a_sum_costs_nothing_but_its_rows() -> None:
    all_of_them = sites(6)
    all_of_them[2] = replace(
        all_of_them[2], policy=cg.Policy(steps=("acquaintance.*", "together.histograms", "secret_*"))
    )
    with pytest.warns(cg.CollegiumWarning, match="s2"):
        made = cg.public_together(all_of_them, rows=100, columns=COLUMNS, dropouts=0.2)
    assert len(made.X) == 100
    assert made.claim.epsilon == pytest.approx(1.0)
    assert set(made.run.refusals["party"]) == {"s2"}


def test_with_fewer_sites_than_the_noise_is_made_for_nothing_is_revealed() -> None:
    all_of_them = sites(5)
    for lost in (1, 2):
        all_of_them[lost] = replace(all_of_them[lost], policy=cg.Policy(steps=("acquaintance.*",)))
    with pytest.raises(QuorumLost, match="3 of 5 sites are left"):
        cg.public_together(all_of_them, rows=100, columns=COLUMNS, dropouts=0.2)


def test_a_budget_counts_it_and_an_empty_one_refuses(tmp_path: Any) -> None:
    budget = cg.Budget(1.2, ledger=tmp_path / "s0.db")
    some = sites(3)
    some[0] = replace(some[0], budget=budget)
    cg.public_together(some, rows=10, columns=COLUMNS)
    with pytest.raises(SiteError, match=r"s0.*budget"):
        cg.public_together(some, rows=10, columns=COLUMNS)


def test_sites_that_require_privacy_take_part() -> None:
    strict = sites(3, policy=cg.Policy(requires="dp", unprotected=()))
    assert len(cg.public_together(strict, rows=10, columns=COLUMNS).X) == 10


def test_values_outside_a_declared_range_are_said_at_the_site_only() -> None:
    made = cg.public_together(sites(), rows=10, columns=COLUMNS | {"age": (18, 60)})
    assert "".join(made.run.logs["s0"]).count("outside 17.5 .. 60.5; they count as its ends") == 1  # not in every sum
    assert made.X["age"].max() <= 60


def test_sites_label_made_up_rows_as_they_would_label_real_ones(made: cg.PublicSet) -> None:
    numbers = ["age", "dose"]
    learner = DecisionTreeClassifier(max_depth=3)
    few = [cg.Site(site.name, site.X[numbers], site.y, learner=learner) for site in sites(n=60)]
    X, y = rows(1000, 50)
    run = cg.run(cg.FedCT(rounds=2), sites=few, public=made.X[numbers], test=(X[numbers], y))
    assert run.labels is not None
    assert run.accuracy.iloc[-1].mean() > 0.6


def test_data_are_checked_with_a_public_set_that_was_made(made: cg.PublicSet) -> None:
    few = [cg.Site(site.name, site.X, site.y) for site in sites(n=60)]
    assert "shape" not in {finding.code for finding in cg.check(few, public=made)}


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"epsilon": 1e-3}, "too small to make anything of"),
        ({"epsilon": 0}, "epsilon"),
        ({"delta": 1}, "delta"),
        ({"rows": 0}, "rows"),
        ({"dropouts": 2}, "dropouts"),
        ({"columns": {"nothing": (0, 1)}}, "no column 'nothing'"),
        ({"model": "forest"}, "model"),
    ],
)
def test_bad_settings_are_errors_before_anything_leaves(change: dict[str, Any], words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        cg.public_together(sites(3, 20), **{"columns": COLUMNS, **change})


def test_a_budget_that_is_too_small_is_told_what_would_not_be() -> None:
    with pytest.raises(ConfigError) as refused:
        cg.Together(COLUMNS, epsilon=1e-3)
    told = re.search(r"noise of \+-[\d,]+ rows.*Spend at least ([\d.]+),", str(refused.value))
    assert told is not None
    cg.Together(COLUMNS, epsilon=float(told[1]))
    with pytest.raises(ConfigError, match="too small"):
        cg.Together(COLUMNS, epsilon=float(told[1]) * 0.9)


def test_a_budget_that_shows_no_pair_is_said_to() -> None:
    with pytest.warns(cg.DoubtfulResult, match=r"noise of \+-\d+ rows.*every column of the made-up rows is drawn"):
        cg.public_together(sites(3, 100), epsilon=0.05, rows=10, columns=COLUMNS)


def test_two_sites_are_too_few() -> None:
    with pytest.raises(ConfigError, match="at least 3 sites"):
        cg.public_together(sites(2, 20), columns=COLUMNS)


def test_sites_with_other_columns_or_categories_are_named() -> None:
    some = sites(3, 20)
    other = some[2].X.rename(columns={"age": "years"})
    with pytest.raises(SiteError, match=r"s2.*no column 'age'"):
        cg.public_together([*some[:2], cg.Site("s2", other, some[2].y)], columns=COLUMNS)
    kinds = [pd.CategoricalDtype(["F", "M"]), pd.CategoricalDtype(["F", "M"]), pd.CategoricalDtype(["M", "F"])]
    differ = [cg.Site(s.name, s.X.astype({"sex": kind}), s.y) for s, kind in zip(some, kinds, strict=True)]
    declared = {name: said for name, said in COLUMNS.items() if name != "sex"}
    with pytest.raises(SiteError, match=r"s2.*'sex' has other categories"):
        cg.public_together(differ, columns=declared)


def test_images_are_not_made_together() -> None:
    images = [cg.Site(f"s{i}", np.zeros((4, 8, 8)), [0, 1, 0, 1]) for i in range(3)]
    with pytest.raises(SiteError, match="tables only, not for rows of shape"):
        cg.public_together(images)


@pytest.mark.parametrize("kind", [list, pd.Series, lambda texts: np.array(texts, dtype=object)])
def test_texts_are_not_made_together(kind: Any) -> None:
    texts = [f"patient {number} came with pain" for number in range(8)]
    three = [cg.Site(f"s{i}", kind(texts), [0, 1] * 4) for i in range(3)]
    with pytest.raises(SiteError, match=r"tables only, not for texts\..*public set of the same kind"):
        cg.public_together(three)
    with pytest.raises(ConfigError, match="tables only, not for texts"):
        cg.run(cg.Together({"text": "category"}), sites=three)


def test_sites_that_bin_a_column_differently_are_named() -> None:
    def cut(site: cg.Site, ends: list[int]) -> cg.Site:
        bins = pd.cut(site.X["age"], ends).astype(str).astype("category")
        return cg.Site(site.name, site.X.assign(age=bins), site.y)

    some, declared = sites(3, 200), {name: said for name, said in COLUMNS.items() if name != "age"}
    binned = [cut(some[0], [0, 40, 90]), cut(some[1], [0, 40, 90]), cut(some[2], [0, 50, 90])]
    with pytest.raises(SiteError, match=r"s2.*cannot count with site 's0'.*'age' has other categories"):
        cg.public_together(binned, columns=declared)
    other = cg.Site("s2", some[2].X.assign(age=some[2].X["age"] + 0.5), some[2].y)
    with pytest.raises(SiteError, match=r"s2.*'age' is real here and integer there"):
        cg.public_together([*some[:2], other], columns=declared)


@pytest.mark.parametrize("relation", ["add_remove", "replace"])
def test_one_record_changes_the_counts_by_what_the_step_declares(relation: str) -> None:
    X, y = rows(50)
    columns = [grid_of(column) for column in read_columns(COLUMNS, X.iloc[:0])]
    groups = [*(np.arange(grid.cells) for grid in columns), np.arange(2)]
    marginals = [[0], [1], [4], [0, 1], [2, 3], [1, 4]]
    cells = sum(int(np.prod([len(groups[c]) for c in marginal])) for marginal in marginals)

    def counted(keep: np.ndarray) -> np.ndarray:
        site = ActiveSite(cg.Site("a", X.iloc[keep], y[keep]), np.array(["ill", "well"]), None, 0, simulation=True)
        plain = [grid.to_plain() for grid in columns]
        return count(site, plain, [each.tolist() for each in groups], marginals, cells).counts

    everybody = np.arange(50)
    changed = everybody[1:] if relation == "add_remove" else np.r_[everybody[1:], 1]
    declared = histograms.sensitivity({"marginals": marginals, "relation": relation})
    assert declared is not None
    assert declared.l2 == pytest.approx(np.sqrt(6 if relation == "add_remove" else 12))
    worst = np.linalg.norm(counted(everybody) - counted(changed))
    assert worst <= declared.l2
    assert worst > 0.5 * declared.l2


def test_classes_that_were_counted_as_one_share_what_is_said_of_them() -> None:
    """Little data: the rarest of twelve classes are one group of cells."""
    rng = np.random.default_rng(0)
    y = rng.choice(12, 3000, p=[0.14] * 6 + [0.16 / 6] * 6)
    X = pd.DataFrame({f"x{j}": np.clip(y * (j % 3) + rng.normal(0, 3, 3000), -12, 40) for j in range(6)})
    sites = [cg.Site(f"s{i}", X[i::5], y[i::5], learner=DecisionTreeClassifier(max_depth=3)) for i in range(5)]
    ranges = dict.fromkeys(X, (-12.0, 40.0))
    made = cg.public_together(sites, epsilon=0.5, rows=200, columns=ranges, progress=False)
    assert made.opinion is not None
    assert list(made.opinion.columns) == [str(each) for each in range(12)]
    np.testing.assert_allclose(made.opinion.sum(axis=1), 1)
    shares = made.opinion.to_numpy()
    ratios = shares[:, :, None] / shares[:, None, :]
    always = np.ptp(ratios, axis=0) < 1e-9 * ratios.max(axis=0)
    together = always.sum(axis=1)
    assert sorted(together)[-4:] == [4] * 4  # twelve classes in nine groups: the four rarest are one of them
    assert sorted(together)[:8] == [1] * 8
    assert np.flatnonzero(together == 4).min() > 5
