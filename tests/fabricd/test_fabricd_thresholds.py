"""fabricd pauses at the thresholds that are worked out: by the frame that reaches XOFF, and by none before."""

from __future__ import annotations

from testbed.experiment import Experiment, loads
from testbed.plan import thresholds
from testbed.plan.hardware import hardware_of
from tests.parts.traffic_fabric import frame_bytes, port, send, star


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
            send(f, [(1, 0, 4096 * (frames + more), 5000)])
            assert port(f, "sw0", 2)["priorities"].get("tx_prio3_pause", 0) == 2 * more  # XOFF, and XON later
