"""Credit of receivers in the network of workloads/times/network.py: whose next train may go, and who is granted what.

As docs/credits.md has it, but in trains: a sender goes on while it has any credit, and says with each train up to where
it would like to be granted; a receiver has those to whom it owes something take turns, as fast as its cable brings what
it grants.  Nothing is lost, so nobody asks twice.
"""

from __future__ import annotations

from bisect import insort
from collections.abc import Callable, Hashable
from dataclasses import dataclass, field

from workloads.credit.credit import AHEAD, PULLS, SHORTEST, Credit, Loop

At = Callable[..., None]


@dataclass
class Receiver:
    """A NIC, and who stands in its queue."""

    queue: list[Claim] = field(default_factory=list)
    free_ns: float = 0.0
    due: bool = False


@dataclass(eq=False)
class Claim:
    """Of a queue pair.  Numbers count bytes since the beginning, as packets do.  `goes_on`: it has credit again."""

    told_ns: float  # what a train takes to its receiver
    back_ns: float  # and a credit, or a request
    pulled_ns: float  # between two packets that are granted
    receiver: Receiver
    goes_on: Callable[[float], None]
    left: float = 0.0  # the sender's credit
    unsent: int = 0
    rest: int = 0  # of its message
    known: float = 0.0
    told: float = 0.0
    speculates: bool = True
    waits: bool = False
    granted: float = 0.0  # at the receiver, likewise below
    target: float = 0.0
    end: float = 0.0
    to_come: float = 0.0
    owed: float = 0.0
    rank: float = 0.0
    queued: bool = False


class Pulls:
    """Of all queue pairs of a network, in trains of so many packets of `mtu`.  `at` is its agenda's."""

    def __init__(self, credit: Credit, mtu: int, train: int, at: At) -> None:
        self._credit, self._mtu, self._at = credit, mtu, at
        self._grant = max(credit.packets, train) * mtu
        self._receivers: dict[Hashable, Receiver] = {}

    def claim(self, receiver: Hashable, loop: Loop, goes_on: Callable[[float], None]) -> Claim:
        """Of a queue pair that sends to this receiver."""
        its = self._receivers.setdefault(receiver, Receiver())
        times = loop.told, loop.back, loop.brought / self._credit.share
        return Claim(*times, its, goes_on, self._credit.initial_bytes, speculates=not self._credit.by_message)

    def posted(self, claim: Claim, nbytes: int) -> None:
        """A message more."""
        if self._credit.anew and not claim.unsent:
            claim.left = max(claim.left, self._credit.initial_bytes)
        claim.unsent += nbytes

    def goes(self, t: float, claim: Claim, nbytes: int, begins: int) -> bool:
        """Whether the next train of so many bytes does; `begins`: a message of so many bytes, with it."""
        credit = self._credit
        if credit.by_message and begins:
            claim.left = min(claim.left, 0.0) + min(begins, credit.initial_bytes)
            claim.rest = begins
        if claim.left <= 0:
            claim.waits = True
            if claim.told <= claim.known:
                self._tell(t + claim.back_ns, claim, 0)
            return False
        claim.left -= max(nbytes, 1)
        claim.unsent -= nbytes
        claim.rest -= nbytes
        self._tell(t + claim.told_ns, claim, max(nbytes, 1))
        return True

    def _tell(self, t: float, claim: Claim, came: int) -> None:
        to_send = claim.rest if self._credit.by_message else claim.unsent
        wants = min(to_send, self._credit.window_bytes) - claim.left
        if claim.speculates and to_send and wants < self._mtu:
            wants = self._mtu
        claim.told = max(claim.told, claim.known + max(wants, 0.0))
        self._at(t, self._hears, claim, came, claim.told, claim.known + max(to_send - claim.left, 0.0), to_send)

    def _hears(self, t: float, claim: Claim, came: int, target: float, end: float, to_come: int) -> None:
        if end != claim.end or to_come < claim.to_come:
            claim.to_come = to_come
        claim.target, claim.end = max(claim.target, target), max(claim.end, end)
        self._claims(t, claim, came, asks=not came)

    def _claims(self, t: float, claim: Claim, came: int, *, asks: bool = False) -> None:
        """What is owed to it now."""
        credit, wants, rest = self._credit, claim.target - claim.granted, max(claim.end - claim.granted, 0.0)
        owed, rank = wants, 0.0
        if credit.by == AHEAD:
            rank = float(wants <= 0)
            if wants <= 0:
                owed = self._grant if -wants < credit.window_bytes else 0.0
        elif credit.by == PULLS and not asks:
            owed = min(wants, claim.owed + (came > 0) * max(came, self._mtu))
        elif credit.by == SHORTEST:
            owed, rank = min(wants, credit.window_bytes - (claim.to_come - rest)), rest
        claim.owed = max(owed, 0.0)
        stays = claim.owed > 0 or (credit.by == SHORTEST and rest > 0)
        queue = claim.receiver.queue
        if claim.queued and (rank != claim.rank or not stays):
            queue.remove(claim)
            claim.queued = False
        claim.rank = rank
        if stays and not claim.queued:
            insort(queue, claim, key=lambda its: its.rank)
            claim.queued = True
        self._wake(t, claim.receiver)

    def _next(self, receiver: Receiver) -> Claim | None:
        active = self._credit.active or len(receiver.queue)
        return next((claim for claim in receiver.queue[:active] if claim.owed), None)

    def _wake(self, t: float, receiver: Receiver) -> None:
        if not receiver.due and self._next(receiver):
            receiver.due = True
            self._at(max(t, receiver.free_ns), self._turn, receiver)

    def _turn(self, t: float, receiver: Receiver) -> None:
        receiver.due = False
        claim = self._next(receiver)
        if claim is None:
            return
        granted = min(claim.owed, self._grant)
        claim.granted += granted
        claim.owed -= granted
        receiver.free_ns = t + granted / self._mtu * claim.pulled_ns
        self._at(t + claim.back_ns, self._granted, claim, claim.granted)
        receiver.queue.remove(claim)
        claim.queued = False
        self._claims(t, claim, 0)

    def _granted(self, t: float, claim: Claim, number: float) -> None:
        """The sender hears of it."""
        more = number - claim.known
        own = 0.0 if claim.speculates and claim.left > 0 else claim.left
        claim.left, claim.known, claim.speculates = min(own + more, self._credit.window_bytes), number, False
        if claim.waits and claim.left > 0:
            claim.waits = False
            claim.goes_on(t)
