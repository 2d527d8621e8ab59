"""Kinds of parameters: how a word is read for a fabric, what is allowed, and what a shell may offer.

A kind reads text into what a program uses (a port into an `End`, a time into ns), or says what is wrong and what is
allowed. `known` is for completion; it is empty where there is nothing to choose from.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from typing import Any

from testbed.base import units
from testbed.base.units import UnitError
from topologies.graph.fabric import Cable, End, Fabric
from topologies.graph.mistake import Mistake

Offer = tuple[str, str]  # a word, and what it is


class Wrong(Mistake, ValueError):
    """A word that cannot be read: `what`, and a `hint` that says what is allowed."""


@dataclass(frozen=True)
class Kind:
    """A kind of parameter: `name` for programs, `metavar` for a person."""

    name: str
    metavar: str

    def read(self, text: str, fabric: Fabric) -> Any:
        """Raises Wrong."""
        return text

    def known(self, fabric: Fabric) -> Iterable[Offer]:
        return ()


class _Switch(Kind):
    def read(self, text: str, fabric: Fabric) -> str:
        name = text.removeprefix("switch:")
        if name not in fabric.switch_by_name:
            raise Wrong(f"there is no switch {name}", near(name, fabric.switch_by_name, "switches"))
        return name

    def known(self, fabric: Fabric) -> Iterable[Offer]:
        return ((switch.name, switch.role) for switch in fabric.switches)


class _Rank(Kind):
    def read(self, text: str, fabric: Fabric) -> int:
        name = text.removeprefix("nic:")
        if name.isascii() and name.isdecimal() and int(name[:9]) < len(fabric.nics) and len(name) < 10:
            return int(name)
        of = [nic.rank for nic in fabric.nics if name in (nic.name, nic.host)]
        if len(of) == 1:
            return of[0]
        here = f"{name} has ranks {', '.join(map(str, of))}; " if of else ""
        raise Wrong(f"there is no rank {name}", f"{here}ranks: 0 to {len(fabric.nics) - 1}")

    def known(self, fabric: Fabric) -> Iterable[Offer]:
        return ((str(nic.rank), nic.name) for nic in fabric.nics)


class _Port(Kind):
    """SWITCH:N, or a NIC's name (its port 1)."""

    def read(self, text: str, fabric: Fabric) -> End:
        node, _, number = text.removeprefix("port:").rpartition(":")
        if not node:
            node, number = number, ""
        if node in fabric.nic_by_name and number in ("", "1"):
            return End(node, 1)
        if node in fabric.switch_by_name:
            most = fabric.switch_by_name[node].ports
            if number.isascii() and number.isdecimal() and len(number) < 10 and 1 <= int(number) <= most:
                return End(node, int(number))
            raise Wrong(f"{node} has no port {number or '(none named)'}", f"its ports: {node}:1 to {node}:{most}")
        names = [*fabric.switch_by_name, *fabric.nic_by_name]
        raise Wrong(f"there is no port {text}", f"SWITCH:N or NIC:1; {near(node, names, 'nodes')}")

    def known(self, fabric: Fabric) -> Iterable[Offer]:
        return ((f"{node}:{port}", f"to {cable.other(node).node}") for (node, port), cable in fabric.cable_at.items())


class _Cable(Kind):
    def read(self, text: str, fabric: Fabric) -> Cable:
        name = text.removeprefix("cable:")
        if name not in fabric.cable_by_name:
            names = [cable.name for cable in fabric.cables]
            raise Wrong(f"there is no cable {name}", near(name, names, "cables"))
        return fabric.cable_by_name[name]

    def known(self, fabric: Fabric) -> Iterable[Offer]:
        return ((cable.name, "") for cable in fabric.cables if cable.name not in fabric.inside)


class _Place(Kind):
    """A port, or a NIC by `nic:RANK` or its name: in both cases the port where its frames go by."""

    def read(self, text: str, fabric: Fabric) -> End:
        if text.startswith("nic:"):
            return End(fabric.nics[RANK.read(text, fabric)].name, 1)
        return PORT.read(text, fabric)

    def known(self, fabric: Fabric) -> Iterable[Offer]:
        yield from PORT.known(fabric)
        yield from ((f"nic:{nic.rank}", nic.name) for nic in fabric.nics)


@dataclass(frozen=True)
class Quantity(Kind):
    """A number with its unit: `TIME` in ns, `RATE` in bit/s, `SIZE` in bytes; within bounds."""

    of: units.Kind = units.TIME
    least: float = 0
    most: float = 1e15

    def read(self, text: str, fabric: Fabric) -> float:
        try:
            value = self.of.parse_whole(text) if self.of.whole else float(self.of.parse(text))
        except UnitError as error:
            raise Wrong(error.what, error.hint) from None
        if not self.least <= value <= self.most:
            least, most = (self.of.format_number(int(bound)) for bound in (self.least, self.most))
            raise Wrong(f"{text} is out of bounds", f"from {least} to {most}")
        return value


@dataclass(frozen=True)
class Choice(Kind):
    words: tuple[str, ...] = ()

    def read(self, text: str, fabric: Fabric) -> str:
        if text not in self.words:
            raise Wrong(f"{text!r} is none of its values", f"one of {', '.join(self.words)}")
        return text

    def known(self, fabric: Fabric) -> Iterable[Offer]:
        return ((word, "") for word in self.words)


@dataclass(frozen=True)
class Number(Kind):
    """A number within bounds; `whole`: without fractions."""

    least: float = 0
    most: float = 1e18
    whole: bool = True

    def read(self, text: str, fabric: Fabric) -> float:
        try:
            value = int(text) if self.whole else float(text)
        except ValueError:
            raise Wrong(f"{text!r} is no {'whole ' * self.whole}number", self._bounds) from None
        if not self.least <= value <= self.most:
            raise Wrong(f"{text} is out of bounds", self._bounds)
        return value

    @property
    def _bounds(self) -> str:
        return f"from {self.least:g} to {self.most:g}"


@dataclass(frozen=True)
class Since:
    """A moment: `ago_ns` before now, or at `time_ns`."""

    text: str
    ago_ns: float | None = None
    time_ns: float | None = None

    def at(self, now_ns: float) -> float:
        """The moment in emulated time. Raises Wrong for one that is not in the past."""
        if self.ago_ns is not None:
            return max(now_ns - self.ago_ns, 0.0)
        assert self.time_ns is not None
        if self.time_ns > now_ns:
            now = units.format_time(now_ns)
            raise Wrong(f"{self.text} is in the future: it is {now}", f"SINCE: @TIME up to @{now}, or a time ago")
        return self.time_ns


class _Since(Kind):
    """`300us` is so long ago, `@300us` a moment of emulated time."""

    def read(self, text: str, fabric: Fabric) -> Since:
        ns = TIME.read(text.removeprefix("@").removesuffix(" ago"), fabric)
        return Since(text, time_ns=ns) if text.startswith("@") else Since(text, ago_ns=ns)


SWITCH = _Switch("switch", "SWITCH")
RANK = _Rank("rank", "RANK")
PORT = _Port("port", "PORT")
CABLE = _Cable("cable", "CABLE")
PLACE = _Place("place", "PLACE")
TEXT = Kind("text", "TEXT")
FILE = Kind("file", "FILE")
FLAG = Kind("flag", "")
TIME = Quantity("time", "TIME", units.TIME)
RATE = Quantity("rate", "RATE", units.RATE)
SIZE = Quantity("size", "SIZE", units.SIZE)
SINCE = _Since("since", "SINCE")
ON_OFF = Choice("state", "on|off", ("on", "off"))


def near(name: str, known: Iterable[str], called: str, most: int = 8, shown: Sequence[str] | None = None) -> str:
    """What was probably meant, and what there is (`shown`: in other words)."""
    names = list(known)
    close = get_close_matches(name, names, n=1, cutoff=0.6)
    meant = f"did you mean {close[0]}? " if close else ""
    return f"{meant}{called}: {listed(names if shown is None else shown, most)}"


def listed(names: Sequence[str], most: int = 8) -> str:
    more = f" and {len(names) - most} more" if len(names) > most else ""
    return (", ".join(names[:most]) or "none") + more
