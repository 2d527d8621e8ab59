"""What RDMA programs find in a rank's container: our libibverbs, what it has to know, and a management network.

With the virtual clock a second library is preloaded, which makes a program's clocks and sockets emulated ones.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from hardware.build import EMULATED, PROGRAMS
from hardware.client import Fabricd
from hardware.config import Hardware
from topologies import Fabric, Nic

INSIDE = Path("/run/railbed")
PORT = 29500  # where ranks meet: torchrun's
LIBRARIES, NICS, NETWORK = INSIDE / "lib", INSIDE / "nics", INSIDE / "network"
NODES = tuple(Path("/dev/infiniband") / name for name in ("uverbs0", "rdma_cm"))
"""UCX and others look whether they may open them; what our libraries do goes by the worker socket."""


def mounts(directory: Path) -> Iterator[tuple[Path, Path, tuple[str, ...]]]:
    """Where, what of a fabric's directory, and with which options; nothing where the libraries are not built."""
    if PROGRAMS.exists():
        yield LIBRARIES, PROGRAMS, ("ro", "nodev")
        yield from ((node, Path("/dev/null"), ("noexec",)) for node in NODES)
    if (directory / NICS.name).exists():
        yield NICS, directory / NICS.name, ("ro", "noexec", "nodev")
    if (directory / NETWORK.name).exists():
        yield NETWORK, directory / NETWORK.name, ("noexec", "nodev")


def environment(*, virtual: bool, libraries: Path = LIBRARIES) -> dict[str, str]:
    """Of a program that is to use its rank's NIC."""
    found = {"LD_LIBRARY_PATH": str(libraries), "UCX_ALLOC_PRIO": "thp,mmap,heap"}  # shared memory cannot be registered
    return found | {"LD_PRELOAD": str(libraries / EMULATED.name)} if virtual else found


def outside(directory: Path, rank: int, socket: Path, *, virtual: bool) -> dict[str, str]:
    """The same of a program in no container, as in the shell of a rank's host; nothing if they are not built."""
    if not PROGRAMS.exists():
        return {}
    places = {"SOCKET": socket, "NICS": directory / NICS.name, "NETWORK": directory / NETWORK.name, "RANK": rank}
    named = {f"RAILBED_{name}": str(value) for name, value in places.items()}
    return environment(virtual=virtual, libraries=PROGRAMS) | named


def placed(nic: Nic, nics: Sequence[Nic]) -> dict[str, str]:
    """Of one of several processes that belong together, one at each of these NICs: as torchrun tells it."""
    servers = list(dict.fromkeys(each.host for each in nics))
    beside = [each.rank for each in nics if each.host == nic.host]
    return {
        "RANK": str(nics.index(nic)),
        "WORLD_SIZE": str(len(nics)),
        "LOCAL_RANK": str(beside.index(nic.rank)),
        "LOCAL_WORLD_SIZE": str(len(beside)),
        "GROUP_RANK": str(servers.index(nic.host)),
        "MASTER_ADDR": str(nics[0].ip),
        "MASTER_PORT": str(PORT),
    }


def provide(directory: Path, fabric: Fabric, hardware: Hardware, clock: Mapping[str, Any], user: int | None) -> None:
    """Writes the table of NICs, and makes the folder of the management network; `user` owns what is in containers."""
    lines = [f"railbed {clock['mode']} {clock.get('dilation', 1)} {hardware.mtu}"]
    lines += [f"{nic.name} {nic.ip} {hardware.nic_bps(fabric, nic.name):.0f}" for nic in fabric.nics]
    (directory / NICS.name).write_text("\n".join(lines) + "\n")
    folder = directory / NETWORK.name
    folder.mkdir(mode=0o700)
    if user is not None:
        os.chown(folder, user, user)


def let_run(fabricd: Fabricd) -> None:
    """The virtual clock passes from now on while programs use their NICs; where a job runs, it does so already."""
    if not fabricd.request("status")["running"]:
        fabricd.request("start", ranks=[])
