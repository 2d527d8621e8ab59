"""Schedules of pipelines as pure data: in which order a stage goes forward and backward through micro-batches.

gpipe: Huang et al. 2019; the backward passes in the order of the forward ones, as PyTorch's ScheduleGPipe.
1f1b: Narayanan et al. (SOSP'19, PipeDream-Flush), as in Megatron and ScheduleOneFOneB.
interleaved: Narayanan et al. (SC'21), section 2.2: each stage has `chunks` parts of the model, in Megatron's order.
With as many micro-batches as stages all forward passes come first, as in their code (later versions do not do that).
zero_bubble: ZB-H1 of Qi et al. (2023): the gradients of weights are computed by themselves, later, where a stage would
wait; no more micro-batches are held than the first stage of 1F1B does.
zb_v: ZB-V of the same authors (arXiv 2401.10241; Qi et al. 2024): the first chunks go down the stages, the second ones
up again, so that a stage that has the first layers has the last ones, too.
dualpipe: DeepSeek-V3's (2024, section 3.2.1): half of the micro-batches enter at either end, and each rank has the
stage of its own number and the one as far from the other end.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from typing import NamedTuple

FORWARD, BACKWARD, WEIGHTS = "F", "B", "W"


class Pass(NamedTuple):
    """One pass of a micro-batch through the chunk of a stage.  Backward without a WEIGHTS pass has both in it.

    `beside`: it is one with the pass before it, so that each computes while the other's messages are on their way.
    """

    kind: str
    micro_batch: int
    chunk: int = 0
    beside: bool = False


class Position(NamedTuple):
    """Where a part of the model is: on which stage, as which of its chunks."""

    stage: int
    chunk: int


def schedule(name: str, stages: int, micro_batches: int, stage: int, chunks: int = 1) -> list[Pass]:
    """What one stage does, in order."""
    return _MAKE[name](stages, micro_batches, stage, chunks)


def parts(name: str, stages: int, chunks: int) -> int:
    """In how many parts that follow each other the model is cut."""
    return stages if name == "dualpipe" else stages * chunks


def part(name: str, stages: int, stage: int, chunk: int) -> int:
    """Which of them a chunk of a stage is.  In DualPipe chunk 0 is the one that is nearer to its end."""
    if name == "dualpipe":
        low = min(stage, stages - 1 - stage)
        return stages - 1 - low if chunk else low
    if name == "zb_v" and chunk:
        return 2 * stages - 1 - stage
    return chunk * stages + stage


def position(name: str, stages: int, which: int, like: Position) -> Position:
    """Where a part is, for a micro-batch that passes `like`."""
    if name == "dualpipe":
        stage = stages - 1 - which if _from_the_end(stages, like) else which
        return Position(stage, int(which >= stages // 2))
    if name == "zb_v" and which >= stages:
        return Position(2 * stages - 1 - which, 1)
    return Position(which % stages, which // stages)


def _from_the_end(stages: int, at: Position) -> bool:
    """Whether what passes there entered at the last rank of a bidirectional pipeline."""
    return (at.stage >= stages // 2) != bool(at.chunk)


def apart(passes: Sequence[Pass]) -> set[tuple[int, int]]:
    """Micro-batch and chunk of the passes backward that leave the gradients of weights to a pass of their own."""
    return {(p.micro_batch, p.chunk) for p in passes if p.kind == WEIGHTS}


def held(passes: Sequence[Pass]) -> int:
    """Micro-batches (of one chunk each) whose activations a stage holds at most at a time."""
    later = apart(passes)
    now = most = 0
    for p in passes:
        freed = p.kind == WEIGHTS or (p.kind == BACKWARD and (p.micro_batch, p.chunk) not in later)
        now += (p.kind == FORWARD) - freed
        most = max(most, now)
    return most


def _gpipe(stages: int, micro_batches: int, stage: int, chunks: int) -> list[Pass]:
    return [Pass(kind, j) for kind in (FORWARD, BACKWARD) for j in range(micro_batches)]


def _one_forward_one_backward(stages: int, micro_batches: int, stage: int, chunks: int) -> list[Pass]:
    warmup = min(stages - 1 - stage, micro_batches)
    passes = [Pass(FORWARD, j) for j in range(warmup)]
    for j in range(warmup, micro_batches):
        passes += [Pass(FORWARD, j), Pass(BACKWARD, j - warmup)]
    return passes + [Pass(BACKWARD, j) for j in range(micro_batches - warmup, micro_batches)]


def _interleaved(stages: int, micro_batches: int, stage: int, chunks: int) -> list[Pass]:
    """`micro_batches` is a multiple of `stages`: they go through a chunk in groups of as many as there are stages."""
    total = micro_batches * chunks
    warmup = min((stages - 1 - stage) * 2 + (chunks - 1) * stages, total)
    if micro_batches == stages:
        warmup = total

    def nth(kind: str, k: int) -> Pass:
        chunk = k % (stages * chunks) // stages
        j = k // (stages * chunks) * stages + k % stages
        return Pass(kind, j, chunk if kind == FORWARD else chunks - 1 - chunk)

    passes = [nth(FORWARD, k) for k in range(warmup)]
    for k in range(warmup, total):
        passes += [nth(FORWARD, k), nth(BACKWARD, k - warmup)]
    return passes + [nth(BACKWARD, k) for k in range(total - warmup, total)]


def _zero_bubble(stages: int, micro_batches: int, stage: int, chunks: int) -> list[Pass]:
    """1F1B, whose weights' gradients come as many micro-batches late as the stage's number."""
    passes: list[Pass] = []
    done = owed = 0
    for p in _one_forward_one_backward(stages, micro_batches, stage, chunks):
        passes.append(p)
        if p.kind == BACKWARD:
            owed += 1
            if owed > stage:
                passes.append(Pass(WEIGHTS, done))
                done, owed = done + 1, owed - 1
    return passes + [Pass(WEIGHTS, j) for j in range(done, micro_batches)]


class _Written:
    """Passes as they are written down: of each kind and chunk the micro-batches in order."""

    def __init__(self, number: Callable[[int, int], int | None]) -> None:
        """`number`: of a chunk's k-th micro-batch (None: there is none)."""
        self.passes: list[Pass] = []
        self.count: Counter[str] = Counter()
        self._number = number

    def do(self, times: int, *names: str) -> None:
        """So many times in turn these, such as `F0` or `W1`; `B1+` is beside the one before it."""
        for _ in range(times):
            for name in names:
                kind, chunk = name[0], int(name[1])
                number = self._number(chunk, self.count[name[:2]])
                self.count[name[:2]] += 1
                if number is not None:
                    self.passes.append(Pass(kind, number, chunk, name[2:] == "+"))


def _zb_v(stages: int, micro_batches: int, stage: int, chunks: int) -> list[Pass]:
    """With equal passes; with fewer micro-batches than fill the pipeline, what the others would do is left out."""
    written = _Written(lambda chunk, k: k if k < micro_batches else None)
    count, total, left = written.count, max(micro_batches, 2 * stages - 1), stages - stage
    written.do(2 * left - 1, "F0")
    written.do(stage, "F1", "F0")
    written.do(left, "F1", "B1", "W1")
    while count["F1"] < total:
        written.do(int(count["F0"] < total), "F0")
        written.do(1, "B0", "W0", "F1", "B1", "W1")
    written.do(stage, "B0", "B1")
    written.do(left, "B0", "W0")
    for chunk in "10":
        written.do(total - count[f"W{chunk}"], f"W{chunk}")
    return written.passes


def _dualpipe(stages: int, micro_batches: int, stage: int, chunks: int) -> list[Pass]:
    """An even number of stages, and of micro-batches, of which there are two for each stage or more.

    The last ones of those that go backward leave the gradients of weights for where a stage would wait.
    """
    low = min(stage, stages - 1 - stage)
    up, half = stages // 2 - 1 - low, micro_batches // 2
    late = [_from_the_end(stages, Position(stage, chunk)) for chunk in (0, 1)]
    written = _Written(lambda chunk, k: late[chunk] * half + k)
    owed: list[str] = []

    def weights(times: int) -> None:
        for _ in range(times):
            written.do(1, f"W{owed.pop(0)}")

    def backward(chunk: int) -> None:
        written.do(1, f"B{chunk}")
        owed.append(str(chunk))

    def whole(name: str) -> None:
        """A pass backward with the gradients of weights in it: they have no pass."""
        written.do(1, name)
        written.count[f"W{name[1]}"] += 1

    written.do(2 * up, "F0")
    written.do(low + 1, "F0", "F1")
    for _ in range(up):
        backward(1)
        weights(1)
        written.do(1, "F1")
    for k in range(half - stages + low + 1):
        written.do(1, "F0")
        whole("B1" if not k and not up else "B1+")  # the two in the middle do not wait for each other then
        written.do(1, "F1")
        whole("B0+")
    for _ in range(up):
        whole("B1")
        written.do(1, "F1")
        whole("B0+")
    for k in range(2 * (low + 1)):
        chunk = 1 - k % 2
        backward(chunk) if k > low else whole(f"B{chunk}")
    for _ in range(up):
        weights(1)
        backward(0)
    weights(low + 1)
    return written.passes


_MAKE: dict[str, Callable[[int, int, int, int], list[Pass]]] = {
    "gpipe": _gpipe,
    "1f1b": _one_forward_one_backward,
    "interleaved": _interleaved,
    "zero_bubble": _zero_bubble,
    "zb_v": _zb_v,
    "dualpipe": _dualpipe,
}
SCHEDULES = (*_MAKE,)

CHUNKS = {"zb_v": 2, "dualpipe": 2}
"""On each stage, by the schedule itself."""
SPLIT = frozenset({"zero_bubble", "zb_v", "dualpipe"})
"""They keep activations for gradients of weights that are computed by themselves."""
BIDIRECTIONAL = frozenset({"dualpipe"})
"""Two ranks of a pipeline have each part of the model."""
ENDS_MEET = frozenset({"zb_v", "dualpipe"})
"""The first and the last part are on the same ranks."""
