"""`testbed advance`: lets the clock of a held fabric go on."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import click

from testbed.commands import _fabric

if TYPE_CHECKING:
    from testbed.live.look.steps import Step

LIMIT = "10ms"
_SHOWN = 10


@click.command()
@click.argument("what", nargs=-1, required=True, metavar="TIME|N steps|until COND")
@_fabric.option
@click.option("--limit", default=LIMIT, show_default=True, metavar="TIME", help="For steps and until.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object on stdout.")
def command(what: tuple[str, ...], fabric: str | None, limit: str, as_json: bool) -> None:
    """Let the clock of a held fabric go on for a while.

    Then it stands still again. `testbed up FILE --virtual --job` brings one up.

    TIME goes on by exactly so much, such as 200us. N steps: until so many more steps of the job have ended. until COND:
    until a condition is met, such as 'step > 1.2x' (a step took 1.2 times the best one), 'step > 50us', 'drops > 0',
    'wrong > 0', 'time > 2ms'. If that is not so within --limit, the exit code is 1.

    \b
    Examples:
      testbed up experiments/quickstart.yaml --virtual --job
      testbed advance 200us
      testbed advance 10 steps
      testbed advance until 'step > 1.2x' --limit 20ms
    """
    from testbed.base.errors import RUN_FAILED
    from testbed.world.going import read
    from testbed.world.kept import Kept

    go = read(what, limit)
    with Kept.attach(fabric) as kept:
        before = len(kept.steps)
        done = go(kept)
        steps, now, errors = kept.steps[before:], kept.time_ns, kept.errors
        if as_json:
            rows = [{"number": s.number, "start_ns": s.start_ns, "end_ns": s.end_ns, "wrong": s.wrong} for s in steps]
            click.echo(json.dumps({"fabric": kept.lab.id, "time_ns": now, "met": done, "steps": rows}))
        else:
            _show(steps, now, errors, "" if done else f"not within {limit}; ")
    if not done:
        raise SystemExit(RUN_FAILED)


def _show(steps: list[Step], now_ns: int, errors: dict[int, str], why: str) -> None:
    times = [f"{step.time_ns / 1000:.2f}" for step in steps]
    if len(times) > _SHOWN:
        few = sorted(step.time_ns / 1000 for step in steps)
        middle = few[len(few) // 2]
        click.echo(f"{len(times)} steps, from {few[0]:.2f} to {few[-1]:.2f} us, half of them under {middle:.2f} us")
    elif times:
        click.echo(f"{'step' if len(times) == 1 else 'steps'} {' '.join(times)} us")
    if wrong := sum(step.wrong for step in steps):
        click.echo(f"{wrong} wrong elements in their results")
    for rank, error in errors.items():
        click.echo(f"the worker of rank {rank} has given up: {error}")
    click.echo(f"{why}clock {now_ns / 1000:.3f} us, held")
