"""`testbed drill bench` and `compare`: agents measured, and measured against each other."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from testbed.base.ranges import Number, Whole
from testbed.commands._say import say

if TYPE_CHECKING:
    from drills.agents.bench import CaseResult

_JSON = click.option("--json", "as_json", is_flag=True, help="Print one JSON object (an agent) on stdout.")


@click.command("bench")
@click.option(
    "--agent", "agents", required=True, multiple=True, metavar="CMD", help="A command that plays on its stdin and "
    "stdout, or baseline:NAME; repeatable for baselines that only look, which then share each world."
)  # fmt: skip
@click.option("--suite", "suites", multiple=True, metavar="NAME|FILE", help="Which drills (default: v1); repeatable.")
@click.option("--seeds", type=Whole(1, 1000), default=1, metavar="K", help="Seeds of each drill (default: 1).")
@click.option("--secret", metavar="FILE", help="What the seeds are made of (default: the public one).")
@click.option("--speaks", type=click.Choice(["jsonl", "mcp"]), default="jsonl", help="What the command speaks.")
@click.option("--wall", type=Number(1, 86400), default=600, metavar="S", help="Most seconds for a case (default: 600).")
@click.option("--user", metavar="NAME", help="As which user the command runs (default: as you).")
@click.option("-o", "--out", metavar="FOLDER", help="Where results go (default: results/agents/<timestamp>).")
@click.option("--resume", is_flag=True, help="Go on with a benchmark that was ended: its results are in --out.")
@_JSON
def bench(
    agents: tuple[str, ...],
    suites: tuple[str, ...],
    seeds: int,
    secret: str | None,
    speaks: str,
    wall: float,
    user: str | None,
    out: str | None,
    resume: bool,
    as_json: bool,
) -> None:
    """Measure an agent: each drill of a suite with each seed, and its healthy twin.

    The command is started anew for each case. Failing (it ends early, or takes too long) is a score of 0; a case in
    which the world dies is played again. Logs and transcripts of all cases stay in the folder.

    \b
    Examples:
      testbed drill bench --agent baseline:healthy --suite lost/dirty-optics
      testbed drill bench --agent baseline:loudest --agent baseline:thresholds
      testbed drill bench --agent 'python3 my-agent.py' --seeds 3 --user nobody
    """
    from datetime import datetime

    from drills.agents import bench as benchmark
    from drills.agents.players import players_of
    from drills.play.drilld import marked
    from drills.sheet.suite import assignments, drills_of, secret_of
    from testbed.base.errors import InputError, UserError, require_root

    names = suites or ("v1",)
    player, key = players_of(agents, speaks, user), secret_of(secret)
    drills = drills_of(names)
    benchmark.check_measurable(drills)
    todo = assignments(drills, seeds, key)
    folder = Path(out or f"results/agents/{datetime.now():%Y%m%d-%H%M%S}")
    if resume and not out:
        raise InputError("go on with what?", "--resume", "--out FOLDER, of a benchmark that was ended")
    if folder.exists() and not resume:
        raise InputError("it is there already", f"--out {folder}", "name a new folder, or go on with --resume")
    require_root()

    def told(case: CaseResult, name: str) -> None:
        if not as_json:
            twin = "healthy " if case.healthy else ""
            result = case.left_out or case.failed or case.answer
            who = f"{name}: " if len(player.names) > 1 else ""
            head = f"{case.number + 1}/{len(todo)} {twin}{case.drill} {case.seed}"
            say(f"{head}: {who}{case.score:.1f}  {result}", err=True)

    head = {"suite": list(names), "seeds": seeds, "speaks": speaks}
    played = benchmark.run(todo, player, head, key, folder, wall_s=wall, told=told, up=marked, resume=resume)
    rows = [benchmark.row(name, cases) for name, cases in played.items()]
    if as_json:
        for row in rows:
            say(json.dumps({**row, "folder": str(benchmark.folder_of(folder, row["agent"], list(played)))}))
    else:
        _show("agents", [_shown(row) for row in rows])
        say(str(folder))
    if left_out := rows[0]["left_out"]:
        raise UserError(f"{left_out} of {len(todo)} cases do not count: their worlds died or cannot be made",
                        str(folder), "testbed doctor")  # fmt: skip


@click.command("compare")
@click.argument("first", type=click.Path(file_okay=False))
@click.argument("second", type=click.Path(file_okay=False))
@_JSON
def compare(first: str, second: str, as_json: bool) -> None:
    """Compare two agents by their results on the same worlds: the second less the first.

    The interval is a bootstrap over drills, the p-value an exact sign test over drills.

    \b
    Examples:
      testbed drill compare results/agents/a results/agents/b
    """
    from drills.agents.compare import compared

    comparison = compared(Path(first), Path(second))
    if as_json:
        say(json.dumps(comparison))
        return
    left_out = f"; {comparison['left_out']} left out, in which a world has died" if comparison["left_out"] else ""
    say(f"{comparison['n']} cases{left_out}\n  first:  {comparison['first']}\n  second: {comparison['second']}")
    _show("differences", [{**row, "difference": _interval(row["difference"])} for row in comparison["rows"]])


def _show(name: str, rows: list[dict[str, Any]]) -> None:
    from testbed.tables.results import counters, lines

    say("\n".join(lines(counters(name, rows, whole=True))))


def _shown(row: dict[str, Any]) -> dict[str, Any]:
    return {
        **{key: "-" if value is None else value for key, value in row.items()},
        "rca_f1": _interval(row["rca_f1"]),
        "score": _interval(row["score"], 1),
        "false_alarms": "-" if row["false_alarms"] is None else f"{100 * row['false_alarms']:.0f} %",
    }


def _interval(estimate: dict[str, float] | None, digits: int = 2) -> str:
    if estimate is None:
        return "-"
    return f"{estimate['mean']:.{digits}f} [{estimate['low']:.{digits}f}, {estimate['high']:.{digits}f}]"
