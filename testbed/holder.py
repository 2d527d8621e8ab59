"""Helper program: holds the fabric's network namespace, and one per host by a small process each, as Mininet does.

Standalone, so that it starts in 15 ms. It enters a network namespace of its own, for bridges, TAP devices and whatever
runs on them, and then speaks JSON lines. It says {"ready": true}. The first line on stdin is {"names": [..], "ids":
first user id of the ranks' or null, "group": control group}; it forks a process per name that unshares its network and
mount namespace, and answers {"pids": {name: pid}, "users": bool}. With `ids` each host's network belongs to a user
namespace of its own, which the process holds as descriptor USERS; `users` says whether that could be. After that comes
any number of {"configure": {name: {"links": [{"name", "mac", "mtu", "ip", "prefix"}], "routes": "lines for
ip -batch"}}}, each answered with {"errors": {name: text}}, empty if all went well. Its children die with it.

The end of stdin is the death of the fabric's owner. Then it kills what is left of the fabric, which nobody else would
do, and ends. But after {"stays": true} it just holds on, until it is killed.
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
import time
from collections.abc import Iterator
from typing import Any

USERS = 100  # a host process's descriptor of its user namespace
IDS = 65536  # users of a user namespace
_CLONE_NEWNS, _CLONE_NEWUSER, _CLONE_NEWNET = 0x00020000, 0x10000000, 0x40000000
_MS_REC, _MS_SLAVE = 0x4000, 0x80000
_PR_SET_PDEATHSIG, _PR_SET_NAME = 1, 15
_SIOCGIFFLAGS, _SIOCSIFFLAGS, _SIOCETHTOOL = 0x8913, 0x8914, 0x8946
_SIOCSIFADDR, _SIOCSIFNETMASK, _SIOCSIFMTU, _SIOCSIFHWADDR = 0x8916, 0x891C, 0x8922, 0x8924
_ARPHRD_ETHER = 1
_IFF_UP = 1
_ETHTOOL_STXCSUM, _ETHTOOL_SSG, _ETHTOOL_STSO, _ETHTOOL_SGSO, _ETHTOOL_SGRO = 0x17, 0x19, 0x1F, 0x24, 0x2C
_SWEEP_S = 2.0  # longer than a container takes to start
_MESSAGE = 1 << 20
_MARK = b"RAILBED_FABRIC="  # testbed.processes.MARK

_libc = ctypes.CDLL(None, use_errno=True)


def _check(result: int, what: str) -> None:
    if result != 0:
        raise OSError(ctypes.get_errno(), f"{what}: {os.strerror(ctypes.get_errno())}")


def _die_with_parent(parent: int) -> None:
    _libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:  # it died before we asked
        os._exit(1)


def _enter_network(ids: int | None = None) -> bool:
    """A new network namespace, with its loopback up. Returns whether it belongs to a user namespace for `ids`."""
    users = ids is not None and _enter_network_of(ids)
    if not users:
        _check(_libc.unshare(_CLONE_NEWNET), "unshare")
    for scope in ("all", "default"):  # of this namespace only: no router solicitations of its interfaces
        path = f"/proc/sys/net/ipv6/conf/{scope}/disable_ipv6"
        if os.path.exists(path):
            with open(path, "w") as setting:
                setting.write("1")
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as s:
        _up(s, b"lo")
    return users


def _enter_network_of(ids: int) -> bool:
    """A new network namespace that belongs to a new user namespace; we stay outside of the latter and hold it.

    Whoever is root in there may have the network's capabilities, and no others. False if the kernel refuses.
    """
    ours, theirs = os.pipe()
    go_on, done = os.pipe()
    child = os.fork()
    if child == 0:
        made = _libc.unshare(_CLONE_NEWUSER | _CLONE_NEWNET) == 0
        os.write(theirs, b"y" if made else b"n")
        os.close(done)
        os.read(go_on, 1)
        os._exit(0)
    os.close(theirs)
    os.close(go_on)
    try:
        if os.read(ours, 1) != b"y":
            return False
        with open(f"/proc/{child}/uid_map", "w") as users:
            users.write(f"0 {ids} {IDS}")
        with open(f"/proc/{child}/gid_map", "w") as groups:
            groups.write(f"0 {ids} {IDS}")
        network = os.open(f"/proc/{child}/ns/net", os.O_RDONLY)
        namespace = os.open(f"/proc/{child}/ns/user", os.O_RDONLY)
        _check(_libc.setns(network, _CLONE_NEWNET), "setns")
        os.close(network)
        os.dup2(namespace, USERS)
        os.close(namespace)
        return True
    except OSError:
        return False
    finally:
        os.close(done)
        os.close(ours)
        os.waitpid(child, 0)


def _own_mounts() -> None:
    """A new mount namespace. Mounts still come in from outside; /sys shows our network namespace's devices."""
    _check(_libc.unshare(_CLONE_NEWNS), "unshare")
    _check(_libc.mount(None, b"/", None, _MS_REC | _MS_SLAVE, None), "mount --make-rslave /")
    _check(_libc.mount(b"sysfs", b"/sys", b"sysfs", 0, None), "mount /sys")


def _offloads_off(interface: str) -> None:
    """Whole packets with real checksums: the frames pass through emulated hardware that does neither for us."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as s:
        for command in (_ETHTOOL_STXCSUM, _ETHTOOL_STSO, _ETHTOOL_SGSO, _ETHTOOL_SGRO, _ETHTOOL_SSG):
            value = ctypes.create_string_buffer(struct.pack("II", command, 0))
            with contextlib.suppress(OSError):  # a device that never had it
                fcntl.ioctl(s, _SIOCETHTOOL, struct.pack("16sP8x", interface.encode(), ctypes.addressof(value)))


def _configure(wanted: dict[str, Any]) -> str:
    """Sets up interfaces, then adds routes; returns what went wrong."""
    for link in wanted["links"]:
        try:
            _set_up(link)
        except OSError as e:
            return f"{link['name']}: {e}"
        _offloads_off(link["name"])
    if not wanted["routes"]:
        return ""
    done = subprocess.run(["ip", "-batch", "-"], input=wanted["routes"], text=True, capture_output=True, check=False)
    return done.stderr.strip() if done.returncode else ""


def _set_up(link: dict[str, Any]) -> None:
    """By ioctl: a program per host would take longer than all the rest (netdevice(7))."""
    name, mask = link["name"].encode(), 0xFFFFFFFF << 32 - link["prefix"] & 0xFFFFFFFF
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as s:
        mac = bytes.fromhex(link["mac"].replace(":", ""))
        fcntl.ioctl(s, _SIOCSIFHWADDR, struct.pack("16sH6s16x", name, _ARPHRD_ETHER, mac))
        fcntl.ioctl(s, _SIOCSIFMTU, struct.pack("16si20x", name, link["mtu"]))
        for request, address in (
            (_SIOCSIFADDR, socket.inet_aton(link["ip"])),
            (_SIOCSIFNETMASK, mask.to_bytes(4, "big")),
        ):
            fcntl.ioctl(s, request, struct.pack("16sH2x4s16x", name, socket.AF_INET, address))
        _up(s, name)


def _up(s: socket.socket, name: bytes) -> None:
    flags = struct.unpack_from("16xH", fcntl.ioctl(s, _SIOCGIFFLAGS, struct.pack("16sH14x", name, 0)))[0]
    fcntl.ioctl(s, _SIOCSIFFLAGS, struct.pack("16sH14x", name, flags | _IFF_UP))


def _hold(name: str, parent: int, channel: socket.socket, ids: int | None) -> None:
    """One host's process: never returns."""
    error, users = "", False
    try:
        _die_with_parent(parent)
        _libc.prctl(_PR_SET_NAME, f"host {name}".encode()[:15])
        users = _enter_network(ids)
        _own_mounts()
    except OSError as e:
        error = str(e)
    channel.send(json.dumps(error or users).encode())
    while message := channel.recv(_MESSAGE):
        channel.send(json.dumps(_configure(json.loads(message))).encode())
    while True:
        signal.pause()


def _say(answer: dict[str, Any]) -> None:
    with contextlib.suppress(BrokenPipeError):  # nobody is there any more: the end of stdin says the same
        os.write(1, json.dumps(answer).encode() + b"\n")


def _sweep(group: str) -> None:
    """Kills what is the fabric's: in its control group, in its network namespace, or marked as its own.

    Until nothing has turned up for a while: something may just be starting.
    """
    with open("/proc/self/mountinfo") as mounts:
        lines = [line.partition(" - ") for line in mounts]
    roots = [before.split()[4] for before, _, after in lines if after.split()[0] in ("cgroup", "cgroup2")]
    end = time.monotonic() + _SWEEP_S
    while time.monotonic() < end:
        for pid in {*_grouped(roots, group), *_ours()} - {os.getpid()}:
            with contextlib.suppress(OSError):
                os.kill(pid, signal.SIGKILL)
                end = time.monotonic() + _SWEEP_S
        time.sleep(0.05)


def _grouped(roots: list[str], group: str) -> Iterator[int]:
    for root in roots:
        for folder, _, _ in os.walk(os.path.join(root, group)):
            with contextlib.suppress(OSError), open(os.path.join(folder, "cgroup.procs")) as pids:
                yield from (int(pid) for pid in pids.read().split() if int(pid))  # 0: of another pid namespace


def _ours() -> Iterator[int]:
    """Those in our network namespace, which is the fabric's and nobody else's, and those with our mark."""
    namespace = os.stat("/proc/self/ns/net").st_ino
    mark = next((entry for entry in _environment("self") if entry.startswith(_MARK)), None)
    for name in os.listdir("/proc"):
        if name.isdigit():
            with contextlib.suppress(OSError):
                if os.stat(f"/proc/{name}/ns/net").st_ino == namespace or (mark and mark in _environment(name)):
                    yield int(name)


def _environment(process: str) -> list[bytes]:
    with open(f"/proc/{process}/environ", "rb") as file:
        return file.read().split(b"\0")


def main() -> None:
    me = os.getpid()
    try:
        _enter_network()
    except OSError as e:
        _say({"errors": {"the switches": str(e)}})
        return
    _say({"ready": True})
    first = json.loads(sys.stdin.readline() or "null")
    if first is None:  # nobody is there any more
        return
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
            _hold(name, me, socket.socket(fileno=3), first["ids"])
        theirs.close()
        pids[name], channels[name] = pid, ours
    answers = {name: json.loads(c.recv(_MESSAGE) or b'"died"') for name, c in channels.items()}
    errors = {name: answer for name, answer in answers.items() if isinstance(answer, str)}
    _say({"errors": errors} if errors else {"pids": pids, "users": all(answers.values())})
    stays = False
    for line in sys.stdin:
        said = json.loads(line)
        if said.get("stays"):
            stays = True
            continue
        wanted = said["configure"]
        for name, configuration in wanted.items():
            channels[name].send(json.dumps(configuration).encode())
        answers = {name: json.loads(channels[name].recv(_MESSAGE) or b'"died"') for name in wanted}
        _say({"errors": {name: error for name, error in answers.items() if error}})
    if not stays:
        _sweep(first["group"])
        return
    for channel in channels.values():
        channel.close()
    null = os.open(os.devnull, os.O_RDWR)
    for fd in (0, 1):
        os.dup2(null, fd)
    while pids:
        os.wait()


if __name__ == "__main__":
    main()
