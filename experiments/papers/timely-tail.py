"""TIMELY: the tail of small messages beside long flows, against a fabric with pauses alone."""

from collections.abc import Sequence

from railbed.gallery import Curve, Entry, Made, Point, Value

TIMES = "longest of 16 messages of 64 KB, with pauses alone over with TIMELY"


def read(points: Sequence[Point]) -> Made:
    alone, timely = ([row["time_ns"] / 1000 for row in p.run.rows("results") if row["flow"] == "9->0"] for p in points)
    return Made(
        {TIMES: max(alone) / max(timely)},
        tuple(
            Curve(name, tuple((8 + at, time) for at, time in enumerate(its)))
            for name, its in (("pauses alone, here", alone), ("TIMELY, here", timely))
        ),
    )


ENTRY = Entry(
    title="Delay tells a sender enough to keep a queue short",
    paper="Mittal et al., *TIMELY: RTT-based Congestion Control for the Datacenter*, SIGCOMM 2015",
    where="abstract",
    link="https://research.google.com/pubs/pub43840.html",
    values=(Value(TIMES, 9),),
    read=read,
    axes=("when the message starts, ms", "time of the message, us"),
    why="""The published figure is the 99th percentile of messages on hundreds of machines. Here eight flows share one
    port of 10 Gb/s, and the ratio is that of two queues: with pauses alone the queue is as long as the buffer lets it
    be, 4 MB here, and a message waits behind it; TIMELY's is some delay between its two thresholds of 50 and 500 us,
    whatever the buffer. A larger buffer gives a larger ratio. Rates differ in the end: TIMELY's flows grow by 10 Mb/s
    a step, and when the first are done the others take long to use what is free.""",
)
