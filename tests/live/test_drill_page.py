"""A drill's page: played to its end in Chromium, without a word of the truth before; and what its server refuses."""

from __future__ import annotations

import json
import re
import signal
import subprocess
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from drills.play.client import Remote
from testbed.base.errors import UserError
from testbed.machine import ownership
from tests.parts.machine import ROOT, TESTBED, cli, fabric_ids, traces, wait_until
from tests.parts.pages import Server, builds, chromium, page_in, serving

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page, Response

DRILL, SEED = "lost/dirty-optics", "7Q4"


@pytest.fixture(scope="module", params=builds())
def browser(request: pytest.FixtureRequest) -> Iterator[Browser]:
    with chromium(request.param) as browser:
        yield browser


@pytest.fixture
def server() -> Iterator[Server]:
    """Of a drill that is over when the test is."""
    before = set((ROOT / "results/drills").glob("*.log"))
    with serving("drill", "serve", DRILL, "--web", "--seed", SEED, "--player", "nobody") as server:
        yield server
    fabric = server.said["fabric"]
    with suppress(UserError):  # it has ended
        Remote(fabric).close()
    wait_until(lambda: _gone(fabric), "the drill's fabric to be gone")
    for log in set((ROOT / "results/drills").glob("*.log")) - before:
        log.unlink()
    assert traces(fabric) == []


def _gone(fabric: str) -> bool:
    """One that is dead is cleaned: what counts is that it is gone, its own process may be quicker."""
    if any(record.id == fabric and record.state == "dead" for record in ownership.fabrics()):
        subprocess.run([*TESTBED, "clean", fabric], capture_output=True, cwd=ROOT, timeout=300, check=False)
    return fabric not in fabric_ids()


def typed(page: Page, line: str) -> None:
    page.locator("#line").fill(line)
    page.locator("#line").press("Enter")
    page.locator("#said .typed", has_text=f"> {line}").wait_for()
    page.locator("#line:enabled").wait_for()


def test_it_is_played_to_its_end_and_tells_nothing_before(browser: Browser, server: Server) -> None:
    heard: list[Response] = []
    with page_in(browser) as page:
        page.on("response", lambda response: heard.append(response))
        page.goto(server.url)
        page.locator("#tables table").wait_for()
        assert page.locator("#said .typed").count() == 0, "the player has typed nothing"
        assert page.locator(".half.l1, .half.l2, .half.l3").count() > 8, "the drawing has colours before time goes on"
        page.locator("#period", has_text="since the beginning, as the clock has not gone on yet: ").wait_for()
        typed(page, "advance 1 step")
        page.get_by_text(re.compile(r"^steps [\d.]+ us$")).wait_for()
        page.locator("#period", has_text="since the clock last stood: ").wait_for()
        with page_in(browser) as later:
            later.goto(server.url)
            later.locator("#period", has_text="since the beginning: ").wait_for()
        page.locator("#line").fill("show interfaces sta")
        page.locator("#line").press("Tab")
        wait_until(lambda: page.locator("#line").input_value() == "show interfaces status ", "the line to be completed")
        page.locator("#line").press("Enter")
        page.get_by_text("show interfaces status, at").wait_for()
        assert page.locator("#views").input_value() == "show interfaces status"
        typed(page, "show nics --changed 300us")
        chosen = [page.locator(field).input_value() for field in ("#views", "#options")]
        assert chosen == ["show nics", "--changed 300us"]
        typed(page, "advance 1us")
        lines, said = (page.locator(what).all_inner_texts() for what in ("#said .typed", "#said pre"))
        with page_in(browser) as anew:
            anew.goto(server.url)
            anew.locator("#tables table").wait_for()
            assert anew.locator("#said .typed").all_inner_texts() == lines and len(lines) == 4, "all of it is there"
            assert anew.locator("#said pre").all_inner_texts() == said
            anew.locator("#line").press("ArrowUp")
            assert anew.locator("#line").input_value() == "advance 1us"
        page.locator("#when", has_text="the clock has gone on since").get_by_role("button", name="look again").click()
        page.locator("#when:not(:has(button))").wait_for()
        page.get_by_role("button", name="cable leaf0-spine0").press("Enter")
        page.locator("#views").select_option("show interfaces status")
        page.get_by_role("button", name="its counters").click()
        wait_until(lambda: page.locator("#tables tbody tr").count() == 2, "the rows of both ends of the cable")
        page.get_by_role("button", name="answer: cable:leaf0-spine0").click()
        page.get_by_label("Class").select_option("loss")
        where = page.get_by_role("button", name="Submit").bounding_box()
        page.get_by_role("button", name="Submit").click()
        before = b"".join(response.body() for response in heard if "/api/" in response.url)
        at = page.get_by_role("button", name="It counts: press again").bounding_box()
        assert at == where, "the mouse is still over it"
        page.get_by_role("button", name="It counts: press again").click()
        page.locator("#verdict", has_text="not right").or_(page.locator("#report")).wait_for()
        page.locator("#said .typed", has_text="> submit loss@cable:leaf0-spine0").wait_for()
        page.locator("#line:enabled").wait_for()
        if page.locator("#report").count() == 0:
            typed(page, "give-up")
        report = page.locator("#report").inner_text()
    assert "show nics" in report and "show interfaces counters" not in report
    assert not re.search(r"actions( \(|$)", report, re.M), "what the page asks for by itself is no look"
    truth = re.search(r"loss@(cable:\S+)", report)
    assert truth, report
    for word in (f"loss@{truth[1]}", "truth", "inject", '"fault"', "rate", "dirty"):
        found = before.find(word.encode())
        assert word == "rate" or found < 0, before[max(0, found - 80) : found + 80]
    assert server.end()[0] == 0


def test_the_instructor_has_a_page_that_the_player_cannot_open(browser: Browser, server: Server) -> None:
    url = server.said["instructor"]
    for path in ("/instruct/", "/instruct/api/watch", "/instruct/static/style.css"):
        assert server.ask(path)[0] == 403  # with the player's cookie
    assert server.ask(f"/instruct/?token={server.entry.partition('token=')[2]}")[0] == 403
    with page_in(browser) as player, page_in(browser) as page:
        player.goto(server.url)
        player.locator("#tables table").wait_for()
        page.goto(url)
        page.locator("#truth", has_text="@").or_(page.locator("#truth", has_text="healthy")).wait_for()
        page.get_by_role("button", name="Pause").click()
        page.get_by_role("button", name="Resume").wait_for()
        typed(player, "advance 1 step")
        player.locator("#said .bad", has_text="paused").wait_for()
        page.locator("#said .typed", has_text="> advance 1 step").wait_for()
        page.get_by_role("button", name="Resume").click()
        page.locator("#words").fill("look at <b>leaf1</b>")
        page.get_by_role("button", name="Give it as a hint").click()
        player.locator("#messages", has_text="look at <b>leaf1</b>").wait_for()
        assert page.get_by_role("button", name="Put it in").is_disabled()
        page.get_by_label("Class").select_option("long_cable")
        assert "delay=" in (page.get_by_label("Parameters").get_attribute("placeholder") or "")
        page.get_by_label("Place").fill("cable:leaf1-spine1")
        page.get_by_label("Parameters").fill("delay=3us")
        page.get_by_role("button", name="Put it in").click()
        page.locator("#truth", has_text="long_cable@cable:leaf1-spine1").wait_for()


def test_its_server_refuses_what_no_page_sends_and_ends_with_the_drill(server: Server) -> None:
    line = json.dumps({"line": "show job"}).encode()
    assert server.ask("/api/command", "POST", line, Cookie="")[0] == 403
    assert server.ask("/api/command", "POST", line, Origin="http://evil.example")[0] == 403
    assert server.ask("/api/command", "POST", b"[]")[0] == 400
    assert server.ask("/api/command", "POST", b"[" * 60_000)[0] == 400
    assert server.ask("/api/command", "POST", json.dumps({"line": "x" * 5000}).encode())[0] == 400
    assert server.ask("/api/command")[0] == 405
    told = server.json("/api/command", method="POST", body=b'{"line": "show nothing"}')
    assert (told["ok"], told["error"]["what"]) == (False, told["text"].partition(": ")[2].splitlines()[0])
    assert "topology" not in server.json("/api/state")
    for path in ("/api/truth", "/instruct", "/static/../student.py"):
        assert server.ask(path)[0] == 404
    assert "interfaces" in server.json("/api/complete?line=show+in")
    holder = next(record.owner for record in ownership.fabrics() if record.id == server.said["fabric"])
    assert holder
    holder.signal(signal.SIGKILL)
    code, said, _ = server.ended()
    assert (code, "has ended" in said) == (1, True), said


def test_what_cannot_be_served_is_said(tmp_path: Path) -> None:
    assert "served how?" in cli("drill", "serve", DRILL, "--json", code=2)
    assert "are for a new drill" in cli("drill", "serve", "--web", "--exam", "--json", code=2)
    assert "no-such" in cli("drill", "serve", "no-such", "--web", "--json", code=2)
