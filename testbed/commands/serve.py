"""`testbed serve`: a live fabric in the browser."""

from __future__ import annotations

import json
from contextlib import closing

import click

from testbed.base.ranges import Number, Whole
from testbed.commands import _fabric


@click.command()
@_fabric.either
@click.option(
    "--port", type=Whole(0, 65535), default=0, metavar="N", help="The port on 127.0.0.1 (default: a free one)."
)
@click.option("-p", "--period", type=Number(0.1, 60), default=1.0, show_default=True, metavar="SECONDS",
              help="Wall time between two looks at the fabric.")  # fmt: skip
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object on stdout: fabric, url, port.")
def command(fabric: str | None, port: int, period: float, as_json: bool) -> None:
    """Show a live fabric in the browser, until Ctrl-C.

    The page shows the topology with load, queues, pauses, marks and drops, faults and jobs, the counters of every
    cable, the tables of `testbed show`, logs; a held clock it lets go on. The server listens on 127.0.0.1 alone; the
    URL has a token without which nobody gets in.

    \b
    Examples:
      testbed serve
      testbed serve 3f2a --port 8080
    """
    from testbed.base.errors import UserError
    from testbed.fabric.lab import Lab
    from testbed.serve import server
    from testbed.serve.guard import new_token
    from testbed.serve.live import application
    from testbed.serve.watched import Watched

    with closing(Lab.attach(fabric)) as lab:
        watched, token = Watched(lab), new_token()
        sock = server.listen(port)
        url = server.url(sock, token)
        if as_json:
            click.echo(json.dumps({"fabric": lab.id, "url": url, "port": sock.getsockname()[1]}))
        else:
            click.echo(f"fabric {lab.id} ({lab.state['name']}), until Ctrl-C: open\n  {url}")
        try:
            ended = server.serve(lambda ending: application(watched, token, period, ending), sock)
        except KeyboardInterrupt:
            return
        if ended.failed:
            raise UserError(ended.why, hint=f"testbed status {lab.id}")
        click.echo(ended.why, err=True)
