"""Programs that play drills on real worlds: by JSON lines, by MCP, killed."""

from __future__ import annotations

import json
import os
import secrets
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest

from drills import log as logs
from drills.agents.tools import TOOLS
from drills.sheet import file
from drills.sheet.case import healthy_by_seed
from testbed.machine import ownership
from testbed.machine.processes import wait_for
from tests.parts.drills import clos

MARK = "RAILBED_TEST_OF_AGENTS"
TEXT = clos(0.2) + "budget: {emulated: 2ms, answers: 1}\n"


@pytest.fixture
def words(tmp_path: Path) -> list[str]:
    """A drill to be served, in which something is wrong."""
    path = tmp_path / "small.yaml"
    path.write_text(TEXT)
    seed = next(seed for seed in ("7Q4", "7Q5", "7Q6") if not healthy_by_seed(file.load(str(path)), seed))
    out = str(tmp_path / "game.log")
    return [sys.executable, "-m", "testbed", "drill", "serve", str(path), "--seed", seed, "--out", out]


@contextmanager
def served(words: list[str]) -> Iterator[subprocess.Popen[str]]:
    pipe = subprocess.PIPE
    env = {**os.environ, MARK: secrets.token_hex(4)}
    process = subprocess.Popen([*words, "--jsonl"], stdin=pipe, stdout=pipe, stderr=pipe, text=True, env=env)
    try:
        yield process
    finally:
        process.kill()
        process.communicate()


def ask(process: subprocess.Popen[str], line: str) -> dict[str, Any]:
    assert process.stdin and process.stdout
    process.stdin.write(f"{line}\n")
    process.stdin.flush()
    answer: dict[str, Any] = json.loads(process.stdout.readline())
    return answer


def fabric_of(process: subprocess.Popen[str]) -> ownership.Record:
    """That of its drill: the drill's server has its mark."""
    (mark,) = marks(process.pid)
    (found,) = [one for one in ownership.fabrics() if one.owner and mark in marks(one.owner.pid)]
    return found


def marks(pid: int) -> list[bytes]:
    with suppress(OSError):  # it has just ended
        said = Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
        return [one for one in said if one.startswith(MARK.encode())]
    return []


def test_by_json_lines_to_the_end(words: list[str], tmp_path: Path) -> None:
    with served(words) as process:
        ticket = json.loads(ask(process, '{"tool": "ticket", "form": "json"}')["text"])
        assert ticket["seed"] is None and ticket["drill"] == ticket["sealed"][:8]
        record = fabric_of(process)
        assert not ask(process, '{"tool": "show", "arguments": {"view": "faults"}}')["ok"]
        assert "leaf0:1" in ask(process, '{"tool": "show", "arguments": {"view": "interfaces counters"}}')["text"]
        began = ask(process, "no JSON")["time_ns"]
        assert ask(process, '{"tool": "advance", "arguments": {"us": 20}}')["time_ns"] == began + 20_000
        assert ask(process, '{"tool": "probe", "arguments": {"kind": "lat", "a": 0, "b": 1}}')["ok"]
        assert "SCORE" in ask(process, '{"tool": "submit", "arguments": {"answer": "loss@cable:leaf0-spine0"}}')["text"]
        out, errors = process.communicate(timeout=60)
        assert (process.returncode, out) == (0, "") and f"log: {tmp_path / 'game.log'}" in errors
    assert wait_for(lambda: not record.dir.exists(), 60)
    assert logs.read(tmp_path / "game.log").head["exam"] is True


def test_killed_it_leaves_nothing(words: list[str], tmp_path: Path) -> None:
    with served(words) as process:
        assert ask(process, '{"command": "status"}')["ok"]
        record = fabric_of(process)
        process.kill()
    assert wait_for(lambda: not record.dir.exists(), 60)
    assert logs.read(tmp_path / "game.log").end["score"]["total"] == 0.0


def test_by_the_official_mcp_client_to_the_end(words: list[str], tmp_path: Path) -> None:
    pytest.importorskip("mcp", reason="needs the Python package mcp (requirements-dev.lock has it)")
    import anyio
    from mcp import ClientSession, StdioServerParameters, stdio_client

    async def play() -> None:
        server = StdioServerParameters(command=words[0], args=[*words[1:], "--mcp"])
        async with stdio_client(server) as ends, ClientSession(*ends) as client:
            told = await client.initialize()
            assert "time_ns" in (told.instructions or "")
            assert [tool.name for tool in (await client.list_tools()).tools] == [tool.name for tool in TOOLS]

            async def call(name: str, **given: Any) -> dict[str, Any]:
                result = await client.call_tool(name, given)
                answer: dict[str, Any] = json.loads(result.content[0].text)  # type: ignore[union-attr]
                assert result.is_error != answer["ok"]
                return answer

            assert "TICKET" in (await call("ticket"))["text"]
            assert "1 leaf0:2" in (await call("topology"))["text"]
            began = (await call("job"))["time_ns"]
            assert not (await call("config", command="interface shutdown leaf9:1"))["ok"]
            assert (await call("advance", us=20))["time_ns"] == began + 20_000
            assert "SCORE" in (await call("submit", answer="loss@cable:leaf0-spine0"))["text"]

    anyio.run(play)
    assert wait_for(lambda: (tmp_path / "game.log").exists(), 60)
