"""ATP: two training jobs on a switch that has slots for one."""

from collections.abc import Sequence

from railbed.gallery import Entry, Made, Point, Value

SECOND = "job that finds no slots left by reservation: faster by best effort by"
BOTH = "iterations a second of both jobs: more by best effort by"
JOBS = (range(8), range(8, 16))


def read(points: Sequence[Point]) -> Made:
    reserved, shared = ([time_of(point, ranks) for ranks in JOBS] for point in points)
    together = [sum(1 / time for time in its) for its in (reserved, shared)]
    return Made({SECOND: 100 * (reserved[1] / shared[1] - 1), BOTH: 100 * (together[1] / together[0] - 1)})


def time_of(point: Point, ranks: range) -> float:
    """From a job's first computation to its last sum; what the second waits for before is no part of it."""
    its = [r for r in point.run.rows("timeline") if r["rank"] in ranks and r["task"] != "first-b"]
    return max(row["end_ns"] for row in its) - min(row["start_ns"] for row in its)


ENTRY = Entry(
    title="Jobs share the slots of a switch by best effort",
    paper="Lao et al., *ATP: In-network Aggregation for Multi-tenant Learning*, NSDI 2021",
    where="abstract",
    link="https://www.usenix.org/conference/nsdi21/presentation/lao",
    values=(Value(SECOND, (38, 66), "%"), Value(BOTH, (38, 66), "%")),
    read=read,
    why="""Two jobs of eight workers each compute 100 us and add up 1 MiB, in turn, and the switch has the slots that
    one of them needs. By reservation the first job has them for good and the second takes a ring, which is what the
    published gains over other systems are nearest to; by best effort both find slots, because one computes while the
    other adds up. Of both jobs together the gain is less, as the first one has nothing to gain. Jobs that add up at
    the same time collide, and gain less or nothing ([best effort](best-effort.md#studies)).""",
)
