"""The real clock: ordinary programs in network namespaces see the modelled delays and rates, times the dilation."""

from __future__ import annotations

import contextlib
import re
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path

from hardware.config import netdev_name
from tests.parts.dissected import dissect
from tests.parts.fabricd_fixture import DEFAULTS, BareFabric, bare_fabric, wait_until
from tests.parts.timing_model import wire_ps
from workloads.verbs import wire

OUT = 2  # of pcapng's directions
DILATION = 100_000  # slow enough for a busy machine: a round trip takes a tenth of a second or more, the rate is 4 Mb/s


@dataclass
class Host:
    """A network namespace with one NIC's kernel interface in it."""

    name: str
    ip: str

    def command(self, *words: str) -> list[str]:
        return ["ip", "netns", "exec", self.name, *words]

    def run(self, *words: str) -> str:
        return subprocess.run(self.command(*words), check=True, capture_output=True, text=True).stdout


@contextlib.contextmanager
def hosts(f: BareFabric) -> Iterator[list[Host]]:
    made: list[Host] = []
    try:
        for nic in f.fabric.nics:
            host = Host(f"{f.directory.name}-{nic.name}", str(nic.ip))
            subprocess.run(["ip", "netns", "add", host.name], check=True)
            made.append(host)
            device = netdev_name("test", nic)
            f.switch.run("ip", "link", "set", device, "netns", host.name)
            settings = [f"link set {device} mtu 4096 address {nic.mac} up", f"addr add {nic.ip}/8 dev {device}"]
            others = [n for n in f.fabric.nics if n is not nic]
            settings += [f"neigh add {n.ip} lladdr {n.mac} dev {device} nud permanent" for n in others]
            batch = "\n".join(settings) + "\n"
            host.run("sysctl", "-qw", f"net.ipv6.conf.{device}.disable_ipv6=1")
            subprocess.run(["ip", "-n", host.name, "-batch", "-"], input=batch, text=True, check=True)
        yield made
    finally:
        for host in made:
            subprocess.run(["ip", "netns", "del", host.name], check=False)


@contextlib.contextmanager
def real_fabric(kind: str, params: dict[str, int], dilation: int = DILATION) -> Iterator[tuple[BareFabric, list[Host]]]:
    clock = {"mode": "real", "dilation": dilation}
    with bare_fabric(kind, params, clock=clock) as f, hosts(f) as made:
        yield f, made


def rtts_ms(source: Host, target: Host, count: int = 10) -> list[float]:
    text = source.run("ping", "-n", "-c", str(count), "-i", "0.1", "-W", "20", target.ip)
    return [float(t) for t in re.findall(r"time=([\d.]+)", text)]


def modelled_rtt_ms(switches: int) -> float:
    payload = 84 - 20 - 8 - 12 - 4 + 0  # of a RoCE packet as long as a ping of 84 bytes
    one_way = wire_ps(DEFAULTS.cable_rate_bps, payload, 0) * (switches + 1)
    one_way += int(((switches + 1) * DEFAULTS.cable_delay_ns + switches * DEFAULTS.switch_latency_ns) * 1000)
    return 2 * one_way * DILATION / 1e9


def test_ping_takes_the_modelled_time() -> None:
    for kind, params, switches in (
        ("star", {"hosts": 2}, 1),
        ("clos", {"leaves": 2, "spines": 1, "hosts_per_leaf": 1}, 3),
    ):
        with real_fabric(kind, params) as (f, made):
            seen = rtts_ms(made[0], made[1])
            assert len(seen) == 10
            modelled = modelled_rtt_ms(switches)
            assert min(seen) > 0.999 * modelled  # never too early
            assert min(seen) < 1.05 * modelled  # on time when the machine lets it
            fidelity = f.counters()["fidelity"]
            assert fidelity["clock"] == "real"
            assert fidelity["dilation"] == DILATION
            late = fidelity["lateness_ns"]
            assert 0 < late["p50"] <= late["p90"] <= late["p99"]
            assert late["max"] > 0
            assert fidelity["unmodelled_losses"] == fidelity["netdev_drops"] == fidelity["flagged"] == 0


TRIES = 8
FULL = 4096 + 14  # a frame of the hosts' MTU, without FCS
STRETCH = 100  # frames: most of a second


@dataclass(frozen=True)
class Left:
    """Frames that have left a port, each with the emulated time of its first bit, in whole ns, and its length."""

    ns: list[int]
    octets: list[int]

    @classmethod
    def of(cls, path: Path) -> Left:
        found = dissect(path, "frame.time_epoch", "frame.len", "frame.packet_flags_direction")
        out = [frame for frame in found if int(frame["frame.packet_flags_direction"], 0) == OUT]
        return cls(
            [int(Decimal(frame["frame.time_epoch"]) * 10**9) for frame in out],
            [int(frame["frame.len"]) for frame in out],
        )

    @property
    def early_ns(self) -> list[float]:
        """How long before the last bit of the one before it each frame begins: negative if the wire was free."""
        taken = [(octets + 24) * 8e9 / DEFAULTS.cable_rate_bps for octets in self.octets]  # FCS, preamble, gap
        return [before + wire_ns - now for before, wire_ns, now in zip(self.ns, taken, self.ns[1:], strict=False)]

    @property
    def best_bps(self) -> float:
        """What TCP carries in the quickest stretch, in bits per second of emulated time."""
        carried = [max(0, octets - 14 - 20 - 32) for octets in self.octets]  # Ethernet, IP, TCP with timestamps
        spans = [
            8e9 * sum(carried[k : k + STRETCH]) / (self.ns[k + STRETCH] - self.ns[k])
            for k in range(len(self.ns) - STRETCH)
        ]
        return max(spans, default=0.0)


def test_tcp_reaches_the_rate_and_never_passes_it(tmp_path: Path) -> None:
    """In emulated time, in which frames are sent: a busy machine may keep TCP waiting, and catches up in bursts."""
    best, following = 0.0, 0
    for number in range(TRIES):
        with real_fabric("star", {"hosts": 2}) as (f, (client, server)):
            files = {port: tmp_path / f"{number}-{port.replace(':', '-')}" for port in ("h0:1", "sw0:2")}
            for port, path in files.items():
                f.fabricd.request("capture", port=port, path=str(path))
            _send_by_tcp(client, server)
            for path in files.values():
                f.fabricd.request("capture_stop", path=str(path))
            assert f.counters()["fidelity"]["unmodelled_losses"] == 0
        for port, path in files.items():
            left = Left.of(path)
            early = left.early_ns
            assert max(early) <= 1.0, f"{port}: two frames on the wire at once"  # times are cut to whole ns
            full = [ns for ns, octets in zip(early, left.octets[1:], strict=True) if octets == FULL]
            if port == "h0:1":  # from the wire's end on nothing waits but for the wire
                following = sum(
                    ns > -1.0 for ns in full
                )  # else nothing was to be seen of the rate: TCP was kept waiting
        if following > STRETCH:
            best = max(best, left.best_bps)
        if best > 0.9 * DEFAULTS.cable_rate_bps:
            return
    raise AssertionError(
        f"{best / DEFAULTS.cable_rate_bps:.3f} of the rate at best; {following} frames in a row at last"
    )


def _send_by_tcp(client: Host, server: Host) -> None:
    command = server.command("iperf3", "-s", "-1")
    with subprocess.Popen(command, stdout=subprocess.DEVNULL) as listening:
        try:
            wait_until(lambda: ":5201" in server.run("ss", "-ltn"), "iperf3 to listen")
            client.run("iperf3", "-c", server.ip, "-t", "2")
        finally:
            listening.kill()


def test_workers_run_on_the_real_clock_too() -> None:
    with bare_fabric("star", {"hosts": 2}, clock={"mode": "real", "dilation": DILATION}) as f:
        pair = f.connect(f.worker(0), f.worker(1), 1 << 16)
        pair.memory_a[:] = bytes(range(256)) * 256
        pair.park()
        before = pair.a.time_ps
        (record,) = pair.a.wait(1, wire.FOREVER, pair.write(1 << 16))
        assert record.status == 0
        assert record.time_ps > before
        assert pair.memory_b[:] == pair.memory_a[:]
        assert record.time_ps - before > 5_000_000  # never faster than modelled
        pair.a.bye()
        pair.b.socket.close()
