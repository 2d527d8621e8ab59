"""The distribution's RDMA programs on a bare fabric: no containers, the same libraries and files as inside one."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path

import pytest

from hardware.build import EMULATED, EMULATED_SOURCES, RDMACM, RDMACM_SOURCES, VERBS, VERBS_SOURCES, build
from hardware.config import Hardware
from testbed.containers.programs import provide
from tests.parts.fabricd_fixture import FAST, BareFabric, bare_fabric, wait_until
from tests.parts.machine import ROOT

DEADLINE_S = 60.0
HEADER = Path("/usr/include/infiniband/verbs.h")


def require(*names: str) -> None:
    """Skips the test where the distribution's programs are not installed."""
    for name in names:
        if shutil.which(name) is None:
            packages = "perftest, ibverbs-utils, rdmacm-utils, libfabric-bin, ucx-utils"
            pytest.skip(f"{name} is not installed: ./setup.sh test installs it ({packages})")


@cache
def _libraries() -> None:
    """What programs load is up to date. Once: to see that looks at every source."""
    for library, sources in ((VERBS, VERBS_SOURCES), (EMULATED, EMULATED_SOURCES), (RDMACM, RDMACM_SOURCES)):
        build(library, sources=sources)


def compiled(folder: Path, name: str) -> str:
    """A program of tests/parts, against our libibverbs and the distribution's header."""
    if not HEADER.is_file():
        pytest.skip("verbs' header is not there: ./setup.sh test installs it (libibverbs-dev)")
    _libraries()
    program, source = folder / name, ROOT / "tests/parts" / f"{name}.c"
    library = (f"-L{VERBS.parent}", "-l:libibverbs.so.1")
    subprocess.run(["cc", "-D_GNU_SOURCE", "-w", "-O1", "-pthread", "-o", program, source, *library], check=True)
    return str(program)


class Programs:
    """Programs of ranks; each gets its rank's NIC and, with the virtual clock, its time."""

    def __init__(self, f: BareFabric, *, virtual: bool = True) -> None:
        self.f = f
        self.started: list[subprocess.Popen[str]] = []
        _libraries()
        clock = {"mode": "virtual"} if virtual else {"mode": "real", "dilation": 1000}
        provide(f.directory, f.fabric, f.hardware, clock, None)
        self.env = {"LD_LIBRARY_PATH": str(VERBS.parent), **({"LD_PRELOAD": str(EMULATED)} if virtual else {})}

    def start(self, rank: int, *argv: str) -> subprocess.Popen[str]:
        env = os.environ | self.env | {
            "RAILBED_RANK": str(rank),
            "RAILBED_SOCKET": str(self.f.worker_socket(rank)),
            "RAILBED_NICS": str(self.f.directory / "nics"),
            "RAILBED_NETWORK": str(self.f.directory / "network"),
        }  # fmt: skip
        program = subprocess.Popen(argv, env=env, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        self.started.append(program)
        return program

    def end(self) -> None:
        for program in self.started:
            program.kill()
            program.wait()

    def listens(self, rank: int, port: int = 18515) -> None:
        """Waits until a program of the rank listens on the management network."""
        wait_until((self.f.directory / "network" / f"{rank}-{port}").exists, f"rank {rank} to listen", DEADLINE_S)

    def pair(self, *argv: str, server: int = 0, client: int = 1, together: bool = False) -> tuple[str, str]:
        """Runs it at both, the client with the server's address; what each has printed.

        `together`: time waits for both.
        """
        for socket in (self.f.directory / "network").glob(f"{server}-*"):
            socket.unlink()  # of a program before
        first = self.start(server, *argv)
        if not together:
            self.listens(server)
        second = self.start(client, *argv, str(self.f.fabric.nics[server].ip))
        said = [p.communicate(timeout=DEADLINE_S)[0] for p in (first, second)]
        assert (first.returncode, second.returncode) == (0, 0), said
        return said[0], said[1]

    def next(self, *ranks: int) -> None:
        """Every rank may run another program; time waits for these."""
        for socket in (self.f.directory / "network").iterdir():
            socket.unlink()
        self.f.fabricd.request("quiesce")
        self.f.fabricd.request("next_job")
        self.f.start(*ranks)


@contextmanager
def programs_on(
    kind: str, params: dict[str, int], hardware: Hardware | None = None, *, binary: Path | None = None
) -> Iterator[Programs]:
    with bare_fabric(kind, params, hardware or Hardware(), sample=FAST, binary=binary) as f:
        f.start()
        programs = Programs(f)
        try:
            yield programs
        finally:
            programs.end()


def numbers(said: str) -> list[list[float]]:
    """The lines of figures of perftest's table."""
    rows = re.findall(r"^ *\d+ +\d+ +[\d.\t ]+$", said, re.MULTILINE)
    return [[float(word) for word in row.split()] for row in rows]
