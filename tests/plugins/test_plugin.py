"""A package of its own, installed by pip, adds algorithms, a consensus rule, a learner and a local loss."""

from __future__ import annotations

import importlib.util
import json
import os
import re
import shutil
import subprocess
import sys
import textwrap
import tomllib
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

import pytest

import collegium

PLUGIN = Path(__file__).resolve().parent / "demo_plugin"
GUIDE = Path(__file__).resolve().parents[2] / "docs" / "extending.md"
TEXT = GUIDE.read_text(encoding="utf-8")
BLOCKS = re.findall(r"```(py|toml)\n(.*?)```", TEXT, re.DOTALL)
# The study that the guide shows, with some data.
STUDY = {
    "data": {"source": "breast_cancer", "public": 250, "test": 100},
    "partition": {"name": "dirichlet", "alpha": 2.0, "sites": 5},
    **tomllib.loads(re.findall(r"```\n(\[algorithm\].*?)```", TEXT, re.DOTALL)[0]),
}


def _lacking() -> str | None:
    if importlib.util.find_spec("pip") is None:
        return "pip is not installed here"
    try:
        found = version("setuptools")
    except PackageNotFoundError:
        return "setuptools is not installed here"
    return None if int(found.partition(".")[0]) >= 77 else f"setuptools {found} is older than 77"


# One worker installs the plugin, for all of them.
pytestmark = pytest.mark.xdist_group("plugin")


@pytest.fixture(scope="module")
def installed(tmp_path_factory):
    """The folder that the plug-in was installed into."""
    if reason := _lacking():
        pytest.skip(reason)
    folder = tmp_path_factory.mktemp("plugin")
    shutil.copytree(PLUGIN, folder / "source")  # building leaves files beside the source
    options = ["--quiet", "--no-index", "--no-deps", "--no-build-isolation", "--target", str(folder / "installed")]
    done = subprocess.run(
        [sys.executable, "-m", "pip", "install", *options, str(folder / "source")], capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    shutil.rmtree(folder / "source")
    return folder / "installed"


def python(code, *folders):
    """Run code in a new interpreter with these folders on its path; what it prints, as JSON."""
    home = Path(collegium.__file__).parents[1]
    path = os.pathsep.join(map(str, [home, *folders]))
    done = subprocess.run(
        [sys.executable, "-W", "error::UserWarning", "-c", textwrap.dedent(code), json.dumps(STUDY)],
        env=os.environ | {"PYTHONPATH": path},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


NAMES = """
    import json
    from collegium import registry

    print(json.dumps({kind: registry.names(kind) for kind in ("algorithm", "consensus", "learner", "local_loss")}))
"""


def test_the_registry_has_the_names_where_the_package_is_installed(installed):
    with_it, without = python(NAMES, installed), python(NAMES)
    assert {kind: set(with_it[kind]) - set(without[kind]) for kind in with_it} == {
        "algorithm": {"mentors", "moon"},
        "consensus": {"clear_lead"},
        "learner": {"nearest_centre"},
        "local_loss": {"contrast"},
    }


@pytest.fixture(scope="module")
def results(installed):
    """The study, run in one process and with a worker."""
    code = """
        import json, sys
        from collegium.study.study import Study

        results = []
        for workers in (0, 1):
            run = Study.from_dict(json.loads(sys.argv[1]) | {"engine": {"workers": workers}}).run()
            results.append({
                "learners": run.about["learners"],
                "metrics": run.metrics.to_dict("records"),
                "releases": run.releases[["party", "step", "kind", "sha256"]].to_dict("records"),
                "refusals": run.refusals.to_dict("records"),
                "samples": run.about["samples"],
                "accuracy": run.summary().loc["mean", "accuracy"],
                "rounds_trained": run.accuracy.count().to_dict(),
            })
        print(json.dumps(results))
    """
    return python(code, installed)


@pytest.mark.parametrize("workers", [0, 1])
def test_a_study_uses_all_three_by_name(results, workers):
    result = results[workers]
    assert set(result["learners"].values()) == {"NearestCentre"}
    assert result["refusals"] == []
    assert result["accuracy"] > 0.85
    assert set(result["rounds_trained"].values()) == {3}
    kinds = {(row["step"], row["kind"]) for row in result["releases"]}
    assert kinds == {("mentors.experience", "Experience"), ("mentors.advise", "HardLabels")}
    advisers = {row["party"] for row in result["releases"] if row["step"] == "mentors.advise"}
    samples = result["samples"]
    assert len(advisers) == 3
    assert min(samples[party] // 10 for party in advisers) >= max(
        samples[party] // 10 for party in samples if party not in advisers
    )


def test_the_result_is_the_same_in_a_worker(results):
    assert results[0]["metrics"] == results[1]["metrics"]
    assert results[0]["releases"] == results[1]["releases"]


@pytest.mark.slow
def test_the_guide_s_file_works_beside_a_study(tmp_path):
    script = next(each for each in re.findall(r"```python\n(.*?)```", TEXT, re.DOTALL) if "class Census" in each)
    (tmp_path / "census.py").write_text(script.partition("\nX, y = ")[0])
    (tmp_path / "study.toml").write_text(
        re.findall(r"```\n(algorithm = .*?)```", TEXT, re.DOTALL)[0]
        + "[data]\nsource = 'breast_cancer'\npublic = 50\ntest = 30\n[partition]\nsites = 3\n"
    )
    code = f"""
        import json
        import collegium as cg

        results = []
        for workers in (0, 1):
            run = cg.Study.from_toml({str(tmp_path / "study.toml")!r}, [f"engine.workers={{workers}}"]).run()
            results.append(run.releases[["party", "step", "kind"]].to_dict("records"))
        print(json.dumps(results))
    """
    here, there = python(code)
    assert here == there
    assert {row["step"] for row in here} == {"census.how_many"}


@pytest.mark.slow
def test_an_algorithm_of_the_package_trains_with_a_local_loss_of_the_package(installed):
    pytest.importorskip("torch")
    code = """
        import json, sys
        from collegium.study.study import Study

        def weights(**algorithm):
            study = json.loads(sys.argv[1]) | {"algorithm": {"rounds": 3, "local_steps": 8} | algorithm}
            study["sites"] = [{"learner": {"name": "torch", "net": "linear", "lr": 0.01}, "prepare": "none"}]
            study["data"] = {"source": "digits", "test": 300}
            run = Study.from_dict(study).run()
            assert run.refusals.empty
            return {name: value.ravel().tolist() for name, value in run.global_model.estimator.get_weights().items()}

        moon, again, off, plain = (
            weights(name="moon"), weights(name="moon"), weights(name="moon", mu=0), weights(name="fedavg")
        )
        print(json.dumps({"repeats": moon == again, "mu = 0 is FedAvg": off == plain, "mu = 1 is FedAvg": moon == off}))
    """
    assert python(code, installed) == {"repeats": True, "mu = 0 is FedAvg": True, "mu = 1 is FedAvg": False}


WRONG = [
    ({"algorithm": {"name": "mentors", "mentor": 2}}, "algorithm.mentor: Mentors", "mentors"),
    ({"algorithm": {"name": "mentor"}}, "algorithm.name: ", "mentors"),
    (
        {"algorithm": {"name": "mentors", "consensus": {"name": "clear_lead", "leed": 1}}},
        "algorithm.consensus.",
        "lead",
    ),
    ({"sites": [{"learner": {"name": "nearest_centre", "shrinks": 1}}]}, "sites[0].learner.shrinks: ", "shrink"),
    (
        {"algorithm": {"name": "mentors", "share": 2.0}},
        "algorithm.share must be a number above 0",
        None,
    ),
    (
        {"algorithm": {"name": "mentors", "rounds": "3"}},
        "algorithm.rounds must be an integer",
        None,
    ),
    (
        {"algorithm": {"name": "mentors", "consensus": {"name": "clear_lead", "lead": 0}}},
        "algorithm.consensus.lead must be an integer of at least 1, got 0.",
        None,
    ),
]


@pytest.fixture(scope="module")
def answers(installed):
    """What is said about each wrong study, and about an algorithm that declares too few of its steps, or none."""
    code = f"""
        import json, sys
        from collegium.errors import ConfigError
        from collegium.study.study import Study
        from demo_plugin.mentors import Mentors, learn

        answers = []
        for change in {[change for change, _, _ in WRONG]!r}:
            try:
                Study.from_dict(json.loads(sys.argv[1]) | change)
                answers.append("nothing")
            except ConfigError as error:
                answers.append(str(error))
        Mentors.asks_for = (learn,)
        for attempt in range(2):
            try:
                Study.from_dict(json.loads(sys.argv[1])).run()
            except ConfigError as error:
                answers.append(str(error))
            if attempt == 0:
                del Mentors.asks_for
        print(json.dumps(answers))
    """
    return python(code, installed)


@pytest.mark.parametrize("number", range(len(WRONG)))
def test_a_wrong_study_is_answered_with_the_path_and_the_nearest_name(answers, number):
    _, start, nearest = WRONG[number]
    assert answers[number].startswith(f"study: {start}")
    assert nearest is None or f"Did you mean {nearest!r}?" in answers[number]


def test_an_algorithm_that_does_not_declare_its_steps_is_told_what_to_add(answers):
    too_few, none = answers[len(WRONG) :]
    assert "asked for mentors.experience, which the algorithm does not declare" in too_few
    assert none.startswith("Mentors does not declare which steps it asks sites for: add the class variable asks_for")


@pytest.mark.parametrize(("language", "block"), BLOCKS, ids=[f"{i}-{block[0]}" for i, block in enumerate(BLOCKS)])
def test_the_guide_quotes_the_plug_in_as_it_is(language, block):
    files = PLUGIN.rglob("*.py" if language == "py" else "*.toml")
    assert any(block in file.read_text(encoding="utf-8") for file in files), block


def test_the_guide_shows_every_step_rule_learner_and_algorithm():
    shown = "".join(block for language, block in BLOCKS if language == "py")
    names = ("Experience", "experience", "learn", "advise", "Mentors", "ClearLead", "NearestCentre", "Moon")
    for name in (*names, "Contrast", "ContrastLoss"):
        assert re.search(rf"^(class|def) {name}\(", shown, re.MULTILINE), name
