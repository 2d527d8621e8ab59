"""What programs of a workload have printed: kept with the run, and the tables of benchmarks taken out of it."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from results.frames.metrics import Row, program_row
from testbed.base.text import fit
from testbed.logs.printed import figures

FOLDER = "programs"
_CLIENTS = ("client", "rank", "server")  # whose figures are a step's: the first of them that have any


class Outputs:
    """Of one run, whose folder it is. `dilation`: of the fabric's clock; programs go by the machine, if it is real."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder / FOLDER
        self.dilation = 1.0
        self._texts: dict[tuple[int, int], list[str]] = defaultdict(list)

    def take(self, line: Mapping[str, Any]) -> None:
        """Some of a program's output: steps's number, its own, and its rank are its file's name."""
        self._folder.mkdir(exist_ok=True)
        name = f"step{line['step']}.{line['program']}.rank{line['rank']}.{line['output']}"
        with (self._folder / name).open("a", newline="") as file:
            file.write(fit(line["text"]))
        if line["output"] == "out":
            self._texts[line["step"], line["program"]].append(line["text"])

    def rows(self, steps: Sequence[Mapping[str, Any]], lines: Sequence[Mapping[str, Any]]) -> Iterator[Row]:
        """Rows of the frame `results`: of each program the lines of its table, or one of the time that it took."""
        for number, step in enumerate(steps):
            if "processes" not in step:
                continue
            ended = {line["program"]: line for line in lines if line["kind"] == "program" and line["step"] == number}
            printed = {k: figures("".join(self._texts.get((number, k), ()))) for k in ended}
            roles = [role for role in _CLIENTS if any(printed[one["number"]] for one in _of(step, role, ended))]
            whose = (roles or [role for role in _CLIENTS if list(_of(step, role, ended))])[:1]
            for one in (one for role in whose for one in _of(step, role, ended)):
                line = ended[one["number"]]
                for figure in [its.dilated(self.dilation)._asdict() for its in printed[one["number"]]] or [{}]:
                    yield program_row(step, one, line, figure)


def _of(step: Mapping[str, Any], role: str, ended: Mapping[int, Any]) -> Iterator[Mapping[str, Any]]:
    return (one for one in step["processes"] if one["role"] == role and one["number"] in ended)
