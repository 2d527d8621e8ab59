"""DirectReduce: how much less a ring all-reduce takes in the NICs than on the hosts, by size."""

from collections.abc import Sequence

from railbed.gallery import AT_MOST, Curve, Entry, Made, Point, Value

KIB = 1024
SIZES = (KIB, 64 * KIB, 256 * KIB, KIB * KIB, 4 * KIB * KIB, 16 * KIB * KIB)
MEDIUM, LARGE, LARGEST = "8 ranks, 256 KiB", "8 ranks, 4 MiB", "8 ranks, 16 MiB"
SMALL = "8 ranks, 1 KiB"


def read(points: Sequence[Point]) -> Made:
    (point,) = points
    gain = {size: 100 * (1 - point.time_us(1, size) / point.time_us(0, size)) for size in SIZES}
    return Made(
        {SMALL: gain[SIZES[0]], MEDIUM: gain[SIZES[2]], LARGE: gain[SIZES[4]], LARGEST: gain[SIZES[5]]},
        (
            Curve("here", tuple((size / KIB, less) for size, less in gain.items())),
            Curve("published, least", tuple((size / KIB, 15) for size in SIZES[2:])),
            Curve("published, most", tuple((size / KIB, 36) for size in SIZES[2:])),
        ),
    )


ENTRY = Entry(
    title="A ring all-reduce in the NICs takes less time than on the hosts",
    paper="*DirectReduce*, a ring all-reduce offloaded into NICs",
    where="as summaries of it report its evaluation; the paper itself was not to be had",
    file="../offload/direct-reduce.yaml",
    change={"sweep": {}},
    values=(
        Value(SMALL, 3, "%", AT_MOST),
        Value(MEDIUM, (15, 36), "%"),
        Value(LARGE, (15, 36), "%"),
        Value(LARGEST, (15, 36), "%"),
    ),
    read=read,
    axes=("size, KiB", "time saved, %"),
    why="""From 4 MiB on we are in the published band. At 256 KiB we gain more: here packets of the next hop leave
    while this hop's still come in, so that a hop costs the longer of latency and transfer, and no sum of both. At 1
    KiB the published gain is nothing, and ours half: a hop of our host ring pays for a doorbell, PCIe both ways and
    posting, which the NICs pay once, while the published model has the same latency for both. Without these costs we
    are at 7 % there ([DirectReduce](direct-reduce.md#what-comes-out-and-what-was-published)).""",
)
