"""Network devices of another namespace, over a netlink socket in it: `ip` would have to be started there each time."""

from __future__ import annotations

import ctypes
import os
import socket
import struct
import threading
from collections.abc import Sequence

_NEW_NET = 0x40000000  # CLONE_NEWNET of linux/sched.h
_HEADER = struct.Struct("=IHHII")  # of linux/netlink.h: length, kind, flags, number, port
_LINK = struct.Struct("=BxHiII")  # ifinfomsg of linux/rtnetlink.h
_ERROR, _DELETE, _SET, _ASKED, _ANSWERED = 2, 17, 19, 1, 4  # NLMSG_ERROR, RTM_DELLINK, RTM_SETLINK, NLM_F_..
_NAME, _OF_GROUP = 3, 27  # IFLA_IFNAME, IFLA_GROUP
_GROUP = struct.pack("=I", 77)


def links_of(pid: int) -> socket.socket:
    """Where the devices in that process's network namespace can be changed. Raises OSError."""
    made: list[socket.socket | OSError] = []

    def enter() -> None:  # a thread has a namespace of its own
        there = os.open(f"/proc/{pid}/ns/net", os.O_RDONLY)
        try:
            libc = ctypes.CDLL(None, use_errno=True)
            if libc.setns(there, _NEW_NET):
                made.append(OSError(ctypes.get_errno(), "setns"))
            else:
                made.append(socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, socket.NETLINK_ROUTE))
        finally:
            os.close(there)

    thread = threading.Thread(target=enter)
    thread.start()
    thread.join()
    if isinstance(made[0], OSError):
        raise made[0]
    return made[0]


def deleted(links: socket.socket, names: Sequence[str]) -> None:
    """Deletes devices, all at once: the kernel waits once for who may still use them. Raises OSError."""
    for name in names:
        _ask(links, _SET, (_NAME, name.encode() + b"\0"), (_OF_GROUP, _GROUP))
    _ask(links, _DELETE, (_OF_GROUP, _GROUP))


def _ask(links: socket.socket, kind: int, *attributes: tuple[int, bytes]) -> None:
    body = _LINK.pack(socket.AF_UNSPEC, 0, 0, 0, 0)
    for number, value in attributes:
        body += struct.pack("=HH", 4 + len(value), number) + value + bytes(-len(value) % 4)
    links.send(_HEADER.pack(_HEADER.size + len(body), kind, _ASKED | _ANSWERED, 1, 0) + body)
    answer = links.recv(1 << 16)
    _, kind, *_ = _HEADER.unpack_from(answer)
    (code,) = struct.unpack_from("=i", answer, _HEADER.size)
    assert kind == _ERROR  # which says 0, too
    if code:
        raise OSError(-code, os.strerror(-code))
