"""An agent for tests: an MCP client on its stdin and stdout that lets 60 us pass and says that all is well."""

from __future__ import annotations

import anyio
from mcp import ClientSession
from mcp.server.stdio import stdio_server


async def play() -> None:
    async with stdio_server() as ends, ClientSession(*ends) as client:
        await client.initialize()
        await client.call_tool("advance", {"us": 60})
        await client.call_tool("submit", {"answer": "healthy"})


if __name__ == "__main__":
    anyio.run(play)
