"""Has this process become one of a container, with all that its init may do and see, and nothing more.

What that is nobody has to write down a second time: it is asked of the kernel, of the init that runc has started. Those
are its control groups, namespaces with their root, limits, capabilities, and its filter of system calls, bit by bit.
Only what a running process can be asked for is taken; so this holds for any configuration of ours.

The process must have been forked into the init's pid namespace, have one thread, and be root.
"""

from __future__ import annotations

import ctypes
import errno
import mmap
import os
import resource
import struct
import time
from collections.abc import Mapping, Sequence

_NAMESPACES = {  # linux/sched.h
    "mnt": 0x0002_0000, "cgroup": 0x0200_0000, "uts": 0x0400_0000, "ipc": 0x0800_0000,
    "user": 0x1000_0000, "net": 0x4000_0000,
}  # fmt: skip
NEW_PID = 0x2000_0000
_DETACH, _SEIZE, _INTERRUPT, _GET_FILTER = 17, 0x4206, 0x4207, 0x420C  # linux/ptrace.h
_ANY_CHILD = 0x4000_0000  # __WALL of wait(2)
_SET_DUMPABLE, _SET_SECCOMP, _DROP_BOUNDING, _SET_MM, _NO_NEW_PRIVILEGES, _AMBIENT = 4, 22, 24, 35, 38, 47  # prctl(2)
_FILTER, _CLEAR_ALL = 2, 4
_MAP = 14  # of PR_SET_MM
_CAPABILITY_VERSION_3 = 0x20080522
_INSTRUCTION_BYTES = 8  # struct sock_filter
_PATIENCE_S, _LOOK_S = 10.0, 0.0005
_LIMITS = 16  # RLIM_NLIMITS of asm-generic/resource.h

_libc = ctypes.CDLL(None, use_errno=True)
_libc.ptrace.argtypes = (ctypes.c_long, ctypes.c_long, ctypes.c_void_p, ctypes.c_void_p)
_libc.ptrace.restype = ctypes.c_long
_libc.sbrk.argtypes = (ctypes.c_long,)
_libc.sbrk.restype = ctypes.c_void_p
_libc.prctl.argtypes = (ctypes.c_int, *(ctypes.c_ulong,) * 4)
_kept: list[mmap.mmap] = []  # what the kernel was told that our arguments and environment are in


class CannotJoin(OSError):
    """What the kernel refuses."""


class _Program(ctypes.Structure):
    """struct sock_fprog"""

    _fields_ = (("instructions", ctypes.c_ushort), ("at", ctypes.c_void_p))


def filters_of(pid: int) -> list[bytes]:
    """The filters of system calls that a process has, or is about to have, the first one first. Raises CannotJoin.

    runc says that a container runs when its init is about to be executed. Until then it is a process of runc's with
    several threads, whose filter may be still to come; and the kernel forgets that such a process was to stop if it
    executes another program meanwhile. So it is told to stop until it has.
    """
    deadline = time.monotonic() + _PATIENCE_S
    while not int(_status(pid)["Seccomp"]):
        _pause(deadline, f"process {pid} has no filter")
    _check(_libc.ptrace(_SEIZE, pid, None, None), "ptrace")
    try:
        _check(_libc.ptrace(_INTERRUPT, pid, None, None), "ptrace")
        while not os.waitpid(pid, _ANY_CHILD | os.WNOHANG)[0]:
            _pause(deadline, f"process {pid} does not stop")
            _check(_libc.ptrace(_INTERRUPT, pid, None, None), "ptrace")
        filters: list[bytes] = []
        while True:  # the one that was added last is number 0
            count = _libc.ptrace(_GET_FILTER, pid, len(filters), None)
            if count < 0 and filters and ctypes.get_errno() == errno.ENOENT:  # there is none of this number
                return filters[::-1]
            program = ctypes.create_string_buffer(_check(count, "PTRACE_SECCOMP_GET_FILTER") * _INSTRUCTION_BYTES)
            _check(_libc.ptrace(_GET_FILTER, pid, len(filters), ctypes.addressof(program)), "PTRACE_SECCOMP_GET_FILTER")
            filters.append(program.raw)
    finally:
        _libc.ptrace(_DETACH, pid, None, None)


def _pause(deadline: float, what: str) -> None:
    if time.monotonic() > deadline:
        raise CannotJoin(errno.ETIMEDOUT, f"{what} for {_PATIENCE_S} s")
    time.sleep(_LOOK_S)


def _status(pid: int) -> dict[str, str]:
    with open(f"/proc/{pid}/status", encoding="ascii", errors="replace") as file:
        return dict(line.split(":\t", 1) for line in file.read().splitlines() if ":\t" in line)


def enter_pid_namespace(pidfd: int) -> None:
    """The next child is in the pid namespace of that process. Raises CannotJoin."""
    _check(_libc.setns(pidfd, NEW_PID), "setns")


def show_as(argv: Sequence[str], environment: Mapping[str, str]) -> None:
    """Has /proc show these as our arguments and environment, as far as the kernel lets us (struct prctl_mm_map)."""
    arguments, variables = ("".join(f"{each}\0" for each in all_).encode() for all_ in (argv, _pairs(environment)))
    memory = mmap.mmap(-1, len(arguments + variables), flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    memory.write(arguments + variables)
    _kept.append(memory)
    at = ctypes.addressof(ctypes.c_char.from_buffer(memory))
    middle, end = at + len(arguments), at + len(memory)
    with open("/proc/self/stat", encoding="ascii", errors="replace") as file:
        fields = file.read().rpartition(")")[2].split()
    code_data_heap = [int(fields[number - 3]) for number in (26, 27, 45, 46, 47)]  # of proc_pid_stat(5)
    stack = int(fields[28 - 3])
    places = struct.pack("<11QQIi", *code_data_heap, _libc.sbrk(0), stack, at, middle, middle, end, 0, 0, -1)
    told = ctypes.create_string_buffer(places, len(places))
    _libc.prctl(_SET_MM, _MAP, ctypes.addressof(told), len(places), 0)


def _pairs(environment: Mapping[str, str]) -> list[str]:
    return [f"{name}={value}" for name, value in environment.items()]


def join(pid: int, pidfd: int, groups: Sequence[str], filters: Sequence[bytes]) -> None:
    """Takes over from the container's init, `pid`, all that there is; `groups` are the folders of its control groups.

    Raises OSError: then this process must end, as it may have more than it should.
    """
    for group in groups:
        with open(f"{group}/cgroup.procs", "wb", buffering=0) as file:
            file.write(b"0")
    status = _status(pid)
    for name in range(_LIMITS):
        resource.setrlimit(name, resource.prlimit(1, name))  # 1: as seen from here
    os.umask(int(status["Umask"], 8))
    _enter_namespaces(pid, pidfd)
    _restrict(status)
    for program in filters:
        memory = ctypes.create_string_buffer(program, len(program))
        its = _Program(len(program) // _INSTRUCTION_BYTES, ctypes.addressof(memory))
        _prctl(_SET_SECCOMP, _FILTER, ctypes.addressof(its))


def _enter_namespaces(pid: int, pidfd: int) -> None:
    """All in which it is and we are not, at once; root and working directory are the container's then."""
    others = [name for name in _NAMESPACES if _inode("self", name) != _inode(str(pid), name)]
    _check(_libc.setns(pidfd, sum(_NAMESPACES[name] for name in others)), "setns")
    if "user" in others:
        os.setgroups([])
        os.setgid(0)
        os.setuid(0)
    os.chdir("/")


def _inode(pid: str, name: str) -> int:
    try:
        return os.stat(f"/proc/{pid}/ns/{name}").st_ino
    except FileNotFoundError:  # a kernel without that kind
        return 0


def _restrict(status: Mapping[str, str]) -> None:
    """Its capabilities, and none that a program could bring."""
    bounding = int(status["CapBnd"], 16)
    with open("/proc/sys/kernel/cap_last_cap", encoding="ascii") as file:
        last = int(file.read())
    for capability in range(last + 1):
        if not bounding >> capability & 1:
            _prctl(_DROP_BOUNDING, capability)
    _prctl(_AMBIENT, _CLEAR_ALL)
    sets = [int(status[name], 16) for name in ("CapEff", "CapPrm", "CapInh")]
    header = (ctypes.c_uint32 * 2)(_CAPABILITY_VERSION_3, 0)
    data = (ctypes.c_uint32 * 6)(*(its & 0xFFFF_FFFF for its in sets), *(its >> 32 for its in sets))
    _check(_libc.capset(header, data), "capset")
    _prctl(_SET_DUMPABLE, 1)  # as after an exec: /proc/self is ours
    if int(status["NoNewPrivs"]):
        _prctl(_NO_NEW_PRIVILEGES, 1)


def _prctl(option: int, *arguments: int) -> None:
    _check(_libc.prctl(option, *arguments, *(0,) * (4 - len(arguments))), f"prctl {option}")


def _check(result: int, what: str) -> int:
    if result < 0:
        raise CannotJoin(ctypes.get_errno(), f"{what}: {os.strerror(ctypes.get_errno())}")
    return result
