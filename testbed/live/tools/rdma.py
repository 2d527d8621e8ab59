"""RDMA programs of the distribution in ranks' containers, at a prompt: `exec 0 -- ibv_devinfo`; of two ranks the first
is the server, `exec 0 3 -- ib_write_bw -s 65536`.

With the virtual clock a world stands still until each program has its NIC open or has ended, goes on for a while, and
stands still again: so what they print does not depend on the machine.  That holds for programs that open their NIC
once, as all of these do; others (shells, say) are for `testbed exec`.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from testbed.containers.programs import NETWORK
from testbed.live.look.table import Table
from testbed.live.tools.probe import check_pair
from testbed.live.tools.programs import Program
from testbed.live.tools.site import Site
from testbed.live.tools.tool import Tool
from testbed.logs import printed
from testbed.words import kinds
from testbed.words.entry import Parameter
from testbed.words.kinds import Wrong

KNOWN = re.compile(r"ibv?_[a-z_]+|rping|ucmatose|udaddy|rdma_(x?server|x?client)")
NAMES = "ibv_devinfo, ib_write_bw, ibv_rc_pingpong, rping and the like (perftest, ibverbs-utils, rdmacm-utils)"
BY_ITS_OPTION = re.compile(r"rping|rdma_x?client|rdma_x?server")
"""Those that are told by an option what they are, and whose server they are to reach: `-s` and `-c -a ADDRESS`."""
READY_NS, LINGER_NS = 10e6, 10e6
"""Emulated time in which a server is ready to be asked, and for which it may stay when its client has ended."""
MOST_NS = 10e9
GRAIN_NS, GRAINS = 1_000.0, 16
"""It goes on in steps of a 16th of what has passed, so it stands at most so much after their end."""
START_S, WALL_S = 60.0, 300.0
_LISTEN = "0A"  # of /proc/net/tcp
LINES, WIDE = 400, 200


def execute(site: Site, words: str) -> list[Table]:
    ranks, argv = _read(site, words)
    with ExitStack() as left:
        run = _Run(site, left.enter_context)
        if len(ranks) == 1:
            run.start(ranks[0], argv)
        else:
            check_pair(site, *ranks)
            run.start(ranks[0], _server(argv))
            run.pass_until(run.listens, READY_NS)
            run.start(ranks[1], _client(argv, str(site.fabric.nics[ranks[0]].ip)))
        whole = run.pass_until(lambda: run.programs[-1].ended, MOST_NS)
        if whole:
            run.pass_until(lambda: run.programs[0].ended, LINGER_NS)
        tables = run.tables()
    run.settle()
    return tables


def _read(site: Site, words: str) -> tuple[list[int], list[str]]:
    """RANK [RANK] [--] PROGRAM ..; raises Wrong."""
    usage = "exec RANK [RANK] -- PROGRAM .., the first rank's is the server"
    typed = words.split()
    ranks = list[int]()
    while typed and typed[0] != "--" and not KNOWN.fullmatch(typed[0]) and len(ranks) < 2:
        ranks.append(kinds.RANK.read(typed.pop(0), site.fabric))
    if typed[:1] == ["--"]:
        typed.pop(0)
    if not ranks or not typed:
        raise Wrong("whose NIC, and which program?", usage)
    if not KNOWN.fullmatch(typed[0]):
        raise Wrong(f"{typed[0]!r} is no RDMA program that can be run here", NAMES)
    return ranks, typed


def _server(argv: Sequence[str]) -> list[str]:
    return [*argv, "-s"] if BY_ITS_OPTION.fullmatch(argv[0]) and argv[0] == "rping" else list(argv)


def _client(argv: Sequence[str], address: str) -> list[str]:
    if argv[0] == "rping":
        return [*argv, "-c", "-a", address]
    if argv[0] in ("ucmatose", "udaddy", "rdma_client", "rdma_xclient"):
        return [*argv, "-s", address]
    return [*argv, address]


class _Run:
    """Programs under way, and how time passes for them."""

    def __init__(self, site: Site, enter: Callable[[Any], Any]) -> None:
        self.site, self.enter = site, enter
        self.programs: list[Program] = []
        self.ranks: list[int] = []
        self.names: list[str] = []
        self.before: set[tuple[str, str]] = set()

    def start(self, rank: int, argv: Sequence[str]) -> None:
        self.ranks.append(rank)
        self.before = self.before or self._listening()
        self.programs.append(self.enter(Program(self.site, rank, argv)))
        self.names.append(argv[0])

    def listens(self) -> bool:
        """Whether the server does, or has ended."""
        return self.programs[0].ended or bool(self._listening() - self.before)

    def _listening(self) -> set[tuple[str, str]]:
        """Places at the server's host where somebody does: of its sockets, or of the management network."""
        lab, rank = self.site.lab, self.ranks[0]
        if not lab.kernel:
            return {(one.name, "") for one in (lab.dir / NETWORK.name).glob(f"{rank}-*")}
        host = lab.hosts[lab.fabric.nics[rank].host]
        texts = [Path(f"/proc/{host.pid}/net/{table}").read_text() for table in ("tcp", "tcp6")]
        rows = [row.split() for text in texts for row in text.splitlines()[1:]]
        return {(row[1], row[9]) for row in rows if row[3] == _LISTEN}

    def pass_until(self, done: Callable[[], bool], limit_ns: float) -> bool:
        """Lets time pass until then, but no longer than that. Returns whether it is."""
        if self.site.lab.kernel:
            return self.site.until(done, WALL_S * 1e9 / self.site.lab.dilation)
        passed = 0.0
        self.settle()
        while not done():
            step = min(max(GRAIN_NS, passed / GRAINS), limit_ns - passed)
            if step < 1 or not self.site.step(step):
                return False
            passed += step
            self.settle()
        return True

    def settle(self) -> None:
        """Until all that run have their NICs open: what they do before and after that takes no emulated time."""
        end = time.monotonic() + START_S
        while not self.site.lab.kernel and time.monotonic() < end:
            sessions = self.site.request("programs")["programs"]
            there = [one["rank"] for one in sessions if one["state"] == "waiting"]  # who runs may still end by now
            running = [rank for rank, one in zip(self.ranks, self.programs, strict=True) if not one.ended]
            if sorted(there) == sorted(running):
                return
            time.sleep(0.002)

    def tables(self) -> list[Table]:
        said, ends, figures = list[dict[str, Any]](), list[dict[str, Any]](), list[dict[str, Any]]()
        for rank, name, program in zip(self.ranks, self.names, self.programs, strict=True):
            lines = program.everything.rstrip().expandtabs().splitlines()
            said += [{"rank": rank, "says": line[:WIDE]} for line in lines[:LINES]]
            ends.append({"rank": rank, "program": name, "exit": program.code})
            found = printed.figures(program.output)
            figures += [
                {
                    "rank": rank, "size": one.size_bytes, "time_us": round(one.time_ns / 1000, 3),
                    "GBps": None if one.rate_Bps is None else round(one.rate_Bps / 1e9, 3),
                }
                for one in found
            ]  # fmt: skip
        return [Table("says", "", said), Table("ended", "", ends), Table("figures", "", figures)][: 3 if figures else 2]


TOOLS = (
    Tool(
        words="exec", about="Run an RDMA program at a rank, or at two as server and client.", use=execute,
        parameters=(Parameter("words", kinds.TEXT, f"RANK [RANK] -- PROGRAM ..: {NAMES}.", required=True, rest=True),),
        samples=("0 -- ibv_devinfo", "0 3 -- ib_write_bw -s 65536 -n 100"),
    ),
)  # fmt: skip
