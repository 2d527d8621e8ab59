"""Runs a script once for what it does: its ranks' processes, and what they leave behind.

The ranks meet over this machine's loopback; with root, over one of their own, so that a script reaches no network, and
among processes of their own, so that nothing is left of them.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any

_PORT = 29500  # torchrun's
_LOOK_S = 1.0


class ScriptFailed(Exception):
    """`where` is a line of the script, if it is known; `printed` are the last lines of the rank that failed."""

    def __init__(self, what: str, hint: str = "", where: str = "", printed: str = "") -> None:
        super().__init__(what)
        self.what, self.hint, self.where, self.printed = what, hint, where, printed


class NoTorch(ScriptFailed):
    """There is no torch on this machine."""


@dataclass(frozen=True)
class Script:
    """`folder` is where it runs; `servers[i]` is the server of its rank i."""

    path: str
    args: tuple[str, ...]
    folder: str
    servers: tuple[str, ...]
    seed: int


@dataclass(frozen=True)
class Recorded:
    """Of each rank: what it did, and what it printed."""

    ranks: Sequence[Mapping[str, Any]]
    printed: Sequence[str]


def available() -> bool:
    """Whether there is a torch to run scripts with."""
    return find_spec("torch") is not None


def record(script: Script, folder: Path, waiting: Callable[[float], None] = lambda seconds: None) -> Recorded:
    """Runs all of the script's ranks to their end, and tells meanwhile how long that takes.  Raises ScriptFailed.

    `folder` is an empty one, for what they tell.  They end when this thread does.
    """
    if not available():
        raise NoTorch(
            "PyTorch is not installed, so no script can be run",
            f"./setup.sh torch installs the wheel for CPUs (or {sys.executable} -m pip install 'railbed[torch]')",
        )
    spec = folder / "spec.json"
    spec.write_text(json.dumps(_spec(script, folder)))
    process = subprocess.Popen(
        [*_isolated(), sys.executable, "-m", "workloads.torch.rank", str(spec)],
        cwd=script.folder,
        env=os.environ
        | {"PYTHONPATH": _python_path(), "OMP_NUM_THREADS": "1", "TORCH_CPP_LOG_LEVEL": "ERROR", "PYTHONHASHSEED": "0"},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    try:
        output = _output_of(process, waiting)
    finally:
        if process.poll() is None:
            process.kill()
            process.wait()
    ranks = range(len(script.servers))
    printed = [_text(folder / f"rank{rank}.log") for rank in ranks]
    if process.returncode:
        raise _failure(script, folder, printed, output)
    return Recorded([json.loads((folder / f"rank{rank}.json").read_text()) for rank in ranks], printed)


def _output_of(process: subprocess.Popen[str], waiting: Callable[[float], None]) -> str:
    """What it says until it ends.  How long a script may take, only its user knows."""
    began = time.monotonic()
    while True:
        try:
            return process.communicate(timeout=_LOOK_S)[0]
        except subprocess.TimeoutExpired:
            waiting(time.monotonic() - began)


def _python_path() -> str:
    """Where this package is, before what else the environment names."""
    own, inherited = str(Path(__file__).parents[2]), os.environ.get("PYTHONPATH")
    return f"{own}:{inherited}" if inherited else own


def _isolated() -> list[str]:
    """A command line in front: it ends with us, with root in a network of its own and with all that it starts."""
    command = ["setpriv", "--pdeathsig", "KILL"]
    if os.geteuid():
        return command
    command += ["unshare", "--net", "--pid", "--fork", "--kill-child", "--mount-proc"]
    return [*command, "sh", "-c", 'ip link set lo up && exec "$@"', "sh"]


def _spec(script: Script, folder: Path) -> dict[str, Any]:
    world = len(script.servers)
    port = _PORT if not os.geteuid() else _free_port()
    local: dict[str, int] = {}
    of_ranks = []
    for rank, server in enumerate(script.servers):
        number = local[server] = local.get(server, -1) + 1
        names = list(dict.fromkeys(script.servers))
        environment = {"RANK": rank, "LOCAL_RANK": number, "GROUP_RANK": names.index(server)}
        environment["LOCAL_WORLD_SIZE"] = script.servers.count(server)
        of_ranks.append({key: str(value) for key, value in environment.items()})
    return {
        "script": script.path,
        "args": list(script.args),
        "world": world,
        "folder": str(folder),
        "seed": script.seed,
        "environment": {
            **{"WORLD_SIZE": str(world), "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)},
            **{"GLOO_SOCKET_IFNAME": "lo", "RAILBED": "1"},
        },
        "of_ranks": of_ranks,
    }


def _free_port() -> int:
    import socket

    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return int(listener.getsockname()[1])


def _text(file: Path) -> str:
    return file.read_text(errors="replace") if file.exists() else ""


def _failure(script: Script, folder: Path, printed: Sequence[str], output: str) -> ScriptFailed:
    """What the first rank that failed says: the others only lost it."""
    errors = sorted(folder.glob("rank*.error"), key=lambda file: file.stat().st_mtime_ns)
    for file in errors[:1]:
        rank, error = int(file.stem.removeprefix("rank")), json.loads(file.read_text())
        where = f"{script.path}:{error['line']}" if error["line"] else script.path
        hint = error["hint"] or _hint(error["what"])
        return ScriptFailed(f"rank {rank} of the script failed: {error['what']}", hint, where, _last(printed[rank]))
    what = output.strip().splitlines()[-1:] or ["its process was ended"]
    return ScriptFailed(f"the script could not be run: {what[0]}", "", script.path, _last("".join(printed)))


def _hint(what: str) -> str:
    if "cuda" in what.lower() or "NVIDIA" in what or "accelerator device" in what:
        return "there is no GPU here: have the script take the CPU where torch.cuda.is_available() is false"
    return "does it run by itself? torchrun --nproc-per-node N SCRIPT"


def _last(text: str, lines: int = 15) -> str:
    return "\n".join(text.splitlines()[-lines:])
