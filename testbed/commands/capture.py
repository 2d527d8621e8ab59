"""`testbed capture`: what goes by at a port of a live fabric."""

from __future__ import annotations

import click

from testbed.commands._entries import LazyCommand


def _made() -> click.Command:
    from testbed.commands import _tools

    return _tools.command("capture")


_ABOUT = """Capture what goes by at a port or NIC of a live fabric.

\b
Examples:
  testbed capture rail0:1 --for 2us
  testbed capture nic:3 --filter 'roce and ce'
"""
command = LazyCommand("capture", _ABOUT, _made)
