"""What one frame costs an Open vSwitch that has nothing else to do: what others are measured by (tests/bench.py)."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from tests.bench_timed import cpu_s

ROOT = Path(__file__).parent.parent


def cost_us() -> tuple[float, float]:
    """Wall time per frame through an Open vSwitch of its own, and its CPU time, in microseconds."""
    wall, cpu = beside("tests.bench_ovs", "_cost_us")
    return wall, cpu


def beside(module: str, function: str) -> list[float]:
    """Calls a function with a switch, in a process of its own that is in that switch's network namespace."""
    program = f"from tests import bench_ovs; import {module} as m; print(*m.{function}(bench_ovs.enter_a_switch()))"
    env = {**os.environ, "PYTHONPATH": f"{ROOT}:{ROOT / 'tests'}"}
    done = subprocess.run([sys.executable, "-c", program], cwd=ROOT, env=env, stdout=subprocess.PIPE, check=True)
    return [float(figure) for figure in done.stdout.split()]


def enter_a_switch() -> Any:
    import ctypes

    from tests.parts.own_switch import OwnSwitch

    switch = OwnSwitch()
    with open(f"/proc/{switch.holder.pid}/ns/net") as namespace:
        if ctypes.CDLL(None, use_errno=True).setns(namespace.fileno(), 0x40000000):  # CLONE_NEWNET
            raise OSError(ctypes.get_errno(), "setns")
    os.environ.update(switch.env)
    return switch


def _cost_us(
    switch: Any, frames: int = 120_000, frame_bytes: int = 4170, ports: int = 8, batch: int = 16
) -> tuple[float, float]:
    """Full frames go in by one TAP and come out by the next, in batches, and nothing else is done with them."""
    vswitchd, tag = switch.processes[-1].pid, "bench"
    with ExitStack() as stack:
        taps = [stack.enter_context(_Tap(f"{tag}-{i}")) for i in range(ports)]
        command = ["ovs-vsctl", "add-br", tag, "--", "set", "bridge", tag, "datapath_type=netdev", "fail_mode=secure"]
        for i, tap in enumerate(taps):
            command += ["--", "add-port", tag, tap.name, "--", "set", "interface", tap.name, f"ofport_request={i + 1}"]
        switch.run(*command)
        flows = "\n".join(f"in_port={i + 1},actions=output:{(i + 1) % ports + 1}" for i in range(ports))
        switch.run("ovs-ofctl", "add-flows", tag, "-", input=flows)
        frame = bytes.fromhex("020000000002020000000001" + "88b5") + bytes(frame_bytes - 14)
        _through(taps, frame, batch)  # the first sets up the datapath's flows
        cpu, wall = cpu_s(vswitchd), time.monotonic()
        sent = 0
        while sent < frames:
            sent += _through(taps, frame, batch)
        return (time.monotonic() - wall) / sent * 1e6, (cpu_s(vswitchd) - cpu) / sent * 1e6


def _through(taps: list[_Tap], frame: bytes, batch: int) -> int:
    """A batch of frames into every TAP, then all of them out again.  Returns how many."""
    for tap in taps:
        for _ in range(batch):
            os.write(tap.fd, frame)
    for tap in taps:
        for _ in range(batch):
            os.read(tap.fd, 65536)
    return len(taps) * batch


class _Tap:
    """A TAP device that goes with its descriptor."""

    def __init__(self, name: str) -> None:
        self.name = name

    def __enter__(self) -> _Tap:
        import fcntl
        import struct

        self.fd = os.open("/dev/net/tun", os.O_RDWR)
        request = struct.pack("16sH22x", self.name.encode(), 0x1002)  # IFF_TAP | IFF_NO_PI
        fcntl.ioctl(self.fd, 0x400454CA, request)  # TUNSETIFF
        subprocess.run(["ip", "link", "set", self.name, "mtu", "9300", "up"], check=True)
        return self

    def __exit__(self, *_: object) -> None:
        os.close(self.fd)
