from __future__ import annotations

import re

import numpy as np
import pandas as pd
import pytest
from tests.cli.commands import collegium

pytestmark = pytest.mark.xdist_group("ethics")  # its fixtures are made once

STUDY = """
name = "ward"
[data]
source = "rows.csv"
target = "state"
public = 100
test = 50
[partition]
sites = 2
[algorithm]
name = "fedct"
rounds = 3
MECHANISM
[[sites]]
learner = ["imputer", "decision_tree"]
BUDGET
"""
SECRET = 4711.25


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder, rng = tmp_path_factory.mktemp("ethics"), np.random.default_rng(0)
    X = pd.DataFrame({"age": rng.normal(60, 9, 300), "crp": np.full(300, SECRET)})
    X.assign(state=np.where(X["age"] > 60, "ill", "well")).to_csv(folder / "rows.csv", index=False)
    bare = STUDY.replace("MECHANISM", "").replace("BUDGET", "")
    (folder / "bare.toml").write_text(bare)
    noise = 'mechanism = { name = "randomized_response", epsilon = 4.0 }'
    budget = 'policy = { requires = "dp" }\nbudget = { epsilon = 1000.0, delta = 1e-5, ledger = "{site}.db" }'
    (folder / "private.toml").write_text(STUDY.replace("MECHANISM", noise).replace("BUDGET", budget))
    (folder / "two.toml").write_text(bare.replace("[algorithm]", "[[algorithms]]") + '[[algorithms]]\nname = "fedkt"\n')
    return folder


def written(folder, *args):
    result = collegium("report", "--ethics", *args, cwd=folder)
    assert result.returncode == 0, result.stderr
    return (folder / result.stdout.removeprefix("Template: ").strip()).read_text()


def test_a_study_fills_in_what_it_knows(folder):
    text = written(folder, "bare.toml")
    assert [line.partition(". ")[2] for line in text.splitlines() if line.startswith("## ")] == [
        "Purpose", "Parties and contacts", "Data", "What leaves each site", "Privacy", "Budget and policy", "Retention",
        "Risks and measures", "Decision",
    ]  # fmt: skip
    assert "tell apart: ill, well" in text
    assert "| site1 | site: keeps its rows and its model | imputer, decision_tree |" in text
    assert re.search(r"\| fedct.label \| HardLabels: .* \| 3 \| \d+ B \| [\d.]+ kB \|", text)
    assert "This study is a simulation" in text
    assert "Every site: nothing protects 3 x HardLabels" in text
    assert "Not limited by differential privacy" in text
    assert "| site0 | none | unprotected releases: any kind |" in text
    assert text.count("[to fill in: ") > 10


def test_no_row_is_shown(folder):
    for study in ("bare.toml", "private.toml"):
        assert str(SECRET) not in written(folder, study, "--out", "again.md", "--force")


def test_claims_and_budgets_are_told_in_words(folder):
    text = written(folder, "private.toml")
    assert "nothing protects" not in text
    assert re.search(r"Every site: epsilon [\d.]+, delta 1e-05, for one record that is replaced by another", text)
    assert "differential privacy, whatever the data is" in text
    assert "no protection to rely on" in text or "area under the curve" in text
    assert "| site0 | epsilon 1000, delta 1e-05, kept between runs | only releases with differential privacy |" in text
    assert "Limited by the claims above" in text
    assert not list(folder.glob("*.db"))  # nothing is spent


def test_a_run_says_what_left(folder):
    assert collegium("run", "bare.toml", "--out", "run", cwd=folder).returncode == 0
    text = written(folder, "run", "--out", "run.html")
    assert text.startswith("<!doctype html>")
    words = " ".join(re.sub(r"<[^>]+>", " ", text).split())
    assert "Filled in by Collegium from a run of the study." in words
    assert "All that leaves, as it was in this run" in words
    assert "8. Risks and measures" in words


def test_every_algorithm_has_its_part(folder):
    text = written(folder, "two.toml")
    assert all(title in text for title in ("What leaves each site (fedct)", "What leaves each site (fedkt)"))


def test_a_federation_is_rehearsed_with_its_public_rows(folder):
    pd.read_csv(folder / "rows.csv").drop(columns="state").to_csv(folder / "public.csv", index=False)
    (folder / "federation.toml").write_text(
        'name = "sepsis"\nmetrics = ["roc_auc"]\n'
        '[data]\nsource = "public.csv"\n[algorithm]\nname = "fedct"\nrounds = 2\n'
        '[federation]\nclasses = ["ill", "well"]\nparties = ["north", "east"]\n'
    )
    text = written(folder, "federation.toml")
    assert "Private rows stay at their sites" in text
    assert "| north | each site's own: ask it | each site's own: ask it |" in text
    assert "Messages are signed, not sealed" in text
    assert "After every round also Scores" in text
    assert "And Measures of the same rows: roc_auc." in text


def test_what_was_filled_in_is_not_overwritten(folder):
    (folder / "mine.md").write_text("filled in")
    refused = collegium("report", "--ethics", "bare.toml", "--out", "mine.md", cwd=folder)
    assert refused.returncode == 2
    assert "--force" in refused.stderr
    assert (folder / "mine.md").read_text() == "filled in"
    wrong = collegium("report", "--ethics", "bare.toml", "--out", "mine.pdf", cwd=folder)
    assert wrong.returncode == 2
    assert ".md or .html" in wrong.stderr


def test_sites_that_make_their_public_set_say_what_that_takes(folder):
    columns = "[together.columns]\nage = [0, 120]\ncrp = [0, 9000]\n"
    bare = (folder / "bare.toml").read_text()
    text = bare.replace("public = 100", 'public = "together"').replace("sites = 2", "sites = 3")
    (folder / "together.toml").write_text(f"{text}[together]\nrows = 60\n{columns}")
    said = written(folder, "together.toml")
    assert said.index("What leaves each site (making the public set)") < said.index("What leaves each site (fedct)")
    assert re.search(r"Every site: epsilon (1|0\.\d+), delta 1e-05, for one record", said)
    assert str(SECRET) not in said
    assert collegium("run", "together.toml", "--out", "made", cwd=folder).returncode == 0
    assert "Making it cost every site" in written(folder, "made")
