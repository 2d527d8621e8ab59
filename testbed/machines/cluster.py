"""The engine of sweeps on several machines: Dask's scheduler in this process, and a worker for points that run here.

Nothing of it listens where others could reach it: it speaks by TLS on the loopback interface, with a certificate made
for this one sweep.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import logging
import queue
import secrets
import shutil
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any

import dask
from distributed import Client, Future, Scheduler, SpecCluster, Worker, get_worker
from distributed.diagnostics.plugin import SchedulerPlugin
from distributed.security import Security

from testbed.machines.engine import Ended, Lost
from testbed.machines.known import packed
from testbed.machines.processes import Processes
from testbed.machines.where import HERE

MEMORY = "memory"
SETTINGS = {
    "distributed.scheduler.allowed-failures": 3,  # machines that may be lost under one point before it counts as failed
    "distributed.scheduler.http.routes": [],
    "distributed.worker.http.routes": [],
    "distributed.worker.memory.spill": False,
    "distributed.worker.memory.target": False,
    "distributed.worker.memory.pause": False,
    "distributed.worker.memory.terminate": False,
    "distributed.worker.profile.enabled": False,
    "distributed.admin.system-monitor.interval": "10s",
    "distributed.comm.timeouts.connect": "20s",
    "distributed.comm.timeouts.tcp": "20s",
    "distributed.scheduler.worker-ttl": "60s",  # a machine that is silent for so long is lost
}


def quiet() -> None:
    """What matters, we say."""
    for name in ("distributed", "distributed.client", "distributed.gc", "tornado", "asyncio"):  # with their own levels
        logging.getLogger(name).setLevel(logging.CRITICAL)


class Unseen:
    """Of a Dask process that has no page for a browser: nothing listens for one."""

    def start_http_server(self, *_: Any, **__: Any) -> None:
        pass


class PointScheduler(Unseen, Scheduler):
    pass


class PointWorker(Unseen, Worker):
    """Runs points in processes of this machine."""

    processes: Processes


def run_point(point: dict[str, Any]) -> dict[str, Any]:
    """A task: runs on the machine that Dask has chosen, in a thread of its worker."""
    worker = get_worker()
    if point["folder"]:  # of this machine
        return {**worker.processes.run(point), "machine": str(worker.name)}
    folder = worker.processes.folder / secrets.token_hex(8)
    folder.mkdir()
    try:
        told = worker.processes.run({**point, "folder": str(folder / point["run"])})
        row = told.get("row", {})
        files = {"files": packed(folder / row["run"])} if "run" in row else {}
        return {**told, **files, "machine": str(worker.name)}
    finally:
        shutil.rmtree(folder, ignore_errors=True)


class _Watch(SchedulerPlugin):
    def __init__(self, said: queue.SimpleQueue[Ended | Lost]) -> None:
        self._said = said
        self._names: dict[str, str] = {}

    def add_worker(self, scheduler: Scheduler, worker: str) -> None:
        self._names[worker] = str(scheduler.workers[worker].name)

    def remove_worker(self, scheduler: Scheduler, worker: str, **_: Any) -> None:
        self._said.put(Lost(self._names.pop(worker, worker)))


class Cluster:
    """An Engine of several machines."""

    def __init__(self, cluster: SpecCluster, client: Client, security: Security) -> None:
        self.said: queue.SimpleQueue[Ended | Lost] = queue.SimpleQueue()
        self.security = security
        self.address: str = cluster.scheduler.address
        self._scheduler = cluster.scheduler
        self._client = client
        self._futures: dict[int, Future] = {}
        self._tries = 0
        client.sync(self._watch)

    async def _watch(self) -> None:
        self._scheduler.add_plugin(_Watch(self.said), name="railbed")

    def submit(self, number: int, point: dict[str, Any], memory: float) -> None:
        """Has a point run, those of lower numbers first."""
        self._tries += 1
        future = self._client.submit(
            run_point,
            point,
            key=f"point-{number}-{self._tries}",
            priority=-number,
            pure=False,
            resources={MEMORY: memory},
        )
        self._futures[number] = future
        future.add_done_callback(lambda done: self._ended(number, done))

    def _ended(self, number: int, future: Future) -> None:
        """Dask calls this for one point after the other: no point may wait here for another one's result."""
        threading.Thread(target=self._fetched, args=(number, future), name=f"point-{number}", daemon=True).start()

    def _fetched(self, number: int, future: Future) -> None:
        """What was lost with its machine before it was fetched ("lost") is computed anew: `result` waits for that."""
        if future.status == "cancelled":
            return
        try:
            told = Ended(number, future.result())
        except (asyncio.CancelledError, concurrent.futures.CancelledError):
            return
        except Exception as error:
            what = str(error) if future.status == "error" else f"{type(error).__name__}: {error}"
            told = Ended(number, {}, what)
        self.said.put(told)

    def forget(self, number: int) -> None:
        """What came of it is at home."""
        self._futures.pop(number).release()

    @property
    def port(self) -> int:
        """Of the scheduler, on the loopback interface."""
        return int(self.address.rpartition(":")[2])

    @property
    def credentials(self) -> dict[str, str]:
        """A worker's, as text."""
        keys = ("tls_ca_file", "tls_worker_cert", "tls_worker_key")
        return {key: str(getattr(self.security, key)) for key in keys}

    def retire(self, machine: str) -> None:
        """Gives a machine nothing more; what it has goes to others."""
        for address, worker in list(self._scheduler.workers.items()):
            if str(worker.name) == machine:
                self._client.sync(self._scheduler.remove_worker, address, stimulus_id="retire", expected=False)

    def cancel(self) -> None:
        """Nothing more is run."""
        for future in self._futures.values():
            future.cancel(force=True)
        self._futures.clear()


@contextmanager
def cluster(processes: Processes | None, at_a_time: int, memory: float) -> Iterator[Cluster]:
    """An engine; with `processes` so many points at a time also run here, in so much memory."""
    quiet()
    security = Security.temporary()
    protocol = {"protocol": "tls://", "host": "127.0.0.1", "security": security}
    with dask.config.set(SETTINGS), ExitStack() as stack:
        scheduler = {"cls": PointScheduler, "options": {**protocol, "dashboard": False}}
        made = SpecCluster(workers={}, scheduler=scheduler, security=security, silence_logs=False)
        stack.callback(_closed, made.close)
        client = Client(made, security=security, set_as_default=False)
        stack.callback(_closed, client.close)
        started = Cluster(made, client, security)
        if processes is not None:
            worker = client.sync(_worker, started.address, processes, at_a_time, memory, protocol)
            stack.callback(_closed, lambda: client.sync(worker.close))
            stack.callback(processes.stop)
        yield started


def _closed(close: Callable[[], object]) -> None:
    """What goes wrong while Dask ends is nobody's error: points and machines have ended before, and it ends with us."""
    with suppress(Exception):
        close()


async def _worker(
    address: str, processes: Processes, at_a_time: int, memory: float, protocol: dict[str, Any]
) -> PointWorker:
    worker = PointWorker(address, **options(at_a_time, memory, processes.folder, HERE), **protocol)
    worker.processes = processes
    await worker
    return worker


def options(at_a_time: int, memory: float, folder: Path, name: str) -> dict[str, Any]:
    """Of a worker."""
    return {
        "nthreads": at_a_time,
        "resources": {MEMORY: memory},
        "memory_limit": 0,
        "local_directory": str(folder),
        "name": name,
        "dashboard": False,
    }
