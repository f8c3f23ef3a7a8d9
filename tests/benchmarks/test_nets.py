"""The benchmarks that train nets: each method runs, on few rows, and its table says what was found."""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from benchmarks.fashion import Setting
from tests.benchmarks.clothes import images, write_clothes

from benchmarks import audit_vul, fashion, fashion_skew, fedaux, fedkt_mnist
from collegium.data import sources

TINY = Setting(communications=2, steps=2, device="cpu", private=200, public=100)
SKEWED = TINY._replace(sites=fashion_skew.SITES, alpha=fashion_skew.ALPHA)
MACHINE = {"machine": "a machine"}


@pytest.fixture
def clothes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A folder with a Fashion-MNIST of 400 images."""
    write_clothes(tmp_path)
    monkeypatch.setenv("COLLEGIUM_DATA", str(tmp_path))


def quick_first(methods: Iterable[str], quick: int = 3) -> list[Any]:
    """The methods of a table; all but the first few are slow."""
    return [each if at < quick else pytest.param(each, marks=pytest.mark.slow) for at, each in enumerate(methods)]


def keep(folder: Path, name: str, found: dict[str, Any]) -> None:
    (folder / f"{name}.json").write_text(json.dumps(found | MACHINE))


@pytest.mark.parametrize("method", quick_first(fashion.SHOWN))
def test_every_method_of_table_1_runs(method: str, clothes: None, tmp_path: Path) -> None:
    found = fashion._run(method, TINY, seed=0)
    assert 0 <= found["accuracy"] <= found["best"] <= 1
    keep(tmp_path, f"{method}-0", found)
    report = fashion.report(seeds=1, keep=str(tmp_path), measure=0)
    assert [row["method"] for row in report.rows] == [method]
    assert report.rows[0]["paper"] == fashion.PAPER[method]
    if method == "DP-FedAvg, epsilon 0.1":
        assert found["epsilon"] == pytest.approx(0.1, rel=1e-3)


@pytest.mark.parametrize("method", quick_first(fashion_skew.SHOWN))
def test_every_method_of_table_2_runs(method: str, clothes: None, tmp_path: Path) -> None:
    found = fashion._run(method, SKEWED, seed=0)
    assert 0 <= found["accuracy"] <= found["best"] <= 1
    keep(tmp_path, f"{method}-0", found)
    keep(tmp_path, f"{method}-1", found | {"accuracy": found["accuracy"] + 0.1})
    report = fashion_skew.report(seeds=2, keep=str(tmp_path), measure=0)
    assert [row["method"] for row in report.rows] == [method]
    assert report.rows[0]["spread"] == pytest.approx(0.05)


def test_all_methods_of_a_table_are_shown() -> None:
    for table in (fashion, fashion_skew):
        assert sorted(table.SHOWN) == sorted(table.PAPER)


@pytest.mark.slow
def test_fedaux_and_what_it_is_compared_with(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    X, y = images(120, 3, 32, 32)
    test = images(20, 3, 32, 32)
    monkeypatch.setattr(fedaux, "_cifar10", lambda: (X, y, test))
    start = tmp_path / "simclr-0.npz"
    fedaux._pretrain(str(start), seed=0, sites=2, rows=60, epochs=1, device="cpu")
    cases = fedaux._cases([0.001], [10.0])
    for name in ("FedDF+P-100", "FedAUX-0.01-0.001-10"):
        found = fedaux._run(cases[name], 1, 2, 60, 20, seed=0, device="cpu", start=str(start))
        assert (found["noise"] is not None) == name.startswith("FedAUX")
        keep(tmp_path, f"{name}-0", found)
    report = fedaux.report(ridges="0.001", epsilons="10", keep=str(tmp_path), measure=0)
    shown = [(row["method"], row["alpha"], row.get("ridge"), row["seeds"]) for row in report.rows]
    assert shown == [
        ("FedDF+P", 100, None, 1),
        ("FedAUX", 0.01, 0.001, 1),
    ]


def test_fewer_seeds_for_what_matters_less() -> None:
    many = {name: fedaux._seeds(case, 3, 2, 1) for name, case in fedaux._cases([0.1, 1.0], [0.1]).items()}
    assert (many["FedAUX-0.01"], many["FedAUX-100"], many["FedAUX-0.01-0.01-1"]) == (3, 2, 3)
    assert many["FedAUX-0.01-1-0.1"] == 1


@pytest.mark.parametrize("method", fedkt_mnist.PAPER)
def test_fedkt_on_digits(method: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    X, y = images(120, 28, 28)
    test = images(60, 28, 28)
    # Two classes: nets that have hardly learned anything agree now and then.
    digits = sources.Dataset("mnist", X, y.astype(np.int64) % 2, (test[0], test[1] % 2), about="")
    monkeypatch.setattr(fedkt_mnist, "load_source", lambda *_, **__: digits)
    monkeypatch.setenv("COLLEGIUM_DATA", str(tmp_path))
    found = fedkt_mnist._run(method, epochs=1, parties=2, rows=120, public=20, device="cpu", workers=1, seed=0)
    assert 0 <= found["accuracy"] <= 1
    keep(tmp_path, f"{method}-0", found)
    report = fedkt_mnist.report(keep=str(tmp_path), measure=0)
    assert [(row["method"], row["seeds"]) for row in report.rows] == [(method, 1)]


@pytest.mark.usefixtures("clothes")
@pytest.mark.slow
@pytest.mark.parametrize("name", audit_vul.METHODS)
def test_every_method_of_the_papers_is_attacked(name: str) -> None:
    found = audit_vul._attacked(name, "shokri", 1, 80, 1, 2)
    row = audit_vul._row(name, [found, found])
    assert {"method", "view", "shokri", "shokri_tpr", "lira", "lira_tpr"} <= row.keys()
    assert (row["claim"] is not None) == (name in ("DP-FedCT, the paper's parameters", "DP-FedAvg, clip parameters"))
