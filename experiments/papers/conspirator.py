"""Conspirator: SmartNICs move preprocessed data, under a scheduler that knows the accelerators."""

from collections.abc import Sequence

from railbed.gallery import Entry, Made, Point, Value

SHORTER = "completion, moved by NICs instead of hosts, less by"
HOURS = "accelerators' time, scheduled by what they take instead of in turn, less by"


def read(points: Sequence[Point]) -> Made:
    (point,) = points
    hosts, nics, aware = (point.time_us(step) for step in (0, 1, 3))
    busy = [
        sum(r["rx_bytes"] > 0 for r in point.run.rows("ranks") if r["step"] == step and r["rank"] >= 4)
        for step in (1, 3)
    ]
    return Made({SHORTER: 100 * (1 - nics / hosts), HOURS: 100 * (1 - aware * busy[1] / (nics * busy[0]))})


ENTRY = Entry(
    title="SmartNICs bring accelerators their data",
    paper="Xiao et al., *Conspirator: SmartNIC-Aided Control Plane for Distributed ML Workloads*, USENIX ATC 2024",
    where="abstract",
    link="https://www.usenix.org/conference/atc24/presentation/xiao",
    file="../smartnic/feed.yaml",
    values=(Value(SHORTER, 15, "%"), Value(HOURS, 33, "%")),
    read=read,
    why="""The first is partly given: how long a server preprocesses a batch is chosen so that moving it is 15 % of
    what its core does (the paper has no such figure), and the last batch takes as long either way. The second is not:
    three accelerators are there, two of them are enough, and who knows what each takes leaves the third to
    others.""",
)
