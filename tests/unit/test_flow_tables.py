"""What rules have counted: Open vSwitch's figures and the fast path's, put together line by line."""

from __future__ import annotations

from testbed.fabric.flow_tables import TRAILER_BYTES, rows

DUMP = """duration=3s, n_packets=2, n_bytes=232, priority=100,ip,nw_dst=10.0.0.1,actions=output:1
duration=3s, n_packets=0, n_bytes=0, ip,nw_src=10.0.0.1,actions=mod_nw_tos:8,output:2
duration=3s, n_packets=1, n_bytes=116, actions=drop
duration=3s, n_packets=0, n_bytes=0, priority=0,actions=drop
table_id=1, duration=3s, n_packets=0, n_bytes=0, idle_timeout=5, priority=100,reg0=0x1,reg1=0x978dd953,actions=output:4
table_id=254, duration=4s, n_packets=0, n_bytes=0, priority=2,recirc_id=0,actions=drop
"""
FAST = [
    {
        "switch": "rail0",
        "rule": "0. ip,nw_dst=10.0.0.1, priority 100, cookie 0x7262340ae0ed7033",
        "packets": 5,
        "bytes": 500,
    },
    {"switch": "rail0", "rule": "0. ip,nw_src=10.0.0.1, priority 32768", "packets": 3, "bytes": 300},
    {"switch": "rail0", "rule": "0. priority 32768", "packets": 4, "bytes": 400},
    {"switch": "rail0", "rule": "1. reg0=0x1,reg1=0x978dd953, priority 100, cookie 0x1", "packets": 7, "bytes": 700},
    {"switch": "rail0", "rule": "0. nw_dst=10.9.9.9, priority 1", "packets": 9, "bytes": 900},
]


def test_counts_are_added_rule_by_rule() -> None:
    found = {(r["table"], r["priority"], r["match"]): r for r in rows({"rail0": DUMP}, FAST)}
    assert {key: (r["packets"], r["bytes"], r["fast_packets"]) for key, r in found.items()} == {
        (0, 100, "ip,nw_dst=10.0.0.1"): (7, 232 - 2 * TRAILER_BYTES + 500, 5),
        (0, 32768, "ip,nw_src=10.0.0.1"): (3, 300, 3),
        (0, 32768, ""): (5, 100 + 400, 4),
        (0, 0, ""): (0, 0, 0),
        (1, 100, "reg0=0x1,reg1=0x978dd953"): (7, 700, 7),
    }
    assert found[0, 32768, "ip,nw_src=10.0.0.1"]["actions"] == "mod_nw_tos:8,output:2"
    assert all(r["switch"] == "rail0" for r in found.values())


def test_another_switch_s_rule_is_another_rule() -> None:
    assert {r["packets"] for r in rows({"rail1": DUMP}, FAST)} == {0, 1, 2}
