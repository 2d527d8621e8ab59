"""A rank's turns in C (hardware/turns): what is under way goes on from record to record without its Python.

Whoever has something that can (workloads/collectives/compiled.py) adds it.  From then on `Device.next_records` waits
there: records of what is under way go to it, and Python is asked when there are others, when something has ended, and
now and then.  Its memory is Python's, laid out as hardware/turns/plan.h and turns.h say.
"""

from __future__ import annotations

import ctypes
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Protocol

from workloads.base import native
from workloads.verbs import Device, FabricError, wire
from workloads.verbs.device import Tally
from workloads.verbs.wire import Record

ENDED = 0
"""Kind of a record that no fabric sends: something that was under way has ended (`wr_id`: its number)."""
ON_HOST = 0xFFFFFFFE
"""Instead of a stream: the host reduces."""
NUMBER_BITS = 14
"""Of an immediate: a message's number; the others say of what."""
REGIONS = 3
FORESEES = True
"""Whether what a schedule will say to what comes next is said beforehand."""
_LOOK_NS = 250_000_000  # of wall time: then Python looks up
_SIGNAL_MS = 1000  # after which a signal is noticed that came just before a wait

_U32, _I32, _U64, _I64, _AT = ctypes.c_uint32, ctypes.c_int32, ctypes.c_uint64, ctypes.c_int64, ctypes.c_void_p
_COMBINE = ctypes.CFUNCTYPE(None, _U32, _U32, _U64, _U32, _U64, _U64)
_SAY = ctypes.CFUNCTYPE(None, _AT, ctypes.c_size_t)
_ALIVE = ctypes.CFUNCTYPE(None)


class Plan(ctypes.Structure):
    _fields_ = (
        *((name, _AT) for name in ("steps", "places", "copies", "lanes", "lines")),
        *((name, _U32) for name in ("step_count", "lane_count", "line_count", "width")),
    )


class Execution(ctypes.Structure):
    _fields_ = (
        *((name, _AT) for name in ("plan", "lanes", "lines", "next")),
        ("memory", _U64 * REGIONS),
        ("at", _U64 * REGIONS),
        ("keys", _U32 * REGIONS),
        *((name, _U32) for name in ("first", "number", "running", "together", "foresees", "zero")),
        *(("waits", _U64), ("add", _AT)),
    )


class Receives(ctypes.Structure):
    """Receives of a connection: how many stand ready, and how many messages may still come."""

    _fields_ = (("qp", _U32), ("key", _U32), ("at", _U64), *((n, _U32) for n in ("depth", "posted", "bound", "zero")))


class _Row(ctypes.Structure):
    _fields_ = (("items", _AT), *((name, _U32) for name in ("first", "count", "room")))


class _Table(ctypes.Structure):
    _fields_ = (("entries", _AT), ("room", _U32), ("used", _U32))


class _Session(ctypes.Structure):
    _fields_ = (
        *(("fd", _I32), ("said", _U32), ("out", _AT), ("in_", _AT)),
        *((name, _U64) for name in ("in_bytes", "wake_ps", "now", "host", "sent")),
        *(("spoke_ns", _I64), ("combine", _COMBINE), ("say", _SAY), ("alive", _ALIVE)),
        *((name, _U32) for name in ("at", "end", "got", "ended")),
        ("ended_ps", _U64),
        *(("odd_kind", _U32), ("odd_imm", _U32), ("waits", _U32), ("patience_ms", _I32)),
        *(("taken", _U32), ("numbers", _U32), ("token", _U64), ("messages", _Table), ("computations", _Table)),
        *(("by_number", _AT), ("going", _Row)),
        *((name, _U32) for name in ("foresees", "quiet", "chains", "stopped_count", "stopped_room")),
        *(("free_chains", _Row), ("stopped", _AT)),
    )


_, _TURNED_ENDED, _TURNED_PACKET, _TURNED_LOOK, _, _TURNED_ODD, _TURNED_CLOSED = range(7)
_NOT_OURS = -1
_ARGUMENTS = {
    "turns_add": (_U32, [_AT, _AT]),
    "turns_remove": (None, [_AT, _AT]),
    "turns_start": (ctypes.c_bool, [_AT, _AT]),
    "turns_done": (ctypes.c_bool, [_AT]),
    "turns_reset": (None, [_AT]),
    "turns_free": (None, [_AT]),
    "turns_close": (None, [_AT]),
    "turns_take": (ctypes.c_int, [_AT, _U32, _U64, _U64, _U32, _U32]),
    "turns_go_on": (ctypes.c_int, [_AT, _U64, _I64]),
}


class UnderWay(Protocol):
    """What goes on by itself."""

    execution: Execution
    owner: Any  # whom its end is told to (None: nobody)

    def combine(self, into: int, at: int, source: int, source_at: int, nbytes: int) -> None:
        """A reduction that C does not know."""


def library(sizes: tuple[int, ...]) -> ctypes.CDLL | None:
    """The library, if it is there and lays its memory out as we do: `sizes` of what others make for it."""
    found = native.turns()
    try:
        layout = (_U32 * (3 + len(sizes))).in_dll(found, "turns_layout") if found else ()
        if tuple(layout) != (*map(ctypes.sizeof, (_Session, Execution, Plan)), *sizes):
            return None
        for name, (result, arguments) in _ARGUMENTS.items():
            function = getattr(found, name)
            function.restype, function.argtypes = result, arguments
    except (AttributeError, ValueError):  # of other sources
        return None
    return found


def of(device: Device, sizes: tuple[int, ...]) -> Turns | None:
    """A device's turns, if there can be any."""
    if device.turns is None and not device.bonded and (found := library(sizes)) is not None:
        device.turns = Turns(device, found)
    return device.turns  # type: ignore[return-value]


class Turns:
    """What is under way at a device."""

    def __init__(self, device: Device, library: ctypes.CDLL) -> None:
        self.device, self.session, self.library = device, device.session, library
        self.under_way: dict[int, UnderWay] = {}
        self.look: Callable[[], None] = _nothing
        """Called now and then, as wall time goes by."""
        self._failed: BaseException | None = None
        session, wake_ps = device.session, round(device.wake_ns * 1000) if device.wake_ns > 0 else 0
        main = threading.current_thread() is threading.main_thread()
        self._callbacks = (
            _COMBINE(self._guarded(self._combine)),
            _SAY(self._guarded(self._say)),
            _ALIVE(self._guarded(session.progress)),
        )
        self._state = _Session(
            *(session.descriptor, 0, _address(session.out), _address(session.answers), len(session.answers), wake_ps),
            *(0, 0, 0, 0, *self._callbacks),
            patience_ms=_SIGNAL_MS if main else -1,
            foresees=FORESEES and not device.real_clock,
        )
        self._at = ctypes.addressof(self._state)

    # What is under way

    def add(self, what: UnderWay) -> None:
        """From now on it gets its records."""
        self.under_way[self.library.turns_add(self._at, ctypes.addressof(what.execution))] = what

    def remove(self, what: UnderWay) -> None:
        del self.under_way[what.execution.number]
        self.library.turns_remove(self._at, ctypes.addressof(what.execution))

    def start(self, what: UnderWay) -> None:
        """Takes it as far as it comes."""
        self._call(self.library.turns_start, ctypes.addressof(what.execution))

    def take(self, record: Record) -> UnderWay:
        """Hands a record that is its own to what is under way; returns whose it was."""
        what = (record.kind, record.wr_id, record.time_ps, record.qp, record.imm)
        self._turned(self._call(self.library.turns_take, *what))
        return self.under_way[self._state.taken]

    def number(self) -> int:
        """Of the next computation, where what is under way counts together with others."""
        self._state.token += 1
        return int(self._state.token)

    # Waiting

    def records(self, until_ns: float | None) -> Iterator[Record]:
        """As `Device.wait` has them, but not those of what is under way.

        There may be none: when something has ended of which nobody is told, or at that time.  When it looks up, and
        what signals do meanwhile, is wall time's: nobody else notices.
        """
        device = self.device
        if device.ready or not self.under_way or self._state.fd < 0:
            yield from device.wait(until_ns=until_ns)
            return
        until, turned = wire.FOREVER if until_ns is None else round(until_ns * 1000), _TURNED_LOOK
        while turned == _TURNED_LOOK:
            turned = self._waited(until)
            if turned == _TURNED_LOOK:
                self.look()
            elif turned == _TURNED_PACKET:
                records = device.come(self._state.got)
                yield from records
                if not records and (until == wire.FOREVER or device.answered_ps < until):
                    turned = _TURNED_LOOK  # what has come is of no interest
            while turned == _TURNED_ENDED:
                number = self._state.ended
                if self.under_way[number].owner is not None:
                    yield Record(ENDED, 0, number, self._state.ended_ps, 0, 0, 0)
                turned = self._waited(0)  # what else has come at that time

    def _waited(self, until: int) -> int:
        state, device = self._state, self.device
        state.now, state.got, state.spoke_ns = device.answered_ps, 0, int(self.session.last_sent_s * 1e9)
        turned = self._call(self.library.turns_go_on, until, _LOOK_NS)
        self.session.last_sent_s = state.spoke_ns / 1e9
        if state.got and turned != _TURNED_PACKET:
            device.answered_meanwhile(state.now, Tally(state.host, state.sent))
            self.session.unanswered = bool(state.said)
        return self._turned(turned)

    def _turned(self, turned: int) -> int:
        if turned == _TURNED_CLOSED:
            self.session.last_words()
        if turned in (_TURNED_ODD, _NOT_OURS):
            kind, imm = self._state.odd_kind, self._state.odd_imm
            raise FabricError(f"a record of kind {kind} with immediate {imm} is out of turn")
        return turned

    def _call(self, function: Callable[..., Any], *arguments: Any) -> Any:
        """What is said there stands behind what was said before."""
        self._state.said = self.session.said
        result = function(self._at, *arguments)
        self.session.said = self._state.said
        self.session.unanswered |= bool(self._state.said)
        if self._failed is not None:
            failed, self._failed = self._failed, None
            raise failed
        return result

    # What C calls

    def _guarded(self, function: Callable[..., None]) -> Callable[..., None]:
        """An error ends the call that has led to it."""

        def called(*arguments: Any) -> None:
            try:
                function(*arguments)
            except BaseException as error:
                self._failed = self._failed or error

        return called

    def _combine(self, number: int, *what: int) -> None:
        self.under_way[number].combine(*what)

    def _say(self, commands: int, nbytes: int) -> None:
        self.session.send(ctypes.string_at(commands, nbytes))

    def close(self) -> None:
        self.library.turns_close(self._at)
        self.under_way.clear()


def _nothing() -> None:
    pass


@contextmanager
def looking(turns: Turns | None, look: Callable[[], None]) -> Iterator[None]:
    """Meanwhile this is called now and then."""
    if turns is not None:
        turns.look = look
    try:
        yield
    finally:
        if turns is not None:
            turns.look = _nothing


def _address(memory: Any) -> int:
    return ctypes.addressof(ctypes.c_char.from_buffer(memory))
