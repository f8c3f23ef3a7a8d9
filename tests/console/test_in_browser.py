"""The foundation in a real browser."""

from __future__ import annotations

from tests.console.browsing import REBOUND, in_browser, together

pytestmark = [in_browser, together]


def test_a_link_becomes_a_cookie_that_scripts_cannot_read(console, tab):
    tab.page.goto(console.link())
    tab.page.wait_for_url(f"http://127.0.0.1:{console.port}/")
    assert tab.page.locator("h1").inner_text() == "A page"
    (cookie,) = tab.context.cookies()
    assert (cookie["httpOnly"], cookie["sameSite"]) == (True, "Strict")
    assert tab.page.evaluate("document.cookie") == ""
    assert tab.complaints == []


def test_scripts_that_were_slipped_in_do_not_run(console, tab):
    tab.page.goto(console.link())
    tab.page.wait_for_url("**/")
    tab.page.goto(f"http://127.0.0.1:{console.port}/?name=<script>window.hurt=1</script><img src=x onerror=hurt=1>")
    assert "<script>" in tab.page.locator("h1").inner_text()
    assert tab.page.evaluate("window.hurt") is None
    assert tab.complaints == []
    # Even mark-up that got into the page would not run: the policy forbids it.
    with tab.page.expect_console_message(lambda message: "Content Security Policy" in message.text):
        tab.page.evaluate("document.querySelector('h1').innerHTML = '<img src=/x onerror=\"window.hurt=1\">'")
    assert tab.page.evaluate("window.hurt") is None


def test_a_name_that_was_pointed_here_gets_nothing_and_uses_no_link_up(console, tab):
    link = console.link()
    for path in ("/", "/static/console.js", link.partition(f":{console.port}")[2]):
        answer = tab.page.goto(f"http://{REBOUND}:{console.port}{path}")
        assert (answer.status, tab.context.cookies()) == (421, [])
        assert "does not answer to that name" in tab.page.inner_text("body")
    tab.page.goto(link)
    tab.page.wait_for_url(f"http://127.0.0.1:{console.port}/")
    assert tab.page.locator("h1").inner_text() == "A page"


def test_a_form_acts_through_the_page(console, tab):
    tab.page.goto(console.link())
    tab.page.get_by_label("What").fill("stop")
    with tab.page.expect_response("**/act") as sent:
        tab.page.get_by_role("button", name="Act").press("Enter")
    assert sent.value.status == 200
    assert sent.value.text().startswith("did stop")


def test_the_first_stop_of_a_keyboard_skips_to_the_content(console, tab):
    tab.page.goto(console.link())
    tab.page.wait_for_url("**/")
    tab.page.keyboard.press("Tab")
    assert tab.page.evaluate("document.activeElement.className") == "skip"
    tab.page.keyboard.press("Enter")
    assert tab.page.evaluate("document.activeElement.id") == "main"


def test_axe_finds_nothing_serious(console, tab):
    tab.page.goto(console.link())
    tab.page.wait_for_url("**/")
    assert tab.findings("minor", "moderate", "serious", "critical") == []
    tab.page.evaluate("document.querySelector('input[name=what]').removeAttribute('aria-label')")
    assert tab.findings(), "axe would see it"
