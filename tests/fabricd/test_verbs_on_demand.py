"""A program's region on demand follows what it maps and unmaps, as a NIC that goes by its page tables would."""

from __future__ import annotations

import errno
import subprocess
from pathlib import Path

import pytest

from tests.parts.machine import ROOT
from tests.parts.rdma_programs import DEADLINE_S, programs_on

HEADER = Path("/usr/include/infiniband/verbs.h")
SAID = f"""\
mapped: success: first
mapped anew: success: second
the other end, too: success: second
all of memory: success: third
advice: {errno.EFAULT}, without faults 0
unmapped: local protection error
"""


def test_what_is_mapped_anew_is_what_the_nic_sees(tmp_path: Path) -> None:
    if not HEADER.is_file():
        pytest.skip("verbs' header is not there: ./setup.sh test installs it (libibverbs-dev)")
    program = tmp_path / "on_demand"
    with programs_on("star", {"hosts": 2}) as p:
        library = f"-L{p.env['LD_LIBRARY_PATH']}"
        source = ROOT / "tests/parts/on_demand.c"
        subprocess.run(["cc", "-O1", "-o", program, source, library, "-l:libibverbs.so.1"], check=True)
        p.f.start(0)
        said = p.start(0, str(program)).communicate(timeout=DEADLINE_S)[0]
    assert said == SAID
