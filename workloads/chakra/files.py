"""The files of a trace: one for each rank, NAME.RANK.et, and the groups' file."""

from __future__ import annotations

import json
import re
from pathlib import Path

from workloads.base import named_file
from workloads.chakra import et, replay
from workloads.chakra.et import BadTrace
from workloads.chakra.replay import Reading
from workloads.tasks.graph import Graph

_NAME = re.compile(r"(.+)\.(\d{1,7})\.et")
MOST_BYTES = 16 << 20


def load(path: Path, groups: Path | None = None, how: Reading | None = None) -> Graph:
    """The graph of the traces in a folder, or of those that begin with a path: `traces/gpt` of gpt.0.et, gpt.1.et ..

    Raises BadTrace.
    """
    files = find(path)
    traces = {rank: et.read(file) for rank, file in files.items()}
    members = read_groups(groups) if groups is not None else None
    return replay.graph(traces, members, how, {rank: str(file) for rank, file in files.items()})


def find(path: Path) -> dict[int, Path]:
    """Rank -> its file, none missing.  Raises BadTrace."""
    folder, prefix = (path, "") if path.is_dir() else (path.parent, path.name)
    by_name: dict[str, dict[int, Path]] = {}
    for file in sorted(folder.glob("*.et")) if folder.is_dir() else ():
        if (match := _NAME.fullmatch(file.name)) and prefix in ("", match[1]):
            ranks = by_name.setdefault(match[1], {})
            if int(match[2]) in ranks:
                raise BadTrace(f"a second file of rank {int(match[2])}, beside {ranks[int(match[2])].name}", str(file))
            ranks[int(match[2])] = file
    if not by_name:
        raise BadTrace("there are no traces: files called NAME.RANK.et, one for each rank", str(path))
    if len(by_name) > 1:
        names = ", ".join(str(folder / name) for name in sorted(by_name)[: replay.MOST_SHOWN])
        raise BadTrace(f"there are several traces in this folder: name one of {names}", str(path))
    (files,) = by_name.values()
    missing = next((rank for rank in range(len(files)) if rank not in files), None)
    if missing is not None:
        stem = next(iter(by_name))
        names = ", ".join(map(str, sorted(files)[: replay.MOST_SHOWN]))
        raise BadTrace(f"missing: there are traces of ranks {names} ..", str(folder / f"{stem}.{missing}.et"))
    return dict(sorted(files.items()))


def read_groups(path: Path) -> dict[str, list[int]]:
    """`{"1": [0, 1], ..}`: the ranks of each group.  Raises BadTrace."""
    try:
        groups = json.loads(named_file.read(path, MOST_BYTES))
    except named_file.Unreadable as error:
        raise BadTrace(f"cannot be read: {error.what}", str(path)) from None
    except (ValueError, RecursionError) as error:
        raise BadTrace(f"not JSON: {error}", str(path)) from None
    if not isinstance(groups, dict):
        raise BadTrace('groups are a mapping of names to ranks: {"1": [0, 1]}', str(path))
    for name, ranks in groups.items():
        if not isinstance(ranks, list) or not ranks or not all(type(r) is int and r >= 0 for r in ranks):
            raise BadTrace(f"group {name!r} is no list of ranks", str(path))
        if len(set(ranks)) < len(ranks):
            raise BadTrace(f"group {name!r} has a rank twice", str(path))
    return groups
