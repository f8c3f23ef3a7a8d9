"""What all methods with weights or soft labels have in common: study files, rehearsals, steady memory and cost."""

from __future__ import annotations

import warnings
from pathlib import Path

import pytest
from tests.algorithms.nets import PARTS, PUBLIC, TRUTH, Diverging, linear, same, sites_of

import collegium as cg
from collegium import registry
from collegium.algorithms._averaging import Averaging
from collegium.core.building import settings_of
from collegium.core.federation import Federation
from collegium.errors import CollegiumWarning, SiteError
from collegium.study.rehearsal import explain, rehearse

WITH_NETS = [name for name in registry.names("algorithm") if registry.lookup("algorithm", name).needs]
AVERAGING = [name for name in WITH_NETS if issubclass(registry.lookup("algorithm", name), Averaging)]
every_method = pytest.mark.parametrize("name", WITH_NETS)
# A few epochs less than the paper's, and short codes.
QUICK = {
    "fedmd": {"public_epochs": 1, "private_epochs": 1},
    "fedavg_xclp": {"xclp": cg.XCLP(bits=64, k=5, hamming="masked")},
}
IN_TOML = {
    "fedmd": "public_epochs = 1\nprivate_epochs = 1\n",
    "fedavg_xclp": 'xclp = { name = "xclp", bits = 64, k = 5, hamming = "masked" }\n',
}
STUDY = """
[data]
source = "digits"
public = 100
test = 100
train = 150
[partition]
sites = 3
[algorithm]
name = "{name}"
rounds = 2
{more}
[[sites]]
prepare = "{prepare}"
learner = {{ name = "torch", net = "linear", lr = 0.01, batch_size = 32, epochs = 1 }}
"""


def study(name: str, folder: Path, prepare: str = "none") -> cg.Study:
    file = folder / "study.toml"
    file.write_text(STUDY.format(name=name, more=IN_TOML.get(name, ""), prepare=prepare))
    return cg.Study.from_toml(file)


@pytest.mark.parametrize(
    "name",
    [
        name if name in ("fedavg", "fedmd", "scaffold") else pytest.param(name, marks=pytest.mark.slow)
        for name in WITH_NETS
    ],
)
def test_it_runs_from_a_study_file_and_can_be_rehearsed(name, tmp_path):
    made = study(name, tmp_path)
    run = made.run(progress=False)
    assert run.accuracy.shape == (2, 3)
    assert run.global_model is not None
    assert set(explain(made).releases["kind"]) == set(run.releases["kind"])
    assert rehearse(made, rounds=1).releases["round"].max() == 0


@pytest.mark.parametrize("name", [name for name in AVERAGING if name != "dp_fedavg"])
def test_a_run_in_which_no_drawn_site_ever_answers_ends_where_it_began(name, monkeypatch):
    published = []
    monkeypatch.setattr(Federation, "publish", lambda fed, weights, like: published.append(weights))
    algorithm = registry.lookup("algorithm", name)(rounds=2, participation=0.34)
    with pytest.warns(CollegiumWarning, match="diverged"):
        result = cg.run(algorithm, sites=sites_of(PARTS, lambda site: Diverging(site=site)), public=PUBLIC)
    assert result.refusals["round"].tolist() == [0, 1]
    assert len(published) == 2
    assert same(*published)


def test_a_preparation_that_differs_from_site_to_site_is_an_error_that_names_the_remedy(tmp_path):
    with pytest.raises(SiteError, match="prepare = 'none'"):
        study("fedavg", tmp_path, prepare="auto").run(progress=False)


@every_method
def test_it_does_not_need_a_gpu(name):
    algorithm = registry.lookup("algorithm", name)(rounds=1, **QUICK.get(name, {}))
    public = (PUBLIC, TRUTH) if algorithm.learns_public_labels else PUBLIC
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", CollegiumWarning)  # that says so
        run = cg.run(algorithm, sites=sites_of(PARTS, linear(device="cuda")), public=public)
    assert run.refusals.empty


@every_method
def test_the_coordinator_keeps_the_latest_weights_only(name, monkeypatch):
    held = []
    publish = Federation.publish

    def recording(fed, weights, like):
        publish(fed, weights, like)
        held.append(len(fed.final_weights))

    monkeypatch.setattr(Federation, "publish", recording)
    cls = registry.lookup("algorithm", name)
    settings = {"participation": 1.0} if "participation" in settings_of(cls) else {}
    algorithm = cls(rounds=6, **settings, **QUICK.get(name, {}))
    public = (PUBLIC, TRUTH) if algorithm.learns_public_labels else PUBLIC
    run = cg.run(algorithm, sites=sites_of(PARTS, linear()), public=public)
    assert set(held) <= {1}
    every_round = run.releases[run.releases["kind"] != "Numbers"]  # FedAUX's scores leave once, before the first round
    each = every_round.groupby(["party", "round"])["bytes"].sum()
    assert each.groupby("party").nunique().max() == 1  # as much in every round (in XCLP, sites have different parts)
    assert len(each) == 3 * 6
