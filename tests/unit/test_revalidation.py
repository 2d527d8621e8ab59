"""A cache that is not known to be empty is never taken for one: asked is the socket, and every other answer is said."""

from __future__ import annotations

import json
import os
import socket
import threading
from pathlib import Path

import pytest

from controllers.openflow.revalidation import NotPurged, purge
from results.figures.fidelity import virtual_clock
from testbed.doctor import needs
from testbed.doctor.findings import CHECKS


def answering(path: Path, answer: bytes | None) -> list[bytes]:
    """Somebody who listens there, takes one question and gives this answer (None: none). Returns what was asked."""
    server, asked = socket.socket(socket.AF_UNIX), []
    server.bind(str(path))
    server.listen()

    def serve() -> None:
        connection, _ = server.accept()
        with server, connection:
            asked.append(connection.recv(4096))
            if answer is not None:
                connection.sendall(answer)
            else:
                connection.recv(1)  # until the other end gives up

    threading.Thread(target=serve, daemon=True).start()
    return asked


def test_a_purge_is_asked_of_the_socket_and_confirmed(tmp_path: Path) -> None:
    asked = answering(tmp_path / "ctl", b'{"id": 0, "error": null, "result": ""}')
    purge(tmp_path / "ctl")
    assert json.loads(asked[0])["method"] == "revalidator/purge"


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        (b'{"id": 0, "error": "no such command", "result": null}', "no such command"),
        (b'{"id": 7, "error": null, "result": ""}', "'id': 7"),
        (b"nonsense", "not an answer"),
        (b"", "not an answer"),
        (None, "timed out"),
    ],
)
def test_anything_else_is_no_confirmation(answer: bytes | None, said: str, tmp_path: Path) -> None:
    answering(tmp_path / "ctl", answer)
    with pytest.raises(NotPurged, match=said):
        purge(tmp_path / "ctl", timeout_s=0.2)


def test_nobody_there_is_no_confirmation(tmp_path: Path) -> None:
    with pytest.raises(NotPurged, match="No such file"):
        purge(tmp_path / "ctl")
    with socket.socket(socket.AF_UNIX) as closed:
        closed.bind(str(tmp_path / "ctl"))
    with pytest.raises(NotPurged, match="refused"):
        purge(tmp_path / "ctl")


def test_it_is_in_the_verdict() -> None:
    verdict = virtual_clock({"frame_hops": 100, "rules_unconfirmed": 2})
    assert verdict.verdict == "doubtful"
    assert "did not confirm 2 time(s)" in verdict.reasons[0]


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root, which the doctor looks at Open vSwitch as")
def test_doctor_looks_whether_it_works(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(control: Path) -> None:
        raise NotPurged(f"{control}: timed out")

    monkeypatch.setattr(needs, "purge", fail)
    (check,) = (c for c in CHECKS if c.name == "open vswitch")
    finding = check()
    assert finding.status == "warn"
    assert "does not purge its flow cache" in finding.found
