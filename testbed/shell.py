"""Mininet's command line on a live fabric: at a terminal, or fed with commands by a script."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable
from typing import Any

from mininet.cli import CLI
from mininet.log import error

from testbed.net import NO_KERNEL_INTERFACE, FabricNet, log_to_stdout

_NEEDS_INTERFACE = ("ping", "iperf", "iperf3", "ssh", "nc", "curl", "arping", "traceroute", "mtr")
_UNKNOWN_COMMAND = 127


class FabricCLI(CLI):
    """Mininet's own, which also says why programs of the network do nothing on a fabric with the virtual clock."""

    prompt = "testbed> "
    status = 0  # of the last command

    @classmethod
    def initReadline(cls) -> None:
        """Line editing without Mininet's history file."""
        import readline  # noqa: F401

    def default(self, line: str) -> None:
        first, args, _ = self.parseline(line)
        if first not in self.mn:
            self.status = _UNKNOWN_COMMAND
        elif not self.mn.kernel and first in (h.name for h in self.mn.hosts) and _program(args) in _NEEDS_INTERFACE:
            error(NO_KERNEL_INTERFACE + "\n")
            self.status = 1
            return
        super().default(line)

    def do_pingall(self, line: str) -> None:
        "Ping between all hosts."
        self.status = 1 if self.mn.pingAll(line) else 0

    def do_pingpair(self, _line: str) -> None:
        "Ping between first two hosts, useful for testing."
        self.status = 1 if self.mn.pingPair() else 0


class _Script(FabricCLI):
    """Runs commands one after the other; their input is empty."""

    def __init__(self, net: FabricNet) -> None:
        from cmd import Cmd
        from select import poll

        Cmd.__init__(self)
        self.mn = net
        self.locals = {"net": net}
        read, self._never_written = os.pipe()
        self.stdin = os.fdopen(read)
        self.inPoller = poll()
        self.inPoller.register(self.stdin)
        self.inputFile = None

    def default(self, line: str) -> None:
        self.status = 0
        super().default(_without_input(line))
        node = self.mn.nameToNode.get(self.parseline(line)[0])
        if node is not None and node.shell and not self.status:
            self.status = int(node.cmd("echo $?").strip() or 0)


def _without_input(line: str) -> str:
    """A node's command that finds the end of its input instead of waiting for a terminal's."""
    node, _, command = line.strip().partition(" ")
    if not command.strip():
        return line
    end = "" if command.rstrip().endswith(("&", ";")) else " ;"
    return f"{node} {{ {command}{end} }} < /dev/null"


def _program(args: str | None) -> str:
    words = (args or "").removeprefix("{ ").split(maxsplit=1)
    return os.path.basename(words[0]) if words else ""


def interact(net: FabricNet) -> None:
    """The command line at a terminal, until its user leaves it."""
    FabricCLI(net)


def run_commands(net: FabricNet, lines: Iterable[str]) -> int:
    """Runs commands; results go to stdout, errors to stderr. Returns the last exit code that is not 0."""
    log_to_stdout()
    cli: Any = _Script(net)
    code = 0
    for line in lines:
        cli.status = 0
        if cli.onecmd(cli.precmd(line.strip())):
            break
        sys.stdout.flush()
        code = cli.status or code
    return code
