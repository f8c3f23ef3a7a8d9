"""The registry: names to classes, plug-ins, and errors that help."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from importlib.metadata import EntryPoint
from pathlib import Path
from typing import Any

import pytest

import collegium as cg
from collegium import registry
from collegium.errors import ConfigError, MissingExtra


@pytest.fixture
def plugged(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """Pretends that other packages have registered these entry points."""

    def plug(group: str, **points: str) -> None:
        found = [EntryPoint(name, value, group) for name, value in points.items()]
        monkeypatch.setattr(registry, "entry_points", lambda *, group: [p for p in found if p.group == group])
        registry._table.cache_clear()

    yield plug
    monkeypatch.undo()
    registry._table.cache_clear()


@pytest.mark.parametrize(
    ("kind", "name", "expected"),
    [
        ("algorithm", "fedct", "FedCT"),
        ("consensus", "dawid_skene", "DawidSkene"),
        ("voters", "familiar", "Familiar"),
        ("partition", "dirichlet", "Dirichlet"),
        ("learner", "random_forest", "RandomForestClassifier"),
        ("link", "workers", "WorkersLink"),
        ("link", "ray", "RayLink"),
    ],
)
def test_a_name_leads_to_a_class(kind: str, name: str, expected: str) -> None:
    assert registry.lookup(kind, name).__name__ == expected
    assert name in registry.names(kind)


def test_what_is_registered_is_what_the_package_offers() -> None:
    for kind in ("algorithm", "consensus", "voters", "partition"):
        for name in registry.names(kind):
            cls = registry.lookup(kind, name)
            assert getattr(cg, cls.__name__) is cls


def test_every_file_of_a_method_is_registered_under_its_own_name() -> None:
    folder = Path(cg.__file__).parent / "algorithms"
    files = {file.stem for file in folder.glob("[a-z]*.py")}
    assert files == set(registry.BUILT_IN["algorithm"])
    for name in files:
        cls = registry.lookup("algorithm", name)
        assert (cls.__module__, cls.__name__) == (
            f"collegium.algorithms.{name}",
            registry.class_name("algorithm", name),
        )


def test_the_names_of_methods_are_known_without_importing_any() -> None:
    program = "import sys; from collegium import registry; registry.names('algorithm'); print(*sys.modules)"
    result = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert not any(name.startswith("collegium.algorithms") for name in result.stdout.split())


@pytest.mark.parametrize("kind", list(registry.BUILT_IN))
def test_every_name_leads_somewhere_and_names_are_sorted(kind: str) -> None:
    assert registry.names(kind) == sorted(registry.names(kind))
    for name in registry.names(kind):
        try:
            assert isinstance(registry.lookup(kind, name), type)
        except MissingExtra:
            assert kind == "learner"  # one that is not installed here


@pytest.mark.parametrize(
    ("kind", "wrong", "right"),
    [
        ("algorithm", "aimih", "aimhi"),
        ("learner", "random_forrest", "random_forest"),
        ("partition", "dirichelt", "dirichlet"),
        ("consensus", "majorty", "majority"),
    ],
)
def test_a_misspelt_name_is_answered_with_the_nearest(kind: str, wrong: str, right: str) -> None:
    with pytest.raises(ConfigError, match=f"no {kind} '{wrong}'. Did you mean '{right}'"):
        registry.lookup(kind, wrong)


def test_a_name_like_no_other_is_answered_with_all() -> None:
    with pytest.raises(ConfigError) as caught:
        registry.lookup("algorithm", "xyzzy")
    assert "Did you mean" not in str(caught.value)
    assert f"Known: {', '.join(registry.names('algorithm'))}." in str(caught.value)


def test_an_unknown_registry_is_an_error_too() -> None:
    with pytest.raises(ConfigError, match=r"Unknown kind 'learners'. Did you mean 'learner'"):
        registry.names("learners")


@pytest.mark.parametrize("package", ["xgboost", "lightgbm"])
def test_a_missing_package_is_answered_with_the_extra(monkeypatch: pytest.MonkeyPatch, package: str) -> None:
    monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(MissingExtra, match=rf"learner '{package}'.*pip install 'collegium\[{package}\]'") as caught:
        registry.lookup("learner", package)
    assert caught.value.extra == package
    assert isinstance(caught.value, ImportError)


def test_without_torch_the_error_names_its_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, "collegium.learners.torch.classifier", raising=False)
    monkeypatch.setitem(sys.modules, "torch", None)
    with pytest.raises(MissingExtra, match=r"collegium\[torch\]") as caught:
        registry.lookup("learner", "torch")
    assert caught.value.extra == "torch"


def test_every_extra_that_is_named_can_be_installed() -> None:
    import tomllib

    project = tomllib.loads((Path(__file__).parents[1] / "pyproject.toml").read_text())["project"]
    assert set(registry.EXTRA_OF_MODULE.values()) <= set(project["optional-dependencies"])


def test_a_package_that_is_missing_for_another_reason_is_not_blamed_on_an_extra(plugged: Any) -> None:
    plugged("collegium.learner", odd="no_such_package_anywhere:Odd")
    with pytest.raises(ModuleNotFoundError, match="no_such_package_anywhere") as caught:
        registry.lookup("learner", "odd")
    assert not isinstance(caught.value, MissingExtra)


def test_plug_ins_are_found_by_their_entry_points(plugged: Any) -> None:
    plugged("collegium.learner", ridge="sklearn.linear_model:RidgeClassifier")
    assert "ridge" in registry.names("learner")
    assert registry.lookup("learner", "ridge").__name__ == "RidgeClassifier"
    assert "ridge" not in registry.names("consensus")
    with pytest.raises(ConfigError, match="Did you mean 'ridge'"):
        registry.lookup("learner", "rigde")


def test_a_plug_in_does_not_replace_what_is_built_in(plugged: Any) -> None:
    plugged("collegium.algorithm", fedct="sklearn.tree:DecisionTreeClassifier")
    assert registry.lookup("algorithm", "fedct") is cg.FedCT


def test_without_plug_ins_there_are_only_the_built_in_names(plugged: Any) -> None:
    plugged("collegium.nothing")
    for kind, table in registry.BUILT_IN.items():
        assert registry.names(kind) == sorted(table)


def test_installing_steps_brings_those_of_every_algorithm_and_rule() -> None:
    from collegium.core.steps import INSTALLED

    registry.install_steps()
    expected = {"fedct.train", "fedct.label", "local.train", "centralized.train", "centralized.hand_over"}
    assert expected | {"weighted.sample_count", "familiar.vote_where_familiar"} <= set(INSTALLED)
