"""Every fault of the catalogue as it is injected, and its symptom."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from tests.parts.faulty_fabric import FLOWS, UNIT, Outcome

Symptom = Callable[[Outcome, Outcome], bool]  # (untouched, faulty) -> whether the fault shows


def slower(by_ns: float) -> Symptom:
    return lambda was, now: all(
        b is not None and b >= a + by_ns for a, b in zip(was.times, now.times, strict=True) if a
    )


def longest(how: Callable[[float, float], bool]) -> Symptom:
    return lambda was, now: how(max(t or 0.0 for t in was.times), max(t or 0.0 for t in now.times))


def dropped(reason: str, at_least: int = 1) -> Symptom:
    return lambda was, now: now.reasons[reason] >= at_least and not was.reasons[reason]


def failed(was: Outcome, now: Outcome) -> bool:
    return None in now.times and None not in was.times


def both(*symptoms: Symptom) -> Symptom:
    return lambda was, now: all(one(was, now) for one in symptoms)


def more(count: str) -> Symptom:
    return lambda was, now: now.counts[count] > was.counts[count]


def without_drops(was: Outcome, now: Outcome) -> bool:
    return not now.drops


def at_port(port: str, count: str, how: Callable[[int, int], bool]) -> Symptom:
    return lambda was, now: how(was.ports[port][count], now.ports[port][count])


@dataclass(frozen=True)
class Case:
    """A fault as written, and how it must show. `flows`: others than usual."""

    fault: dict[str, Any]
    symptom: Symptom
    flows: tuple[tuple[int, int, int, float], ...] = tuple(FLOWS)
    spines: int = 1
    cc: str = "none"
    before: dict[str, Any] | None = None  # another fault that it needs to show, there from the beginning


def case(symptom: Symptom, fault: str, on: str, **parameters: Any) -> Case:
    settings = {key: parameters.pop(key) for key in ("flows", "spines", "cc", "before") if key in parameters}
    written = {"fault": fault, "on": on, **{k.rstrip("_"): v for k, v in parameters.items()}}
    return Case(written, symptom, **settings)


TO_0 = "cable:h0-leaf0"
MANY = tuple((s, d, 3 * 65536, 0) for s in (0, 1, 2) for d in (3, 4, 5))
CASES = {
    "loss": case(both(dropped("fault"), more("retransmitted")), "loss", TO_0, rate=0.02),
    "loss of one flow": case(
        both(dropped("fault"), more("retransmitted")),
        "loss", "flow:4->0", rate=0.05, direction="forward",
    ),
    "loss of acknowledgements": case(
        lambda was, now: now.reasons["fault"] > 0 and now.counts["out_of_sequence"] == 0,
        "loss", TO_0, rate=0.3, opcodes=["ACKNOWLEDGE"],
    ),
    "burst_loss": case(both(dropped("fault", 2), more("retransmitted")), "burst_loss", TO_0, to_bad=0.05, to_good=0.3),
    "drop_every": case(dropped("fault", 4), "drop_every", TO_0, n=64),
    "drop_first": case(lambda was, now: now.reasons["fault"] == 2 * 3, "drop_first", TO_0, n=3),  # each way
    "drop_hash": case(both(dropped("fault"), failed), "drop_hash", "all", share=0.3),
    "corruption": case(both(dropped("icrc"), more("rx_icrc_encapsulated")), "corruption", TO_0, rate=0.02),
    "silent_corruption": case(
        lambda was, now: now.figures()[:3] == was.figures()[:3], "silent_corruption", TO_0, rate=0.5
    ),
    "duplication": case(both(more("duplicate_request"), without_drops), "duplication", TO_0, rate=0.2),
    "reordering": case(both(more("out_of_sequence"), without_drops), "reordering", TO_0, rate=0.05),
    "delay": case(slower(20_000), "delay", "all", delay="10us"),
    "jitter": case(
        both(lambda was, now: now.times != was.times, without_drops), "jitter", TO_0, jitter="2us"
    ),
    "one_way": case(both(dropped("fault"), failed), "one_way", TO_0, direction="backward"),
    "dscp_remarked": case(
        at_port("leaf0:1", "rx_prio0_packets", lambda was, now: now > was), "dscp_remarked", TO_0, dscp=0
    ),
    "ecn_bleached": case(
        lambda was, now: now.counts["ecn_marked"] > 0 and now.counts["np_ecn_marked_roce_packets@0"] == 0
        and was.counts["np_ecn_marked_roce_packets@0"] > 0,
        "ecn_bleached", TO_0,
    ),
    "cable_down": case(dropped("cable"), "cable_down", "cable:leaf0-spine0", for_="20us"),
    "reduced_rate": case(slower(10_000), "reduced_rate", "all", rate="100Gbps"),
    "long_cable": case(slower(10_000), "long_cable", "all", delay="5us"),
    "small_mtu": case(both(dropped("mtu"), failed), "small_mtu", TO_0, mtu=1500),
    "miswired": case(both(dropped("no_qp"), failed), "miswired", "nic:0", other=2),
    "small_buffer": case(more("tx_pause"), "small_buffer", "switch:leaf0", size="800KB"),
    "ecn_off": case(
        at_port("leaf1:4", "ecn_marked_prio3", lambda was, now: was > 0 and now == 0), "ecn_off", "switch:leaf1"
    ),
    "ecn_thresholds": case(
        at_port("leaf1:4", "ecn_marked_prio3", lambda was, now: now > was), "ecn_thresholds", "switch:leaf1",
        kmin="5KB", kmax="5KB",
    ),
    "wrong_dscp_map": case(
        at_port("leaf1:1", "rx_prio0_packets", lambda was, now: now > was == 0), "wrong_dscp_map", "switch:leaf1"
    ),
    "short_watchdog": case(
        both(dropped("watchdog"), lambda was, now: any(e["event"] == "pfc_watchdog" for e in now.events)),
        "short_watchdog", "switch:leaf0", detect="1us", restore="5us",
        before={"fault": "slow_pcie", "on": "nic:0", "rate": "50Gbps"},
    ),
    "pfc_off": case(
        both(dropped("headroom"), at_port("leaf1:2", "tx_prio3_pause", lambda was, now: was > 0 == now)),
        "pfc_off", "port:leaf1:2",
    ),
    "small_headroom": case(dropped("headroom"), "small_headroom", "port:leaf1:2", size="4KB"),
    "pause_storm": case(
        both(at_port("leaf0:1", "rx_prio3_pause", lambda was, now: now > 2), slower(0)),
        "pause_storm", "nic:0", for_="100us",
        flows=((1, 0, 65536, 0), (3, 0, 65536, 0)),
    ),
    "missing_entry": case(both(dropped("forwarding"), failed), "missing_entry", "switch:leaf1", to=0),
    "shadow_rule": case(both(dropped("forwarding"), failed), "shadow_rule", "switch:spine0", to=0),
    "wrong_port": case(both(dropped("no_qp"), failed), "wrong_port", "switch:leaf0", to=0, port=2),
    "loop": case(both(dropped("ttl"), failed), "loop", "switch:leaf0", to=3, neighbour="spine0",
                 flows=((0, 3, 65536, 0),)),
    "meter": case(
        both(dropped("fault"), more("retransmitted"), lambda was, now: now.times[0] is not None),
        "meter", "switch:leaf0", to=0, rate="20Gbps",
    ),
    "dead_ecmp_member": case(
        both(dropped("forwarding"), failed), "dead_ecmp_member", "port:leaf0:4", spines=2, flows=MANY
    ),
    "polarised_hash": case(
        lambda was, now: now.figures() != was.figures(), "polarised_hash", "all", spines=4, flows=MANY
    ),
    "table_full": case(both(dropped("forwarding"), failed), "table_full", "switch:leaf0", flows_=2),
    "partial_write": case(both(dropped("forwarding"), failed), "partial_write", "switch:leaf0", share=0.5),
    "slow_pcie": case(more("tx_pause"), "slow_pcie", "nic:0", rate="100Gbps"),
    "cc_off": case(
        lambda was, now: now.counts["rp_cnp_handled@4"] == 0 < was.counts["rp_cnp_handled@4"],
        "cc_off", "nic:4", cc="dcqcn"
    ),
    "wrong_cc": case(
        lambda was, now: now.times != was.times,
        "wrong_cc", "nic:4", parameters={"g": 1.0, "rate_timer": "1ms"}, cc="dcqcn",
    ),
    "grant_leak": case(
        both(dropped("fault"), more("tx_credit_request"), longest(lambda was, now: now > 2 * was)),
        "grant_leak", "nic:0", rate=0.9, cc="ndp", flows=((1, 0, 16 * UNIT, 0), (3, 0, 16 * UNIT, 0)),
    ),
    "incast": case(both(more("ecn_marked"), more("tx_pause")), "incast", "nic:0", size="512KiB"),
    "noisy_neighbour": case(
        lambda was, now: now.times != was.times and now.counts["tx_packets"] > was.counts["tx_packets"],
        "noisy_neighbour", "all", load=0.5, flows_=20, size="128KiB",
    ),
    "victim_flow": case(
        lambda was, now: now.counts["tx_packets"] > was.counts["tx_packets"], "victim_flow", "flow:2->0", size="256KiB"
    ),
}  # fmt: skip
