"""fabricd pauses, and lets go, at thresholds that are worked out: by the frame that reaches them, by none before."""

from __future__ import annotations

import pytest

from hardware.config import Hardware
from testbed.experiment import Experiment, loads
from testbed.plan import thresholds
from testbed.plan.hardware import hardware_of
from tests.parts.traffic_fabric import frame_bytes, nic, port, send, star, switch
from tests.parts.wire_view import watched
from topologies.graph.frames import ser_ns


def experiment(fabric: str, more: str = "") -> Experiment:
    return loads(f"name: x\nfabric: {{{fabric}}}\n{more}", "x.yaml")


def test_a_port_is_paused_by_the_frame_that_reaches_xoff_and_by_none_before() -> None:
    """The receiver takes nothing, so that what one port brings stays: one frame less than XOFF, and one more."""
    e = experiment("topology: {star: {hosts: 3}}, switch: {buffer: 2MB, alpha: 0.25}, nic: {ack_every: 1024}")
    (row,) = thresholds.rows(e)
    assert (row["ports"], row["to"], row["rate"], row["kmin"]) == ("sw0:1-3", "host", "400Gbps", 800_000)
    frames = (row["xoff_alone"] - 16) // frame_bytes()  # the first has 16 bytes more
    with star(3, hardware_of(e)) as f:
        for more in (0, 1):
            f.fabricd.request(
                "inject", fault=f"s{more}", primitive="params", nic=0, values={"storm": [3]}, for_ns=60_000
            )
            with watched(f, "h1:1") as seen:
                send(f, [(1, 0, 4096 * (frames + more), 5000)])
            assert port(f, "sw0", 2)["priorities"].get("tx_prio3_pause", 0) == 2 * more  # XOFF, and XON later
    ends = seen["pauses"][seen["pauses"]["on"] == 0].set_index("node")["time_ns"]
    # the one that goes on lets one frame go after the other: XON leaves with the first that makes room
    s, h, frame = hardware_of(e).switch, hardware_of(e), frame_bytes()
    aside = 3 * len(s["lossless"]) * (s["reserve_bytes"] + s["headroom_bytes"])

    def shared(gone: int) -> int:
        return max((frames + 1 - gone) * frame - s["reserve_bytes"], 0)

    def is_low(gone: int) -> bool:
        threshold = int(s["alpha"] * (h.switch_buffer_bytes - aside - shared(gone)))
        return shared(gone) + s["xon_offset_bytes"] <= threshold

    gone = next(k for k in range(1, frames) if is_low(k))
    assert gone > 1
    let_go = ser_ns(frame + 16, 400e9) + (gone - 2) * ser_ns(frame, 400e9)
    assert ends["h1"] - ends["sw0"] == pytest.approx(let_go + ser_ns(60, 400e9) + h.cable_delay_ns, abs=0.01)


def test_a_port_is_let_go_by_the_frame_that_leaves_just_the_offset() -> None:
    """XON as soon as what it holds and the offset are not above the threshold: here they are the same, with two frames
    less than XOFF came at. With alpha 1 a port that is alone may hold half of what is shared.
    """
    frame, reserve, room, whole = frame_bytes(), 4000, 60_000, 3 * 2 * (4000 + 60_000) + 200_000
    held = -(-(200_000 // 2 + reserve) // frame)  # with this one it is reached
    left = held - 2
    offset = 200_000 - 2 * (left * frame - reserve)
    part = switch(headroom=room, reserve_bytes=reserve, alpha=1, xon_offset_bytes=offset)
    with star(3, Hardware(switch_buffer_bytes=whole, switch=part, nic=nic(), ack_every=1 << 20)) as f:
        storm = {"primitive": "params", "nic": 0, "values": {"storm": [3]}}
        f.fabricd.request("inject", fault="storm", **storm, for_ns=60_000)
        with watched(f, "h1:1") as seen:
            send(f, [(1, 0, 4096 * held, 5000)])
    ends = seen["pauses"][seen["pauses"]["on"] == 0].set_index("node")["time_ns"]
    second_starts = ser_ns(frame + 16, 400e9)
    assert ends["h1"] - ends["sw0"] == pytest.approx(second_starts + ser_ns(60, 400e9) + 500, abs=0.01)
