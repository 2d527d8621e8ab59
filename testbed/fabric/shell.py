"""Mininet's command line on a live fabric: at a terminal, or fed with commands by a script."""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from mininet.cli import CLI
from mininet.log import error, output

from testbed.fabric.mininet_output import log_to_stdout, nobody_reads
from testbed.fabric.net import MOST_NAMES, NO_KERNEL_INTERFACE, FabricNet, listed
from workloads.base import named_file

MOST_SCRIPT_BYTES = 1 << 20

_NEEDS_INTERFACE = ("ping", "iperf", "iperf3", "ssh", "nc", "curl", "arping", "traceroute", "mtr")
_UNKNOWN_COMMAND = 127
_GROUPS = ("show", "probe")
"""Verbs whose commands have options, and not they."""


def _verb(verb: str, about: str) -> Callable[[CLI, str], None]:
    """A verb of `testbed` for this fabric, in a process of its own."""

    def do(self: Any, line: str) -> None:
        try:
            words = shlex.split(line)
        except ValueError as wrong:
            self._refuse(f"{str(wrong).lower()}: {verb} {line}")
            return
        at = [] if any(word in ("-h", "--help") for word in words) else ["--fabric", self.mn.id]
        told = [*words, *at] if verb in _GROUPS else [*at, *words]
        self.status = subprocess.run([sys.executable, "-P", "-m", "testbed", verb, *told]).returncode

    do.__doc__ = about
    return do


class FabricCLI(CLI):
    """Mininet's own, and verbs of `testbed`. `link` is a fault; errors say what there is, and end with a status that is
    not 0."""

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
            nodes = listed([*self.mn], MOST_NAMES)
            error(f"there is no command and no node {line.split()[0]!r}: `help` lists the commands; nodes: {nodes}\n")
            return
        if not args:
            self._refuse(f"what is {first} to do? Such as: {first} hostname")
            return
        if not self.mn.kernel and first in (h.name for h in self.mn.hosts) and _program(args) in _NEEDS_INTERFACE:
            self._refuse(NO_KERNEL_INTERFACE)
            return
        super().default(line)

    def onecmd(self, line: str) -> bool:
        self.status = 0
        return bool(super().onecmd(line))

    def _refuse(self, why: str) -> None:
        error(why + "\n")
        self.status = 1

    def _are_nodes(self, *names: str) -> bool:
        """Whether all of these are nodes; prints an error if not."""
        self.status = 0 if self.mn.knows(*names) else 1
        return not self.status

    do_show = _verb("show", "What the fabric counts and is: show pfc")
    do_config = _verb("config", "What an operator does: config interface shutdown rail0:1")
    do_inject = _verb("inject", "Put a fault in: inject loss --on nic:1 --rate 0.01")
    do_heal = _verb("heal", "Take faults out again: heal all")
    do_probe = _verb("probe", "Measure between ranks: probe lat 0 1")
    do_capture = _verb("capture", "What goes by at a port: capture nic:0 --for 20us")

    def do_link(self, line: str) -> None:
        "Cut or mend the cable between two nodes, as the fault that it is: link NODE NODE down|up"
        ends, state = line.split()[:-1], line.split()[-1:]
        if len(ends) != 2 or state[0] not in ("up", "down"):
            self._refuse("usage: link NODE NODE down|up")
        elif not self.mn.configLinkStatus(*ends, state[0]):
            self.status = 1

    def do_links(self, _line: str) -> None:
        "List the cables, and which are down."
        down = self.mn.cables.down()
        for link in self.mn.links:
            ok = link.status() if self.mn.kernel else "(OK)"
            output(f"{link} {f'(down: fault {down[link.cable]})' if link.cable in down else ok}\n")

    def do_switch(self, line: str) -> None:
        "Start or stop the bridge of a switch: switch NAME start|stop"
        words = line.split()
        names = [s.name for s in self.mn.switches]
        if len(words) != 2 or words[1] not in ("start", "stop"):
            self._refuse("usage: switch NAME start|stop")
        elif words[0] not in names:
            self._refuse(f"there is no switch {words[0]!r}: there are {listed(names, MOST_NAMES)}")
        else:
            super().do_switch(line)

    def do_iperf(self, line: str) -> None:
        "TCP between two hosts (default: the first and the last): iperf [HOST HOST]"
        if self._hosts(line.split(), "usage: iperf [HOST HOST]"):
            super().do_iperf(line)

    def do_iperfudp(self, line: str) -> None:
        "UDP between two hosts: iperfudp [RATE HOST HOST], RATE such as 10M"
        if self._hosts(line.split()[1:], "usage: iperfudp [RATE HOST HOST], RATE such as 10M"):
            super().do_iperfudp(line)

    def _hosts(self, names: Sequence[str], usage: str) -> bool:
        """Whether these are two hosts, or none."""
        if len(names) not in (0, 2):
            self._refuse(usage)
        elif not self.mn.kernel:
            self._refuse(NO_KERNEL_INTERFACE)
        elif self._are_nodes(*names):
            hosts = [h.name for h in self.mn.hosts]
            for name in (n for n in names if n not in hosts):
                self._refuse(f"{name} is no host: there are {listed(hosts, MOST_NAMES)}")
        return not self.status

    def do_x(self, line: str) -> None:
        "Run an X11 program on a node: x NODE [COMMAND]"
        if not line or self._are_nodes(line.split()[0]):
            super().do_x(line)

    def do_xterm(self, line: str, term: str = "xterm") -> None:
        "Open terminals on nodes: xterm NODE .."
        if self._are_nodes(*line.split()):
            super().do_xterm(line, term)

    def do_source(self, line: str) -> None:
        "Run the commands in a file: source FILE"
        name = line.strip()
        if not name:
            self._refuse("usage: source FILE")
            return
        try:
            lines = named_file.text(name, MOST_SCRIPT_BYTES).splitlines()
        except named_file.Unreadable as error:
            self._refuse(f"{name} cannot be read: {error.what}")
            return
        status = 0
        for line in lines:
            self.onecmd(self.precmd(line.strip()))
            status = self.status or status
        self.status = status

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
        if cli.onecmd(cli.precmd(line.strip())):
            break
        try:
            sys.stdout.flush()
        except BrokenPipeError:
            nobody_reads()
        code = cli.status or code
    return code
