"""MegaScale-Infer's M2N against an all-to-all of all."""

from collections.abc import Sequence

from railbed.gallery import Entry, Made, Point, Value

LESS = "8 to 8, 256 KiB from each: exposed time of the exchange, less by"
TIMES = "8 to 8, 256 KiB from each: throughput, times as much"


def read(points: Sequence[Point]) -> Made:
    exposed = {p.at["workload.0.serve.exchange"]: p.run.figures["exposed_us"] for p in points}
    ratio = exposed["all_to_all"] / exposed["m2n"]
    return Made({LESS: 100 * (1 - 1 / ratio), TIMES: ratio})


ENTRY = Entry(
    title="Messages from M to N without a group",
    paper="Zhu et al., *MegaScale-Infer: Serving Mixture-of-Experts at Scale with Disaggregated Expert Parallelism*, "
    "SIGCOMM 2025",
    where="M2N microbenchmark",
    link="https://arxiv.org/abs/2504.02263",
    file="../serving/exchange.yaml",
    change={
        "workload.0.serve.micro_batches": [1],
        "sweep": {"workload.0.serve.exchange": ["m2n", "all_to_all"]},
    },
    values=(Value(LESS, 68.2, "%"), Value(TIMES, 4.2, "times")),
    read=read,
    why="""About a third of it is the network's: equal parts, all as large as the largest, and hearing of everybody.
    The rest of the published gain is over NCCL's work on GPUs, which is not modelled here: copies between GPU and
    host memory, setting up a group for each exchange, and waiting for the GPU. Their ranks also send tokens of one
    size to each, ours as a gate of Zipf's law chooses.""",
)
