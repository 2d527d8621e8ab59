"""The controller's connection to fabricd's control socket (docs/fabricd-protocol.md).

A reader of its own connects, subscribes, and hands over what arrives, all messages that came together in one call:
ports of one switch that fails go down together and are routed around at once.  A lost connection is opened again.
"""

from __future__ import annotations

import json
import logging
import socket
from collections.abc import Callable
from typing import Any

from controllers.offload.jobs import Placement
from controllers.openflow.compat import hub

RETRY_S = 0.2
SUBSCRIBE = 0  # the id of that request


class FabricdLink:
    """Receives fabricd's messages and answers events.  `deliver` gets lists of messages, in the reader's thread."""

    def __init__(self, path: str, deliver: Callable[[list[dict[str, Any]]], None], log: logging.Logger) -> None:
        self._path = path
        self._deliver = deliver
        self._log = log
        self._socket: socket.socket | None = None

    def run(self) -> None:
        """Stay connected, for ever."""
        unreachable = False
        while True:
            try:
                with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as connection:
                    connection.connect(self._path)
                    self._log.info("fabricd: connected")
                    unreachable = False
                    self._socket = connection
                    self._send({"id": SUBSCRIBE, "op": "subscribe", "settles": True, "acts": "controller"})
                    self._read(connection)
                    self._log.warning("fabricd: connection closed")
            except OSError as error:
                if not unreachable:
                    self._log.warning("fabricd: %s: %s; trying again", self._path, error.strerror)
                unreachable = True
            self._socket = None
            hub.sleep(RETRY_S)

    def settled(self, event: Any, placement: Placement | None = None, unconfirmed: str = "") -> None:
        """Tell fabricd that the rules for this event are in; for a job also what it is granted, and its programs.

        `unconfirmed` says why old rules may still be in force.
        """
        try:
            for program in placement.programs if placement else []:
                self._send(program)
            doubt = {"unconfirmed": unconfirmed} if unconfirmed else {}
            self._send({"op": "settled", "event": event, **doubt, **({"job": placement.answer} if placement else {})})
        except OSError as error:
            self._log.warning("fabricd: event %s not answered: %s", event, error.strerror)

    def moved(self, job: int, why: str) -> None:
        """Tell fabricd that a job's tree cannot stay as it is: its ranks are to ask for another."""
        try:
            self._send({"op": "job_moved", "job": job, "why": why})
        except OSError as error:
            self._log.warning("fabricd: job %s not moved: %s", job, error.strerror)

    def note(self, level: str, text: str) -> None:
        """Have fabricd keep a line of what an operator reads in a controller's log, with the emulated time."""
        try:
            self._send({"op": "note", "who": "controller", "level": level, "text": text})
        except OSError as error:
            self._log.warning("fabricd: not noted: %s", error.strerror)

    def pong(self) -> None:
        """Answer fabricd's ping; called by the application's event loop, so that it proves that this works."""
        try:
            self._send({"op": "pong"})
        except OSError as error:
            self._log.warning("fabricd: ping not answered: %s", error.strerror)

    def _send(self, message: dict[str, Any]) -> None:
        if self._socket is not None:
            self._socket.sendall(json.dumps(message).encode() + b"\n")

    def _read(self, connection: socket.socket) -> None:
        rest = b""
        while data := connection.recv(1 << 16):
            *lines, rest = (rest + data).split(b"\n")
            messages = [m for m in map(self._parse, lines) if m is not None]
            if messages:
                self._deliver(messages)

    def _parse(self, line: bytes) -> dict[str, Any] | None:
        try:
            message = json.loads(line)
        except ValueError:
            message = None
        if not isinstance(message, dict):
            self._log.warning("fabricd: not a message: %.200r", line)
            return None
        return message
