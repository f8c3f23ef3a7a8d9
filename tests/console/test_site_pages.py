"""The hospital's page against browsers that may not, coordinators that write scripts, and plans that change."""

from __future__ import annotations

import html
import os
import re
from datetime import timedelta
from pathlib import Path

import pytest

pytest.importorskip("starlette")

from tests.console.browsing import together
from tests.console.site_kits import EVIL, RUN, another, evil_words, make_kit
from tests.console.visiting import Visitor
from tests.waiting import until

from collegium.console.serving import Console
from collegium.console.site_pages import SitePages
from collegium.errors import ConfigError
from collegium.flare.agreement.approvals import today
from collegium.flare.agreement.planning import Plan
from collegium.flare.site.desk import Desk, open_desk
from collegium.flare.site.export import verify_export

pytestmark = together


@pytest.fixture(scope="module")
def owner(site_console: Console) -> Visitor:
    return Visitor.of(site_console)


def fields(owner: Visitor, plan: Plan, /, **changes: str) -> dict[str, str]:
    """What the page's form would send, once the plan was explained."""
    page = ""

    def explained() -> bool:
        nonlocal page
        page = owner.get(f"/plans/{plan.digest}").text
        return 'name="seen"' in page

    until(explained, 240)
    found = {name: re.findall(rf'name="{name}" value="([^"]+)"', page)[0] for name in ("csrf", "plan", "seen")}
    last = (today() + timedelta(days=3)).isoformat()
    given = {"runs": "2", "until": last, "reason": "board of 3 May", "by": "A. Officer", "read": "yes"}
    return found | given | changes


def test_the_page_shows_what_left_and_never_a_script(owner: Visitor, made: tuple[Desk, Plan], plan: Plan) -> None:
    with evil_words(made[0], plan):
        page = owner.get("/").text
    assert "<img" not in page
    assert "<script>" not in page
    assert page.count(html.escape(EVIL)) >= 2, "the name of a study, and of a step"
    for words in ("Waiting for you", "HardLabels", "larger than the site allows", "not joined", "of 8"):
        assert words in page


def test_a_plan_says_what_leaves_how_often_and_what_is_left_after(owner: Visitor, plan: Plan) -> None:
    fields(owner, plan)
    page = owner.get(f"/plans/{plan.digest}").text
    assert "One class per public sample" in page
    assert "randomized_response" in page
    assert "left after" in page
    one, two = (owner.get(f"/plans/{plan.digest}/after?runs={runs}").text for runs in (1, 2))
    spent = [float(re.findall(r"after .*?epsilon ([0-9.]+)", text)[0]) for text in (one, two)]
    assert spent[1] > spent[0] > 0
    assert owner.get(f"/plans/{plan.digest}/after?runs=x").status == 409


def test_an_approval_is_signed_for_what_was_shown(owner: Visitor, made: tuple[Desk, Plan], plan: Plan) -> None:
    sent = fields(owner, plan)
    assert owner.post(f"/plans/{plan.digest}/approve", sent).status == 303
    approval = made[0].approvals.approval(plan.digest)
    assert approval is not None
    assert (approval.runs, approval.reason, approval.by) == (2, "board of 3 May", "A. Officer")
    assert made[0].approvals.journal.entries()[-1].act == "approved"


@pytest.mark.parametrize("act", ["approve", "deny"])
@pytest.mark.parametrize(
    ("change", "status"),
    [
        ({"csrf": ""}, 403),
        ({"csrf": "x"}, 403),
        ({"seen": "0" * 64}, 409),
        ({"plan": "0" * 64}, 409),
        ({"reason": " "}, 409),
    ],
    ids=str,
)
def test_a_form_that_is_not_the_pages_decides_nothing(
    owner: Visitor, made: tuple[Desk, Plan], plan: Plan, act: str, change: dict[str, str], status: int
) -> None:
    assert owner.post(f"/plans/{plan.digest}/{act}", fields(owner, plan, **change)).status == status
    assert made[0].approvals.pending() == [plan]


def test_a_plan_that_came_in_the_place_of_another_is_not_approved(
    owner: Visitor, made: tuple[Desk, Plan], plan: Plan
) -> None:
    other, approvals = another(plan, 7), made[0].approvals
    sent = fields(owner, plan)
    approvals.propose(other)
    try:
        owner.get(f"/plans/{other.digest}")
        assert owner.post(f"/plans/{other.digest}/approve", sent).status == 409
        file = made[0].agent / "plans" / f"{plan.digest}.json"
        kept = file.read_bytes()
        file.write_text(other.to_json())
        assert owner.post(f"/plans/{plan.digest}/approve", sent).status == 409, "another plan under that name"
        file.write_bytes(kept)
        assert approvals.approval(plan.digest) is None
        assert approvals.approval(other.digest) is None
    finally:
        approvals.withdraw(other.digest)


@pytest.mark.parametrize(
    "change", [{"runs": "0"}, {"runs": "1e3"}, {"until": "2000-01-01"}, {"until": "soon"}, {"read": ""}], ids=str
)
def test_terms_that_make_no_sense_are_said_on_the_page(
    owner: Visitor, made: tuple[Desk, Plan], plan: Plan, change: dict[str, str]
) -> None:
    sent = fields(owner, plan, **change)
    answer = owner.post(f"/plans/{plan.digest}/approve", sent)
    doubts = "I have read the warnings" in owner.get(f"/plans/{plan.digest}").text
    if change == {"read": ""} and not doubts:
        return
    assert (answer.status, 'role="alert"' in answer.text) == (409, True)
    assert made[0].approvals.pending() == [plan]


@pytest.mark.parametrize("tell", [False, True])
def test_a_denial_tells_the_coordinator_why_only_if_ticked(
    owner: Visitor, made: tuple[Desk, Plan], plan: Plan, tell: bool
) -> None:
    sent = fields(owner, plan, reason=EVIL) | ({"tell": "yes"} if tell else {})
    assert owner.post(f"/plans/{plan.digest}/deny", sent).status == 303
    denial = made[0].approvals.denial(plan.digest)
    assert denial is not None
    assert (denial.reason, denial.told) == (EVIL, tell)
    assert "<img" not in owner.get("/").text


def test_a_guest_sees_everything_and_changes_nothing(
    site_console: Console, owner: Visitor, made: tuple[Desk, Plan], plan: Plan
) -> None:
    sent, guest = fields(owner, plan), Visitor.of(site_console, "guest")
    page = guest.get(f"/plans/{plan.digest}").text
    assert "Only the owner of this site can decide" in page
    assert "<form" not in page + guest.get("/").text + guest.get("/pause").text
    for path in (f"/plans/{plan.digest}/approve", f"/plans/{plan.digest}/deny", "/pause/begin", f"/runs/{RUN}/end"):
        assert guest.post(path, sent).status == 403
    assert made[0].approvals.pending() == [plan]
    assert made[0].pause is None


def test_without_a_token_with_anothers_and_under_another_name_there_is_no_page(
    site_console: Console, owner: Visitor, tmp_path: Path
) -> None:
    stranger = Visitor(site_console)
    for path in ("/", "/live", "/events", "/pause", f"/runs/{RUN}", "/export/json"):
        assert stranger.get(path).status == 403
        assert owner.get(path if path != "/events" else "/", Host="evil.example").status == 421
    desk, _ = make_kit(tmp_path)
    pages = SitePages(desk.kit)
    with Console(pages.routes, "collegium site console north").in_background() as other:
        foreign = Visitor.of(other)
        assert Visitor(site_console, dict(foreign.headers)).get("/").status == 403, "somebody else's token"
    pages.close()


def test_a_pause_needs_the_form_and_is_seen_by_everybody(owner: Visitor, made: tuple[Desk, Plan]) -> None:
    token = owner.csrf("/pause")
    assert owner.post("/pause/begin", {"reason": "audit", "by": "A"}).status == 403
    assert made[0].pause is None
    assert owner.post("/pause/begin", {"csrf": token, "reason": "audit", "by": "A"}, Origin="http://evil").status == 403
    assert owner.post("/pause/begin", {"csrf": token, "reason": EVIL, "by": "A"}).status == 303
    page = owner.get("/").text
    assert "The site is paused" in page
    assert "<img" not in page
    assert owner.post("/pause/sideways", {"csrf": token}).status == 409
    assert owner.post("/pause/end", {"csrf": token}).status == 303
    assert made[0].pause is None
    assert owner.post("/pause/end", {"csrf": token}).status == 409


def test_an_order_is_decided_on_as_it_was_shown(owner: Visitor, made: tuple[Desk, Plan]) -> None:
    orders = made[0].approvals.orders
    orders.propose(RUN, 5, "1" * 64, steps=[EVIL], kinds=["HardLabels"])
    path = f"/orders/{RUN}/5"
    assert "<img" not in owner.get(path).text
    sent = {"csrf": owner.csrf(path), "order": "2" * 64, "reason": "no", "by": "A"}
    assert owner.post(f"{path}/approve", sent).status == 409, "another order under that number"
    assert owner.post(f"{path}/deny", sent | {"order": "1" * 64}).status == 303
    assert orders.denied(RUN, 5, "1" * 64)
    assert owner.get(path).status == 409


def test_exports_are_signed_and_hold_no_row(owner: Visitor, made: tuple[Desk, Plan], tmp_path: Path) -> None:
    for form in ("json", "html"):
        answer = owner.get(f"/export/{form}")
        assert answer.headers["content-disposition"].startswith("attachment")
        (tmp_path / form).write_text(answer.text, newline="")
        assert verify_export(tmp_path / form, made[0].keys.identity).site == "north"
    assert owner.get("/export/exe").status == 409
    row = (made[0].kit / "train.csv").read_text().splitlines()[1]
    value = next(each for each in row.split(",") if len(each) > 5)
    pages = [owner.get(path).text for path in ("/", f"/runs/{RUN}", "/export/json", "/export/html")]
    assert not any(value in page for page in pages)


@pytest.mark.parametrize(
    "path", ["/plans/x", f"/plans/{'0' * 64}", "/plans/..%2f..", "/runs/none", f"/orders/{RUN}/99"]
)
def test_what_is_not_there_is_one_line(owner: Visitor, path: str) -> None:
    answer = owner.get(path)
    assert answer.status in (404, 409)
    assert "Traceback" not in answer.text


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a folder to somebody else")
def test_a_kit_of_somebody_else_is_not_opened(tmp_path: Path) -> None:
    desk, _ = make_kit(tmp_path)
    os.chown(desk.agent, 12345, 12345)
    with pytest.raises(ConfigError, match="belongs to another user"):
        open_desk(desk.kit)


def test_a_key_that_others_can_read_and_kits_that_are_none_are_one_line(tmp_path: Path) -> None:
    desk, _ = make_kit(tmp_path)
    (desk.agent / "identity.key").chmod(0o644)
    with pytest.raises(ConfigError, match="Other users can read"):
        open_desk(desk.kit)
    with pytest.raises(ConfigError, match="not found"):
        open_desk(tmp_path / "none")
    (desk.kit / "startup").mkdir()
    (desk.kit / "startup" / "fed_server.json").write_text("{}")
    with pytest.raises(ConfigError, match=r"a kit for a server.* use it with `collegium server start`"):
        open_desk(desk.kit)


def test_a_folder_without_a_site_file_is_one_line_that_says_how_a_kit_comes_about(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"no site file .*site\.toml: this is no kit .*`collegium provision`") as none:
        open_desk(tmp_path)
    assert "\n" not in str(none.value)
    (tmp_path / "startup").mkdir()
    (tmp_path / "startup" / "fed_client.json").write_text("{}")
    with pytest.raises(ConfigError, match=f"`collegium site init {tmp_path}` writes one"):
        open_desk(tmp_path)
