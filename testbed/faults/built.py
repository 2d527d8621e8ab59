"""What the parts of a fabric have by its experiment: a fault that takes something away leaves less of it."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from hardware.config import Hardware
from testbed.base.units import format_rate, format_size, format_time
from topologies.graph.fabric import Cable, Fabric
from topologies.graph.mistake import Mistake


class CannotInject(Mistake, ValueError):
    """The fault does not fit its target: `what`, `hint`; `key` is its parameter that is wrong, None: its target."""

    def __init__(self, what: str, hint: str = "", key: str | None = None) -> None:
        super().__init__(what, hint)
        self.key = key


@dataclass(frozen=True)
class Built:
    """Of one fabric: rates in bit/s, times in ns, sizes in bytes."""

    hardware: Hardware
    headroom: Callable[[float, float], int]
    """Of a port and lossless class, by its cable's rate and delay."""
    longest: int
    """The longest IP packet that anybody sends."""
    watchdog_ns: float | None
    """How long a pause may be until the PFC watchdog acts; None: there is none."""
    cpus: float | None
    """That a rank's container may use; None: all."""
    adaptive: bool = False
    """Whether switches take one of several ports."""
    trimmed_dscp: int | None = None
    """What switches give to trimmed frames; None: they trim none."""

    def rates(self, fabric: Fabric, cables: Iterable[Cable]) -> list[tuple[float, str]]:
        return [(self.hardware.cable(fabric, c)[0], f"cable:{c.name}") for c in cables]

    def delays(self, fabric: Fabric, cables: Iterable[Cable]) -> list[tuple[float, str]]:
        return [(self.hardware.cable(fabric, c)[1], f"cable:{c.name}") for c in cables]

    def headrooms(self, fabric: Fabric, cables: Iterable[Cable]) -> list[tuple[float, str]]:
        return [(self.headroom(*self.hardware.cable(fabric, c)), f"a port of cable:{c.name}") for c in cables]

    def under_credits(self, cables: Iterable[Cable]) -> set[bool]:
        """Whether cables are: both, where some are."""
        return {"credits" in self.hardware.of_cable.get(cable.name, {}) for cable in cables}

    def pcie(self, fabric: Fabric, ranks: Iterable[int]) -> list[tuple[float, str]]:
        """Bandwidth to memory; a compute complex has its own."""
        of_complex = self.hardware.complex
        found = []
        for rank in ranks:
            inside = of_complex is not None and fabric.nics[rank].name in fabric.complexes
            rate = of_complex.rate_bps if of_complex is not None and inside else self.hardware.pcie_rate_bps
            found.append((rate, f"nic:{rank}"))
        return found


TEXTS: dict[str, Callable[[float], str]] = {
    "rate": lambda number: format_rate(int(number)),
    "time": format_time,
    "size": lambda number: format_size(int(number)),
    "bytes": lambda number: f"{int(number)} bytes",
    "CPUs": lambda number: f"{number:g} CPUs",
}


def less(key: str, value: float, has: Iterable[tuple[float, str]], kind: str, what: str) -> None:
    """Raises CannotInject unless `value` is less than each of what is there: (how much, where)."""
    least, where = min(has, default=(value + 1, ""))
    if value >= least:
        raise _no_worse(key, value, least, kind, f"{what} of {where}", "less")


def more(key: str, value: float, has: Iterable[tuple[float, str]], kind: str, what: str) -> None:
    """As `less`, of what a fault makes longer."""
    most, where = max(has, default=(value - 1, ""))
    if value <= most:
        raise _no_worse(key, value, most, kind, f"{what} of {where}", "more")


def _no_worse(key: str, value: float, limit: float, kind: str, what: str, word: str) -> CannotInject:
    text = TEXTS[kind]
    return CannotInject(
        f"{text(value)} makes nothing worse: {what} is {text(limit)}", f"{word} than {text(limit)}", key
    )
