"""Proof: whatever RDMA program is killed at whatever moment, nothing of it is left at its NIC, and no other notices.

`./setup.sh prove program-kills [--kills N] [--seed SEED]`. Each kill is a kill -9 that a seed draws: of a server, of
its client, or of both, at some moment of their lives: by the wall clock, also before they have opened their NIC,
or when so many packets have arrived. Beside them another pair runs, and has to print what it prints alone.
Afterwards their memory and queue pairs must be gone from `testbed show rdma`, and the same hosts
must give the figures of before.
"""

from __future__ import annotations

import argparse
import contextlib
import random
import subprocess
import sys
from collections import Counter
from dataclasses import dataclass

from tests.parts.fabricd_fixture import wait_until
from tests.parts.rdma_programs import DEADLINE_S, Programs, numbers, programs_on

LONG = "100000"
VICTIMS: tuple[tuple[str, ...], ...] = (
    ("ib_write_bw", "-F", "-s", "4096", "-n", LONG),
    ("ib_write_bw", "-F", "-s", "65536", "-n", LONG, "-q", "4", "-b"),
    ("ib_read_bw", "-F", "-s", "4096", "-n", LONG),
    ("ib_write_lat", "-F", "-n", LONG),
    ("ib_send_bw", "-F", "-s", "4096", "-n", LONG, "--use-srq"),
    ("ib_send_bw", "-F", "-c", "UD", "-n", LONG),
    ("ib_atomic_bw", "-F", "-n", LONG),
    ("rping", "-C", LONG),
)
BESIDE = ("ib_write_bw", "-F", "-s", "8192", "-n", "100")
PORTS = {"rping": 7174}
LIFE_S, PACKETS = 0.3, 4000  # of which the moment is drawn
RANKS = {"hosts": 4}


@dataclass
class Pair:
    """A server at one rank and its client at another."""

    p: Programs
    argv: tuple[str, ...]
    server: int
    client: int

    def begin_server(self) -> subprocess.Popen[str]:
        for socket in (self.p.f.directory / "network").glob(f"{self.server}-*"):
            socket.unlink()  # of a program before
        more = ("-s", "-a", self._address()) if self.argv[0] == "rping" else ()
        return self.p.start(self.server, *self.argv, *more)

    def listening(self, server: subprocess.Popen[str]) -> bool:
        name = f"{self.server}-{PORTS.get(self.argv[0], 18515)}"
        return server.poll() is not None or (self.p.f.directory / "network" / name).exists()

    def begin_client(self) -> subprocess.Popen[str]:
        more = ("-c", "-a", self._address()) if self.argv[0] == "rping" else (self._address(),)
        return self.p.start(self.client, *self.argv, *more)

    def _address(self) -> str:
        return str(self.p.f.fabric.nics[self.server].ip)

    def run(self) -> list[list[float]]:
        """The figures that the client prints."""
        server = self.begin_server()
        wait_until(lambda: self.listening(server), "a server to listen", DEADLINE_S)
        client = self.begin_client()
        said = [one.communicate(timeout=DEADLINE_S)[0] for one in (server, client)]
        assert (server.returncode, client.returncode) == (0, 0), said
        return numbers(said[1])


class Place:
    """A fabric: ranks 0 and 1 have programs that are killed, 2 and 3 others; and what they print alone."""

    def __init__(self, p: Programs) -> None:
        self.p = p
        self.again, self.beside = Pair(p, BESIDE, 0, 1), Pair(p, BESIDE, 2, 3)
        self.alone = self.again.run()
        assert self.alone == self.beside.run() != []

    def kill(self, draw: random.Random) -> str:
        """Raises AssertionError if anybody notices; what was killed, and when."""
        victims, told = Pair(self.p, draw.choice(VICTIMS), 0, 1), draw.choice(("the server", "the client", "both"))
        early, by_packets = draw.random() < 0.2, draw.random() < 0.5
        moment_s, packets = draw.uniform(0, LIFE_S), draw.randrange(PACKETS)
        server = victims.begin_server()
        running = [server]
        if not early:
            wait_until(lambda: victims.listening(server), "the server to listen", DEADLINE_S)
            running.append(victims.begin_client())
        if by_packets and not early:
            before = self._packets()
            wait_until(
                lambda: self._packets() - before >= packets or any(one.poll() is not None for one in running),
                f"{packets} packets of {' '.join(victims.argv)}",
                DEADLINE_S,
            )
            assert all(one.poll() is None for one in running), [one.communicate()[0] for one in running]
        else:
            with contextlib.suppress(subprocess.TimeoutExpired):
                running[-1].wait(moment_s)
        told = "the server" if early else told
        dead = {"the server": running[:1], "the client": running[-1:], "both": running}[told]
        for one in dead:
            one.kill()
        for one in dead:
            one.wait()
        assert self.beside.run() == self.alone, "another pair's figures are others"
        for one in running:
            one.terminate()
        for one in running:
            one.wait(DEADLINE_S)
        wait_until(self._nothing_left, f"what is left of {' '.join(victims.argv)} to go", DEADLINE_S)
        assert self.again.run() == self.alone, "the same hosts give other figures"
        when = f"after {packets} packets" if by_packets and not early else f"after {moment_s:.3f} s"
        when += ", before its client came" if early else ""
        return f"{' '.join(victims.argv)}: {told} {when}"

    def _packets(self) -> int:
        return sum(self.p.f.nic(rank)["rx_vport_rdma_unicast_packets"] for rank in (0, 1))

    def _nothing_left(self) -> bool:
        ends = self.p.f.fabricd.request("programs")["programs"]
        return not ends and not self.p.f.counters()["qps"]


def main() -> None:
    parser = argparse.ArgumentParser(prog="./setup.sh prove program-kills", description=__doc__)
    parser.add_argument("--kills", type=int, default=100, help="default 100")
    parser.add_argument("--seed", default="1", help="of what is killed and when (default 1)")
    options = parser.parse_args()
    draw, killed = random.Random(options.seed), Counter[str]()
    with programs_on("star", RANKS) as p:
        place = Place(p)
        for n in range(options.kills):
            print(f"{n + 1}: {(what := place.kill(draw))}", flush=True)
            killed[what.split()[0]] += 1
    counts = ", ".join(f"{name} {count}" for name, count in sorted(killed.items()))
    print(f"{options.kills} kills (seed {options.seed}), nothing left, nobody noticed: {counts}")
    sys.exit(0)


if __name__ == "__main__":
    main()
