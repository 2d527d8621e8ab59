"""A capture that begins with the first frame, on a fabric that is made up: a program may take long to send one."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from testbed.live.tools import capture as tool
from testbed.live.tools.site import Site
from topologies import build
from topologies.graph.fabric import End


class Fabric(Site):
    """Its clock stands until frames come, which is at the `begins`-th look."""

    def __init__(self, folder: Path, begins: int) -> None:
        self._world = None
        self.lab: Any = SimpleNamespace(dir=folder, kernel=False, fabric=build("star", {"hosts": 2}))
        self.begins, self.looks, self.said = begins, 0, list[str]()

    def request(self, op: str, **arguments: Any) -> dict[str, Any]:
        if op != "counters":
            self.said.append(op)
            return {"time_ns": 0, "workers": [], "idle": True, "running": True}
        self.looks += 1
        frames = 3 + (self.looks > self.begins)
        ports = [{"node": node, "port": 1, "tx_frames": frames, "rx_frames": 0} for node in ("h0", "h1")]
        return {"ports": [*ports, {"node": "sw0", "port": 1, "tx_frames": 9 * self.looks, "rx_frames": 0}]}

    def now_ns(self) -> float:
        return 0.0

    def pass_(self, ns: float) -> None:
        self.said.append(f"{ns:.0f} ns")


@pytest.fixture
def nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tool, "read", lambda path: [])


@pytest.mark.usefixtures("nothing")
def test_time_is_counted_from_the_first_frame_at_the_port(tmp_path: Path) -> None:
    """That of another port does not count; nor does a clock that stands end the wait."""
    site = Fabric(tmp_path, begins=4)
    tool.capture(site, End("h0", 1), 500.0, wait=2e9)
    said = [one for one in site.said if one != "status"]
    assert (said, site.looks) == (["capture", "500 ns", "capture_stop"], 5)


@pytest.mark.usefixtures("nothing")
def test_without_a_wait_it_is_counted_from_now_and_what_may_be_done_is_said(tmp_path: Path) -> None:
    site = Fabric(tmp_path, begins=4)
    (table,) = tool.capture(site, End("h0", 1), 500.0)
    assert site.said == ["capture", "500 ns", "capture_stop"] and site.looks == 0
    assert table.title == "0 frames at h0:1 in 500ns; --wait TIME waits for the first one"


def test_who_is_not_patient_waits_no_longer_than_the_clock_goes(tmp_path: Path) -> None:
    assert not Fabric(tmp_path, 1).until(lambda: False, 1e9)
