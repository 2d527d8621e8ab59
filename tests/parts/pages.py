"""A page's server as its own process, asked by plain HTTP; and Chromium."""

from __future__ import annotations

import http.client
import json
import os
import shutil
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

import pytest

from tests.parts.machine import ROOT, TESTBED

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

CHROMIUMS = ("chromium-headless-shell", "chromium", "chromium-browser", "google-chrome")
# It looks for nothing but the page: what it would do besides needs a network.
_FLAGS = ("--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking",
          "--disable-component-update", "--disable-sync")  # fmt: skip
ANSWER_S = 60.0


class Server:
    """`testbed WORDS --json`, which serves a page."""

    def __init__(self, *words: str) -> None:
        self.process = subprocess.Popen(
            [*TESTBED, *words, "--json"], cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )
        assert self.process.stdout is not None
        self.said: dict[str, Any] = json.loads(self.process.stdout.readline() or "{}")
        self.url: str = self.said.get("url", "")
        at = urlsplit(self.url)
        self.port, self.entry, self.cookie = at.port or 0, f"{at.path}?{at.query}", ""

    def ask(
        self, path: str, method: str = "GET", body: bytes | None = None, **headers: str
    ) -> tuple[int, dict[str, str], bytes]:
        """Status, headers and body. With the cookie, unless `Cookie` says otherwise."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=ANSWER_S)
        try:
            given = {name.replace("_", "-"): value for name, value in headers.items()}
            connection.putrequest(method, path, skip_host="Host" in given)
            for name, value in ({"Cookie": self.cookie} | given).items():
                connection.putheader(name, value)
            if body is not None:
                connection.putheader("Content-Length", str(len(body)))
            connection.endheaders(body)
            answer = connection.getresponse()
            return answer.status, dict(answer.getheaders()), answer.read()
        finally:
            connection.close()

    def enter(self) -> None:
        """Exchanges the token for the cookie, as a browser does."""
        status, headers, _ = self.ask(self.entry)
        assert status == 200
        self.cookie = headers["set-cookie"].partition(";")[0]

    def json(self, path: str, **more: Any) -> Any:
        status, _, body = self.ask(path, **more)
        assert status == 200, body
        return json.loads(body)

    def end(self, number: int = signal.SIGINT) -> tuple[int, str, str]:
        """Exit code, and what it said."""
        with suppress(ProcessLookupError):
            os.kill(self.process.pid, number)
        return self.ended()

    def ended(self) -> tuple[int, str, str]:
        out, err = self.process.communicate(timeout=ANSWER_S)
        return self.process.returncode, out, err


@contextmanager
def serving(*words: str) -> Iterator[Server]:
    server = Server(*words)
    try:
        server.enter()
        yield server
    finally:
        if server.process.poll() is None:
            server.end()


def without_browser() -> str:
    """What is missing for tests in a browser; empty if nothing is."""
    try:
        import playwright.sync_api  # noqa: F401
    except ImportError:
        return "needs the Python package playwright (requirements-dev.lock has it)"
    if not builds()[0]:
        return f"needs Chromium: Debian's package {CHROMIUMS[0]}, or one of {', '.join(CHROMIUMS[1:])}"
    return ""


def builds() -> list[str]:
    """The builds of Chromium that are here: they ask a server for different things.  One that is empty, if none is."""
    headless, *desktop = CHROMIUMS
    return [b for b in (shutil.which(headless), next(filter(None, map(shutil.which, desktop)), None)) if b] or [""]


@contextmanager
def chromium(program: str) -> Iterator[Browser]:
    """A browser for the tests of a file: one of `builds()`."""
    if lacks := without_browser():
        pytest.skip(lacks)
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=program, args=list(_FLAGS))
        yield browser
        browser.close()


@contextmanager
def page_in(browser: Browser, width: int = 1280, dark: bool = False, *, gone: bool = False) -> Iterator[Page]:
    """A page; the test fails if it logs an error, asks another server, or is wider than its window.

    `gone`: what it shows is taken away meanwhile, so what it asks for just then may be answered by 410 (Gone).
    """
    wrong: list[str] = []
    context = browser.new_context(
        viewport={"width": width, "height": 900}, color_scheme="dark" if dark else "light", reduced_motion="reduce"
    )
    page = context.new_page()
    page.set_default_timeout(ANSWER_S * 1000)
    expected = "status of 410 (Gone)" if gone else "\0"
    page.on(
        "console", lambda said: wrong.append(said.text) if said.type == "error" and expected not in said.text else None
    )
    page.on("pageerror", lambda error: wrong.append(str(error)))
    page.on("request", lambda asked: wrong.append(asked.url) if _elsewhere(asked.url) else None)
    try:
        yield page
        assert page.evaluate("document.documentElement.scrollWidth") <= width
    finally:
        context.close()
    assert not wrong, wrong


def _elsewhere(url: str) -> bool:
    return urlsplit(url).scheme not in ("file", "data") and urlsplit(url).hostname != "127.0.0.1"
