"""A search as tables on a terminal: the best trials beside the experiment as it is, and what was held back."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from results.figures.values import full

MOST_SHOWN = 10


def of_search(found: Mapping[str, Any]) -> RenderableType:
    """Of `Found.to_dict()`."""
    aims = [f"{aim['figure']} ({'least' if aim['least'] else 'most'})" for aim in found["aims"]]
    trials = {one["trial"]: one for one in found["trials"]}
    shown = [trials[0], *(trials[number] for number in found["best"][:MOST_SHOWN] if number)]
    parts: list[RenderableType] = [Text(_head(found)), _table(found["over"], aims, shown)]
    if len(found["best"]) > MOST_SHOWN:
        parts.append(Text(f"# and {len(found['best']) - MOST_SHOWN} more of the front, in {found['run']}"))
    if found["held"]:
        key, values = found["held"]["key"], found["held"]["values"]
        parts += [Text(f"# held back: {key} = {', '.join(map(full, values))}"),
                  _table([], aims, found["held"]["trials"])]  # fmt: skip
    return Group(*parts)


def _head(found: Mapping[str, Any]) -> str:
    ended = [one["ended"] for one in found["trials"]]
    given_up, failed = ended.count("given up"), sum(one not in ("complete", "given up") for one in ended)
    said = [f"{len(ended) - 1} trials"]
    said += [f"{given_up} given up early"] * bool(given_up) + [f"{failed} failed"] * bool(failed)
    return f"# {', '.join(said)}; {found['runs']} runs in {found['run']}"


def _table(over: Sequence[str], aims: Sequence[str], trials: Sequence[Mapping[str, Any]]) -> Table:
    table = Table(box=None, pad_edge=False)
    for column in ("trial", *over, *aims):
        table.add_column(column, justify="right", overflow="fold")
    for aim in aims:
        table.add_column("/ as it is" if len(aims) == 1 else f"{aim.partition(' ')[0]} / as it is", justify="right")
    first = trials[0]["figures"]
    for one in trials:
        values = ["default" if one["values"][key] is None else full(one["values"][key]) for key in over]
        ratios = [f"{now / was:.3f}" if was else "-" for now, was in zip(one["figures"], first, strict=True)]
        name = "as it is" if one["trial"] == 0 else str(one["trial"])
        table.add_row(name, *values, *(f"{value:.6g}" for value in one["figures"]), *ratios)
    return table
