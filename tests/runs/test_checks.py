"""What a user does wrong is answered before anything is trained, with the site's name and a remedy."""

from __future__ import annotations

import sys

import numpy as np
import pandas as pd
import pytest
from scipy import sparse
from sklearn.ensemble import HistGradientBoostingClassifier
from sklearn.impute import SimpleImputer
from sklearn.linear_model import LinearRegression, LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.tree import DecisionTreeClassifier

import collegium as cg

RNG = np.random.default_rng(0)
X = RNG.normal(size=(30, 4))
Y = np.array(["a", "b", "c"] * 10)
U = RNG.normal(size=(20, 4))


class NeverTrained(DecisionTreeClassifier):
    """Fails the test if anything is trained."""

    def fit(self, X, y):
        raise AssertionError("something was trained")


def site(name: str = "ukb", X=X, y=Y, learner=None, **options) -> cg.Site:
    return cg.Site(name, X, y, learner=NeverTrained() if learner is None else learner, **options)


def refused(match: str, sites, algorithm=None, **options) -> None:
    settings = {"public": U} | options
    with pytest.raises(cg.ConfigError, match=match):
        cg.run(cg.FedCT(rounds=1) if algorithm is None else algorithm, sites=sites, **settings)


@pytest.mark.parametrize(
    ("algorithm", "package", "extra"),
    [
        (cg.FedCT(rounds=1, votes="secret"), "cryptography", "crypto"),
        (cg.XCLP(), "cryptography", "crypto"),
        (cg.XCLP(), "nacl", "crypto"),
        (cg.XCLP(hamming="bfv", bits=64), "tenseal", "bfv"),
        (cg.FedAvgXCLP(xclp=cg.XCLP(hamming="paillier")), "gmpy2", "crypto"),
    ],
)
def test_a_package_that_only_sites_import_is_named_before_the_run(algorithm, package, extra, monkeypatch):
    monkeypatch.setitem(sys.modules, package, None)
    refused(rf"{type(algorithm).__name__}, as it is set.*collegium\[{extra}\]", [site()], algorithm)


def test_votes_in_the_clear_need_no_package(monkeypatch):
    monkeypatch.setitem(sys.modules, "cryptography", None)
    sites = [site(name, learner=DecisionTreeClassifier()) for name in "ab"]
    assert len(cg.run(cg.FedCT(rounds=1), sites=sites, public=U).releases) == 2


@pytest.mark.parametrize("target", [RNG.normal(size=30), np.arange(30.0)])
def test_the_target_of_a_regression_is_refused_unless_its_classes_are_named(target):
    refused("'ukb'.*30 different numbers.*pandas.cut", [site(y=target), site("b", y=target)])
    sites = [site(name, y=target, learner=DecisionTreeClassifier()) for name in "ab"]
    run = cg.run(cg.FedCT(rounds=1), sites=sites, public=U, classes=np.unique(target))
    assert len(run.classes) == 30


def test_a_site_in_words_shows_no_rows():
    rows = np.full((3, 2), 4711.5)
    shown = repr(site("ukb", rows, ["rare disease"] * 3, unlabeled=rows))
    assert "ukb" in shown
    assert "4711" not in shown
    assert "rare" not in shown


def test_no_sites():
    refused("no sites", [])


def test_a_site_instead_of_a_list():
    refused("must be a list", site())


def test_something_else_instead_of_a_site():
    refused("must be a cg.Site", [site(), (X, Y)])


def test_one_site_is_allowed_and_warned_of():
    with pytest.warns(cg.CollegiumWarning, match="only one site"):
        run = cg.run(cg.FedCT(rounds=2), sites=[site(learner=DecisionTreeClassifier())], public=U)
    assert list(run.models) == ["ukb"]


def test_an_empty_site():
    refused("'empty'.*no samples", [site(), site("empty", X[:0], Y[:0])])


def test_two_sites_of_one_name():
    refused("Two sites are called 'ukb'", [site(), site()])


@pytest.mark.parametrize("name", ["", "a/b", "../x", None, "a\0b", "coordinator", "mean"])
def test_a_name_that_cannot_be_a_folder(name):
    with pytest.raises(cg.ConfigError, match="name"):
        site(name)


def test_rows_and_labels_that_do_not_fit():
    with pytest.raises(cg.SiteError, match=r"'ukb'.*30 rows.*29 labels"):
        site(y=Y[:29])


def test_features_of_one_row_only():
    with pytest.raises(cg.ConfigError, match="'ukb'"):
        site(X=X[:, 0])


@pytest.mark.parametrize("y", [np.where(Y == "a", None, Y), [np.nan] + [1.0] * 29, pd.Series(Y).where(Y != "a")])
def test_missing_labels(y):
    with pytest.raises(cg.ConfigError, match=r"'ukb'.*missing labels"):
        site(y=y)


def test_labels_of_mixed_types():
    with pytest.raises(cg.ConfigError, match="mixes"):
        site(y=np.array([1, "a"] * 15, dtype=object))


def test_labels_of_another_type_at_another_site():
    refused("'numbers'.*labels are numbers.*'ukb' are strings", [site(), site("numbers", y=np.arange(30) % 3)])


def test_other_features_at_another_site():
    refused(r"'narrow'.*shape \(3,\)", [site(), site("narrow", X[:, :3])])


def test_other_features_in_the_public_or_test_set():
    refused(r"public set.*shape \(3,\)", [site(), site("b")], public=U[:, :3])
    refused(r"test set.*shape \(2,\)", [site(), site("b")], test=(X[:, :2], Y))


def test_other_columns_or_kinds_of_table():
    frame = pd.DataFrame(X, columns=list("abcd"))
    other = frame.rename(columns={"c": "z"})
    refused("'other'.*'z'", [site(X=frame), site("other", other)], public=frame)
    refused("public set.*DataFrame", [site(X=frame), site("b", frame)], public=U)
    refused("'sparse'.*sparse", [site(), site("sparse", sparse.csr_array(X))])


def test_unknown_labels_in_the_test_set():
    refused("test set.*'zebra'", [site(), site("b")], test=(X, np.array(["zebra"] * 30)))
    refused("test set.*numbers", [site(), site("b")], test=(X, np.arange(30)))


def test_a_test_set_that_is_no_pair():
    refused("pair", [site(), site("b")], test=X)
    refused("30 rows and 29 labels", [site(), site("b")], test=(X, Y[:29]))


@pytest.mark.parametrize(
    ("learner", "match"),
    [
        (object(), "'ukb'.*no 'fit'"),
        (SimpleImputer(), "'ukb'.*no 'predict'"),
        (DecisionTreeClassifier, "'ukb'.*an instance"),
        (LinearRegression(), "'ukb'.*regressor"),
    ],
)
def test_a_learner_that_is_none(learner, match):
    refused(match, [site(learner=learner), site("b")])


def test_no_learner_at_all():
    refused("'ukb'.*no learner", [cg.Site("ukb", X, Y), site("b")])


@pytest.mark.parametrize(
    ("capability", "method"), [("embed", "embed"), ("weights", "initialize"), ("explain", "explain")]
)
def test_a_learner_that_cannot_do_what_the_method_needs(capability, method):
    class Picky(cg.FedCT):
        needs = {capability: "looks closely"}  # noqa: RUF012

    refused(f"Picky looks closely, but NeverTrained has no '{method}'", [site(), site("b")], Picky())


def test_no_public_set():
    refused("FedCT.*public", [site(), site("b")], public=None)
    refused("no rows", [site(), site("b")], public=U[:0])
    refused("X only", [site(), site("b")], public=(U, Y))


def test_a_public_set_that_differs_at_a_site():
    changed = U.copy()
    changed[3, 2] += 1e-9
    refused("'changed'.*hash", [site(public=U), site("changed", public=changed)])
    refused("'pinned'.*hash", [site(), site("pinned", policy=cg.Policy(public_sha256="0" * 64))])


def test_the_same_public_set_at_a_site_is_fine():
    sites = [site(learner=DecisionTreeClassifier(), public=U), site("b", learner=DecisionTreeClassifier())]
    assert len(cg.run(cg.FedCT(rounds=1), sites=sites, public=U).models) == 2


@pytest.mark.parametrize("quorum", [0, -0.1, 1.1, float("nan")])
def test_a_quorum_outside_its_range(quorum):
    with pytest.raises(cg.ConfigError, match="quorum"):
        cg.QualifiedMajority(quorum)


def test_a_share_of_sites_outside_its_range():
    refused("quorum", [site(), site("b")], quorum=1.5)


@pytest.mark.parametrize("seed", [-1, 1.5, "0", None, True])
def test_a_seed_that_is_none(seed):
    refused("seed", [site(), site("b")], seed=seed)


def test_an_algorithm_that_is_a_class_or_a_name():
    refused(r"FedCT\(\.\.\.\)", [site(), site("b")], algorithm=cg.FedCT)
    refused("algorithm", [site(), site("b")], algorithm="fedct")


def test_missing_values_where_the_learner_takes_none():
    holes = X.copy()
    holes[0, 0] = np.nan
    refused("'holes'.*LogisticRegression.*SimpleImputer", [site(), site("holes", holes, learner=LogisticRegression())])
    refused("public set", [site(learner=LogisticRegression()), site("b")], public=np.where(U > 2, np.inf, U) * np.nan)


def test_missing_values_in_data_frames_and_in_points_without_labels():
    frame, frame_U = pd.DataFrame(X), pd.DataFrame(U)
    for hole in (np.nan, np.inf, -np.inf):
        holes = frame.copy()
        holes.iloc[3, 1] = hole
        refused("'ukb': LogisticRegression does not take missing values, and its X has some",
                [site(X=holes, learner=LogisticRegression()), site("b", X=frame)], public=frame_U)  # fmt: skip
    words = frame.assign(word=pd.array(["x"] * 29 + [None], dtype="object"))
    sites = [site(name, X=words, learner=LogisticRegression()) for name in "ab"]
    refused("its X has some", sites, public=frame_U.assign(word="x"))
    holes = X.copy()
    holes[0, 0] = np.nan
    learner = cg.TorchClassifier("linear")
    refused("TorchClassifier does not take missing values, and its unlabeled has some",
            [cg.Site("a", X, Y, unlabeled=holes, learner=learner), site("b", learner=learner)],
            algorithm=cg.FedAvgPseudo(rounds=1), public=None)  # fmt: skip


def test_the_learners_that_a_method_names_are_looked_at_and_no_others():
    holes = np.where(X > 1.5, np.nan, X)
    sites = [site(X=holes, learner=LogisticRegression()), site("b", X=holes, learner=LogisticRegression())]
    named = cg.FedKT(teacher=DecisionTreeClassifier(), student=DecisionTreeClassifier(), subsets=2)
    assert cg.run(named, sites=sites, public=U).global_model is not None
    trees = [site(X=holes), site("b", X=holes)]
    refused("LogisticRegression does not take missing values", trees, algorithm=cg.FedKT(student=LogisticRegression()))


@pytest.mark.parametrize(
    "learner", [HistGradientBoostingClassifier(max_iter=5), make_pipeline(SimpleImputer(), LogisticRegression())]
)
def test_missing_values_where_the_learner_takes_them(learner):
    holes = np.where(X > 1.5, np.nan, X)
    sites = [site(name, holes, learner=learner) for name in "ab"]
    run = cg.run(cg.FedCT(rounds=2), sites=sites, public=np.where(U > 1.5, np.nan, U))
    assert run.refusals.empty


def test_true_labels_of_the_public_set_that_do_not_fit():
    refused("public_truth has 3 labels", [site(), site("b")], public_truth=["a", "b", "c"])
    refused("public_truth.*'zebra'", [site(), site("b")], public_truth=["zebra"] * 20)


def test_classes_given_by_the_user():
    sites = [site(learner=DecisionTreeClassifier()), site("b", learner=DecisionTreeClassifier())]
    run = cg.run(cg.FedCT(rounds=1), sites=sites, public=U, classes=["a", "b", "c", "d"])
    assert list(run.classes) == ["a", "b", "c", "d"]
    assert run.models["ukb"].predict_proba(U).shape == (20, 4)
    refused("'ukb'.*'c'", [site(), site("b")], classes=["a", "b"])
    refused("numbers", [site(), site("b")], classes=[1, 2])


def test_labels_of_a_study_are_not_quoted_from_private_data_beyond_their_values():
    with pytest.raises(cg.ConfigError) as caught:
        cg.run(cg.FedCT(), sites=[site(), site("b", X[:, :2])], public=U)
    assert str(float(X[0, 0]))[:6] not in str(caught.value)
