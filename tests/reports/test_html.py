from __future__ import annotations

import dataclasses
import hashlib
import re
import shutil
import subprocess
import sys
import zlib
from html.parser import HTMLParser
from pathlib import Path

import numpy as np
import pytest

import collegium as cg
from collegium.core.labels import Labels
from collegium.core.observations import Observations
from collegium.reports.compare import render_comparison
from collegium.reports.html import render_report
from collegium.reports.refusals import CODES
from collegium.reports.tables import bytes_text
from collegium.runs.results import Run
from collegium.wire.replies import Row

pytestmark = pytest.mark.xdist_group("reports")  # its fixtures are made once

FIGURES = [f"fig-{name}" for name in ("accuracy", "spread", "consensus", "changes", "classes", "bytes", "time")]
SECTIONS = ["short", "figures", "sites", "privacy", "left", "refusals", "study", "about"]
HOSTILE = "<script>alert(1)</script>\"'&<img src=x onerror=alert(2)>"
VOID = {"meta", "br"}


class Page(HTMLParser):
    """A page, read strictly: every element is closed where it should be."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.ids: list[str] = []
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.charts: dict[str, str] = {}
        self.words: list[str] = []
        self.tables: dict[str, list[list[str]]] = {}
        self._figure = self._table = ""
        self.feed(text)
        self.close()
        assert not self.open
        assert len(self.ids) == len(set(self.ids))
        self.text = " ".join(" ".join(self.words).split())

    def handle_starttag(self, tag, attrs):
        attributes = dict(attrs)
        self.tags.append((tag, attributes))
        self.ids += [attributes["id"]] if "id" in attributes else []
        if tag == "figure":
            self._figure = attributes["id"]
        if tag == "svg":
            assert attributes["role"] == "img"
            self.charts[self._figure] = attributes["aria-label"]
        if attributes.get("role") == "region":
            self._table = f"{self._figure} {attributes['aria-label']}" if self._figure else attributes["aria-label"]
            self.tables[self._table] = []
        if tag == "tr":
            self.tables[self._table].append([])
        if tag in ("td", "th"):
            self.tables[self._table][-1].append("")
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag, attrs):
        self.tags.append((tag, dict(attrs)))

    def handle_endtag(self, tag):
        assert self.open.pop() == tag
        self._figure = "" if tag == "figure" else self._figure

    def handle_data(self, data):
        if "style" in self.open:
            return
        self.words.append(data)
        if {"td", "th"} & set(self.open):
            self.tables[self._table][-1][-1] += data


def read(text: str) -> Page:
    """Parse a page and check that it is closed in itself."""
    page = Page(text)
    assert not re.search(r"<script|https?://|\bsrc=|url\(|@import|javascript:", text)
    assert all(not name.startswith("on") for _, attributes in page.tags for name in attributes)
    links = [attributes["href"] for tag, attributes in page.tags if tag == "a"]
    assert {link.removeprefix("#") for link in links} <= set(page.ids)
    return page


def synthetic(parties: list[str], rounds: int, classes: int = 10, **options) -> Run:
    """A run that nobody ran, of any size."""
    rng, seen = np.random.default_rng(0), Observations()
    for number in range(rounds):
        for party in parties:
            seen.metric(number, party, "test", "accuracy", float(rng.uniform(0.4, 0.9)))
            seen.cost(number, party, bytes_up=int(rng.integers(900, 1100)), seconds_fit=0.2, seconds_wire=0.01)
            digest = hashlib.sha256(f"{number}{party}".encode()).hexdigest()
            seen.released(number, party, "fedct.label", Row("HardLabels", 100, digest, digest[::-1], None), [], 400)
        seen.metric(number, "coordinator", "public", "consensus_size", 0.9)
        seen.metric(number, "coordinator", "public", "consensus_changed", 100 // (number + 1))
    counts = {party: rng.integers(0, 50, classes).tolist() for party in parties}
    about = {
        "run": "r", "algorithm": "FedCT(rounds=50)", "seed": 7, "parties": parties,
        "public_sha256": "p" * 64, "public_size": 1000,
        "classes": [str(i) for i in range(classes)], "quorum": 0.5, "workers": 2, "seconds": 75.0, "study": None,
        "started": "2026-01-02T03:04:05+00:00", "learners": dict.fromkeys(parties, "Tree"),
        "samples": {party: sum(each) for party, each in counts.items()},
    }  # fmt: skip
    settings = {"models": {}, "global_models": {}, "logs": {}, "labels": Labels(np.zeros(500, dtype=np.int8), classes)}
    return Run.from_observations(
        seen, about=about, classes=np.arange(classes), class_counts=counts, **(settings | options)
    )


@pytest.fixture(scope="module")
def run(cancer):
    return cancer.run(cg.FedCT(rounds=3), public_truth=cancer.split.public_truth)


@pytest.fixture(scope="module")
def many():
    return synthetic([f"hospital-{i:03d}" for i in range(200)], 50)


def test_a_report_does_not_import_matplotlib():
    """It takes a second to import, and the report's charts are not drawn with it."""
    code = "import sys, collegium.reports.html; assert 'matplotlib' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True)


def test_every_section_and_figure_is_there_in_order(run):
    page = read(render_report(run))
    assert [name for name in page.ids if name in SECTIONS] == SECTIONS
    assert [name for name in page.ids if name in FIGURES] == FIGURES
    assert list(page.charts) == FIGURES
    assert all(page.charts.values())
    assert sum(tag == "figcaption" for tag, _ in page.tags) == len(FIGURES)


def test_the_sentences_have_the_numbers_of_the_run(run):
    text, sites = read(render_report(run)).text, run.summary().iloc[:-1]
    for column in ("first_accuracy", "accuracy"):
        mean, low, high = sites[column].mean(), sites[column].min(), sites[column].max()
        assert f"{mean:.1%} (sites: {low:.1%} to {high:.1%})" in text
    assert "FedCT ran over 5 sites for 3 rounds." in text
    quality = run.metrics[run.metrics["metric"] == "consensus_quality"]["value"].iloc[-1]
    assert f"100.0% of the 370 public cases, and {quality:.1%} of these labels are right" in text
    content, sent = bytes_text(int(run.releases["bytes"].sum())), bytes_text(int(sites["bytes_up"].sum()))
    assert f"15 releases left the sites (15 HardLabels), with {content} of content" in text
    assert f"all messages together had {sent}." in text
    assert "None of the releases is protected by differential privacy; hard labels alone are no guarantee." in text


def test_the_numbers_at_a_glance_are_those_of_the_run(run):
    text = read(render_report(run)).text
    assert re.search(rf"Sites 5 .*Rounds {len(run.accuracy)} in ", text)
    assert f"Mean accuracy {run.summary().loc['mean', 'accuracy']:.1%}" in text


def test_the_tables_have_the_numbers_of_the_run(run):
    tables = read(render_report(run)).tables
    head, *rows = tables["Summary per site"]
    assert head[:2] == ["Site", "Learner"]
    for cells, (party, row) in zip(rows, run.summary().iterrows(), strict=True):
        shares = [f"{row['first_accuracy']:.1%}", f"{row['accuracy']:.1%}"]
        sizes = [bytes_text(row["bytes_up"]), bytes_text(row["bytes_down"])]
        counts = [str(row["releases"]), str(row["failures"])]
        assert cells == [party, row["learner"], str(row["samples"]), *shares, *sizes, *counts]
    for cells, (number, row) in zip(
        tables["fig-accuracy Data of this figure"][1:], run.accuracy.iterrows(), strict=True
    ):
        assert cells == [str(number), f"{row.mean():.1%}", *(f"{value:.1%}" for value in row)]
    changed = run.metrics[run.metrics["metric"] == "consensus_changed"]["value"]
    assert [cells[1] for cells in tables["fig-changes Data of this figure"][1:]] == [f"{n:.0f}" for n in changed]
    balance = [[int(n) for n in cells[1:]] for cells in tables["fig-classes Data of this figure"][1:]]
    assert balance == run.class_counts.to_numpy().tolist()


def test_every_release_of_a_small_run_is_listed_with_its_hashes(run):
    tables = read(render_report(run)).tables
    listed = [(row[0], int(row[1]), row[6], row[7]) for row in tables["Every release"][1:]]
    assert listed == list(run.releases[["party", "round", "sha256", "entry"]].itertuples(index=False, name=None))
    first = run.releases.groupby("party")["entry"].first()
    last = run.releases.groupby("party")["entry"].last()
    for party, kind, releases, *_, start, end in tables["What left, by site and kind"][1:]:
        assert (kind, releases, start, end) == ("HardLabels", "3", first[party], last[party])


def test_what_the_run_was_is_told(run):
    text = read(render_report(run)).text
    for value in (run.about["run"], run.about["public_sha256"], run.about["algorithm"], "benign, malignant"):
        assert value in text
    for package, version in run.environment["packages"].items():
        assert f"{package} {version}" in text
    assert "finished" in text
    study = 'name = "A study"\nseed = 3  # <b>'
    named = dataclasses.replace(run, about=run.about | {"study": "A study"}, study=study)
    page = render_report(named)
    assert "<h1>A study</h1>" in page
    assert "# &lt;b&gt;" in page


def test_a_run_where_nothing_is_shared(cancer):
    page = read(render_report(cancer.run(cg.Local(), public=None)))
    assert [name for name in page.ids if name in FIGURES] == FIGURES
    assert list(page.charts) == ["fig-accuracy", "fig-classes", "fig-bytes", "fig-time"]
    for sentence in ("No consensus on public cases was formed.", "No release left any site", "no public set"):
        assert sentence in page.text
    assert "differential privacy" not in page.text


def test_a_run_without_a_test_set(cancer):
    page = read(render_report(cancer.run(cg.FedCT(rounds=2), test=None)))
    assert "No accuracy on a common test set was recorded." in page.text
    assert list(page.charts) == ["fig-consensus", "fig-changes", "fig-classes", "fig-bytes", "fig-time"]
    assert "Whether these labels are right is not known" in page.text


def test_records_that_left_are_not_passed_over(cancer):
    text = read(render_report(cancer.run(cg.Centralized(), public=None))).text
    assert "Private records themselves left the sites (RawRecords): only a simulation can do that." in text
    assert "None of the releases is protected by differential privacy." in text
    assert "hard labels alone" not in text


class Stops(cg.Algorithm):
    """Killed before it has asked anything."""

    asks_for = ()

    def coordinate(self, fed):
        raise KeyboardInterrupt


def test_a_run_that_was_killed_before_its_first_round_ended(cancer, tmp_path):
    with pytest.raises(KeyboardInterrupt):
        cancer.run(Stops(), out=tmp_path / "run")
    page = read(render_report(cg.load(tmp_path / "run")))
    assert "No round of Stops over 5 sites has been recorded yet." in page.text
    assert "interrupted" in page.text
    assert "fig-classes" in page.charts
    assert "fig-accuracy" not in page.charts


def test_an_interrupted_run_says_so(run):
    text = read(render_report(dataclasses.replace(run, finished=False, labels=None))).text
    assert "ran over 5 sites for 3 rounds and was interrupted" in text
    assert f"{run.about['public_size']:,}" in text


def test_refusals_are_explained(cancer):
    sites = [*cancer.sites()[:4], cg.Site("strict", *cancer.split.sites[4], learner=cancer.sites()[4].learner,
                                          policy=cg.Policy(unprotected=()))]  # fmt: skip
    with pytest.warns(cg.CollegiumWarning):
        run = cancer.run(cg.FedCT(rounds=2), sites=sites)
    page = read(render_report(run))
    assert page.tables["Refusals"][1:] == [
        ["strict", "fedct.label", "unprotected", "2", "1", "0", "1", CODES["unprotected"]]
    ]
    assert "Sites refused, failed or were missing 2 times (1 site)" in page.text


def test_many_refusals_are_summed_up_by_code():
    run = synthetic(["a", "b"], 1)
    run.refusals = run.refusals.reindex(range(100)).assign(round=3, party="a", step="s", code="news")
    assert read(render_report(run)).tables["Refusals"][1][:6] == ["news", "s", "100", "1", "3", "3"]


def test_every_code_in_the_documentation_is_explained():
    page = (Path(__file__).parents[2] / "docs" / "runs.md").read_text()
    documented = re.findall(r"^\| (`.*?) \|", page.partition("**Failures.**")[2], flags=re.MULTILINE)
    codes = {code for cell in documented for code in re.findall(r"`([a-z-]+)`", cell)}
    assert "missing" in codes
    assert codes <= set(CODES)


@pytest.mark.parametrize("sites", [2, 20, 60])
def test_hostile_names_stay_text(sites):
    run = synthetic([f"{HOSTILE}{i}" for i in range(sites)], 2)
    run.about |= {"study": HOSTILE, "algorithm": HOSTILE, "classes": [HOSTILE], "public_sha256": HOSTILE}
    run.class_counts.columns = [f"{HOSTILE}{i}" for i in range(10)]
    run.releases["kind"] = run.releases["step"] = HOSTILE
    run.refusals = run.refusals.reindex(range(1)).assign(round=0, party=HOSTILE, step=HOSTILE, code=HOSTILE)
    run.study = HOSTILE
    text = render_report(run)
    page = Page(text)
    assert "<script" not in text
    assert not re.search(r"<img", text)
    assert HOSTILE in page.text
    assert len(Page(render_comparison({HOSTILE: run})).ids) > 0


def test_odd_names_are_shown_and_can_be_written(tmp_path):
    run = synthetic(["mean", "", "\u202egnp", "x" * 500, "a\nb"], 2)
    run.study = "\ud800"
    tables = read(run.report(tmp_path / "report.html").read_text(encoding="utf-8")).tables
    assert len(tables["Summary per site"]) == 7
    accuracy = [f"{value:.1%}" for value in run.accuracy["mean"]]
    assert [row[2] for row in tables["fig-accuracy Data of this figure"][1:]] == accuracy


def test_few_sites_have_names_and_many_a_band():
    assert synthetic_lines(12) == (13, 0, 0)
    assert synthetic_lines(13) == (14, 13, 1)
    assert synthetic_lines(300) == (201, 200, 1)


def synthetic_lines(sites: int) -> tuple[int, int, int]:
    text = render_report(synthetic([f"s{i}" for i in range(sites)], 2))
    chart = text[text.index('id="fig-accuracy"') : text.index('id="fig-spread"')]
    return chart.count('class="line '), chart.count('class="line hair'), chart.count('path class="band all"')


def test_a_single_site_has_no_spread():
    page = read(render_report(synthetic(["only"], 3)))
    assert "fig-spread" not in page.charts
    assert "1 site for 3 rounds" in page.text


def test_a_large_run_makes_a_small_page(many):
    text = render_report(many)
    assert len(text.encode()) < 1_000_000
    page = read(text)
    assert list(page.charts) == FIGURES
    assert "Every release" not in page.tables
    assert "This run made 10,000 releases" in page.text
    assert len(page.tables["What left, by site and kind"]) == 201
    assert page.text.count("hospital-000") < 10


def test_the_comparison_is_such_a_page_too(run, many):
    page = read(render_comparison({"small": run, "large": many}))
    assert list(page.charts) == ["fig-accuracy", "fig-bytes"]


# In a browser.

BROWSER = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
in_browser = pytest.mark.skipif(BROWSER is None, reason="there is no Chromium here (chromium, google-chrome)")


def browse(file: Path, folder: Path, *options: str) -> subprocess.CompletedProcess[str]:
    """Open a file in a browser without a screen."""
    quiet = [
        "no-first-run",
        "disable-background-networking",
        "disable-component-update",
        "disable-sync",
        "disable-quic",
    ]
    switches = [f"--{name}" for name in ("headless=new", "no-sandbox", "disable-gpu", "hide-scrollbars", *quiet)]
    switches += [f"--user-data-dir={folder / 'profile'}", "--enable-logging=stderr", "--virtual-time-budget=2000"]
    command = [str(BROWSER), *switches, *options, file.as_uri()]
    return subprocess.run(command, capture_output=True, text=True, timeout=600, check=True)


def complaints(done: subprocess.CompletedProcess[str]) -> list[str]:
    return [line for line in done.stderr.splitlines() if re.search(r"CONSOLE|Uncaught|Refused to", line)]


@in_browser
def test_the_browser_check_would_see_a_mistake(tmp_path):
    file = tmp_path / "broken.html"
    file.write_text("<!doctype html><title>x</title><script>undefined_name()</script>")
    assert complaints(browse(file, tmp_path, "--dump-dom"))


@in_browser
@pytest.mark.parametrize("which", ["run", "many"])
def test_a_browser_shows_every_figure_without_complaint(which, request, tmp_path):
    run = request.getfixturevalue(which)
    done = browse(run.report(tmp_path / "report.html"), tmp_path, "--dump-dom")
    assert complaints(done) == []
    for name in FIGURES:
        assert re.search(rf'<figure id="{name}"[^>]*>.*?<svg', done.stdout), name


@in_browser
@pytest.mark.parametrize("which", ["run", "many"])
def test_a_browser_shows_it_in_light_and_in_dark(which, request, tmp_path):
    from matplotlib.image import imread

    file = request.getfixturevalue(which).report(tmp_path / "report.html")
    shades = {}
    for name, options in {"light": [], "dark": ["--blink-settings=preferredColorScheme=0"]}.items():
        picture = tmp_path / f"{name}.png"
        done = browse(file, tmp_path, f"--screenshot={picture}", "--window-size=1100,2400", *options)
        assert complaints(done) == []
        pixels = imread(picture)[..., :3]
        assert pixels.std() > 0.03
        shades[name] = float(np.median(pixels))
    assert shades["light"] > 0.9
    assert shades["dark"] < 0.2


@in_browser
def test_a_browser_prints_it_on_white(run, tmp_path):
    target, dark = tmp_path / "report.pdf", "--blink-settings=preferredColorScheme=0"
    browse(run.report(tmp_path / "report.html"), tmp_path, f"--print-to-pdf={target}", dark)
    data = target.read_bytes()
    assert data.startswith(b"%PDF")
    assert len(re.findall(rb"/Type\s*/Page\b(?!s)", data)) >= 3
    streams = re.findall(rb"stream\r?\n(.*?)endstream", data, flags=re.DOTALL)
    drawn = b"".join(zlib.decompressobj().decompress(each) for each in streams if each.startswith(b"x"))
    # On paper the ink is dark (#1b2733), even where the screen's theme is dark and its ink light.
    assert re.search(rb"\.10\d+ \.15\d+ \.20* rg", drawn)
    assert not re.search(rb"\.89\d+ \.91\d+ \.93\d+ rg", drawn)


def test_claims_are_told_with_what_they_stand_on(cancer):
    noisy = cancer.run(cg.FedCT(rounds=2, mechanism=cg.RandomizedResponse(epsilon=0.001)))
    text = read(render_report(noisy)).text
    epsilon = noisy.privacy["epsilon"].iloc[0]
    assert "differential privacy" in text
    assert f"{epsilon:.4g}" in text
    assert "simulated noise" in text
    assert "10 of 10 releases are protected by differential privacy." in text
    assert "area under the curve of at most" in text


def test_an_epsilon_that_protects_nobody_is_called_that(cancer):
    noisy = cancer.run(cg.FedCT(rounds=1, mechanism=cg.RandomizedResponse(epsilon=4)))
    assert "That is no protection to rely on." in read(render_report(noisy)).text


def test_unprotected_releases_are_called_that(run):
    text = read(render_report(run)).text
    assert "nothing protects these releases" in text
