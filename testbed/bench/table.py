"""nccl-tests' table, row by row as the measurements come in, and its footer.

The hosts' algorithms work in the caller's vector, which nccl-tests calls in-place, so all figures are in those columns.
The columns for out-of-place say N/A, so that programs that read nccl-tests' output find each column in its place.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import TYPE_CHECKING, Any

from results.figures.summary import labels
from results.frames.metrics import rank_rows, result_rows
from testbed.base.progress import Progress
from testbed.plan.steps.plan import plan
from testbed.tables.results import counted, elements, of_auto, of_busbw
from topologies import in_words
from workloads.registry import COLLECTIVES

if TYPE_CHECKING:
    from testbed.experiment import Experiment
    from testbed.run.outcome import RunResult

HEAD = (
    f"#{'out-of-place':>73}{'in-place':>33}",
    f"#{'size':>11}  {'count':>12}  {'type':>8}  {'redop':>6}  {'root':>6}"
    + f"  {'time':>7}  {'algbw':>6}  {'busbw':>6}  {'#wrong':>6}" * 2,
    f"#{'(B)':>11}  {'(elements)':>12}  {'':>8}  {'':>6}  {'':>6}"
    + f"  {'(us)':>7}  {'(GB/s)':>6}  {'(GB/s)':>6}        " * 2,
)
HOST = ("", f"  {'host':>8}  {'sent':>12}", f"  {'(us)':>8}  {'(B)':>12}")  # behind HEAD's lines
_NOT_MEASURED = f"  {'N/A':>7}  {'N/A':>6}  {'N/A':>6}  {'N/A':>6}"


@dataclass(frozen=True)
class BenchRow:
    """A line of the table: one size of one step. Times are means over the iterations; sizes in bytes."""

    step: int
    algorithm: str
    ranks: int
    size: int
    count: int
    type: str
    redop: str
    root: int
    time_us: float
    algbw_GBps: float | None
    busbw_GBps: float | None
    wrong: int
    host_us: float | None = None  # of a rank: posting, waking up, reducing
    sent_bytes: float | None = None  # of a rank, on its cable
    fallback: str | None = None  # why the ranks used their own algorithm instead of the offload

    def text(self, host: bool = False) -> str:
        head = f"{self.size:>12}  {self.count:>12}  {self.type:>8}  {self.redop:>6}  {self.root:>6}"
        figures = f"  {number(self.time_us, 7):>7}  {_rate(self.algbw_GBps):>6}  {_rate(self.busbw_GBps):>6}"
        taken = "" if self.host_us is None or self.sent_bytes is None else (
            f"  {number(self.host_us, 8):>8}  {self.sent_bytes:>12.0f}"
        )  # fmt: skip
        return f"{head}{_NOT_MEASURED}{figures}  {self.wrong:>6}{taken if host else ''}"


def number(value: float, width: int) -> str:
    """As many decimals as fit into `width` characters: two, one or none, as nccl-tests does it; three below 10."""
    for decimals in (3, 2, 1, 0) if value < 10 and width > 6 else (2, 1, 0):
        if len(text := f"{value:.{decimals}f}") <= width:
            return text
    return f"{value:.1e}"


def _rate(gigabytes: float | None) -> str:
    return "-" if gigabytes is None else number(gigabytes, 6)


def _mean(rows: Sequence[Mapping[str, Any]], key: str, unit: float) -> float | None:
    values = [row[key] for row in rows if row[key] is not None]
    return fmean(values) / unit if values else None


class Rows(Progress):
    """Gathers the workers' lines and passes every row to `say` as soon as all ranks have reported all its iterations.

    Rows come in the order of the steps and their sizes. All other calls are passed on to `shown`.
    """

    def __init__(self, experiment: Experiment, shown: Progress, say: Callable[[BenchRow], None]) -> None:
        planned = plan(experiment)
        self._steps, steps = planned.described(), planned.told()["steps"]
        self._names = labels(experiment.resolved()["workload"], experiment.written()["workload"])
        self._roots = [_root(step) for step in steps]
        self.chosen = [step.get("chosen") for step in self._steps]  # by `auto`, of each step
        self._shown, self._say = shown, say
        self._lines: dict[tuple[int, int], list[Mapping[str, Any]]] = {
            (k, size): [] for k, step in enumerate(steps) for size in step["sizes"]
        }
        self._expected = {k: self._steps[k]["ranks"] * step["iterations"] for k, step in enumerate(steps)}
        self.rows: list[BenchRow] = []

    def line(self, line: Mapping[str, Any]) -> None:
        self._lines[line["step"], line["size_bytes"]].append(line)
        for (step, size), lines in list(self._lines.items()):
            if sum(result["iteration"] >= 0 for result in lines) < self._expected[step]:
                break
            del self._lines[step, size]
            self.rows.append(self._row(step, lines))
            self._say(self.rows[-1])

    def _row(self, number: int, lines: Sequence[Mapping[str, Any]]) -> BenchRow:
        step, results = self._steps[number], result_rows(rank_rows(lines), self._steps)
        timed = [r for r in results if r["iteration"] >= 0]
        size, time_ns = timed[0]["size_bytes"], fmean(r["time_ns"] for r in timed)
        algbw = size / time_ns if time_ns else None
        return BenchRow(
            step=number,
            algorithm=self._names[number],
            ranks=step["ranks"],
            size=size,
            count=elements(step, size),
            type=step["dtype"],
            redop=step["op"] or "none",
            root=self._roots[number],
            time_us=time_ns / 1e3,
            algbw_GBps=algbw,
            busbw_GBps=None if algbw is None else algbw * step["busbw_factor"],
            wrong=sum(r["wrong"] for r in results),
            host_us=_mean(timed, "host_ns", 1e3),
            sent_bytes=_mean(timed, "sent_bytes", 1),
            fallback=next((r["fallback"] for r in timed if r.get("fallback")), None),
        )

    # All other calls are passed on.

    def __enter__(self) -> Rows:
        self._shown.__enter__()
        return self

    def __exit__(self, *error: object) -> None:
        self._shown.__exit__(*error)

    def stage(self, text: str) -> None:
        self._shown.stage(text)

    def measure(self, total: int) -> None:
        self._shown.measure(total)

    def advance(self, text: str) -> None:
        self._shown.advance(text)

    def doing(self, text: str) -> None:
        self._shown.doing(text)

    def note(self, text: str) -> None:
        self._shown.note(text)


def preamble(experiment: Experiment) -> list[str]:
    """The parameters in nccl-tests' words, and the fabric."""
    planned = plan(experiment)
    first = planned.told()["steps"][0]
    sizes = first["sizes"]
    topology = experiment.fabric.topology
    words = in_words(topology.kind, topology.params)
    of = ", ".join(key if value is True else f"{key} {value}" for key, value in words.items())
    ranks = planned.described()[0]["ranks"]
    idle = "" if ranks == planned.ranks else f" of {planned.ranks}"
    return [
        f"# {first['collective']}: {ranks}{idle} ranks, minBytes {sizes[0]} maxBytes {sizes[-1]}, "
        f"warmup iters: {first['warmup']} iters: {first['iterations']} validation: 1",
        f"# fabric: {topology.kind} ({of}), congestion control {experiment.transport.cc.short}, "
        f"{experiment.clock.mode} clock, seed {experiment.seed}",
        "# in-place is what hosts do, and is measured; what reduces in switches or NICs writes beside its input",
        *of_busbw(first["collective"]),
    ]


def footer(rows: Sequence[BenchRow], chosen: Mapping[str, Mapping[str, Any]] | None = None) -> list[str]:
    """Below the table of one step; `chosen`: what `auto` took for each size, and the times it expected."""
    wrong = sum(r.wrong for r in rows)
    busbw = [r.busbw_GBps for r in rows if r.busbw_GBps is not None]
    mean = f"{fmean(busbw):.6g}" if busbw else "-"
    alone = {why: [r.size for r in rows if r.fallback == why] for why in dict.fromkeys(r.fallback for r in rows) if why}
    return [
        *of_auto(chosen or {}),
        *(f"# {len(sizes)} of {counted(len(rows))} by the ranks themselves: {why}" for why, sizes in alone.items()),
        f"# Out of bounds values : {wrong} {'FAILED' if wrong else 'OK'}",
        f"# Avg bus bandwidth    : {mean} GB/s",
    ]


def comparison(rows: Sequence[BenchRow]) -> list[str]:
    """Times of all algorithms side by side, with how many times as fast as the first each is; [] for a single one."""
    by_kind: dict[tuple[str, str, int], dict[int, dict[str, float]]] = {}
    for r in rows:
        by_kind.setdefault((r.type, r.redop, r.root), {}).setdefault(r.size, {})[r.algorithm] = r.time_us
    algorithms = list(dict.fromkeys(r.algorithm for r in rows))
    if len(algorithms) < 2:
        return []
    widths = [max(len(a), 18) for a in algorithms]
    lines: list[str] = []
    for (dtype, op, root), sizes in by_kind.items():
        kind = ", ".join([dtype, *([op] if op != "none" else []), *([f"root {root}"] if root >= 0 else [])])
        lines.append(f"# time (us), {kind}; in brackets: how many times as fast as {algorithms[0]}")
        heads = (f"{a:>{w}}" for a, w in zip(algorithms, widths, strict=True))
        lines.append(f"#{'size':>11}  {'  '.join(heads)}")
        for size, times in sizes.items():
            base = times.get(algorithms[0])
            cells = (f"{_compared(times.get(a), base):>{w}}" for a, w in zip(algorithms, widths, strict=True))
            lines.append(f"#{size:>11}  {'  '.join(cells)}")
    return ["#", *lines]


def _compared(time_us: float | None, base: float | None) -> str:
    if time_us is None:
        return "-"
    return number(time_us, 9) + (f" ({base / time_us:5.2f}x)" if base and time_us else "")


def verdict(result: RunResult) -> list[str]:
    drops = ", ".join(f"{n} {reason}" for reason, n in result.counters["drops"].items() if n) or "none"
    fidelity = result.fidelity
    return [
        "#",
        f"# Fidelity             : {fidelity.verdict}; frames dropped: {drops}",
        *(f"#   - {reason}" for reason in fidelity.reasons),
        *(f"#   - to change it: {advice}" for advice in fidelity.advice),
        f"# Run folder           : {result.folder}",
    ]


def _root(step: Mapping[str, Any]) -> int:
    """The rank that is the root; -1, as nccl-tests has it, where there is none."""
    return (step["ranks"] or [0])[0] if COLLECTIVES[step["collective"]].rooted else -1
