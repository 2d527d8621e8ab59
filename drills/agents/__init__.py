"""Drills for programs: tools as JSON lines or by MCP, benchmarks of agents."""
