"""The other end of a drill's server: a `Session`, from any shell."""

from __future__ import annotations

import json
import os
import secrets
import subprocess
import sys
from collections.abc import Iterator
from contextlib import suppress
from datetime import datetime
from pathlib import Path
from typing import Any

from drills.play.wire import INSTRUCTOR_SOCKET, SOCKET
from drills.proof.signing import private
from drills.session import Answer
from drills.sheet.daily import CHOSEN, tells_seed
from drills.sheet.drill import Drill
from testbed.base.errors import InputError, MachineError, UserError
from testbed.machine import ownership
from testbed.machine.jsonlines import JsonLines

_CHECKOUT = Path(__file__).resolve().parents[2]
DRILLS = Path("results/drills")


class Remote:
    """A `Session` whose drill is held by its server."""

    path = SOCKET

    def __init__(self, fabric: str, token: str | None = None, instructor: str = "") -> None:
        self.instructor = instructor
        """The instructor's token, known only to who has started the drill."""
        try:
            self._lines = JsonLines.to(ownership.RUN_DIR / fabric / self.path)
        except OSError as error:
            raise UserError(
                f"the drill on fabric {fabric} does not answer: {error.strerror}", hint="testbed clean"
            ) from None
        self.fabric = fabric
        self.log: str | None = None
        self._token = token

    def _ask(self, op: str, **arguments: Any) -> Any:
        try:
            self._lines.send({"op": op, "token": self._token, **arguments})
            return self._answer()
        except KeyboardInterrupt:
            self._lines.send({"op": "interrupt", "token": self._token})
            return self._answer()
        except OSError:
            raise _ended(self.fabric) from None
        except SystemExit:  # the answer would be taken for that of the next request
            self._lines.close()
            raise

    def _answer(self) -> Any:
        while (answer := self._lines.next()) is None:
            if not self._lines.receive():
                raise _ended(self.fabric)
        if "error" in answer:
            error = answer["error"]
            raise InputError(error["what"], error["where"], error["hint"])
        return answer["brought"]

    def command(self, line: str, page: bool = False) -> Answer:
        fields = self._ask("command", line=line, page=page)
        self.log = fields.pop("log", self.log)
        return Answer(**fields)

    def ticket(self) -> dict[str, Any]:
        return dict(self._ask("ticket"))

    def state(self) -> dict[str, Any]:
        return dict(self._ask("state"))

    def transcript(self) -> list[dict[str, Any]]:
        """What the player has typed, and what was answered."""
        return list(self._ask("transcript"))

    def complete(self, line: str) -> list[str]:
        return list(self._ask("complete", line=line))

    def interrupt(self) -> None:
        """Ends a command that another thread waits for sooner."""
        with suppress(OSError):
            self._lines.send({"op": "interrupt", "token": self._token})

    def leave(self) -> None:
        """Goes away; the drill goes on, unless it is sealed."""
        self._lines.close()

    def close(self) -> None:
        """Ends the drill, and takes its fabric down."""
        try:
            self._ask("close")
        finally:
            self.leave()


class Desk(Remote):
    """The instructor's end."""

    path = INSTRUCTOR_SOCKET

    def watch(self, since: int = 0) -> dict[str, Any]:
        """What is true, how it stands, and the transcript from that number on."""
        return dict(self._ask("watch", since=since))

    def fork(self) -> Remote:
        """The same world once more, up to now, held by a server of its own. Raises UserError."""
        game = self._ask("fork")
        log = DRILLS / f"{datetime.now():%Y%m%d-%H%M%S}-{game['seed']}-fork-{secrets.token_hex(2)}.log"
        return _begun({**game, "exam": False, "out": os.path.abspath(log), "shown": str(log)})


def _ended(fabric: str) -> UserError:
    return UserError(f"the drill on fabric {fabric} has ended", hint="testbed drill start ID begins one; testbed clean")


def start(
    drill: Drill,
    seed: str,
    *,
    healthy: bool | None = None,
    exam: bool = False,
    player: str = "",
    seed_by: str = CHOSEN,
    out: str | None = None,
    sign: str | None = None,
) -> Remote:
    """Starts a drill's server, and returns when the world stands at the player's first moment. `sign`: the file of the
    key that its log is signed with. Raises UserError."""
    if sign:
        private(Path(sign))
    named = seed if tells_seed(exam=exam, seed_by=seed_by) else "sealed" if exam else secrets.token_hex(2)
    log = Path(out) if out else DRILLS / f"{datetime.now():%Y%m%d-%H%M%S}-{named}.log"
    if log.exists():
        raise InputError("there is a file of this name already", str(log), "name another one with --out")
    game = {
        "text": drill.text, "name": drill.place(), "id": drill.id, "directory": os.path.abspath(drill.directory),
        "seed": seed, "healthy": healthy, "exam": exam, "player": player, "seed_by": seed_by,
        "out": os.path.abspath(log), "shown": str(log), "sign": os.path.abspath(sign) if sign else None,
    }  # fmt: skip
    return _begun(game)


def _begun(game: dict[str, Any]) -> Remote:
    """Starts a server with what it plays."""
    process = subprocess.Popen(
        [sys.executable, "-P", "-m", "drills.play.drilld"],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, start_new_session=True,
        env={**os.environ, "PYTHONPATH": str(_CHECKOUT)},
    )  # fmt: skip
    assert process.stdin and process.stdout
    try:
        process.stdin.write(json.dumps(game).encode() + b"\n")
        process.stdin.close()
        said = process.stdout.readline()
    except BaseException:
        process.terminate()
        process.wait()
        raise
    finally:
        process.stdout.close()
    if not said:
        raise MachineError(f"the drill's server has ended with code {process.wait()}", hint="testbed doctor")
    ready = json.loads(said)
    if "error" in ready:
        process.wait()
        raise UserError.of(ready["error"])
    process.returncode = 0  # it is no child to wait for: it outlives us
    return Remote(ready["fabric"], ready["token"], ready["instructor"])


def newest_log() -> Path:
    """Raises InputError."""
    logs = sorted(DRILLS.glob("*.log"), key=lambda path: path.stat().st_mtime)
    if not logs:
        raise InputError("there is no log of a drill", str(DRILLS), "testbed drill start ID plays one")
    return logs[-1]


def going_on() -> Iterator[ownership.Record]:
    """The fabrics on which there is a drill now."""
    for record in ownership.fabrics():
        if record.drill and record.state == "alive" and (record.dir / SOCKET).exists():
            yield record


def connect(fabric: str | None = None) -> Remote:
    """The drill on this fabric, or the only one there is. Raises UserError."""
    return Remote(which(fabric))


def which(fabric: str | None = None) -> str:
    """The fabric of this drill, or of the only one there is. Raises UserError."""
    records = [record for record in going_on() if fabric in (None, record.id)]
    if len(records) == 1:
        return records[0].id
    if not records:
        what = f"there is no drill on fabric {fabric}" if fabric else "no drill is on"
        raise InputError(what, "command line" if fabric else "", "testbed drill start ID begins one")
    ids = ", ".join(record.id for record in records)
    raise UserError("several drills are on: say which", hint=f"such as --fabric {records[0].id} ({ids})", exit_code=2)
