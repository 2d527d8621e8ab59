"""What is done with every element, in C: `hardware/elements`, where that is built and can be loaded.

A container of another system may have neither.  Everything here has a way without.
"""

from __future__ import annotations

import mmap
import os
import weakref
from functools import cache
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import ctypes

    from numpy.typing import NDArray

_ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
LIBRARY = os.path.join(_ROOT, "hardware", "bin", "elements")
TURNS = os.path.join(_ROOT, "hardware", "bin", "turns")


@cache
def turns() -> ctypes.CDLL | None:
    """What takes a rank's turns (workloads/parts/turns.py)."""
    import ctypes

    try:
        return ctypes.CDLL(TURNS)
    except OSError:  # none, or of another system
        return None


@cache
def _library() -> ctypes.CDLL | None:
    import ctypes

    try:
        library = ctypes.CDLL(LIBRARY)
        library.add_bfloat16.argtypes = (ctypes.c_void_p, ctypes.c_void_p, ctypes.c_size_t)
        library.add_bfloat16.restype = None
        library.repeats.argtypes = (ctypes.c_void_p, ctypes.c_size_t) * 2
        library.repeats.restype = ctypes.c_bool
        library.shared_map.argtypes = (ctypes.c_int, ctypes.c_size_t, ctypes.c_bool)
        library.shared_map.restype = ctypes.c_void_p
    except (OSError, AttributeError):  # none, of another system, or of other sources
        return None
    return library


def add_bfloat16(ours: NDArray[Any], theirs: NDArray[Any]) -> bool:
    """Adds `theirs` to `ours`, both of 2 bytes an element, if it can; returns whether it did.

    Raises ValueError where one has more elements than the other.
    """
    if ours.shape != theirs.shape or ours.itemsize != 2 or theirs.itemsize != 2:
        raise ValueError(f"{ours.dtype} {ours.shape} and {theirs.dtype} {theirs.shape} are not alike")
    library = _library()
    if library is None or not (ours.flags.c_contiguous and theirs.flags.c_contiguous):
        return False
    library.add_bfloat16(ours.ctypes.data, theirs.ctypes.data, ours.size)
    return True


_ADDERS = {"uint8": "int8"}  # sums of both are the same bits


@cache
def adder(op: str | None, dtype: str) -> int | None:
    """The address of a function that adds so many elements of a type to others; None: there is none for that."""
    import ctypes

    library = _library() if op in ("sum", "avg") else None
    function = getattr(library, f"add_{_ADDERS.get(dtype, dtype)}", None)
    return None if function is None else ctypes.cast(function, ctypes.c_void_p).value


def repeats(whole: NDArray[Any], period: NDArray[Any]) -> bool:
    """Whether the bytes of `whole` are those of `period`, again and again; False also if that is not known."""
    library = _library()
    if library is None or not (whole.flags.c_contiguous and period.flags.c_contiguous and period.size):
        return False
    return bool(library.repeats(whole.ctypes.data, whole.nbytes, period.ctypes.data, period.nbytes))


def shared(fd: int, nbytes: int, make: bool) -> Any:
    """All of a memfd, mapped in huge pages, which are made now if it says so; as long as it is used."""
    library = _library()
    address = None if library is None else library.shared_map(fd, nbytes, make)
    if address is None:
        return mmap.mmap(fd, nbytes)
    import ctypes

    memory = (ctypes.c_char * nbytes).from_address(address)
    weakref.finalize(memory, _unmap, address, nbytes).atexit = False
    return memory


def _unmap(address: int, nbytes: int) -> None:
    import ctypes

    ctypes.CDLL(None).munmap(ctypes.c_void_p(address), ctypes.c_size_t(nbytes))
