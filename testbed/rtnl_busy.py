"""Helper program: takes the kernel's RTNL lock again and again, for a few seconds at most or until it is killed.

While that lock is held the kernel expedites grace periods for everybody, and Open vSwitch closes a hundred ports in a
fraction of the time. It sets a link of its own up and down, in a network namespace of its own that ends with it.
"""

import ctypes
import socket
import struct
import time

_SECONDS = 20.0
_CLONE_NEWNET = 0x40000000
_PR_SET_PDEATHSIG, _SIGKILL = 1, 9
_RTM_NEWLINK = 16
_REQUEST, _ACK, _CREATE_EXCLUSIVE = 1, 4, 0x600
_IFLA_IFNAME, _IFLA_LINKINFO, _IFLA_INFO_KIND = 3, 18, 1
_IFF_UP = 1


def _attribute(kind: int, data: bytes) -> bytes:
    return struct.pack("HH", 4 + len(data), kind) + data + bytes(-len(data) % 4)


def _link_message(flags: int, index: int = 0, up: int = 0, attributes: bytes = b"") -> bytes:
    body = struct.pack("BxHiII", 0, 0, index, up, _IFF_UP if index else 0) + attributes
    return struct.pack("IHHII", 16 + len(body), _RTM_NEWLINK, flags | _REQUEST | _ACK, 1, 0) + body


def main() -> None:
    libc = ctypes.CDLL(None, use_errno=True)
    libc.prctl(_PR_SET_PDEATHSIG, _SIGKILL)
    if libc.unshare(_CLONE_NEWNET) != 0:
        return
    netlink = socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, 0)
    kind = _attribute(_IFLA_LINKINFO, _attribute(_IFLA_INFO_KIND, b"veth"))
    netlink.send(_link_message(_CREATE_EXCLUSIVE, attributes=_attribute(_IFLA_IFNAME, b"busy\0") + kind))
    netlink.recv(4096)
    index = socket.if_nametoindex("busy")
    switch = [_link_message(0, index, up) for up in (1, 0)]
    end = time.monotonic() + _SECONDS
    while time.monotonic() < end:
        for message in switch:
            netlink.send(message)
            netlink.recv(4096)


if __name__ == "__main__":
    main()
