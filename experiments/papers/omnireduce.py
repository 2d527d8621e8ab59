"""OmniReduce: how many times as fast as a dense ring, as blocks become zero."""

from collections.abc import Sequence

from railbed.gallery import AT_MOST, Curve, Entry, Made, Point, Value

MOST = "eight workers, 1 % of the blocks not zero: times as fast as a dense ring"
DENSITY = "workload.1.density"


def read(points: Sequence[Point]) -> Made:
    gain = {p.at[DENSITY]: p.time_us(0) / p.time_us(1) for p in points}
    return Made({MOST: gain[0.01]}, (Curve("here", tuple((100 * density, times) for density, times in gain.items())),))


ENTRY = Entry(
    title="Blocks of zeros are not sent",
    paper="Fei et al., *Efficient Sparse Collective Communication and its Application to Accelerate Distributed Deep "
    "Learning*, SIGCOMM 2021",
    where="abstract",
    link="https://sands.kaust.edu.sa/project/omnireduce/",
    file="../offload/sparse-omnireduce.yaml",
    change={"sweep": {DENSITY: [1.0, 0.25, 0.1, 0.03, 0.01]}},
    values=(Value(MOST, 8.2, says=AT_MOST),),
    read=read,
    axes=("blocks that are not zero, %", "times as fast as a dense ring"),
    why="""The published figure is of whole training, of the model whose gradients are sparsest: where nearly all time
    is communication, a step gains what the all-reduce does. Ours is of the all-reduce of 4 MiB alone, at 100 Gb/s.
    That both have nearly the same number is partly luck: time does not fall in proportion to density, because the
    sums have every block that any worker has, and at 1 % rounds wait for round trips rather than for cables.""",
)
