"""Open vSwitch bridges in batches: one ovs-vsctl transaction for many bridges instead of several commands each.

Every bridge carries the fabric's id in `external_ids:railbed`. Nothing here changes or removes a bridge without it.
"""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from testbed.errors import MachineError

TAG = "railbed"
OWNER_TAG = "railbed-owner"
_PROTOCOLS = "OpenFlow13,OpenFlow15"
_ARGS_BYTES = 500_000  # well below what one command line may have
_HINT = "start it: /usr/share/openvswitch/scripts/ovs-ctl start --system-id=random; `testbed doctor` tells more"


@dataclass(frozen=True)
class Bridge:
    """A bridge to be: `ports[i]` is the device of OpenFlow port i + 1."""

    name: str
    dpid: int
    ports: tuple[str, ...]


def create(bridges: Sequence[Bridge], tags: Mapping[str, str]) -> list[subprocess.Popen[str]]:
    """Starts making these bridges, fail-secure and without controller; `finish` waits for it and tells of errors."""
    ids = [f"external_ids:{key}={json.dumps(value)}" for key, value in tags.items()]
    return [_start(args) for args in _transactions(_create_args(b, ids) for b in bridges)]


def _create_args(bridge: Bridge, ids: Sequence[str]) -> list[str]:
    options = ["datapath_type=netdev", "fail_mode=secure", f"protocols={_PROTOCOLS}"]
    other = [f"other_config:datapath-id={bridge.dpid:016x}", "other_config:disable-in-band=true"]
    args = ["--", "add-br", bridge.name, "--", "set", "Bridge", bridge.name, *options, *other, *ids]
    for number, port in enumerate(bridge.ports, 1):
        args += ["--", "add-port", bridge.name, port, "--", "set", "Interface", port, f"ofport_request={number}"]
    return args


def finish(commands: Iterable[subprocess.Popen[str]]) -> None:
    """Waits for started transactions. Raises MachineError with what ovs-vsctl said."""
    ended = [(command.communicate()[1], command.returncode) for command in commands]
    for errors, code in ended:
        _raise_if_failed(code, errors)


def set_controller(names: Sequence[str], target: str) -> None:
    """Points bridges to a controller that already listens: refused, Open vSwitch tries again only 8 s later."""
    finish([_start(args) for args in _transactions(["--", "set-controller", name, target] for name in names)])


def return_to_sender(name: str, port: int = 1) -> None:
    """The fence bridge's only flow: what comes in on the port goes out on it."""
    _check(["ovs-ofctl", "-O", "OpenFlow13", "add-flow", name, f"in_port={port},actions=in_port"])


def tagged() -> dict[str, dict[str, str]]:
    """Every bridge that carries our tag: name -> external ids. Raises MachineError if Open vSwitch does not run."""
    out = _check(["ovs-vsctl", "--no-wait", "-f", "json", "--columns=name,external_ids", "list", "Bridge"])
    rows = json.loads(out)["data"] if out.strip() else []
    bridges = {name: dict(ids[1]) for name, ids in rows}
    return {name: ids for name, ids in bridges.items() if TAG in ids}


def delete(names: Sequence[str]) -> list[subprocess.Popen[str]]:
    """Starts deleting bridges; `finish` waits until Open vSwitch has closed all their ports."""
    return [_start(args) for args in _transactions(["--", "--if-exists", "del-br", name] for name in names)]


def _transactions(commands: Iterable[Sequence[str]]) -> Iterator[list[str]]:
    """Joins commands into as few transactions as command lines allow."""
    args: list[str] = []
    size = 0
    for command in commands:
        args += command
        size += sum(map(len, command)) + len(command)
        if size > _ARGS_BYTES:
            yield args
            args, size = [], 0
    if args:
        yield args


def _raise_if_failed(code: int, errors: str) -> None:
    # A port or bridge that could not be set up is told on stderr only.
    if code or "Error detected" in errors:
        raise MachineError(f"Open vSwitch refused: {' '.join(errors.split())[:500]}", hint=_HINT)


def _start(args: Sequence[str]) -> subprocess.Popen[str]:
    command = ["ovs-vsctl", "--timeout=120", *args]
    try:
        return subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
    except FileNotFoundError:
        raise _missing() from None


def _check(command: Sequence[str]) -> str:
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=180, check=False)
    except FileNotFoundError:
        raise _missing() from None
    except subprocess.TimeoutExpired:
        raise MachineError(f"Open vSwitch does not answer ({command[0]})", hint=_HINT) from None
    _raise_if_failed(done.returncode, done.stderr)
    return done.stdout


def _missing() -> MachineError:
    return MachineError("Open vSwitch is not installed", hint="./setup.sh installs it (package openvswitch-switch)")
