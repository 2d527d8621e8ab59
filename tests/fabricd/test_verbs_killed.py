"""Programs that are killed at any moment: nothing of them is left at their NIC, and the next ones run as ever."""

from __future__ import annotations

import random

import pytest

from tests.parts.fabricd_fixture import wait_until
from tests.parts.rdma_programs import numbers, programs_on, require

WHAT = (["ib_write_bw"], ["ib_send_bw", "-c", "UD"], ["ib_read_bw"], ["ib_send_bw", "--use-srq"], ["ib_atomic_bw"])


@pytest.mark.parametrize("argv", WHAT, ids=" ".join)
def test_nothing_is_left_of_one_that_is_killed(argv: list[str]) -> None:
    require(argv[0])
    dice = random.Random(" ".join(argv))
    with programs_on("star", {"hosts": 2}) as p:
        command = [*argv, "-F", *([] if argv[0] == "ib_atomic_bw" else ["-s", "4096"]), "-n", "100000"]
        first = p.start(0, *command)
        p.listens(0)
        second = p.start(1, *command, str(p.f.fabric.nics[0].ip))
        enough = dice.randrange(2000)
        wait_until(
            lambda: sum(p.f.nic(rank)["rx_vport_rdma_unicast_packets"] for rank in (0, 1)) > enough, "packets", 60
        )
        killed, other = dice.sample([first, second], 2)
        killed.kill()
        killed.wait()
        other.terminate()
        other.wait()
        wait_until(lambda: not p.f.counters()["qps"], "their queue pairs to go", 60)
        p.next(0, 1)
        _, client = p.pair("ib_write_bw", "-F", "-s", "4096", "-n", "100")
        assert numbers(client)
