"""A fabric of fabricd and Open vSwitch alone; the test itself is at the other end of the worker sockets.

No hosts, containers or controller: bridges with one static flow per switch and destination.  Needs root and an
installed Open vSwitch.  Everything is in a network namespace that disappears with the tests' process.
"""

from __future__ import annotations

import contextlib
import fcntl
import mmap
import os
import re
import selectors
import socket
import tempfile
import time
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import networkx as nx

import topologies
from controllers.openflow import straight
from controllers.openflow.revalidation import purge
from hardware.build import build
from hardware.client import Fabricd
from hardware.config import Hardware, fabricd_config
from hardware.devices import FENCE_BRIDGE, FENCE_TAP, Devices
from testbed.fabric.ovs import Bridge
from tests.parts.own_switch import USER, OwnSwitch, own_switch
from topologies.graph.fabric import Fabric
from workloads.verbs import wire
from workloads.verbs.wire import Record

DEADLINE_S = 60.0
SAMPLE = 0
"""Of the fast path, which is off; tests for which it may matter switch it on, too."""
FAST = 1024
"""As a fabric of the testbed has it: for tests of what NICs, buffers and cables do to many frames. Most of their time
would be Open vSwitch's, and no figure hangs on it (test_fabricd_determinism)."""
SIZED = 1 << 20
PARKED_UNTIL_PS = 10**15
DEFAULTS = Hardware()


@cache
def fabricd_binary() -> Path:
    """The sanitized fabricd, unless RAILBED_FABRICD=plain. Once: to see that it is up to date looks at every source."""
    return build(sanitize=os.environ.get("RAILBED_FABRICD", "sanitized") == "sanitized")


@cache
def plain() -> Path:
    """fabricd as users have it: for tests of many frames. Once, likewise."""
    return build()


def wait_until(condition: Callable[[], bool], what: str, deadline_s: float = DEADLINE_S) -> None:
    end = time.monotonic() + deadline_s
    while not condition():
        assert time.monotonic() < end, f"waited {deadline_s} s for: {what}"
        time.sleep(0.005)


class SessionOver(Exception):
    """fabricd ended the session; the text is its reason."""


def sealed_memfd(nbytes: int, seals: int = fcntl.F_SEAL_SHRINK) -> int:
    fd = os.memfd_create("railbed-test", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
    os.ftruncate(fd, nbytes)
    fcntl.fcntl(fd, fcntl.F_ADD_SEALS, seals)
    return fd


class RawWorker:
    """A worker's end of its socket.  Nothing is checked or batched: the test's messages are sent as they are."""

    def __init__(self, path: Path, *, hello: bool = True) -> None:
        self.socket = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self.socket.settimeout(DEADLINE_S)
        self.socket.connect(str(path))
        self.time_ps = 0
        self.more = 0
        self.host_ps = 0
        self.sent_bytes = 0
        if hello:
            self.send(wire.command(wire.HELLO, wire.MAGIC, wire.VERSION, 0))
            _, self.rank, _, _, self.time_ps, self.mtu, _ = wire.WELCOME_BODY.unpack(self.packet(wire.WELCOME))

    def send(self, *commands: bytes, fds: Sequence[int] = ()) -> None:
        socket.send_fds(self.socket, [b"".join(commands)], list(fds))

    def packet(self, kind: int) -> memoryview:
        """The body of the next packet, which must be of that kind.  Raises SessionOver."""
        try:
            data = self.socket.recv(SIZED)
        except ConnectionError:
            data = b""
        if not data:
            raise SessionOver("closed without a word")
        got, body = wire.packet(memoryview(data))
        if got == wire.ERROR:
            raise SessionOver(bytes(body).decode())
        assert got == kind
        return body

    def reason(self) -> str:
        """Why fabricd ends the session; fails if it does not."""
        while True:
            try:
                data = self.socket.recv(SIZED)
            except ConnectionError:
                return "closed without a word"
            if not data:
                return "closed without a word"
            kind, body = wire.packet(memoryview(data))
            if kind == wire.ERROR:
                return bytes(body).decode()

    def region(self, nbytes: int) -> tuple[int, mmap.mmap]:
        fd = sealed_memfd(nbytes)
        self.send(wire.command(wire.REGISTER, nbytes, 0, 0, 7, wire.ALL_ACCESS, 0, 0), fds=[fd])
        _, key = wire.REGION_BODY.unpack(self.packet(wire.REGION))
        memory = mmap.mmap(fd, nbytes)
        os.close(fd)
        return key, memory

    def begin_wait(self, records: int = 1, until_ps: int = wire.FOREVER, *commands: bytes) -> None:
        self.send(*commands, wire.command(wire.WAIT, records, 0, until_ps))

    def end_wait(self) -> list[Record]:
        body = self.packet(wire.RECORDS)
        self.time_ps, count, self.more, self.host_ps, self.sent_bytes = wire.RECORDS_BODY.unpack_from(body)
        return list(wire.records(body, wire.RECORDS_BODY.size, count))

    def wait(self, records: int = 1, until_ps: int = wire.FOREVER, *commands: bytes) -> list[Record]:
        self.begin_wait(records, until_ps, *commands)
        return self.end_wait()

    def bye(self) -> None:
        self.send(wire.command(wire.BYE))
        self.socket.close()


def as_they_answer(workers: Sequence[RawWorker]) -> Iterator[int]:
    """The numbers of the workers, each when something has come for it."""
    with selectors.DefaultSelector() as waiting:
        for i, w in enumerate(workers):
            waiting.register(w.socket, selectors.EVENT_READ, i)
        while left := len(waiting.get_map()):
            ready = waiting.select(DEADLINE_S)
            assert ready, f"{left} of {len(workers)} wait for an answer"
            for key, _ in ready:
                waiting.unregister(key.fileobj)
                yield key.data


def as_they_end(workers: Sequence[RawWorker]) -> list[Record]:
    """The record that each worker waits for.  It then leaves, so that the clock need not wait for it."""
    records: dict[int, Record] = {}
    for i in as_they_answer(workers):
        (records[i],) = workers[i].end_wait()
        workers[i].bye()
    return [records[i] for i in range(len(workers))]


def post_send(
    qp: int,
    lkey: int,
    rkey: int,
    length: int,
    *,
    opcode: int = wire.WRITE,
    wr_id: int = 1,
    local: int = 0,
    remote: int = 0,
    imm: int = 0,
    flags: int = wire.SIGNALED,
) -> bytes:
    return wire.command(wire.POST_SEND, qp, opcode, flags, 0, wr_id, lkey, rkey, local, remote, length, imm, 0)


def post_recv(qp: int, lkey: int, length: int = 0, *, wr_id: int = 2, offset: int = 0) -> bytes:
    return wire.command(wire.POST_RECV, qp, lkey, wr_id, offset, length)


@dataclass
class Pair:
    """Two connected queue pairs, and a region on each side."""

    a: RawWorker
    b: RawWorker
    qp_a: int
    qp_b: int
    key_a: int
    key_b: int
    memory_a: mmap.mmap
    memory_b: mmap.mmap
    scale_up: bool
    parked: bool = False

    def park(self) -> None:
        """Lets b wait, so that the clock goes on while a acts."""
        if not self.parked:
            self.parked = True
            self.b.begin_wait(10_000, PARKED_UNTIL_PS)

    def write(self, length: int, **fields: int) -> bytes:
        return post_send(self.qp_a, self.key_a, self.key_b, length, **fields)

    def done(self) -> None:
        self.a.bye()
        if self.parked:
            self.b.end_wait()
        self.b.bye()


class BareFabric:
    """A running fabric."""

    def __init__(
        self, fabric: Fabric, hardware: Hardware, directory: Path, fabricd: Fabricd, switch: OwnSwitch
    ) -> None:
        self.switch = switch
        self.fabric = fabric
        self.hardware = hardware
        self.directory = directory
        self.fabricd = fabricd
        fabricd.subscribe()

    @property
    def pid(self) -> int:
        assert self.fabricd.process is not None
        return self.fabricd.process.pid

    def cpu_ns(self) -> int:
        """Processor time that fabricd has taken."""
        return int(Path(f"/proc/{self.pid}/schedstat").read_text().split()[0])

    def bridge(self, switch: str) -> str:
        return Devices(self.fabric).bridge(self.fabric.switch_by_name[switch])

    def port_to(self, switch: str, node: str) -> int:
        """The port of `switch` whose cable leads to `node`."""
        ends = (c.end(switch) for c in self.fabric.cables if {c.a.node, c.b.node} == {switch, node})
        return next(ends).port

    def ofctl(self, *arguments: str, flows: Sequence[str] = ()) -> str:
        said = self.switch.run("ovs-ofctl", "-OOpenFlow13", *arguments, input="\n".join(flows) + "\n")
        purge(self.switch.ovs.control)  # only then no frame meets the old flows
        return said

    def worker_socket(self, rank: int) -> Path:
        return self.directory / "workers" / str(rank) / "sock"

    def worker(self, rank: int, **how: Any) -> RawWorker:
        return RawWorker(self.worker_socket(rank), **how)

    def start(self, *ranks: int) -> None:
        self.fabricd.request("start", ranks=list(ranks))

    def connect(
        self,
        a: RawWorker,
        b: RawWorker,
        nbytes: int = 4096,
        *,
        tag: int = 5,
        network_only: bool = False,
        transport: int = 0,
    ) -> Pair:
        """A queue pair between two workers that have nothing else to wait for; `a` sends by that transport."""
        (key_a, memory_a), (key_b, memory_b) = a.region(nbytes), b.region(nbytes)
        for one, other in ((a, b), (b, a)):
            its = transport if one is a else 0
            call = wire.command(wire.CONNECT, other.rank, tag, 9, 0, int(network_only), its, 0)
            one.begin_wait(1, wire.FOREVER, call)
        (made_a,), (made_b,) = a.end_wait(), b.end_wait()
        return Pair(a, b, made_a.qp, made_b.qp, key_a, key_b, memory_a, memory_b, bool(made_a.imm))

    def pair(self, a: int, b: int, nbytes: int = 4096, *, start: bool = True, network_only: bool = False) -> Pair:
        """Workers of two ranks, connected; with `start` the clock runs and waits for just these two."""
        if start:
            self.start(a, b)
        return self.connect(self.worker(a), self.worker(b), nbytes, network_only=network_only)

    def counters(self) -> dict[str, Any]:
        return self.fabricd.request("counters")

    def nic(self, rank: int) -> dict[str, Any]:
        nics: list[dict[str, Any]] = self.counters()["nics"]
        return nics[rank]

    def events(self, kind: str, deadline_s: float = DEADLINE_S) -> list[dict[str, Any]]:
        """Reads events until one of that kind has come; returns all of that kind read so far."""
        found: list[dict[str, Any]] = []
        end = time.monotonic() + deadline_s
        while not found:
            assert time.monotonic() < end, f"no event {kind} within {deadline_s} s"
            found += [e for e in self.fabricd.events(0.1) if e["event"] == kind]
        return found


@contextlib.contextmanager
def bare_fabric(
    kind: str,
    params: Mapping[str, Any],
    hardware: Hardware = DEFAULTS,
    *,
    clock: Mapping[str, Any] | None = None,
    binary: Path | None = None,
    patience_s: float = 60.0,
    sample: int | None = None,
    change: Callable[[dict[str, Any]], None] = lambda config: None,
    dies: str = "",
) -> Iterator[BareFabric]:
    """Brings a fabric up and takes it down whatever happens; fails if fabricd ends badly or has leaked.

    If it `dies`, that is a pattern of all that it says.
    `sample` is the fast path's: one frame in so many of a flow goes through Open vSwitch; 0: all do; None: SAMPLE.
    `change` may edit fabricd's configuration.
    """
    fabric = topologies.build(kind, params)
    sample = SAMPLE if sample is None else sample
    with (
        tempfile.TemporaryDirectory(prefix="rbe-") as folder,
        open(Path(folder) / "log", "w+b") as log,
        own_switch() as switch,
    ):
        config = fabricd_config(
            fabric,
            hardware,
            fabric_id="test",
            clock=clock or {"mode": "virtual"},
            patience_s=patience_s,
            fast_path={"sample": sample, "ovs": str(switch.ovs.dir)} if sample else None,
        )
        divide(config["clock"])
        change(config)
        before = ["setpriv", "--pdeathsig", "KILL", *switch.inside]
        fabricd = Fabricd.start(
            config, Path(folder), user=USER, binary=binary or fabricd_binary(), log=log, before=before, env=_leaks()
        )
        try:
            _bridges_up(fabric, switch)
            yield BareFabric(fabric, hardware, Path(folder), fabricd, switch)
        finally:
            fabricd.stop(60.0)  # it closes its TAP devices one by one, and a sanitizer then looks for leaks
        log.seek(0)
        said = log.read().decode(errors="replace")
        assert fabricd.process is not None
        assert fabricd.process.returncode == (1 if dies else 0), said
        assert re.fullmatch(dies, said.strip()), said


def divide(clock: dict[str, Any]) -> None:
    """No figure depends on how a fabric is divided: each test has an order of its own in which partitions run."""
    if clock["mode"] == "virtual" and "partitions" not in clock:
        test = os.environ.get("PYTEST_CURRENT_TEST", "")
        clock |= {"partitions": 8, "partition_order": zlib.crc32(test.partition(" ")[0].encode())}


def _leaks() -> dict[str, str]:
    """The environment in which the first fabric of each test looks for leaks: that takes a sixth of a fabric's time."""
    test = os.environ.get("PYTEST_CURRENT_TEST", "").partition("[")[0]
    if test not in _looked_for_leaks:
        _looked_for_leaks.add(test)
        return {}
    return {"ASAN_OPTIONS": "detect_leaks=0"}


_looked_for_leaks: set[str] = set()


def _bridges_up(fabric: Fabric, switch: OwnSwitch) -> None:
    devices = Devices(fabric)
    bridges = [Bridge(FENCE_BRIDGE, len(fabric.switches) + 1, (FENCE_TAP,))]
    for number, s in enumerate(fabric.switches, 1):
        taps = tuple(devices.tap(s, port) for port in range(1, s.ports + 1))
        bridges.append(Bridge(devices.bridge(s), number, taps))
    switch.ovs.finish(switch.ovs.create(bridges))
    given = [switch.ovs.return_to_sender(FENCE_BRIDGE)]
    paths = dict(nx.all_pairs_shortest_path(fabric.graph))
    for s in fabric.switches:
        ports = {e.other(s.name).node: e.end(s.name).port for e in _cables(fabric, s.name)}
        flows = [straight.to_mac(n.mac, ports[paths[s.name][n.name][1]]) for n in fabric.nics]
        given.append(switch.ovs.add_flows(devices.bridge(s), flows))
    switch.ovs.finish(given)


def _cables(fabric: Fabric, node: str) -> list[Any]:
    return [c for c in fabric.cables if node in (c.a.node, c.b.node)]
