"""A lab without a machine: real worker processes that run a script, and a fake fabricd."""

from __future__ import annotations

import json
import os
import select
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from hardware.client import FabricdError
from hardware.patience import Patience
from topologies import Fabric

FIDELITY = {"clock": "virtual", "dilation": 1, "frame_hops": 1000, "flagged": 0, "fences": 17, "lateness_ns": {}}


def counters(**more: Any) -> dict[str, Any]:
    """Counters of a fabric in which little happened."""
    port = {"node": "sw0", "port": 1, "peer": "h0:1", "tx_frames": 5, "tx_bytes": 500, "rx_frames": 4, "rx_bytes": 400}
    nic = {"nic": "h0", "rank": 0, "tx_vport_rdma_unicast_packets": 5, "retransmitted": 2}
    return {
        "time_ns": 5000.0,
        "ports": [{**port, "drops": {}, "queue_max_bytes": 100}],
        "nics": [nic],
        "qps": [{"rank": 0, "qp": 1, "peer": 1, "peer_qp": 1, "path": "network", "state": "ready", "tx_packets": 5}],
        "switches": [{"switch": "sw0", "frames_in": 9, "forwarding_drops": 0, "buffer_max_bytes": 100}],
        "drops": [],
        "fidelity": FIDELITY,
        **more,
    }


class FakeProcess:
    """A process that ends when it is told to; it has our own pid."""

    def __init__(self) -> None:
        self.code: int | None = None
        self.pid = os.getpid()

    def poll(self) -> int | None:
        return self.code


class FakeFabricd:
    """Answers requests and records them; sends the events that are passed to `say`, until `gone`."""

    def __init__(self) -> None:
        self.process = FakeProcess()
        self.requests: list[tuple[str, dict[str, Any]]] = []
        self.answers: dict[str, Any] = {"counters": counters(), "status": {"workers": []}}
        self._ours, self._theirs = socket.socketpair()
        self.gone = False
        self.waits: list[dict[str, Any]] = []
        self.patience = Patience(os.getpid())

    def say(self, event: Mapping[str, Any]) -> None:
        self._ours.sendall(json.dumps(event).encode() + b"\n")

    def pulse(self) -> None:
        """For whom it waits is in `answers["waits"]`."""
        answer = self.answers.get("waits", [])
        if isinstance(answer, Exception):
            raise answer
        self.waits = list(answer)
        self.patience.begin()

    def request(self, op: str, timeout: float | None = None, **arguments: Any) -> dict[str, Any]:
        self.requests.append((op, arguments))
        answer = self.answers.get(op, {})
        if isinstance(answer, Exception):
            raise answer
        return dict(answer() if callable(answer) else answer)

    def subscribe(self, *, acts: str | None = None) -> None:
        self.requests.append(("subscribe", {}))

    def events(self, timeout: float | None = 0.0) -> Iterator[dict[str, Any]]:
        if self.gone:
            raise FabricdError("fabricd is gone")
        if select.select([self._theirs], [], [], timeout)[0]:
            yield from (json.loads(line) for line in self._theirs.recv(1 << 20).splitlines())

    def fileno(self) -> int:
        return self._theirs.fileno()


Script = str  # Python source; `say(kind, **more)` prints a line, `rank` is its rank

_PRELUDE = """
import os, signal, sys, time
rank = {rank}
def say(kind, **more):
    import json  # takes longer than all else that most scripts do
    print(json.dumps({{'kind': kind, **more}}), flush=True)
"""


class FakeWorker(subprocess.Popen[bytes]):
    """A worker without a container."""

    def started(self) -> bool:
        return True

    begun = started


class FakeLab:
    """What testbed.run.run needs of a Lab; `script(rank)` is what each worker does."""

    def __init__(self, fabric: Fabric, folder: Path, script: Callable[[int], Script]) -> None:
        self.fabric = fabric
        self.dir = folder / "lab"
        self.dir.mkdir()
        (self.dir / "fabricd.log").write_text("starting\nassertion failed: queue >= 0\n")
        self.fabricd = FakeFabricd()
        self.controller = FakeProcess()
        self.helpers: dict[str, Any] = {}
        self.workers: dict[int, FakeWorker] = {}
        self.downs = 0
        self.dilation = 100_000
        self.hardware = self.fabricd.process
        self._script = script

    def worker_dir(self, rank: int) -> Path:
        folder = self.dir / str(rank)
        folder.mkdir(exist_ok=True)
        return folder

    def start_worker(self, rank: int, argv: Sequence[str], *, stdout: Any, stderr: Any) -> FakeWorker:
        plan = json.loads((self.worker_dir(rank) / "plan.json").read_text())
        source = _PRELUDE.format(rank=plan["rank"]) + self._script(rank)
        command = [sys.executable, "-SE", "-c", source]  # quicker: it needs no packages
        self.workers[rank] = FakeWorker(command, stdin=subprocess.DEVNULL, stdout=stdout, stderr=stderr)
        return self.workers[rank]

    def controller_messages(self) -> list[dict[str, Any]]:
        return []

    def counters(self) -> dict[str, Any]:
        return self.fabricd.request("counters")

    def down(self) -> None:
        self.downs += 1
        for worker in self.workers.values():
            worker.kill()
            worker.wait()


def result_line(rank: int, size: int = 1024, iteration: int = 0, start: float = 0.0, end: float = 2000.5) -> str:
    """Source that prints a collective's line."""
    line: Mapping[str, Any] = {
        "kind": "collective", "step": 0, "collective": "all_reduce", "algorithm": "ring", "size_bytes": size,
        "iteration": iteration, "rank": rank, "start_ns": start, "end_ns": end, "wrong": 0,
    }  # fmt: skip
    return f"print({json.dumps(line)!r}, flush=True)\n"
