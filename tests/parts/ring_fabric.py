"""Rings of NICs on a bare fabric: the test plays the ranks, and numpy gives the expected results."""

from __future__ import annotations

import itertools
from array import array
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import ml_dtypes  # noqa: F401  (gives numpy float8)
import numpy as np
from numpy.typing import NDArray

from hardware.config import Hardware
from tests.parts.fabricd_fixture import BareFabric, RawWorker, as_they_answer, bare_fabric
from workloads.collectives.schedule import spans
from workloads.verbs import wire
from workloads.verbs.wire import Record

ALL_REDUCE, REDUCE_SCATTER, ALL_GATHER, LOAD = range(4)
NONE, SGD, ADAM = range(3)
ENGINE = {
    "engine_reduce_bps": 400e9, "engine_packets_per_s": 595.2e6, "engine_memory_bytes": 13 << 19, "rx_buffer_bytes": 0,
}  # fmt: skip
_COMBINE = {"sum": np.add, "avg": np.add, "min": np.minimum, "max": np.maximum, "prod": np.multiply}
_numbers = itertools.count(1)


class Rank(RawWorker):
    """A session with memory for an input and a result."""

    def open(self, nbytes: int) -> Rank:
        self.key_in, self.memory_in = self.region(nbytes)
        self.key_out, self.memory_out = self.region(nbytes)
        return self

    def input(self, dtype: str, count: int) -> NDArray[Any]:
        return np.frombuffer(self.memory_in, _stored(dtype), count)

    def output(self, dtype: str, count: int) -> NDArray[Any]:
        return np.frombuffer(self.memory_out, _stored(dtype), count)


def _stored(dtype: str) -> str:
    return {"bfloat16": "uint16"}.get(dtype, "uint8" if dtype.startswith("float8") else dtype)


def together(members: Sequence[Rank], commands: Sequence[Sequence[bytes]], records: int = 1) -> list[list[Record]]:
    """All ranks send their commands and wait for so many records, then for the others, so that the clock can go on."""
    tag = next(_numbers)
    heard: dict[int, list[Record]] = {}
    for m, said in zip(members, commands, strict=True):
        m.begin_wait(records, wire.FOREVER, *said)
    for i in as_they_answer(members):
        heard[i] = members[i].end_wait()
        members[i].begin_wait(1, wire.FOREVER, wire.command(wire.SYNC, tag, len(members)))
    for m in members:
        (met,) = m.end_wait()
        assert met.kind == wire.SYNCED
    return [heard[i] for i in range(len(members))]


def a_moment_passes(members: Sequence[Rank]) -> None:
    """What the members have left is given back: a LEAVE acts when a post would."""
    for m in members:
        m.begin_wait(1, m.time_ps + 1_000_000)
    for m in members:
        assert not m.end_wait()


class Ring:
    """A group: members in ring order."""

    def __init__(
        self, members: Sequence[Rank], dtype: str, most: int, *, compressed: int = 0, optimizer: int = NONE
    ) -> None:
        self.members, self.dtype = list(members), dtype
        args = (most, wire.ELEMENTS[dtype], compressed, optimizer, 0, 0, 0, 0)
        ranks = [m.rank for m in members]
        data = array("I", ranks).tobytes()
        tag = next(_numbers)
        for m in members:
            m.begin_wait(1, wire.FOREVER, wire.command(wire.GROUP, b"ring", tag, 3, len(ranks), 0, *args, data=data))
        answers = [m.end_wait()[0] for m in members]
        self.number = answers[0].qp
        self.refused = answers[0].private.decode()
        assert {(a.qp, a.private.decode()) for a in answers} == {(self.number, self.refused)}

    def request(
        self, m: Rank, count: int, collective: int = ALL_REDUCE, op: str = "sum", args: Sequence[int] = (), **where: int
    ) -> bytes:
        given = (*args, 0, 0, 0, 0)[:4]
        at_in, at_out = where.get("at", 0), where.get("at_out", where.get("at", 0))
        out = m.key_in if collective == ALL_GATHER else m.key_out
        return wire.command(
            wire.POST_OFFLOAD, self.number, collective, wire.REDUCTIONS[op], wire.ELEMENTS[self.dtype], 0,
            where.get("wr_id", 1), m.key_in, out, at_in, at_out, count, *given,
        )  # fmt: skip

    def run(self, count: int, collective: int = ALL_REDUCE, op: str = "sum", args: Sequence[int] = ()) -> list[float]:
        """All ranks post at once; returns when each is done, in ns from its call."""
        (began,) = {m.time_ps for m in self.members}
        said = [[self.request(m, count, collective, op, args)] for m in self.members]
        took = []
        for (record,) in together(self.members, said):
            assert (record.kind, record.status) == (wire.OFFLOADED, 0), record
            took.append((record.time_ps - began) / 1000)
        return took

    def leave(self) -> None:
        for m in self.members:
            m.send(wire.command(wire.LEAVE, self.number, 0))


@contextmanager
def ranks(
    hosts: int, nbytes: int = 1 << 20, hardware: Hardware | None = None, **how: Any
) -> Iterator[tuple[BareFabric, list[Rank]]]:
    """A star of NICs with engines, and a session of every rank."""
    hardware = hardware or Hardware(nic=ENGINE)
    with bare_fabric("star", {"hosts": hosts}, hardware, **how) as f:
        f.start(*range(hosts))
        members = [Rank(f.worker_socket(i)).open(nbytes) for i in range(hosts)]
        yield f, members
        for m in members:
            m.bye()


# What must come out


def to_float(bits: NDArray[Any], dtype: str) -> NDArray[Any]:
    """bfloat16 is the upper half of a float32; float8 as ml_dtypes has it."""
    if dtype.startswith("float8"):
        return bits.view(dtype).astype(np.float32)
    return (bits.astype(np.uint32) << 16).view(np.float32) if dtype == "bfloat16" else bits


def to_bfloat16(values: NDArray[np.float32]) -> NDArray[np.uint16]:
    """Rounded to nearest even."""
    bits = np.ascontiguousarray(values, np.float32).view(np.uint32)
    return ((bits + 0x7FFF + (bits >> 16 & 1)) >> 16).astype(np.uint16)


def rounded(values: NDArray[Any], dtype: str) -> NDArray[Any]:
    """As it is stored."""
    if dtype.startswith("float8"):
        return values.astype(dtype).view(np.uint8)
    return to_bfloat16(values) if dtype == "bfloat16" else values.astype(dtype)


def chunks_of(count: int, n: int) -> list[slice]:
    return [slice(*span) for span in spans(count, n)]


def reduced_chunk(inputs: Sequence[NDArray[Any]], dtype: str, op: str, g: int, chunk: slice) -> NDArray[Any]:
    """Chunk g as a ring makes it: begun by rank g + 1, each next one computes own = own + incoming, rank g the last."""
    n = len(inputs)
    total = to_float(inputs[(g + 1) % n][chunk], dtype)
    with np.errstate(all="ignore"):
        for k in range(2, n + 1):
            total = to_float(rounded(_COMBINE[op](to_float(inputs[(g + k) % n][chunk], dtype), total), dtype), dtype)
        if op == "avg":
            if total.dtype.kind in "iu":
                total = np.trunc(total.astype(np.float64) / n).astype(total.dtype)
            else:
                total = (total / np.asarray(n, total.dtype)).astype(total.dtype)
    return rounded(total, dtype)


def reduced(inputs: Sequence[NDArray[Any]], dtype: str, op: str) -> NDArray[Any]:
    parts = chunks_of(len(inputs[0]), len(inputs))
    return np.concatenate([reduced_chunk(inputs, dtype, op, g, chunk) for g, chunk in enumerate(parts)])


def draw(random: np.random.Generator, dtype: str, count: int) -> NDArray[Any]:
    """Numbers whose sums depend on their order, or on wrapping."""
    if "int" in dtype:
        return random.integers(np.iinfo(dtype).min, np.iinfo(dtype).max, count, dtype, endpoint=True)
    if dtype.startswith("float8"):  # none that overflows
        return rounded(np.clip(random.standard_normal(count), -1.5, 1.5).astype(np.float32), dtype)
    values = (random.standard_normal(count) * 2.0 ** random.integers(-8, 8, count)).astype(np.float32)
    return rounded(values, dtype)


Inputs = Callable[[np.random.Generator, str, int], NDArray[Any]]


def fill(members: Sequence[Rank], dtype: str, count: int, seed: int, how: Inputs = draw) -> list[NDArray[Any]]:
    """Writes every member's input, spoils its result, and returns copies of the inputs."""
    inputs = []
    for i, m in enumerate(members):
        values = how(np.random.default_rng([seed, i]), dtype, count)
        m.input(dtype, count)[:] = values
        m.output(dtype, count).view(np.uint8)[:] = 0xFF
        inputs.append(values)
    return inputs


def same(a: NDArray[Any], b: NDArray[Any]) -> bool:
    """To the last bit."""
    return bool(np.array_equal(a.view(np.uint8), b.view(np.uint8)))


# Block floating point (hardware/fabricd/offload/ring/bfp.c), written again


def bfp(values: NDArray[np.float32]) -> NDArray[np.float32]:
    """What is left of numbers that have been compressed: 16 share an exponent, each keeps 8 bits with its sign."""
    whole = np.zeros(-(-len(values) // 16) * 16, np.float32)
    whole[: len(values)] = values
    blocks = whole.reshape(-1, 16).astype(np.float64)
    bad = ~np.isfinite(blocks).all(axis=1)
    largest = np.abs(np.where(bad[:, None], 0, blocks)).max(axis=1)
    exponent = np.where(largest > 0, np.maximum(np.frexp(largest)[1], -126), 0)
    step = np.ldexp(1.0, exponent - 7)[:, None]
    kept = (np.clip(np.rint(np.where(bad[:, None], 0, blocks) / step), -127, 127) * step).astype(np.float32)
    kept[bad] = np.nan
    return kept.reshape(-1)[: len(values)].copy()


def compressed_chunk(inputs: Sequence[NDArray[np.float32]], g: int, chunk: slice) -> tuple[Any, NDArray[np.float64]]:
    """Chunk g as compressing NICs make it, before it is gathered, and how far each element may be off after that."""
    n = len(inputs)
    total = inputs[(g + 1) % n][chunk]
    off = np.zeros(len(total))
    with np.errstate(all="ignore"):
        for k in range(2, n + 1):
            off += _blockwise_max(total) / 127
            total = inputs[(g + k) % n][chunk] + bfp(total)
            off += np.abs(total) * 2.0**-24
    return total, off + _blockwise_max(total) / 127


def _blockwise_max(values: NDArray[np.float32]) -> NDArray[np.float64]:
    whole = np.zeros(-(-len(values) // 16) * 16)
    whole[: len(values)] = np.abs(values)
    return np.repeat(whole.reshape(-1, 16).max(axis=1), 16)[: len(values)]
