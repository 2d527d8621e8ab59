"""A program's region on demand follows what it maps and unmaps, as a NIC that goes by its page tables would."""

from __future__ import annotations

import errno
from pathlib import Path

from tests.parts.rdma_programs import DEADLINE_S, compiled, programs_on

SAID = f"""\
mapped: success: first
mapped anew: success: second
the other end, too: success: second
all of memory: success: third
advice: {errno.EFAULT}, without faults 0
unmapped: local protection error
"""


def test_what_is_mapped_anew_is_what_the_nic_sees(tmp_path: Path) -> None:
    program = compiled(tmp_path, "on_demand")
    with programs_on("star", {"hosts": 2}) as p:
        p.f.start(0)
        said = p.start(0, program).communicate(timeout=DEADLINE_S)[0]
    assert said == SAID
