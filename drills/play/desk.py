"""The instructor's socket of a drill's server: only here the truth is told, to whoever knows the token."""

from __future__ import annotations

import os
import secrets
from dataclasses import asdict
from pathlib import Path
from typing import Any

from drills.game import OVER
from drills.instructor import Instructor
from drills.replay import on_real_clock
from drills.sheet.daily import CHOSEN
from testbed.base.errors import InputError, UserError
from testbed.machine.jsonlines import JsonServer, ready

REFUSED = UserError(
    "that is not the code of this drill's instructor",
    "instruct",
    "`drill instruct` has shown it where the drill was started",
)
NOW = ("watch", "state", "complete", "interrupt")
"""What is answered while a command of the player's goes on; so is the line `pause`."""


class Desk:
    def __init__(self, instructor: Instructor, path: Path) -> None:
        self.instructor = instructor
        self.token = secrets.token_hex(8)
        self.server = JsonServer(path)

    def heed(self, *, busy: bool = False) -> None:
        """Does what is asked here; never waits. `busy`: a command of the player's goes on."""
        server = self.server
        server.hear(ready(server.files, 0), lambda client: None)
        for client in [*server.clients]:
            with server.talk(client):
                while (request := client.peek()) is not None and (not busy or _at_once(request)):
                    client.next()
                    if request.get("op") != "interrupt":  # nothing here takes long
                        client.send(self._answer(request))

    def _answer(self, request: dict[str, Any]) -> dict[str, Any]:
        if not secrets.compare_digest(str(request.get("token")).encode(), self.token.encode()):
            return {"error": REFUSED.to_dict()}
        self.instructor.game.instructed = True
        try:
            return {"brought": self._brought(request)}
        except UserError as error:
            return {"error": error.to_dict()}

    def _brought(self, request: dict[str, Any]) -> Any:
        game = self.instructor.game
        line = str(request.get("line", ""))
        match request.get("op"):
            case "command":
                return self.instructor.command(line).to_dict()
            case "complete":
                return self.instructor.complete(line)
            case "watch":
                since = request.get("since")
                return self.instructor.watch(since if isinstance(since, int) else 0)
            case "state":
                return game.state()
            case "ticket":
                return {**game.ticket(), "shown": game.ticket_text()}
            case "fork":
                if game.over:
                    raise InputError(OVER, "fork", "replay plays its log again")
                drill = game.case.drill
                if drill.on_real_clock:
                    raise on_real_clock("fork", "this drill")
                return {
                    "text": drill.text, "name": drill.place(), "id": drill.id,
                    "directory": os.path.abspath(drill.directory), "seed": game.case.seed,
                    "healthy": game.case.healthy, "player": game.player, "seed_by": CHOSEN,
                    "entries": [asdict(entry) for entry in game.entries if entry.acts],
                }  # fmt: skip
        raise InputError(f"there is no {request.get('op')!r:.40}", "instruct")


def _at_once(request: dict[str, Any]) -> bool:
    op = request.get("op")
    return op in NOW or (op == "command" and str(request.get("line")).strip() == "pause")
