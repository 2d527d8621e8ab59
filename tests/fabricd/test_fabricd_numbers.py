"""A draw is numbered by who makes the frame, or by the port that loses it: what others do changes none."""

from __future__ import annotations

from hardware.config import Hardware
from tests.parts.traffic_fabric import drops, nic, port, send, star, switch

FLOW = 200 * 4096
LINE = {"3": {"kmin_bytes": 50_000, "kmax_bytes": 500_000, "pmax": 0.5}}
SWITCH = switch(headroom=0, lossless=[], alpha=64, ecn=LINE)
HARDWARE = Hardware(switch_buffer_bytes=10**9, switch=SWITCH, nic=nic(), timeout_ns=100_000)


def _marks(elsewhere: list[tuple[int, int, int, float]]) -> list[int]:
    """Marks at the port to host 0, where hosts 1 and 2 meet, burst after burst."""
    with star(5, HARDWARE) as f:
        counts = []
        for _ in range(8):
            send(f, [(1, 0, FLOW, 0), (2, 0, FLOW, 0), *elsewhere])
            counts.append(port(f, "sw0", 1)["priorities"]["ecn_marked_prio3"])
        return counts


def test_traffic_elsewhere_does_not_change_which_frames_a_port_marks() -> None:
    alone = _marks([])
    assert alone == sorted(set(alone)) and len({b - a for a, b in zip(alone, alone[1:], strict=False)}) > 1  # drawn
    assert _marks([(3, 4, 7 * 4096, 0), (4, 3, 31 * 4096, 500)]) == alone


RULES = [{"share": 0.02}, {"every": 37}, {"first": 9}, {"burst": {"to_bad": 0.02, "to_good": 0.2}}]


def _losses(elsewhere: list[tuple[int, int, int, float]]) -> list[tuple[int, float]]:
    """What came in from host 1, and how long its flow to host 0 took, burst after burst; losses decide both."""
    with star(4, HARDWARE) as f:
        for k, select in enumerate(RULES):
            rule = {"effect": "drop", "select": select, "ports": ["h1:1", "h2:1"]}
            f.fabricd.request("inject", fault=f"x{k}", primitive="frames", **rule)
        seen = []
        for _ in range(3):
            took = send(f, [(1, 0, FLOW, 0), *elsewhere])[0]
            seen.append((port(f, "sw0", 2)["rx_frames"], took))
        assert drops(f)["fault"] > 9
        return seen


def test_traffic_elsewhere_does_not_change_what_a_rule_over_several_ports_strikes_at_one() -> None:
    assert _losses([(2, 3, 53 * 4096, 100)]) == _losses([])


def test_ports_of_one_rule_draw_apart() -> None:
    with star(4, HARDWARE) as f:
        rule = {"effect": "drop", "select": {"share": 0.02}, "ports": ["h1:1", "h2:1"]}
        f.fabricd.request("inject", fault="x", primitive="frames", **rule)
        one, other = send(f, [(1, 0, FLOW, 0), (2, 3, FLOW, 0)])
        assert one != other
