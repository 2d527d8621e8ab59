"""Careless programs: wrong handles, keys, states and pointers are answered as the manuals say, and harm nobody else."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from tests.parts.fabricd_fixture import wait_until
from tests.parts.machine import ROOT
from tests.parts.rdma_programs import DEADLINE_S, numbers, programs_on, require

HEADER = Path("/usr/include/infiniband/verbs.h")
SAID = """\
railbed: the NIC is gone: fabricd has closed the session
no list: Segmentation fault
no region: Segmentation fault
looked at 230
"""
"""The first is of a program that has closed all its descriptors; the others would crash with any libibverbs."""
BESIDE = ("ib_write_bw", "-F", "-s", "4096", "-n", "200")


def test_each_call_says_what_the_manual_has_it_say_and_others_do_not_notice(tmp_path: Path) -> None:
    if not HEADER.is_file():
        pytest.skip("verbs' header is not there: ./setup.sh test installs it (libibverbs-dev)")
    require("ib_write_bw")
    program = tmp_path / "hostile"
    with programs_on("star", {"hosts": 3}) as p:
        library = f"-L{p.env['LD_LIBRARY_PATH']}"
        source = ROOT / "tests/parts/hostile_verbs.c"
        subprocess.run(["cc", "-O1", "-o", program, source, library, "-l:libibverbs.so.1"], check=True)
        before = numbers(p.pair(*BESIDE, server=1, client=2)[1])
        p.next(0)
        hostile = p.start(0, str(program))
        while hostile.poll() is None:
            assert numbers(p.pair(*BESIDE, server=1, client=2)[1]) == before != []
        assert hostile.communicate(timeout=DEADLINE_S)[0] == SAID
        wait_until(lambda: not p.f.fabricd.request("programs")["programs"], "all sessions to end")
        assert not p.f.counters()["qps"]
