"""What the servers are: from a topology's dump, from the names of devices, from the command line.

What nobody says is assumed, and the profile says so; how many NICs there are, and how fast, is asked for.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import NamedTuple

from testbed.base.errors import InputError
from testbed.base.units import UnitError, parse_rate
from testbed.cluster.hardware import VERSION, Hardware
from testbed.cluster.profile import MOST_GPUS
from testbed.logs.row import Log
from testbed.logs.topology import Server

_BY_NAME = {
    "hopper": ("H100", "H200", "H800", "H20", "GH200"), "ampere": ("A100", "A800", "A40", "A30", "A10"),
    "blackwell": ("B200", "B300", "GB200", "GB300", "GB10", "B100"), "volta": ("V100", "TITAN V"),
}  # fmt: skip
_BY_SM = {70: "volta", 80: "ampere", 86: "ampere", 90: "hopper", 100: "blackwell", 103: "blackwell", 121: "blackwell"}
_BY_VENDOR = {"GenuineIntel": "intel", "AuthenticAMD": "amd"}


class Told(NamedTuple):
    """On the command line; None: nothing."""

    nics: str | None = None
    nodes: int | None = None
    gpus: int | None = None
    gpu: str | None = None
    host: str | None = None
    version: str | None = None


def hardware(log: Log, told: Told, server: Server | None) -> Hardware:
    """Raises InputError where something is missing that cannot be assumed."""
    assumed = []
    gpu = told.gpu or (_BY_SM.get(server.sm or 0) if server else None) or _of_devices(log)
    if gpu is None:
        gpu = "hopper"
        assumed.append("gpu")
    host = told.host or (_BY_VENDOR.get(server.vendor) if server else None)
    if server and host is None and server.arch.startswith("arm"):
        host = "arm"
    if host is None:
        host = "intel"
        assumed.append("host")
    gpus = server.gpus if server else max([row.gpus for row in log.rows if row.gpus] + [told.gpus or 0])
    if not gpus:
        raise InputError("nothing says how many GPUs a node has", "command line", "--gpus G, or --topo FILE")
    if gpus > MOST_GPUS:
        raise InputError(f"{gpus:,} GPUs of a node, more than {MOST_GPUS:,}", "command line", "--gpus G, --nodes N")
    count, rate = _nics(told.nics, server)
    version = told.version or log.library.version
    if not version:
        version = VERSION
        assumed.append("version")
    return Hardware(gpu, gpus, count, rate, host, _nvlink(server), version, tuple(assumed))


def _nvlink(server: Server | None) -> bool:
    return server is None or server.gpus == 1 or server.scale_up_bps is not None


def _of_devices(log: Log) -> str | None:
    words = {word for name in log.devices for word in re.split(r"[\s-]+", name)}
    found = {gpu for gpu, names in _BY_NAME.items() if words & set(names)}
    if len(found) > 1:
        log.warn("", f"GPUs of several generations: {', '.join(sorted(log.devices))}")
    return found.pop() if len(found) == 1 else None


def _nics(text: str | None, server: Server | None) -> tuple[int, float]:
    if text is not None:
        if not (found := re.fullmatch(r"(\d{1,4})x(.+)", text.strip())) or not int(found.group(1)):
            raise InputError(f"{text!r:.60} is no count and rate of NICs", "--nics", "such as 8x400Gbps")
        try:
            return int(found.group(1)), float(parse_rate(found.group(2)))
        except UnitError as error:
            raise InputError(error.what, "--nics", f"such as 8x400Gbps: {error.hint}") from None
    if server and server.nics:
        rates = [rate for _, rate in server.nics if rate]
        fast = [rate for rate in rates if rate > max(rates) / 2]  # the others are for management
        return len(fast), max(rates)
    hint = "--nics 8x400Gbps, or --topo FILE that NCCL_TOPO_DUMP_FILE has made"
    raise InputError("no log says how many NICs a node has, and how fast", "command line", hint)


def known(words: Iterable[str], told: str | None, option: str) -> str | None:
    """A word of the command line that is one of these.  Raises InputError."""
    if told is not None and told not in words:
        raise InputError(f"{told!r:.60} is unknown", option, f"one of {', '.join(words)}")
    return told


def version_of(text: str | None) -> str | None:
    """`nccl@2.29.2`.  Raises InputError."""
    if text is None:
        return None
    name, _, version = text.partition("@")
    if name != "nccl" or not re.fullmatch(r"\d{1,3}\.\d{1,3}\.\d{1,3}", version):
        raise InputError(f"{text!r:.60} is no library and its version", "--library", "such as nccl@2.29.2")
    return version
