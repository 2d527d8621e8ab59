"""The worker on another machine, started over SSH: reads requests on stdin, and runs points.

It greets (`_hello`), checks the sweep, and runs points. When stdin ends, because the sweep is over or its starter is
gone, its points take their fabrics down, and it ends.
"""

from __future__ import annotations

import base64
import errno
import gc
import json
import os
import platform
import secrets
import shutil
import signal
import sys
import tempfile
import threading
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

from testbed.base.errors import MachineError, Problem, UserError
from testbed.machines.answers import CHUNK
from testbed.machines.identity import content_hash, version

ALIVE_S = 3.0  # between signs of life
ROOM_BYTES = 256 << 20
"""Room for folders of points that is looked for before any runs."""
_NAME = "railbed-sweep-"


def main() -> None:
    sys.stdout, out = sys.stderr, sys.stdout  # nothing but answers goes there
    for number in (signal.SIGINT, signal.SIGHUP, signal.SIGTERM):
        signal.signal(number, signal.SIG_IGN)  # points are ended by the end of stdin, and only then do we end
    from testbed.machines.processes import mark

    _tidy_dead()
    folder = Path(tempfile.mkdtemp(prefix=_NAME))
    mark(folder)
    answer = _Answers(out)
    try:
        out.write("\n")  # the end of whatever the shell has printed before
        answer({**_hello(folder), "problems": _unfit(folder)})
        for line in sys.stdin:
            request = json.loads(line)
            if "check" in request:
                answer({"problems": _problems(request["check"])})
            elif "start" in request:
                _work(request["start"], folder, answer)
                break
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    os._exit(0)  # threads would keep it


class _Answers:
    """Writes answers, a line each, from any thread; none after the connection has broken."""

    def __init__(self, out: Any) -> None:
        self._out = out
        self._lock = threading.Lock()

    def __call__(self, what: dict[str, Any]) -> None:
        with self._lock, suppress(OSError, ValueError):
            self._out.write(json.dumps(what) + "\n")
            self._out.flush()


def tidied(folder: str) -> None:
    """Removes what a worker has left that was killed; prints how many fabrics."""
    from testbed.machines.processes import tidy

    path = Path(folder)
    if path.name.startswith(_NAME) and path.is_dir():
        print(len(tidy(path)))


def _tidy_dead() -> None:
    """Removes what workers have left that were killed while nobody could reach this machine."""
    from testbed.machines.processes import abandoned, tidy

    for path in Path(tempfile.gettempdir()).glob(f"{_NAME}*"):
        with suppress(OSError):
            if abandoned(path):
                tidy(path)


def versions() -> dict[str, str]:
    return {"railbed": version(), "python": ".".join(platform.python_version_tuple()[:2])}


def _hello(folder: Path) -> dict[str, Any]:
    from testbed.machine.processes import machine
    from testbed.machines.needs import room

    return {
        "versions": versions(),
        "folder": str(folder),
        "machine": machine(),
        "cpus": len(os.sched_getaffinity(0)),
        "memory": room(),
    }


def _unfit(folder: Path) -> list[dict[str, str]]:
    """What keeps points from running here."""
    from testbed import doctor

    problems: list[dict[str, str]] = []
    try:
        doctor.require()
    except MachineError as error:
        lack = error.to_dict()
        problems = [{key: lack[key] for key in ("what", "where", "hint")}, *lack.get("also", ())]
    if (free := shutil.disk_usage(folder).free) < ROOM_BYTES:
        what = f"disk: {free >> 20} MiB free in {folder.parent}"
        hint = f"{ROOM_BYTES >> 20} MiB for runs, or another TMPDIR there"
        problems.append({"what": what, "where": "", "hint": hint})
    return problems + _old_fabricd()


def _old_fabricd() -> list[dict[str, str]]:
    """The sources are compared with those of other machines; this says whether fabricd was built from them."""
    from hardware.client import BINARY, CHECKOUT, newer_source

    if BINARY.exists() and CHECKOUT.exists() and (newer := newer_source(BINARY)):
        return [{"what": f"fabricd: older than {newer}", "where": "", "hint": "./setup.sh build there"}]
    return []


def _problems(order: dict[str, Any]) -> list[dict[str, str]]:
    """What keeps the sweep from being the same here: keys, values, files."""
    from testbed.experiment import loads
    from testbed.run import sweep

    problems = []
    for path, here in order["files"].items():
        if (there := content_hash(path)) != here:
            what = "this file is another one there" if there else "this file is not there"
            problems.append({"what": what, "where": path, "hint": "the same file at the same path on each machine"})
    try:
        sweep.check(loads(order["text"], order["name"], Path(order["directory"])))
    except UserError as error:
        problems.append({"what": error.what, "where": error.where, "hint": error.hint})
    return problems


def _work(start: dict[str, Any], folder: Path, answer: _Answers) -> None:
    """Runs points, each in a thread that waits for it, until stdin ends."""
    from testbed.machines.processes import Processes

    gc.collect()
    sys.argv = start["command"]  # for environment.json of each run
    processes = Processes(folder)
    ended = threading.Event()
    threading.Thread(target=_alive, args=(answer, ended), daemon=True).start()
    answer({"ready": True})
    with suppress(OSError, ValueError):
        for line in sys.stdin:
            request = json.loads(line)
            threading.Thread(
                target=_run, args=(processes, request["run"], request["point"], answer), daemon=True
            ).start()
    processes.stop()
    processes.wait()
    processes.close()
    ended.set()


def _alive(answer: _Answers, ended: threading.Event) -> None:
    while not ended.wait(ALIVE_S):
        answer({"alive": True})


def _run(processes: Any, number: int, point: dict[str, Any], answer: _Answers) -> None:
    """A point: its run's folder goes home in parts, then what it says."""
    folder = processes.folder / secrets.token_hex(8)
    try:
        folder.mkdir()
        outcome = processes.run({**point, "folder": str(folder / point["run"])})
        if "run" in (row := outcome.get("row", {})):
            for part in _packed(folder, row["run"]):
                answer({"files": number, "data": base64.b64encode(part).decode()})
    except OSError as error:
        outcome = _cannot(error)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    answer({"ended": number, "point": outcome})


def _cannot(error: OSError) -> dict[str, Any]:
    """What the machine does not let a point do: others may."""
    full = error.errno in (errno.ENOSPC, errno.EDQUOT)
    hint = "make room there" if full else "testbed doctor there"
    problem = Problem(error.strerror or str(error), str(error.filename or ""), hint)
    return {"problem": {**problem.to_dict(), "exit_code": 3}}


def _packed(folder: Path, run: str) -> Iterator[bytes]:
    from results.store.zipped import packed

    packed(folder / run, folder / "packed.zip")
    with (folder / "packed.zip").open("rb") as file:
        while part := file.read(CHUNK):
            yield part
