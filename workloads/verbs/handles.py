"""What a device hands out: registered memory, queue pairs, groups.  Posts go out with the device's next wait."""

from __future__ import annotations

import mmap
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from workloads.verbs import wire
from workloads.verbs.session import Session

if TYPE_CHECKING:
    from numpy.typing import NDArray


class Region:
    """Memory shared with the NIC; `key` serves as lkey and rkey.  A part of one begins at its byte `at`."""

    def __init__(self, memory: mmap.mmap, key: int, at: int = 0, nbytes: int | None = None) -> None:
        self._memory = memory
        self.key = key
        self.at = at
        self.used = False  # its owner says so; zeros until then
        self._bytes = len(memory) - at if nbytes is None else nbytes

    def __len__(self) -> int:
        return self._bytes

    def part(self, at: int, nbytes: int) -> Region:
        """`nbytes` of it from byte `at` on, as a region of its own: offsets count from there."""
        if not 0 <= at <= at + nbytes <= len(self):
            raise ValueError(f"bytes {at}+{nbytes} of a region of {len(self)}")
        return Region(self._memory, self.key, self.at + at, nbytes)

    @property
    def address(self) -> int:
        """Where it begins in this process."""
        return int(self.view("uint8").__array_interface__["data"][0])

    def view(self, dtype: str, offset_bytes: int = 0, count: int = -1) -> NDArray[Any]:
        """A numpy view of `count` elements (-1: all that fit) from byte `offset_bytes` on, without a copy."""
        import numpy as np

        if count < 0:
            count = (len(self) - offset_bytes) // np.dtype(dtype).itemsize
        return np.frombuffer(self._memory, dtype, count, self.at + offset_bytes)


class Peer(NamedTuple):
    """One side's call of a connection: both ranks give the same `tag`, each hands the other up to 256 private bytes."""

    rank: int
    tag: int
    private: bytes = b""
    network_only: bool = False  # True: never the scale-up domain
    dscp: int | None = None  # of what we send; None: the NIC's, and its class
    traffic_class: int = 0
    transport: int | Sequence[int] | None = None  # what we send by, as `Device.sends_by` has it; None: that

    @property
    def flags(self) -> int:
        own = 0 if self.dscp is None else wire.OWN_CLASS | self.dscp << 2 | self.traffic_class << 8
        return own | (wire.NETWORK_ONLY if self.network_only else 0)


class QueuePair:
    """A reliable connection to one peer.  Posts go out with the device's next wait.

    `lanes`: how many there are for messages that need not be told of one by one.
    """

    lanes = 1

    def __init__(self, session: Session, number: int, peer: int, private: bytes, scale_up: bool) -> None:
        self._post = session.queue
        self.number = number
        self.peer = peer
        self.private = private  # what the peer handed over
        self.scale_up = scale_up

    def lane(self, number: int) -> QueuePair:
        """What message `number` of a row goes by, whose last ones, one for each of the lanes, carry an immediate."""
        return self

    def write(
        self,
        source: Region,
        offset: int,
        length: int,
        rkey: int,
        target: int,
        *,
        wr_id: int = 0,
        signaled: bool = True,
        imm: int | None = None,
    ) -> None:
        """RDMA write of `length` bytes to byte `target` of the peer's region `rkey`.

        With `imm` it also completes a receive at the peer (RECEIVED_IMM).
        """
        opcode, flags = wire.WRITE if imm is None else wire.WRITE_IMM, wire.SIGNALED if signaled else 0
        start = source.at + offset
        self._post(
            wire.POST_SEND,
            *(self.number, opcode, flags, 0, wr_id, source.key, rkey, start, target, length, imm or 0, 0),
        )

    def send(self, source: Region, offset: int, length: int, *, wr_id: int = 0, signaled: bool = True) -> None:
        """Send `length` bytes into the peer's next posted receive."""
        flags = wire.SIGNALED if signaled else 0
        self._post(
            wire.POST_SEND,
            *(self.number, wire.SEND, flags, 0, wr_id, source.key, 0, source.at + offset, 0, length, 0, 0),
        )

    def recv(self, target: Region, offset: int = 0, length: int = 0, *, wr_id: int = 0) -> None:
        """Post a receive: for a send, or for the immediate of one write (its length may then be 0)."""
        self._post(wire.POST_RECV, self.number, target.key, wr_id, target.at + offset, length)


class Group:
    """Ranks whose collectives are offloaded.  `refused` says why it is not open ("": it is)."""

    def __init__(self, session: Session, number: int, granted: int, refused: str, left: Callable[[int], None]) -> None:
        self._left = left
        self._post = session.queue
        self.number = number
        self.granted = granted  # what the kind gets, such as slots
        self.refused = refused

    def post(
        self,
        source: Region,
        offset: int,
        target: Region,
        target_offset: int,
        count: int,
        *,
        collective: int = 0,
        reduction: str | None = None,
        dtype: str = "int32",
        flags: int = 0,
        wr_id: int = 0,
        args: Sequence[int] = (),
    ) -> None:
        """Start a collective of `count` elements; an OFFLOADED record tells its end, GROUP_FAILED that it has none."""
        padded = (*args, 0, 0, 0, 0)[:4]
        self._post(
            wire.POST_OFFLOAD,
            *(self.number, collective, wire.REDUCTIONS[reduction or "sum"], wire.ELEMENTS[dtype], flags),
            *(wr_id, source.key, target.key, source.at + offset, target.at + target_offset, count, *padded),
        )

    def leave(self) -> None:
        """Give it up, with what it may still have to say; the group ends when all have left."""
        self._post(wire.LEAVE, self.number, 0)
        self._left(self.number)
