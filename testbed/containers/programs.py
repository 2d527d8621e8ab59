"""What RDMA programs find in a rank's container: our libibverbs, what it has to know, and a management network.

With the virtual clock a second library is preloaded, which makes a program's clocks and sockets emulated ones.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from hardware.build import EMULATED, PROGRAMS

INSIDE = Path("/run/railbed")
LIBRARIES, NICS, NETWORK = INSIDE / "lib", INSIDE / "nics", INSIDE / "network"


def mounts(directory: Path) -> Iterator[tuple[Path, Path, tuple[str, ...]]]:
    """Where, what of a fabric's directory, and with which options; nothing where the libraries are not built."""
    if PROGRAMS.exists():
        yield LIBRARIES, PROGRAMS, ("ro",)
    if (directory / NICS.name).exists():
        yield NICS, directory / NICS.name, ("ro", "noexec")
    if (directory / NETWORK.name).exists():
        yield NETWORK, directory / NETWORK.name, ("noexec",)


def environment(*, virtual: bool) -> dict[str, str]:
    """Of a program that is to use its rank's NIC."""
    found = {"LD_LIBRARY_PATH": str(LIBRARIES)}
    return found | {"LD_PRELOAD": str(LIBRARIES / EMULATED.name)} if virtual else found
