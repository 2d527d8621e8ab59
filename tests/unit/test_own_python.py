"""Schedules in a user's Python: run apart, bounded; what is wrong with one is told with its line."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.parts.own_files import EXAMPLES, experiment, refused, wrong_elements
from workloads.check.check import check
from workloads.check.memory import Wrong
from workloads.collectives.schedule import Copy, Lane, Program, Recv, Send, Shape, Wait
from workloads.own import book, python
from workloads.own.mistake import BadAlgorithm
from workloads.registry import ALGORITHMS

ROOT = Path(__file__).parents[2]
HEAD = "from workloads.collectives.schedule import *\ndef f(shape, rank):\n    other, n = 1 - rank, shape.count\n"


def write(folder: Path, lanes: str, head: str = HEAD) -> str:
    (folder / "a.py").write_text(f"{head}    return {lanes}\n")
    return "./a.py:f"


@pytest.mark.parametrize("ranks", [2, 3, 8])
def test_the_examples_are_right(ranks: int) -> None:
    """The one sends n - 1 messages a rank; of the other a rank gets n - 1 parts, and its own from the first one."""
    for name, collective, each in (("one_shot", "all_reduce", ranks - 1), ("scattered", "broadcast", ranks)):
        its = experiment(EXAMPLES, ranks, f"mine.py:{name}", collective, sizes=["4B", "4KiB"], dtype="int32")
        wrong, messages = wrong_elements(its, seed=ranks)
        assert set(wrong) == {0}
        assert messages == 2 * (ranks * each if name == "one_shot" else (ranks - 1) * each)


SEND_FIRST = "[Lane([Send(other, 0, n), Recv(other, 0, n, reduce=True)]{})]"


@pytest.mark.parametrize(
    ("lanes", "what"),
    [
        ("'nothing'", "a.py:2: f(shape, 0), of 16384 elements: 'nothing' (str) is no list of lanes"),
        ("[Send(other, 0, n)]", "a.py:2: f(shape, 0), of 16384 elements: lane 0 is Send("),
        ("[Lane([(other, 0, n)])]", "lane 0, step 0 is (1, 0, 16384) (tuple), not a Send, Recv, Copy or Wait"),
        ("[Lane([Send(other, 0, n / 2)])]", "lane 0, step 0 has what is no whole number"),
        ("[Lane([Send(other, 0, n)] * 10**6)]", "there are too many steps"),
        ("[Lane([], window=0)]", "lane 0's window is 0, not a number of messages"),
        ("1 / rank", "a.py:4: it raises ZeroDivisionError: division by zero"),
        ("exit(3)", "a.py:4: it raises SystemExit: 3"),
        ("exit(chr(0xD800))", r"a.py:4: it raises SystemExit: \ud800"),
        ("[0] * 10**10", "a.py: it takes too much memory"),
        ("[Lane([])] * 2100", "4,200 lanes of all ranks; at most 4,096"),
        ("__import__('os').write(3, b'[1]') and __import__('os')._exit(0)", "the process of f gave no answer"),
        ("__import__('os').write(3, b'[' * 200_000) and __import__('os')._exit(0)", "ended without an answer"),
        ("[__import__('os').write(3, b' ' * (1 << 20)) for _ in range(80)]", "its programs are more than 64 MiB"),
        (
            SEND_FIRST.format(""),
            "a.py: rank 1, lane 0, step 1: race: this writes elements 0 to 16383 of rank 1's vector",
        ),
    ],
)
def test_a_mistake_is_told_with_its_place(tmp_path: Path, lanes: str, what: str) -> None:
    problem = refused(tmp_path, 2, write(tmp_path, lanes))
    assert problem.what.startswith(f"{tmp_path}/a.py") and what in problem.what, problem
    assert problem.where == "x.yaml:4: workload[0].algorithm"


@pytest.mark.parametrize(
    ("lanes", "what"),
    [
        ("[Lane([Send(other, 0, n)])]", "rank 0, lane 0, step 0: rank 1 receives 0 messages from rank 0 on channel 0"),
        ("[Lane([Recv(other, 0, n)])]", "rank 0, lane 0, step 0: rank 1 sends 0 messages to rank 0 on channel 0"),
        ("[Lane([Send(rank, 0, n)])]", "rank 0, lane 0, step 0: its peer is 0"),
        ("[Lane([Send(other, 0, n + 1)])]", "step 0: it uses elements up to 16385 of a vector of 16384"),
        ("[Lane([Send(other, 0, n, 9999)])]", "rank 0, lane 0, step 0: its channel is 9999"),
        ("[Lane([Copy(0, n, -1)])]", "rank 0, lane 0, step 0: there is no element -1"),
        ("[Lane([Wait(1, 0)])]", "rank 0, lane 0, step 0: it waits for lane 1, and there are 1"),
        ("[Lane([Wait(0, 2)])]", "rank 0, lane 0, step 0: it waits for 2 steps of lane 0, which has 1"),
        ("[Lane([Wait(0, 1)])]", "step 0: deadlock: it waits for itself"),
        ("[Lane([Recv(other, 0, n), Send(other, 0, n)])]", "deadlock: it waits for rank 1's lane 0, step 0, that"),
        (SEND_FIRST.format(""), "which rank 1's lane 0, step 0 may be reading"),
        ("[]", "rank 0: missing data: rank 0's vector ends without the part of rank 1 in elements 0 to 16383"),
        ("[Lane([Send(other, 0, n, 0, 2), Recv(other, 0, n, True)], buffered=True)]", "step 0: reads what"),
        (SEND_FIRST.format(", buffered=True").replace("n)", "n - 1)").replace("n, r", "n - 1, r"),
         "rank 0: missing data: rank 0's vector ends without the part of rank 1 in element 16383"),
        ("[Lane([Send(other, 0, n)] * 2 + [Recv(other, 0, n, reduce=True)] * 2, buffered=True)]",
         "rank 0, lane 0, step 3: adds rank 1's part a second time"),
        ("[Lane([Send(other, 0, n // 2), Send(other, n // 2, n), Recv(other, n // 2, n, reduce=True), "
         "Recv(other, 0, n // 2, reduce=True)], buffered=True)]",
         "rank 0, lane 0, step 3: combines different parts of the vector"),
    ],
)  # fmt: skip
def test_what_is_wrong_is_found_with_its_step(lanes: str, what: str) -> None:
    """The same without a process: of two ranks, `n` elements."""

    def schedule(shape: Shape, rank: int) -> Program:
        names = {one.__name__: one for one in (Send, Recv, Copy, Wait, Lane)}
        program: Program = eval(lanes, names, {"other": 1 - rank, "rank": rank, "n": shape.count})
        return program

    with pytest.raises(Wrong) as info:
        check(ALGORITHMS["all_reduce", "ring"], schedule, Shape(2, 16384))
    assert what in str(info.value)


def test_buffered_the_same_is_no_race(tmp_path: Path) -> None:
    its = experiment(tmp_path, 2, write(tmp_path, SEND_FIRST.format(", buffered=True")))
    assert wrong_elements(its)[0] == [0, 0]


@pytest.mark.parametrize(
    ("text", "name", "what", "hint"),
    [
        ("def f(:\n", "f", "a.py:1: it is no Python", ""),
        ("x = 1\nraise OSError('no')\n", "f", "a.py:2: it raises OSError: no", ""),
        ("def g(shape, rank):\n    return []\n", "f", "a.py: it has no function f", "there are g"),
        ("import nothing_of_the_kind\n", "f", "a.py:1: it raises ModuleNotFoundError", ""),
    ],
)
def test_a_file_that_is_no_schedule_is_told(tmp_path: Path, text: str, name: str, what: str, hint: str) -> None:
    (tmp_path / "a.py").write_text(text)
    problem = refused(tmp_path, 2, f"a.py:{name}")
    assert what in problem.what and hint in problem.hint, problem


def test_an_endless_loop_ends(tmp_path: Path) -> None:
    function = python.Function(b"def f(shape, rank):\n    while True:\n        pass\n", "/a.py", "f")
    with pytest.raises(BadAlgorithm, match="f does not return within 1 s of CPU time"):
        function.make([Shape(2, 1)], cpu_s=1)


@pytest.mark.parametrize(("uid", "gid", "is_"), [("4242", "4243", (4242, 4243)), ("", "", (65534, 65534))])
def test_it_has_the_rights_of_whoever_called_us(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, uid: str, gid: str, is_: tuple[int, int]
) -> None:
    """Under sudo it is its user's, of root itself nobody's; it reaches no network, and sees no process but its own."""
    if os.geteuid():
        pytest.skip("needs root")
    monkeypatch.setenv("SUDO_UID", uid)
    monkeypatch.setenv("SUDO_GID", gid)
    text = (
        "import os, socket\nraise RuntimeError(os.getresuid(), os.getresgid(), socket.if_nameindex(), os.getppid())\n"
    )
    (tmp_path / "a.py").write_text(text)
    said = refused(tmp_path, 2, "a.py:f").what
    assert f"({(is_[0],) * 3}, {(is_[1],) * 3}, [(1, 'lo')], 1)" in said


def test_of_a_user_it_has_no_network_where_the_kernel_allows() -> None:
    apart = ["unshare", "--user", "--net", "--ipc", "--pid", "--fork", "--kill-child", "--mount-proc"]
    user = [] if os.geteuid() else ["setpriv", "--reuid", "4242", "--regid", "4242", "--clear-groups"]
    if subprocess.run([*user, *apart, "true"], capture_output=True).returncode:
        pytest.skip("users have no namespaces of their own here")
    ask = (
        "from workloads.own.python import Function; from workloads.collectives.schedule import Shape\n"
        "text = b'import os, socket\\nraise RuntimeError(socket.if_nameindex(), os.getppid())'\n"
        "try: Function(text, '/a.py', 'f').make([Shape(2, 1)])\n"
        "except Exception as error: print(error.what)"
    )
    done = subprocess.run([*user, sys.executable, "-c", ask], capture_output=True, text=True, cwd=ROOT, timeout=60)
    assert done.stdout == "it raises RuntimeError: ([(1, 'lo')], 1)\n", done.stderr


def test_programs_are_the_same_from_their_data() -> None:
    program = [
        Lane([Send(1, 2, 3, 4, 2), Recv(1, 2, 3, True, 4, 2)], 5, per_peer=True, buffered=True),
        Lane([Copy(1, 2, 3, 2, 0, True), Wait(0, 1)]),
    ]
    made = book.read(book.written(program, 4))
    assert [(one.steps, one.window, one.per_peer, one.buffered) for one in made] == [
        (one.steps, one.window, one.per_peer, one.buffered) for one in program
    ]
    with pytest.raises(book.Nonsense, match="too many"):
        book.written(program, 3)
