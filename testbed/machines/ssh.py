"""A connection to another machine, as ssh would make it: its config, keys, agent and known hosts.

A host whose key is not known, or is another one, is refused. Nothing asks for a password: keys do, or the agent.
"""

from __future__ import annotations

import logging
import os
import shlex
import socket
import subprocess
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import paramiko
from paramiko.hostkeys import HostKeyEntry, InvalidHostKey
from paramiko.ssh_exception import BadHostKeyException, NoValidConnectionsError

from testbed.base.errors import InputError, MachineError, UserError
from testbed.machines.where import Other

CONNECT_S = 15.0
KEEPALIVE_S = 5
_KNOWN = "~/.ssh/known_hosts"
_SYSTEM_KNOWN = ("/etc/ssh/ssh_known_hosts",)

logging.getLogger("paramiko").addHandler(logging.NullHandler())
logging.getLogger("paramiko").setLevel(logging.CRITICAL)  # our own errors say what failed


class _Unknown(paramiko.SSHException):
    """A host whose key nobody has vouched for."""

    def __init__(self, name: str, key: paramiko.PKey) -> None:
        super().__init__(name)
        self.name, self.key = name, key


class _Revoked(_Unknown):
    """A host key that `known_hosts` says not to trust."""


class _Refuse(paramiko.MissingHostKeyPolicy):
    def __init__(self, revoked: set[bytes]) -> None:
        self._revoked = revoked

    def missing_host_key(self, client: paramiko.SSHClient, hostname: str, key: paramiko.PKey) -> None:
        raise (_Revoked if key.asbytes() in self._revoked else _Unknown)(hostname, key)


class _Command(paramiko.ProxyCommand):
    """A ProxyCommand in a session of its own: a Ctrl-C at the terminal must not cut the connection."""

    def __init__(self, command_line: str) -> None:
        self.cmd = shlex.split(command_line)
        pipe = subprocess.PIPE
        self.process = subprocess.Popen(
            self.cmd, stdin=pipe, stdout=pipe, stderr=subprocess.DEVNULL, bufsize=0, start_new_session=True
        )
        self.timeout = None


def connect(other: Other) -> paramiko.SSHClient:
    """Raises InputError for a host that does not exist, MachineError for one that cannot be used."""
    try:
        return _connect(other.machine.host or "", _options(other), ())
    except UserError as error:
        raise type(error)(f"{other.name}: {error.what}", error.where or other.place, error.hint) from None
    except socket.gaierror as error:
        what = f"{other.name}: there is no such host ({error.strerror})"
        raise InputError(what, other.place, "its name or address, or a Host of ~/.ssh/config") from None
    except BadHostKeyException as error:
        what = f"{other.name}: its host key is not the one that is known ({_shown(error.key)})"
        hint = "somebody else may answer there; if its key has really changed: "
        hint += f"{_as_we_are('ssh-keygen', '-R', error.hostname)}, and log in once: {by_hand(other)}"
        raise MachineError(what, other.place, hint) from None
    except _Revoked as error:
        what = f"{other.name}: its host key is revoked ({_shown(error.key)})"
        raise MachineError(what, other.place, "known_hosts says @revoked; it needs another key") from None
    except _Unknown as error:
        what = f"{other.name}: its host key is not known ({_shown(error.key)})"
        hint = f"log in once, and compare the fingerprint with the machine's own: {by_hand(other)}"
        raise MachineError(what, other.place, hint) from None
    except paramiko.PasswordRequiredException:
        what = f"{other.name}: the private key has a passphrase"
        raise MachineError(what, other.place, "ssh-add it to your agent") from None
    except paramiko.AuthenticationException:
        what = f"{other.name}: it refuses the key"
        raise MachineError(what, other.place, f"try: {by_hand(other)} true; key: and user: name others") from None
    except (NoValidConnectionsError, TimeoutError, OSError, EOFError) as error:
        if file := getattr(error, "filename", None):  # of ours: its config, a key, the program of ProxyCommand
            raise InputError(f"{other.name}: {file}: {getattr(error, 'strerror', None)}", other.place) from None
        why = getattr(error, "strerror", None) or "nobody answers"
        what = f"{other.name}: it cannot be reached ({why})"
        raise MachineError(what, other.place, "is it up, and its sshd? is the port right?") from None
    except paramiko.SSHException as error:
        what = f"{other.name}: no SSH connection ({str(error).splitlines()[0] if str(error) else type(error).__name__})"
        raise MachineError(what, other.place, f"try: {by_hand(other)} true") from None


def _options(other: Other) -> dict[str, Any]:
    """What the file says, in the words of ssh_config(5)."""
    machine = other.machine
    said = {"user": machine.user, "port": machine.port, "identityfile": machine.key and [machine.key]}
    return {key: value for key, value in said.items() if value is not None}


def by_hand(other: Other) -> str:
    """The same connection at a shell, by the same user: keys, config and known hosts are root's if we are root."""
    machine = other.machine
    options = [*(["-p", str(machine.port)] if machine.port else []), *(["-i", machine.key] if machine.key else [])]
    host = f"{machine.user}@{machine.host}" if machine.user else str(machine.host)
    return _as_we_are("ssh", *options, host)


def _as_we_are(*words: str) -> str:
    return shlex.join(("sudo", *words) if "SUDO_USER" in os.environ else words)


def _connect(host: str, options: dict[str, Any], through: tuple[str, ...]) -> paramiko.SSHClient:
    told: dict[str, Any] = {**_config().lookup(host), **options}
    name, port = str(told.get("hostname", host)), int(told.get("port", 22))
    client = paramiko.SSHClient()
    known = (*_SYSTEM_KNOWN, *str(told.get("userknownhostsfile", _KNOWN)).split())
    client.set_missing_host_key_policy(_Refuse(_learn(client, [os.path.expanduser(path) for path in known])))
    # as ssh does it: those that are not there do not matter; a list is allowed, too
    keys: Any = [key for key in map(os.path.expanduser, told.get("identityfile", ())) if os.path.isfile(key)]
    try:
        client.connect(
            name,
            port,
            username=told.get("user"),
            key_filename=keys or None,
            look_for_keys=not keys,
            allow_agent=str(told.get("identitiesonly", "no")).lower() != "yes",
            sock=_proxy(told, name, port, through),
            timeout=CONNECT_S,
            banner_timeout=CONNECT_S,
            auth_timeout=CONNECT_S,
        )
    except BadHostKeyException as error:
        client.close()
        entry = name if port == paramiko.config.SSH_PORT else f"[{name}]:{port}"  # as known_hosts has it
        raise BadHostKeyException(entry, error.key, error.expected_key) from None
    except BaseException:
        client.close()
        raise
    transport = client.get_transport()
    assert transport is not None
    transport.set_keepalive(KEEPALIVE_S)
    return client


def _learn(client: paramiko.SSHClient, paths: Sequence[str]) -> set[bytes]:
    """Gives the client the host keys of these files; returns those that are revoked, for whatever host.

    Certificates of hosts are not known here, so what @cert-authority vouches for is as unknown as any other key.
    """
    entries: list[HostKeyEntry] = []
    revoked: set[bytes] = set()
    for path in filter(os.path.isfile, paths):
        with open(path, errors="replace") as file:
            for number, line in enumerate(file, 1):
                mark, words = "", line.split()
                if words and words[0].startswith("@"):
                    mark, *words = words
                if not words or words[0].startswith("#") or mark == "@cert-authority":
                    continue
                try:
                    entry = HostKeyEntry.from_line(" ".join(words), number)
                except (InvalidHostKey, paramiko.SSHException, ValueError, IndexError):
                    hint = "correct this line of known_hosts, or take it out"
                    raise InputError("this host key cannot be read", f"{path}:{number}", hint) from None
                if entry is not None and mark == "@revoked":
                    revoked.add(entry.key.asbytes())
                elif entry is not None and not mark:
                    entries.append(entry)
    added = set()
    for entry in entries:
        kind = entry.key.get_name()
        for name in entry.hostnames if entry.key.asbytes() not in revoked else ():
            if (name, kind) not in added:  # the first one counts
                client.get_host_keys().add(name, kind, entry.key)
                added.add((name, kind))
    return revoked


def _proxy(config: dict[str, Any], name: str, port: int, through: tuple[str, ...]) -> Any:
    """What ssh's ProxyCommand or ProxyJump stands for; None: straight there."""
    jumps = str(config.get("proxyjump", "none"))
    if jumps.lower() != "none":
        *before, last = jumps.split(",")
        user, _, address = last.rpartition("@")
        if address in through:
            raise MachineError("ProxyJump goes in a circle", "", "see ~/.ssh/config")
        host, _, number = address.partition(":")
        options = {"user": user} if user else {}
        options |= {"port": number} if number else {}
        options |= {"proxyjump": ",".join(before)} if before else {}
        transport = _connect(host, options, (*through, address)).get_transport()
        assert transport is not None
        return transport.open_channel("direct-tcpip", (name, port), ("127.0.0.1", 0), timeout=CONNECT_S)
    command = str(config.get("proxycommand", "none"))
    return None if command.lower() == "none" else _Command(command)


def _config() -> paramiko.SSHConfig:
    config = paramiko.SSHConfig()
    for path in (Path("~/.ssh/config").expanduser(), Path("/etc/ssh/ssh_config")):
        with suppress(FileNotFoundError), path.open() as file:
            try:
                config.parse(file)
            except (paramiko.ConfigParseError, ValueError) as error:
                raise InputError(str(error), str(path)) from None
    return config


def _shown(key: paramiko.PKey) -> str:
    """As ssh-keygen -l shows it."""
    return f"{key.get_name()} {key.fingerprint}"
