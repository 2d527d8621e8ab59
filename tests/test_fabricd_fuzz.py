"""The fuzzers of protocols, frames and multicast find nothing, each for RAILBED_FUZZ_SECONDS (60)."""

from __future__ import annotations

import os

import pytest

from hardware.fuzz.__main__ import main
from hardware.fuzz.seeds import SEEDS

SECONDS = int(os.environ.get("RAILBED_FUZZ_SECONDS", "60"))


@pytest.mark.timeout(600 + 2 * SECONDS)
def test_fuzz(capsys: pytest.CaptureFixture[str]) -> None:
    status = main(["--seconds", str(SECONDS)])
    said = capsys.readouterr()
    assert status == 0, said.out + said.err
    assert said.out.count(": ok, ") == len(SEEDS)
