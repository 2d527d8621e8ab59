"""Packet trimming: what a switch makes of frames that find no place, what receivers say of it, and what is sent again."""

from __future__ import annotations

from typing import Any

import pytest

from hardware.config import Hardware
from tests.parts.fabricd_fixture import FAST, bare_fabric, fabricd_binary
from tests.parts.traffic_fabric import DSCP, drops, nic, send, switch

TRIM = {"classes": [3], "bytes": 128, "dscp": 36, "queue": 6}


def hardware(control: str = "nscc", recovery: str = "selective_repeat", **more: Any) -> Hardware:
    part = switch(headroom=0, lossless=[], alpha=1, dscp=DSCP | {"36": 6}, **more)
    return Hardware(
        switch_buffer_bytes=300_000, switch=part,
        nic={**nic(control), "lossless": [], "recovery": recovery, "trimmed_dscp": 36},
    )  # fmt: skip


@pytest.mark.parametrize("recovery", ["selective_repeat", "go_back_n"])
def test_an_incast_ends_without_a_timeout(recovery: str) -> None:
    with bare_fabric("star", {"hosts": 9}, hardware(recovery=recovery, trimming=TRIM), binary=fabricd_binary()) as f:
        f.fabricd.request("start", ranks=[])
        send(f, [(k, 0, 1_000_000, 0) for k in range(1, 9)])
        nics = f.counters()["nics"]
        assert not drops(f)
        assert sum(n["local_ack_timeout_err"] for n in nics) == 0
        assert f.counters()["switches"][0]["buffer_used_bytes"] == 0
