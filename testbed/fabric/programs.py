"""What RDMA programs need of a fabric beside their containers: who has which NIC, a management network, a clock."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hardware.client import Fabricd
from hardware.config import Hardware
from testbed.containers.programs import NETWORK, NICS

if TYPE_CHECKING:
    from topologies import Fabric


def provide(directory: Path, fabric: Fabric, hardware: Hardware, clock: Mapping[str, Any], user: int | None) -> None:
    """Writes the table of NICs, and makes the folder of the management network; `user` owns what is in containers."""
    lines = [f"railbed {clock['mode']} {clock.get('dilation', 1)} {hardware.mtu}"]
    lines += [f"{nic.name} {nic.ip} {hardware.nic_bps(fabric, nic.name):.0f}" for nic in fabric.nics]
    (directory / NICS.name).write_text("\n".join(lines) + "\n")
    folder = directory / NETWORK.name
    folder.mkdir(mode=0o700)
    if user is not None:
        os.chown(folder, user, user)


def let_run(fabricd: Fabricd, *, virtual: bool) -> None:
    """Programs may use their NICs from now on, one of a rank at a time; the virtual clock passes while they do."""
    status = fabricd.request("status")
    states = {worker["state"] for worker in status["workers"]}
    if states & {"running", "waiting"}:
        return
    if states & {"done", "lost"}:
        fabricd.request("quiesce")
        fabricd.request("next_job")
    if virtual:
        fabricd.request("start", ranks=[])
