"""What can go wrong with other machines, each with a fake in the place of what goes wrong."""

from __future__ import annotations

import io
import json
import threading
from collections import deque
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from results.store.folder import RunFolder
from testbed.base.errors import InputError, MachineError
from testbed.machine.processes import machine
from testbed.machines import known
from testbed.machines.engine import Ended
from testbed.machines.remote import Remote, all_of
from testbed.machines.sweep import OnMachines
from testbed.machines.where import Machine, Other, where
from tests.parts.machine import wait_until
from tests.parts.small_sweep import Noted

OTHER = Other("lab1", Machine(host="lab1"), "machines.yaml:2: machines[0].host")


# -- machines that are lost, or do not end


def runner(*names: str) -> tuple[OnMachines, Noted]:
    made, said = OnMachines(), Noted()
    made._progress = said
    made._remotes = {name: _remote(name) for name in names}
    made._places = dict.fromkeys(names, 1)
    return made, said


def _remote(name: str) -> Any:
    one = SimpleNamespace(name=name, other=OTHER, lost=False, end=lambda: False, tidied=lambda: None)
    one.tidy_later = lambda note: setattr(one, "lost", True)
    return one


def test_the_last_machine_is_tidied_up_too() -> None:
    made, _ = runner("lab1")
    with pytest.raises(MachineError, match="no other machine left"):
        made._lost("lab1")
    assert made._remotes["lab1"].lost


def test_a_machine_that_is_not_known_to_have_ended_is_named() -> None:
    made, said = runner("lab1", "lab2", "lab3")
    made._remotes["lab1"].lost = True  # says itself what became of it
    setattr(made._remotes["lab2"], "end", lambda: True)  # noqa: B010
    slow = SimpleNamespace(stop=lambda: None, wait=lambda: 2)
    engine = SimpleNamespace(cancel=lambda: None)
    made._end(engine, slow, list(made._remotes.values()))  # type: ignore[arg-type]
    assert said.notes[0] == "lab3: not known to have ended; testbed clean there"
    assert said.notes[1].startswith("2 points here did not end") and len(said.notes) == 2


def test_a_machine_that_gets_no_more_points_ends_at_once_and_it_is_said_if_it_does_not(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    notes: list[str] = []
    monkeypatch.setattr(Remote, "close", lambda self: None)
    monkeypatch.setattr(Remote, "tidy", lambda self: "what was left there is removed")
    for code, says in ((0, []), (1, ["lab1: its worker did not end as it should; what was left there is removed"])):
        one = Remote.__new__(Remote)
        one.name, one._said, one._client = "lab1", "", SimpleNamespace(close=lambda: None)  # type: ignore[assignment]
        asked = threading.Event()
        one._channel = SimpleNamespace(  # type: ignore[assignment]
            shutdown_write=asked.set, status_event=SimpleNamespace(wait=lambda _: True), exit_status=code
        )
        one.end_later(notes.append)
        assert one.lost  # nobody else ends it
        assert one._tidying is not None
        one._tidying.join(60)
        assert asked.is_set() and notes == says
        one.tidied()
        assert notes == says


def test_a_retired_machine_is_ended_while_the_sweep_goes_on() -> None:
    made, _ = runner("lab1", "lab2")
    made._again = deque()
    done: list[str] = []
    made._remotes["lab1"].end_later = lambda note: done.append("ended")  # type: ignore[method-assign]
    engine = SimpleNamespace(retire=lambda machine: done.append(f"{machine} retired"))
    point = SimpleNamespace(values={"seed": 1})
    told = {"machine": "lab1", "problem": {"what": "no room", "where": "", "hint": "", "exit_code": 3}}
    assert made._row(point, Ended(0, told), engine) is None  # type: ignore[arg-type]
    assert done == ["lab1 retired", "ended"] and list(made._again) == [point] and list(made._places) == ["lab2"]


def test_one_machine_under_two_names_is_a_mistake_of_the_file() -> None:
    made = OnMachines(here=2)
    places = [
        ("localhost", machine(), 2),
        ("lab1", "a boot/1", 3),
        ("lab2", "a boot/2", 4),
        ("lab1.net", "a boot/1", 5),
    ]
    made._reached = [
        SimpleNamespace(
            name=name, machine=its, close=lambda: None, other=SimpleNamespace(place=f"machines.yaml:{line}")
        )
        for name, its, line in places
    ]  # type: ignore[misc]
    with pytest.raises(InputError) as error:
        made._each_once()
    said = [(error.value.what, error.value.where), *((p.what, p.where) for p in error.value.also)]
    assert said == [
        ("localhost is this machine, which runs 2 points already", "machines.yaml:2"),
        ("lab1.net is the same machine as lab1", "machines.yaml:5"),
    ]
    made.here = 0  # then it may be reached by SSH
    made._reached = made._reached[:3]
    made._each_once()


def test_an_interrupt_waits_for_no_machine_and_closes_those_that_are_made(monkeypatch: pytest.MonkeyPatch) -> None:
    closed, goes_on = [], threading.Event()

    def made(self: Remote, name: str) -> None:
        self.name = name
        if name == "slow":
            assert goes_on.wait(10)
        if name == "broken":
            raise KeyboardInterrupt

    monkeypatch.setattr(Remote, "__init__", made)
    monkeypatch.setattr(Remote, "close", lambda self: closed.append(self.name))
    with pytest.raises(KeyboardInterrupt):
        all_of(Remote, ["good", "broken", "slow"])
    assert closed == ["good"]
    goes_on.set()
    wait_until(lambda: closed == ["good", "slow"], "the slow one's end")


def test_what_a_shell_prints_first_is_not_the_workers() -> None:
    one = Remote.__new__(Remote)
    one.other, one.name = OTHER, "lab1"
    one._channel = SimpleNamespace(settimeout=lambda s: None)  # type: ignore[assignment]
    one._lines = io.StringIO('42\nWelcome\n{"a": 1}\n\n{"versions": {}, "problems": []}\n')  # type: ignore[assignment]
    assert one._hello() == {"versions": {}, "problems": []}


# -- earlier starts, and lists of machines


def test_a_sweep_that_still_runs_is_no_earlier_start(tmp_path: Path) -> None:
    runs = RunFolder.create("s", tmp_path / "s")
    runs.append(known.RUN_POINTS, {})
    ended = RunFolder.create("s", tmp_path / "s")
    ended.append(known.RUN_POINTS, {})
    ended.fail({"what": "x"})
    ours = RunFolder.create("s", tmp_path / "s")
    assert known.earlier(ours, "s") == [ended.path]
    state = json.loads((runs.path / "state.json").read_text())
    (runs.path / "state.json").write_text(json.dumps({**state, "pid": 1 << 30}))  # killed
    assert set(known.earlier(ours, "s")) == {ended.path, runs.path}
    assert known.done_in(tmp_path / "gone") == {}


@pytest.mark.parametrize(
    ("text", "line", "what"),
    [
        ("machines:\n  - {local: 1}\n  - {host: here}\n", 3, "is what a sweep calls this machine"),
        ("machines:\n  - {host: a}\n  - {host: a, port: 22}\n", 3, "a stands twice"),
    ],
)
def test_a_machine_counts_once(tmp_path: Path, text: str, line: int, what: str) -> None:
    path = tmp_path / "machines.yaml"
    path.write_text(text)
    with pytest.raises(InputError, match=what) as error:
        where(str(path))
    assert error.value.where.startswith(f"{path}:{line}: machines[1]")
