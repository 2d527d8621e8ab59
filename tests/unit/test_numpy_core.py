"""Ranks import numpy's core alone; whatever else of numpy they ask for is there when they do."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import Any

import pytest


def _python(code: str) -> Any:
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


_CORE = "from workloads.base import numpy_core; numpy_core.import_core(); import numpy"
_ABOUT = """
def about(name):
    thing = getattr(numpy, name)
    return [type(thing).__name__, getattr(thing, "__module__", None), getattr(thing, "__name__", None)]
"""


def test_a_worker_imports_nothing_but_the_core() -> None:
    loaded = _python("import json, sys, workloads.worker, workloads.together; print(json.dumps(list(sys.modules)))")
    assert "numpy._core" in loaded
    assert not [name for name in loaded if name.startswith(("numpy.lib", "numpy.linalg", "numpy._typing"))]


def test_a_worker_does_not_import_what_it_seldom_needs() -> None:
    """dataclasses asks `inspect` about a class without a docstring: a part's has one."""
    parts = "tasks.runner", "collectives.engine", "offloads.offloaded", "programs.block"
    named = ", ".join(f"workloads.{part}" for part in ("worker", *parts))
    loaded = _python(f"import json, sys, {named}; print(json.dumps(list(sys.modules)))")
    assert not {"_ast", "dis", "datetime", "pathlib", "_pickle"} & set(loaded)


def test_a_run_does_not_import_numpy_before_its_workers_are_at_work() -> None:
    text = "name: s\\nfabric: {topology: {star: {hosts: 2}}}\\nworkload: [{collective: all_reduce, sizes: [1KiB]}]"
    code = f"""
import json, sys, testbed.commands.run, testbed.run.attempt, testbed.fabric.lab
from testbed.experiment import loads
from testbed.plan.hardware import hardware_of
from testbed.plan.steps.plan import plan
experiment = loads("{text}")
plan(experiment).told()
hardware_of(experiment)
print(json.dumps("numpy" in sys.modules))
"""
    assert not _python(code)


@pytest.mark.parametrize("first", ["pickle", "inspect"])
def test_what_is_put_off_is_there_when_it_is_asked_for(first: str) -> None:
    code = "import json, workloads.base.process, numpy, dataclasses"
    used = {
        "pickle": "numpy.arange(3).dumps().__class__.__name__, pickle.loads(pickle.dumps(numpy.arange(3))).tolist()",
        "inspect": "dataclasses.inspect.signature(int.bit_count).__str__(), [inspect.cleandoc('  a')]",
    }[first]
    wanted: list[Any] = {"pickle": ["bytes", [0, 1, 2]], "inspect": ["(self, /)", ["a"]]}[first]
    assert _python(f"{code}; import {first}; print(json.dumps([{used}]))") == wanted


def test_dates_are_those_of_datetime() -> None:
    date = "numpy.array(['2020-01-02'], dtype='M8[D]').astype(object)[0]"
    assert _python(f"import json; {_CORE}; import datetime; print(json.dumps({date} == datetime.date(2020, 1, 2)))")


def test_every_name_of_numpy_is_there_and_the_same() -> None:
    names = "sorted((set(dir(numpy)) | set(numpy.__all__)) - {'__getattr__', '__dir__'})"
    whole = _python(f"import json, numpy{_ABOUT}\nprint(json.dumps({{name: about(name) for name in {names}}}))")
    later = _python(f"import json; {_CORE}{_ABOUT}\nprint(json.dumps({{name: about(name) for name in {list(whole)}}}))")
    assert later == whole


@pytest.mark.parametrize("first", ["lib", "linalg", "matrixlib", "lib.format", "ma", "random", "fft", "polynomial"])
def test_its_modules_can_be_imported_and_used(first: str) -> None:
    used = "numpy.linalg.norm([3.0, 4.0]), int(numpy.diff(numpy.arange(3)).sum()), numpy.pad([1], 1).tolist()"
    code = f"import json; {_CORE}, numpy.{first}, ml_dtypes; print(json.dumps([{used}]))"
    assert _python(code) == [5.0, 2, [0, 1, 0]]


def test_what_numpy_does_not_have_is_an_error_as_ever() -> None:
    missing = "hasattr(numpy, 'nothing'), hasattr(numpy, 'cumproduct')"
    assert _python(f"import json; {_CORE}; print(json.dumps([{missing}]))") == [False, False]


def test_all_names_are_there_when_all_are_asked_for() -> None:
    """`dir` and `from numpy import *`, whichever comes first, in a worker's process too."""
    names = "sorted(name for name in vars() if name not in before)"
    star = (
        f"import json; before = {{*vars(), 'before'}}; from numpy import *; found = {names}; print(json.dumps(found))"
    )
    listed = "print(json.dumps([sorted(dir(numpy)), sorted(numpy.__all__)]))"
    assert _python(f"import workloads.base.process; {star}") == _python(star)
    assert _python(f"{_CORE}, json; {listed}") == _python(f"import numpy, json; {listed}")


def test_beside_another_thread_numpy_is_imported_as_ever() -> None:
    beside = "threading.Thread(target=threading.Event().wait, daemon=True).start()"
    code = f"import json, sys, threading; {beside}; {_CORE}; print(json.dumps('numpy.lib' in sys.modules))"
    assert _python(code)
