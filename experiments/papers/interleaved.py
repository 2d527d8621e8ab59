"""Interleaved stages: how much more a pipeline trains."""

from collections.abc import Sequence

from railbed.gallery import AT_LEAST, Curve, Entry, Made, Point, Value

SCHEDULE, COUNT = "workload.0.train.schedule", "workload.0.train.batch.count"
COUNTS = (4, 8, 16)
MORE = "throughput of two chunks a stage over 1F1B, 16 micro-batches for 4 stages, more by"


def read(points: Sequence[Point]) -> Made:
    steps = {(p.at[SCHEDULE] == "1f1b", p.at[COUNT]): p.run.figures["step_us"] for p in points}
    more = {count: 100 * (steps[True, count] / steps[False, count] - 1) for count in COUNTS}
    return Made(
        {MORE: more[16]},
        (Curve("here", tuple(more.items())), Curve("published, least", tuple((count, 10) for count in COUNTS))),
    )


ENTRY = Entry(
    title="Interleaved stages train more than a tenth more",
    paper="Narayanan et al., *Efficient Large-Scale Language Model Training on GPU Clusters Using Megatron-LM*, "
    "SC 2021",
    where="abstract",
    link="https://arxiv.org/abs/2104.04473",
    file="pipeline-bubble.yaml",
    values=(Value(MORE, 10, "%", AT_LEAST),),
    read=read,
    axes=("micro-batches", "more throughput, %"),
    why="""The gain is the part of the bubble that goes away, so it falls with more micro-batches for each stage; the
    abstract does not say for how many it is. Messages here are short beside what is computed. In the paper they are
    not: interleaving sends twice as many, and needs them split over tensor parallel ranks to gain ([studies of
    training](training-studies.md)).""",
)
