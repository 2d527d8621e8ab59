"""Helper program: holds one network namespace per host, each by a small process, as Mininet holds them by a shell.

Standalone, so that it starts in 15 ms. It speaks JSON lines: on stdin first {"names": [..], "die_with_parent": bool};
it forks a process per name that unshares its network and mount namespace, and answers {"pids": {name: pid}}. After that
any number of {"configure": {name: {"ip": "lines for ip -batch", "offloads_off": [interfaces]}}}: each is answered with
{"errors": {name: text}}, empty if all went well. At the end of stdin it just holds on, until it is killed; its children
die with it. A child that gets SIGTERM deletes its interfaces and ends.
"""

import contextlib
import ctypes
import fcntl
import json
import os
import resource
import signal
import socket
import struct
import subprocess
import sys
from typing import Any

_CLONE_NEWNS, _CLONE_NEWNET = 0x00020000, 0x40000000
_MS_REC, _MS_SLAVE = 0x4000, 0x80000
_PR_SET_PDEATHSIG, _PR_SET_NAME = 1, 15
_SIOCGIFFLAGS, _SIOCSIFFLAGS, _SIOCETHTOOL = 0x8913, 0x8914, 0x8946
_IFF_UP = 1
_ETHTOOL_STXCSUM, _ETHTOOL_SSG, _ETHTOOL_STSO, _ETHTOOL_SGSO, _ETHTOOL_SGRO = 0x17, 0x19, 0x1F, 0x24, 0x2C
_RTM_DELLINK, _NLM_F_REQUEST = 17, 1
_MESSAGE = 1 << 20

_libc = ctypes.CDLL(None, use_errno=True)


def _check(result: int, what: str) -> None:
    if result != 0:
        raise OSError(ctypes.get_errno(), f"{what}: {os.strerror(ctypes.get_errno())}")


def _die_with_parent(parent: int) -> None:
    _libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:  # it died before we asked
        os._exit(1)


def _enter_namespaces() -> None:
    """New network and mount namespaces. Mounts still come in from outside; /sys shows this namespace's devices."""
    _check(_libc.unshare(_CLONE_NEWNET | _CLONE_NEWNS), "unshare")
    _check(_libc.mount(None, b"/", None, _MS_REC | _MS_SLAVE, None), "mount --make-rslave /")
    _check(_libc.mount(b"sysfs", b"/sys", b"sysfs", 0, None), "mount /sys")
    for scope in ("all", "default"):  # of this namespace only: no router solicitations of its interfaces
        path = f"/proc/sys/net/ipv6/conf/{scope}/disable_ipv6"
        if os.path.exists(path):
            with open(path, "w") as setting:
                setting.write("1")
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as s:
        request = fcntl.ioctl(s, _SIOCGIFFLAGS, struct.pack("16sH14x", b"lo", 0))
        flags = struct.unpack_from("16xH", request)[0] | _IFF_UP
        fcntl.ioctl(s, _SIOCSIFFLAGS, struct.pack("16sH14x", b"lo", flags))


def _offloads_off(interface: str) -> None:
    """Whole packets with real checksums: the frames pass through emulated hardware that does neither for us."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as s:
        for command in (_ETHTOOL_STXCSUM, _ETHTOOL_STSO, _ETHTOOL_SGSO, _ETHTOOL_SGRO, _ETHTOOL_SSG):
            value = ctypes.create_string_buffer(struct.pack("II", command, 0))
            with contextlib.suppress(OSError):  # a device that never had it
                fcntl.ioctl(s, _SIOCETHTOOL, struct.pack("16sP8x", interface.encode(), ctypes.addressof(value)))


def _configure(wanted: dict[str, Any]) -> str:
    """Runs `ip -batch` here; returns what went wrong."""
    done = subprocess.run(["ip", "-batch", "-"], input=wanted["ip"], text=True, capture_output=True, check=False)
    for interface in wanted["offloads_off"]:
        _offloads_off(interface)
    return done.stderr.strip() if done.returncode else ""


def _delete_interfaces() -> None:
    """All hosts do it at once, which is much faster than one after the other by the devices' owner."""
    with contextlib.suppress(OSError), socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, 0) as netlink:
        links = [index for index, name in socket.if_nameindex() if name != "lo"]
        header = struct.pack("IHHII", 32, _RTM_DELLINK, _NLM_F_REQUEST, 1, 0)
        netlink.send(b"".join(header + struct.pack("BxHiII", 0, 0, index, 0, 0) for index in links))


def _hold(name: str, parent: int, channel: socket.socket) -> None:
    """One host's process: never returns."""
    error = ""
    try:
        _die_with_parent(parent)
        _libc.prctl(_PR_SET_NAME, f"host {name}".encode()[:15])
        _enter_namespaces()
    except OSError as e:
        error = str(e)
    channel.send(json.dumps(error).encode())
    while message := channel.recv(_MESSAGE):
        channel.send(json.dumps(_configure(json.loads(message))).encode())
    signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGTERM])
    signal.sigwait([signal.SIGTERM])
    _delete_interfaces()
    os._exit(0)


def _say(answer: dict[str, Any]) -> None:
    sys.stdout.write(json.dumps(answer) + "\n")
    sys.stdout.flush()


def main() -> None:
    me = os.getpid()
    first = json.loads(sys.stdin.readline())
    if first["die_with_parent"]:
        _die_with_parent(os.getppid())
    # One channel per host; their number is not limited by the usual 1024.
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    pids, channels = {}, {}
    for name in first["names"]:
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        pid = os.fork()
        if pid == 0:
            os.dup2(theirs.fileno(), 3)
            os.closerange(4, 1 << 20)
            null = os.open(os.devnull, os.O_RDWR)
            os.dup2(null, 0)
            os.dup2(null, 1)
            _hold(name, me, socket.socket(fileno=3))
        theirs.close()
        pids[name], channels[name] = pid, ours
    errors = {name: error for name, c in channels.items() if (error := json.loads(c.recv(_MESSAGE) or b'"died"'))}
    _say({"errors": errors} if errors else {"pids": pids})
    for line in sys.stdin:
        wanted = json.loads(line)["configure"]
        for name, configuration in wanted.items():
            channels[name].send(json.dumps(configuration).encode())
        answers = {name: json.loads(channels[name].recv(_MESSAGE) or b'"died"') for name in wanted}
        _say({"errors": {name: error for name, error in answers.items() if error}})
    for channel in channels.values():
        channel.close()
    null = os.open(os.devnull, os.O_RDWR)
    for fd in (0, 1):
        os.dup2(null, fd)
    while pids:
        os.wait()


if __name__ == "__main__":
    main()
