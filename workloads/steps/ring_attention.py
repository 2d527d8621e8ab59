"""Attention's core over ranks that have a part of the sequence each: keys and values go round (Liu et al. 2023).

Every rank computes its queries with the block that it has, while that block is on its way to the next rank.  Backward
the blocks go round again, and behind each of them its gradients, to which every rank adds; they end at the block's own
rank.  So forward c - 1 blocks of keys and values leave a rank, backward as many again, and as many of gradients.
Causal attention is taken to be balanced (each rank has a part of the sequence's begin and of its end).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from workloads.steps.program import Program

KIND = "ring_attention"


def forward(program: Program, ring: Sequence[int], name: str, kind: str, block_bytes: int, core_ns: float) -> None:
    """Computes all of the core."""
    for _ in _rounds(program, ring, name, kind, block_bytes, core_ns):
        pass


def backward(program: Program, ring: Sequence[int], name: str, kind: str, block_bytes: int, core_ns: float) -> None:
    """As forward, with gradients behind the blocks; what is computed next waits for the rank's own block's."""
    gradients: str | None = None
    for k in _rounds(program, ring, name, kind, block_bytes, core_ns):
        if k:
            at = ring.index(program.rank)
            added = (*program.done(), *((gradients,) if gradients else ()))
            gradients = _pass_on(program, ring, at, f"{name}.g{k}", block_bytes, "context_gradients", added)
    if gradients is not None:
        program.wait(gradients)


def _rounds(
    program: Program, ring: Sequence[int], name: str, kind: str, block_bytes: int, core_ns: float
) -> Iterator[int]:
    """Passes each block on while it computes with it; yields the block's number when it has computed."""
    n, at = len(ring), ring.index(program.rank)
    arrived: str | None = None
    for k in range(n):
        after = program.done() if arrived is None else (arrived,)
        coming = None
        if k < n - 1:
            coming = _pass_on(program, ring, at, f"{name}.k{k}", block_bytes, "context", after)
        if arrived is not None:
            program.wait(arrived)
        program.compute(kind, f"{name}.core{k}", core_ns / n)
        yield k
        arrived = coming


def _pass_on(
    program: Program, ring: Sequence[int], at: int, name: str, nbytes: int, stream: str, after: tuple[str, ...]
) -> str:
    """Sends to the next rank, and returns what comes from the one before."""
    n = len(ring)
    program.send(name, KIND, ring[(at + 1) % n], nbytes, "context", f"{stream}_send", after)
    return program.receive(name, KIND, ring[at - 1], nbytes, "context", f"{stream}_receive")
