"""A transaction on Open vSwitch's database (RFC 7047), over its socket.

ovs-vsctl looks through all there is for each port that it adds: of a thousand ranks that would be a tenth of the run.
"""

from __future__ import annotations

import json
import socket
import subprocess
import time
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from typing import Any

DATABASE = "Open_vSwitch"
_LISTENS_S = 30.0
_PAUSE_S = 0.002
_CHUNK = 1 << 18

Operation = dict[str, Any]


def named(number: int) -> list[str]:
    """A row that the same transaction inserts with `uuid-name` r<number>."""
    return ["named-uuid", f"r{number}"]


def set_of(values: Iterable[Any]) -> list[Any]:
    return ["set", list(values)]


class Transaction:
    """Operations that have been sent, by the calls of subprocess.Popen that wait for a command's end.

    With `settle` it has ended as soon as ovs-vswitchd has carried out what the database says; errors are those of the
    ports that it could not set up.
    """

    def __init__(self, database: Path, operations: list[Operation], *, settle: bool) -> None:
        self.returncode: int | None = None
        self._socket = _connected(database)
        self._text, self._sent = "", 0
        self.results: list[dict[str, Any]] = []
        self._errors = ""
        self._wanted: int | None = None
        self._settle = settle
        self._interfaces = {one["row"]["name"] for one in operations if one.get("table") == "Interface"}
        if settle:
            bump: list[Any] = [["next_cfg", "+=", 1]]
            operations = [
                *operations,
                {"op": "mutate", "table": DATABASE, "where": [], "mutations": bump},
                {"op": "select", "table": DATABASE, "where": [], "columns": ["next_cfg", "cur_cfg"]},
            ]
        self._ask(operations)

    def communicate(self, timeout: float) -> tuple[str, str]:
        """Returns what went wrong, "" if nothing did. Raises TimeoutExpired if it has not ended by then."""
        end = time.monotonic() + timeout
        try:
            while self.returncode is None:
                self._socket.settimeout(max(0.001, end - time.monotonic()))
                self._heard(self._answer())
        except TimeoutError:
            raise subprocess.TimeoutExpired("Open vSwitch's database", timeout) from None
        except (OSError, ValueError) as error:
            self._end(f"its database cannot be asked: {error}")
        return "", self._errors

    def kill(self) -> None:
        self._socket.close()

    def _heard(self, answer: dict[str, Any]) -> None:
        results = answer["result"] or []
        wrong = [one for one in [answer, *results] if one and one.get("error")]
        if self._wanted is None:
            if wrong:
                self._end("; ".join(f"{one['error']}: {one.get('details', '')}" for one in wrong))
            elif not self._settle:
                self.results = results
                self._end()
            else:
                (row,) = results[-1]["rows"]
                self._wanted = row["next_cfg"]
                self._wait(row["cur_cfg"])
        elif "rows" in results[0]:
            bad = [row for result in results for row in result["rows"] if row["name"] in self._interfaces]
            said = (row["error"] if isinstance(row["error"], str) else "its log says why" for row in bad)
            self._end("".join(f"Error detected at {row['name']}: {why}\n" for row, why in zip(bad, said, strict=True)))
        else:
            (row,) = results[-1]["rows"] if len(results) > 1 and not wrong else [{"cur_cfg": self._seen}]
            self._wait(row["cur_cfg"])

    def _wait(self, seen: int) -> None:
        """For another `cur_cfg`; when it is the wanted one, the interfaces without a port number are asked for."""
        self._seen = seen
        if self._wanted is not None and seen >= self._wanted:
            columns = {"op": "select", "table": "Interface", "columns": ["name", "error"]}
            self._ask([{**columns, "where": [["ofport", "==", none]]} for none in (-1, set_of(()))])
            return
        until = {"columns": ["cur_cfg"], "until": "!=", "rows": [{"cur_cfg": seen}]}
        self._ask(
            [
                {"op": "wait", "table": DATABASE, "where": [], "timeout": 1000, **until},
                {"op": "select", "table": DATABASE, "where": [], "columns": ["cur_cfg"]},
            ]
        )

    def _ask(self, operations: list[Operation]) -> None:
        self._sent += 1
        request = {"method": "transact", "params": [DATABASE, *operations], "id": self._sent}
        self._socket.settimeout(_LISTENS_S)
        self._socket.sendall(json.dumps(request).encode())

    def _answer(self) -> dict[str, Any]:
        """The next answer to us; messages follow each other without anything between."""
        while True:
            with suppress(json.JSONDecodeError):
                message, end = json.JSONDecoder().raw_decode(self._text)
                self._text = self._text[end:].lstrip()
                if message.get("id") == self._sent and "result" in message:
                    return dict(message)
                continue
            if not (data := self._socket.recv(_CHUNK)):
                raise ValueError("the connection is closed")
            self._text += data.decode()

    def _end(self, errors: str = "") -> None:
        self._errors, self.returncode = errors, int(bool(errors))
        self._socket.close()


def _connected(database: Path) -> socket.socket:
    """Its socket is there as soon as ovsdb-server has begun, and listens a moment later."""
    end = time.monotonic() + _LISTENS_S
    while True:
        connection = socket.socket(socket.AF_UNIX)
        try:
            connection.connect(str(database))
            return connection
        except OSError:
            connection.close()
            if time.monotonic() > end:
                raise
            time.sleep(_PAUSE_S)
