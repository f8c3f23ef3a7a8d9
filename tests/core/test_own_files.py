"""``"my_file:MyMethod"`` in a study of one's own; and that no such name that was sent imports anything."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

import collegium as cg
from collegium import registry
from collegium.core import own_files
from collegium.core.building import build
from collegium.core.recipes import build_learner
from collegium.core.steps import INSTALLED
from collegium.errors import ConfigError, WireError
from collegium.flare.agreement.plan import Plan
from collegium.flare.site.file import SiteFile
from collegium.privacy.mechanisms.named import build_mechanism

METHOD = '''
from dataclasses import dataclass, field
from typing import ClassVar

import collegium as cg
from my_shares import SHARE
from sklearn.naive_bayes import GaussianNB


@dataclass(frozen=True)
class Crowd(cg.Release):
    """A kind of release that this file brings."""

    samples: int


@cg.step
def learn(site: cg.ActiveSite, L: cg.Labels | None) -> cg.Nothing:
    site.fit(site.data + site.public.labelled(L))
    return cg.Nothing()


@cg.step
def crowd(site: cg.ActiveSite) -> Crowd:
    return Crowd(int(len(site.data) * SHARE))


@cg.step
def label(site: cg.ActiveSite) -> cg.HardLabels:
    return cg.HardLabels(site.predict(site.public))


@dataclass(frozen=True)
class MyRule(cg.Majority):
    """As the majority has it."""


class MyNoise(cg.RandomizedResponse):
    name = "my_file:MyNoise"


class OtherNoise(cg.RandomizedResponse):
    """Has the name of what it inherits from."""


class MyLearner(GaussianNB):
    """A learner of this file."""


@dataclass(frozen=True)
class MyMethod(cg.Algorithm):
    asks_for: ClassVar = (learn, crowd, label)
    rounds: int = 2
    consensus: cg.Consensus = field(default_factory=cg.Majority)
    mechanism: cg.Mechanism | None = None

    def coordinate(self, fed):
        L = None
        fed.note("crowd", sum(reply.samples for reply in fed.ask(crowd()).values()))
        for _ in fed.rounds(self.rounds):
            fed.tell(learn(L))
            L = self.consensus(fed, label().through(self.mechanism))
            fed.announce(L)
'''
STUDY: dict[str, Any] = {
    "data": {"source": "breast_cancer", "public": 200, "test": 100},
    "partition": {"sites": 3},
    "algorithm": {
        "name": "my_file:MyMethod",
        "consensus": "my_file:MyRule",
        "mechanism": {"name": "my_file:MyNoise", "epsilon": 3.0},
    },
    "sites": [{"learner": "my_file:MyLearner"}],
}


@pytest.fixture(autouse=True)
def _leaves_nothing_behind(monkeypatch: pytest.MonkeyPatch) -> Any:
    before = set(INSTALLED), set(sys.modules)
    monkeypatch.setattr(sys, "path", sys.path.copy())
    yield
    for name in set(own_files.FILES) | {name for name in sys.modules if name.startswith(("my_", "evil"))}:
        if name not in before[1]:
            sys.modules.pop(name, None)
    for table in (own_files.FILES, registry.OWN):
        table.clear()
    for name in INSTALLED.keys() - before[0]:
        if not INSTALLED[name].function.__module__.startswith("collegium."):
            del INSTALLED[name]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    place = tmp_path / "beside"
    place.mkdir()
    (place / "my_file.py").write_text(METHOD)
    (place / "my_shares.py").write_text("SHARE = 1\n")
    return place


def study(folder: Path, **changes: Any) -> cg.Study:
    return cg.Study.from_dict(STUDY | changes, folder=folder)


def test_a_study_names_a_method_a_rule_noise_and_a_learner_of_a_file_beside_it(folder: Path) -> None:
    file = folder / "study.toml"
    file.write_text(study(folder).to_toml())
    run = cg.Study.from_toml(file).run(progress=False)
    assert set(run.about["learners"].values()) == {"MyLearner"}
    assert {"my_file.crowd", "my_file.label"} == set(run.releases["step"])
    assert run.releases["privacy"].notna().sum() == 6  # two rounds of noisy labels by three sites
    assert run.refusals.empty


@pytest.mark.parametrize("link", ["workers", pytest.param("ray", marks=pytest.mark.slow)])
def test_the_result_is_the_same_in_other_processes(folder: Path, link: str) -> None:
    here = study(folder).run(progress=False)
    there = study(folder, engine={"workers": 1, "link": link}).run(progress=False)
    assert there.refusals.empty
    pd.testing.assert_frame_equal(here.metrics, there.metrics)


def test_the_working_directory_is_looked_in_too(folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(folder)
    assert type(study(tmp_path).build_algorithm()).__name__ == "MyMethod"


def test_a_module_that_is_installed_will_do(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    learner = "sklearn.naive_bayes:BernoulliNB"
    made = study(tmp_path, algorithm="fedct", sites=[{"learner": learner}])
    assert type(build("learner", made.sites[0].learner, "here")).__name__ == "BernoulliNB"


@pytest.mark.parametrize(
    ("name", "source", "said"),
    [
        ("none:Mine", "", r"algorithm.name: There is no none.py in .*beside or .*, and no module 'none' is installed"),
        ("no.module:Mine", "", "no module 'no.module' is installed"),
        ("../mine:Mine", "", "'../mine' is not a module: write 'my_file:MyMethod'"),
        ("my_file:MyMethd", METHOD, r"my_file.py has no 'MyMethd'. Did you mean 'MyMethod'\?"),
        ("my_file:MyRule", METHOD, "'my_file:MyRule' is not a valid algorithm: it must be a subclass of cg.Algorithm"),
        ("my_file:label", METHOD, "'my_file:label' is not a valid algorithm"),
        (
            "my_file:X",
            "x = 1\nimport no_such_thing\n",
            "my_file.py, line 2: ModuleNotFoundError: No module named 'no_s",
        ),
        ("my_file:X", "x = 1\ny = = 2\n", "my_file.py, line 2: SyntaxError"),
        ("my_file:X", "x = 1 / 0\n", "my_file.py, line 1: ZeroDivisionError"),
        ("random:X", "x = 1\n", "a module 'random' from .* is already loaded: rename the file"),
    ],
)
def test_what_is_wrong_is_said(folder: Path, name: str, source: str, said: str) -> None:
    if source:
        (folder / f"{name.partition(':')[0]}.py").write_text(source)
    with pytest.raises(ConfigError, match=said):
        study(folder, algorithm=name)
    assert (source == METHOD) == ("my_file" in own_files.FILES)


def test_a_module_that_fails_says_where(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    package = folder / "my_package"
    package.mkdir()
    (package / "__init__.py").touch()
    (package / "methods.py").write_text("x = 1\nimport no_such_thing\n")
    monkeypatch.syspath_prepend(folder)
    with pytest.raises(ConfigError, match=r"methods.py, line 2: ModuleNotFoundError: No module named 'no_such_thing'"):
        study(folder, algorithm="my_package.methods:Mine")


def test_a_step_that_a_built_in_method_has_is_an_error(folder: Path) -> None:
    (folder / "fedct.py").write_text(METHOD.replace("def learn(", "def train("))
    with pytest.raises(
        ConfigError, match=r"Step fedct.train is already installed by module collegium.algorithms.fedct"
    ):
        study(folder, algorithm="fedct:MyMethod")


def test_a_learner_has_fit_and_predict(folder: Path) -> None:
    with pytest.raises(
        ConfigError, match=r"sites\[0\].learner.name: 'my_file:MyRule' is not a valid learner: .* fit and predict"
    ):
        study(folder, sites=[{"learner": "my_file:MyRule"}])


def test_a_mechanism_has_the_name_that_orders_use(folder: Path) -> None:
    with pytest.raises(ConfigError, match="set name = 'my_file:OtherNoise' in the class"):
        study(folder, algorithm=STUDY["algorithm"] | {"mechanism": {"name": "my_file:OtherNoise", "epsilon": 1.0}})


def test_two_files_of_one_name_are_not_taken_for_each_other(folder: Path, tmp_path: Path) -> None:
    study(folder)
    (tmp_path / "my_file.py").write_text(METHOD)
    with pytest.raises(ConfigError, match="is already loaded: rename the file"):
        study(tmp_path)


# What is sent by a coordinator


@pytest.fixture
def trap(folder: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """A module that any import would find."""
    (folder / "evil.py").write_text(METHOD)
    monkeypatch.chdir(folder)
    monkeypatch.syspath_prepend(folder)
    return "evil:MyMethod"


def plain_plan(algorithm: dict[str, Any]) -> dict[str, Any]:
    made = cg.plan_of(
        cg.Study.from_dict({"data": {"source": "iris"}, "algorithm": "local"}), None, ["a", "b"], ["north"]
    )
    return made.to_plain() | {"algorithm": algorithm}


@pytest.mark.parametrize("nested", [False, True])
def test_a_plan_that_names_a_class_in_a_file_is_no_plan(trap: str, nested: bool) -> None:
    named = {"name": trap}
    with pytest.raises(WireError, match="names a class in a file"):
        Plan.from_plain(plain_plan({"name": "fedct", "consensus": named} if nested else named))
    assert "evil" not in sys.modules


@pytest.mark.parametrize(
    "algorithm", [{"name": "fedct", "consensus": "evil:MyRule"}, {"name": "fedkt", "student": "evil:MyLearner"}]
)
def test_a_review_imports_nothing_that_a_plan_names(trap: str, algorithm: dict[str, Any]) -> None:
    file = SiteFile.model_validate({"name": "north", "data": {"source": "x.csv"}})
    found = cg.review(Plan.from_plain(plain_plan(algorithm)), file)
    assert [each.code for each in found.verdicts] == ["algorithm-denied"]
    assert "evil" not in sys.modules


def test_a_study_of_somebody_else_s_imports_nothing(trap: str, folder: Path) -> None:
    file = folder / "study.toml"
    file.write_text(f'algorithm = "{trap}"\n[data]\nsource = "iris"\n')
    with pytest.raises(ConfigError, match=f"algorithm.name: There is no algorithm '{trap}' here: only your own study"):
        cg.Study.from_toml(file, own=False)
    assert "evil" not in sys.modules
    assert type(cg.Study.from_toml(file).build_algorithm()).__name__ == "MyMethod"


def test_orders_and_recipes_import_nothing(trap: str) -> None:
    with pytest.raises(ConfigError, match="There is no learner 'evil:MyLearner'"):
        build_learner({"name": "evil:MyLearner", "settings": {}})
    with pytest.raises(ConfigError, match="There is no mechanism 'evil:MyNoise'"):
        build_mechanism({"name": "evil:MyNoise", "epsilon": 1.0})
    with pytest.raises(ConfigError, match="There is no algorithm 'evil:MyMethod'"):
        build("algorithm", trap, "algorithm")
    assert "evil" not in sys.modules


def test_a_study_with_a_method_in_a_file_is_not_for_sites_elsewhere(folder: Path) -> None:
    made = study(folder, algorithm={"name": "fedct", "consensus": "my_file:MyRule"})
    with pytest.raises(ConfigError, match=r"my_file:MyRule is in a file of yours, .* Ship it as a plug-in"):
        cg.plan_of(made, None, ["a", "b"], ["north"])
