"""What workers and fabricd have said, as rows, and written as frames."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from results.frames import series
from results.frames.metrics import Row, counter_rows, rank_rows, result_rows, timeline_rows, with_slowdowns
from results.frames.together import with_rates
from results.store.folder import RunFolder
from results.store.load import event_row
from testbed.logs.outputs import Outputs
from testbed.plan.ideal import Ideal

if TYPE_CHECKING:
    from testbed.experiment import Experiment


@dataclass(frozen=True)
class Measured:
    """Rows by frame: of ranks, of results, and all others in `tables`."""

    ranks: list[Row]
    results: list[Row]
    tables: dict[str, list[Row]]

    @property
    def timeline(self) -> list[Row]:
        return self.tables.get("timeline", [])


def write(
    folder: RunFolder,
    experiment: Experiment,
    steps: Sequence[Mapping[str, Any]],
    about: Sequence[Mapping[str, Any]],
    lines: Sequence[dict[str, Any]],
    counters: dict[str, Any],
    events: Sequence[Mapping[str, Any]],
    outputs: Outputs,
) -> Measured:
    """Makes the rows of a run's lines, counters and events, and writes them as frames. Raises OSError."""
    ranks = rank_rows(lines)
    results = with_slowdowns(result_rows(ranks, with_rates(steps, lines)), steps, Ideal(experiment).time_ns)
    results = sorted([*results, *outputs.rows(steps, lines)], key=lambda row: row["step"])
    tables = counter_rows(counters)
    if timeline := timeline_rows(lines, about):
        tables["timeline"] = timeline
    frames = {"results": results, "ranks": ranks, "events": [event_row(event) for event in events], **tables}
    for name, rows in frames.items():
        folder.write_frame(name, rows)
    series.store(folder.path)
    return Measured(ranks, results, tables)
