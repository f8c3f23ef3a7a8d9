from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from sklearn.tree import DecisionTreeClassifier

import collegium as cg
from collegium.core import ActiveSite, Count, Nothing, step
from collegium.core.federation import Federation
from collegium.core.public_set import PublicSet
from collegium.errors import CollegiumError, ConfigError, MissingExtra, StorageError
from collegium.links import ray_cluster
from collegium.links.hosting import Hosting
from collegium.links.packing import split_alike
from collegium.links.ray import RayLink, share_of_gpu
from collegium.study.study import Study

pytestmark = pytest.mark.xdist_group("many processes")


@step
def remember(site: ActiveSite, word: str) -> Nothing:
    """State that stays with the site."""
    site.state["word"] = word
    return Nothing()


@step
def recall(site: ActiveSite) -> Count:
    """How much is remembered, and whether the public rows can be written to."""
    return Count(len(site.state.get("word", "")) + 100 * site.public.X.flags.writeable)


@step
def process_of(site: ActiveSite) -> Count:
    """Where this site lives."""
    return Count(os.getpid())


def hosting(sites: int = 4, folder: Path | None = None, learner: object = None) -> Hosting:
    rng = np.random.default_rng(0)
    some = [
        cg.Site(f"s{i}", rng.normal(size=(10, 3)), np.arange(10) % 2, learner=learner or DecisionTreeClassifier())
        for i in range(sites)
    ]
    return Hosting(tuple(some), np.arange(2), PublicSet(rng.normal(size=(20, 3))), None, 0, "run", folder)


@pytest.fixture
def opened(ray_here):
    links: list[RayLink] = []

    def open_link(*args, **options):
        links.append(RayLink(*args, **options))
        return links[-1], Federation(links[-1], run="run", n_classes=2, seed=0, public=args[0].public)

    yield open_link
    for link in links:
        link.close()


def counts(replies) -> dict[str, int]:
    return {party: count.samples for party, count in replies.items()}


@pytest.mark.slow
def test_many_sites_share_few_actors_and_read_one_copy_of_the_public_set(opened):
    _, fed = opened(hosting(sites=30))
    fed.tell(remember("five!"))
    assert counts(fed.ask(recall())) == dict.fromkeys(fed.parties, 5)
    assert len(set(counts(fed.ask(process_of())).values())) == 2  # the CPUs of this Ray


@pytest.mark.slow
def test_a_killed_actor_is_started_again_from_the_runs_folder(opened, tmp_path):
    link, fed = opened(hosting(folder=tmp_path), workers=2)
    fed.tell(remember("five!"))
    homes = counts(fed.ask(process_of()))
    os.kill(homes["s0"], signal.SIGKILL)
    lost = {party for party, home in homes.items() if home == homes["s0"]}
    replies = fed.ask(recall())
    assert set(replies.missing) == lost
    assert counts(replies) == dict.fromkeys(set(homes) - lost, 5)
    assert counts(fed.ask(recall())) == dict.fromkeys(homes, 5)
    after = counts(fed.ask(process_of()))
    assert {party for party in homes if after[party] != homes[party]} == lost
    assert all(("ended" in "".join(link.logs[party])) == (party in lost) for party in homes)


@pytest.mark.slow
def test_without_a_folder_there_is_nothing_to_start_a_killed_actor_from(opened):
    link, fed = opened(hosting(), workers=2)
    homes = counts(fed.ask(process_of()))
    os.kill(homes["s0"], signal.SIGKILL)
    lost = {party for party, home in homes.items() if home == homes["s0"]}
    for _ in range(2):
        assert set(fed.ask(recall()).missing) == lost
    assert "The Ray actor that hosts this site ended" in link.logs["s0"][0]


@pytest.mark.slow
def test_large_frames_that_all_sites_get_are_stored_once(opened, monkeypatch):
    link, fed = opened(hosting(), workers=1)
    stored = []
    monkeypatch.setattr(link._ray, "put", lambda value, put=link._ray.put: stored.append(value) or put(value))
    fed.tell(remember("x" * 200_000))
    assert counts(fed.ask(recall())) == dict.fromkeys(fed.parties, 200_000)
    assert len(stored) == 1


@pytest.mark.slow
def test_a_damaged_state_is_found_before_anything_is_trained(opened, tmp_path):
    link, fed = opened(hosting(sites=1, folder=tmp_path), workers=1)
    fed.tell(remember("five!"))
    fed.ask(recall())
    link.close()
    (state,) = (tmp_path / "sites" / "s0").glob("state-*.pkl")
    state.write_bytes(b"damaged")
    with pytest.raises(StorageError, match="damaged or missing"):
        opened(hosting(sites=1, folder=tmp_path), workers=1)


@pytest.mark.slow
def test_a_folder_that_other_nodes_do_not_have_is_an_error(opened, tmp_path):
    with pytest.raises(CollegiumError, match="shared file system"):
        opened(hosting(sites=1, folder=tmp_path / "elsewhere"), workers=1)


class LeftAtHome(DecisionTreeClassifier):
    """Cannot be made again elsewhere."""

    def __reduce__(self):
        return __import__, ("no_such_module_anywhere",)


@pytest.mark.slow
def test_what_is_not_installed_on_a_node_is_named(opened):
    with pytest.raises(CollegiumError, match=r"no_such_module_anywhere.*installed on every node"):
        opened(hosting(sites=1, learner=LeftAtHome()), workers=1)


@pytest.mark.slow
def test_a_study_names_the_link(ray_here, tmp_path):
    table = {"data": {"source": "iris", "public": 60, "test": 30}, "partition": {"sites": 3}, "algorithm": "local"}
    study = Study.from_dict(table | {"engine": {"link": "ray", "workers": 1}})
    assert study.run().about["link"] == "ray"
    assert Study.from_dict(table).engine.link == "auto"
    with pytest.raises(ConfigError, match=r"engine.link: There is no link 'rey'. Did you mean 'ray'"):
        Study.from_dict(table | {"engine": {"link": "rey"}})


def test_without_ray_the_error_names_the_extra(cancer, monkeypatch):
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(MissingExtra, match=r"link 'ray' needs .*collegium\[ray\]") as caught:
        cancer.run(cg.Local(), link="ray")
    assert caught.value.extra == "ray"


GPUS = """
import json, os
import numpy as np
import ray
import collegium as cg
from collegium.core import ActiveSite, Nothing, step
from collegium.core.federation import Federation
from collegium.links import ray as link
from collegium.links.hosting import Hosting
from collegium.links.ray_cluster import _folder
from sklearn.tree import DecisionTreeClassifier

link._START_SECONDS = 600  # of a busy machine

@step
def say_where(site: ActiveSite) -> Nothing:
    site.log(f"{os.getpid()} {os.environ['CUDA_VISIBLE_DEVICES']}")
    return Nothing()

def places(workers, gpus):
    sites = [cg.Site(n, np.zeros((4, 2)), [0, 1] * 2, learner=DecisionTreeClassifier(max_depth=ord(n) % 2 + 1))
             for n in "abcdefgh"]
    opened = link.RayLink(Hosting(tuple(sites), np.arange(2), None, None, 0, "run"), workers, gpus=gpus)
    fed = Federation(opened, run="run", n_classes=2, seed=0)
    fed.tell(say_where())
    fed.flush()
    found = {party: lines[-1] for party, lines in opened.logs.items()}
    opened.close()
    return found

with _folder() as folder:
    here = {"_node_ip_address": "127.0.0.1", "_temp_dir": folder}
    ray.init(num_cpus=4, num_gpus=2, include_dashboard=False, log_to_driver=False, **here)
    print(json.dumps([places(0, 2), places(4, 2), places(2, 0.5)]))
    ray.shutdown()
"""
SCRIPT = """
import json, os, signal, sys
from pathlib import Path
import numpy as np
from sklearn.tree import DecisionTreeClassifier
import collegium as cg
from collegium.core import ActiveSite, Algorithm, Count, step
from collegium.links import ray as link

link._START_SECONDS = 600  # of a busy machine

class OfThisScript(DecisionTreeClassifier):
    pass

@step
def answer(site: ActiveSite) -> Count:
    return Count(42)

class Mine(Algorithm):
    asks_for = (answer,)

    def coordinate(self, fed):
        for party, count in fed.ask(answer()).items():
            fed.note("answer", count.samples, party)
        global addresses
        addresses = listening()

def descendants():
    parents = {}
    for status in Path("/proc").glob("[0-9]*/stat"):
        try: parents[int(status.parent.name)] = int(status.read_text().rpartition(")")[2].split()[1])
        except OSError: pass
    family = {os.getpid()}
    while more := {child for child, parent in parents.items() if parent in family} - family:
        family |= more
    return family

def listening():
    sockets = set()
    for pid in descendants():
        for descriptor in Path(f"/proc/{pid}/fd").iterdir():
            try: sockets.add(os.readlink(descriptor))
            except OSError: pass
    rows = [line.split() for name in ("tcp", "tcp6") for line in Path(f"/proc/net/{name}").read_text().splitlines()]
    return [row[1].rpartition(":")[0] for row in rows if row[3] == "0A" and f"socket:[{row[9]}]" in sockets]

sites = [cg.Site(n, np.arange(12.0).reshape(6, 2), [0, 1] * 3, learner=OfThisScript()) for n in "ab"]
run = cg.run(Mine(), sites=sites, public=np.zeros((3, 2)), link="ray", address=sys.argv[1] if sys.argv[1:] else None)
print(json.dumps({
    "answers": run.metrics["value"].tolist(),
    "addresses": addresses,
    "left": len(descendants()) - 1,
    "signal": signal.getsignal(signal.SIGTERM) == signal.SIG_DFL,
}))
"""
LOOPBACK = {"0100007F", "0000000000000000FFFF00000100007F"}


@pytest.fixture
def run_script(tmp_path):
    """Run the script as a user would; what it printed."""
    pytest.importorskip("ray")
    (tmp_path / "script.py").write_text(SCRIPT)
    (tmp_path / "gpus.py").write_text(GPUS)
    inherited = {name: value for name, value in os.environ.items() if name != "RAY_ADDRESS"}
    changed = {"PYTHONPATH": str(Path(cg.__file__).parents[1]), "RAY_AUTH_TOKEN": "0" * 64, "RAY_TMPDIR": str(tmp_path)}

    def run(*options, script="script.py"):
        command = [sys.executable, str(tmp_path / script), *options]
        return subprocess.run(command, env=inherited | changed, capture_output=True, text=True, timeout=600)

    return run


@pytest.mark.slow
@pytest.mark.skipif(not Path("/proc/net/tcp").exists(), reason="listening sockets cannot be listed here")
def test_ray_is_started_for_a_script_and_is_neither_heard_nor_reached_from_outside_nor_left_behind(run_script):
    done = run_script()
    assert (done.returncode, done.stderr) == (0, "")
    found = json.loads(done.stdout)
    assert found["answers"] == [42.0, 42.0]
    assert set(found["addresses"]) <= LOOPBACK
    assert len(found["addresses"]) > 2
    assert found["left"] == 0
    assert found["signal"]


@pytest.mark.slow
def test_alike_sites_share_the_gpus_that_ray_hands_out(run_script):
    done = run_script(script="gpus.py")
    assert done.returncode == 0, done.stderr
    whole, halves, shared = json.loads(done.stdout)
    assert len(set(whole.values())) == 2  # one actor per GPU, and one kind of learner each
    assert {whole[party] for party in "aceg"}.isdisjoint(whole[party] for party in "bdfh")
    assert sorted({place.split()[1] for place in whole.values()}) == ["0", "1"]
    assert len(set(halves.values())) == 4
    assert sorted(place.split()[1] for place in set(halves.values())) == ["0", "0", "1", "1"]
    assert len(set(shared.values())) == 2
    assert len({place.split()[1] for place in shared.values()}) == 1


@pytest.mark.slow
def test_no_gpus_are_asked_for_that_are_not_there(cancer, ray_here):
    with pytest.raises(ConfigError, match="gpus=2, but Ray knows of 0 here"):
        cancer.run(cg.Local(), link="ray", gpus=2)


def test_gpus_are_for_ray(cancer):
    with pytest.raises(ConfigError, match="gpus is for link='ray'"):
        cancer.run(cg.Local(), gpus=2)
    with pytest.raises(ConfigError, match="gpus must be a finite number of at least 0"):
        cancer.run(cg.Local(), link="ray", gpus=-1)


@pytest.mark.parametrize(
    ("gpus", "actors", "share"), [(2, 2, 1.0), (2, 3, 0.5), (2, 4, 0.5), (0.5, 2, 0.25), (1, 3, 1 / 3), (0, 4, 0.0)]
)
def test_the_share_of_each_actor(gpus, actors, share):
    assert share_of_gpu(gpus, actors, 2.0) == pytest.approx(share)
    with pytest.raises(ConfigError, match="a whole number, or a share of one GPU"):
        share_of_gpu(1.5, actors, 2.0)


def test_alike_sites_go_to_the_same_process():
    learners = [DecisionTreeClassifier(max_depth=1 + i % 3) for i in range(9)]
    rows = np.zeros((6, 2))
    sites = tuple(cg.Site(f"s{i}", rows, np.arange(6) % 2, learner=each) for i, each in enumerate(learners))
    parts = split_alike(Hosting(sites, np.arange(2), None, None, 0), 3)
    assert [[site.name for site in part.sites] for part in parts] == [
        ["s0", "s3", "s6"],
        ["s1", "s4", "s7"],
        ["s2", "s5", "s8"],
    ]
    large = cg.Site("large", np.zeros((100, 2)), np.arange(100) % 2, learner=learners[0])
    parts = split_alike(Hosting((large, *sites[:2]), np.arange(2), None, None, 0), 3)
    assert [[site.name for site in part.sites] for part in parts] == [["large"], ["s0", "s1"]]


@pytest.mark.slow
def test_no_cluster_at_an_address_is_an_error(run_script, ray_here):
    """Nor is one that somebody else has for a run of their own."""
    done = run_script("auto")
    assert done.returncode == 1
    assert "ConfigError: There is no Ray cluster at address 'auto'" in done.stderr.splitlines()[-1]


def test_nobody_at_an_address_is_an_error_at_once():
    ray = pytest.importorskip("ray")
    with socket.socket() as nobody:  # bound, but not listening
        nobody.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{nobody.getsockname()[1]}"
        with pytest.raises(ConfigError, match=rf"no Ray cluster at address '{address}' .*refused.*`ray start --head`"):
            ray_cluster._join(ray, address)
