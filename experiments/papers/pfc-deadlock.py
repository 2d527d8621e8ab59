"""A routing loop of two switches deadlocks from some rate on: n B / TTL."""

from collections.abc import Sequence

from railbed.gallery import Entry, Made, Point, Value

THRESHOLD = "rate from which a loop of two switches deadlocks: n B / TTL, with B = 40 Gb/s and a TTL of 64"
RATE = "fabric.host_cable.rate"


def read(points: Sequence[Point]) -> Made:
    """The middle between the highest rate that goes on and the lowest that does not."""
    stuck = {float(p.at[RATE].removesuffix("Gbps")): "deadlock" in p.error for p in points}
    most = max(rate for rate, is_stuck in stuck.items() if not is_stuck)
    least = min(rate for rate, is_stuck in stuck.items() if is_stuck)
    if most > least:
        raise ValueError(f"no threshold: {stuck}")
    return Made({THRESHOLD: (most + least) / 2})


ENTRY = Entry(
    title="From which rate on a routing loop becomes a deadlock",
    paper="Hu et al., *Deadlocks in Datacenter Networks: Why Do They Form, and How to Avoid Them*, HotNets 2016",
    where="the boundary of a routing loop",
    link="https://www.microsoft.com/en-us/research/publication/deadlocks-datacenter-networks-form-avoid-2/",
    values=(Value(THRESHOLD, 1.25, "Gb/s"),),
    read=read,
    why="""A frame goes round until its TTL is used up, so that each cable of the loop carries TTL / n times what
    comes in, and drains no more than B. Four rates are tried, 1.1 to 1.4 Gb/s: with 1.2 frames are dropped as their
    TTL ends and the flow goes on when the loop is mended, with 1.3 buffers fill and wait for each other for ever. So
    the boundary is known to 0.05 Gb/s. A deadlock takes time: what comes in beyond the boundary has to fill a buffer
    first, here of 300 KB within 50 ms.""",
)
