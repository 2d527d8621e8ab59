"""SmartDS: the middle tier of a block storage, by cores and by an engine in the NIC."""

from collections.abc import Sequence

from railbed.gallery import AT_MOST, Curve, Entry, Made, Point, Value

TIMES = "throughput by the NIC, over four cores of a host"
CORES = (1, 2, 4, 8, 16)


def read(points: Sequence[Point]) -> Made:
    (point,) = points
    nic = point.time_us(len(CORES))
    gain = {cores: point.time_us(step) / nic for step, cores in enumerate(CORES)}
    published = tuple((cores, 4.3) for cores in CORES)
    return Made({TIMES: gain[4]}, (Curve("here", tuple(gain.items())), Curve("published, most", published)))


ENTRY = Entry(
    title="An engine in the NIC compresses blocks in the middle tier of a storage",
    paper="Zhang et al., *SmartDS: Middle-Tier-centric SmartNIC Enabling Application-aware Message Split for "
    "Disaggregated Block Storage*, ISCA 2023",
    where="abstract",
    link="https://doi.org/10.1145/3579371.3589077",
    file="../smartnic/block-storage.yaml",
    values=(Value(TIMES, 4.3, says=AT_MOST),),
    read=read,
    axes=("cores of the host", "throughput, NIC over host"),
    why="""The gain depends on how many cores a middle tier has for a port of 100 Gb/s, which the abstract does not
    say: it is 4.6 over two cores, 2.3 over four (our default), and no less over more, as one core that looks at
    headers and posts is the bottleneck then. Our NIC is bound by its cable, which carries three replicas of what it
    has compressed. Cores compress at LZ4's published rate.""",
)
