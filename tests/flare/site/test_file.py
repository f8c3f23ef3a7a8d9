from __future__ import annotations

import re
import sqlite3
import stat
import sys
import tomllib
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from sklearn.pipeline import Pipeline

from collegium.errors import ConfigError, MissingExtra
from collegium.flare.kits.identity import make_agent_folder, read_keys
from collegium.flare.site.file import SiteBudget, SiteData, SiteFile, SiteNotify, SitePolicy, SitePublic, SiteRuns
from collegium.flare.site.setup import load_public, load_site, site_keyring, site_policy
from collegium.flare.site.template import TEMPLATE
from collegium.privacy.learners.base import PrivateLearner
from collegium.protocols.keys import SiteKeys, new_secret
from collegium.site.policy import Policy

TOML = """
name = "north"
[data]
source = "rows.csv"
target = "ill"
held_out = 0.25
[learner]
name = "decision_tree"
max_depth = 3
"""


def rows(n: int = 80) -> pd.DataFrame:
    rng = np.random.default_rng(0)
    frame = pd.DataFrame({"age": rng.normal(60, 9, n), "crp": rng.gamma(2.0, 5.0, n)})
    frame["ill"] = np.where(frame["crp"] > 9, "yes", "no")
    return frame


@pytest.fixture
def kit(tmp_path: Path) -> Path:
    rows().to_csv(tmp_path / "rows.csv", index=False)
    (tmp_path / "site.toml").write_text(TOML)
    return tmp_path


def write(kit: Path, text: str) -> Path:
    (kit / "site.toml").write_text(text)
    return kit


def test_the_learner_may_be_a_pipeline(kit: Path) -> None:
    text = TOML[: TOML.index("[learner]")].replace("[data]", 'learner = ["scaler", "svm"]\n[data]')
    learner = load_site(write(kit, text)).site.learner
    assert [type(step).__name__ for _, step in learner.steps] == ["StandardScaler", "SVC"]


def with_data(kit: Path, data: str) -> Path:
    return write(kit, f'name = "north"\n[data]\n{data}\n[learner]\nname = "decision_tree"\n')


def refused(kit: Path, *parts: str) -> str:
    with pytest.raises(ConfigError) as caught:
        load_site(kit)
    for part in parts:
        assert part in str(caught.value), str(caught.value)
    return str(caught.value)


def test_a_site_file_becomes_a_site_with_held_out_rows(kit):
    setup = load_site(kit)
    assert setup.site.name == "north"
    assert len(setup.site) == 60
    assert len(setup.held_out[1]) == 20
    assert list(setup.site.X.columns) == ["age", "crp"]
    assert setup.site.learner.max_depth == 3
    assert setup.site.policy == Policy()
    assert setup.file.policy.approval == "plan"
    both = pd.concat([setup.site.X, setup.held_out[0]]).sort_values("age", ignore_index=True)
    pd.testing.assert_frame_equal(both, rows()[["age", "crp"]].sort_values("age", ignore_index=True))


def test_the_same_rows_are_held_out_at_every_start_and_others_at_another_site(kit):
    first, again = load_site(kit), load_site(kit)
    pd.testing.assert_frame_equal(first.held_out[0], again.held_out[0])
    other = load_site(write(kit, TOML.replace("north", "south")))
    assert not first.held_out[0].equals(other.held_out[0])


@pytest.mark.parametrize("suffix", ["csv", "parquet", "npz"])
def test_every_kind_of_file_gives_the_same_rows(kit, suffix):
    frame = rows()
    if suffix == "csv":
        frame.to_csv(kit / "data.csv", index=False)
    elif suffix == "parquet":
        frame.to_parquet(kit / "data.parquet")
    else:
        np.savez(kit / "data.npz", X=frame[["age", "crp"]].to_numpy(), ill=frame["ill"].to_numpy().astype(str))
    site = load_site(with_data(kit, f'source = "data.{suffix}"\ntarget = "ill"')).site
    assert np.allclose(np.asarray(site.X), frame[["age", "crp"]])
    assert site.y.tolist() == frame["ill"].tolist()


def test_columns_select_and_reorder(kit):
    assert list(load_site(with_data(kit, 'source = "rows.csv"\ntarget = "ill"\ncolumns = ["crp"]')).site.X) == ["crp"]
    swapped = load_site(with_data(kit, 'source = "rows.csv"\ntarget = "ill"\ncolumns = ["crp", "age"]'))
    assert list(swapped.site.X) == ["crp", "age"]


def test_a_site_with_one_class_may_take_part(kit):
    rows().query("ill == 'no'").to_csv(kit / "rows.csv", index=False)
    assert set(load_site(kit).site.y) == {"no"}


def test_unlabeled_rows_lose_the_target_where_they_have_it(kit):
    rows(10).to_csv(kit / "more.csv", index=False)
    site = load_site(with_data(kit, 'source = "rows.csv"\ntarget = "ill"\nunlabeled = "more.csv"')).site
    assert list(site.unlabeled.columns) == ["age", "crp"]
    assert len(site.unlabeled) == 10


def test_the_own_copy_of_the_public_set_holds_features_only(kit):
    rows(12).assign(note=1).to_csv(kit / "public.csv", index=False)
    file = load_site(write(kit, TOML + '[public]\npath = "public.csv"\ntarget = "note"\n')).file
    assert list(load_public(kit, file).columns) == ["age", "crp"]
    assert load_public(kit, load_site(write(kit, TOML)).file) is None


def test_budget_policy_and_preparation_reach_the_site(kit):
    text = TOML.replace("decision_tree", "knn").replace("max_depth = 3", "n_neighbors = 3")
    text += '[policy]\nunprotected = ["Count"]\nrequires = "dp"\nmax_release_bytes = 5\n[budget]\nepsilon = 4\n'
    site = load_site(write(kit, text)).site
    assert isinstance(site.learner, Pipeline)
    assert site.policy == Policy(unprotected=("Count",), requires="dp", max_release_bytes=5)
    assert site_policy(load_site(kit).file) == site.policy
    assert (site.budget.epsilon, site.budget.ledger) == (4, kit / "agent" / "ledger.db")
    plain = load_site(write(kit, text.replace('name = "north"', 'name = "north"\nprepare = "none"')))
    assert not isinstance(plain.site.learner, Pipeline)


def test_what_stands_before_a_private_learner_is_chosen_by_public_rows(kit):
    text = TOML.replace('name = "decision_tree"\nmax_depth = 3', 'name = "private_voting"\nepsilon = 1.0')
    setup = load_site(write(kit, text))
    public = rows(12)[["age", "crp"]].assign(ward="icu")
    site = setup.with_public(public)
    assert isinstance(site.learner, PrivateLearner)
    assert repr(site.learner) != repr(setup.site.learner)
    assert site.public is not None


@pytest.mark.parametrize(
    ("old", "new", "parts"),
    [
        ('name = "north"', "", ["name", "required"]),
        ('name = "north"', 'name = "../north"', ["name"]),
        ("[data]", "[daten]", ["daten", "'data'"]),
        ("held_out = 0.25", "held_out = 1", ["data.held_out"]),
        ("held_out = 0.25", "heldout = 0.25", ["data.heldout", "'held_out'"]),
        ("held_out = 0.25", 'columns = ["ill"]', ["data.columns", "labels"]),
        ("held_out = 0.25", 'columns = ["age", "age"]', ["data.columns", "twice"]),
        ("held_out = 0.25", "columns = []", ["data.columns"]),
        ("held_out = 0.25", 'columns = ["agee"]', ["data.columns", "'agee'", "'age'"]),
        ("held_out = 0.25", 'query = "SELECT 1"', ["data.query", "database"]),
        ("held_out = 0.25", 'entry_point = "x"', ["data", "source and entry_point"]),
        ('source = "rows.csv"', "", ["data", "got none"]),
        ('source = "rows.csv"', 'source = "row.csv"', ["There is no file", "'rows.csv'"]),
        ('source = "rows.csv"', 'source = "rows.xlsx"', ["data.source", ".parquet"]),
        ('target = "ill"', 'target = "sick"', ["'sick'"]),
        ('target = "ill"', "", ["which column"]),
        ('"decision_tree"', '"decision_trea"', ["learner.name", "'decision_tree'"]),
        ("max_depth = 3", "max_deph = 3", ["learner.max_deph", "'max_depth'"]),
        ("max_depth = 3", '[policy]\nalgorithms = ["fedkt", "fedctt"]', ["policy.algorithms", "'fedct'"]),
        ("max_depth = 3", '[policy]\nunprotectd = ["*"]', ["policy.unprotectd", "'unprotected'"]),
        ("max_depth = 3", '[policy]\napproval = "never"', ["policy.approval", "'plan'"]),
        ("max_depth = 3", '[policy]\nrequires = "privacy"', ["policy.requires"]),
        ("max_depth = 3", "[policy]\nmax_message_bytes = 1", ["policy.max_message_bytes"]),
        ("max_depth = 3", '[policy]\npublic_sha256 = "abc"', ["policy.public_sha256", "64"]),
        ("max_depth = 3", "[budget]\nepsilon = 0", ["budget.epsilon"]),
        ("max_depth = 3", "[budget]\nepsilon = inf", ["budget.epsilon"]),
        ("max_depth = 3", '[budget]\nepsilon = 1\nledger = "x.db"', ["budget.ledger"]),
        ("max_depth = 3", '[identities]\nsouth = "abc"', ["identities.south", "64"]),
    ],
)
def test_mistakes_are_named_by_their_path_with_the_remedy(kit, old, new, parts):
    assert old in TOML
    refused(write(kit, TOML.replace(old, new)), str(kit / "site.toml"), *parts)


def test_files_that_are_no_site_files(kit):
    with pytest.raises(ConfigError, match="no site file"):
        load_site(kit / "elsewhere")
    with pytest.raises(ConfigError, match="not valid TOML"):
        load_site(write(kit, "name = ["))


def test_rows_that_are_empty_or_all_held_out(kit):
    (kit / "rows.csv").write_text("age,crp,ill\n")
    refused(kit, "no rows")
    (kit / "rows.csv").write_text("age,crp,ill\n1,2,yes\n")
    refused(kit, "data.held_out", "would be left to learn from")


def test_npz_rows_have_no_columns_to_choose(kit):
    np.savez(kit / "data.npz", X=np.zeros((4, 2)), y=np.array([0, 1, 0, 1]))
    refused(with_data(kit, 'source = "data.npz"\ncolumns = ["a"]'), "data.columns", "no named columns")


# Databases


@pytest.fixture
def database(kit: Path) -> Path:
    with sqlite3.connect(kit / "wards.db") as db:
        rows().to_sql("cases", db, index=False)
    return kit


SQL = 'database = "sqlite:///wards.db"\nquery = "SELECT age, crp, ill FROM cases"\ntarget = "ill"'


def test_a_query_gives_the_rows(database):
    site = load_site(with_data(database, SQL)).site
    assert len(site) == 80
    found = site.X.assign(ill=site.y).sort_values("age", ignore_index=True)
    pd.testing.assert_frame_equal(found, rows().sort_values("age", ignore_index=True), check_dtype=False)


def test_the_order_in_which_a_database_answers_does_not_matter(database):
    held = SQL + "\nheld_out = 0.25"
    up = load_site(with_data(database, held.replace("FROM cases", "FROM cases ORDER BY age")))
    down = load_site(with_data(database, held.replace("FROM cases", "FROM cases ORDER BY age DESC")))
    pd.testing.assert_frame_equal(up.site.X, down.site.X)
    pd.testing.assert_frame_equal(up.held_out[0], down.held_out[0])


def test_a_query_means_what_it_says(database):
    odd = SQL.replace("FROM cases", "FROM cases WHERE ill LIKE '%e%' AND ill <> ':age'")
    assert len(load_site(with_data(database, odd)).site) == int((rows()["ill"] == "yes").sum())


def test_an_address_from_the_environment(database, monkeypatch):
    text = SQL.replace("sqlite:///wards.db", "${HOSPITAL_DB}")
    refused(with_data(database, text), "data.database", "HOSPITAL_DB", "not set")
    monkeypatch.setenv("HOSPITAL_DB", "sqlite:///wards.db")
    assert len(load_site(with_data(database, text)).site) == 80


@pytest.mark.parametrize(
    ("old", "new", "parts"),
    [
        ("sqlite:///wards.db", "nowhere", ["data.database", "not a valid address"]),
        ("sqlite:///wards.db", "sqlite:///none.db", ["data.database", "none.db not found"]),
        ("sqlite:///wards.db", "sqlight:///wards.db", ["data.database", "sqlight"]),
        ("sqlite:///wards.db", "postgresql+pg8000://u:secret@h/d", ["data.database", "pg8000", "install"]),
        ("FROM cases", "FROM cases WHERE 1 = 0", ["data.query", "no rows"]),
        ("age, crp, ill", "age, age, ill", ["data.query", "'age'"]),
        ("age, crp, ill", "age, crp", ["data.query", "'ill'"]),
        ("age, crp, ill", "ill", ["no columns besides the target"]),
        ("FROM cases", "FROM casses", ["data.query"]),
        ('target = "ill"', "", ["data.target", "needed"]),
        ('query = "SELECT age, crp, ill FROM cases"', "", ["data.query", "needed"]),
    ],
)
def test_a_database_that_does_not_give_rows(database, old, new, parts):
    refused(with_data(database, SQL.replace(old, new)), *parts)


def test_what_a_database_says_is_not_repeated(database):
    quoting = "SELECT age, crp, ill FROM cases WHERE name = Miller"
    said = refused(with_data(database, SQL.replace("SELECT age, crp, ill FROM cases", quoting)), "OperationalError")
    assert "Miller" not in said
    said = refused(with_data(database, SQL.replace("sqlite:///wards.db", "no://reader:hunter2@[host/d")))
    assert "hunter2" not in said


def test_without_sqlalchemy_the_extra_is_named(database, monkeypatch):
    monkeypatch.setitem(sys.modules, "sqlalchemy", None)
    with pytest.raises(MissingExtra, match=r"collegium\[sql\]"):
        load_site(with_data(database, SQL))


# Functions that are installed at the site

FUNCTIONS = """
import numpy as np

X = np.arange(40.0).reshape(20, 2)
y = np.arange(20) % 2

def two(): return X, y
def three(): return X, y, X[:3]
def only_unlabeled(): return None, None, X
def nothing(): return X[:0], y[:0]
def one(): return X
def broken(): raise ValueError("patient Miller has no row")
"""


@pytest.fixture
def installed(kit: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A package with entry points, laid out as pip installs it."""
    lib = tmp_path / "lib"
    meta = lib / "hospital_rows-1.0.dist-info"
    meta.mkdir(parents=True)
    (lib / "hospital_rows.py").write_text(FUNCTIONS)
    (meta / "METADATA").write_text("Metadata-Version: 2.1\nName: hospital-rows\nVersion: 1.0\n")
    names = ("two", "three", "only_unlabeled", "nothing", "one", "broken", "missing")
    points = "".join(f"{name} = hospital_rows:{name}\n" for name in names)
    (meta / "entry_points.txt").write_text(f"[collegium.site_data]\n{points}")
    monkeypatch.syspath_prepend(str(lib))
    monkeypatch.delitem(sys.modules, "hospital_rows", raising=False)
    return kit


def test_an_installed_function_gives_the_rows(installed):
    assert len(load_site(with_data(installed, 'entry_point = "two"')).site) == 20
    assert len(load_site(with_data(installed, 'entry_point = "three"')).site.unlabeled) == 3
    assert len(load_site(with_data(installed, 'entry_point = "only_unlabeled"')).site) == 0


@pytest.mark.parametrize(
    ("data", "parts"),
    [
        ('entry_point = "tow"', ["data.entry_point", "'two'", "Installed: broken"]),
        ('entry_point = "nothing"', ["data.entry_point", "no rows"]),
        ('entry_point = "one"', ["data.entry_point", "(X, y)"]),
        ('entry_point = "missing"', ["data.entry_point", "AttributeError"]),
        ('entry_point = "two"\ntarget = "y"', ["data.target"]),
        ('entry_point = "three"\nunlabeled = "rows.csv"', ["data.unlabeled"]),
    ],
)
def test_functions_that_do_not_give_rows(installed, data, parts):
    refused(with_data(installed, data), *parts)


def test_what_a_function_says_is_not_repeated(installed):
    assert "Miller" not in refused(with_data(installed, 'entry_point = "broken"'), "ValueError")


# Identities


def test_the_agents_folder_is_made_once_and_is_private(kit):
    folder = make_agent_folder(kit)
    before = {name: (folder / name).read_bytes() for name in ("identity.key", "instance")}
    make_agent_folder(kit)
    assert {name: (folder / name).read_bytes() for name in before} == before
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    assert {stat.S_IMODE((folder / name).stat().st_mode) for name in before} == {0o600}
    assert sorted(path.name for path in folder.iterdir()) == ["identity.key", "instance"]


def test_the_keyring_knows_the_site_and_the_others(kit):
    folder = make_agent_folder(kit)
    south = SiteKeys("south", new_secret())
    file = SiteFile.from_toml(write(kit, TOML + f'[identities]\nsouth = "{south.identity}"\n') / "site.toml")
    ring = site_keyring(folder, file)
    assert ring.own == read_keys(folder, "north")
    assert ring.identities == {"north": ring.own.identity, "south": south.identity}
    hello = south.join("run").hello()
    member = ring.own.join("run")
    member.meet({"south": hello}, ring.identities)


def test_keys_that_are_missing_open_or_damaged(kit):
    with pytest.raises(ConfigError, match="collegium site init"):
        read_keys(kit / "agent", "north")
    folder = make_agent_folder(kit)
    (folder / "identity.key").chmod(0o644)
    with pytest.raises(ConfigError, match="chmod 600"):
        read_keys(folder, "north")
    (folder / "identity.key").chmod(0o600)
    other = write(kit, TOML + f'[identities]\nnorth = "{"0" * 64}"\n') / "site.toml"
    with pytest.raises(ConfigError, match=r"identities\.north"):
        site_keyring(folder, SiteFile.from_toml(other))
    (folder / "identity.key").write_bytes(b"short")
    with pytest.raises(Exception, match="damaged"):
        read_keys(folder, "north")


def test_the_template_is_a_site_file_and_shows_every_setting(kit):
    text = TEMPLATE.format(name="north")
    SiteFile.from_toml(write(kit, text) / "site.toml")

    shown = {line.lstrip("# ").partition(" =")[0] for line in text.splitlines() if " = " in line}
    for section in (SiteData, SitePolicy, SiteBudget, SitePublic, SiteRuns, SiteNotify):
        assert set(section.model_fields) <= shown, set(section.model_fields) - shown
    assert tomllib.loads(text)["policy"]["approval"] == "plan"


def test_the_guide_shows_a_site_file_and_every_setting(kit):
    text = (Path(__file__).resolve().parents[3] / "docs" / "federation" / "site.md").read_text()
    (block,) = re.findall(r"```toml\n(.*?)```", text, re.DOTALL)
    SiteFile.from_toml(write(kit, block) / "site.toml")
    for section in (SiteFile, SiteData, SitePolicy, SiteBudget, SitePublic, SiteRuns, SiteNotify):
        for name in section.model_fields:
            assert re.search(rf"\[{name}\]|`{name}`|^{name} = ", text, re.MULTILINE), name


def test_a_file_with_seeded_noise_is_refused_and_says_what_to_remove(kit):
    write(kit, TOML.replace('"decision_tree"\nmax_depth = 3', '"private_voting"\nrandom_state = 0'))
    with pytest.raises(ConfigError, match="Remove random_state"):
        load_site(kit)
