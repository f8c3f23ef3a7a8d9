from __future__ import annotations

import dataclasses

import numpy as np
import pytest

import collegium as cg
from collegium.reports.compare import compare_runs, plot_comparison, render_comparison, seconds_text

pytestmark = pytest.mark.xdist_group("comparisons")  # its fixtures are made once


@pytest.fixture(scope="module")
def runs(cancer):
    truth = cancer.split.public_truth
    return {
        "alone": cancer.run(cg.Local(), public=None),
        "together": cancer.run(cg.FedCT(rounds=3), public_truth=truth),
        "pooled": cancer.run(cg.Centralized(), public=None),
    }


def test_a_row_per_run_has_the_numbers_of_its_summary(runs):
    table = compare_runs(runs)
    assert list(table.index) == ["alone", "together", "pooled"]
    assert list(table["algorithm"]) == ["Local", "FedCT", "Centralized"]
    assert list(table["rounds"]) == [1, 3, 1]
    assert (table["sites"] == 5).all()
    for name, run in runs.items():
        sites = run.summary().iloc[:-1]
        for when, column in (("first", "first_accuracy"), ("last", "accuracy")):
            expected = [sites[column].mean(), sites[column].min(), sites[column].max()]
            assert table.loc[name, [f"{when}_mean", f"{when}_min", f"{when}_max"]].tolist() == expected
        assert table.loc[name, "bytes_up_per_site"] == sites["bytes_up"].mean()
        assert table.loc[name, "releases"] == len(run.releases)
        assert table.loc[name, "seconds"] == run.about["seconds"]


def test_sites_that_lost_and_the_base_rate_stand_beside_accuracy(runs):
    judged = dataclasses.replace(runs["together"])
    judged.known_verdict = runs["together"].verdict.assign(high=[-0.01, -0.02, 0.0, 0.1, 0.2])
    table, page = compare_runs(runs | {"judged": judged}), render_comparison({"judged": judged})
    assert table.loc["judged", "worse_than_alone"] == 2
    assert table.loc["together", "base_rate"] == runs["together"].about["base_rate"]
    assert "Always saying the largest class: 66.7%" in page
    assert "Worse than alone" in page


def test_what_was_not_measured_is_nan(runs):
    table = compare_runs(runs)
    metrics = runs["together"].metrics
    assert np.isnan(table.loc["alone", "global_accuracy"])
    assert np.isnan(table.loc["alone", "consensus_quality"])
    for metric, column in (("global_accuracy", "global_accuracy"), ("consensus_quality", "consensus_quality")):
        assert table.loc["together", column] == metrics[metrics["metric"] == metric]["value"].iloc[-1]


def test_runs_without_a_test_set_can_be_compared(cancer):
    runs = {"a": cancer.run(cg.FedCT(rounds=1), test=None)}
    assert np.isnan(compare_runs(runs)["last_mean"].iloc[0])
    assert not plot_comparison(runs).axes[0].lines
    assert "No run measured accuracy" in render_comparison(runs)


def test_the_picture_has_a_line_per_run_and_level_lines_for_single_rounds(runs):
    (axes,) = plot_comparison(runs).axes
    assert [line.get_label() for line in axes.lines] == list(runs)
    assert len(axes.collections) == 3
    alone, together, _ = axes.lines
    np.testing.assert_array_equal(together.get_ydata(), runs["together"].accuracy.mean(axis=1))
    assert list(alone.get_xdata()) == [0, 2]
    assert len(set(alone.get_ydata())) == 1


def test_the_page_shows_the_numbers_of_every_run(runs):
    page = render_comparison(runs)
    for name, row in compare_runs(runs).iterrows():
        assert f">{name}<" in page
        for column in ("first_mean", "last_mean", "last_min", "last_max"):
            assert f"{row[column]:.1%}" in page
    assert "None of the releases is protected by differential privacy; hard labels alone are no guarantee." in page
    assert "Private records themselves left the sites (RawRecords)" in page
    assert "Interrupted" not in page
    assert 'class="warning"' not in page


def test_what_makes_a_comparison_doubtful_is_said(runs, cancer):
    fewer = cancer.run(cg.FedCT(rounds=1), sites=cancer.sites()[:3], public=cancer.split.public[:200])
    page = render_comparison(runs | {"fewer": dataclasses.replace(fewer, finished=False)})
    assert "different sites" in page
    assert "different public sets" in page
    assert "Interrupted before the end: fewer." in page


def test_many_runs_have_lines_but_no_bands(runs):
    many = {f"run {i}": runs["together"] for i in range(20)}
    page = render_comparison(many)
    assert page.count('class="line ') == 20
    assert 'class="band ' not in page
    assert len(plot_comparison(many).axes[0].collections) == 0


def test_no_run_at_all_is_a_mistake():
    for function in (compare_runs, plot_comparison, render_comparison):
        with pytest.raises(cg.ConfigError, match="no run to compare"):
            function({})
        with pytest.raises(cg.ConfigError, match="pass a mapping"):
            function([])


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0.0, "0 s"), (0.00123, "1.23 ms"), (0.5, "500 ms"), (1.26, "1.3 s"), (42.4, "42 s"), (61.0, "1 min 1 s"),
        (7260.0, "2 h 1 min"), (float("nan"), "-"),
    ],
)  # fmt: skip
def test_times_are_for_people(seconds, text):
    assert seconds_text(seconds) == text
