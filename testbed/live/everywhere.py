"""One command in the containers of all ranks at a time, with the environment that torchrun gives to its processes."""

from __future__ import annotations

import subprocess
import sys
import threading
from collections.abc import Sequence
from typing import IO, TYPE_CHECKING

if TYPE_CHECKING:
    from testbed.fabric.lab import Lab
    from topologies import Nic

PORT = 29500  # where the ranks meet: torchrun's
GRACE_S = 3.0


def environment(lab: Lab, nic: Nic) -> dict[str, str]:
    """RANK, WORLD_SIZE and so on, and by which interface Gloo reaches the others."""
    nics = lab.fabric.nics
    servers = list(dict.fromkeys(each.host for each in nics))
    beside = [each.rank for each in nics if each.host == nic.host]
    return {
        "RANK": str(nic.rank),
        "WORLD_SIZE": str(len(nics)),
        "LOCAL_RANK": str(beside.index(nic.rank)),
        "LOCAL_WORLD_SIZE": str(len(beside)),
        "GROUP_RANK": str(servers.index(nic.host)),
        "MASTER_ADDR": str(nics[0].ip),
        "MASTER_PORT": str(PORT),
        "GLOO_SOCKET_IFNAME": lab.names.interface(nic) if lab.kernel else "",
    }


def execute(lab: Lab, argv: Sequence[str]) -> int:
    """Runs it everywhere; what it prints goes out with `[RANK]` before each line.

    Returns 0, or the code of the first that fails: the others, which may wait for it, are then ended.
    """
    running: dict[int, subprocess.Popen[bytes]] = {}
    readers: list[threading.Thread] = []
    ended = threading.Condition()
    codes: list[int] = []

    def follow(rank: int, process: subprocess.Popen[bytes]) -> None:
        assert process.stdout is not None
        _pass_on(process.stdout, f"[{rank}] ".encode())
        code = process.wait()
        with ended:
            codes.append(code if code >= 0 else 128 - code)
            ended.notify()

    try:
        for nic in lab.fabric.nics:
            told = [f"{name}={value}" for name, value in environment(lab, nic).items()]
            command, env = lab.exec_command(nic.rank, ["env", "--", *told, *argv], tty=False)
            running[nic.rank] = subprocess.Popen(
                command, env=env, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT
            )
        for rank, process in running.items():
            readers.append(threading.Thread(target=follow, args=(rank, process), daemon=True))
            readers[-1].start()
        with ended:
            while len(codes) < len(running) and not any(codes):
                ended.wait()
            return next((code for code in codes if code), 0)
    finally:
        _end(list(running.values()))
        for reader in readers:
            reader.join(GRACE_S)


_LINE = threading.Lock()


def _pass_on(pipe: IO[bytes], prefix: bytes) -> None:
    for line in pipe:
        with _LINE:
            sys.stdout.buffer.write(prefix + line.rstrip(b"\n") + b"\n")
            sys.stdout.buffer.flush()


def _end(processes: Sequence[subprocess.Popen[bytes]]) -> None:
    """Ends what still runs; runc passes the signal on to the program."""
    for process in processes:
        if process.poll() is None:
            process.terminate()
    for process in processes:
        try:
            process.wait(GRACE_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
