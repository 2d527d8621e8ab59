"""HPCC: short flows beside an incast, against DCQCN."""

from collections.abc import Sequence
from statistics import median

from railbed.gallery import AT_MOST, Curve, Entry, Made, Point, Value

LESS = "median time of flows of 8 KB beside an incast of 16, less than under DCQCN by"


def read(points: Sequence[Point]) -> Made:
    short = {
        p.at["transport.cc"]: [row["time_ns"] / 1000 for row in p.run.rows("results") if row["size_bytes"] == 8000]
        for p in points
    }
    middle = {control: median(times) for control, times in short.items()}
    return Made(
        {LESS: 100 * (1 - middle["hpcc"] / middle["dcqcn"])},
        tuple(
            Curve(f"{control.upper()}, here", tuple((200 + 200 * at, time) for at, time in enumerate(times)))
            for control, times in short.items()
        ),
    )


ENTRY = Entry(
    title="A control that is told of queues leaves none to short flows",
    paper="Li et al., *HPCC: High Precision Congestion Control*, SIGCOMM 2019",
    where="abstract",
    link="https://hpcc-group.github.io/",
    values=(Value(LESS, 95, "%", AT_MOST),),
    read=read,
    axes=("when the flow starts, us", "time of the flow, us"),
    why="""The published figure is the best of measured mixes of sizes with incasts, and where it is that large it is
    for short flows, which wait behind the queue that others make. Here others are an incast of 16. Under HPCC its
    queue is gone when the first short flow comes. DCQCN, with the parameters of HPCC's authors, gives way too far,
    and then all go back to the line rate at once, as their targets are still there: the second queue is the longer
    one. Long flows cannot gain so: the cable is busy most of the time, and the last one ends 10 % earlier.""",
)
