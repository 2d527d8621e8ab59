"""Proof: whatever is killed at whatever moment, `clean` leaves nothing of it and touches nothing else.

`./setup.sh prove kills [--kills N] [--seed SEED]`. Each kill is a kill -9 that a seed draws: the command line (`up` or
`run`) at some moment of its life, or fabricd, the controller, a worker, Open vSwitch or the holder of the namespaces of
a fabric that runs or stands, or several at once. Then `testbed clean` is called, here or in a time namespace. Beside it
live a stranger's bridge, link, namespace and process, and fabrics of ours: one here, one in another pid namespace, one
in another time namespace; each is asked after every kill whether it is whole.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import Any

from testbed.base.errors import UserError
from testbed.experiment import loads
from testbed.fabric.lab import Lab
from testbed.machine.ownership import Record
from testbed.machine.processes import Process
from tests.parts.machine import ROOT, STAR, TESTBED, fabric_ids, fabrics_begun_by, strangers, traces, wait_until

UP = """
name: killed-up
clock: {real: {dilation: 1000}}
fabric: {topology: {rail: {servers: 2, gpus: 2, spines: 1}}}
"""
RUN = """
name: killed-run
fabric: {topology: {star: {hosts: 3}}}
patience: 20s
workload: [{collective: all_reduce, algorithm: ring, sizes: [64KiB], iterations: ITERATIONS}]
"""
LIFE_S = 2.5  # how long a command line lives before it is killed, at most
PARTS = ("fabricd", "controller", "ovs-vswitchd", "ovsdb-server", "holder")
TIME_NAMESPACE = ["unshare", "--time", "--fork", "--kill-child", "--boottime", "90000", "--monotonic", "90000"]
PID_NAMESPACE = ["unshare", "--pid", "--fork", "--kill-child", "--mount-proc"]
GONE_S = 60.0


# -- what must not be touched


def bystander() -> None:
    """Brings a fabric up, and says for each line on stdin what it is then."""
    with Lab.up(loads(STAR, "bystander.yaml")) as lab:
        for _ in chain([""], sys.stdin):
            print(json.dumps(_state(lab)), flush=True)


def _state(lab: Lab) -> dict[str, Any]:
    command, env = lab.ovs_command(["ovs-ofctl", "-OOpenFlow13", "--no-stats", "dump-flows", "sw0"])
    flows = subprocess.run(command, env=env, check=True, capture_output=True, text=True).stdout
    return {
        "id": lab.id,
        "alive": sorted(name for name, process in lab.record.processes.items() if process.alive()),
        "answers": lab.fabricd.request("status", timeout=60)["ok"],
        "flows": sorted(flows.splitlines()),
        "files": sorted(path.name for path in lab.dir.iterdir()),
    }


@contextmanager
def fabric_beside(namespace: list[str]) -> Iterator[Callable[[], None]]:
    """A fabric whose owner lives there; gives a function that checks that it is whole."""
    command = [*namespace, sys.executable, str(Path(__file__).resolve()), "--bystander"]
    # A session of its own: an interrupt at the terminal is ours.
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=ROOT, start_new_session=True
    ) as owner:
        assert owner.stdin is not None
        assert owner.stdout is not None
        first = json.loads(owner.stdout.readline())
        assert len(first["alive"]) == 8

        def check() -> None:
            assert owner.stdin is not None
            assert owner.stdout is not None
            owner.stdin.write("\n")
            owner.stdin.flush()
            now = json.loads(owner.stdout.readline())
            assert now == first, f"fabric {first['id']} was touched: {now}"

        try:
            yield check
        finally:
            owner.stdin.close()
            owner.wait()
    assert traces(first["id"]) == []


# -- what is killed


@dataclass
class Kill:
    """One kill: what it was, and the fabrics that it concerns."""

    what: str
    fabrics: list[str]


def kill(draw: random.Random, folder: Path) -> Kill:
    return draw.choice((_command_line, _command_line, _part_of_a_run, _part_of_a_run, _part_that_stands))(draw, folder)


def begin(folder: Path, verb: str, text: str, *more: str) -> subprocess.Popen[bytes]:
    file = folder / "killed.yaml"
    file.write_text(text)
    return subprocess.Popen(
        [*TESTBED, verb, str(file), *more], cwd=ROOT, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )


def _run(folder: Path, draw: random.Random) -> subprocess.Popen[bytes]:
    out = folder / f"run{draw.getrandbits(32):08x}"
    return begin(folder, "run", RUN.replace("ITERATIONS", "100000"), "--out", str(out))


def _command_line(draw: random.Random, folder: Path) -> Kill:
    """`up` or `run`, at some moment of its life."""
    verb, moment = draw.choice(("up", "run")), draw.uniform(0, LIFE_S)
    process = begin(folder, "up", UP) if verb == "up" else _run(folder, draw)
    with suppress(subprocess.TimeoutExpired):
        process.wait(moment)
    fabrics = dies(process)
    return Kill(f"the command line of `{verb}`", fabrics)


def dies(process: subprocess.Popen[bytes]) -> list[str]:
    """Kills a command line; all that it ran dies with it, except a fabric that it has left up."""
    fabrics = fabrics_begun_by(process.pid)
    process.kill()
    process.wait()
    fabrics = sorted({*fabrics, *fabrics_begun_by(process.pid)})
    for record in map(record_of, fabrics):
        if not (record.standing and record.state == "alive"):
            _wait_dead(record.id)
    return fabrics


def _wait_dead(fabric_id: str) -> None:
    end = time.monotonic() + GONE_S
    while left := _running(fabric_id):
        assert time.monotonic() < end, f"its owner is dead, and it lives: {left}"
        time.sleep(0.01)


def _running(fabric_id: str) -> list[str]:
    return [trace for trace in traces(fabric_id) if trace.startswith("process")]


def record_of(fabric_id: str) -> Record:
    return Record.read(Path("/run/railbed", fabric_id))


def _part_of_a_run(draw: random.Random, folder: Path) -> Kill:
    """A part of a running experiment, or a worker; perhaps together with the command line."""
    process = _run(folder, draw)
    both, victim, later = draw.random() < 0.3, draw.choice((*PARTS, "worker", "worker")), draw.uniform(0, 0.5)
    rank = draw.randrange(3)

    def victims() -> list[Process]:
        found = [_worker(i, rank) if victim == "worker" else record_of(i).processes.get(victim) for i in fabrics_of()]
        return [p for p in found if p]

    def fabrics_of() -> list[str]:
        return fabrics_begun_by(process.pid)

    wait_until(victims, f"the {victim} of a run", GONE_S)
    time.sleep(later)
    fabrics = fabrics_of()
    for one in victims():
        one.signal(signal.SIGKILL)
    if both:
        dies(process)
    else:
        time.sleep(draw.uniform(0, 0.3))
        if victim == "controller":  # then the run goes on; its end is another kill
            dies(process)
        assert process.wait(120) != 0, f"a run without its {victim} ended well"
    return Kill(f"the {victim} of a run" + (" and its command line" if both else ""), fabrics)


def _worker(fabric_id: str, rank: int) -> Process | None:
    """The init of a rank's container."""
    with suppress(OSError, ValueError, LookupError):
        file = Path("/run/railbed", fabric_id, "runc", f"rb{fabric_id}-r{rank}", "state.json")
        return Process.of(int(json.loads(file.read_text())["init_process_pid"]))
    return None


def _part_that_stands(draw: random.Random, folder: Path) -> Kill:
    """Some parts of a fabric that was left up."""
    process = begin(folder, "up", UP)
    process.wait(120)
    (fabric_id,) = fabrics_begun_by(process.pid)
    subprocess.run([*TESTBED, "exec", "--fabric", fabric_id, "1", "--", "true"], cwd=ROOT, check=True, timeout=120)
    record = record_of(fabric_id)
    victims = draw.sample([*PARTS, "host h1", "worker"], draw.choice((1, 1, 2, 7)))
    for victim in victims:
        one = _worker(fabric_id, 1) if victim == "worker" else record.processes[victim]
        if one:
            one.signal(signal.SIGKILL)
            wait_until(lambda one=one: not one.alive(), "it is dead", GONE_S)  # type: ignore[misc]
    if {*victims} - {"controller", "worker"}:  # it ends with its parts
        wait_until(lambda: record_of(fabric_id).state == "dead", "the fabric is dead", GONE_S)
    what = " and ".join(sorted(victims)) if len(victims) < 7 else "everything"
    return Kill(f"{what} of a fabric left up", [fabric_id])


# -- what is cleaned


def clean(draw: random.Random, killed: Kill) -> str:
    """`clean`, and `down` for a fabric whose owner still lives."""
    where = draw.choice(([], [], TIME_NAMESPACE))
    _testbed(where, "clean")
    for fabric_id in killed.fabrics:
        if fabric_id in fabric_ids():
            record = record_of(fabric_id)
            assert record.standing and record.state == "alive", f"clean has left {fabric_id}"
            _testbed(where, "down", fabric_id)
        assert traces(fabric_id) == [], f"{killed.what}: left of {fabric_id}: {traces(fabric_id)}"
    return "time namespace" if where else "here"


def _testbed(where: list[str], *words: str) -> None:
    done = subprocess.run(
        [*where, *TESTBED, *words], cwd=ROOT, capture_output=True, text=True, timeout=120, check=False
    )
    assert done.returncode == 0, f"{words}: {done.stdout}{done.stderr}"


def prove(kills: int, seed: int, say: Callable[[str], None] = print) -> Counter[str]:
    """Kills so many times; returns what was killed how often. Raises AssertionError."""
    draw, count = random.Random(seed), Counter[str]()
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="rbkills-")))
        whole = [stack.enter_context(strangers())]
        whole += [stack.enter_context(fabric_beside(namespace)) for namespace in ([], PID_NAMESPACE, TIME_NAMESPACE)]
        for number in range(1, kills + 1):
            killed = kill(draw, folder)
            where = clean(draw, killed)
            for check in whole:
                check()
            count[killed.what] += 1
            say(f"{number:4} of {kills}: {killed.what}; cleaned {where}, nothing left, all others whole")
    return count


def main() -> None:
    parser = argparse.ArgumentParser(prog="./setup.sh prove kills", description=__doc__)
    parser.add_argument("--kills", type=int, default=100)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--bystander", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.bystander:
        bystander()
        return
    try:
        count = prove(options.kills, options.seed)
    except (AssertionError, UserError, subprocess.SubprocessError) as error:
        sys.exit(f"prove kills: {error} (seed {options.seed})")
    for what, times in count.most_common():
        print(f"{times:5} x {what}")
    print(f"{options.kills} kills, seed {options.seed}: nothing left of them, nothing else touched")


if __name__ == "__main__":
    sys.stdout.reconfigure(line_buffering=True)  # type: ignore[union-attr]
    signal.signal(signal.SIGINT, signal.default_int_handler)
    os.chdir(ROOT)
    main()
