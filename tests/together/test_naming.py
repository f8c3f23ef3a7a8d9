"""Which values of text columns are found, and with what probability a value of one record is."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import pytest
from tests.together.tables import rows, sites

import collegium as cg
from collegium.data.files import read_table
from collegium.errors import ConfigError, SiteError
from collegium.privacy import accountant
from collegium.privacy.budget import read_charges
from collegium.privacy.composition import gaussian_epsilon
from collegium.privacy.mechanisms.blinding import Blinding
from collegium.secure.secret_counts import NoisySum
from collegium.together import naming
from collegium.together.columns import read_column
from collegium.together.grids import grid_of
from collegium.together.making import with_names

KEY = "ab" * 32


def frame(**columns: list[Any]) -> pd.DataFrame:
    return pd.DataFrame({name: pd.Series(values, dtype=object) for name, values in columns.items()})


def marks(heavy: int, seed: int = 0) -> naming.Marks:
    """What is seen of so many frequent values in nothing but noise."""
    rng = np.random.default_rng(seed)
    counts = rng.normal(0, 1, (naming.TABLES, naming.BUCKETS))
    for number in range(heavy):
        buckets = naming.hashed(KEY, "word", f'"{number}"')[: naming.TABLES] % naming.BUCKETS
        counts[np.arange(naming.TABLES), buckets] += 20
    return naming.marks_of(counts.ravel(), 1.0)


@pytest.mark.parametrize("chance", [1e-3, 1e-6])
def test_random_buckets_stand_out_as_rarely_as_they_may(chance: float) -> None:
    seen = marks(60)
    bar = naming.bar_of(seen, chance)
    assert bar is not None
    rng = np.random.default_rng(1)
    tries = 400_000
    scores = np.zeros(tries, dtype=np.int64)
    for table in seen:
        scores += np.minimum(table, bar.cap)[rng.integers(0, naming.BUCKETS, tries)]
    assert (scores >= bar.least).mean() <= 1.3 * chance + 5 / tries
    frequent = [naming.hashed(KEY, "word", f'"{number}"')[: naming.TABLES] % naming.BUCKETS for number in range(60)]
    assert all(bar.passes(seen, each) for each in frequent)


def test_where_too_many_values_are_frequent_a_hash_cannot_tell_them_apart() -> None:
    assert naming.bar_of(marks(2000), 1e-9) is None
    with pytest.raises(ConfigError, match="too many that many records have"):
        naming.places_for(marks(2000), None)
    with pytest.raises(ConfigError, match="marks"):
        naming.bar_of(np.zeros((2, 2), dtype=np.int8), 0.1)


def test_the_chance_covers_all_values_of_a_record_and_the_record_itself() -> None:
    failure, multiplier = 1e-6, 9.0
    chance = naming.chance_of(failure, multiplier, 8)
    epsilon = gaussian_epsilon(multiplier, failure / 2)
    assert 8 * chance * np.exp(epsilon) + failure / 2 == pytest.approx(failure)


def test_a_row_counts_once_in_a_bucket_however_many_of_its_values_are_there() -> None:
    counts = naming.count_values(frame(word=["a", "b", None]), ["word"], KEY).counts.reshape(naming.TABLES, -1)
    assert (counts.sum(axis=1) == 3).all()
    wide = frame(**{f"column {number}": ["x"] for number in range(400)})
    one = naming.count_values(wide, list(wide), KEY).counts
    assert one.max() == 1
    assert np.linalg.norm(one) <= np.sqrt(400 * naming.TABLES)


ODD = [-0.0, 0, False, True, 1, 1.0, 1.5, "1", "true", 2**53, 2.0**60, 2**60, 2**60 + 1, 10**400, np.inf, None, np.nan]
ODD += ["x", np.int64(1), np.bool_(True), np.float32(0.5), pd.NA, pd.NaT, "\ud800"]


@pytest.mark.parametrize("others", [[0.0, 1.0], [1, "x"], [True, False], [0.5, 2**60], ["\ud800", 2.0**53]])
@pytest.mark.parametrize("one", ODD, ids=repr)
def test_a_record_changes_no_counts_but_its_own(one: Any, others: list[Any]) -> None:
    """Nor how the values of others are written: equal ones of another type are the same value, or another one."""
    table = frame(a=pd.Series([one, *others * 9], dtype=object))
    for own in (table, table[::-1]):
        with_it, without = (naming.count_values(each, ["a"], KEY).counts for each in (own, own.drop(index=0)))
        assert np.linalg.norm(with_it - without) <= np.sqrt(naming.TABLES)
        naming.spell(own, ["a"], KEY, everything(), 0.5, 64)


@pytest.mark.parametrize("record", ["x", "", "1,5", "True", "9" * 30, "9223372036854775809"])
@pytest.mark.parametrize(
    "cells",
    [
        "1 NA 2",
        "1 9223372036854775809 NA",
        "1 INF -iNfinity",
        "1 2 3",
        "01 1.0 7",
        "1.5 2.25 .5",
        "1,5 2,25 3",
        "True False True",
        "1e3 12E4 7",
    ],
)
def test_a_record_of_a_file_changes_no_counts_but_its_own(tmp_path, cells: str, record: str) -> None:
    """Though it may change what type the whole column is read as."""
    text, X = "code;state\n" + "".join(f"{cell};{state}\n" for cell in cells.split() * 100 for state in "ab"), []
    for name, more in (("without", ""), ("with", f"{record};a\n")):
        (tmp_path / f"{name}.csv").write_text(text + more, encoding="utf-8")
        X.append(pd.DataFrame(read_table(tmp_path / f"{name}.csv", "state")[0]))
    without, with_it = (naming.count_values(each, ["code"], KEY).counts for each in X)
    assert np.linalg.norm(with_it - without) <= np.sqrt(naming.TABLES)
    codes = [1, 2, 3] if cells == "1 2 3" else [True, False] if "T" in cells else [1, 1.5, 0.5, 7]
    for said in (codes, (0, 4)):
        grid = grid_of(read_column("code", said, np.dtype(object)))
        counts = [np.bincount(grid.codes(each["code"])[0] + 1, minlength=grid.cells + 1)[1:] for each in X]
        assert np.abs(counts[1] - counts[0]).sum() <= 1
        assert counts[0].sum() > 0


def test_a_site_that_spells_what_is_no_value_ends_nothing() -> None:
    total = NoisySum(np.zeros(naming.CELLS), 4, 1.0)
    columns = [read_column("word", "category")]
    (named,) = with_names(columns, ["word"], [(0, "[1]"), (0, '"a"'), (0, "{"), (0, "1"), (0, "true")], KEY, total)
    assert set(named.categories) == {"a", "1", "True"}  # all of one type, as a file has them
    assert not named.missing


def everything() -> naming.Marks:
    """Marks by which nearly every value stands out."""
    full = np.full((naming.TABLES, naming.BUCKETS), 100, dtype=np.int8)
    full[:, :2] = -128
    return full


def spelled(*tables: pd.DataFrame, places: int = 64) -> np.ndarray:
    """What sites with these tables spell together."""
    total = np.zeros(places * (1 + naming.WIDTH), dtype=np.uint64)
    for number, table in enumerate(tables):
        said = naming.spell(table, list(table), KEY, everything(), 0.9999, places)
        assert len(said.words) == table.nunique(dropna=False).sum()
        total += Blinding().release(said.words, said.places, said.size, number)
    return total.reshape(places, -1)


def test_what_is_spelled_can_be_read_whoever_spells_it() -> None:
    first, second = frame(word=["left", "right", None, True]), frame(word=["left", "élan", 7, 0.5])
    found = naming.read_spelled(spelled(first, second), ["word"], KEY)
    assert {text for _, text in found} == {'"left"', '"right"', '"élan"', "null", "true", "7", "0.5"}
    many = frame(word=[f"value {number}" for number in range(60)])
    assert len(naming.read_spelled(spelled(many, many, many, places=128), ["word"], KEY)) == 60


def test_the_sum_does_not_tell_how_many_sites_have_a_value() -> None:
    one, nobody = frame(word=["left"]), frame(word=["left"]).iloc[:0]

    def multiples(*tables: pd.DataFrame) -> np.ndarray:
        said = [naming.spell(table, ["word"], KEY, everything(), 0.9999, 16) for table in tables]
        shares = [[Blinding().release(s.words, s.places, 16)[:: 1 + naming.WIDTH] for s in said] for _ in range(2000)]
        summed = np.array(shares, dtype=np.uint64).sum(axis=1, dtype=np.uint64).max(axis=1)
        assert (summed > 0).all()
        return summed

    alone, both = multiples(one, nobody), multiples(one, one)
    for bits in (np.uint64(1), np.uint64(2), np.uint64(1 << 63)):
        assert ((alone & bits) > 0).mean() == pytest.approx(((both & bits) > 0).mean(), abs=0.06)


def test_what_no_value_is_cannot_be_read() -> None:
    noise = np.random.default_rng(0).integers(0, 2**63, (16, 1 + naming.WIDTH)).astype(np.uint64)
    assert naming.read_spelled(noise, ["word"], KEY) == []
    assert naming.read_spelled(np.zeros_like(noise), ["word"], KEY) == []


@pytest.fixture(scope="module")
def mixed() -> list[cg.Site]:
    """Tables of every type, with one value that a single record has."""
    made = []
    for site in sites(5, 1500):
        X = site.X.assign(
            nurse=pd.Categorical(np.where(site.X["age"] > 50, "Ann", "Bob"), ["Ann", "Bob", "Cat"]),
            smokes=site.X["age"] % 3 == 0,
            visits=pd.array(np.where(site.X["age"] % 4 == 0, None, site.X["age"] % 7), dtype="Int64"),
        )
        made.append(cg.Site(site.name, X, site.y))
    made[0].X.loc[0, "sex"] = "the only one"
    return made


def test_nothing_has_to_be_declared(mixed: list[cg.Site]) -> None:
    made = cg.public_together(mixed, epsilon=3, delta=1e-5, rows=2000, columns=None, seed=0)
    own = mixed[0].X
    assert list(made.X.columns) == list(own.columns)
    assert (made.X.dtypes == own.dtypes).all()
    assert set(made.X["sex"].dropna()) == {"F", "M"}
    assert set(made.X["ward"].dropna()) == {"A", "B", "C"}
    assert made.X["ward"].isna().mean() == pytest.approx(0.1, abs=0.06)
    assert made.X["visits"].isna().mean() == pytest.approx(0.25, abs=0.08)
    assert (made.X["nurse"] == "Cat").mean() < 0.1
    assert made.claim.epsilon <= 3
    assert made.claim.epsilon == pytest.approx(3)
    assert any("the key of their hash at random" in text for text in made.claim.assumptions)
    assert "the only one" not in made.X.to_csv()
    paid = made.run.releases[made.run.releases["party"] == "s0"]["privacy"].dropna()
    charges = [charge for text in paid for charge in read_charges(text)[0] if charge.events]
    assert accountant.claim(charges).epsilon == pytest.approx(3)
    assert accountant.claim(charges).epsilon <= 3
    assert made.run.costs.groupby("party")["bytes_up"].sum().max() < 100_000
    assert not made.run.privacy["kind"].eq("unprotected").any()


def test_values_are_found_by_sites_that_require_privacy_and_when_one_drops_out() -> None:
    few = sites(6, 600, policy=cg.Policy(requires="dp", unprotected=()))
    few[5] = cg.Site(
        "s5", few[5].X, few[5].y, policy=cg.Policy(steps=("acquaintance.*", "together.values", "secret_*"))
    )
    with pytest.warns(cg.CollegiumWarning, match="s5"):
        made = cg.public_together(few, epsilon=3, rows=100, columns={"age": (18, 90), "dose": (0.0, 50.0)})
    assert set(made.X["sex"].dropna()) == {"F", "M"}
    assert "s5" in set(made.run.refusals["party"])


def test_a_column_without_frequent_values_is_empty_and_that_is_said() -> None:
    rng = np.random.default_rng(0)
    rare = [cg.Site(s.name, s.X.assign(code=rng.integers(0, 300, len(s.X)).astype(str)), s.y) for s in sites(5, 800)]
    with pytest.warns(cg.DoubtfulResult, match="No value of 'code' stands out"):
        made = cg.public_together(rare, epsilon=2, rows=200)
    assert made.X["code"].isna().all()
    assert made.X["code"].dtype == rare[0].X["code"].dtype
    assert set(made.X["sex"].dropna()) == {"F", "M"}


def test_too_little_data_names_nothing_and_says_what_to_declare() -> None:
    with pytest.raises(ConfigError, match=r"No value of 'sex', 'ward' stands out.*noise of \+-.*Declare"):
        cg.public_together(sites(3, 20), columns={"age": (18, 90), "dose": (0.0, 50.0)})


def test_texts_and_names_of_rows_are_no_categories() -> None:
    some = sites(3, 200)
    notes = [cg.Site(s.name, s.X.assign(note=[f"{s.name} {n}" for n in range(200)]), s.y) for s in some]
    with pytest.raises(SiteError, match=r"s0.*'note' has too many categories: most rows have one of their own"):
        cg.public_together(notes)
    dates = [cg.Site(s.name, s.X.assign(at=pd.Series([pd.Timestamp(0)] * 200, dtype=object)), s.y) for s in some]
    with pytest.raises(SiteError, match=r"'at' holds Timestamp: turn it into text"):
        cg.public_together(dates)


def test_an_attack_on_the_counts_of_values_stays_below_the_claim() -> None:
    from collegium.runs.making import making_of

    three = sites(3, 300)
    algorithm = making_of(
        three, epsilon=3.0, delta=1e-5, rows=50, columns={"age": (18, 90), "dose": (0.0, 50.0)}, dropouts=0.0,
        relation="add_remove", model="tree",
    )  # fmt: skip
    found = cg.audit(algorithm, three, canaries=100)
    assert found.claim is not None
    assert found.claim.epsilon == pytest.approx(3)
    assert not found.contradicts


def test_a_kind_is_enough_between_organisations() -> None:
    algorithm = cg.Together({"sex": "category", "age": "integer", "dose": "real"})
    steps = set(algorithm.all_steps())
    assert {"together.values", "together.names", "together.ranges"} <= steps
    assert algorithm.claim().epsilon <= 1
    assert algorithm.claim().delta == 1e-5
    fixed = algorithm.fixed(0)["together.names"]
    assert fixed["failure"] == pytest.approx(1e-6)
    declared = cg.Together({"sex": ["F", "M"], "age": (18, 90)})
    assert not {"together.values", "together.names", "together.ranges"} & set(declared.all_steps())


def test_sites_with_other_bins_are_named_before_anything_leaves() -> None:
    X, y = rows(900, 4)
    cuts = [[0, 30, 60, 100], [0, 30, 60, 100], [0, 40, 100]]
    words = [[f"from {low}" for low in each[:-1]] for each in cuts]
    bands = [pd.cut(X["age"].iloc[i::3], cuts[i], labels=words[i]) for i in range(3)]
    differ = [cg.Site(f"s{i}", X.iloc[i::3].assign(band=bands[i]), y[i::3]) for i in range(3)]
    with pytest.raises(SiteError, match=r"s2.*'band' has other categories"):
        cg.public_together(differ)
    intervals = [cg.Site(f"s{i}", X.iloc[i::3].assign(band=pd.cut(X["age"].iloc[i::3], 4)), y[i::3]) for i in range(3)]
    with pytest.raises(SiteError, match=r"'band': its categories must be text or numbers.*astype\(str\)"):
        cg.public_together(intervals)
