"""Careless programs: wrong handles, keys, states and pointers are answered as the manuals say, and harm nobody else."""

from __future__ import annotations

from pathlib import Path

from tests.parts.fabricd_fixture import wait_until
from tests.parts.rdma_programs import DEADLINE_S, compiled, numbers, programs_on, require

SAID = """\
railbed: the NIC is gone: fabricd has closed the session
no list: Segmentation fault
no region: Segmentation fault
looked at 230
"""
"""The first is of a program that has closed all its descriptors; the others would crash with any libibverbs."""
BESIDE = ("ib_write_bw", "-F", "-s", "4096", "-n", "200")


def test_each_call_says_what_the_manual_has_it_say_and_others_do_not_notice(tmp_path: Path) -> None:
    require("ib_write_bw")
    program = compiled(tmp_path, "hostile_verbs")
    with programs_on("star", {"hosts": 3}) as p:
        before = numbers(p.pair(*BESIDE, server=1, client=2)[1])
        p.next(0)
        hostile = p.start(0, program)
        while hostile.poll() is None:
            assert numbers(p.pair(*BESIDE, server=1, client=2)[1]) == before != []
        assert hostile.communicate(timeout=DEADLINE_S)[0] == SAID
        wait_until(lambda: not p.f.fabricd.request("programs")["programs"], "all sessions to end")
        assert not p.f.counters()["qps"]
