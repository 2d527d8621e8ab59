"""Ordinary programs between hosts, as probes: ping and iperf3, in the ranks' containers.

They need the real clock: with it every NIC has a kernel interface. What they measure is wall time, `dilation` times as
long as emulated time; the tables have emulated time, and the programs' own words above them.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
from collections.abc import Sequence
from contextlib import suppress
from tempfile import TemporaryFile
from typing import IO, Any

from testbed.base.errors import MachineError, UserError
from testbed.live.look.table import Table
from testbed.live.tools.probe import A, B, check_pair
from testbed.live.tools.site import Site
from testbed.live.tools.tool import Tool
from testbed.words import kinds
from testbed.words.entry import Parameter
from testbed.words.kinds import Wrong

COUNT, BYTES = 3, 56
ANSWER_S = 10
"""How long ping waits for an answer, of wall time, besides the slower fabric's round trip."""
ROUND_TRIP_NS = 50_000.0
"""More than a round trip takes on an idle fabric, emulated."""
LASTS_S = 5
START_S = 120
"""How long a program may take to come and go, beside what it measures: a throttled host needs that."""
PORT = 5201
_GONE_S = 5.0
_COUNTS = re.compile(r"(\d+) packets transmitted, (\d+) received")
_TIMES = re.compile(r"= ([\d.]+)/([\d.]+)/([\d.]+)(?:/[\d.]+)? ms")


class Program:
    """A program in a rank's container; ended when it is left."""

    def __init__(self, site: Site, rank: int, argv: Sequence[str]) -> None:
        try:
            command, env = site.lab.exec_command(rank, ["env", "--", *argv], tty=False)
        except MachineError:  # that is no doing of the fabric's
            raise
        except UserError:  # whatever fault keeps the host from it, that is all that one sees of it
            raise Wrong(f"rank {rank} does not answer", "no program can be started there") from None
        self._output, self._errors = TemporaryFile(), TemporaryFile()  # noqa: SIM115  closed in __exit__
        self._process = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=self._output, stderr=self._errors, env={**env}
        )

    def __enter__(self) -> Program:
        return self

    def __exit__(self, *_: object) -> None:
        if self._process.poll() is None:
            self._process.terminate()  # runc hands it on to the program
            with suppress(subprocess.TimeoutExpired):
                self._process.wait(_GONE_S)
        if self._process.poll() is None:
            self._process.kill()
            self._process.wait()
        self._output.close()
        self._errors.close()

    @property
    def ended(self) -> bool:
        return self._process.poll() is not None

    @property
    def code(self) -> int | None:
        """Its exit code; None: it has not ended."""
        return self._process.poll()

    @property
    def output(self) -> str:
        return _whole(self._output)

    @property
    def everything(self) -> str:
        """Its errors behind what it has said."""
        return f"{self.output}\n{_whole(self._errors)}"


def _whole(file: IO[bytes]) -> str:
    """The program writes at the offset that we share with it, so it has to stay where it is."""
    fd = file.fileno()
    return os.pread(fd, os.fstat(fd).st_size, 0).decode(errors="replace")


def _hosts(site: Site, a: int, b: int) -> None:
    if not site.lab.kernel:
        raise Wrong("hosts have no interfaces with the virtual clock", "probe lat, bw and mesh go without")
    check_pair(site, a, b)


def _emulated_ns(site: Site, wall_s: float) -> float:
    return wall_s * 1e9 / site.lab.dilation


def ping(site: Site, a: int, b: int, count: int = COUNT, size: float = BYTES) -> list[Table]:
    """ICMP echo, in class 0: what becomes of RDMA it does not see."""
    _hosts(site, a, b)
    wait_s = ANSWER_S + round(ROUND_TRIP_NS * site.lab.dilation / 1e9)
    address = str(site.fabric.nics[b].ip)
    argv = ["ping", "-n", "-c", str(count), "-s", str(int(size)), "-W", str(wait_s), address]
    with Program(site, a, argv) as program:
        site.until(lambda: program.ended, _emulated_ns(site, START_S + count + wait_s))
        output, everything = program.output, program.everything
    counts, times = _COUNTS.search(output), _TIMES.search(output)
    if counts is None:
        raise Wrong(f"ping at rank {a} has come to no end", _last(everything))
    sent, received = int(counts[1]), int(counts[2])
    least, mean, most = (float(t) * 1e6 / site.lab.dilation / 1000 for t in times.groups()) if times else (None,) * 3
    row = {
        "from": a, "to": b, "sent": sent, "received": received, "lost": sent - received,
        "min_us": _round(least), "mean_us": _round(mean), "max_us": _round(most),
    }  # fmt: skip
    return [Table("ping", _title(site, output), [row], ("from", "to", "min_us", "mean_us", "max_us"))]


def iperf3(site: Site, a: int, b: int, lasts: int = LASTS_S) -> list[Table]:
    """TCP, in class 0, from the first to the second."""
    _hosts(site, a, b)
    address, limit_s = str(site.fabric.nics[b].ip), 2 * START_S + lasts
    server = ["timeout", str(limit_s), "iperf3", "-s", "-1", "--forceflush", "-p", str(PORT)]
    client = ["iperf3", "-J", "-c", address, "-p", str(PORT), "-t", str(lasts)]
    with Program(site, b, server) as listening:
        site.until(lambda: listening.ended or "listening" in listening.output, _emulated_ns(site, START_S))
        if listening.ended:
            raise Wrong(f"iperf3 at rank {b} does not listen", _last(listening.everything))
        with Program(site, a, client) as sending:
            site.until(lambda: sending.ended, _emulated_ns(site, limit_s))
            output, everything = sending.output, sending.everything
    error, sums = _sums(output)
    if error:
        raise Wrong(f"iperf3 from {a} to {b}: {error}", "probe ping says whether the hosts reach each other")
    if sums is None:
        raise Wrong(f"iperf3 at rank {a} has come to no end", _last(everything))
    row = {
        "from": a, "to": b, "bytes": int(sums["bytes"]), "Gbps": _gbps(site, sums["bps"]),
        "sent_Gbps": _gbps(site, sums["sent_bps"]), "retransmits": int(sums["retransmits"]),
    }  # fmt: skip
    wall = f"{sums['bps'] / 1e6:.2f} Mbits/sec of wall time"
    title = f"iperf3: {wall}; emulated, {site.lab.dilation} times as fast:"
    return [Table("iperf3", title, [row], ("from", "to", "Gbps", "sent_Gbps"))]


def _sums(output: str) -> tuple[str, dict[str, float] | None]:
    """Of iperf3's JSON: its error, and what was received and sent in all; nothing if it is not whole."""
    try:
        report: dict[str, Any] = json.loads(output)
        if "error" in report:
            return str(report["error"]), None
        sent, got = report["end"]["sum_sent"], report["end"]["sum_received"]
        return "", {
            "bytes": float(got["bytes"]), "bps": float(got["bits_per_second"]),
            "sent_bps": float(sent["bits_per_second"]), "retransmits": float(sent.get("retransmits", 0)),
        }  # fmt: skip
    except (ValueError, KeyError, TypeError, AttributeError):
        return "", None


def _title(site: Site, output: str) -> str:
    own = output.strip().splitlines()[-1]
    return f"ping: {own}, of wall time; emulated, {site.lab.dilation} times as short:"


def _last(output: str) -> str:
    return (output.strip().splitlines() or ["it has said nothing"])[-1][:200]


def _gbps(site: Site, wall_bps: float) -> float:
    return round(wall_bps * site.lab.dilation / 1e9, 3)


def _round(us: float | None) -> float | None:
    return None if us is None else round(us, 3)


TOOLS = (
    Tool(
        words="probe ping", about="Run ping between two hosts (real clock only).", use=ping,
        parameters=(
            A, B,
            Parameter("count", kinds.Number("count", "N", 1, 100), f"How many (default: {COUNT}).", option=True),
            Parameter("size", kinds.Quantity("size", "SIZE", kinds.SIZE.of, 16, 8000), "Of each (default: 56B).", True),
        ),
        samples=("0 3", "0 3 --count 5"),
    ),
    Tool(
        words="probe iperf3", about="Run iperf3 between two hosts (real clock only).", use=iperf3,
        parameters=(
            A, B,
            Parameter("lasts", kinds.Number("seconds", "S", 1, 600), f"Seconds of wall time (default: {LASTS_S}).",
                      option=True, word="for"),
        ),
        samples=("0 3", "0 3 --for 10"),
    ),
)  # fmt: skip
