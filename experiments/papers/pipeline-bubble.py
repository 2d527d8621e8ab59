"""The bubble of a pipeline by micro-batches: (p - 1) / m of the ideal time, and half of it with two chunks a stage."""

from collections.abc import Sequence

from railbed.gallery import Curve, Entry, Made, Point, Value

SCHEDULE, COUNT = "workload.0.train.schedule", "workload.0.train.batch.count"
STAGES, COUNTS = 4, (4, 8, 16)


def read(points: Sequence[Point]) -> Made:
    share = {}
    for point in points:
        chunks = 1 if point.at[SCHEDULE] == "1f1b" else 2
        figures = point.run.figures
        share[chunks, point.at[COUNT]] = figures["bubble_us"] / figures["compute_us"]
    curves = []
    for chunks, name in ((1, "1F1B"), (2, "interleaved, 2 chunks")):
        curves.append(Curve(f"{name}, here", tuple((m, share[chunks, m]) for m in COUNTS)))
        curves.append(Curve(f"{name}, published", tuple((m, published(chunks, m)) for m in COUNTS)))
    return Made({about(*key): value for key, value in sorted(share.items())}, tuple(curves))


def published(chunks: int, count: int) -> float:
    return (STAGES - 1) / count / chunks


def about(chunks: int, count: int) -> str:
    return f"{'1F1B' if chunks == 1 else 'two chunks a stage'}, {count} micro-batches"


ENTRY = Entry(
    title="The bubble of a pipeline is (p - 1) / (v m) of the ideal time",
    paper="Narayanan et al., *Efficient Large-Scale Language Model Training on GPU Clusters Using Megatron-LM*, "
    "SC 2021",
    where="sections 2.2.1 and 2.2.2",
    link="https://arxiv.org/abs/2104.04473",
    values=tuple(Value(about(v, m), published(v, m)) for v in (1, 2) for m in COUNTS),
    read=read,
    axes=("micro-batches", "bubble over ideal time"),
    why="""The formula leaves out what messages between stages take. Here a stage waits for its first message, which
    makes the bubble a little longer, and for others later: with as many micro-batches as stages, two chunks pass on
    what is needed at once, and each message is waited for, so that the bubble is a quarter longer than published. The
    computation that it is held against has the optimizer's step, which makes the share a little smaller.""",
)
