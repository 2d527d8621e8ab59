"""Prints bench's table on stdout while the run goes on: for each step a head, its rows, a footer."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from testbed.base.progress import Progress
from testbed.bench.table import HEAD, HOST, BenchRow, Rows, comparison, footer, preamble, verdict

if TYPE_CHECKING:
    from testbed.experiment import Experiment
    from testbed.run.outcome import RunResult


class Printer:
    """Prints head, rows and footer of each step. `host`: with costs of hosts; `quiet`: only gathers the rows."""

    def __init__(self, experiment: Experiment, shown: Progress, *, host: bool = False, quiet: bool = False) -> None:
        # A progress bar lets prints to a terminal appear above it; to a file or pipe they go past it.
        self._stream = None if sys.stdout.isatty() else sys.stdout
        self._quiet, self._host = quiet, host
        self._step = -1
        self.gather = Rows(experiment, shown, self._row)
        self._print(preamble(experiment))

    @property
    def rows(self) -> list[BenchRow]:
        return self.gather.rows

    def end(self, result: RunResult | None = None) -> None:
        """To be called after the run; `result` None: it failed, and what has been printed stays."""
        self._end_step()
        if result is not None:
            self._print([*comparison(self.rows), *verdict(result)])

    def _row(self, row: BenchRow) -> None:
        if row.step != self._step:
            self._end_step()
            self._step = row.step
            head = [line + more for line, more in zip(HEAD, HOST, strict=True)] if self._host else HEAD
            self._print(["#", f"# algorithm: {row.algorithm}", *head])
        self._print([row.text(self._host)])

    def _end_step(self) -> None:
        if self._step >= 0:
            self._print(footer([r for r in self.rows if r.step == self._step], self.gather.chosen[self._step]))

    def _print(self, lines: list[str]) -> None:
        if not self._quiet:
            print("\n".join(line.rstrip() for line in lines), file=self._stream or sys.stdout, flush=True)
