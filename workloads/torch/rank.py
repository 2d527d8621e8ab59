"""The ranks of a script, in processes of their own: `python -m workloads.torch.rank SPEC` (launch.py writes it).

torch is imported once, then each rank is forked off.  A rank runs the script as `__main__`, in torchrun's environment,
and then writes what it has recorded.  What it prints goes to a file.
"""

from __future__ import annotations

import ast
import ctypes
import json
import os
import runpy
import select
import signal
import sys
import traceback
import warnings
from contextlib import suppress
from importlib import import_module
from pathlib import Path
from typing import Any

PR_SET_PDEATHSIG = 1


def main() -> int:
    """Runs all ranks; the exit code is 1 if one of them failed, after which the others are ended."""
    _die_with_the_parent()
    spec = json.loads(Path(sys.argv[1]).read_text())
    import torch
    import torch._dynamo  # optimizers import it at their first step

    from workloads.torch import charge, group, steps_of_script, streams  # noqa: F401 - once, for all ranks

    torch.set_num_threads(1)
    _import_what_it_imports(spec["script"])
    done, says_done = os.pipe()
    over, ends_all = os.pipe()
    ranks: dict[int, int] = {}
    for rank in range(spec["world"]):
        process = os.fork()
        if process == 0:
            code = 1
            try:
                os.close(ends_all)
                code = _rank(spec, rank)
                if not code:
                    os.write(says_done, b".")
                    os.read(over, 1)  # what it has sent may be under way
            finally:
                sys.stdout.flush()
                sys.stderr.flush()
                os._exit(code)
        ranks[process] = rank
    lost = _first_lost(ranks, done, Path(spec["folder"]))
    for process in ranks:
        if lost:  # they wait for it
            os.kill(process, signal.SIGKILL)
    os.close(ends_all)
    for process in ranks:
        os.waitpid(process, 0)
    return int(lost)


def _first_lost(ranks: dict[int, int], done: int, folder: Path) -> bool:
    """Waits until all are done, or one has ended before; takes out those that have ended."""
    waits = select.poll()
    ends = {os.pidfd_open(process): process for process in ranks}
    for one in (done, *ends):
        waits.register(one, select.POLLIN)
    left = len(ranks)
    while left:
        for ready, _ in waits.poll():
            if ready == done:
                left -= len(os.read(done, left))
            else:
                waits.unregister(ready)
                process = ends[ready]
                if _is_lost(os.waitpid(process, 0)[1], folder, ranks.pop(process)):
                    return True
    return False


def _is_lost(status: int, folder: Path, rank: int) -> bool:
    """Whether it left no recording; if it could not say why itself, says how it ended."""
    if not status and (folder / f"rank{rank}.json").exists():
        return False
    error = folder / f"rank{rank}.error"
    if not error.exists():
        code = os.waitstatus_to_exitcode(status)
        what = f"its process was ended by {signal.Signals(-code).name}" if code < 0 else "it left by os._exit"
        hint = "out of memory? dmesg says whom the kernel killed" if code == -signal.SIGKILL else ""
        _write(error, {"what": what, "line": None, "hint": hint})
    return True


def _import_what_it_imports(script: str) -> None:
    """What a script imports of torch takes seconds: once for all ranks.  What is not there, the script will say."""
    try:
        tree = ast.parse(Path(script).read_text())
    except (OSError, SyntaxError, ValueError):
        return
    names = [alias.name for node in ast.walk(tree) if isinstance(node, ast.Import) for alias in node.names]
    names += [node.module for node in ast.walk(tree) if isinstance(node, ast.ImportFrom) and node.module]
    for name in dict.fromkeys(names):
        if name.partition(".")[0] == "torch":
            with suppress(ImportError):
                import_module(name)


def _die_with_the_parent() -> None:
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)


def _rank(spec: dict[str, Any], rank: int) -> int:
    _die_with_the_parent()
    folder = Path(spec["folder"])
    log = os.open(folder / f"rank{rank}.log", os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
    os.dup2(log, 1)
    os.dup2(log, 2)
    os.environ.update(spec["environment"] | spec["of_ranks"][rank])
    sys.argv = [spec["script"], *spec["args"]]
    sys.path[0] = str(Path(spec["script"]).parent)
    try:
        recorded = _recorded(spec["script"], spec["seed"])
    except BaseException as error:
        return _failed(error, folder / f"rank{rank}.error", spec["script"])
    part = folder / f"rank{rank}.part"
    part.write_text(json.dumps(recorded))
    part.rename(folder / f"rank{rank}.json")
    return 0


def _recorded(script: str, seed: int) -> dict[str, Any]:
    import torch

    from workloads.torch import group, refuse, steps_of_script, streams
    from workloads.torch.charge import Charge
    from workloads.torch.memory import MemoryTracker
    from workloads.torch.recorder import Recorder

    recorder, memory = Recorder(script), MemoryTracker()
    charge = Charge(recorder, memory)
    memory.install()
    streams.install(recorder)
    group.install(recorder, charge)
    refuse.install()
    steps_of_script.install(recorder, charge)
    warnings.filterwarnings("ignore", message="Attempted to get default timeout for nccl")
    torch.manual_seed(seed)
    with charge:
        try:
            runpy.run_path(script, run_name="__main__")
        except SystemExit as end:
            if end.code not in (None, 0):
                raise
    return recorder.recorded() | {"memory": memory.recorded()}


def _failed(error: BaseException, file: Path, script: str) -> int:
    """Says what went wrong, and where in the script."""
    traceback.print_exception(error)
    frames = [frame for frame in traceback.extract_tb(error.__traceback__) if frame.filename == script]
    while error.__cause__ is not None:  # torch's schedules say what they did, and only then why that failed
        error = error.__cause__
    recorded = {
        "what": f"{type(error).__name__}: {error}",
        "line": frames[-1].lineno if frames else None,
        "hint": getattr(error, "hint", ""),
    }
    if recorded["hint"]:
        recorded["what"] = getattr(error, "what", recorded["what"])
    _write(file, recorded)
    return 1


def _write(file: Path, recorded: dict[str, Any]) -> None:
    part = file.with_suffix(".part-of-error")
    part.write_text(json.dumps(recorded))
    part.rename(file)


if __name__ == "__main__":
    sys.exit(main())
