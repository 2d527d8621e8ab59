"""An entry of a registry of commands (views, tools, actions), and how a line is read by such a registry.

Everything that offers commands on a live fabric is made from entries: `testbed show`, a drill's prompt, JSON lines,
an agent's tools, a page's terminal. So a command is written down once.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from difflib import SequenceMatcher
from os.path import commonprefix  # of any sequences
from typing import Any, TypeVar

from testbed.base.errors import InputError
from testbed.words.kinds import FLAG, Kind, Offer, Wrong, near
from topologies.graph.fabric import Fabric

E = TypeVar("E", bound="Entry")
LISTED = 6
"""Of more commands that begin alike, only the next word of each is listed."""
NEARLY = 0.9
"""So alike are words that were probably meant."""
SHORTEST = 2
"""Letters of a word that is shortened: one letter is a slip."""


@dataclass(frozen=True)
class Parameter:
    """A parameter: a word in its place, or with `option` a `--name VALUE`.

    If it is not given, its value is None (a flag's: False).
    """

    name: str
    kind: Kind
    help: str
    option: bool = False
    required: bool = False
    rest: bool = False
    """It takes all words that are left and are no options, as one text."""
    short: str = ""
    """Another name of an option, such as `-o`."""
    word: str = ""
    """What stands behind `--` if that is not its name: Python's own words, such as `for`."""

    @property
    def flag(self) -> str:
        return f"--{(self.word or self.name).replace('_', '-')}"

    @property
    def usage(self) -> str:
        shown = self.kind.metavar or self.name.upper()
        if self.option:
            shown = self.flag if self.kind is FLAG else f"{self.flag} {shown}"
        return shown if self.required else f"[{shown}]"


@dataclass(frozen=True, kw_only=True)
class Entry:
    """A command: its words, what it does in one line, its parameters."""

    words: str
    about: str
    parameters: tuple[Parameter, ...] = ()
    samples: tuple[str, ...] = ()
    """Parameters as they may be written, for examples."""

    @property
    def examples(self) -> list[str]:
        return [f"{self.words} {sample}".strip() for sample in self.samples or ("",)]

    @property
    def usage(self) -> str:
        return " ".join([self.words, *(p.usage for p in self.parameters)])

    def read(self, words: Sequence[str], fabric: Fabric) -> dict[str, Any]:
        """The parameters' values by name, from the words behind the command's own. Raises InputError."""
        places = [p for p in self.parameters if not p.option]
        left, texts = list(words), dict[str, str]()
        while left:
            word = left.pop(0)
            rest = places[0] if places and places[0].rest else None
            if self._is_option(word) and not (rest and rest.name in texts and not self._options):
                parameter, text = self._option(word, left)
            elif rest:  # options may stand among its words
                parameter, text = rest, f"{texts[rest.name]} {word}" if rest.name in texts else word
            elif places:
                parameter, text = places.pop(0), word
            else:
                raise self._wrong(f"{word!r} is one word too many", f"{self.usage}")
            texts[parameter.name] = text
        return self.values(texts, fabric)

    def values(self, texts: Mapping[str, str], fabric: Fabric) -> dict[str, Any]:
        """The parameters' values by name, from what was written for each (for a flag: anything). Raises InputError."""
        for parameter in self.parameters:
            if parameter.required and parameter.name not in texts:
                raise self._wrong(f"{parameter.usage} is missing: {parameter.help}", self.usage)
        return {p.name: self._value(p, texts.get(p.name), fabric) for p in self.parameters}

    @property
    def _options(self) -> list[Parameter]:
        return [p for p in self.parameters if p.option]

    def _is_option(self, word: str) -> bool:
        return word.startswith("--") or word in {p.short for p in self.parameters if p.short}

    def _option(self, word: str, left: list[str]) -> tuple[Parameter, str]:
        flag, equals, text = word.partition("=")
        parameter = next((p for p in self.parameters if p.option and flag in (p.flag, p.short or p.flag)), None)
        if parameter is None:
            flags = [p.flag for p in self.parameters if p.option]
            raise self._wrong(f"there is no option {flag}", near(flag, flags, "options"))
        if parameter.kind is FLAG or equals:
            return parameter, text
        if not left:
            raise self._wrong(f"{flag} needs a value", parameter.usage)
        return parameter, left.pop(0)

    def _value(self, parameter: Parameter, text: str | None, fabric: Fabric) -> Any:
        if parameter.kind is FLAG or text is None:
            return text is not None if parameter.kind is FLAG else None
        try:
            return parameter.kind.read(text, fabric)
        except Wrong as wrong:
            called = parameter.flag if parameter.option else parameter.kind.metavar or parameter.name.upper()
            raise InputError(wrong.what, f"{self.words}: {called}", wrong.hint) from None

    def _wrong(self, what: str, hint: str) -> InputError:
        return InputError(what, self.words, hint)

    def offers(self, words: Sequence[str], fabric: Fabric) -> list[Offer]:
        if words and (option := self._awaiting(words[-1])):
            return list(option.kind.known(fabric))
        taken = self._places_taken(words)
        places = [p for p in self.parameters if not p.option][taken:]
        options = [(p.flag, p.help) for p in self.parameters if p.option and p.flag not in words]
        return [*(places[0].kind.known(fabric) if places else ()), *options]

    def _awaiting(self, word: str) -> Parameter | None:
        """The option that waits for its value."""
        return next((p for p in self.parameters if p.option and p.kind is not FLAG and p.flag == word), None)

    def _places_taken(self, words: Sequence[str]) -> int:
        taken, skip = 0, False
        for word in words:
            if not skip and not word.startswith("--"):
                taken += 1
            skip = not skip and self._awaiting(word) is not None
        return taken


def find(entries: Iterable[E], words: Sequence[str], where: str = "command line") -> tuple[E, list[str]]:
    """The entry with the most words that these begin with, and the words behind it. Raises InputError.

    Words of a command may be shortened as in a switch's shell: `show int st`.
    """
    every = list(entries)
    words = in_full(words, [e.words for e in every])
    matching = [e for e in every if list(words[: len(e.words.split())]) == e.words.split()]
    if matching:
        entry = max(matching, key=lambda e: len(e.words.split()))
        rest = list(words[len(entry.words.split()) :])
        complete = rest and not rest[0].startswith("-") and not any(not p.option for p in entry.parameters)
        if complete and (meant := _meant(words, [e.words for e in every if e is not entry])):
            raise InputError(f"{rest[0]!r} is one word too many", where, f"did you mean {meant}?")
        return entry, rest
    alike = {e.words: len(commonprefix([e.words.split(), list(words)])) for e in every}
    most = max(alike.values(), default=0)
    starting = [known for known, count in alike.items() if count == most]
    typed = " ".join(words)
    if most:
        meant = _meant(words, starting)
        begun, wrong = " ".join(words[:most]), words[most:]
        many = len(starting) > LISTED
        listed = sorted({known.split()[most] for known in starting}) if many else starting
        there_are = f"{begun} is followed by one of" if many else "there are"
        hint = f"did you mean {meant}?" if meant else f"{there_are}: {', '.join(listed)}"
        what = f"there is no '{begun} {wrong[0]}'" if wrong else f"{typed!r} is not a whole command"
        raise InputError(what, where, hint)
    firsts = sorted({e.words.split()[0] for e in every})
    if words and (under := [e.words for e in every if words[0] in e.words.split()]):
        raise InputError(f"there is no {typed!r}", where, f"did you mean {' or '.join(under[:3])}?")
    raise InputError(f"there is no {typed!r}", where, near(typed, [e.words for e in every], "there are", 60, firsts))


def in_full(words: Sequence[str], known: Iterable[str]) -> list[str]:
    """The words, those that shorten the ones of a known command written out, as far as only one can be meant."""
    commands = [one.split() for one in known]
    whole: list[str] = []
    for word in words:
        under = [one for one in commands if one[: len(whole)] == whole]
        further = {one[len(whole)] for one in under if len(one) > len(whole)}
        short = len(word) >= SHORTEST and whole not in under
        meant = {one for one in further if short and one.startswith(word)}
        if word not in further and len(meant) != 1:
            break
        whole.append(word if word in further else meant.pop())
    return [*whole, *words[len(whole) :]]


def _meant(words: Sequence[str], known: Sequence[str]) -> str:
    """The command that words nearly begin with; empty if there is none."""
    close = {one: SequenceMatcher(None, " ".join(words[: len(one.split())]), one).ratio() for one in known}
    best = max(close, key=close.__getitem__, default="")
    return best if best and close[best] > NEARLY else ""


def offers(entries: Iterable[Entry], words: Sequence[str], fabric: Fabric) -> list[Offer]:
    """What may come next in a line that begins with these words: words of commands, then values of parameters."""
    every = list(entries)
    depth = len(words)
    further: dict[str, str] = {}
    for entry in every:
        own = entry.words.split()
        if len(own) > depth and own[:depth] == list(words):
            further.setdefault(own[depth], entry.about if len(own) == depth + 1 else "")
    try:
        entry, rest = find(every, words)
    except InputError:
        return list(further.items())
    return [*further.items(), *entry.offers(rest, fabric)]
