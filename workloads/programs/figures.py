"""What host cores and SmartNICs take for what programs do, each figure with its source.

Keys are those of the experiment file, values as they would be written there.  The mark in front of a source: [P]
published, [D] derived from published figures, [E] an estimate, to be replaced by a measurement.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import NamedTuple


class Figure(NamedTuple):
    value: str | float
    source: str


_LZ4_PAGE = "[P] the LZ4 project's benchmark (lzbench, one core of a Core i7-9700K)"
_MICRO = "A Hardware Accelerator for Protocol Buffers (MICRO 2021)"

MESSAGE: Mapping[str, Figure] = {
    "host.field": Figure("20ns", "[E] some 60 cycles for a tag, a varint, a branch on the type"),
    "host.level": Figure("50ns", "[E] an allocation, and a pointer to follow"),
    "host.copy": Figure("109.6Gbps", f"{_LZ4_PAGE}: memcpy at 13700 MB/s"),
    "nic.field": Figure("5.26ns", f"[D] the host's / 3.8: {_MICRO}, mean against a Xeon"),
    "nic.level": Figure("13.2ns", "[D] likewise"),
    "nic.copy": Figure("200Gbps", "[E] the link of the complex"),
}
"""Of `message`: remote procedure calls."""


STORAGE: Mapping[str, Figure] = {
    "ratio": Figure(2.1, f"{_LZ4_PAGE}: LZ4 on the Silesia corpus, 2.101"),
    "header": Figure("300ns", "[E] a look-up of where the block goes, some 1000 cycles"),
    "host.cores": Figure(4, "[E] cores that a middle tier has for one NIC"),
    "host.compress": Figure("6.24Gbps", f"{_LZ4_PAGE}: LZ4 at 780 MB/s"),
    "nic.cores": Figure(1, "[E] one engine"),
    "nic.compress": Figure("100Gbps", "[E] an engine at the rate of a port of 100 Gb/s"),
}
"""Of `storage`: writes through a middle tier."""

FEED: Mapping[str, Figure] = {
    "preprocess": Figure("120us", "[E] chosen: moving then takes 15 % of a core, as much as the paper saves"),
    "manage": Figure("2us", "[E] a completion, a free place, a decision where to: some 6000 cycles"),
    "copy": Figure("109.6Gbps", f"{_LZ4_PAGE}: memcpy at 13700 MB/s"),
}
"""Of `feed`: preprocessed data for accelerators."""

TABLES = {"message": MESSAGE, "storage": STORAGE, "feed": FEED}
"""By the key of a step that they belong to."""


def written(page: str) -> str:
    """docs/smartnic-programs.md with its tables of figures as they are here: `python -m workloads.programs.figures`."""
    for name, figures in TABLES.items():
        before, found, rest = page.partition(f"<!-- {name} -->\n")
        if not found:
            raise ValueError(f"{PAGE} has no place for {name}: <!-- {name} -->, <!-- end -->")
        page = f"{before}<!-- {name} -->\n{''.join(table(figures))}<!-- end -->{rest.partition('<!-- end -->')[2]}"
    return page


def table(figures: Mapping[str, Figure]) -> Iterator[str]:
    """For docs/smartnic-programs.md."""
    yield "| key | value | source |\n|---|---|---|\n"
    for key, (value, source) in figures.items():
        yield f"| `{key}` | {value} | {source} |\n"


PAGE = Path(__file__).resolve().parents[2] / "docs" / "smartnic-programs.md"

if __name__ == "__main__":
    PAGE.write_text(written(PAGE.read_text()))
