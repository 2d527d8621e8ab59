"""`testbed capture`: what goes by at a port of a live fabric."""

from __future__ import annotations

import click

from testbed.commands._entries import Later


def _made() -> click.Command:
    from testbed.commands import _tools

    return _tools.command("capture")


command = Later("capture", "Capture what goes by at a port or NIC of a live fabric.", _made)
