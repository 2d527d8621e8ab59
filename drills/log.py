"""A game's log, in lines of JSON: the drill, the seed, every line that was typed; so it can be replayed. The last line
has the end and a hash over all before it.

It is in memory until the game is over: from its first line the truth could be drawn.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from pydantic import AfterValidator, BaseModel, ConfigDict, TypeAdapter, ValidationError

from drills.proof.signing import is_signed, sign
from testbed.base.errors import InputError
from testbed.base.model_file import FileKind, text_of

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

LOG = FileKind("a log", "testbed drill start writes them to results/drills", "docs/drills.md")
_AS_WRITTEN = "take the log as it was written"
MOST_BYTES = 16 << 20
"""Of a log: one of a long game has some 100 KB."""
FORMAT = 1
RULES = 3
"""Grows with each change after which replays of older logs differ; logs before 2 have none."""
INSTRUCTOR = "instructor"
CONFIG = "config"
REAL = "real_clock"
"""In the head of a game on the real clock, which cannot be replayed."""


@dataclass(frozen=True)
class LogEntry:
    """One line that was carried out."""

    __pydantic_config__ = ConfigDict(strict=True, extra="forbid")

    number: int
    line: str
    time_ns: int
    took_ns: int
    ok: bool
    acts: bool
    """It has changed something: a replay needs it."""
    digest: str = ""
    """Of the world after it, if it acts."""
    by: str = ""
    """"": the player; INSTRUCTOR; or a page that has asked by itself."""
    notes: tuple[str, ...] = ()
    """What an action has said."""

    @property
    def is_config(self) -> bool:
        """An operator's action."""
        return self.line.split()[0] == CONFIG


@dataclass(frozen=True)
class Log:
    """`head`: the case; `entries`; `end`: answer, truth, score."""

    head: dict[str, Any]
    entries: tuple[LogEntry, ...]
    end: dict[str, Any]
    signed_by: str = ""
    """The public key of the server that has signed it (signing.py), if any."""

    def lines(self) -> list[str]:
        return [
            json.dumps({"railbed_drill": FORMAT, **self.head}),
            *(json.dumps(asdict(entry)) for entry in self.entries),
            json.dumps({"end": self.end}),
        ]

    @property
    def sha256(self) -> str:
        return _hash(self.lines())

    def write(self, path: Path, key: Ed25519PrivateKey | None = None) -> None:
        """Whole or not at all; signed with a key."""
        signed = sign(key, self.sha256) if key else {}
        path.parent.mkdir(parents=True, exist_ok=True)
        new = path.with_name(f".{path.name}.new")
        new.write_text("\n".join([*self.lines(), json.dumps({"sha256": self.sha256, **signed})]) + "\n")
        new.replace(path)


def read(path: Path) -> Log:
    """Raises InputError, also if a byte was changed."""
    name = str(path)
    lines = text_of(path, LOG, MOST_BYTES).split("\n")
    if lines[-1] == "":
        lines.pop()
    rows: list[dict[str, Any]] = []
    for number, line in enumerate(lines, 1):
        try:
            row = json.loads(line)
            if not isinstance(row, dict):
                raise ValueError(line)
        except (ValueError, RecursionError):
            raise _damaged(name, number, "it is no JSON") from None
        rows.append(row)
    if not rows or "railbed_drill" not in rows[0]:
        raise InputError("this is no log of a drill", name, "a log that a drill has written")
    if rows[0]["railbed_drill"] != FORMAT:
        raise InputError("this log is of another version", f"{name}:1", f"known: {FORMAT}")
    if len(rows) < 3 or "sha256" not in rows[-1] or "end" not in rows[-2]:
        raise _damaged(name, len(lines), "its end is missing")
    if rows[-1]["sha256"] != _hash(lines[:-1]):
        raise InputError("its hash is not that of its lines: something was changed", name, _AS_WRITTEN)
    signature = {key: rows[-1].get(key) for key in ("key", "signature") if key in rows[-1]}
    if signature and not is_signed(signature.get("key"), signature.get("signature"), rows[-1]["sha256"]):
        raise InputError("its signature is not of its lines and that key", name, _AS_WRITTEN)
    entries = []
    for number, line in enumerate(lines[:-1], 1):
        try:
            if number == 1:
                _Head.model_validate_json(line)
            elif number == len(lines) - 1:
                _Last.model_validate_json(line)
            else:
                entries.append(_ENTRY.validate_json(line))
        except ValidationError as error:
            wrong = error.errors()[0]
            raise _damaged(name, number, f"{'.'.join(map(str, wrong['loc']))}: {wrong['msg']}") from None
    head = {key: value for key, value in rows[0].items() if key != "railbed_drill"}
    return Log(head, tuple(entries), rows[-2]["end"], signature.get("key") or "")


def _printable(text: str) -> str:
    if not text.isprintable():
        raise ValueError(f"no plain text of a line: {text!r:.60}")
    return text


_Printable = Annotated[str, AfterValidator(_printable)]


class _Row(BaseModel):
    """Checked before it is played or printed: somebody may have forged it, hash and all."""

    model_config = ConfigDict(strict=True, allow_inf_nan=False)


class _Head(_Row):
    """Older logs lack those with defaults."""

    drill: _Printable
    seed: _Printable
    text: str
    healthy: bool
    salt: _Printable
    sealed: _Printable
    exam: bool
    player: _Printable = ""
    seed_by: _Printable = ""
    began: _Printable | None = None
    truth: _Printable = ""
    version: _Printable = ""
    rules: int | None = None


class _End(_Row):
    answer: _Printable | None
    truth: _Printable
    score: dict[str, float | None] | None
    time_ns: float
    report: dict[str, Any]


class _Last(_Row):
    end: _End


_ENTRY = TypeAdapter(LogEntry)


@contextmanager
def whole_log(name: str) -> Iterator[None]:
    """Around what is done with a log's fields, which may be forged. Raises InputError."""
    try:
        yield
    except (ValueError, TypeError, AttributeError, LookupError, ArithmeticError, RecursionError) as error:
        what = f"it is no whole log: {type(error).__name__} {error}"[:200]
        raise InputError(what, name, "a log that a drill has written") from error


def of_another_version(head: dict[str, Any]) -> str:
    """Which version has written a log ("": this one)."""
    here = version("railbed"), RULES
    there = head.get("version"), head.get("rules")
    if there == here:
        return ""
    shown = ["unknown" if one is None else str(one)[:20] for one in there]
    return f"written by another version ({shown[0]}, rules {shown[1]}; here {here[0]}, rules {here[1]})"


def _hash(lines: Sequence[str]) -> str:
    return hashlib.sha256("\n".join(lines).encode()).hexdigest()


def _damaged(name: str, line: int, why: str) -> InputError:
    return InputError(f"this log is damaged: {why}", f"{name}:{line}" if line else name, _AS_WRITTEN)
