"""MegaScale-Infer: what one more micro-batch gives."""

from collections.abc import Sequence

from railbed.gallery import ABOUT, Curve, Entry, Made, Point, Value

TWO, THREE = "two micro-batches over one, 100 Gb/s", "three over two, 100 Gb/s"
TWO_FAST, THREE_FAST = "two micro-batches over one, 400 Gb/s", "three over two, 400 Gb/s"


def read(points: Sequence[Point]) -> Made:
    rates = {p.at["fabric.cable.rate"]: [p.run.figures[f"tokens_per_s_gpu_{m}"] for m in range(3)] for p in points}
    slow, fast = rates["100Gbps"], rates["400Gbps"]
    return Made(
        {TWO: slow[1] / slow[0], THREE: slow[2] / slow[1], TWO_FAST: fast[1] / fast[0], THREE_FAST: fast[2] / fast[1]},
        tuple(
            Curve(f"here, {rate}", tuple((m + 1, tokens / its[0]) for m, tokens in enumerate(its)))
            for rate, its in rates.items()
        ),
    )


ENTRY = Entry(
    title="Two micro-batches hide the way between attention and experts",
    paper="Zhu et al., *MegaScale-Infer: Serving Mixture-of-Experts at Scale with Disaggregated Expert Parallelism*, "
    "SIGCOMM 2025",
    where="ablation of the number of micro-batches",
    link="https://arxiv.org/abs/2504.02263",
    values=(
        Value(TWO, 1.9, says=ABOUT),
        Value(THREE, (1.10, 1.38)),
        Value(TWO_FAST, 1.9, says=ABOUT),
        Value(THREE_FAST, (1.10, 1.38)),
    ),
    read=read,
    axes=("micro-batches", "tokens/s, over one micro-batch"),
    why="""What a third micro-batch gives depends on how long messages take: by the paper's own rule 2 (1 + Tc/Tf) of
    them hide all, with Tc one way and Tf the longer computation. Over 100 Gb/s Tc/Tf is about a quarter, so that two
    are not quite enough, as in the paper's clusters; over 400 Gb/s it is a fourteenth, two hide everything, and a
    third gives nothing. Our figures of one to two are a little higher because nothing else is lost: no kernel is
    launched, and all sides are equally long.""",
)
