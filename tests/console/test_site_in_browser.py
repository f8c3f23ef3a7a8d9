"""The hospital's page in a real browser: an officer reads, decides, pauses; scripts in names stay text."""

from __future__ import annotations

from typing import Any

from tests.console.browsing import Tab, in_browser, together
from tests.console.site_kits import EVIL, RUN, evil_words
from tests.waiting import seconds

from collegium.console.serving import Console
from collegium.flare.agreement.planning import Plan
from collegium.flare.site.desk import Desk

pytestmark = [in_browser, together]


def enter(console: Console, tab: Tab) -> Any:
    tab.page.set_default_timeout(seconds(30) * 1000)
    tab.page.goto(console.link())
    tab.page.wait_for_url("**/")
    return tab.page


def read_plan(console: Console, tab: Tab) -> Any:
    page = enter(console, tab)
    page.get_by_role("link", name="Read it and decide").click()
    page.get_by_role("button", name="Approve and sign").wait_for(timeout=seconds(120) * 1000)
    return page


def test_an_officer_reads_a_plan_and_approves_it(
    site_console: Console, tab: Tab, made: tuple[Desk, Plan], plan: Plan
) -> None:
    enter(site_console, tab)
    tab.picture("site-console", full_page=True)  # before other tests have decided anything
    page = read_plan(site_console, tab)
    assert tab.findings() == []
    tab.picture("site-plan", full_page=True)
    before = page.locator("#after").inner_text()
    page.get_by_label("How many runs may begin").fill("3")
    page.get_by_label("How many runs may begin").press("Tab")
    page.locator("#after", has_text="after 3 runs").wait_for()
    assert page.locator("#after").inner_text() != before
    form = page.locator("form.decision").first
    form.get_by_label("Reason", exact=True).fill("ethics board of 3 May")
    form.get_by_label("Your name").fill("A. Officer")
    for box in form.get_by_role("checkbox").all():
        box.check()
    form.get_by_role("button", name="Approve and sign").click()
    page.wait_for_url("**/")
    assert "3 of 3 runs left" in page.locator("#plans").inner_text()
    assert "ethics board of 3 May" in page.locator("#decisions").inner_text()
    approval = made[0].approvals.approval(plan.digest)
    assert approval is not None
    assert approval.runs == 3
    assert page.evaluate("window.hurt") is None
    assert tab.complaints == []


def test_an_officer_denies_a_plan_and_the_reason_is_only_text(
    site_console: Console, tab: Tab, made: tuple[Desk, Plan], plan: Plan
) -> None:
    page = read_plan(site_console, tab)
    form = page.locator("form.decision").last
    form.get_by_label("Reason", exact=True).fill(EVIL)
    form.get_by_label("Your name").fill("A. Officer")
    form.get_by_role("button", name="Deny and sign").click()
    page.wait_for_url("**/")
    assert EVIL in page.locator("#plans").inner_text()
    assert page.evaluate("window.hurt") is None
    assert made[0].approvals.denial(plan.digest) is not None
    assert tab.complaints == []


def test_scripts_in_the_names_of_studies_and_steps_stay_text(
    site_console: Console, tab: Tab, made: tuple[Desk, Plan], plan: Plan
) -> None:
    with evil_words(made[0], plan):
        page = enter(site_console, tab)
        assert EVIL in page.locator("#waiting").inner_text()
        assert EVIL in page.locator("#refusals").inner_text()
        assert page.evaluate("window.hurt") is None
        assert page.locator("main img").count() == 0
    assert tab.complaints == []


def test_what_happens_at_the_site_shows_without_a_reload(
    site_console: Console, tab: Tab, made: tuple[Desk, Plan], plan: Plan
) -> None:
    page = enter(site_console, tab)
    page.locator("body[data-state=connected]").wait_for()
    assert "Read it and decide" in page.locator("#waiting").inner_text()
    made[0].approvals.deny(plan.digest, reason="by another officer")
    page.locator("#waiting", has_text="Nothing waits for a decision").wait_for()
    assert "by another officer" in page.locator("#plans").inner_text()
    assert tab.complaints == []


def test_the_site_is_paused_and_resumed(site_console: Console, tab: Tab, made: tuple[Desk, Plan], plan: Plan) -> None:
    page = enter(site_console, tab)
    page.get_by_role("link", name="Pause the site").click()
    page.get_by_label("Reason").fill("audit")
    page.get_by_label("Your name").fill("A. Officer")
    page.get_by_role("button", name="Pause the site").click()
    page.wait_for_url("**/")
    assert "The site is paused" in page.locator("#live").inner_text()
    assert made[0].pause is not None
    assert tab.findings() == []
    page.get_by_role("link", name="Resume the site").click()
    page.get_by_role("button", name="Resume the site").click()
    page.wait_for_url("**/")
    assert made[0].pause is None


def test_no_page_has_a_serious_finding_in_light_dark_or_on_a_phone(
    site_console: Console, browser: Any, plan: Plan
) -> None:
    looks = [{"color_scheme": "dark"}, {"viewport": {"width": 390, "height": 800}}]
    for look in looks:
        tab = Tab(browser, **look)
        page = enter(site_console, tab)
        base = page.url
        if "color_scheme" in look:
            shade = page.evaluate("getComputedStyle(document.body).backgroundColor")
            assert sum(map(int, shade.removeprefix("rgb(").removesuffix(")").split(","))) < 150
            tab.picture("site-console-dark")
        for path in ("", "pause", f"runs/{RUN}"):
            page.goto(base + path)
            assert tab.findings() == [], path
            wide = page.evaluate("document.documentElement.scrollWidth - document.documentElement.clientWidth")
            assert wide <= 0, f"{path} scrolls to the side"
        tab.close()


def test_a_wrong_token_shows_one_line(site_console: Console, tab: Tab) -> None:
    tab.page.goto(f"http://127.0.0.1:{site_console.port}/?token=wrong")
    assert "collegium site console" in tab.page.locator("body").inner_text()
    assert "HardLabels" not in tab.page.content()
