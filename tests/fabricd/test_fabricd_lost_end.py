"""Selective repeat where the end of what was sent is lost as well: what was sent again shows it, no probe is needed.

Times follow from the round trip of a packet of the MTU on an idle star, counted from its start on the cable, and from
its fetch over PCIe.
"""

from __future__ import annotations

import pytest

from hardware.config import Hardware
from testbed.experiment import load
from testbed.experiment.overrides import override
from testbed.plan.hardware import hardware_of
from tests.parts.lost_ends import FETCH, FIRST_START, LAST, MTU, ROUND_TRIP, T, lose, lose_last, lossy, sent
from tests.parts.machine import ROOT
from tests.parts.traffic_fabric import drops, nic, send, star, switch
from tests.parts.wire_view import watched


@pytest.mark.parametrize("lost", [1, 3])
def test_what_was_sent_again_shows_all_that_left_before(lost: int) -> None:
    """RFC 8985, section 6.2: a packet is lost when one has come that left later, though its number may be lower."""
    with star(2, lossy()) as f, watched(f, "h1:1") as seen:
        lose(f, "hole", FIRST_START + 40 * T - T / 2, T)
        lose_last(f, lost)
        send(f, [(1, 0, (LAST + 1) * MTU, 10_000)])
        assert drops(f) == {"fault": 1 + lost} and f.nic(1)["retransmitted"] == 1 + lost
        assert f.nic(1)["local_ack_timeout_err"] == 0 == f.nic(0)["duplicate_request"]
    again = sent(seen["frames"])[LAST + 1 :]
    assert [fr.psn for fr in again] == [40, *range(LAST + 1 - lost, LAST + 1)]
    assert again[1].time_ns - again[0].time_ns == pytest.approx(ROUND_TRIP + FETCH, abs=2 * T)


def test_a_recovery_begins_though_the_window_is_full_of_what_is_lost() -> None:
    """DCTCP halves its window; what is under way by then is more than that, and is lost (RFC 6675, section 5, 4.3)."""
    its_nic = {**nic("dctcp", rtt_ns=ROUND_TRIP + FETCH), "recovery": "selective_repeat", "lossless": []}
    hardware = Hardware(switch=switch(headroom=0, lossless=[], alpha=64), nic=its_nic)
    packets, came = 40, 12
    with star(2, hardware) as f, watched(f, "h1:1") as seen:
        lose(f, "hole", FIRST_START + 10 * T - T / 2, (came - 10) * T)
        lose(f, "end", FIRST_START + (came + 1) * T - T / 2, 40 * T)
        send(f, [(1, 0, packets * MTU, 10_000)])
        assert f.nic(1)["retransmitted"] == drops(f)["fault"] == packets - 11
        assert f.nic(1)["local_ack_timeout_err"] == 0 == f.nic(0)["duplicate_request"]
    frames = sent(seen["frames"])
    nak = next(fr.time_ns for fr in seen["frames"] if not fr.out and fr.syndrome == 0x60)
    first, second = frames[packets : packets + 2]
    assert (first.psn, second.psn) == (10, 11)
    assert first.time_ns == pytest.approx(nak + FETCH, abs=2 * T)
    assert second.time_ns - first.time_ns == pytest.approx(ROUND_TRIP + FETCH, abs=2 * T)


def incast(senders: int, recovery: str) -> tuple[float, int]:
    """Of experiments/congestion/trimming.yaml, without trimming: how long the last flow takes, and timeouts."""
    told = ["sweep={}", "fabric.switch.trimming=null", f"transport.recovery={recovery}"]
    told.append(f"fabric.topology.star.hosts={senders + 1}")
    experiment = override(load(ROOT / "experiments/congestion/trimming.yaml"), told)
    with star(senders + 1, hardware_of(experiment)) as f:
        last = max(send(f, [(n, 0, 256_000, 0) for n in range(1, senders + 1)]))
        assert drops(f)
        return last, sum(n["local_ack_timeout_err"] for n in f.counters()["nics"])


@pytest.mark.parametrize("senders", [8, 16, 28])
def test_an_incast_under_a_window_is_not_slower_than_with_go_back_n(senders: int) -> None:
    """Round trips of a full queue say nothing of what an empty one takes: answers tell what they are of (RFC 3522).

    The margin is that of `./setup.sh prove recovery`.
    """
    took, timeouts = incast(senders, "selective_repeat")
    assert not timeouts
    assert took <= 1.01 * incast(senders, "go_back_n")[0] + 2 * (ROUND_TRIP + FETCH)
