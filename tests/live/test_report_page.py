"""Reports of real runs in Chromium: no other request, no error, nothing too wide; cables tell, charts follow."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from testbed.base.progress import Progress
from testbed.experiment import loads
from testbed.report.html import report
from testbed.run.outcome import RunFailed
from testbed.run.run import run
from testbed.run.sweep import run_sweep
from tests.parts.pages import builds, chromium, page_in

if TYPE_CHECKING:
    from playwright.sync_api import Browser

LOSSY = """
name: lossy
fabric: {topology: {rail: {servers: 2, gpus: 2}}}
inject: [{fault: loss, on: "cable:h0.0-rail0", rate: 0.05, at: 5us}]
measure: {sample: 1us}
workload: [{collective: all_reduce, algorithm: ring, sizes: [256KiB]}]
"""
DEAD = """
name: dead
fabric: {topology: {star: {hosts: 3}}, nic: {retry: 1}}
inject: [{fault: loss, on: "cable:h0-sw0", rate: 1.0}]
workload: [{collective: all_reduce, algorithm: ring, sizes: [4KiB]}]
"""
STEP = """
name: step
fabric: {topology: {star: {hosts: 2}}}
workload:
  - tasks:
      groups: {data: [[0, 1]]}
      list:
      - {id: f, compute: 5us, kind: forward}
      - {id: g, collective: all_reduce, group: data, size: 64KiB, after: [f], stream: comm, kind: gradients}
"""
SWEEP = LOSSY.replace("256KiB", "4KiB") + "sweep: {transport.recovery: [go_back_n, selective_repeat]}\n"


@pytest.fixture(scope="module", params=builds())
def browser(request: pytest.FixtureRequest) -> Iterator[Browser]:
    with chromium(request.param) as browser:
        yield browser


def folder_of(kind: str, where: Path) -> Path:
    if kind == "sweep":
        return run_sweep(loads(SWEEP), where / "run", Progress())[0]
    try:
        return Path(run(loads({"lossy": LOSSY, "dead": DEAD, "step": STEP}[kind]), where / "run").folder)
    except RunFailed as failure:
        assert kind == "dead"
        return failure.folder


@pytest.mark.parametrize("kind", ["lossy", "dead", "step", "sweep"])
def test_it_opens_offline_without_an_error(kind: str, browser: Browser, tmp_path: Path) -> None:
    path = report(folder_of(kind, tmp_path), tmp_path / "report.html")
    assert path.stat().st_size < 3_000_000
    for width, dark in ((1280, False), (400, True)):
        with page_in(browser, width, dark) as page:
            asked: list[str] = []
            page.on("request", lambda request, asked=asked: asked.append(request.url))
            page.goto(path.as_uri())
            page.locator("#again").wait_for()
            assert [url for url in asked if not url.startswith("data:")] == [path.as_uri()]
            sections = {one.get_attribute("id") for one in page.locator("main > section").all()}
            own = {"lossy": {"network", "time", "drops"}, "dead": {"failed", "network", "drops"}, "step": {"timelines"}}
            assert sections >= {"fidelity", "results", "asked", "again"} | own.get(kind, {"pictures"})
            if kind == "lossy" and not dark:
                cable = page.locator('[aria-label="cable h0.0-rail0"]')
                cable.click(force=True)
                said = page.locator("#place").inner_text()
                assert "h0.0:1: sent" in said and "dropped" in said and "fault f1: loss" in said
                charts = page.locator("#charts .chart")
                assert charts.count() >= 2
                page.get_by_role("button", name="Drops").click()
                assert "frames dropped at the port" in page.locator("#legend").inner_text()
