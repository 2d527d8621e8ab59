"""docs/gallery.md, from the entries and the figures that are kept."""

from __future__ import annotations

import os.path
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from railbed.gallery.entry import Entry, Made, Value

PAGE = Path("docs/gallery.md")
PICTURES = Path("docs/gallery")

OPENING = """\
# Published results, made again

```sh
./setup.sh gallery                    # all of it: the experiments, the pictures, this page
./setup.sh gallery multicast-traffic  # one entry
testbed run experiments/papers/multicast-traffic.yaml
```

Figures and tables of papers about what is emulated here, each made again at this testbed's scale: what was published,
what comes out here, and why they differ. None is left out because it differs. An entry is a file in
`experiments/papers/` that has the published numbers and how ours are read from its runs, beside its experiment or with
the name of one that is there already. All run on the virtual clock with seed 1, so ours come out on every machine;
`./setup.sh prove gallery` says if one has moved. *Ratio* is ours over the published number; of a published band 1
within it, and outside it to the nearer end.

"""

CLOSING = """\
## Another one
An experiment `NAME.yaml` in `experiments/papers/` that takes about ten seconds, or one that is there already, and
beside it `NAME.py` with an `ENTRY`: the paper, its numbers, how ours are read from each point of the run, and a
paragraph on why they differ ([the shortest](../experiments/papers/conspirator.py)). `./setup.sh gallery NAME` runs it
and writes its picture and this page; figures are kept in `experiments/papers/figures.json`. Only numbers that stand in
the paper itself, or in what is named as their source.
"""


def page(entries: Sequence[Entry], made: Mapping[str, Made]) -> str:
    """All of it; what was never made is left out."""
    there = [entry for entry in entries if entry.name in made]
    sections = (line for entry in there for line in _section(entry, made[entry.name]))
    return OPENING + "\n".join([*_table(there, made), "", *sections, CLOSING])


def _table(entries: Sequence[Entry], made: Mapping[str, Made]) -> Iterator[str]:
    yield "| entry | | published | here | ratio |"
    yield "|---|---|---|---|---|"
    for entry in entries:
        name = f"[{entry.name}](#{entry.name})"
        for value in entry.values:
            yield f"| {name} | {value.about} | {_cells(value, made[entry.name])} |"
            name = ""


def _section(entry: Entry, made: Made) -> Iterator[str]:
    yield f"## {entry.name}"
    where = f"[{entry.where}]({entry.link})" if entry.link else entry.where
    path = _path(entry)
    yield f"**{entry.title}.** {entry.paper}, {where}. Experiment: [`{path}`](../{path}){_changes(entry)}"
    yield ""
    yield "| | published | here | ratio |"
    yield "|---|---|---|---|"
    for value in entry.values:
        yield f"| {value.about} | {_cells(value, made)} |"
    yield ""
    yield f"![{entry.title}](gallery/{entry.name}.svg)"
    yield ""
    yield " ".join(entry.why.split())
    yield ""


def _path(entry: Entry) -> str:
    return os.path.normpath(entry.path)


def _changes(entry: Entry) -> str:
    return "".join(f", `{key}: {value}`" for key, value in entry.change.items())


def _cells(value: Value, made: Made) -> str:
    ours = made.values[value.about]
    return f"{value.says}{_published(value)}{_unit(value)} | {ours:.4g}{_unit(value)} | {value.ratio(ours):.2f}"


def _published(value: Value) -> str:
    if isinstance(value.published, tuple):
        return " to ".join(f"{end:g}" for end in value.published)
    return f"{value.published:g}"


def _unit(value: Value) -> str:
    return f" {value.unit}" if value.unit else ""
