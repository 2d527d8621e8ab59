"""`probe ping` and `probe iperf3` with programs that say what the real ones say when something is wrong."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Sequence
from types import SimpleNamespace
from typing import Any

import pytest

from hardware.client import FabricdError
from testbed.base.errors import MachineError, UserError
from testbed.live.tools.programs import iperf3, ping
from testbed.words.kinds import Wrong
from testbed.world import base
from testbed.world.base import WorldGone
from testbed.world.history import History
from testbed.world.real import RealWorld

LISTENS = "echo 'Server listening on 5201 (test #1)'; exec sleep 60"
# the end of what `iperf3 -J` 3.12 prints
SUMS = {
    "sum_sent": {"bytes": 1_310_720, "bits_per_second": 2_000_000.0, "retransmits": 4, "sender": True},
    "sum_received": {"bytes": 1_179_648, "bits_per_second": 1_800_000.0, "sender": True},
}


def site(server: str = LISTENS, client: str = "", refuses: UserError | None = None) -> Any:
    """A place where iperf3 is one shell script as server, and another one as client; ping is the client."""

    def exec_command(rank: int, argv: Sequence[str], *, tty: bool) -> tuple[list[str], dict[str, str]]:
        if refuses:
            raise refuses
        return ["sh", "-c", server if "-s" in argv and "iperf3" in argv else client], {"PATH": "/usr/bin:/bin"}

    def until(met: Callable[[], bool], most_ns: float) -> None:
        deadline = time.monotonic() + 60
        while not met() and time.monotonic() < deadline:
            time.sleep(0.01)

    nics = [SimpleNamespace(ip=f"10.0.0.{k}") for k in range(4)]
    lab = SimpleNamespace(exec_command=exec_command, kernel=True, dilation=1000)
    return SimpleNamespace(lab=lab, until=until, fabric=SimpleNamespace(nics=nics))


def test_what_iperf3_warns_of_is_no_part_of_its_figures() -> None:
    told = json.dumps({"start": {}, "end": SUMS})
    (table,) = iperf3(site(client=f"echo 'warning: this system' >&2; echo '{told}'"), 0, 3)
    (row,) = table.rows
    assert (row["bytes"], row["Gbps"], row["sent_Gbps"], row["retransmits"]) == (1_179_648, 1.8, 2.0, 4)


@pytest.mark.parametrize(
    ("server", "client", "what", "hint"),
    [
        ("echo 'iperf3: error - unable to start listener for connections: Address already in use' >&2; exit 1", "",
         "iperf3 at rank 3 does not listen", "Address already in use"),
        (LISTENS, "echo '{\"start\": {}, \"error\": \"error - unable to connect to server\"}'; exit 1",
         "iperf3 from 0 to 3: error - unable to connect to server", "probe ping"),
        (LISTENS, "echo '{\"start\": {}, \"end\": {}}'", "iperf3 at rank 0 has come to no end", ""),
        (LISTENS, "echo '[]'", "iperf3 at rank 0 has come to no end", ""),
        (LISTENS, "echo 'iperf3: no such library' >&2; exit 127", "has come to no end", "no such library"),
    ],
)  # fmt: skip
def test_what_is_wrong_with_iperf3_is_said(server: str, client: str, what: str, hint: str) -> None:
    with pytest.raises(Wrong) as wrong:
        iperf3(site(server, client), 0, 3)
    assert what in wrong.value.what and hint in wrong.value.hint


def test_what_ping_complains_of_is_said() -> None:
    with pytest.raises(Wrong) as wrong:
        ping(site(client="echo 'ping: connect: Network is unreachable' >&2; exit 2"), 0, 3)
    assert "has come to no end" in wrong.value.what and "Network is unreachable" in wrong.value.hint


def test_a_fault_hides_behind_a_host_that_does_not_answer_and_this_machine_does_not() -> None:
    with pytest.raises(Wrong, match="rank 0 does not answer"):
        ping(site(refuses=UserError("rank 0 stands still: the fault worker_frozen")), 0, 3)
    with pytest.raises(MachineError, match="No space left"):
        ping(site(refuses=MachineError("the container of rank 0 does not start: No space left")), 0, 3)


def test_a_world_on_the_real_clock_says_everywhere_that_its_fabric_is_gone(monkeypatch: pytest.MonkeyPatch) -> None:
    class Fabricd:
        def request(self, op: str, **arguments: Any) -> dict[str, Any]:
            if op == "status":
                return {"time_ns": 1}
            raise FabricdError("fabricd is gone")

    monkeypatch.setattr(base, "why_dead", lambda record: "it was killed")
    monkeypatch.setattr(base, "look_at_parts", lambda lab: None)
    world = RealWorld.__new__(RealWorld)
    world.lab = SimpleNamespace(id="ab12", record=None, fabricd=Fabricd())  # type: ignore[assignment]
    world._history = History()
    for call in (world.fidelity, world._remember):
        with pytest.raises(WorldGone, match="fabric ab12 cannot go on: fabricd is gone") as gone:
            call()
        assert "it was killed" in str(gone.value)
