"""Docker and Podman that leave nothing behind: each keeps all that it has in a folder of ours.

They run in namespaces of their own for mounts and for the network, so what they write to /run, /var/lib and /etc, and
what they set up for containers' networks, goes with them. A Docker daemon that answers already is taken as it is, and
the image is taken out of it again.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from uuid import uuid4

from tests.parts.privileged_root import EVERY, capabilities

ROOT = Path(__file__).resolve().parents[2]
DEADLINE_S = 120.0
_ALONE = """
mount -t tmpfs none /run && mount -t tmpfs none /var/lib && mount -t tmpfs none /mnt && mkdir /mnt/upper /mnt/work &&
mount -t overlay -o lowerdir=/etc,upperdir=/mnt/upper,workdir=/mnt/work none /etc && exec "$@"
"""
ALONE = ["unshare", "--mount", "--net", "sh", "-c", _ALONE, "alone"]


class EngineError(Exception):
    """An engine does not do what it is asked for."""


class NoEngine(Exception):
    """It is not there."""


@dataclass(frozen=True)
class Engine:
    command: Sequence[str]
    runs: Sequence[str] = ()
    """What `run` is told besides."""

    def call(self, *words: str | Path) -> str:
        done = subprocess.run(
            [*self.command, *map(str, words)], stdin=subprocess.DEVNULL, capture_output=True, text=True
        )
        if done.returncode:
            raise EngineError(f"{words[0]} ended with {done.returncode}: {(done.stderr or done.stdout)[-1500:]}")
        return done.stdout

    def run(self, archive: Path, command: str) -> str:
        """What it prints in a privileged container of the image in `archive`."""
        image = self.call("load", "-q", "-i", archive).split()[-1]
        try:
            return self.call("run", "--rm", "--privileged", *self.runs, image, "sh", "-c", command)
        finally:
            self.call("rmi", "-f", image)


@contextmanager
def docker(folder: Path) -> Iterator[Engine]:
    """Raises NoEngine."""
    if shutil.which("docker") and not subprocess.run(["docker", "info"], capture_output=True).returncode:
        yield Engine(["docker"])
        return
    _wanted("docker", "dockerd")
    folder.mkdir()
    socket, log = f"unix://{folder}/socket", folder / "log"
    daemon = [*ALONE, "dockerd", "--host", socket, "--data-root", f"{folder}/data", "--exec-root", f"{folder}/exec"]
    daemon += ["--pidfile", f"{folder}/pid", "--bridge", "none", "--iptables=false", "--ip6tables=false"]
    if runtime := _runtime(folder):
        daemon += ["--add-runtime", f"allowed={runtime}", "--default-runtime", "allowed"]
    with _control_groups() as group, log.open("w") as out:
        child = subprocess.Popen(daemon, stdin=subprocess.DEVNULL, stdout=out, stderr=out)
        try:
            engine = Engine(["docker", "--host", socket], ["--network", "none", "--cgroup-parent", group])
            _until_it_answers(child, engine, log)
            yield engine
        finally:
            child.terminate()
            child.wait()


def _until_it_answers(child: subprocess.Popen[bytes], engine: Engine, log: Path) -> None:
    end = time.monotonic() + DEADLINE_S
    while subprocess.run([*engine.command, "info"], capture_output=True).returncode:
        if child.poll() is not None or time.monotonic() > end:
            raise EngineError(f"dockerd does not answer: {log.read_text()[-1500:]}")
        time.sleep(0.2)


@contextmanager
def podman(folder: Path) -> Iterator[Engine]:
    """Raises NoEngine."""
    _wanted("podman")
    folder.mkdir()
    command = [*ALONE, "podman", "--root", f"{folder}/data", "--cgroup-manager", "cgroupfs"]
    if runtime := _runtime(folder):
        command += ["--runtime", str(runtime)]
    with _control_groups() as group:
        yield Engine(command, ["--network", "none", "--cgroup-parent", group])


ENGINES: dict[str, Callable[[Path], AbstractContextManager[Engine]]] = {"docker": docker, "podman": podman}


def _wanted(*programs: str) -> None:
    if lacks := [name for name in programs if not shutil.which(name)]:
        raise NoEngine(f"no {' and no '.join(lacks)} here")


@contextmanager
def _control_groups() -> Iterator[str]:
    """The name of one for containers, which is gone afterwards, in every hierarchy that there is."""
    name = f"engine-{uuid4().hex[:12]}"
    try:
        yield f"/{name}"
    finally:
        top = Path("/sys/fs/cgroup")
        for group in (top / name, *top.glob(f"*/{name}")):
            for one in sorted((group, *group.rglob("*/")), reverse=True) if group.is_dir() else ():
                one.rmdir()


def _runtime(folder: Path) -> Path | None:
    """What starts containers, where root here lacks what engines give away."""
    if set(EVERY) <= set(capabilities()):
        return None
    program = folder / "runc"
    program.write_text(f'#!/bin/sh\nPYTHONPATH={ROOT} exec {sys.executable} -m tests.parts.as_allowed "$@"\n')
    program.chmod(0o755)
    return program
