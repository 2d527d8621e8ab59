"""How a collective library carries out one collective of one size: what schedules of workloads/library/ depend on."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Manner:
    """Of equal servers; a group's ranks are in order, server by server.  Sizes in bytes, times in ns.

    `nics`: of a server, each with a GPU beside it.  `crossing`: rings leave a server by another NIC than they came in
    by.  `pxn`: else they leave by the same one, through its GPU.  `chunk`: of a ring at most, or a tree's piece, sent
    in `slices` of `least` bytes or more, `slots` of them under way.  `byte` and `slice`: what a channel's clock takes.
    `near`, `far`: how much longer a message is on its way than the fabric takes, in a server, and to another.
    `padded`: what goes over the wire for a byte.  `of_peer`: channels between two ranks that send each other messages.
    """

    width: int
    gpus: int
    nics: int
    channels: int
    protocol: str
    crossing: bool
    pxn: bool
    chunk: int
    slices: int
    least: int
    slots: int
    launch: float
    byte: float
    slice: float
    near: float
    far: float
    padded: float
    of_peer: int = 1

    def tags(self, ranks: int) -> int:
        """How many channels its messages may be on: of trees both ways, of messages on two ways through servers."""
        return max(2 * self.channels, self.of_peer * (1 + ranks // self.gpus + self.gpus))

    def peers(self, rank: int, ranks: int) -> dict[int, float]:
        """How much later messages from each other rank are seen."""
        far, near, gpus = self.far, self.near, self.gpus
        return {peer: near if peer // gpus == rank // gpus else far for peer in range(ranks) if peer != rank}
