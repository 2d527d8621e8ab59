"""Tools for a live fabric or a world: what takes emulated time. `TOOLS` has them by their words."""

from __future__ import annotations

from testbed.live.tools import capture, probe, programs, rdma
from testbed.live.tools.tool import Tool

TOOLS: dict[str, Tool] = {tool.words: tool for family in (probe, programs, rdma, capture) for tool in family.TOOLS}
