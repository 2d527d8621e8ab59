"""The system calls that a worker may make: an allow-list (seccomp.json). All others fail with EPERM.

Not allowed are calls that reach beyond the container (mounts, namespaces, keys, modules, clocks, other processes'
memory), and calls with a large attack surface and little use (bpf, perf_event_open, userfaultfd, io_uring, ptrace).

The list holds for this machine's own architecture. A process that makes a call of another one, such as a 32-bit
program, is killed: a filter for these, too, would take a quarter of a container's start.
"""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path
from typing import Any

_ENOSYS, _EPERM = 38, 1
_NEW_NAMESPACES = 0x7E020080  # CLONE_NEW{NS,CGROUP,UTS,IPC,USER,PID,NET,TIME}
# Unix, IPv4 and IPv6 are what programs speak, netlink is how they ask for interfaces, packet how tcpdump listens. All
# are of the network namespace; others (VSOCK, ALG, BLUETOOTH, CAN, XDP ..) are not, or are code that nobody here needs.
FAMILIES = {"AF_UNIX": 1, "AF_INET": 2, "AF_INET6": 10, "AF_NETLINK": 16, "AF_PACKET": 17}
# Personalities: Linux, 32 bit's, both with an old release; fixed addresses; asking for the current one.
_PERSONALITIES = (0x0, 0x8, 0x20000, 0x20008, 0x40000, 0xFFFFFFFF)


@cache
def profile() -> dict[str, Any]:
    """The `linux.seccomp` section of an OCI configuration."""
    groups: dict[str, list[str]] = json.loads(Path(__file__).with_suffix(".json").read_text())
    conditional = {"clone", "socket", "socketpair", "personality"}
    allowed = sorted({name for names in groups.values() for name in names} - conditional)
    return {
        "defaultAction": "SCMP_ACT_ERRNO",
        "defaultErrnoRet": _EPERM,
        "syscalls": [
            {"names": allowed, "action": "SCMP_ACT_ALLOW"},
            _allow("clone", _argument(0, _NEW_NAMESPACES, "SCMP_CMP_MASKED_EQ", 0)),
            # Its flags are behind a pointer that no filter can follow; glibc falls back to clone.
            {"names": ["clone3"], "action": "SCMP_ACT_ERRNO", "errnoRet": _ENOSYS},
            *(_allow("socket", _argument(0, family, "SCMP_CMP_EQ")) for family in FAMILIES.values()),
            _allow("socketpair", _argument(0, FAMILIES["AF_UNIX"], "SCMP_CMP_EQ")),
            *(_allow("personality", _argument(0, p, "SCMP_CMP_EQ")) for p in _PERSONALITIES),
        ],
    }


def _allow(name: str, argument: dict[str, Any]) -> dict[str, Any]:
    return {"names": [name], "action": "SCMP_ACT_ALLOW", "args": [argument]}


def _argument(index: int, value: int, op: str, value_two: int = 0) -> dict[str, Any]:
    return {"index": index, "value": value, "valueTwo": value_two, "op": op}
