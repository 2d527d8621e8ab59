"""A victim of PFC: its uplinks are paused for others' sake, and it gets what they get."""

from collections.abc import Sequence
from statistics import median

from railbed.gallery import Curve, Entry, Made, Point, Value

VICTIM = "the victim, median over draws of ECMP; 20 Gb/s is its fair share"
SEED = "control.routing.ecmp.seed"


def read(points: Sequence[Point]) -> Made:
    rates = {
        p.at[SEED]: next(row["algbw_Bps"] * 8e-9 for row in p.run.rows("results") if row["flow"] == "4->5")
        for p in points
    }
    ordered = tuple((place + 1, rate) for place, rate in enumerate(sorted(rates.values())))
    return Made(
        {VICTIM: median(rates.values())},
        (Curve("here", ordered), Curve("published median", tuple((n, 10) for n, _ in ordered))),
    )


ENTRY = Entry(
    title="PFC takes half of a flow's share that shares no congested port",
    paper="Zhu et al., *Congestion Control for Large-Scale RDMA Deployments*, SIGCOMM 2015",
    where="figure 4",
    link="https://www.microsoft.com/en-us/research/publication/congestion-control-for-large-scale-rdma-deployments/",
    values=(Value(VICTIM, 10, "Gb/s"),),
    read=read,
    axes=("draws of ECMP's hash, in order", "rate of the victim, Gb/s"),
    why="""The network, the rates and the flows are the paper's: four ToRs in two pods, 40 Gb/s. Its testbed's four
    senders get 10 Gb/s each, so that a fifth flow of their ToR could have 20 of the 40 Gb/s of an uplink. The uplinks
    are paused from the receiver's ToR back, and it gets about what the others get. The median depends on the draws:
    seven here, of which one puts the victim alone on an uplink. The paper's switches have other buffers.""",
)
