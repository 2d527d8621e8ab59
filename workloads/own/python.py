"""A schedule that a function in a user's file makes: in a process of its own, for as long and as much as it may."""

from __future__ import annotations

import ast
import json
import os
import subprocess
import sys
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import asdict
from hashlib import sha256
from pathlib import Path
from select import select
from signal import SIGKILL, SIGXCPU
from time import monotonic
from typing import Any

from workloads.collectives.schedule import Program, Shape
from workloads.own import book
from workloads.own.mistake import BadAlgorithm

CPU_S = 10
WALL_S = 120  # where others compute, too
MEMORY = 2 << 30
ANSWER = 64 << 20
NOBODY = 65534


def functions(text: bytes) -> list[str]:
    """Those of a file that its user may mean: without running it."""
    try:
        top = ast.parse(text).body
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return []
    return [one.name for one in top if isinstance(one, ast.FunctionDef) and not one.name.startswith("_")]


class Function:
    """The schedule of a file's function.  What it makes is kept: of a shape it is asked once."""

    def __init__(self, text: bytes, path: str, name: str) -> None:
        self._text, self._path, self._name = text, path, name
        self.identity = f"{name} {sha256(text).hexdigest()}"
        self._made: dict[Shape, Sequence[Program]] = {}

    def __call__(self, shape: Shape, index: int) -> Program:
        self.make([shape])
        return self._made[shape][index]

    def make(self, shapes: Sequence[Shape], cpu_s: int = CPU_S) -> None:
        """Has the programs of these shapes made.  Raises BadAlgorithm."""
        wanted = [shape for shape in dict.fromkeys(shapes) if shape not in self._made]
        if not wanted:
            return
        answer = self._answer(wanted, cpu_s)
        try:
            wrong, there = str(answer.get("wrong") or ""), answer.get("there")
            line = int(answer["line"]) if wrong else 0
            made = [] if wrong else [[book.read(one) for one in of_ranks] for of_ranks in answer["programs"]]
        except (AttributeError, IndexError, KeyError, TypeError, ValueError):  # the function can write there, too
            raise BadAlgorithm(
                f"the process of {self._name} gave no answer", "(shape, rank) -> a list of Lanes"
            ) from None
        if wrong:
            hint = f"there are {', '.join(map(str, there)) or 'none'}" if there is not None else ""
            what = wrong.encode(errors="backslashreplace").decode()
            raise BadAlgorithm(what, hint or "(shape, rank) -> a list of Lanes", line, self._path)
        self._made |= dict(zip(wanted, made, strict=True))

    def _answer(self, shapes: Sequence[Shape], cpu_s: int) -> Any:
        from workloads.check.check import MOST_STEPS  # with numpy: others have no use for that

        asked = {
            "text": self._text.decode("utf-8-sig", errors="replace"),
            **{"path": self._path, "name": self._name, "most": MOST_STEPS, "user": caller()},
            "shapes": [asdict(shape) for shape in shapes],
            "limits": {"cpu_s": cpu_s, "memory": MEMORY},
        }
        process = subprocess.Popen(
            [*_isolated(), sys.executable, "-P", "-s", "-m", "workloads.own.child"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            cwd="/",
            env={"PYTHONPATH": str(Path(__file__).parents[2]), "PYTHONHASHSEED": "0", "PATH": os.defpath}
            | dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS"), "1"),
        )
        try:
            said = _said(process, json.dumps(asked).encode())
        except TimeoutError:
            raise BadAlgorithm(f"{self._name} does not return", f"it has {WALL_S} s") from None
        finally:
            if process.poll() is None:
                process.kill()
                process.wait()
        if process.returncode in (-SIGXCPU, -SIGKILL, 128 + SIGXCPU, 128 + SIGKILL):
            what = f"{self._name} does not return within {cpu_s} s of CPU time: an endless loop?"
            raise BadAlgorithm(what, "it is asked for all ranks and sizes in one go")
        try:
            return json.loads(said)
        except (ValueError, RecursionError):
            raise BadAlgorithm(f"the process of {self._name} ended without an answer") from None


def _said(process: subprocess.Popen[bytes], asked: bytes) -> bytes:
    """What it answers.  Raises TimeoutError, and BadAlgorithm for too much."""
    assert process.stdin is not None and process.stdout is not None
    with suppress(BrokenPipeError):
        process.stdin.write(asked)
        process.stdin.close()
    said, end = bytearray(), monotonic() + WALL_S
    while select([process.stdout], [], [], max(end - monotonic(), 0))[0]:
        more = os.read(process.stdout.fileno(), 1 << 20)
        said += more
        if not more or len(said) > ANSWER:
            if len(said) > ANSWER:
                raise BadAlgorithm(f"its programs are more than {ANSWER >> 20} MiB", "fewer steps")
            process.wait()
            return bytes(said)
    raise TimeoutError


def _isolated() -> list[str]:
    """A command line in front: it ends with us; it reaches no network and no other process, with root or as a user may.

    A kernel may forbid users namespaces of their own: then the code has all that its user has.
    """
    command = ["setpriv", "--pdeathsig", "KILL", "--no-new-privs"]
    apart = ["unshare", *([] if os.geteuid() == 0 else ["--user"]), "--net", "--ipc", "--pid", "--fork", "--kill-child"]
    apart.append("--mount-proc")
    if os.geteuid() and subprocess.run([*apart, "true"], capture_output=True).returncode:
        return command
    command += apart
    return [*command, "sh", "-c", '"$@"; exit $?', "sh"]  # the first process there would be spared by signals


def caller() -> list[int] | None:
    """With root: who has called us by sudo, else nobody."""
    if os.geteuid():
        return None
    uid = os.environ.get("SUDO_UID", "")
    gid = os.environ.get("SUDO_GID", uid)
    return [int(uid), int(gid)] if uid.isdecimal() and gid.isdecimal() else [NOBODY, NOBODY]
