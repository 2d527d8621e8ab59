"""A session that has one moment, as tables: what the solver and the baselines are tested on, without a fabric."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from drills.session import Answer
from drills.sheet import file
from drills.sheet.case import Case

NOW_NS = 700_000
STEPS = [
    {"step": "0..3", "began_us": 1.0, "time_us": 90.0, "vs_best": "1.00x", "wrong": 0},
    {"step": "4", "began_us": 600.0, "time_us": 90.0, "vs_best": "1.00x", "wrong": 0},
]


class Recorded:
    """A session that has one moment: what its views show, and what was done."""

    def __init__(self, shown: Mapping[str, Any], question: tuple[str, ...] = ("healthy", "where", "what")) -> None:
        self.shown = {"job": {"job": STEPS}, **shown}
        self.question = question
        self.done: list[str] = []
        self.fabric = Case.of(file.load("lost/dirty-optics"), "7Q4", False).experiment.build_fabric()

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
