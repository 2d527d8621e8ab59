"""A small experiment, and scripts of its workers for the fake lab."""

from __future__ import annotations

from tests.parts.fake_lab import Script, result_line

EXPERIMENT = """
name: small
fabric: {topology: {ring: {nodes: 3}}}
workload:
  - {collective: all_reduce, sizes: [1KiB], iterations: 2}
"""
DONE = """print('{"kind": "done"}', flush=True)\n"""


def whole(rank: int) -> Script:
    """A worker that does its part: 2 iterations."""
    return result_line(rank, end=2000 + rank / 2) + result_line(rank, iteration=1, start=3000, end=5000.125) + DONE
