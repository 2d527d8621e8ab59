"""A process in which a user's function makes programs: bounded, and without rights that it does not need.

It reads what is asked on stdin and answers with one JSON object on what was its stdout: `programs`, or `wrong`.
"""

from __future__ import annotations

import json
import os
import resource
import sys
import traceback
from types import CodeType, ModuleType
from typing import Any

import workloads.collectives.exchange
import workloads.collectives.grids.torus
import workloads.collectives.ring
import workloads.collectives.trees  # noqa: F401  # what it may import is there before its rights are dropped
from workloads.collectives.schedule import Shape
from workloads.own.book import Nonsense, written


def main() -> None:
    asked = json.load(sys.stdin)
    answer = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # what the user's code prints is no answer
    _bounded(**asked["limits"])
    _leave_root(asked["user"])
    try:
        said = _made(asked)
    except Nonsense as error:
        said = {"wrong": str(error), "line": 0}
    json.dump(said, answer)
    answer.flush()
    os._exit(0)


def _bounded(cpu_s: int, memory: int) -> None:
    resource.setrlimit(resource.RLIMIT_CPU, (cpu_s, cpu_s + 1))
    resource.setrlimit(resource.RLIMIT_AS, (memory, memory))
    resource.setrlimit(resource.RLIMIT_FSIZE, (0, 0))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    resource.setrlimit(resource.RLIMIT_NPROC, (0, 0))


def _leave_root(user: list[int] | None) -> None:
    """With root it is code of whoever called `sudo`, or of nobody: with that user's rights."""
    if user is not None:
        os.setgroups([])
        os.setgid(user[1])
        os.setuid(user[0])


def _made(asked: dict[str, Any]) -> dict[str, Any]:
    path, name = asked["path"], asked["name"]
    module = ModuleType("own")
    sys.modules["own"] = module  # dataclasses look for it
    module.__file__ = path
    try:
        code = compile(asked["text"], path, "exec")
    except (SyntaxError, ValueError) as error:
        return {"wrong": f"it is no Python: {getattr(error, 'msg', error)}", "line": getattr(error, "lineno", 0) or 0}
    try:
        exec(code, vars(module))
        function = vars(module).get(name)
        if not callable(function):
            return {"wrong": f"it has no function {name}", "line": 0, "there": _functions(module, path)}
        left, programs = asked["most"], []
        for fields in asked["shapes"]:
            shape = Shape(**{**fields, "dims": tuple(fields["dims"]), "counts": tuple(map(tuple, fields["counts"]))})
            of_ranks = []
            for rank in range(shape.ranks):
                try:
                    of_ranks.append(written(function(shape, rank), left))
                except Nonsense as error:
                    its = getattr(function, "__code__", None)
                    at = its.co_firstlineno if isinstance(its, CodeType) else 0
                    return {"wrong": f"{name}(shape, {rank}), of {shape.count} elements: {error}", "line": at}
                left -= sum(len(lane[0]) for lane in of_ranks[-1])
            programs.append(of_ranks)
    except MemoryError:
        return {"wrong": "it takes too much memory", "line": 0}
    except BaseException as error:
        lines = [frame.lineno for frame in traceback.extract_tb(error.__traceback__) if frame.filename == path]
        return {"wrong": f"it raises {type(error).__name__}: {error!s:.200}", "line": lines[-1] if lines else 0}
    return {"programs": programs}


def _functions(module: ModuleType, path: str) -> list[str]:
    return [n for n, f in vars(module).items() if getattr(getattr(f, "__code__", None), "co_filename", "") == path]


if __name__ == "__main__":
    main()
