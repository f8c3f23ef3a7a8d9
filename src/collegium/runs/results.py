"""`Run`: what came out of a run, as tables, models and pictures."""

from __future__ import annotations

import json
from collections.abc import Mapping, Set
from dataclasses import dataclass, field
from functools import cached_property
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from collegium.auditing.result import Audit
from collegium.core.attendance import attendance_in_words
from collegium.core.labels import Labels, names_of, shorten
from collegium.core.observations import COORDINATOR, Observations
from collegium.core.scores import score
from collegium.core.site import Exam
from collegium.errors import ConfigError, StorageError
from collegium.privacy.tables import privacy_table
from collegium.runs import run_files
from collegium.runs.environment import environment
from collegium.runs.narrow import Narrow
from collegium.runs.run_files import TABLES, read_model, write_file
from collegium.runs.verdict import Alone, answered_right, concerns, in_html, judge
from collegium.site.ledger import storage_errors
from collegium.together.opinions import about

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from collegium.graphs import Labelled
    from collegium.learners.base import SiteModel


@dataclass(eq=False, repr=False)
class Run:
    """The results of one run.

    Attributes:
        metrics: One row per number: round, party, split, metric, value. Rounds count from 0.
        releases: One row per release that left a site: party, round, step, kind, bytes, sha256, ...
        costs: Per round and party: bytes up and down on the wire, seconds in fit, predict, consensus and wire,
            and in parts of these that the algorithm times itself, such as teachers and students.
        orders: What each site was asked to run, and in how many bytes.
        privacy: What can be claimed about each site's privacy, and what each claim rests on.
        refusals: Who refused, failed or was missing, and with which code.
        about: The run's id, algorithm, seed, sites and versions.
        classes: The study's classes.
        labels: The last consensus, as class codes (None where the algorithm makes none). Of a method that labels the
            sites' own unlabeled points: by site, the user's own label values in the order of those points.
        confidences: How sure each of those labels is, 0 to 1, by site. In a real run only the site itself has either.
        consensus_confidences: How sure the rule was of each label of the last consensus, 0 to 1: the share of votes,
            or the probability of the class (None where the algorithm does not use such a rule).
        logs: The sites' own logs, in a simulation; not saved with the run.
        study: The study file's text, for a run of a study.
        environment: Versions of Python and libraries, and the kind of machine.
        finished: False for the folder of a run that was killed and not resumed.
        audits: Attacks on this study's sites that `collegium audit` has put into the run's folder.
    """

    metrics: pd.DataFrame
    releases: pd.DataFrame
    costs: pd.DataFrame
    refusals: pd.DataFrame
    orders: pd.DataFrame
    about: dict[str, Any]
    classes: NDArray[Any]
    class_counts: pd.DataFrame
    labels: Labels | dict[str, NDArray[Any]] | None
    _models: Mapping[str, Any]
    _global_models: Mapping[str, Any] = field(default_factory=dict)
    confidences: dict[str, NDArray[np.float64]] = field(default_factory=dict)
    consensus_confidences: NDArray[np.float64] | None = None
    logs: dict[str, list[str]] = field(default_factory=dict)
    study: str | None = None
    environment: dict[str, Any] = field(default_factory=dict)
    finished: bool = True
    audits: tuple[Audit, ...] = ()
    made: pd.DataFrame | None = None
    """The public set that the sites have made together, of a run that makes one."""
    opinion: pd.DataFrame | None = None
    """By the model that made it, how probable each class is for each of its rows (None where it does not say)."""
    known_verdict: pd.DataFrame | None = None
    """The verdict, if it was measured already."""
    _alone: Alone | None = None
    _exam: Exam | None = None

    @classmethod
    def from_observations(
        cls,
        observed: Observations,
        *,
        about: dict[str, Any],
        classes: NDArray[Any],
        labels: Labels | None,
        models: Mapping[str, SiteModel],
        global_models: Mapping[str, SiteModel],
        logs: dict[str, list[str]],
        class_counts: dict[str, list[int]],
        found: Mapping[str, Labelled] | None = None,
        consensus_confidences: NDArray[np.float64] | None = None,
        study: str | None = None,
        made: Any = None,
        opinion: Any = None,
    ) -> Run:
        """Build from what the coordinator noted."""
        costs = [{"round": number, "party": party, **row} for (number, party), row in sorted(observed.costs.items())]
        activities = sorted({name for row in costs for name in row} - set(TABLES["costs"]))
        columns = TABLES | {"costs": (*TABLES["costs"], *activities)}
        frames: dict[str, Any] = {}
        for name, named in columns.items():
            rows = costs if name == "costs" else getattr(observed, name)
            frames[name] = pd.DataFrame(_in_order(rows, about["parties"]), columns=list(named))
        frames["costs"] = frames["costs"].fillna(0.0).astype({"bytes_up": "int64", "bytes_down": "int64"})
        names = names_of(classes)
        counts = pd.DataFrame.from_dict(class_counts, orient="index", columns=names).rename_axis("party")
        return cls(
            **frames,
            about=about,
            classes=classes,
            class_counts=counts,
            labels={party: classes[each.codes] for party, each in found.items()} if found else labels,
            confidences={party: each.confidences for party, each in (found or {}).items()},
            consensus_confidences=consensus_confidences,
            _models=models,
            _global_models=global_models,
            logs=logs,
            study=study,
            environment=environment(),
            made=made,
            opinion=None if opinion is None else pd.DataFrame(opinion, columns=names),
        )

    @cached_property
    def models(self) -> dict[str, SiteModel]:
        """Each site's final model; `predict` answers in the user's own label values."""
        return {party: read_model(model) for party, model in self._models.items()}

    @cached_property
    def global_models(self) -> dict[str, SiteModel]:
        """Models that belong to no site: one of (U, final consensus), or averaged nets by a site with such a net."""
        return {name: read_model(model) for name, model in self._global_models.items()}

    @property
    def global_model(self) -> SiteModel | None:
        """The first of the global models, where the algorithm made one."""
        return next(iter(self.global_models.values()), None)

    @cached_property
    def privacy(self) -> pd.DataFrame:
        """What can be claimed about each site's privacy: one row per site and kind of claim.

        The kind ``unprotected`` means that nothing protects those releases.
        """
        return privacy_table(self.releases, self.about["parties"], self.about.get("claims", {}))

    @property
    def incomplete(self) -> dict[str, dict[str, int]]:
        """The sites that did not answer all that the algorithm asked: how often, by code. Empty: the run is whole.

        A score on held-out rows, which a site may keep to itself, is not counted.
        """
        rows = self.refusals[self.refusals["step"] != score.name]
        by_site = rows.groupby("party", sort=False)["code"]
        return {str(party): {str(code): int(n) for code, n in codes.value_counts().items()} for party, codes in by_site}

    @property
    def trained_together(self) -> str:
        """Who was trained together, and why others were not, in words; empty where nobody was to be."""
        cohort = self.about.get("cohort")
        return "" if cohort is None else attendance_in_words(cohort, len(self.about["parties"]))

    @property
    def accuracy(self) -> pd.DataFrame:
        """Test accuracy: one row per round, one column per site."""
        return self._accuracy.copy()

    @cached_property
    def _accuracy(self) -> pd.DataFrame:
        rows = self.metrics[(self.metrics["split"] == "test") & (self.metrics["metric"] == "accuracy")]
        latest = rows.dropna(subset="value").drop_duplicates(["round", "party"], keep="last")
        wide = latest.pivot(index="round", columns="party", values="value")
        return wide.reindex(columns=[party for party in self.about["parties"] if party in wide.columns])

    @property
    def consensus(self) -> pd.DataFrame:
        """Size, quality and changes of the consensus by round; a column is missing where it was not measured."""
        return self._consensus.copy()

    @cached_property
    def _consensus(self) -> pd.DataFrame:
        rows = self.metrics[(self.metrics["split"] == "public") & (self.metrics["party"] == COORDINATOR)]
        rows = rows[rows["metric"].isin(["consensus_size", "consensus_quality", "consensus_changed"])]
        latest = rows.dropna(subset="value").drop_duplicates(["round", "metric"], keep="last")
        return latest.pivot(index="round", columns="metric", values="value")

    @property
    def verdict(self) -> pd.DataFrame:
        """Did it help? One row per site: site, alone, together, difference, low, high, helped.

        `alone` is the test accuracy of the same learner on the site's own rows, trained with the same seed for as long.
        `low` and `high` bound the difference with 95% confidence over the test rows (a paired bootstrap); `helped` is
        True where all of that is above 0. Learners that are fitted anew cost one more fit per site, when this is first
        looked at. `save` keeps it.
        """
        if self.known_verdict is None:
            if self._alone is None or self._exam is None:
                raise ConfigError(
                    "There is no verdict on this run: it compares models on a test set, so pass test=(X, y), and not "
                    "alone=False. Of a run that was loaded, it is there if it was measured before it was saved."
                )
            together = answered_right(self.models, self._exam)
            self.known_verdict = judge(self._alone.right(together), together, int(self.about["seed"]))
        return self.known_verdict.copy()

    @property
    def concerns(self) -> list[str]:
        """What to know first, in sentences: sites that lost, a consensus of one class, models that were not tested."""
        return concerns(self)

    def judged(self) -> pd.DataFrame | None:
        """The verdict, if it was measured already or takes no more than one fit per site; else None."""
        if self.known_verdict is None and self._alone is not None and self._alone.is_cheap:
            return self.verdict
        return self.known_verdict

    @property
    def final_codes(self) -> NDArray[Any] | None:
        """The labels of the last consensus, without the samples that have none; None where there is no consensus."""
        return self.labels.codes[self.labels.known] if isinstance(self.labels, Labels) else None

    @property
    def scores(self) -> pd.DataFrame:
        """The last value of each metric on the test set: one row per site, and for the global model."""
        rows = self.metrics[self.metrics["split"] == "test"]
        latest = rows.drop_duplicates(["party", "metric"], keep="last")
        wide = latest.pivot(index="party", columns="metric", values="value")[list(dict.fromkeys(rows["metric"]))]
        is_global = wide.columns.str.startswith("global_")
        own, shared = wide.loc[:, ~is_global], wide.loc[:, is_global]
        table = own.reindex([party for party in self.about["parties"] if party in own.index]).dropna(how="all")
        overall = shared.dropna(how="all").rename(columns=lambda name: name.removeprefix("global_"))
        return pd.concat([table, overall.rename(index=lambda name: f"global model ({name})")]).rename_axis("party")

    @property
    def plain_scores(self) -> pd.DataFrame:
        """`scores`, without metrics that are a number for each bin of a curve or cell of a matrix."""
        scores = self.scores
        return scores[[name for name in scores if "[" not in str(name)]]

    def __repr__(self) -> str:
        """In one line: the method, the sites and rounds, and how good it ended."""
        method, sites = self.about["algorithm"].split("(")[0], len(self.about["parties"])
        said = [f"{sites} site{'s' if sites != 1 else ''}"]
        if len(self.metrics):
            rounds = int(self.metrics["round"].max()) + 1
            said.append(f"{rounds} round{'s' if rounds != 1 else ''}")
        mean = self.accuracy.iloc[-1].mean() if len(self.accuracy) else np.nan
        said += [] if np.isnan(mean) else [f"mean accuracy {mean:.3f}"]
        return f"<Run of {method}: {', '.join(said)}{'' if self.finished else ', not finished'}>"

    def _repr_html_(self) -> str:
        """In a notebook: what to know first, whom it helped (those that lost are red), the summary, and metrics."""
        judged = self.judged()
        notes = "".join(f'<p style="color:#b00020"><b>{escape(text)}</b></p>' for text in self.concerns)
        helped = "" if judged is None or judged.empty else in_html(judged)
        rate, scores = self.about.get("base_rate"), self.plain_scores
        base = "" if rate is None else f"<p>Always saying the largest class: accuracy {rate:.3f}</p>"
        tables = [self.summary(), *([scores] if len(scores.columns) > 1 else [])]
        return f"{notes}{helped}{base}{''.join(each.to_html(float_format='{:.3f}'.format) for each in tables)}"

    @property
    def one_shot(self) -> pd.DataFrame:
        """The cost of a one-round method: rounds, bytes, seconds per site; the coordinator fits the final model."""
        parts = ("seconds_teachers", "seconds_students", "seconds_final")
        spent = self.costs.assign(**{part: 0.0 for part in parts if part not in self.costs})
        table = spent.groupby("party")[["bytes_up", "bytes_down", *parts]].sum()
        table.insert(0, "rounds", self.releases.groupby("party")["round"].nunique())
        parties = [*self.about["parties"], "coordinator"]
        return table.reindex(parties).fillna(0).astype(dict.fromkeys(("rounds", "bytes_up", "bytes_down"), "int64"))

    def summary(self) -> pd.DataFrame:
        """One row per site, and their mean: first and last accuracy, bytes sent, learner, samples, failures.

        A site that failed before it was first measured has no first accuracy. Printed, it fits 80 columns.
        """
        return Narrow(self._summary.copy())

    @cached_property
    def _summary(self) -> pd.DataFrame:
        parties: list[str] = self.about["parties"]
        accuracy = self._accuracy
        table = pd.DataFrame(index=pd.Index(parties, name="party"))
        if self.about["samples"]:  # in a real run only the sites know
            table["learner"] = pd.Series(self.about["learners"])
            table["samples"] = pd.Series(self.about["samples"])
        first, last = accuracy.bfill(), accuracy.ffill()
        table["first_accuracy"] = first.iloc[0] if len(first) else np.nan
        # A site that failed before it was first measured may have learned from the others by then.
        failed = self.refusals.groupby("party")["round"].min().reindex(parties)
        measured = pd.Series({party: accuracy[party].first_valid_index() for party in accuracy}, dtype=float)
        table.loc[failed < measured.reindex(parties), "first_accuracy"] = np.nan
        table["accuracy"] = last.iloc[-1] if len(last) else np.nan
        for column in ("bytes_up", "bytes_down"):
            table[column] = self.costs.groupby("party")[column].sum().reindex(parties, fill_value=0)
        table["releases"] = self.releases.groupby("party").size().reindex(parties, fill_value=0)
        table["failures"] = self.refusals.groupby("party").size().reindex(parties, fill_value=0)
        numbers = table.drop(columns="learner", errors="ignore")
        mean = pd.DataFrame([numbers.mean(skipna=True)], index=["mean"]).assign(learner="")
        counts = numbers.columns.drop(["first_accuracy", "accuracy"])
        mean[counts] = mean[counts].round().astype("int64")
        # What matters most comes first: where it is printed, the rest stands below.
        foremost = ["first_accuracy", "accuracy", "bytes_up"]
        columns = [*foremost, *table.columns.drop(foremost)]
        return pd.concat([table, mean[table.columns]])[columns].rename_axis("party")

    def plot(self, path: str | Path | None = None) -> Figure:
        """Plot accuracy per site, the consensus, and the bytes that left each site; saved if a path is given."""
        from collegium.reports.plots import plot_run

        figure = plot_run(self)
        if path is not None:
            figure.savefig(path, dpi=150)
        return figure

    def save(self, path: str | Path, *, overwrite: bool = False) -> Path:
        """Write tables, models and settings to a folder; `cg.load` reads it back."""
        folder = Path(path)
        there = (folder / "run.json").exists()
        if there and not overwrite:
            raise ConfigError(f"{folder} already contains a run: choose another folder, or pass overwrite=True.")
        if there and (folder / "record").exists() and run_files.name_of(folder) != self.about["run"]:
            raise ConfigError(f"{folder} has the record and the ledger of another run: choose another folder.")
        if taken := self._not_its_own(folder):
            raise ConfigError(
                f"{folder} has files that no run wrote there ({shorten(np.array(taken))}): choose another folder."
            )
        self.write(folder)
        return folder

    def _not_its_own(self, folder: Path) -> list[str]:
        """What this run would write, and is there already as somebody else's."""
        own = self._own_files() - run_files.files_of(folder)
        if not (folder / "run.json").exists():
            own |= {"env.json", "tables", "models"}
        return sorted(name for name in own if (folder / name).exists())

    def write(self, folder: Path, earlier: Set[str] = frozenset()) -> None:
        """Everything, in place of what this run or an earlier one had here: what `run.json` says, and `earlier`.

        Files of others that are in the way are renamed.
        """
        with storage_errors(folder, StorageError):
            folder.mkdir(parents=True, exist_ok=True)
            own, earlier = self._own_files(), run_files.files_of(folder) | earlier
            for name in sorted(own - earlier):
                run_files.set_aside(folder / name)
            if not own <= earlier and run_files.name_of(folder) in (None, self.about["run"]):
                self.write_about(folder, {}, own=earlier | own, finished=False)  # if it ends here, they are its own
            models, shared = run_files.write_models(folder, self.models, self.global_models)
            own |= {f"models/{file}" for file in (*models.values(), *shared.values())}
            run_files.forget_files(folder, earlier - own)
            self.write_tables(folder)
            if isinstance(self.labels, Labels):
                codes = self.labels.codes
                write_file(folder / run_files.LABELS, lambda file: np.save(file, codes, allow_pickle=False))
            elif self.labels is not None:
                run_files.write_by_site(folder / run_files.OWN_LABELS, self.labels)
                run_files.write_by_site(folder / run_files.OWN_CONFIDENCES, self.confidences)
            if (sure := self.consensus_confidences) is not None:
                write_file(folder / run_files.CONFIDENCES, lambda file: np.save(file, sure, allow_pickle=False))
            if self.made is not None:
                write_file(folder / run_files.MADE, self.made.to_parquet)
            if self.opinion is not None:
                told = self.opinion if self.made is None else about(self.opinion, self.made)
                write_file(folder / run_files.OPINION, told.to_parquet)
            self.write_about(folder, models, shared, own, finished=True)

    def _own_files(self) -> set[str]:
        """Which of the files that not every run has this one writes."""
        common = isinstance(self.labels, Labels)
        there = {
            run_files.LABELS: common,
            run_files.OWN_LABELS: self.labels is not None and not common,
            run_files.OWN_CONFIDENCES: self.labels is not None and not common,
            run_files.CONFIDENCES: self.consensus_confidences is not None,
            run_files.MADE: self.made is not None,
            run_files.OPINION: self.opinion is not None,
            run_files.VERDICT: self.known_verdict is not None,
            run_files.STUDY: self.study is not None,
        }
        return {name for name, written in there.items() if written}

    def report(self, path: str | Path) -> Path:
        """Write a report as one self-contained HTML file, to read or print."""
        from collegium.reports.html import render_report

        file = Path(path)
        text = render_report(self).encode()
        with storage_errors(file, StorageError):
            file.parent.mkdir(parents=True, exist_ok=True)
            write_file(file, lambda out: out.write(text))
        return file

    def write_tables(self, folder: Path) -> None:
        """The tables alone, as Parquet."""
        (folder / "tables").mkdir(parents=True, exist_ok=True)
        tables = {name: getattr(self, name) for name in (*TABLES, "class_counts")}
        if self.known_verdict is not None:
            tables["verdict"] = self.known_verdict
        for name in tables:
            write_file(folder / "tables" / f"{name}.parquet", lambda file, n=name: tables[n].to_parquet(file))

    def write_about(
        self,
        folder: Path,
        models: dict[str, str],
        shared: dict[str, str] | None = None,
        own: Set[str] = frozenset(),
        *,
        finished: bool,
    ) -> None:
        """What the run is, and which files belong to it."""
        about = {"format": run_files.FORMAT, "finished": finished, "about": self.about, "models": models}
        about |= {"global": shared or {}, "classes": self.classes.tolist(), "incomplete": self.incomplete}
        written = {run_files.STUDY} if self.study is not None else set()
        about["files"] = sorted(own | written)
        texts = {"run.json": json.dumps(about, indent=1), "env.json": json.dumps(self.environment, indent=1)}
        if self.study is not None:
            texts[run_files.STUDY] = self.study
        for name, text in texts.items():
            write_file(folder / name, lambda file, t=text: file.write(t.encode()))


def _in_order(rows: list[dict[str, Any]], parties: list[str]) -> list[dict[str, Any]]:
    """Rows by round, then by party in the sites' order: replies come in any order."""
    order = {party: number for number, party in enumerate(parties)}
    return sorted(rows, key=lambda row: (row["round"], order.get(row["party"], len(order))))
