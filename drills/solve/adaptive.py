"""Switches that choose among equal ports: whether they do, by which weights, and by what they see of their queues."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from math import log

from drills.solve.diagnosis import Diagnosis, distinct
from drills.solve.mending import resync
from drills.solve.operator import Operator, Row, number

ENOUGH = 200
"""Frames of a set that tell how it is used."""
UNEVEN, EVEN = 1.3, 1.15
"""The most that a port takes, over its share: of a chip that does not look, and of those that do."""
LITTLE = 0.01
Sets = Mapping[tuple[str, str], list[Row]]


@distinct
def hashes(op: Operator) -> Iterator[Diagnosis]:
    """A switch's table hashes where those of others have sets."""
    ways: dict[str, set[str]] = defaultdict(set)
    for row in op.rows("show flows"):
        actions = str(row["actions"])
        ways[str(row["switch"])] |= {word for word in ("multipath", "group:") if word in actions}
    chooses = {switch for switch, words in ways.items() if "group:" in words}
    for switch, words in ways.items():
        if "multipath" in words and switch not in chooses and chooses.intersection(op.like(switch)):
            yield Diagnosis("adaptive_off", f"switch:{switch}", resync(switch))


@distinct
def weights(op: Operator) -> Iterator[Diagnosis]:
    """A port weighs more than those beside it, whose cables are as fast, in sets that are even elsewhere."""
    sets = _sets(op.rows("show groups"))
    odd = {key for key, rows in sets.items() if len({number(row, "Weight") for row in rows}) > 1}
    if len({switch for switch, _ in odd}) * 2 > len({switch for switch, _ in sets}):
        return
    for switch, ports in odd:
        heavy = max(sets[switch, ports], key=lambda row: number(row, "Weight"))
        yield Diagnosis("wrong_group_weights", f"port:{heavy['Port']}", resync(switch))


def chips(op: Operator) -> Iterator[Diagnosis]:
    """What chips make of their sets: by what they took of late, over what their weights would have them take."""
    spreads: dict[str, dict[str, float]] = defaultdict(dict)
    for (switch, _), rows in _sets(op.recent("show groups")).items():
        if sum(number(row, "Picks") for row in rows) >= ENOUGH:
            spreads[switch] |= {str(row["Port"]): _spread(row, rows) for row in rows}
    for switch, of in spreads.items():
        mend = (f"adaptive restart {switch}",)
        if sum(spread > 0 for spread in of.values()) == 1:
            yield Diagnosis("stuck_choice", f"switch:{switch}", mend)
        elif max(of.values()) > UNEVEN and all(
            max(other.values()) <= EVEN for name, other in spreads.items() if name != switch
        ):
            odd = max(of, key=lambda port: abs(log(max(of[port], LITTLE))))
            yield Diagnosis("stale_quality", f"port:{odd}", mend)


def _sets(rows: Iterable[Row]) -> Sets:
    sets: dict[tuple[str, str], list[Row]] = defaultdict(list)
    for row in rows:
        sets[str(row["Switch"]), str(row["Set"])].append(row)
    return sets


def _spread(row: Row, rows: list[Row]) -> float:
    """A port's picks over its share of all."""
    weights, picks = (sum(number(one, key) for one in rows) for key in ("Weight", "Picks"))
    return number(row, "Picks") * weights / (picks * number(row, "Weight"))


RULES = (hashes, weights, chips)
