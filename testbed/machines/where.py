"""Where the points of a sweep run: what `--on` may say, and the file that names machines."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Self

from pydantic import Field, field_validator, model_validator

from testbed.base.errors import InputError
from testbed.base.model_file import FileKind, model_of, text_of
from testbed.base.types import Model, mistake, mistakes

MACHINES = FileKind(
    "a list of machines",
    "docs/machines.md has an example; local:N runs N points at a time here",
    "machines: [{host: lab1}]",
)
HERE = "here"
SSH = 22
_HOST = re.compile(r"[A-Za-z0-9_.:%-]{1,253}")
_USER = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,63}\$?")


class Machine(Model):
    """One machine: another by SSH (`host`), or this one (`local`)."""

    host: str | None = Field(default=None, description="name or address; may be a Host of `~/.ssh/config`")
    local: int | None = Field(default=None, ge=1, le=4096, description="this machine: so many points at a time")
    user: str | None = Field(default=None, description="who logs in (null: as ssh would); not root needs `sudo -n`")
    port: int | None = Field(default=None, ge=1, le=65535, description="of its sshd (null: as ssh would)")
    key: str | None = Field(default=None, description="file of a private key (null: the agent's, and ssh's own)")
    testbed: str | None = Field(
        default=None, description="folder of Railbed there, or its `testbed` command (null: the same path as here)"
    )
    points: int | None = Field(
        default=None, ge=1, le=4096, description="points at a time, at most (null: as many as it has CPUs)"
    )

    @field_validator("host")
    @classmethod
    def _a_host(cls, value: str | None) -> str | None:
        if value is not None and (value.startswith("-") or not _HOST.fullmatch(value)):
            raise mistake(f"{value!r} is no host", "a name or an address; user and port are keys of their own")
        if value == HERE:
            raise mistake(
                f"{value!r} is what a sweep calls this machine", "local: N; or another name, by ~/.ssh/config"
            )
        return value

    @field_validator("user")
    @classmethod
    def _a_user(cls, value: str | None) -> str | None:
        if value is not None and not _USER.fullmatch(value):
            raise mistake(f"{value!r} is no user", "a login name")
        return value

    @field_validator("key")
    @classmethod
    def _a_file(cls, value: str | None) -> str | None:
        if value is not None and not Path(value).expanduser().is_file():
            raise mistake(f"there is no key file {value!r}", "its path here, such as ~/.ssh/id_ed25519")
        return value

    @field_validator("testbed")
    @classmethod
    def _a_path(cls, value: str | None) -> str | None:
        if value is not None and (not value.startswith("/") or not value.isprintable()):
            raise mistake(f"{value!r} is no absolute path", "such as /opt/railbed")
        return value

    @model_validator(mode="after")
    def _one_of_both(self) -> Self:
        if (self.host is None) == (self.local is None):
            raise mistake("a machine is {host: NAME, ..} or {local: N}", "one of the two")
        if self.local is not None:
            for name in ("user", "port", "key", "testbed", "points"):
                if getattr(self, name) is not None:
                    raise mistake(f"this machine needs no {name}", "it is {local: N} alone", [name])
        return self


class Machines(Model):
    machines: list[Machine] = Field(min_length=1, max_length=1000, description="where points run")

    @model_validator(mode="after")
    def _each_once(self) -> Self:
        seen: set[tuple[str | None, int]] = set()
        problems = []
        for n, one in enumerate(self.machines):
            address = (one.host, one.port or SSH)
            if address in seen:
                problems.append((("machines", n), f"{one.host or 'this machine'} stands twice", "name it once"))
            seen.add(address)
        if problems:
            raise mistakes(problems)
        return self


@dataclass(frozen=True)
class Other:
    """Another machine; `place` is where the file says so."""

    name: str
    machine: Machine
    place: str


@dataclass(frozen=True)
class Where:
    """Points at a time here, and other machines."""

    here: int = 0
    others: tuple[Other, ...] = ()


def where(text: str) -> Where:
    """Reads `local:N`, or the file of that name. Raises InputError."""
    if text.startswith("local:"):
        number = text.removeprefix("local:")
        if not re.fullmatch(r"\d{1,4}", number) or not int(number):
            raise InputError(f"{text!r} is no place to run on", "--on", "local:N, N points at a time on this machine")
        return Where(here=int(number))
    named, _, place = model_of(Machines, text_of(text, MACHINES), text, MACHINES, Path(text).parent)
    hosts = [one.host for one in named.machines]
    others = tuple(
        Other(_name(one, hosts), one, place(("machines", n, "host")))
        for n, one in enumerate(named.machines)
        if one.host is not None
    )
    return Where(sum(one.local or 0 for one in named.machines), others)


def _name(machine: Machine, hosts: list[str | None]) -> str:
    """Its host, with the port if several are there."""
    several = hosts.count(machine.host) > 1 and machine.port
    return f"{machine.host}:{machine.port}" if several else str(machine.host)
