"""A game's log: what was asked and done, in lines of JSON; the last one has the end and a hash over all before it.

It has all that is needed to play the game again: the drill itself, the seed, every line. It is written when the game is
over; until then it is in memory, for its first line would tell the truth to who knows how to draw.
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
from testbed.base.model_file import Sort, text_of

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

LOG = Sort("a log", "testbed drill start writes them to results/drills", "docs/drills.md")
MOST_BYTES = 16 << 20
"""Of a log: one of a long game has some 100 KB."""
FORMAT = 1
RULES = 3
"""How worlds are drawn and games go. One more with each change after which older logs are no longer played the same;
a log that says none is of a time before 2."""
INSTRUCTOR = "instructor"
REAL = "real_clock"
"""In the head of a game on the real clock, which cannot be played again."""


@dataclass(frozen=True)
class Entry:
    """One line that was carried out: when, what it has taken, and what the world was like after it."""

    __pydantic_config__ = ConfigDict(strict=True, extra="forbid")

    number: int
    line: str
    time_ns: int
    took_ns: int
    ok: bool
    acts: bool
    """It has changed something: played again it has to be there."""
    digest: str = ""
    """Of the world after it, if it acts."""
    by: str = ""
    """Whose it is: the player's, INSTRUCTOR's, or a page's that has looked by itself."""
    notes: tuple[str, ...] = ()
    """What an action has said of itself."""


@dataclass(frozen=True)
class Log:
    """`head`: the case; `entries`; `end`: answer, truth, score."""

    head: dict[str, Any]
    entries: tuple[Entry, ...]
    end: dict[str, Any]
    signed_by: str = ""
    """The public key of the server that has signed it (signing.py); empty: nobody has."""

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
    told: list[dict[str, Any]] = []
    for number, line in enumerate(lines, 1):
        try:
            one = json.loads(line)
            if not isinstance(one, dict):
                raise ValueError(line)
        except (ValueError, RecursionError):
            raise _damaged(name, number, "it is no JSON") from None
        told.append(one)
    if not told or "railbed_drill" not in told[0]:
        raise InputError("this is no log of a drill", name, "a log that a drill has written")
    if told[0]["railbed_drill"] != FORMAT:
        raise InputError("this log is of another version", f"{name}:1", f"known: {FORMAT}")
    if len(told) < 3 or "sha256" not in told[-1] or "end" not in told[-2]:
        raise _damaged(name, len(lines), "its end is missing")
    if told[-1]["sha256"] != _hash(lines[:-1]):
        raise InputError(
            "its hash is not that of its lines: something was changed", name, "take the log as it was written"
        )
    signature = {key: told[-1].get(key) for key in ("key", "signature") if key in told[-1]}
    if signature and not is_signed(signature.get("key"), signature.get("signature"), told[-1]["sha256"]):
        raise InputError("its signature is not of its lines and that key", name, "take the log as it was written")
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
    head = {key: value for key, value in told[0].items() if key != "railbed_drill"}
    return Log(head, tuple(entries), told[-2]["end"], signature.get("key") or "")


def _of_a_line(text: str) -> str:
    if not text.isprintable():
        raise ValueError(f"no plain text of a line: {text!r:.60}")
    return text


_Word = Annotated[str, AfterValidator(_of_a_line)]


class _Told(BaseModel):
    """Somebody may have written it himself, hash and all: what is played and printed is what it should be."""

    model_config = ConfigDict(strict=True, allow_inf_nan=False)


class _Head(_Told):
    """Of older logs some is missing."""

    drill: _Word
    seed: _Word
    text: str
    healthy: bool
    salt: _Word
    sealed: _Word
    exam: bool
    player: _Word = ""
    seed_by: _Word = ""
    began: _Word | None = None
    truth: _Word = ""
    version: _Word = ""
    rules: int | None = None


class _End(_Told):
    answer: _Word | None
    truth: _Word
    score: dict[str, float | None] | None
    time_ns: float
    report: dict[str, Any]


class _Last(_Told):
    end: _End


_ENTRY = TypeAdapter(Entry)


@contextmanager
def whole_log(name: str) -> Iterator[None]:
    """For what is done with a log's fields: somebody may have written it himself, hash and all.  Raises InputError."""
    try:
        yield
    except (ValueError, TypeError, AttributeError, LookupError, ArithmeticError, RecursionError) as error:
        what = f"it is no whole log: {type(error).__name__} {error}"[:200]
        raise InputError(what, name, "a log that a drill has written") from error


def of_another_version(head: dict[str, Any]) -> str:
    """What has written a log, if that is not this version ("": it is)."""
    here = version("railbed"), RULES
    its = head.get("version"), head.get("rules")
    if its == here:
        return ""
    said = ["unknown" if one is None else str(one)[:20] for one in its]
    return f"written by another version ({said[0]}, rules {said[1]}; here {here[0]}, rules {here[1]})"


def _hash(lines: Sequence[str]) -> str:
    return hashlib.sha256("\n".join(lines).encode()).hexdigest()


def _damaged(name: str, line: int, why: str) -> InputError:
    return InputError(
        f"this log is damaged: {why}", f"{name}:{line}" if line else name, "take the log as it was written"
    )
