"""`testbed serve`: who is let in, what is answered, how it ends; and the page in Chromium."""

from __future__ import annotations

import json
import re
import signal
import socket
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from testbed.live.views import VIEWS
from tests.parts.live_fabric import wait_until
from tests.parts.machine import STAR, cli, fabric_ids, told, traces
from tests.parts.pages import Server, builds, chromium, page_in, serving

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Locator, Page, Request, Route

JOB = "name: job\nworkload: [{collective: all_reduce, sizes: [64KiB], iterations: 2}]\n"


def up(folder: Path) -> str:
    (folder / "star.yaml").write_text(STAR.replace("hosts: 3", "hosts: 4"))
    return str(json.loads(told("up", str(folder / "star.yaml"), "--virtual", "--json"))["id"])


@pytest.fixture(scope="module")
def fabric(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    fabric_id = up(tmp_path_factory.mktemp("up"))
    yield fabric_id
    told("clean", fabric_id, "--force")


@pytest.fixture(scope="module")
def server(fabric: str) -> Iterator[Server]:
    with serving("serve", fabric, "--period", "0.1") as server:
        yield server


@pytest.fixture(scope="module")
def ran(fabric: str, tmp_path_factory: pytest.TempPathFactory) -> None:
    folder = tmp_path_factory.mktemp("job")
    (folder / "job.yaml").write_text(JOB)
    told("run", str(folder / "job.yaml"), "--fabric", fabric, "--out", str(folder / "run"))


# -- who is let in


def test_it_listens_on_loopback_alone(server: Server) -> None:
    lines = [line.split() for line in Path("/proc/net/tcp").read_text().splitlines()[1:]]
    listening = [fields[1] for fields in lines if fields[3] == "0A"]
    assert [a for a in listening if a.endswith(f":{server.port:04X}")] == [f"0100007F:{server.port:04X}"]


def test_nobody_gets_in_without_the_token(server: Server) -> None:
    assert server.ask("/")[0] == 200
    wrong = f"railbed-{server.port}=guessed"
    for path in ("/", "/static/style.css", "/api/about", "/api/events", "/api/view?view=pfc"):
        for cookie in ("", wrong, server.cookie.replace(str(server.port), "80"), server.cookie[:-1], "\xff=\xfe;;"):
            assert server.ask(path, Cookie=cookie)[0] == 403, (path, cookie)
    assert server.ask("/?token=guessed", Cookie="")[0] == 403
    assert server.ask("/?token=", Cookie="")[0] == 403


def test_the_cookie_is_for_this_server_and_not_for_scripts(server: Server) -> None:
    _, headers, body = server.ask(server.entry, Cookie="")
    assert {"HttpOnly", "SameSite=strict", "Path=/"} <= set(re.split("; *", headers["set-cookie"]))
    assert b"token" not in body  # the page goes on without it, so it stays in no history of pages


@pytest.mark.parametrize("host", ["evil.example", "127.0.0.1.evil.example:80", "10.0.0.1", "", "[::2]:80"])
def test_a_name_that_leads_here_is_not_enough(server: Server, host: str) -> None:
    assert server.ask("/", Host=host)[0] == 403


def test_other_pages_are_not_answered(server: Server) -> None:
    own = f"http://127.0.0.1:{server.port}"
    mark = {"path": "/api/mark?page=x", "method": "POST", "body": b"{}"}
    assert server.ask(**mark, Origin=own)[0] == 200  # type: ignore[arg-type]
    for origin in ("http://evil.example", "null", f"https://127.0.0.1:{server.port}", "http://127.0.0.1:1"):
        assert server.ask(**mark, Origin=origin)[0] == 403, origin  # type: ignore[arg-type]
        assert server.ask("/api/about", Origin=origin)[0] == 403, origin
    assert server.ask(**mark, Sec_Fetch_Site="same-site")[0] == 403  # type: ignore[arg-type]


def test_answers_let_a_browser_load_nothing_from_elsewhere(server: Server) -> None:
    for path in ("/", "/api/about", "/static/style.css", "/nothing"):
        headers = server.ask(path)[1]
        assert "default-src 'none'" in headers["content-security-policy"]
        assert headers["x-content-type-options"] == "nosniff"
        assert "server" not in headers
    pages = Path(__file__).parents[2] / "testbed/serve/pages"
    for file in pages.rglob("*.*"):
        own = re.sub(r"http://www\.w3\.org/\d+/svg|^/\*!.*?\*/", "", file.read_text())  # a name; a licence's address
        assert file.name in ("LICENSE.txt",) or not re.search(r"https?:|url\(|@import", own), file


# -- what is answered


def test_files_outside_the_pages_are_not_served(server: Server) -> None:
    assert server.ask("/static/js/live.js")[0] == 200
    for path in ("/static/../live.py", "/static/%2e%2e/live.py", "/static/..%2f..%2fcli.py", "/static//etc/passwd",
                 "/static/js/../../guard.py", "/etc/passwd", "/static/", "/static/%00"):  # fmt: skip
        assert server.ask(path)[0] == 404, path
    for file in ("../../etc/passwd", "/etc/passwd", "fabricd.json", "experiment.json", ""):
        status, _, body = server.ask(f"/api/log?file={file}")
        assert status == 400, file
        assert "fabricd.log" in json.loads(body)["error"]["hint"]


def test_hostile_requests_are_refused_and_it_goes_on(server: Server) -> None:
    assert server.ask("/api/view?view=" + "x" * 20_000)[0] == 400
    assert server.ask("/api/view?view=no+such")[0] == 400
    assert server.ask("/api/view?view=%22")[0] == 400
    assert server.ask("/api/view?view=pfc+--changed+yesterday")[0] == 400
    assert server.json("/api/ports?of=<script>&of=leaf9:1&since=nonsense")["places"] == []
    assert server.ask("/api/mark", "POST", b"x" * 70_000)[0] == 413
    assert server.ask("/api/mark", "POST", Transfer_Encoding="chunked")[0] == 413
    assert server.ask("/api/mark")[0] == 405
    assert server.ask("/", "PUT", b"")[0] == 405
    with socket.create_connection(("127.0.0.1", server.port)) as raw:
        raw.sendall(b"GET / HTTP/1.1\r\n" + b"X: " + b"y" * 100_000 + b"\r\n\r\n")
        assert raw.recv(12).startswith(b"HTTP/1.1 4")
    for k in range(40):
        server.json(f"/api/mark?page=many{k}", method="POST", body=b"{}")
    assert server.json("/api/about")["ranks"] == 4


def test_every_view_is_there_with_its_tables(server: Server, ran: None) -> None:
    assert [view["words"] for view in server.json("/api/about")["views"]] == list(VIEWS)
    found = server.json("/api/view?view=interfaces+status")["tables"]
    assert {row["Interface"] for row in found[0]["rows"]} >= {"sw0:1", "h0"} or found[0]["rows"]
    assert server.json("/api/view?view=queues&since=up")["tables"]


def test_flows_are_the_command_s_table(server: Server, ran: None, fabric: str) -> None:
    (table,) = server.json("/api/view?view=flows+sw0")["tables"]
    assert table["rows"] == json.loads(told("show", "flows", fabric, "--switch", "sw0", "--json"))
    assert list(table["rows"][0]) == [
        "switch", "table", "priority", "match", "packets", "bytes", "fast_packets", "actions"
    ]  # fmt: skip
    assert sum(row["fast_packets"] for row in table["rows"]) > 0


def test_counters_are_those_of_fabricd_and_a_mark_counts_from_then(server: Server, ran: None, fabric: str) -> None:
    now = json.loads(told("show", "interfaces", "counters", fabric, "--json", "--period", "0.01"))
    by_name = {row["IFACE"]: row for row in now}
    (place,) = server.json("/api/ports?of=sw0:1&since=up")["places"]
    assert place["now"]["tx_frames"] == by_name["sw0:1"]["TX_OK"] > 0
    assert place["then"] == {}
    server.json("/api/mark?page=me", method="POST", body=b"{}")
    (place,) = server.json("/api/ports?of=sw0:1&since=mark&page=me")["places"]
    assert place["then"] == place["now"]


# -- how it ends


def test_a_taken_port_is_named(server: Server) -> None:
    assert f"port {server.port} is taken" in cli(
        "serve", "--port", str(server.port), "--json", server.said["fabric"], code=2
    )


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 0), (signal.SIGTERM, 143), (signal.SIGHUP, 129)])
def test_it_ends_with_a_page_open_and_leaves_nothing(fabric: str, number: int, code: int) -> None:
    before = sorted(Path("/run/railbed", fabric).rglob("*"))
    with serving("serve", fabric) as server, listening(server):
        assert server.end(number)[0] == code
    assert sorted(Path("/run/railbed", fabric).rglob("*")) == before


@contextmanager
def listening(server: Server) -> Iterator[socket.socket]:
    """A page that has events sent to it."""
    with socket.create_connection(("127.0.0.1", server.port), timeout=60) as page:
        lines = ("GET /api/events HTTP/1.1", f"Host: 127.0.0.1:{server.port}", f"Cookie: {server.cookie}", "", "")
        page.sendall("\r\n".join(lines).encode())
        assert page.recv(15) == b"HTTP/1.1 200 OK"
        yield page


@pytest.mark.parametrize("watched", [True, False])
def test_it_ends_when_the_fabric_goes_down(tmp_path: Path, watched: bool) -> None:
    fabric = up(tmp_path)
    try:
        with serving("serve", fabric, "--period", "0.1") as server:
            with listening(server) if watched else nullcontext() as page:
                told("down", fabric)
                heard = b"".join(iter(lambda: page.recv(65536), b"")) if page else b""
            assert server.ended()[0] == 0
        assert (b"event: gone" in heard) is watched
    finally:
        if fabric in fabric_ids():
            told("clean", fabric, "--force")
    assert traces(fabric) == []


# -- the page


@pytest.fixture(scope="module", params=builds())
def browser(request: pytest.FixtureRequest) -> Iterator[Browser]:
    with chromium(request.param) as browser:
        yield browser


@pytest.mark.parametrize(("width", "dark"), [(1280, False), (400, True)])
def test_the_page_shows_the_fabric(
    browser: Browser, server: Server, ran: None, fabric: str, width: int, dark: bool
) -> None:
    with page_in(browser, width, dark) as page:
        page.goto(server.url)
        page.get_by_text("stands still until a workload runs").wait_for()
        assert "token" not in page.url
        assert page.locator("[data-node]").count() == 5
        page.get_by_role("button", name="all", exact=True).click()
        assert page.locator(".half.l1, .half.l2, .half.l3, .half.l4, .half.l5").count() == 8
        page.get_by_role("button", name="cable h0-sw0").press("Enter")
        page.get_by_role("heading", name="cable h0-sw0").wait_for()
        counted = json.loads(told("show", "interfaces", "counters", fabric, "--json", "--period", "0.01"))
        frames = f"{next(row['TX_OK'] for row in counted if row['IFACE'] == 'sw0:1'):,}"
        page.locator("#details tr", has_text="tx_frames").get_by_text(frames).first.wait_for()
        assert page.locator("#details .change").count() == 0, "all of it has grown since the fabric came up"
        right = page.evaluate("document.querySelector('#details th:last-child').getBoundingClientRect().right")
        assert 0 < right <= width, "both ends are seen side by side"
        page.locator('[data-node="sw0"]').press("Enter")
        page.get_by_role("heading", name="sw0", exact=True).wait_for()
        heads = page.locator("#details th")
        page.locator("#details th", has_text="sw0:4").wait_for()
        assert heads.all_inner_texts() == ["counter", "sw0", *(f"sw0:{port}" for port in range(1, 5))]
        page.get_by_label("show").select_option("queue counters")
        page.get_by_role("columnheader", name="TxQ").first.wait_for()
        page.get_by_label("filter").fill("sw0:2")
        assert set(page.locator("#tables table").first.locator("tbody td:first-child").all_inner_texts()) == {"sw0:2"}


def press(page: Page, button: Locator) -> None:
    """As slowly as a person: the page draws newer frames while the button is down."""
    button.hover()
    page.mouse.down()
    page.evaluate(
        """() => new Promise((seen) => {
            let frames = 0;
            const events = new EventSource("api/events");
            events.addEventListener("frame", () => { if (++frames === 3) { events.close(); seen(); } });
        })"""
    )
    page.mouse.up()


def test_the_page_tells_a_controller_that_stands_still(browser: Browser, tmp_path: Path) -> None:
    fabric = up(tmp_path)
    try:
        with serving("serve", fabric, "--period", "0.1") as server, page_in(browser) as page:
            page.goto(server.url)
            chip = page.locator("#chips li", has_text="controller")
            chip.get_by_text("controller runs").wait_for()
            told("inject", "controller_hung", "--on", "controller", "--fabric", fabric)
            chip.filter(has_text="controller does not answer").and_(page.locator(".bad")).wait_for()
            page.locator("#views").select_option("controller")
            page.locator("#tables").get_by_text("no answer").first.wait_for()
            assert page.locator("#tables table").count() == 2
            told("heal", "all", "--fabric", fabric)
            page.get_by_text("controller runs").wait_for()
    finally:
        told("clean", fabric, "--force")


def test_the_page_marks_faults_and_says_when_the_fabric_is_gone(browser: Browser, tmp_path: Path) -> None:
    fabric = up(tmp_path)
    try:
        with serving("serve", fabric, "--period", "0.1") as server, page_in(browser, gone=True) as page:
            page.goto(server.url)
            told("inject", "cable_down", "--on", "cable:h1-sw0", "--fabric", fabric)
            page.get_by_text("cable_down on cable:h1-sw0, on").wait_for()
            assert page.locator('.down[visibility="visible"]').count() == 1
            badge = page.get_by_role("button", name="faults of cable h1-sw0")
            badge.focus()
            press(page, badge)
            page.locator("#details").get_by_text("fault f1: cable_down").wait_for()
            assert badge.evaluate("badge => badge === document.activeElement")
            page.get_by_role("button", name="back to all").wait_for()
            press(page, page.get_by_role("button", name="back to all"))
            page.get_by_role("heading", name="Most load").wait_for()
            told("down", fabric)
            page.get_by_text(f"fabric {fabric} was taken down").wait_for()
    finally:
        if fabric in fabric_ids():
            told("clean", fabric, "--force")


def test_a_held_clock_goes_on_from_the_page(browser: Browser, tmp_path: Path) -> None:
    (tmp_path / "held.yaml").write_text(STAR + "workload: [{collective: all_reduce, sizes: [4KiB]}]\n")
    fabric = str(json.loads(told("up", str(tmp_path / "held.yaml"), "--virtual", "--job", "--json"))["id"])
    try:
        with serving("serve", fabric, "--period", "0.1") as server, page_in(browser, 400) as page:
            refused = server.ask("/api/advance", "POST", b'{"line": "backwards"}')
            assert (refused[0], b"does not say how far" in refused[2]) == (400, True)
            with page.expect_response("**/api/steps?*"):
                page.goto(server.url)
            page.get_by_text("no step of the job has ended yet").wait_for()
            advances: list[Request] = []
            waiting: list[Route] = []  # reads that have no answer yet
            page.on("request", lambda asked: advances.append(asked) if "/api/advance" in asked.url else None)
            page.route("**/api/steps?*", lambda read: waiting.append(read))
            page.get_by_role("button", name="10 steps").click()
            page.get_by_text("10 steps have ended").wait_for()
            wait_until(lambda: bool(page.evaluate("1") and waiting), "the read of the steps")
            page.get_by_role("button", name="100 us", exact=True).click()
            page.locator("#went", has_text="at work").wait_for()
            assert len(advances) == 1
            with page.expect_request("**/api/advance?*"):
                page.unroute("**/api/steps?*")  # which lets those that wait go
            page.locator("#went", has_text="at work").wait_for(state="detached")
            page.get_by_text(re.compile(r"^\d+ steps? ha(s|ve) ended$")).wait_for()
            shown = server.json("/api/steps?from=0")
            told_steps = json.loads(told("show", "job", fabric, "--json"))
            assert len(shown) >= 10
            page.get_by_role("button", name="Queue", exact=True).click()
            page.get_by_text("the most since the job began").wait_for()
            page.locator("#details tbody tr").first.wait_for()  # nothing waits at any port now, but it did
            assert told_steps
            assert page.locator("#chart canvas").count() == 1
    finally:
        told("clean", fabric, "--force")
