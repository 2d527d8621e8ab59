"""DCTCP's queue stays at its threshold, where TCP's grows as long as the buffer is."""

from collections.abc import Sequence

from railbed.gallery import ABOUT, AT_LEAST, Curve, Entry, Made, Point, Value

LESS = "mean queue, less than TCP's by"
QUEUE = "median queue of DCTCP; K is 30 KB"
SHARES = range(20, 101, 10)


def read(points: Sequence[Point]) -> Made:
    dctcp, tcp = (queue(point) for point in points)
    return Made(
        {LESS: 100 * (1 - mean(dctcp) / mean(tcp)), QUEUE: at_most(dctcp, 50) / 1000},
        tuple(
            Curve(name, tuple((share, at_most(its, share) / 1000) for share in SHARES))
            for name, its in (("DCTCP, here", dctcp), ("TCP, here", tcp))
        ),
    )


def queue(point: Point) -> list[tuple[float, float]]:
    """The receiver's port: lengths in bytes, each with how long it was so."""
    depth = point.run.series("queue_depth")
    its = depth[(depth.node == "sw0") & (depth.port == 1) & (depth.priority == 3)]
    times = its.time_ns.to_list()
    return [(size, end - begin) for size, begin, end in zip(its.bytes.to_list()[:-1], times, times[1:], strict=False)]


def mean(lengths: Sequence[tuple[float, float]]) -> float:
    return sum(size * time for size, time in lengths) / sum(time for _, time in lengths)


def at_most(lengths: Sequence[tuple[float, float]], share: float) -> float:
    """The length that is not exceeded for `share` percent of the time."""
    left = sum(time for _, time in lengths) * share / 100
    ordered = sorted(lengths)
    for size, time in ordered:
        left -= time
        if left <= 0:
            return size
    return ordered[-1][0]


ENTRY = Entry(
    title="A queue that stays short where TCP fills the buffer",
    paper="Alizadeh et al., *Data Center TCP (DCTCP)*, SIGCOMM 2010",
    where="abstract, and the queue of two flows at 1 Gb/s",
    link="https://doi.org/10.1145/1851182.1851192",
    values=(Value(LESS, 90, "%", AT_LEAST), Value(QUEUE, 30, "KB", ABOUT)),
    read=read,
    axes=("share of the time, %", "queue no longer than, KB"),
    why="""Two flows into a port of 1 Gb/s with K at 20 packets of 1.5 KB and a buffer of which one port gets 700 KB,
    as the switches of the paper give it. TCP here is the window of RFC 5681 (experiments/papers/reno.c) over our
    queue pairs with selective repeat: it starts slowly, halves at a loss, and has no delayed acknowledgements. How
    much less DCTCP's queue is follows from the buffer: TCP fills whatever there is. Both have the cable full.""",
)
