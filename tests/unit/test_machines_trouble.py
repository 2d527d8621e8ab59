"""What can go wrong with other machines, each with a fake in the place of what goes wrong."""

from __future__ import annotations

import base64
import json
import math
import re
import threading
import zipfile
from collections import Counter, deque
from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from results.store import zipped
from results.store.folder import RunFolder
from testbed.base.errors import InputError, MachineError
from testbed.experiment import loads
from testbed.machine.processes import machine
from testbed.machines import answers, known
from testbed.machines.answers import LineReader
from testbed.machines.engine import BackendLost, Ended, Lost
from testbed.machines.remote import RemoteMachine, all_of
from testbed.machines.sweep import OnMachines
from testbed.machines.where import Machine, Other, where
from testbed.machines.worker import versions
from tests.parts.machine import wait_until
from tests.parts.small_sweep import SWEEP, Noted

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
    with pytest.raises(MachineError, match="no other machine left: its plug was pulled"):
        made._lost(Lost("lab1", "its plug was pulled"))
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
    monkeypatch.setattr(RemoteMachine, "close", lambda self: None)
    monkeypatch.setattr(RemoteMachine, "tidy", lambda self: "what was left there is removed")
    for code, says in ((0, []), (1, ["lab1: its worker did not end as it should; what was left there is removed"])):
        one = RemoteMachine.__new__(RemoteMachine)
        one.name, one._report, one._client = "lab1", "", SimpleNamespace(close=lambda: None)  # type: ignore[assignment]
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
    told = {"problem": {"what": "no room", "where": "", "hint": "", "exit_code": 3}}
    assert made._row(point, Ended(0, told, "lab1"), engine) is None  # type: ignore[arg-type]
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

    def made(self: RemoteMachine, name: str) -> None:
        self.name = name
        if name == "slow":
            assert goes_on.wait(60)
        if name == "broken":
            raise KeyboardInterrupt

    monkeypatch.setattr(RemoteMachine, "__init__", made)
    monkeypatch.setattr(RemoteMachine, "close", lambda self: closed.append(self.name))
    with pytest.raises(KeyboardInterrupt):
        all_of(RemoteMachine, ["good", "broken", "slow"])
    assert closed == ["good"]
    goes_on.set()
    wait_until(lambda: closed == ["good", "slow"], "the slow one's end")


# -- machines that do not answer as they should


class Spoken:
    """A connection over which this comes, in pieces, and then nothing: its end, or silence."""

    def __init__(self, said: bytes, *, silent: bool = False) -> None:
        self.events, self.silent = said, silent
        self.status_event = SimpleNamespace(wait=lambda _: True)

    def settimeout(self, seconds: float | None) -> None:
        pass

    def recv(self, nbytes: int) -> bytes:
        if not self.events and self.silent:
            raise TimeoutError
        piece, self.events = self.events[: min(nbytes, 7)], self.events[min(nbytes, 7) :]
        return piece

    def sendall(self, data: bytes) -> None:
        pass


def remote(said: bytes, *, silent: bool = False) -> RemoteMachine:
    one = RemoteMachine.__new__(RemoteMachine)
    one.other, one.name, one.lost, one._ending, one._gone, one._running = OTHER, "lab1", False, False, "", {}
    one._lock, one._sending = threading.Lock(), threading.Lock()
    one._stderr, one._reader = deque(), SimpleNamespace(join=lambda _: None)  # type: ignore[assignment]
    one._channel = Spoken(said, silent=silent)  # type: ignore[assignment]
    one._client = SimpleNamespace(close=lambda: None)  # type: ignore[assignment]
    one._lines = LineReader(one._channel)
    return one


def line(**told: Any) -> bytes:
    return json.dumps(told).encode() + b"\n"


def test_what_a_shell_prints_first_is_not_the_workers() -> None:
    one = remote(b'42\nWelcome\n{"a": 1}\n\n' + line(versions={}, problems=[]))
    assert one._hello() == {"versions": {}, "problems": []}


GREETING = {"versions": versions(), "folder": "/tmp/railbed-sweep-x", "machine": "boot/1", "cpus": 2,
            "memory": 1 << 30, "problems": []}  # fmt: skip


@pytest.mark.parametrize(
    ("change", "what"),
    [
        ({"versions": 7}, "its greeting has no versions"),
        ({"folder": None}, "it does not say its folder"),
        ({"folder": "/etc"}, "its folder is '/etc'"),
        ({"machine": ["x"]}, "it does not say its machine"),
        ({"cpus": "many"}, "its cpus are 'many'"),
        ({"cpus": 0}, "its cpus are '0'"),
        ({"memory": -1}, "its memory are '-1'"),
        ({"memory": 10**400}, "its memory are"),
        ({"problems": {}}, "it does not say what its problems are"),
        ({"problems": [{"what": 3}]}, "it does not say its what"),
        ({"problems": ["x"]}, "it does not say what its problems are"),
    ],
)
def test_a_malformed_greeting_is_that_machines_error(change: dict[str, Any], what: str) -> None:
    with pytest.raises(MachineError, match=re.escape(f"lab1: its worker does not answer as one: {what}")) as error:
        remote(line(**{**GREETING, **change}))._greet()
    assert error.value.where == OTHER.place


def test_a_greeting_and_what_is_shown_of_it() -> None:
    one = remote(line(**GREETING))
    one._greet()
    assert (one.points, one.memory, one.machine) == (2, 1 << 30, "boot/1")
    problem = {"what": "\x1b[2Jroot", "where": "", "hint": ""}
    with pytest.raises(MachineError, match=re.escape("lab1:  [2Jroot")):
        remote(line(**{**GREETING, "problems": [problem]}))._greet()


@pytest.mark.parametrize("doing", ["greeting", "checking", "starting"])
def test_a_line_without_end_is_cut_off(doing: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(answers, "LONGEST", 1000)
    one = remote(b"x" * 5000)
    do = {"greeting": one._greet, "checking": lambda: one.check({}), "starting": lambda: one.start([], Path(), str)}
    with pytest.raises(MachineError, match="a line of more than 1000 bytes"):
        do[doing]()
    assert len(one._lines._rest) < 1100


def running(said: bytes, folder: Path, *, silent: bool = False) -> tuple[dict[str, Any] | str, list[tuple[str, str]]]:
    """Point 3 runs on a machine that says this; what it says, or why it was lost, and what is said of the machine."""
    one, lost = remote(line(ready=True), silent=True), list[tuple[str, str]]()
    heard = threading.Event()
    listen = one._listen
    one._listen = lambda: None  # type: ignore[method-assign]
    one.start([], folder, lambda name, why: (lost.append((name, why)), heard.set()))
    one._lines = LineReader(Spoken(said, silent=silent))
    one._send = lambda what: threading.Thread(target=listen).start() if "run" in what else None  # type: ignore[method-assign]
    try:
        told: dict[str, Any] | str = one.run(3, {})
    except BackendLost as gone:
        told = str(gone)
    assert heard.wait(60)
    return told, lost


def ended(**point: Any) -> bytes:
    return line(ended=3, point=point)


@pytest.mark.parametrize(
    ("said", "silent", "why"),
    [
        (b"", False, "its connection has ended"),  # it exits at once, before anybody has reached it
        (b"", True, "it has said nothing for 20 s"),
        (b"nonsense\n", False, "it does not answer as a worker: 'nonsense' is no answer"),
        (b"[" * 100_000 + b"\n", False, "is no answer"),
        (ended(), False, "a point does not say how it ended"),
        (ended(row=[]), False, "row of a point is '[]'"),
        (ended(problem={"what": "x"}), False, "it does not say its where"),
        (ended(row={"error": ["x"]}), False, "the error of a point is no text"),
        (ended(row={"time": 10**4000}), False, "a figure of a point is too large, or too deep"),
        (
            ended(row={"time": json.loads("[" * 900 + "]" * 900)}),
            False,
            "a figure of a point is too large, or too deep",
        ),
        (ended(row={"time": 1}, killed=9), False, "a point was killed, and has a row"),
        (ended(row={"time": 1}, seconds=10**4000), False, "a point took 1000"),
        (ended(row={"time": 1}, seconds=math.nan), False, "a point took nan"),
        (line(ended=4, point={"row": {}}), False, "it speaks of a point that it does not run: 4"),
        (line(ended=[3], point={"row": {}}), False, "it speaks of a point that it does not run"),
        (line(files=3, data="???"), False, "part of a file cannot be decoded"),
        (line(files=3), False, "part of a file cannot be decoded"),
    ],
)
def test_a_machine_that_says_nonsense_or_nothing_is_lost(tmp_path: Path, said: bytes, silent: bool, why: str) -> None:
    told, lost = running(said, tmp_path, silent=silent)
    assert isinstance(told, str) and why in told
    ((name, reason),) = lost
    assert name == "lab1" and why in reason


def test_a_points_folder_comes_in_parts_of_a_bounded_size(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    parts = [line(files=3, data=base64.b64encode(part).decode()) for part in (b"abc", b"defg")]
    told, _ = running(b"".join(parts) + ended(row={"time": 1.5}, notes=["\x1b[1mx"]), tmp_path)
    assert isinstance(told, dict) and told["row"] == {"time": 1.5} and told["notes"] == [" [1mx"]
    assert told["packed"].read_bytes() == b"abcdefg"
    monkeypatch.setattr(answers, "MOST_FILES", 6)
    told, _ = running(b"".join(parts), tmp_path)
    assert isinstance(told, str) and "the folder of a point has more than" in told
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("kind", ["no zip", "too much", "cut off"])
def test_a_folder_that_is_none_is_that_points_error(tmp_path: Path, kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    packed = tmp_path / "point-3.zip"
    with zipfile.ZipFile(packed, "w", zipfile.ZIP_DEFLATED) as file:
        file.writestr("../../out", bytes(100_000))
    if kind == "too much":
        monkeypatch.setattr(zipped, "MOST_BYTES", 99_999)
    else:
        content = packed.read_bytes()
        packed.write_bytes(content[: len(content) // 2] if kind == "cut off" else b"x")
    with pytest.raises(ValueError):
        zipped.unpacked(packed, tmp_path / "a" / "b" / "point-3")
    assert not (tmp_path / "a").exists()


def test_nothing_of_a_folder_leads_out_of_it(tmp_path: Path) -> None:
    with zipfile.ZipFile(tmp_path / "x.zip", "w") as file:
        file.writestr("../../out", "x")
    zipped.unpacked(tmp_path / "x.zip", tmp_path / "a" / "b" / "point-3")
    assert list(tmp_path.rglob("out")) == [tmp_path / "a" / "b" / "point-3" / "out"]


# -- whose fault it is


class Fleet:
    """A sweep of points that fail on the machines that this says, and what became of it."""

    def __init__(
        self,
        folder: Path,
        machines: Sequence[str],
        fails: Any,
        *,
        retries: int = 0,
        points: int = 8,
        again: Path | None = None,
    ) -> None:
        self.ran: list[tuple[int, str]] = []
        self.made, self.events = OnMachines(retries=retries, again=again), Noted()
        self.made.others = [OTHER]
        self.made._reached = [self._machine(name, fails) for name in machines]
        experiment = loads(SWEEP + f"sweep: {{seed: {list(range(points))}}}\n")
        self.store = RunFolder.create("s", folder / "s")
        self.rows = dict(self.made(experiment, self.store, self.events))

    def _machine(self, name: str, fails: Any) -> Any:
        def run(number: int, point: dict[str, Any]) -> dict[str, Any]:
            self.ran.append((number, name))
            failed = fails(number, name)
            return {"row": {"error": failed} if failed else {"good": number}, "seconds": 1.0}

        one = SimpleNamespace(name=name, other=OTHER, points=1, memory=1 << 40, lost=False, run=run)
        one.start = lambda *_: None
        one.end = lambda: True
        one.end_later = lambda note: setattr(one, "lost", True)
        one.tidied = lambda: None
        return one


def test_a_machine_that_turns_bad_gets_no_more_points_and_none_is_lost(tmp_path: Path) -> None:
    at_bad: list[int] = []

    def fails(number: int, name: str) -> str:
        """The good one's first point takes until the bad one has begun one, what failed there until it has another."""
        if name == "bad":
            at_bad.append(number)
            return "no cgroups"
        wait_until(lambda: len(at_bad) >= (2 if number in at_bad else 1), "a point on the bad machine")
        return ""

    fleet = Fleet(tmp_path, ["good", "bad"], fails, points=12)
    assert [fleet.rows[k] for k in range(12)] == [{"seed": k, "good": k} for k in range(12)]
    assert sum(name == "bad" for _, name in fleet.ran) <= 3  # two strikes, and the one that had begun by then
    assert "bad runs no more points: 2 points failed there that others could run" in fleet.events.notes
    noted = [json.loads(line) for line in (fleet.store.path / known.RUN_POINTS).read_text().splitlines()]
    assert {one["machine"] for one in noted} == {"good"}


def test_a_point_that_fails_everywhere_is_its_own_fault_and_no_machine_is_given_up(tmp_path: Path) -> None:
    fleet = Fleet(tmp_path, ["a", "b"], lambda number, name: "deadlock" if number % 2 else "")
    assert [fleet.rows[k].get("error") for k in range(8)] == [None, "deadlock"] * 4
    assert not [note for note in fleet.events.notes if "no more points" in note]
    again = Counter(number for number, _ in fleet.ran)
    assert all(again[k] == 1 for k in (0, 2, 4, 6)) and 5 <= sum(again[k] for k in (1, 3, 5, 7)) <= 6


def test_a_retry_goes_elsewhere_if_it_can(tmp_path: Path) -> None:
    fleet = Fleet(tmp_path, ["a", "b", "c"], lambda number, name: f"broken on {name}", retries=2, points=1)
    assert sorted(name for _, name in fleet.ran) == ["a", "b", "c"]
    alone = Fleet(tmp_path, ["a"], lambda number, name: "broken", retries=2, points=1)
    assert alone.ran == [(0, "a")] * 3 and alone.rows[0]["error"] == "broken"
    assert Fleet(tmp_path, ["a"], lambda number, name: "broken", points=1).ran == [(0, "a")]


def test_what_failed_in_a_finished_sweep_runs_again_and_the_rest_is_taken_over(tmp_path: Path) -> None:
    """Points 1 and 3 fail at first; then they alone run."""
    first = Fleet(tmp_path, ["a"], lambda number, name: "broken" if number % 2 else "", points=4)
    for k in (0, 2):
        done = RunFolder.create("p", first.store.path / f"point-{k}").complete()
        row = {"seed": k, "good": k, "run": done.name}
        sha = OnMachines(others=[OTHER])
        sha._experiment = loads(SWEEP + "sweep: {seed: [0, 1, 2, 3]}\n")
        first.store.append(known.RUN_POINTS, {"sha256": sha._point(k).sha256, "machine": "a", "seconds": 1, "row": row})
    first.store.write_json("sweep.json", {})
    finished = first.store.complete()
    assert known.noted(str(finished)) == finished
    again = Fleet(tmp_path / "x", ["a"], lambda number, name: "", points=4, again=finished)
    assert [number for number, _ in again.ran] == [1, 3]
    assert sorted(again.rows) == [0, 1, 2, 3] and all("error" not in row for row in again.rows.values())
    assert (again.store.path / "point-2" / "state.json").exists()
    assert any(note.startswith("2 of 4 points are done already, in ") for note in again.events.notes)


@pytest.mark.parametrize(
    ("make", "what"),
    [
        (lambda folder: None, "there is no such run"),
        (lambda folder: RunFolder.create("s", folder).complete(), "this is no sweep"),
        (lambda folder: _sweep(folder, noted=False), "an older version has run this sweep"),
        (lambda folder: _sweep(folder, noted=True, over=False), "this sweep still runs"),
    ],
)
def test_what_cannot_be_run_again_says_why(tmp_path: Path, make: Any, what: str) -> None:
    path = make(tmp_path / "s") or tmp_path / "s"
    with pytest.raises(InputError, match=what):
        known.noted(str(path))


def _sweep(folder: Path, *, noted: bool, over: bool = True) -> Path:
    made = RunFolder.create("s", folder)
    made.write_json("sweep.json", {})
    if noted:
        made.append(known.RUN_POINTS, {})
    return made.complete() if over else made.path


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
