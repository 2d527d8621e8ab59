"""The server of a drill: it alone has world, truth and log. It goes on when the terminal that has started it is gone.

What it plays comes on stdin, so that neither arguments nor environment give anything away. It ends when the drill is
over and nobody listens any more, when a sealed drill's player has left, or when its fabric is gone for whatever reason.
Killed, it leaves a dead fabric, which `testbed clean` removes: all processes of the fabric end with it.
"""

from __future__ import annotations

import json
import os
import secrets
import signal
import sys
import traceback
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from drills.game import Game
from drills.instructor import Instructor, Transcript
from drills.log import LogEntry
from drills.play.desk import Desk
from drills.play.wire import INSTRUCTOR_SOCKET, SOCKET
from drills.proof.signing import private
from drills.replay import again
from drills.session import Answer
from drills.sheet import file
from drills.sheet.case import Case
from drills.stage import DrillWorld, world_of
from hardware.client import FabricdError
from testbed.base.errors import UserError
from testbed.machine import jsonlines
from testbed.machine.jsonlines import JsonLines
from testbed.machine.ownership import mark_as_drill
from testbed.world.base import WorldGone

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

LOG = "drilld.log"
LOOK_S = 1.0
"""At least so often it looks whether its fabric is there."""
SHOWN_AGAIN = 200
"""So many lines, with their answers, a page gets that is opened anew."""
SPENT = "the budget is gone"
"""Stands in the transcript in place of a line: nobody has typed one."""
SEALED = UserError("this drill is sealed, and has its player", "drill", "start one of your own: testbed drill start")


def marked(case: Case) -> DrillWorld:
    """The world of a case; from here on other commands leave its fabric alone."""
    world: Any = world_of(case)
    mark_as_drill(world.lab.record)
    held: DrillWorld = world
    return held


class Server:
    def __init__(
        self, game: Game, out: Path, shown: str, token: str | None, key: Ed25519PrivateKey | None = None
    ) -> None:
        self.game = game
        self.out = out
        self.shown = shown  # the same, as the player calls it
        self.token = token
        self._key = key
        self.written = False
        self.reported = False  # whether the player knows how it has ended, and where the log is
        self.ended = False
        self._now: JsonLines | None = None  # whose command goes on
        self._player: JsonLines | None = None  # of a sealed drill
        self.transcript = Transcript()
        self.dir: Path = game.stage.world.lab.dir  # type: ignore[attr-defined]
        self._server = jsonlines.JsonServer(self.dir / SOCKET, self._left)
        self.desk = Desk(Instructor(game, self.transcript), self.dir / INSTRUCTOR_SOCKET)
        game.interrupted = self._interrupted

    def serve(self) -> None:
        """Until it is over and nobody listens."""
        ours, desk = self._server, self.desk.server
        world: Any = self.game.stage.world
        fabricd = world.lab.fabricd.fileno()
        while not self.ended and not (self.game.over and ours.met and not (ours.clients or desk.clients)):
            self.desk.heed()
            ours.hear(jsonlines.ready([fabricd, *ours.files, *desk.files], LOOK_S), self._hear)
            self.ended |= not self._there()
        ours.close()
        desk.close()

    def _there(self) -> bool:
        """Whether the fabric is there. Nothing of a game that has lost it counts."""
        world: Any = self.game.stage.world
        try:
            world.heed()
        except (WorldGone, FabricdError):
            return False
        if not self.game.over and self.game.budget_left_ns <= 0:  # on the real clock nobody need type for that
            self.transcript.add(SPENT, self.game.time_ns, self.game.command("status"))
            if self.game.gone:
                return False
            self._write()
        return (self.dir / SOCKET).exists()

    def _hear(self, client: JsonLines) -> None:
        while (request := client.next()) is not None:
            self._now = client
            try:
                answer = self._answered(client, request)
            finally:
                self._now = None
            if answer is not None:
                client.send(answer)

    def _left(self, client: JsonLines) -> None:
        if client is self._player and self.token and not self.game.over:
            self._give_up()

    def _answered(self, client: JsonLines, request: dict[str, Any]) -> dict[str, Any] | None:
        """A mistake of ours is an error of that line, not the end of a game."""
        try:
            return self._answer(client, request)
        except Exception as error:
            traceback.print_exc()
            what = f"that cannot be answered: {type(error).__name__}: {error}"
            return {"error": UserError(what[:400], "drill", f"the game goes on; {LOG} has more").to_dict()}

    def _answer(self, client: JsonLines, request: dict[str, Any]) -> dict[str, Any] | None:
        op = request.get("op")
        if self.token:
            if request.get("token") != self.token:
                return {"error": SEALED.to_dict()}
            self._player = client
        if op == "interrupt":
            return None
        if op == "command":
            return {"brought": self._command(str(request.get("line", "")), request.get("page") is True)}
        if op == "ticket":
            return {"brought": {**self.game.ticket(), "shown": self.game.ticket_text()}}
        if op == "state":
            return {"brought": self.game.state()}
        if op == "transcript":
            return {"brought": [row for row in self.transcript.since(0)[1] if not row["by"]][-SHOWN_AGAIN:]}
        if op == "complete":
            return {"brought": self.game.complete(str(request.get("line", "")))}
        if op == "close":
            if self.token and not self.game.over:  # an exam leaves its log, however it ends
                self._give_up()
            self.ended = True
            return {"brought": None}
        return {"error": UserError(f"there is no {op!r:.40}", "drill").to_dict()}

    def _command(self, line: str, page: bool) -> dict[str, Any]:
        began, entries = self.game.time_ns, len(self.game.entries)
        unreported = self.game.over and not self.reported  # it has ended while he typed nothing
        brought = self.game.command(line, page)
        if unreported and not brought.ok and (ending := self.game.ending):
            brought = Answer(True, brought.time_ns, ending.text, ending.to_dict())
        if not page or any(entry.by != "page" for entry in self.game.entries[entries:]):
            self.transcript.add(line, began, brought)  # a page's looks are not the player's
        answer = dict(brought.to_dict())
        if self.game.gone:
            self.ended = True
        elif self.game.over and not self.reported:
            self.reported = True
            self._write()
            case = self.game.case
            answer["text"] += (
                f"\nit was {case.drill.id}, seed {case.seed}\nhow it went: testbed drill report {self.shown}"
            )
            if not case.drill.on_real_clock:
                answer["text"] += f"; played again by: testbed drill replay {self.shown}"
            answer["log"] = str(self.out)
        return answer

    def _give_up(self) -> None:
        self.game.command("give-up")
        if self.game.over:  # else the world has died
            self._write()
        self.ended = True

    def _write(self) -> None:
        if not self.written:
            self.written = True
            self.game.log().write(self.out, self._key)

    def _interrupted(self) -> bool:
        """Whether the client who waits wants it to stop, or is gone, or the instructor stops everybody."""
        self.desk.heed(busy=True)
        if self.game.paused:
            return True
        client = self._now
        if client is None or not jsonlines.ready([client], 0):
            return False
        try:
            if client.receive():
                if (request := client.peek()) is None or request.get("op") != "interrupt":
                    return False
                client.next()
        except (OSError, ValueError):
            pass
        return True


def main() -> None:
    played = json.loads(sys.stdin.readline())
    signal.signal(signal.SIGTERM, _stop)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        key = private(Path(played["sign"])) if played.get("sign") else None
        drill = file.loads(played["text"], played["name"], Path(played["directory"]), id=played["id"])
        game = Game.start(
            Case.of(drill, played["seed"], played["healthy"]), exam=played["exam"], player=played["player"],
            seed_by=played["seed_by"], up=marked,
        )  # fmt: skip
        _played_before(game, played.get("entries", ()))
    except UserError as error:
        _say({"error": error.carried()})
        return
    try:
        token = secrets.token_hex(16) if played["exam"] else None
        server = Server(game, Path(played["out"]), played["shown"], token, key)
        os.chdir("/")
        (server.dir / "sealed").write_bytes(game.seal.box())
        with _quiet_afterwards(server.dir / LOG):
            _say({"fabric": server.dir.name, "code": game.code, "token": token, "instructor": server.desk.token})
        server.serve()
    except SystemExit:
        raise
    except BaseException:
        traceback.print_exc()
    finally:
        game.close()


def _played_before(game: Game, entries: Sequence[dict[str, Any]]) -> None:
    """Of a fork: what was done until then. Raises UserError, and takes the game down."""
    for fields in entries:
        entry = LogEntry(**fields)
        if differs := again(game, entry)[1]:
            game.close()
            raise UserError(f"played again it is another game: {entry.line}: {differs}", "fork")


def _say(line: dict[str, Any]) -> None:
    print(json.dumps(line), flush=True)


@contextmanager
def _quiet_afterwards(log: Path) -> Iterator[None]:
    """From then on nobody reads what we print."""
    null = os.open(os.devnull, os.O_RDWR)
    out = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
    yield
    for fd, to in ((0, null), (1, null), (2, out)):
        os.dup2(to, fd)


def _stop(number: int, _frame: object) -> None:
    raise SystemExit(128 + number)


if __name__ == "__main__":
    main()
