"""A session that has one moment, as tables: what the solver and the baselines are tested on, without a fabric."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from typing import Any

from drills.session import Answer
from drills.sheet import file
from drills.sheet.case import Case
from topologies import Fabric

NOW_NS = 700_000
STEPS = [
    {"step": "0..3", "began_us": 1.0, "time_us": 90.0, "vs_best": "1.00x", "wrong": 0},
    {"step": "4", "began_us": 600.0, "time_us": 90.0, "vs_best": "1.00x", "wrong": 0},
]
STANDS = [{**step, "began_us": 1.0} for step in STEPS]
FIX = ("healthy", "where", "what", "fix")


@cache
def _fabric() -> Fabric:
    return Case.of(file.load("lost/dirty-optics"), "7Q4", False).experiment.build_fabric()


class Recorded:
    """A session that has one moment: what its views show, and what was done."""

    def __init__(self, shown: Mapping[str, Any], question: tuple[str, ...] = ("healthy", "where", "what")) -> None:
        self.shown = {"job": {"job": STEPS}, **shown}
        self.question = question
        self.done: list[str] = []
        self.fabric = _fabric()

    def command(self, line: str) -> Answer:
        if line == "ticket":
            return Answer(True, NOW_NS, "", {"question": self.question, "sealed": "5e"})
        if not line.startswith("show "):
            self.done += [line] * line.startswith("config ")
            return Answer(True, NOW_NS, "", {})
        words = line[5:].partition(" --")[0]
        if line.startswith("show job --last"):
            return Answer(True, NOW_NS, "", {"job": self.shown["job"]["job"][-1:]})
        if words not in self.shown or "--ranks" in line:
            return Answer(False, NOW_NS, "there is no such view")
        return Answer(True, NOW_NS, "", self.shown[words])

    def ticket(self) -> dict[str, Any]:
        return {}

    def state(self) -> dict[str, Any]:
        return {"topology": self.fabric.to_dict(), "steps": 3}

    def complete(self, line: str) -> list[str]:
        return []

    def close(self) -> None:
        pass


def nics(**counts: Mapping[int, int]) -> dict[str, Any]:
    return {"nics": {"nics": [{"rank": r, **{key: its.get(r, 0) for key, its in counts.items()}} for r in range(8)]}}


def ecn_config(**low: int) -> dict[str, Any]:
    rows = [
        {"Switch": s, "Port": "all", "Queue": "UC3", "green_min_threshold": low.get(s, 40000),
         "green_max_threshold": 160000, "green_drop_probability": "20"}
        for s in ("leaf0", "leaf1", "spine0", "spine1")
    ]  # fmt: skip
    return {"ecn config": {"ecn": rows}}


def crc(*ports: str) -> dict[str, Any]:
    return {"interfaces errors": {"errors": [{"IFACE": p, "RX_ERR": 3, "RX_CRC": 3} for p in ports]}}


UPLINKS = {"leaf0:5": "spine0:1", "leaf0:6": "spine1:1", "leaf1:5": "spine0:2", "leaf1:6": "spine1:2"}
HOSTS = {f"leaf{rank // 4}:{rank % 4 + 1}": f"h{rank}:1" for rank in range(8)}
SWITCHES = ("leaf0", "leaf1", "spine0", "spine1")


def status(**odd: Mapping[str, Any]) -> dict[str, Any]:
    """Both ends of all cables; `leaf0_5={"Speed": "50G"}` of one that is not as the others."""
    both = {**UPLINKS, **HOSTS}
    both |= {peer: port for port, peer in both.items()}
    rows = [
        {"Interface": port, "Peer": peer, "Oper": "up", "Admin": "up", "Speed": "100G",
         "MTU": 4096 if port[0] == "h" else 9100} | odd.get(port.replace(":", "_"), {})
        for port, peer in both.items()
    ]  # fmt: skip
    return {"interfaces status": {"interfaces": rows}}


def log(*rows: tuple[float, str, str]) -> dict[str, Any]:
    return {"logging": {"log": [{"time_us": us, "who": who, "message": text} for us, who, text in rows]}}


def accelerators(**odd: Mapping[str, Any]) -> dict[str, Any]:
    rows = [{"switch": s, "status": "up", "slots_free": 64, "unknown": 0} | odd.get(s, {}) for s in SWITCHES]
    return {"accelerators": {"accelerators": rows}}


def traffic(*flows: tuple[int, int, int]) -> dict[str, Any]:
    """Bytes of others from rank to rank, beside the job's."""
    rows = [{"rank": a, "peer": b, "tenant": "other", "tx_bytes": n} for a, b, n in flows]
    return {"traffic": {"traffic": [*rows, {"rank": 0, "peer": 1, "tenant": "job", "tx_bytes": 10**6}]}}


def deep(port: str, size: int) -> dict[str, Any]:
    return {"queue watermark": {"shared": [{"Port": port, "UC3": size}]}}


class Ranks(Recorded):
    """Steps with the times of their ranks: `host_us` of each."""

    def __init__(self, *steps: list[float], more: Mapping[str, Any] | None = None) -> None:
        super().__init__(more or {})
        self.ranked = [
            {"step": str(k), "rank": rank, "host_us": us, "compute_us": 20.0, "wrong": 0}
            for k, step in enumerate(steps)
            for rank, us in enumerate(step)
        ]

    def command(self, line: str) -> Answer:
        if line.startswith("show job --ranks"):
            return Answer(True, NOW_NS, "", {"job": self.ranked})
        return super().command(line)


USUAL = [1.0] * 8


def but(rank: int, us: float) -> list[float]:
    return [*USUAL[:rank], us, *USUAL[rank + 1 :]]


class Wrong(Recorded):
    """Sums are wrong, by so many elements of these ranks, unless one of the switches is drained."""

    def __init__(self, guilty: str, **ranks: int) -> None:
        super().__init__({}, FIX)
        self.guilty = guilty
        self.ranks = [{"step": "4", "rank": int(r[1:]), "wrong": n} for r, n in ranks.items()]

    def command(self, line: str) -> Answer:
        if line.startswith("show job --ranks"):
            return Answer(True, NOW_NS, "", {"job": self.ranks})
        off = {done.split()[-1] for done in self.done if " drain " in done}
        off -= {done.split()[-1] for done in self.done if " undrain " in done}
        self.shown = {"job": {"job": [{**STEPS[0]}, {**STEPS[1], "wrong": 9 * (self.guilty not in off)}]}}
        return super().command(line)
