"""The tools as an MCP server, by the official package (the extra `agents`).

An answer's text is the very line that JSON lines have.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from typing import IO, Any

from drills.agents.desk import AgentSession
from drills.agents.tools import TOOLS
from testbed.base.errors import MachineError

NAME = "railbed-drill"
ABOUT = (
    "A training job on an emulated AI fabric is not well, or all is well and somebody complains for nothing. Find out, "
    "mend it if the ticket asks for it, and submit what it was. The world stands still but for the tools that take "
    "emulated time; every answer has it as time_ns. Long answers have `next`: call any tool with it as `cursor`."
)


def require_mcp() -> None:
    """Raises MachineError if the package is not there."""
    try:
        import mcp.server  # noqa: F401
    except ImportError:
        raise MachineError(
            "the MCP server needs the package mcp, version 2, which is not installed",
            hint=f"{sys.executable} -m pip install 'mcp>=2,<3'; --jsonl has the same tools without it",
        ) from None


def serve(
    desk: AgentSession, ends: tuple[IO[str], IO[str]] | None = None, after: Callable[[], None] = lambda: None
) -> None:
    """On these ends (to read, to write), or on stdin and stdout, until nobody is at the other one."""
    import anyio
    from mcp.server.stdio import stdio_server

    server = server_of(desk, after)

    async def run() -> None:
        async with stdio_server(*map(anyio.wrap_file, ends or ())) as (reads, writes):
            await server.run(reads, writes, server.create_initialization_options())

    try:
        anyio.run(run)
    except* OSError:  # nobody reads the answers
        pass


def server_of(desk: AgentSession, after: Callable[[], None] = lambda: None) -> Any:
    """`after` is called behind each answer."""
    import mcp_types as types
    from mcp.server import Server

    async def list_tools(_: Any, __: Any) -> Any:
        listed = [types.Tool(name=t.name, description=t.about, input_schema=t.schema()) for t in TOOLS]
        return types.ListToolsResult(tools=listed)

    async def call_tool(_: Any, params: Any) -> Any:
        # one at a time, and in this thread: a world's helpers end with the thread that has brought it up
        line = desk.ask({"tool": params.name, "arguments": params.arguments})
        after()
        failed = not json.loads(line)["ok"]
        return types.CallToolResult(content=[types.TextContent(type="text", text=line)], is_error=failed)

    return Server(NAME, instructions=ABOUT, on_list_tools=list_tools, on_call_tool=call_tool)
