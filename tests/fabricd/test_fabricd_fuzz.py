"""The fuzzers of protocols, frames and multicast find nothing in a fixed number of inputs from a fixed seed.

`./setup.sh fuzz` goes on for as long as one likes, with inputs that are new each time.
"""

from __future__ import annotations

import pytest

from hardware.fuzz.__main__ import main
from hardware.fuzz.seeds import SEEDS

INPUTS = 400


@pytest.mark.timeout(900)
def test_fuzz(capsys: pytest.CaptureFixture[str]) -> None:
    status = main(["--inputs", str(INPUTS)])
    said = capsys.readouterr()
    assert status == 0, said.out + said.err
    assert said.out.count(": ok, ") == len(SEEDS)
