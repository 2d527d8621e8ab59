"""Commands to ovs-vswitchd: all are asked before the first answer is waited for."""

from __future__ import annotations

import json
import os
import socket
import threading
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from controllers.openflow import vswitchd

NAMES = [f"br{n}" for n in range(25)]


class Daemon:
    """Answers when all of `NAMES` have been asked for, in pieces that cut answers anywhere."""

    def __init__(self, path: Path, says: dict[str, str]) -> None:
        self.listener = socket.socket(socket.AF_UNIX)
        self.listener.bind(str(path))
        self.listener.listen(10)
        self.says = says
        self.thread = threading.Thread(target=self.serve)
        self.thread.start()

    def serve(self) -> None:
        asked: list[tuple[socket.socket, list[dict[str, object]]]] = []
        while sum(len(each) for _, each in asked) < len(NAMES):
            connection, _ = self.listener.accept()
            text = connection.recv(1 << 16).decode()
            calls = []
            while text:
                call, end = json.JSONDecoder().raw_decode(text)
                calls.append(call)
                text = text[end:]
            asked.append((connection, calls))
        for connection, calls in asked:
            said = "".join(self.answer(call) for call in calls).encode()
            with suppress(OSError):  # who has heard enough hangs up
                for at in range(0, len(said), 7):
                    connection.sendall(said[at : at + 7])
            connection.close()

    def answer(self, call: dict[str, object]) -> str:
        name = str(call["params"][0])  # type: ignore[index]
        refused = self.says.get(name)
        return refused or json.dumps({"id": call["id"], "result": f"{name} {{}} é", "error": None}, ensure_ascii=False)


@pytest.fixture
def control(tmp_path: Path) -> Iterator[Path]:
    yield tmp_path / "ctl"


def asked(control: Path, says: dict[str, str]) -> list[str]:
    daemon = Daemon(control, says)
    try:
        return vswitchd.commands(control, [("bridge/dump-flows", name) for name in NAMES])
    finally:
        daemon.thread.join()
        daemon.listener.close()


def test_all_are_asked_before_the_first_answer_is_read(control: Path) -> None:
    assert asked(control, {}) == [f"{name} {{}} é" for name in NAMES]


@pytest.mark.parametrize(
    ("said", "why"),
    [
        (json.dumps({"id": 3, "result": None, "error": "no such bridge"}), "no such bridge"),
        (json.dumps({"id": 9, "result": "", "error": None}), "'id': 9"),
        ("[1]", "not an answer"),
        ("nonsense}", "not an answer"),
        ("", "not an answer"),
    ],
)
def test_one_that_is_refused_or_no_answer_is_an_error(control: Path, said: str, why: str) -> None:
    with pytest.raises(vswitchd.CommandFailed, match=why):
        asked(control, {"br3": said or " "})


def test_nobody_is_there(control: Path) -> None:
    with pytest.raises(vswitchd.CommandFailed, match="No such file"):
        vswitchd.command(control, "version")


def test_patience_knows_the_process_and_decides_alone(control: Path) -> None:
    """It may take longer than by default, and is given up when the process is, for the reason that is told."""
    looks: list[int] = []

    def patience(pid: int) -> vswitchd.GivenUp:
        return lambda: looks.append(pid) or (None if len(looks) < 3 else "it is stopped")  # type: ignore[func-returns-value]

    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(control))
        listener.listen()
        with pytest.raises(vswitchd.CommandFailed, match="it is stopped"):
            vswitchd.commands(control, [("version",)], patience, timeout_s=0.01)
    assert looks == [os.getpid()] * 3
