"""Memory of a program that is registered in place: what stands there stays, whoever forks, whatever kind it is."""

from __future__ import annotations

import sys
from collections.abc import Iterator

import pytest

from tests.parts.rdma_programs import DEADLINE_S, Programs, programs_on

BEGIN = """
import ctypes as c, errno, mmap, os, threading
v = c.CDLL("libibverbs.so.1", use_errno=True)
for name in ("get_device_list", "open_device", "alloc_pd", "reg_mr"):
    getattr(v, "ibv_" + name).restype = c.c_void_p
devices = c.cast(v.ibv_get_device_list(None), c.POINTER(c.c_void_p))
pd = c.c_void_p(v.ibv_alloc_pd(c.c_void_p(v.ibv_open_device(c.c_void_p(devices[0])))))
def register(at, n, access=1):
    mr = v.ibv_reg_mr(pd, c.c_void_p(at), c.c_size_t(n), access)
    return "ok" if mr else errno.errorcode[c.get_errno()]
def fresh(n, flags=mmap.MAP_PRIVATE, **how):
    m = mmap.mmap(-1, n, flags=flags | mmap.MAP_ANONYMOUS, **how)
    return m, c.addressof(c.c_char.from_buffer(m)) if not how else 0
"""
KINDS = """
m, at = fresh(1 << 20)
m[:] = bytes(range(256)) * 4096
heap = c.create_string_buffer(b"x" * 5000)
print(register(at + 100, 300000), register(at, 1 << 20), register(at + 5000, 10), register(c.addressof(heap), 5000))
print(m[:] == bytes(range(256)) * 4096, heap.raw[:5000] == b"x" * 5000)
shared, there = fresh(8192, mmap.MAP_SHARED)
print(register(there, 100), register(4096, 100), register(at, 0), register(at, 100, 2), register(at, 2**64 - 1))
"""
FORK = """
m, at = fresh(1 << 20)
heap = [bytearray(3000) for _ in range(50)]
where = [c.addressof(c.c_char.from_buffer(h)) for h in heap]
print(register(at, 1 << 20), {register(w, 3000) for w in where})
m[:3] = b"old"
child = os.fork()
if not child:
    more = [bytearray(b"c" * 3000) for _ in range(200)]
    m[:3] = b"new"
    for h in heap: h[:] = b"c" * 3000
    os._exit(m[:3] != b"new")
print(os.waitpid(child, 0)[1], bytes(m[:3]), {bytes(h) for h in heap} == {bytes(3000)})
"""
THREADS = """
m, at = fresh(4 << 20)
going, counts = True, []
def count(place):
    n = 0
    cell = c.c_uint64.from_address(at + place)
    while going:
        n += 1
        cell.value = n
    counts.append(cell.value == n)
threads = [threading.Thread(target=count, args=(i << 20,)) for i in range(4)]
for t in threads: t.start()
print({register(at + (k << 16), 1 << 16) for k in range(64)})
going = False
for t in threads: t.join()
print(counts)
"""


@pytest.fixture(scope="module")
def two() -> Iterator[Programs]:
    with programs_on("star", {"hosts": 2}) as p:
        yield p


def said_by(two: Programs, code: str) -> list[str]:
    program = two.start(0, sys.executable, "-c", BEGIN + code)
    said, _ = program.communicate(timeout=DEADLINE_S)
    assert program.returncode == 0, said
    return said.splitlines()


def test_what_stands_there_stays_and_refusals_are_the_manuals(two: Programs) -> None:
    """ibv_reg_mr(3): overlaps are allowed; holes, no bytes, and what others may write but its owner may not are not."""
    said = said_by(two, KINDS)
    assert [line[:57] for line in said if "railbed" in line] == [
        "railbed: memory that is shared already cannot be register"
    ]
    registered, kept, refused = (line for line in said if "railbed" not in line)
    assert (registered, kept) == ("ok ok ok ok", "True True")
    assert refused == "ENOTSUP EFAULT EINVAL EINVAL EINVAL"


def test_a_child_has_copies_of_its_own(two: Programs) -> None:
    assert said_by(two, FORK) == ["ok {'ok'}", "0 b'old' True"]


def test_nothing_that_threads_write_meanwhile_is_lost(two: Programs) -> None:
    assert said_by(two, THREADS) == ["{'ok'}", "[True, True, True, True]"]
