"""The table of docs/rdma-programs.md of perftest's programs, option by option, and what they say of each row."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from testbed.experiment import loads
from testbed.run.run import run
from tests.parts.machine import ROOT
from tests.parts.rdma_programs import numbers

PAGE = ROOT / "docs/rdma-programs.md"
CLOCKS = ("real", "virtual")
_TIMEOUTS = {"real": "200ms", "virtual": "60s"}
"""Emulated; between two sizes perftest sleeps, by the clock that it sees."""
_ROW = re.compile(r"^\| `(ib_[^`]+)` \| ([^|]*) \| ([^|]*) \|([^|]*)\|$", re.MULTILINE)
_FABRIC = """
name: perftest-table
clock: {clock}
fabric: {{topology: {{star: {{hosts: 2}}}}}}
workers: {{memory: 2GiB}}
workload:
{steps}"""


class Row(NamedTuple):
    """A command and what the page says: on each clock yes or no, and if no the sentence that it is refused with."""

    command: str
    real: str
    virtual: str
    note: str

    @property
    def argv(self) -> list[str]:
        program, *options = self.command.split()
        return [program, "-F", "-n", "5", *options]

    @property
    def sentence(self) -> str:
        """Of who refuses it; nothing if nobody does."""
        return self.note.partition('"')[2].rpartition('"')[0]

    def result(self, codes: Sequence[int | None], said: str) -> str:
        """Whether it works, by its exit codes and what it has said; what it said last, if that is not on the page."""
        if not any(codes) and numbers(said):
            return "yes"
        if any(codes) and self.sentence and self.sentence in said:
            return "no"
        return f"? {' '.join(said.split()[-12:])}"

    def written(self, results: Sequence[str]) -> str:
        real, virtual = results
        return f"| `{self.command}` | {real} | {virtual} |{self.note}|"


def table(page: str) -> list[Row]:
    return [Row(*row) for row in _ROW.findall(page)]


def rewritten(page: str, results: dict[str, Sequence[str]]) -> str:
    """The page with other results in the rows of these commands."""
    return _ROW.sub(lambda found: Row(*found.groups()).written(results[found[1]]), page)


def results_of(rows: Sequence[Row], clock: str, folder: Path) -> list[str]:
    """Of each row, in ranks' containers on that clock: a step of one experiment for each."""
    more = f"servers: [0], clients: [1], may_fail: true, timeout: {_TIMEOUTS[clock]}"
    steps = "".join(f"- {{program: {row.argv}, {more}}}\n" for row in rows)
    done = run(loads(_FABRIC.format(clock=clock, steps=steps)), folder)
    found = []
    for step, row in enumerate(rows):
        said = "".join(file.read_text() for file in sorted(Path(done.folder).glob(f"programs/step{step}.1.*")))
        codes = [result["code"] for result in done.results if result["step"] == step]
        found.append(row.result(codes or [None], said))
    return found
