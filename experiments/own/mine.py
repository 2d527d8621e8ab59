"""Two schedules of one's own: an all-reduce and a broadcast.  docs/own-algorithms.md goes through them."""

from workloads.collectives.schedule import Lane, Program, Recv, Send, Shape, spans


def one_shot(shape: Shape, rank: int) -> Program:
    """All-reduce: everybody sends its vector to everybody, and adds up what comes.  Quick for small vectors."""
    n = shape.ranks
    sends = [Send((rank + k) % n, 0, shape.count) for k in range(1, n)]
    receives = [Recv((rank - k) % n, 0, shape.count, reduce=True) for k in range(1, n)]
    return [Lane([*sends, *receives], buffered=True)]


def scattered(shape: Shape, rank: int) -> Program:
    """Broadcast: rank 0 sends each other rank a part, on channel 1 its own, and they send theirs to each other."""
    n, parts = shape.ranks, spans(shape.count, shape.ranks)
    others = [(rank + k) % n for k in range(1, n) if (rank + k) % n]
    if rank == 0:
        return [Lane([Send(k, *parts[k]) for k in others]), Lane([Send(k, *parts[0], 1) for k in others])]
    passes_on = Lane([Recv(0, *parts[rank]), *(Send(k, *parts[rank]) for k in others)])
    receives = [Lane([Recv(k, *parts[k])]) for k in others]
    return [passes_on, Lane([Recv(0, *parts[0], channel=1)]), *receives]
