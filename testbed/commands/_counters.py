"""`testbed show counters`: a stored run's tables, or the ports' counters of a live fabric."""

from __future__ import annotations

import json
from typing import Any

import click

from results.frames.columns import COLUMNS
from testbed.commands import _fabric, _views
from testbed.commands._complete import RUN_OR_FABRIC
from testbed.live.views import VIEWS

FRAMES = [name for name in COLUMNS if name not in ("results", "ranks", "timeline")]
"""Tables of what was counted; the others are of what was measured."""


@click.command("counters", epilog=f"TABLE: {', '.join(FRAMES)}.")
@click.argument("run", required=False, metavar="[RUN|ID]", shell_complete=RUN_OR_FABRIC)
@click.argument("frame", type=click.Choice(FRAMES), default="ports", metavar="[TABLE]")
@_fabric.option
@_views.options
def command(run: str | None, frame: str, fabric: str | None, as_json: bool, **chosen: Any) -> None:
    """Show one of the counter tables of a stored RUN (ports by default), or the ports' counters of a live fabric.

    Of a run, columns that are 0 everywhere are left out. Of a sweep: the rows of all its points, with the values swept
    over.

    \b
    Examples:
      testbed run experiments/quickstart.yaml
      testbed show counters quickstart
      testbed show counters quickstart nics
      testbed show counters --watch
    """
    from results.store.load import load
    from results.store.sweeps import sweep
    from testbed.tables.results import counters, show

    if fabric or run is None or _fabric.is_fabric(run):
        _views.live(VIEWS["interfaces counters"], _fabric.one_of(run, fabric), as_json=as_json, **chosen)
        return
    stored = sweep(run) or load(run)
    rows = stored.rows(frame)
    if as_json:
        click.echo(json.dumps(rows))
    else:
        if frame == "ports" and load(run).experiment.get("fabric", {}).get("scale_up"):
            rows = with_scale_up(rows, {row["switch"] for row in stored.rows("switches")})
        show(counters(frame, [{k: _plain(k, v) for k, v in row.items()} for row in rows]), wide=True)


def _plain(name: str, value: Any) -> Any:
    """Means as far as a person reads them; times stay exact."""
    if not isinstance(value, float) or not name.endswith(("_bps", "_Bps", "_util")):
        return value
    return float(f"{value:.4g}") if name.endswith("_util") else round(value)


def with_scale_up(rows: list[dict[str, Any]], switches: set[str]) -> list[dict[str, Any]]:
    """Ports, with a word for where NICs have no cable: that port leads into their server's scale-up domain."""
    return [r if r["peer"] or r["node"] in switches else {**r, "peer": "scale-up"} for r in rows]
