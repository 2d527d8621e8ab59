"""Interfaces that show it themselves: speed, MTU; receivers without buffers."""

from __future__ import annotations

import re
from collections.abc import Iterator

from drills.solve.diagnosis import Diagnosis, distinct
from drills.solve.mending import around
from drills.solve.operator import Operator, by_peer, by_rank, node_of, number, odd, sums


@distinct
def speeds(op: Operator) -> Iterator[Diagnosis]:
    rows = [row for row in op.rows("show interfaces status") if row["Oper"] == "up"]
    kinds = [{**row, "of": _roles(str(row["Interface"]), str(row["Peer"]))} for row in rows]
    for row, usual in odd(kinds, "of", ("Speed",)):
        cable = op.cable(str(row["Interface"]))
        if cable is not None and rate(str(row["Speed"])) < rate(str(usual["Speed"])):
            change: tuple[str, ...] = (f"interface speed {op.switch_end(cable)} {usual['Speed']}bps",)
            otherwise: tuple[str, ...] = ()
            if op.between_switches(cable):  # it is drained first, for its link goes down
                otherwise = (*change, f"route undrain {op.switch_end(cable)}")
                change = (*around(op, cable), *otherwise)
            yield Diagnosis("reduced_rate", f"cable:{cable.name}", change, otherwise)


@distinct
def mtus(op: Operator) -> Iterator[Diagnosis]:
    rows = [r for r in op.rows("show interfaces status") if op.rank(str(r["Interface"])) is None]
    for row, _ in odd(rows, "", ("MTU",)):
        cable = op.cable(str(row["Interface"]))
        if cable is not None:
            line = f"interface mtu {op.switch_end(cable)} 9216"
            yield Diagnosis("small_mtu", f"cable:{cable.name}", (line,))


def late_buffers(op: Operator) -> list[Diagnosis]:
    """The receiver to which those who get RNR NAKs retransmit most."""
    refused = {by_rank(row) for row in op.recent("show nics") if number(row, "rnr_nak_retry_err") > 0}
    again = sums((row for row in op.rows("show qps") if by_rank(row) in refused), by_peer, "retransmitted")
    if not again or not max(again.values()):
        return []
    worst = max(again, key=lambda rank: again[rank])
    return [Diagnosis("slow_receiver", f"nic:{worst}")]


def _roles(*ports: str) -> str:
    return "-".join(sorted(re.sub(r"\d.*", "", node_of(port)) for port in ports))


def rate(speed: str) -> float:
    match = re.match(r"([\d.]+)([GMT])", speed)
    return float(match[1]) * {"M": 1e6, "G": 1e9, "T": 1e12}[match[2]] if match else 0.0


RULES = (speeds, mtus, late_buffers)
