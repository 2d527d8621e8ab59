"""SwitchML: the rate does not depend on how many workers there are, and beats a ring."""

from collections.abc import Sequence

from railbed.gallery import AT_LEAST, Curve, Entry, Made, Point, Value

EVEN = "rate with 16 workers over that with 2"
TIMES = "rate with 8 workers over a ring's"
HOSTS = "fabric.topology.star.hosts"
BITS = 2 * 1024**2 * 8


def read(points: Sequence[Point]) -> Made:
    ring, switch = ({p.at[HOSTS]: BITS / p.time_us(step) / 1000 for p in points} for step in (0, 1))
    return Made(
        {EVEN: switch[16] / switch[2], TIMES: switch[8] / ring[8]},
        (Curve("in the switch, here", tuple(switch.items())), Curve("ring, here", tuple(ring.items()))),
    )


ENTRY = Entry(
    title="The rate of in-network aggregation does not depend on the number of workers",
    paper="Sapio et al., *Scaling Distributed Machine Learning with In-Network Aggregation*, NSDI 2021",
    where="figures of aggregated tensor elements",
    link="https://arxiv.org/abs/1903.06701",
    values=(Value(EVEN, 1), Value(TIMES, 2, says=AT_LEAST)),
    read=read,
    axes=("workers", "bits of the vector, Gb/s"),
    why="""A worker sends its vector once, whoever else is there. A ring sends it 2 (n-1)/n times, 1.75 for 8 workers,
    which with the smaller packets of the switch (256 elements) would be 1.6 times; the rest of our gain, as of the
    published one over NCCL, is what a ring loses at each of its 2 (n-1) hops: latency, and adding up.""",
)
