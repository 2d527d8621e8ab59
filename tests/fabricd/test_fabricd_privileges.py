"""fabricd gives up what it does not need once it has everything open, in every thread."""

from __future__ import annotations

import os
import re
from pathlib import Path

from tests.parts.fabricd_fixture import bare_fabric

DAC_OVERRIDE = 1 << 1  # captures go into folders that need not be root's


def test_a_running_fabricd_has_no_rights_to_speak_of(tmp_path: Path) -> None:
    with bare_fabric("star", {"hosts": 2}) as f:
        threads = os.listdir(f"/proc/{f.pid}/task")
        copies = len(os.sched_getaffinity(0)) > 1
        assert len(threads) == 3 + copies  # two of them close files and unmap memory
        for thread in threads:
            said = Path(f"/proc/{f.pid}/task/{thread}/status").read_text()
            status = dict(re.findall(r"(\w+):\t(.*)", said))
            assert {int(status[kind], 16) for kind in ("CapPrm", "CapEff")} <= {0, DAC_OVERRIDE}
            assert (int(status["CapInh"], 16), int(status["CapAmb"], 16)) == (0, 0)
            assert (status["NoNewPrivs"], status["Seccomp"]) == ("1", "2")
        tmp_path.chmod(0o500)
        os.chown(tmp_path, 1000, 1000)
        capture = tmp_path / "capture.pcapng"
        f.fabricd.request("capture", port="h0:1", path=str(capture))
        f.fabricd.request("capture_stop", path=str(capture))
        assert capture.stat().st_size
