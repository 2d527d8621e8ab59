"""What a report says, from a stored run or sweep: plain data for the template."""

from __future__ import annotations

import io
import json
import shlex
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from results.figures import in_force
from results.figures.timeline import steps
from results.figures.values import cut, full
from results.store.load import Run
from results.store.sweeps import Sweep
from testbed.base import yaml_writer
from testbed.base.errors import InputError, UserError
from testbed.report.asked import own_keys
from testbed.report.ideal import shares
from testbed.report.series import charts, not_sampled
from testbed.tables.results import lines, of_run, title

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from testbed.experiment import Experiment

MOST_ROWS = 200
MOST_EVENTS = 100
MOST_TIMELINES = 4
_NO_MARK = {"worker_done", "algorithm_chosen", "ready", "held"}
"""Events that are no trouble: not marked on the time axis."""


def of(run: Run, parts: Mapping[str, str]) -> dict[str, Any]:
    """Everything that the template needs for a run; `parts` are the page's scripts and styles."""
    experiment = _experiment(run)
    state = run.state
    content: dict[str, Any] = {
        "kind": "run",
        "title": run.name,
        "subtitle": title(run),
        "failed": None if state["state"] == "complete" else _failed(state.get("error")),
        "fidelity": run.fidelity or {"verdict": "invalid", "reasons": ["the run did not end"], "advice": []},
        "table": "\n".join(lines(of_run(run, folder=False))),
        "shares": shares(run),
        "drops": sorted(run.rows("drops"), key=lambda row: -row["count"])[:MOST_ROWS],
        "not_sampled": not_sampled(run),
        "timelines": _timelines(run),
        "again": _again(run),
        **_asked(experiment, run.experiment),
        "environment": _environment(run.environment),
        "hash": run.summary.get("metrics_sha256"),
    }
    data: dict[str, Any] = {"charts": [chart.to_dict() for chart in charts(run)], "events": _events(run)}
    if experiment is not None and run.counters:
        data["network"] = _network(experiment, run)
    return {**content, **parts, "data": _as_json(data), "charts": data["charts"], "network": "network" in data}


def of_sweep(swept: Sweep, parts: Mapping[str, str]) -> dict[str, Any]:
    """Likewise for a sweep: its table, and its usual figures as pictures."""
    from results.pictures.drawing import PlotError
    from results.pictures.sweep_plot import sweep, usual
    from results.store.sweeps import key_names

    run = Run(swept.path)
    names = key_names(swept.keys)
    hidden = ("metrics_sha256", "run")
    columns = list(dict.fromkeys(k for point in swept.points for k in point if k not in hidden))
    summary = swept.to_dict()
    failed = summary.get("error")
    try:
        pictures = [svg(f) for f in sweep(swept.name, swept.keys, swept.points, usual(swept))] if swept.points else []
    except PlotError:
        pictures = []
    return {
        "kind": "sweep",
        "title": swept.name,
        "subtitle": f"sweep, {len(swept.points)} of {swept.total} points",
        "failed": _failed(failed) if failed else None,
        "fidelity": _worst(swept),
        "columns": [names.get(column, column) for column in columns],
        "points": [[_cell(point.get(column)) for column in columns] for point in swept.points],
        "pictures": pictures,
        "again": _again(run),
        **_asked(_experiment(run), run.experiment),
        "environment": _environment(run.environment),
        "hash": None,
        **parts,
        "data": "{}",
    }


def _worst(swept: Sweep) -> dict[str, Any]:
    order = ("exact", "good", "doubtful", "invalid")
    verdicts = [point["fidelity"] for point in swept.points if point.get("fidelity") in order]
    worst = max(verdicts, key=order.index, default="invalid")
    reasons = [] if verdicts else ["no point has ended"]
    if len(set(verdicts)) > 1:
        reasons = [f"{verdicts.count(one)} points are {one}" for one in order if one in verdicts]
    return {"verdict": worst, "reasons": reasons, "advice": []}


def _experiment(run: Run) -> Experiment | None:
    """The run's experiment as a model; None if this version cannot read it, and the report goes without."""
    from testbed.experiment import load

    try:
        return load(run.path / "experiment.yaml")
    except UserError:
        return None


def _failed(error: Mapping[str, Any] | None) -> dict[str, str]:
    """What, where, hint: the latter two may be empty."""
    return {"where": "", "hint": "", **(error or {"what": "it was killed, or still goes on"})}


def _network(experiment: Experiment, run: Run) -> dict[str, Any]:
    """The drawing, each port's counters at the end, and what was wrong where."""
    from testbed.serve.network import COLUMNS, Network, ports

    network = Network(experiment.build_fabric())
    faults = [
        {"name": f"f{n + 1}", "fault": one["fault"], "state": _state(one), **network.places(str(one.get("on", "")))}
        for n, one in enumerate(run.experiment.get("inject") or [])
    ]
    end_ns = max((row["end_ns"] for row in run.rows("results")), default=0.0)
    return {**network.about(), "columns": COLUMNS, "ports": ports(run.counters), "faults": faults, "end_ns": end_ns}


def _state(fault: Mapping[str, Any]) -> str:
    """One that lasts until the end is `on`; of one with `for` or `every` the drawing says only where it was."""
    return "off" if fault.get("for") or fault.get("every") else "on"


def _events(run: Run) -> list[dict[str, Any]]:
    """What happened at which moment of emulated time: for the marks on the charts."""
    faults = {f"f{n + 1}": one for n, one in enumerate(run.experiment.get("inject") or [])}
    events = [
        {"us": row["time_ns"] / 1000, "text": _said(row, faults)}
        for row in run.rows("events")
        if row.get("time_ns") is not None and row["event"] not in _NO_MARK
    ]
    if (more := len(events) - MOST_EVENTS) > 0:
        last = events[MOST_EVENTS]["us"]
        return [*events[:MOST_EVENTS], {"us": last, "text": f"and {more} events more, from here on not marked"}]
    return events


def _said(row: Mapping[str, Any], faults: Mapping[str, Mapping[str, Any]]) -> str:
    """In words: `loss on cable:h0.0-rail0 begins (f1)`, `link of rail0:1: down`."""
    more = {k: v for k, v in json.loads(row.get("detail") or "{}").items() if k != "id"}
    what = row["event"].replace("_", " ")
    if row["event"] == "fault" and "fault" in more:
        name = str(more.pop("fault"))
        fault = faults.get(name, {})
        what = f"{fault['fault']} on {fault['on']}" if "on" in fault else str(fault.get("fault", "fault"))
        what += f" {'begins' if more.pop('on', True) else 'ends'} ({name})"
    if row.get("node") is not None:
        port = "" if row.get("port") is None else f":{row['port']}"
        what += f" at {row['node']}{port}"
    plain = [_fact(k.replace("_", " "), v) for k, v in more.items() if isinstance(v, str | int | float)]
    return cut(what + (": " if plain else "") + ", ".join(plain))


def _fact(key: str, value: str | float) -> str:
    if key == "up" and isinstance(value, bool):
        return "up" if value else "down"
    if isinstance(value, bool):
        return key if value else f"not {key}"
    return f"{key} {full(value)}"


def _timelines(run: Run) -> list[str]:
    from results.pictures.drawing import PlotError
    from results.pictures.timeline_plot import chosen, timeline

    rows = run.rows("timeline")
    pictures = []
    for step in chosen(steps(rows), None)[:MOST_TIMELINES] if rows else ():
        with suppress(PlotError):  # a step that took no time
            pictures.append(svg(timeline(step, run.name)))
    return pictures


def svg(figure: Figure) -> str:
    """A picture as part of a page, the same whenever it is drawn."""
    import matplotlib

    out = io.StringIO()
    with matplotlib.rc_context({"svg.hashsalt": "railbed"}):
        figure.savefig(out, format="svg", bbox_inches="tight", metadata={"Date": None})
    text = out.getvalue()
    return text[text.index("<svg") :]


def _asked(experiment: Experiment | None, resolved: Mapping[str, Any]) -> dict[str, str]:
    """The experiment without what is default anyway, and with everything."""
    whole = _yaml(resolved)
    if experiment is None:
        return {"asked": whole, "whole": whole}
    return {"asked": _yaml(own_keys(experiment)), "whole": whole}


def _yaml(value: Mapping[str, Any]) -> str:
    out = io.StringIO()
    yaml_writer.dump(dict(value), out)
    return out.getvalue()


def _again(run: Run) -> str:
    return in_force.again(run.live, str(run.path / "experiment.yaml"), run.experiment.get("clock"))


def _environment(environment: Mapping[str, Any]) -> list[tuple[str, str]]:
    rows: list[tuple[str, str]] = []
    for key, value in environment.items():
        if isinstance(value, list):
            rows.append((key, shlex.join(map(str, value))))
        elif isinstance(value, dict):
            rows += [(f"{key}: {name}", str(inner)) for name, inner in value.items() if inner]
        elif value is not None:
            rows.append((key, str(value)))
    return rows


def _cell(value: Any) -> str:
    if isinstance(value, float):
        return f"{value:.5g}"
    return "" if value is None else full(value)


def _as_json(value: Any) -> str:
    """For a script element: nothing in it can end the element."""
    return json.dumps(value, separators=(",", ":")).replace("<", "\\u003c")


def write(name: str, out: Path, about: Mapping[str, Any], pages: Sequence[Path]) -> None:
    """Renders the template `name` of `pages` into the file `out`. Raises InputError if it cannot be written."""
    from jinja2 import Environment, FileSystemLoader, StrictUndefined

    files = FileSystemLoader(list(map(str, pages)))
    environment = Environment(
        loader=files, autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True
    )
    text = environment.get_template(name).render(about)
    try:
        out.write_text(text)
    except OSError as error:
        raise InputError(f"the report cannot be written: {error.strerror}", str(out)) from None
