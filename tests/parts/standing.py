"""Fabrics that are left up, held and with the real clock; parts of them that are ended and stopped, and who says so."""

from __future__ import annotations

import json
import signal
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from testbed.live.status import status
from testbed.machine import ownership
from testbed.machine.ownership import Record
from tests.parts.machine import here, told, traces, wait_until

HELD = """
name: held
fabric: {topology: {star: {hosts: 3}}, nic: {timeout: 20us}}
workload: [{collective: all_reduce, algorithm: ring, sizes: [16KiB]}]
"""
STANDS = """
name: stands
fabric: {topology: {star: {hosts: 3}}}
"""
REAL = """
name: real
clock: {real: {dilation: 1000}}
fabric: {topology: {star: {hosts: 3}}}
"""
SAID_S = 2.0
"""Within so much wall time `status` names whoever has ended or stands still."""
ENDS_S = 50.0
"""A command that is told at once ends long before: patience lasts longer."""


@contextmanager
def standing(text: str, folder: Path) -> Iterator[Record]:
    file = folder / "standing.yaml"
    file.write_text(text)
    more = {HELD: ("--virtual", "--job"), STANDS: ("--virtual",)}.get(text, ())
    fabric_id = str(json.loads(told("up", str(file), "--json", *more))["id"])
    try:
        yield ownership.find(fabric_id)
    finally:
        here("down", fabric_id)
        if (ownership.RUN_DIR / fabric_id).exists():
            here("clean", fabric_id)
        assert traces(fabric_id) == []


def stop(record: Record, part: str) -> int:
    process = record.processes[part]
    assert process.signal(signal.SIGSTOP)
    wait_until(process.stopped, f"{part} to stand still")
    return process.pid


def go_on(record: Record, part: str) -> None:
    process = record.processes[part]
    process.signal(signal.SIGCONT)
    wait_until(lambda: not process.stopped(), f"{part} to go on")


def kill(record: Record, part: str) -> int:
    process = record.processes[part]
    assert process.signal(signal.SIGKILL)
    return process.pid


def named(record: Record, what: str, within_s: float = 60.0) -> float:
    """Asks for the status until it names that; returns after how long. Fails if that does not come in time."""
    began = time.monotonic()
    while True:
        found = status(ownership.find(record.id))
        took = time.monotonic() - began
        lost = [f"rank {one['rank']} is lost: {one['reason']}" for one in found.get("lost", ())]
        said = "; ".join([found.get("why", ""), *(one["text"] for one in found["troubles"]), *lost])
        if what in said:
            return took
        assert took < within_s, f"{took:.1f} s after it was said: {said}"


def ends(*words: str) -> subprocess.CompletedProcess[str]:
    """A command, which must not take long."""

    def late(number: int, frame: object) -> None:
        raise AssertionError(f"{' '.join(words)} has not ended within {ENDS_S:g} s")

    before = signal.signal(signal.SIGALRM, late)
    signal.setitimer(signal.ITIMER_REAL, ENDS_S)
    try:
        return here(*words)
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
