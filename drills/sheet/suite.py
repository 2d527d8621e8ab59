"""Suites: which drills, and which seeds of each. A seed is an HMAC of a secret, so nobody knows the worlds before.

The secret for development is public, so all have the same worlds; that of a test is in a file that agents do not get.
"""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from drills.sheet import file
from drills.sheet.case import Case, letters_of
from drills.sheet.drill import Drill
from testbed.base.errors import InputError
from testbed.base.model_file import FileKind, model_of, text_of
from testbed.base.types import Model, unknown
from workloads.base import named_file

FOLDER = file.CATALOGUE / "suites"
SUITE = FileKind("a suite", "drills/catalogue/suites has those that are ready", "drills: [lost/dirty-optics]")
DEV = b"railbed: public seeds for development"
LETTERS = 8
LEAST_SECRET = 16
MOST_SECRET = 4096


class Suite(Model):
    """A suite's file."""

    drills: list[str]


@dataclass(frozen=True)
class Assignment:
    """One game to be played: a drill, a seed, with its faults or without."""

    drill: Drill
    seed: str
    healthy: bool

    @property
    def case(self) -> Case:
        return Case.of(self.drill, self.seed, self.healthy)

    @property
    def world(self) -> str:
        """Equal for the same world: all of it follows from these."""
        text = "\0".join((self.drill.text, self.seed, str(self.healthy)))
        return hashlib.sha256(text.encode()).hexdigest()[:16]


def drills_of(names: Sequence[str]) -> list[Drill]:
    """Of suites by their names or files, and of drills. Raises InputError."""
    known = sorted(path.stem for path in FOLDER.glob("*.yaml"))
    drills: dict[str, Drill] = {}
    for name in names:
        path = FOLDER / f"{name}.yaml" if name in known else Path(name)
        if path.suffix in (".yaml", ".yml") and "\ndrills:" in f"\n{text_of(path, SUITE)}":
            members = _members(path)
        elif "/" in name or path.suffix:
            members = iter([file.load(name)])
        else:
            what, hint = unknown("suite", name, known)
            raise InputError(what, "--suite", f"{hint}; or files of suites or drills")
        for drill in members:
            drills.setdefault(drill.id, drill)
    return list(drills.values())


def _members(path: Path) -> Iterator[Drill]:
    shown = file.shown(path)
    suite, _, place = model_of(Suite, text_of(path, SUITE), shown, SUITE, path.parent)
    known = file.catalogue()
    for i, name in enumerate(suite.drills):
        if name not in known:
            what, hint = unknown("drill", name, known, file.DRILL.ready)
            raise InputError(what, place(("drills", i)), hint)
        yield file.load(name)


def secret_of(path: str | None) -> bytes:
    """That of a file, without white space around it; the public one without a file. Raises InputError."""
    if path is None:
        return DEV
    try:
        secret = named_file.read(path, MOST_SECRET).strip()
    except named_file.Unreadable as error:
        raise InputError(f"cannot be read: {error.what}", f"--secret {path}", "a file with a secret") from None
    if not LEAST_SECRET <= len(secret) <= MOST_SECRET:
        hint = f"{LEAST_SECRET} to {MOST_SECRET} bytes: head -c 32 /dev/urandom | base64 > {path}"
        raise InputError(f"a secret of {len(secret)} bytes", f"--secret {path}", hint)
    return secret


def seed(secret: bytes, drill: str, k: int) -> str:
    """The k-th of a drill."""
    return letters_of(int.from_bytes(hmac.digest(secret, f"{drill} {k}".encode(), "sha256"), "big"), LETTERS)


def assignments(drills: Sequence[Drill], seeds: int, secret: bytes) -> list[Assignment]:
    """Each seed of each drill, and its healthy twin, in an order that only the secret gives."""
    every = [
        Assignment(drill, seed(secret, drill.id, k), healthy)
        for drill in drills
        for k in range(seeds)
        for healthy in ((False, True) if drill.faults else (True,))
    ]
    return sorted(every, key=lambda one: hmac.digest(secret, f"order {one.world}".encode(), "sha256"))
