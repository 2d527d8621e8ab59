"""The keeper: a process that holds a world for `testbed up --job`, and does what others ask of it.

It owns the fabric: when it ends, so do the fabric's processes, and `testbed clean` removes what is left. It listens on
a socket in the fabric's directory. A request and its answer are a line of JSON each:

    {"call": NAME, ..}    {"ok": true, "value": ..}    {"ok": false, "error": {"what", "where", "hint", "exit_code"}}
    and `key` in it where a fault does not fit: its parameter that is wrong, null: its target

Requests are carried out one after the other. One that was begun is carried out even if who asked has gone: so the
world is always at a hold between two of them.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import traceback
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

from hardware.client import FabricdError
from testbed.base.errors import BAD_INPUT, InputError, UserError, internal
from testbed.fabric.parts import failed
from testbed.faults import CannotInject, Injection
from testbed.machine.jsonlines import JsonLines, JsonServer, ready
from testbed.machine.ownership import KEEPER
from testbed.machine.processes import Process
from testbed.world.base import Stopped, WorldGone, always, look_at_parts
from testbed.world.operator import config
from testbed.world.world import World

if TYPE_CHECKING:
    from testbed.experiment import Experiment

SOCKET = "world.sock"
LOG = "keeper.log"
_LOOK_S = 1.0


def keep(experiment: Experiment) -> dict[str, Any]:
    """Starts a keeper with a world of this experiment; returns what its Lab describes. Raises UserError.

    The keeper is a child of this process in a session of its own. It outlives us.
    """
    heard, say = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(heard)
        _keeper(experiment, say)
    os.close(say)
    try:
        with os.fdopen(heard, "rb") as answer:
            text = answer.read()
    except BaseException:  # such as Ctrl-C: it takes down what it has made
        with suppress(ProcessLookupError):
            os.kill(child, signal.SIGTERM)
        os.waitpid(child, 0)
        raise
    if not text:
        os.waitpid(child, 0)
        raise UserError("the keeper of the fabric has ended before the fabric was up", hint="testbed clean")
    told = json.loads(text)
    if "error" in told:
        os.waitpid(child, 0)
        raise UserError.of(told["error"])
    return dict(told["up"])


def _keeper(experiment: Experiment, say: int) -> NoReturn:
    """The child's whole life."""
    world: World | None = None
    ending: list[int] = []
    try:
        os.setsid()
        signal.signal(signal.SIGTERM, partial(_end, ending))
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        signal.signal(signal.SIGHUP, signal.SIG_IGN)
        world = World.up(experiment)
        server = JsonServer(world.lab.dir / SOCKET)
        world.lab.record.journal.made({KEEPER: Process.of(os.getpid())})
        _quiet(world.lab.dir / LOG)
        _say(say, {"up": world.lab.describe()})
        os.close(say)
        _serve(world, server, ending)
    except WorldGone as gone:  # its logs stay, until `testbed clean`
        if world is None:
            _say(say, {"error": gone.carried()})
        else:
            world.lab.record.journal.write("gone", why=gone.what)
        print(gone, file=sys.stderr)
    except SystemExit:  # SIGTERM
        if world:
            world.close()
    except BaseException as error:
        traceback.print_exc()
        told = error if isinstance(error, UserError) else internal(error)
        _say(say, {"error": told.carried()})
        if world:
            world.close()
    finally:
        sys.stderr.flush()
        os._exit(0)


def _say(fd: int, what: Mapping[str, Any]) -> None:
    with suppress(OSError):  # who has asked is gone, or was told before
        os.write(fd, json.dumps(what).encode())


def _end(ending: list[int], number: int, _frame: object) -> None:
    """Notes it, too: what is raised inside a destructor, or where modules are imported, may get lost."""
    ending.append(number)
    raise SystemExit


def _quiet(log: Path) -> None:
    """From now on the terminal is not ours."""
    null, out = os.open(os.devnull, os.O_RDONLY), os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    for fd, new in ((0, null), (1, out), (2, out)):
        os.dup2(new, fd)
    os.close(null)
    os.close(out)


def _serve(world: World, server: JsonServer, ending: Sequence[int]) -> None:
    """Until the world is gone, or a signal was to end us. What fabricd asks for between requests is done, too."""
    while not ending:
        lab = world.lab
        heard = ready([lab.fabricd, lab.supervision, *server.files], _LOOK_S)
        with suppress(Stopped):
            if lab.supervision in heard:
                look_at_parts(lab)
            world.heed()
        server.hear(heard, partial(_answer, world))
    raise SystemExit


def _answer(world: World, client: JsonLines) -> None:
    """Answers the requests that have come. Raises WorldGone, when it has said so."""
    while client.whole:
        gone: WorldGone | None = None
        try:
            told = _told_of(world, client, client.whole.popleft())
        except WorldGone as error:
            gone, told = error, {"ok": False, "error": error.carried()}
        client.send(told)
        if gone:
            raise gone


def _told_of(world: World, client: JsonLines, line: bytes) -> dict[str, Any]:
    try:
        asked = _request(line)
        call = asked.pop("call")
        world.wanted = client.there if call in GO_ON else always  # who went (Ctrl-C) would hold up all others
        return {"ok": True, "value": CALLS[call](world, asked)}
    except WorldGone:
        raise
    except UserError as error:
        return {"ok": False, "error": error.carried()}
    except FabricdError as error:
        return {"ok": False, "error": failed(error, world.lab.dir).carried()}
    except CannotInject as error:
        told = UserError(error.what, hint=error.hint, exit_code=BAD_INPUT).carried()
        return {"ok": False, "error": {**told, "key": error.key}}
    except ValueError as error:
        if what := getattr(error, "what", ""):  # such as a wrong word: whose errors say what, they are meant for people
            return {"ok": False, "error": InputError(what, hint=getattr(error, "hint", "")).carried()}
        return _bug(world, error)
    except Exception as error:
        return _bug(world, error)


def _request(line: bytes) -> dict[str, Any]:
    """Raises InputError for what is no request."""
    try:
        asked = json.loads(line)
    except (ValueError, RecursionError):
        asked = None
    if not isinstance(asked, dict) or str(asked.get("call")) not in CALLS:
        raise InputError("that is no request to a keeper", hint='{"call": NAME, ..}, a line each')
    return asked


def _bug(world: World, error: Exception) -> dict[str, Any]:
    """Nobody's mistake but ours: it has to look like that."""
    traceback.print_exc()
    sys.stderr.flush()
    hint = "this is a bug in Railbed; the traceback is there"
    return {"ok": False, "error": internal(error, str(world.lab.dir / LOG), hint).carried()}


def _state(world: World) -> dict[str, Any]:
    return {
        "time_ns": world.time_ns,
        "steps": len(world.steps),
        "best_ns": world.best_ns,
        "errors": {str(rank): why for rank, why in world.errors.items()},
    }


Asked = Mapping[str, Any]
CALLS: dict[str, Callable[[World, Asked], Any]] = {
    "state": lambda world, asked: _state(world),
    "advance": lambda world, asked: world.advance(int(asked["ns"])),
    "advance_steps": lambda world, asked: world.advance_steps(asked["count"], int(asked["limit_ns"])),
    "until": lambda world, asked: world.until(str(asked["condition"]), int(asked["limit_ns"])),
    "steps": lambda world, asked: [step.to_dict() for step in world.steps[asked["since"] :]],
    "counters": lambda world, asked: world.counters(),
    "history": lambda world, asked: len(world.history()),
    "history_at": lambda world, asked: world.history()[asked["index"]],
    "events": lambda world, asked: world.events[asked["since"] :],
    "request": lambda world, asked: world.request(asked["op"], **asked["arguments"]),
    "restart": lambda world, asked: world.restart(asked["workload"]),
    "settle": lambda world, asked: world.settle(),
    "put_in": lambda world, asked: world.put_in(Injection.of(asked["injection"]), asked.get("name")),
    "take_out": lambda world, asked: world.take_out(asked["name"]),
    "config": lambda world, asked: [asdict(done) for done in config(world, asked["words"])],
    "digest": lambda world, asked: world.digest(),
}
"""What can be asked of a keeper (kept.py has the other end)."""
GO_ON = frozenset({"advance", "advance_steps", "until"})
"""Calls that do nothing but let time pass."""
