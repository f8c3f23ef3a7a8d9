"""Before its owner has agreed to a plan, nothing that a site answers depends on its private rows."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from tests.flare.offices import open_office, write_data, write_site
from tests.flare.talk import RUN, code_of, frame, give, open_run, say

from collegium import wire
from collegium.algorithms import fedct
from collegium.core.scores import score
from collegium.errors import ConfigError
from collegium.flare.agreement.planning import Plan, plan_of, review
from collegium.flare.site.agreed import planned_run
from collegium.flare.site.office import Office
from collegium.flare.site.public_store import pack_public
from collegium.study.study import Study

DP = 'requires = "dp"\nunprotected = []\n[budget]\nepsilon = 2.0'
CLASSES = np.array(["benign", "malignant"])


@pytest.fixture(scope="module")
def plan(public: Any) -> Plan:
    study = {"name": "t", "data": {"source": "public.csv"}, "algorithm": {"name": "fedct", "rounds": 1}}
    study |= {"federation": {"classes": CLASSES.tolist()}}
    return plan_of(Study.from_dict(study), public, CLASSES, ["site-1"])


def kit_with(folder: Path, change: str, policy: str = DP) -> Path:
    """A site's kit; the same one each time, but for its rows."""
    write_data(folder, ["site-1"], rows=120)
    kit = folder / "site-1"
    rows = pd.read_csv(kit / "train.csv")
    if change == "rare":
        rows.loc[[3, 77], "diagnosis"] = "hiv"
    elif change == "gaps":
        rows.loc[3, "mean radius"] = np.nan
    elif change == "fewer":
        rows = rows.iloc[1:]
    elif change == "one class":
        rows["diagnosis"] = "benign"
    rows.to_csv(kit / "train.csv", index=False)
    learner = {"learner": "private_voting", "settings": ", teachers = 10"} if policy == DP else {}
    write_site(kit, "site-1", approval="plan", policy=policy, **learner)
    return kit


def answers(office: Office, plan: Plan, public: Any) -> list[Any]:
    """All that a coordinator can say before anybody has signed; who answers is known anyway."""
    data, opened = pack_public(public), {"do": "open", "run": RUN}
    words: list[tuple[dict[str, Any], bytes]] = [
        ({"do": "hello"}, b""),
        (opened, wire.pack(plan.to_plain()).data),
        ({"do": "public", "run": RUN, "sha256": plan.public_sha256, "offset": 0, "total": len(data)}, data),
        (opened, wire.pack(plan.to_plain()).data),
        ({"do": "order", "run": RUN, "order": "a", "wait": 1.0}, frame(1, fedct.label(), sha256=plan.public_sha256)),
        *(({"do": what, "run": RUN, "order": "a", "wait": 1.0}, b"") for what in ("await", "cancel", "close")),
    ]
    heard = [say(office, payload, **header) for header, payload in words]
    heard[0][0].pop("instance")
    return heard


@pytest.mark.parametrize("policy", [DP, ""], ids=["dp", "plain"])
@pytest.mark.parametrize("change", ["rare", "gaps", "fewer", "one class"])
def test_a_coordinator_cannot_ask_about_rows_before_approval(
    change: str, policy: str, tmp_path: Path, plan: Plan, public: Any
) -> None:
    heard = [
        answers(open_office(kit_with(tmp_path / each, each, policy)), plan, public) for each in ("as it is", change)
    ]
    assert heard[0] == heard[1]
    assert [code_of(header) for header, _ in heard[0]][3:] == ["waiting"] + 4 * ["not-open"]


def test_a_site_that_requires_privacy_does_not_tell_of_a_class_after_approval_either(
    tmp_path: Path, plan: Plan, public: Any
) -> None:
    heard = []
    for change in ("as it is", "rare"):
        kit = kit_with(tmp_path / change, change)
        office = open_office(kit)
        assert open_run(office, plan, public) == "waiting"
        office._approvals.approve(plan.digest)
        assert open_run(office, plan, public) == "open"
        asked = frame(1, fedct.train(None, None, None), fedct.label(), sha256=plan.public_sha256)
        heard.append(code_of(give(office, asked)))
        shown = " ".join(each.why for each in review(plan, office._setup.file, office._setup).verdicts)
        assert ("rows are left out" in shown) is (change == "rare"), "its owner is told"
        assert ("leaves out" in (kit / "agent" / "site.log").read_text()) is (change == "rare")
    assert heard == ["HardLabels", "HardLabels"]


def test_a_plan_of_one_class_is_taken_whether_the_site_has_it_or_not(tmp_path: Path, public: Any) -> None:
    asked = np.array(["hiv", "no such class"])
    study = {"name": "t", "data": {"source": "public.csv"}, "algorithm": {"name": "fedct", "rounds": 1}}
    plan = plan_of(Study.from_dict(study | {"federation": {"classes": asked.tolist()}}), public, asked, ["site-1"])
    heard = []
    for change in ("as it is", "rare"):
        kit = kit_with(tmp_path / change, change)
        write_site(
            kit, "site-1", learner="private_torch", settings=", epsilon = 0.5, epochs = 1, batch_size = 16", policy=DP
        )
        office = open_office(kit)
        assert open_run(office, plan, public) == "open"
        orders = frame(1, fedct.train(None, None, None), fedct.label(), sha256=plan.public_sha256)
        told = give(office, orders)
        heard.append((code_of(told), told.get("privacy")))
    assert heard[0] == heard[1]


@pytest.mark.parametrize("value", [np.nan, 1e300, np.inf])
def test_held_out_rows_do_not_decide_how_an_order_or_a_score_is_refused(
    value: float, tmp_path: Path, plan: Plan, public: Any
) -> None:
    heard = []
    for change in (None, value):
        kit = kit_with(tmp_path / str(change), "as it is")
        rows = pd.read_csv(kit / "train.csv")
        if change is not None:
            rows.loc[::4, "mean radius"] = change
        rows.to_csv(kit / "train.csv", index=False)
        write_site(kit, "site-1", learner="private_torch", settings=", epsilon = 0.5, epochs = 1", policy=DP)
        office = open_office(kit)
        assert open_run(office, plan, public) == "open"
        asked = [(fedct.train(None, None, None), fedct.label()), (score(),)]
        frames = [frame(1 + place, *orders, sha256=plan.public_sha256) for place, orders in enumerate(asked)]
        heard.append([code_of(give(office, each, name=str(place))) for place, each in enumerate(frames)])
    assert heard[0] == heard[1] == ["HardLabels", "unprotected"]


def test_where_privacy_is_not_required_the_owner_agrees_before_classes_are_compared(
    tmp_path: Path, plan: Plan, public: Any
) -> None:
    office = open_office(kit_with(tmp_path, "rare", policy=""))
    assert open_run(office, plan, public) == "waiting"
    office._approvals.approve(plan.digest)
    assert open_run(office, plan, public) == "other-classes"


def test_an_owner_looks_into_a_plan_before_signing_it(tmp_path: Path, plan: Plan, public: Any) -> None:
    kit = kit_with(tmp_path, "rare")
    with pytest.raises(ConfigError, match="No plan is waiting"):
        planned_run(kit)
    office = open_office(kit)
    open_run(office, plan, public)
    found = planned_run(kit)
    assert found.plan == plan
    assert repr(found.algorithm) == repr(
        Study.from_dict({"data": {"source": "x"}, "algorithm": plan.algorithm}).build_algorithm()
    )
    assert set(found.site.y) == set(CLASSES)
    assert found.public is not None
    assert found.public.digest == plan.public_sha256
    assert not (kit / "agent" / "runs").exists()
    assert office._approvals.pending() == [plan]
    shutil.rmtree(kit / "agent" / "public")
    with pytest.raises(ConfigError, match="is not here"):
        planned_run(kit, plan.digest)
