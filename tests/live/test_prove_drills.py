"""The proof of generated drills, when it is ended while a seed is played."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from testbed.machine.processes import Process
from tests.parts.machine import ROOT, fabrics_begun_by, traces, wait_until

PROOF = (sys.executable, "-m", "tests.prove_drills", "--generated", "3", "--results")


def children(pid: int) -> list[int]:
    return [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGKILL])
def test_ended_it_leaves_neither_worker_nor_fabric(number: int, tmp_path: Path) -> None:
    results, begun = tmp_path / "seeds.jsonl", dict[Process, list[str]]()

    def seed_begun() -> bool:
        begun.update({Process.of(pid): its for pid in children(proof.pid) if (its := fabrics_begun_by(pid))})
        return bool(begun)

    command = [*PROOF, str(results)]
    with subprocess.Popen(command, cwd=ROOT, stderr=subprocess.DEVNULL, start_new_session=True) as proof:
        wait_until(seed_begun, "the fabric of a seed")
        if number == signal.SIGINT:  # a terminal's is for all
            os.killpg(proof.pid, number)
        else:
            proof.send_signal(number)
        assert proof.wait(60) != 0
    wait_until(lambda: not any(worker.alive() for worker in begun), "its worker ends, too")
    for worker, fabrics in begun.items():
        assert fabrics_begun_by(worker.pid) == [] and [traces(one) for one in fabrics] == [[]] * len(fabrics)
    kept = results.read_text().splitlines() if results.exists() else []
    assert not any(json.loads(line)["died"] for line in kept)
