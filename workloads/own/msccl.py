"""MSCCL's algorithms as schedules: gpus are ranks, thread blocks are lanes, and all is done loop by loop.

The vector is cut into `nchunksperloop` chunks.  A loop does all steps on a slice of every chunk, at most as long as the
protocol's buffer takes; where a chunk is shorter, a message of several chunks carries as many as fit.  By Simple a
message goes in two slices, of which a step passes on the first before it waits for the second.  Messages go through
FIFOs: what a step has sent may be overwritten, and what it receives is written when its turn comes.
(MSCCL's interpreter: src/collectives/device/msccl_interpreter.h, prims_simple.h; the file: src/graph/topo.cc.)
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from hashlib import sha256
from itertools import accumulate
from typing import NamedTuple

from workloads.check.memory import At
from workloads.collectives.schedule import (
    OUTPUT,
    VECTOR,
    Copy,
    Lane,
    Place,
    Program,
    Recv,
    Send,
    Shape,
    Span,
    Step,
    Wait,
    pieces,
)
from workloads.own.xml import Element, parsed

COLLECTIVES = {
    "allreduce": "all_reduce",
    "allgather": "all_gather",
    "reduce_scatter": "reduce_scatter",
    "alltoall": "all_to_all",
    "broadcast": "broadcast",
    "reduce": "reduce",
}


class Protocol(NamedTuple):
    """Bytes of a chunk that a loop does, slices of a message, and slices of a connection under way.

    NCCL's buffers have 8 steps.
    """

    loop_bytes: int
    slices: int
    window: int


PROTOCOLS = {
    "Simple": Protocol(2 << 20, 2, 4),  # 4 steps of 512 KiB, 2 in a slice
    "LL128": Protocol(576_000, 1, 8),  # a step: of 614,400 bytes, 120 of 128 carry data
    "LL": Protocol(32 << 10, 1, 8),  # a step: of 64 KiB, half carries data
}
_SLICE_UNIT = 16  # elements
_LEAST_SLICE = 64  # of them in a loop

MOST_CHUNKS = 1 << 16
MOST_CHANNELS = 32
MOST_COUNT, MOST_STEPS, MOST_BLOCKS = 71, 256, 216
"""Chunks of a step, steps of a thread block, thread blocks of a gpu: more MSCCL refuses (src/include/msccl.h)."""


class Kind(NamedTuple):
    """What a type of step does: receives, reduces with `src`, keeps the result in `dst`, sends it."""

    receives: bool = False
    reduces: bool = False
    keeps: bool = False
    sends: bool = False

    @property
    def passes(self) -> bool:
        """Whether what it sends stands nowhere afterwards."""
        return self.receives and not self.keeps

    @property
    def reads(self) -> bool:
        """Whether `src` is a chunk of this gpu."""
        return self.reduces or not self.receives


KINDS = {
    "s": Kind(sends=True),
    "r": Kind(receives=True, keeps=True),
    "rcs": Kind(receives=True, keeps=True, sends=True),
    "rrs": Kind(receives=True, reduces=True, sends=True),
    "rrc": Kind(receives=True, reduces=True, keeps=True),
    "rrcs": Kind(receives=True, reduces=True, keeps=True, sends=True),
    "cpy": Kind(keeps=True),
    "re": Kind(reduces=True, keeps=True),
}
NOTHING = "nop"


@dataclass(frozen=True)
class Transfer:
    """A step: `after`, the position of a thread block and how many of its steps it waits for."""

    line: int
    name: str  # "gpu 0 tb 1 step 2 (rrc)"
    kind: Kind | None
    source: tuple[str, int]
    target: tuple[str, int]
    count: int
    after: tuple[int, int] | None

    @property
    def travels(self) -> bool:
        return self.kind is not None and (self.kind.receives or self.kind.sends)


@dataclass(frozen=True)
class Block:
    send: int
    recv: int
    channel: int
    transfers: Sequence[Transfer]


@dataclass(frozen=True)
class Gpu:
    line: int
    name: str
    chunks: dict[str, int]  # of its input, output, scratch
    blocks: Sequence[Block]


@dataclass(frozen=True, eq=False)
class Msccl:
    """A file's algorithm."""

    collective: str
    chunks: int  # of the whole vector
    protocol: Protocol
    in_place: bool
    gpus: Sequence[Gpu]
    identity: str  # of the file's content

    @property
    def apart(self) -> bool:
        """Whether its output is another memory than that in which its input is."""
        return not self.in_place and self.collective != "all_to_all"

    def in_all(self, shape: Shape) -> int:
        """How often one of its steps is done, by all gpus in all loops."""
        steps = sum(len(block.transfers) for gpu in self.gpus for block in gpu.blocks)
        return steps * len(pieces(0, -(-shape.count // self.chunks), shape.chunk))

    def __call__(self, shape: Shape, index: int) -> Program:
        return _program(self, shape, index)

    def place(self, at: At) -> Transfer | Gpu:
        """Which part of the file it is of, in a program of one loop."""
        gpu, before = _Gpu(self, at.rank, _Loops(1, None)), 0
        for transfer in self.gpus[at.rank].blocks[at.lane].transfers if at.lane >= 0 else ():
            before += gpu.steps_of(transfer)
            if at.step < before:
                return transfer
        return self.gpus[at.rank]


@lru_cache(maxsize=64)
def read(text: bytes) -> Msccl:
    """The algorithm of a file.  Raises BadAlgorithm."""
    algo = parsed(text)
    name = algo.text("coll")
    if name not in COLLECTIVES:
        what = "nobody says what is to come out of it" if name == "custom" else "is not known here"
        algo.wrong(f"coll={name[:40]!r}: {what}", f"one of {', '.join(COLLECTIVES)}")
    proto = algo.text("proto", "Simple")
    if proto not in PROTOCOLS:
        algo.wrong(f"proto={proto[:40]!r} is unknown", f"one of {', '.join(PROTOCOLS)}")
    ranks = algo.number("ngpus", 2, 4096)
    chunks = algo.number("nchunksperloop", 1, MOST_CHUNKS)
    in_place = algo.number("inplace", 0, 1, default=0) == 1
    collective = COLLECTIVES[name]
    if in_place and collective == "all_to_all":
        algo.wrong("an alltoall in place would write over what is still to be sent", 'inplace="0"')
    parts = ranks if collective in ("all_gather", "reduce_scatter", "all_to_all") else 1
    if chunks % parts:
        algo.wrong(f"{name} among {ranks} gpus in nchunksperloop={chunks} chunks: no part is a whole number of them")
    by_id: dict[int, Element] = {}
    for gpu in algo.children:
        number = gpu.number("id", 0, ranks - 1)
        if number in by_id:
            gpu.wrong(f"there is a gpu {number} already, in line {by_id[number].line}")
        by_id[number] = gpu
    if missing := [k for k in range(ranks) if k not in by_id]:
        algo.wrong(f"ngpus={ranks}, and there is no gpu {missing[0]}")
    gpus = [_gpu(by_id[k], k, ranks, collective, chunks) for k in range(ranks)]
    return Msccl(collective, chunks, PROTOCOLS[proto], in_place, gpus, sha256(text).hexdigest())


def _gpu(element: Element, number: int, ranks: int, collective: str, chunks: int) -> Gpu:
    own = {key: element.number(f"{key}_chunks", 0, MOST_CHUNKS) for key in "ios"}
    whole = {
        "i": chunks // ranks if collective == "all_gather" else chunks,
        "o": chunks // ranks if collective == "reduce_scatter" else chunks,
    }
    for key, its in whole.items():
        if own[key] > its:
            element.wrong(f"gpu {number}: {key}_chunks={own[key]}, and nchunksperloop says {its}")
    tbs: dict[int, Element] = {}
    for tb in element.children:
        its = tb.number("id", 0, MOST_BLOCKS - 1)
        if its in tbs:
            tb.wrong(f"gpu {number} has a tb {its} already, in line {tbs[its].line}")
        tbs[its] = tb
    blocks = [_Reader(tbs, number, ranks, own).block(its) for its in sorted(tbs)]
    return Gpu(element.line, f"gpu {number}", own, blocks)


class _Reader:
    """Of a gpu's thread blocks."""

    def __init__(self, tbs: dict[int, Element], gpu: int, ranks: int, chunks: dict[str, int]) -> None:
        self._tbs, self._gpu, self._ranks, self._chunks = tbs, gpu, ranks, chunks
        self._order = sorted(tbs)
        self._says: dict[int, list[int]] = {}  # steps of thread blocks that say that they are done

    def block(self, tb: int) -> Block:
        element = self._tbs[tb]
        peers = {}
        for key in ("send", "recv"):
            peers[key] = element.number(key, -1, self._ranks - 1)
            if peers[key] == self._gpu:
                element.wrong(f"gpu {self._gpu} tb {tb}: {key}={peers[key]} is the gpu itself", "another, or -1")
        channel = element.number("chan", 0 if max(peers.values()) >= 0 else -1, MOST_CHANNELS - 1)
        transfers = []
        for k, step in enumerate(element.children):
            if (s := step.number("s", 0)) != k:
                step.wrong(f"gpu {self._gpu} tb {tb}: step s={s} stands where s={k} should")
            if k == MOST_STEPS:
                what = f"gpu {self._gpu} tb {tb} has {len(element.children)} steps, and MSCCL refuses more than {k}"
                step.wrong(what, "several tbs")
            transfers.append(self._transfer(step, tb, k, peers))
        return Block(peers["send"], peers["recv"], channel, transfers)

    def _transfer(self, step: Element, tb: int, s: int, peers: dict[str, int]) -> Transfer:
        kind_name = step.text("type")
        name = f"gpu {self._gpu} tb {tb} step {s} ({kind_name[:20]})"
        if kind_name not in KINDS and kind_name != NOTHING:
            step.wrong(f"{name}: there is no such type of step", f"one of {', '.join((*KINDS, NOTHING))}")
        kind = KINDS.get(kind_name)
        count = step.number("cnt", 1) if kind else 0
        if count > MOST_COUNT:
            step.wrong(f"{name}: cnt={count}, and MSCCL refuses more than {MOST_COUNT}", "several steps")
        chunks = {"src": ("i", 0), "dst": ("o", 0)}
        for key, used in (("src", kind and kind.reads), ("dst", kind and kind.keeps)):
            if used:
                chunks[key] = self._chunk(step, name, key, count)
        for key, used in (("send", kind and kind.sends), ("recv", kind and kind.receives)):
            if used and peers[key] < 0:
                step.wrong(f"{name}: its tb has no peer to {key}", f'<tb {key}="..">')
        return Transfer(step.line, name, kind, chunks["src"], chunks["dst"], count, self._after(step, name))

    def _chunk(self, step: Element, name: str, key: str, count: int) -> tuple[str, int]:
        buffer = step.text(f"{key}buf")
        if buffer not in self._chunks:
            step.wrong(f"{name}: {key}buf={buffer[:20]!r} is no buffer", "i, o or s")
        first = step.number(f"{key}off", 0)
        if first + count > (its := self._chunks[buffer]):
            which = f"chunk {first}" if count == 1 else f"chunks {first} to {first + count - 1}"
            step.wrong(f"{name}: {which} of buffer {buffer}, which has {its}", f"{buffer}_chunks of its gpu")
        return buffer, first

    def _after(self, step: Element, name: str) -> tuple[int, int] | None:
        """The thread block and how many of its steps: as in MSCCL, only a step with `hasdep` says that it is done."""
        tb, s = step.number("depid", -1, default=-1), step.number("deps", -1, default=-1)
        step.number("hasdep", 0, 1, default=0)
        if tb < 0:
            return None
        if tb not in self._tbs:
            step.wrong(f"{name}: depid={tb}, and gpu {self._gpu} has no such tb")
        its = self._tbs[tb].children
        if not 0 <= s < len(its):
            step.wrong(f"{name}: deps={s}, and tb {tb} has {len(its)} steps")
        says = self._says.setdefault(tb, [k for k, other in enumerate(its) if _says(other)])
        if (k := bisect_left(says, s)) < len(says):
            return self._order.index(tb), says[k] + 1
        step.wrong(f"{name}: deadlock: tb {tb} never says that its step {s} is done", 'hasdep="1" at that step')


def _says(step: Element) -> bool:
    return step.attributes.get("hasdep") == "1" and step.attributes.get("type") != NOTHING


# As a schedule


@dataclass(frozen=True)
class _Loops:
    """Of chunks of so many elements, cut into loops of at most `most` (None: one); messages go in so many slices."""

    chunk: int
    most: int | None
    slices: int = 1

    @property
    def spans(self) -> list[Span]:
        return pieces(0, self.chunk, self.most)

    @property
    def together(self) -> int:
        """Chunks in a message."""
        return max(1, self.most // max(self.chunk, 1)) if self.most else MOST_CHUNKS

    def length(self, first: int, count: int, span: Span) -> int:
        """Of a message of `count` chunks' parts, from its `first` one on."""
        return (min(self.together, count - first) - 1) * self.chunk + span.stop - span.start

    def cut(self, length: int, longest: int, *, whole: bool) -> list[Span]:
        """A message in slices, as many as in the longest loop: as prims_simple.h's genericOp."""
        if whole or self.slices == 1 or not self.most:
            return [Span(0, length)]
        each = max(-(-longest // (_SLICE_UNIT * self.slices)) * _SLICE_UNIT, self.most // _LEAST_SLICE)
        return [Span(min(at, length), min(at + each, length)) for at in range(0, max(longest, 1), each)]


@lru_cache(maxsize=4096)
def _program(algorithm: Msccl, shape: Shape, index: int) -> Program:
    loops = _Loops(-(-shape.count // algorithm.chunks), shape.chunk, algorithm.protocol.slices)
    gpu = _Gpu(algorithm, index, loops)
    lanes = []
    for k, block in enumerate(gpu.blocks):
        steps = [
            step
            for number, loop in enumerate(loops.spans)
            for transfer in block.transfers
            for step in gpu.lowered(transfer, k, number, loop)
        ]
        lanes.append(Lane(steps, algorithm.protocol.window, per_peer=True, buffered=True))
    return lanes


class _Gpu:
    """A gpu's steps as its rank's: where its buffers are."""

    def __init__(self, algorithm: Msccl, index: int, loops: _Loops) -> None:
        gpu, chunk = algorithm.gpus[index], loops.chunk
        self.blocks, self._loops, self._chunk = gpu.blocks, loops, chunk
        output = OUTPUT if algorithm.apart or algorithm.collective == "all_to_all" else VECTOR
        whole = algorithm.chunks * chunk
        part = index * (whole // len(algorithm.gpus))
        behind = whole if output == OUTPUT else 0
        self._begin = {
            "i": Place(VECTOR, part if algorithm.collective == "all_gather" else 0),
            "o": Place(output, part if algorithm.collective == "reduce_scatter" else 0),
            "s": Place(OUTPUT, behind),
        }
        self._sums: dict[int, list[int]] = {}
        self._passing = []  # where a thread block has what it only passes on
        at = behind + gpu.chunks["s"] * chunk
        for block in gpu.blocks:
            self._passing.append(Place(OUTPUT, at))
            at += chunk * max((t.count for t in block.transfers if t.kind and t.kind.passes), default=0)

    def steps_of(self, transfer: Transfer) -> int:
        """Steps of a lane that it becomes in one loop."""
        return sum(1 for _ in self.lowered(transfer, 0, 0, self._loops.spans[0], alone=True))

    def _behind(self, block: int) -> list[int]:
        """Steps of a block's lane in one loop, up to each of its transfers."""
        if block not in self._sums:
            each = (self.steps_of(its) for its in self.blocks[block].transfers)
            self._sums[block] = list(accumulate(each, initial=0))
        return self._sums[block]

    def lowered(self, transfer: Transfer, block: int, loop: int, span: Span, *, alone: bool = False) -> Iterator[Step]:
        """Of a loop, elements `span` of each chunk.  `alone`: whatever others it waits for."""
        if transfer.after is not None:
            other, done = (0, 0) if alone else transfer.after
            yield Wait(other, 0 if alone else loop * self._behind(other)[-1] + self._behind(other)[done])
        longest = self._loops.spans[0]
        for first in range(0, transfer.count, self._loops.together):
            lengths = (self._loops.length(first, transfer.count, its) for its in (span, longest))
            for start, stop in self._loops.cut(*lengths, whole=not transfer.travels):
                yield from self._message(transfer, block, first, span.start + start, stop - start)

    def _message(self, transfer: Transfer, block: int, chunk: int, start: int, length: int) -> list[Step]:
        """What is done with so many elements from `start` of the transfer's `chunk`th chunk on."""
        kind, channel = transfer.kind, self.blocks[block].channel
        if kind is None:
            return []
        source, target = (
            (region, at + (offset + chunk) * self._chunk + start)
            for (region, at), offset in (
                (self._begin[transfer.source[0]], transfer.source[1]),
                (self._begin[transfer.target[0]], transfer.target[1]),
            )
        )
        if kind.passes:
            target = self._passing[block]
        its, (into, at) = self.blocks[block], target
        made: list[Step] = []
        if kind.receives:
            in_place = kind.reduces and source == target
            if kind.reduces and kind.keeps and not in_place:
                made.append(Copy(source[1], source[1] + length, at, source[0], into))
            made.append(Recv(its.recv, at, at + length, kind.reduces and kind.keeps, channel, into))
            if kind.passes:
                made.append(Copy(source[1], source[1] + length, at, source[0], into, reduce=True))
        elif kind.keeps:
            made.append(Copy(source[1], source[1] + length, at, source[0], into, reduce=kind.reduces))
        if kind.sends:
            region, begin = target if kind.receives else source
            made.append(Send(its.send, begin, begin + length, channel, region))
        return made
