"""rdma-core's own tests of verbs (Debian: python3-pyverbs), those that no vendor's hardware needs, against our NIC.

One process plays both sides, so the NIC reaches itself.  What is skipped is what the device says that it has not.
"""

from __future__ import annotations

import gzip
import re
import shutil
from pathlib import Path

import pytest

from tests.parts.machine import ROOT
from tests.parts.rdma_programs import programs_on

PACKAGE = ROOT / ".venv/rdma-core/usr"
SHIPPED = PACKAGE / "share/doc/rdma-core/tests"
BINDINGS = PACKAGE / "lib/python3/dist-packages"
OF_VENDORS = ("mlx5", "efa", "cuda")
PASSED = 120  # at least
LACKS = (
    "dmabuf|net interface|XRCD|QP type 8|huge pages|Raw Packet QP"
    "|Importing|object imports|Extended CQ|Extended QP|gid indices"
)


def unpacked(folder: Path) -> list[str]:
    """Its modules, as Python can import them; the names of those that belong to no vendor."""
    tests = folder / "tests"
    tests.mkdir()
    for file in SHIPPED.iterdir():
        if file.suffix == ".gz":
            (tests / file.stem).write_bytes(gzip.decompress(file.read_bytes()))
        else:
            shutil.copy(file, tests)
    return sorted(p.stem for p in tests.glob("test_*.py") if not any(vendor in p.stem for vendor in OF_VENDORS))


def test_rdma_cores_own_tests_pass(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    if not SHIPPED.is_dir():
        pytest.skip("rdma-core's tests are not there: ./setup.sh test unpacks them (python3-pyverbs)")
    names = unpacked(tmp_path)
    (tmp_path / "sitecustomize.py").write_text("import random\nrandom.seed(24)\n")  # some draws are an error
    monkeypatch.setenv("PYTHONPATH", f"{tmp_path}:{tmp_path}/tests:{BINDINGS}")
    with programs_on("star", {"hosts": 2}) as p:
        p.f.start(0)
        run = p.start(
            0, "/usr/bin/python3", str(tmp_path / "tests/run_tests.py"), "-v", *(f"tests.{name}" for name in names)
        )
        said = run.communicate(timeout=120)[0]
    assert not re.findall(r"(?:ERROR|FAIL)$", said, re.MULTILINE), said
    assert len(re.findall(r"ok$", said, re.MULTILINE)) >= PASSED
    skipped = re.findall(r"skipped ['\"](.*)['\"]$", said, re.MULTILINE)
    assert skipped and not [why for why in skipped if not re.search(LACKS, why)]
