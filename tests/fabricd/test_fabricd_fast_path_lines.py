"""The fast path's connections to Open vSwitch, with a false control socket at their other end."""

from __future__ import annotations

import json
import os
import selectors
import signal
import socket
import time
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from tests.parts.fabricd_fixture import DEADLINE_S, wait_until
from tests.parts.fast_path import fast, rule, star
from tests.parts.timing_model import timed_write

LINES = 64
RETRY_S = 0.1
"""So long fabricd does not try again."""


def questions(lines: list[socket.socket], count: int) -> list[tuple[socket.socket, int]]:
    """The first of them, and on which line each has come."""
    found: list[tuple[socket.socket, int]] = []
    with selectors.DefaultSelector() as waiting:
        for line in lines:
            waiting.register(line, selectors.EVENT_READ)
        while len(found) < count:
            ready = waiting.select(DEADLINE_S)
            assert ready, f"{len(found)} of {count} questions came"
            for key, _ in ready:
                line = key.fileobj
                assert isinstance(line, socket.socket)
                asked = json.loads(line.recv(65536))
                assert asked["method"] == "ofproto/trace"
                found.append((line, asked["id"]))
    return found


def test_an_answer_after_which_the_lines_are_broken_and_made_anew(tmp_path: Path) -> None:
    """Changes of tables, read with the answer, ask for purges: the first finds a line closed, the second a new one."""
    with ExitStack() as stack:
        listener = stack.enter_context(socket.socket(socket.AF_UNIX))
        listener.settimeout(DEADLINE_S)
        listener.bind(str(tmp_path / "ovs-vswitchd.ctl"))
        (tmp_path / "ovs-vswitchd.ctl").chmod(0o777)
        tmp_path.chmod(0o711)
        listener.listen(4 * LINES)

        def false(config: dict[str, Any]) -> None:
            config["fast_path"]["ovs"] = str(tmp_path)

        f = stack.enter_context(star(change=false))
        told = f"{f.bridge('sw0')}.mgmt"
        os.link(f.switch.ovs.dir / told, tmp_path / told)
        rule(f, "in_port={h2},actions=drop")  # so that each port's frames are a flow
        pair = f.pair(0, 1)
        timed_write(pair, 8)
        lines = [stack.enter_context(listener.accept()[0]) for _ in range(LINES)]
        asked = questions(lines, 2)  # data, and what is acknowledged
        time.sleep(2 * RETRY_S)  # from now on it does
        os.kill(f.pid, signal.SIGSTOP)
        try:
            line, number = asked[0]
            line.sendall(json.dumps({"id": number, "result": "", "error": None}).encode())
            for priority in (1, 2, 3):
                added = f"priority={priority},dl_dst=02:00:00:00:00:99,actions=drop"
                f.switch.run("ovs-ofctl", "-OOpenFlow13", "add-flow", f.bridge("sw0"), added)
            f.switch.run("ovs-ofctl", "-OOpenFlow13", "dump-flows", f.bridge("sw0"))
            for other in lines:
                if other not in (line, asked[1][0]):
                    other.close()
        finally:
            os.kill(f.pid, signal.SIGCONT)
        wait_until(lambda: fast(f)["changed"] > 0, "the changes to be heard of")
        assert timed_write(pair, 8)[1].status == 0
        listener.accept()[0].close()  # it has connected anew
        pair.done()
