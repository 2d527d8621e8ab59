"""Several ranks' workers in one process, a thread each: what runs in a container that ranks share.

    python -m workloads.together      with the plan at $RAILBED_PLAN, the sockets at $RAILBED_SOCKETS/RANK/sock

A large fabric's ranks would each take a process's start and memory for a few milliseconds of Python. Each rank still
has its own session with the fabric, its own memory and its own clock, so that its figures are the same as those of a
process of its own. Lines on stdout are those of workloads.worker, each with its `rank`.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import threading
import traceback
from collections.abc import Mapping
from typing import Any

import workloads.base.process
from workloads import worker
from workloads.step import Plan

DEFAULT_SOCKETS = "/run/railbed/workers"


class _Output:
    """Standard output, which the ranks share: whole lines, each with its rank."""

    def __init__(self) -> None:
        self._lock = threading.Lock()

    def emit(self, rank: int, line: Mapping[str, Any]) -> None:
        text = json.dumps({**line, "rank": rank}) + "\n"
        with self._lock:
            sys.stdout.write(text)
            sys.stdout.flush()


class _Rank(threading.Thread):
    """One rank's worker. `code` is what its process would have ended with."""

    def __init__(self, plan: Plan, output: _Output, sockets: str) -> None:
        super().__init__(name=f"rank {plan['rank']}", daemon=True)
        self.code = 1
        self._plan, self._output = plan, output
        self._socket = os.path.join(sockets, str(plan["rank"]), "sock")

    def run(self) -> None:
        try:
            self.code = worker.serve(self._plan, self._socket, self._emit)
        except BaseException as error:  # a process would end with it; this one belongs to others, too
            traceback.print_exc()
            self._emit({"kind": "error", "what": f"{type(error).__name__}: {error}", "status": None, "peer": None})

    def _emit(self, line: Mapping[str, Any]) -> None:
        self._output.emit(self._plan["rank"], line)


def main() -> int:
    """Reads the plan and runs all of its ranks; returns the exit code."""
    signal.signal(signal.SIGUSR1, worker.asked)
    with open(os.environ.get("RAILBED_PLAN", worker.DEFAULT_PLAN), encoding="utf-8") as file:
        plan = json.load(file)
    sockets = os.environ.get("RAILBED_SOCKETS", DEFAULT_SOCKETS)
    output = _Output()
    ranks = [_Rank({**plan, **own}, output, sockets) for own in plan["together"]]
    for rank in ranks:
        rank.start()
    for rank in ranks:
        rank.join()
    return max(rank.code for rank in ranks)


if __name__ == "__main__":
    workloads.base.process.leave(main())
