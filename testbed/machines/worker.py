"""What runs on another machine: Dask's worker. It is started over SSH, and told everything on stdin.

It says what it is (`hello`), checks the sweep, and begins (`start`). Whenever stdin ends, because the sweep is over or
whoever started it is gone, its points end, their fabrics are taken down, and so does it.
"""

from __future__ import annotations

import asyncio
import gc
import json
import os
import platform
import shutil
import signal
import sys
import tempfile
import threading
from contextlib import suppress
from pathlib import Path
from typing import Any

from testbed.base.errors import MachineError, UserError
from testbed.machines.identity import content_hash, version

ALIVE_S = 3.0  # it says so often that it is there
LIBRARIES = ("distributed", "dask", "msgpack", "cloudpickle")
"""Both sides must have the same versions of these to understand each other."""


def main() -> None:
    """The process's whole life."""
    sys.stdout, said = sys.stderr, sys.stdout  # nothing but answers goes there
    for number in (signal.SIGINT, signal.SIGHUP, signal.SIGTERM):
        signal.signal(number, signal.SIG_IGN)  # points are ended by the end of stdin, and only then do we end
    folder = Path(tempfile.mkdtemp(prefix="railbed-sweep-"))
    try:
        said.write("\n")  # the end of whatever the shell has printed before
        _say(said, _hello(folder))
        for line in sys.stdin:
            asked = json.loads(line)
            if "check" in asked:
                _say(said, {"problems": _problems(asked["check"])})
            elif "start" in asked:
                _work(asked["start"], folder, said)
                break
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    with suppress(OSError):
        said.flush()
    os._exit(0)  # Dask's threads would keep it


def tidied(folder: str) -> None:
    """Removes what a worker has left that was killed; prints how many fabrics."""
    from testbed.machines.processes import tidy

    path = Path(folder)
    if path.name.startswith("railbed-sweep-") and path.is_dir():
        print(len(tidy(path)))


def _say(said: Any, what: dict[str, Any]) -> None:
    said.write(json.dumps(what) + "\n")
    said.flush()


def versions() -> dict[str, str]:
    """What must be the same on all machines."""
    from importlib.metadata import version as of

    python = ".".join(platform.python_version_tuple()[:2])
    return {"railbed": version(), "python": python, **{name: of(name) for name in LIBRARIES}}


def _hello(folder: Path) -> dict[str, Any]:
    from testbed import doctor
    from testbed.machine.processes import machine
    from testbed.machines.needs import room

    problems: list[dict[str, str]] = []
    try:
        doctor.require()
    except MachineError as error:
        told = error.to_dict()
        problems = [{key: told[key] for key in ("what", "where", "hint")}, *told.get("also", ())]
    problems += _old_fabricd()
    return {
        "versions": versions(),
        "folder": str(folder),
        "machine": machine(),
        "cpus": len(os.sched_getaffinity(0)),
        "memory": room(),
        "problems": problems,
    }


def _old_fabricd() -> list[dict[str, str]]:
    """The sources are compared with those of other machines; this says whether fabricd was built from them."""
    from hardware.client import BINARY, CHECKOUT, newer_source

    if BINARY.exists() and CHECKOUT.exists() and (newer := newer_source(BINARY)):
        return [{"what": f"fabricd: older than {newer}", "where": "", "hint": "./setup.sh build there"}]
    return []


def _problems(asked: dict[str, Any]) -> list[dict[str, str]]:
    """What keeps the sweep from being the same here: keys, values, files."""
    from testbed.experiment import loads
    from testbed.run import sweep

    found = []
    for path, here in asked["files"].items():
        if (there := content_hash(path)) != here:
            what = "this file is another one there" if there else "this file is not there"
            found.append({"what": what, "where": path, "hint": "the same file at the same path on each machine"})
    try:
        sweep.check(loads(asked["text"], asked["name"], Path(asked["directory"])))
    except UserError as error:
        found.append({"what": error.what, "where": error.where, "hint": error.hint})
    return found


def _work(told: dict[str, Any], folder: Path, said: Any) -> None:
    gc.collect()
    asyncio.run(_worked(told, folder, said))


async def _worked(told: dict[str, Any], folder: Path, said: Any) -> None:
    import dask
    from distributed.security import Security

    from testbed.machines.cluster import SETTINGS, PointWorker, options, quiet
    from testbed.machines.processes import Processes

    quiet()
    dask.config.set(SETTINGS)
    sys.argv = told["command"]  # for environment.json of each run
    security = Security(require_encryption=True, **told["security"])
    processes = Processes(folder)
    worker = PointWorker(
        told["scheduler"],
        **options(told["points"], told["memory"], folder, told["name"]),
        protocol="tls://",
        host="127.0.0.1",
        security=security,
        contact_address=told["contact"],
        death_timeout=60,
    )
    worker.processes = processes
    await worker
    _say(said, {"port": int(worker.listener.listen_address.rpartition(":")[2])})
    ended = asyncio.Event()
    loop = asyncio.get_running_loop()
    threading.Thread(target=_wait, args=(loop, ended), daemon=True).start()
    while not ended.is_set():
        with suppress(TimeoutError):
            await asyncio.wait_for(ended.wait(), ALIVE_S)
        with suppress(OSError):
            _say(said, {"alive": True})
    processes.stop()
    await asyncio.to_thread(processes.wait)
    processes.close()
    with suppress(Exception):
        await asyncio.wait_for(worker.close(timeout=2, executor_wait=False), 5)


def _wait(loop: asyncio.AbstractEventLoop, ended: asyncio.Event) -> None:
    with suppress(OSError, ValueError):
        while sys.stdin.readline():
            pass
    loop.call_soon_threadsafe(ended.set)
