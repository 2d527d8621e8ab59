"""Changes that are made to code, which tests come to them, and what becomes of tests that end, fail or stand still."""

from __future__ import annotations

import os
import signal
import sys
import time
from collections.abc import Sequence
from contextlib import nullcontext
from functools import partial
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip(
    "tree_sitter_c", reason="needs the Python packages mutmut and tree-sitter-c (requirements-dev.lock has them)"
)

from testbed.machine.processes import wait_for
from tests import prove_all, prove_mutants, prove_mutants_bench, prove_mutants_c
from tests.parts import own_switch
from tests.prove_mutants_bench import ENDLESS, NOTICED, SURVIVED, Bench, Mutant
from tests.prove_mutants_cover import Cover, WatchPython, importers
from tests.prove_mutants_kept import Kept

PYTHON = '''
def far(a: int, rows: list[int]) -> list[int]:
    """Text is no code."""
    if a < 3:
        print("near")
        raise ValueError(a + 1)
    return [row for row in rows if row > 0]
T = TypeVar("T", bound=int)
'''
C = """
enum { SIZE = 4 };
static int far(int a)
{
	if (a < 3)
		return 2;
	note(a);
	return a + 1;
}
"""


def changes(found: dict[int, list], line: int) -> set[str]:
    return {make().now for make in found.get(line, [])}


def test_python_is_changed_where_it_makes_figures() -> None:
    from tests import prove_mutants_python  # which takes long to import: not in every process of a run

    found = prove_mutants_python.mutants("far.py", PYTHON)
    assert changes(found, 4) == {"if a <= 3:", "if a < 4:", "if not (a < 3):"}
    assert {"pass", "print(None)"} <= changes(found, 5)
    assert {"return [row for row in rows]", "return [row for row in rows if row >= 0]"} <= changes(found, 7)
    assert not {2, 3, 6, 8} & found.keys(), "annotations, texts, what an error says, types"


def test_c_is_changed_in_functions() -> None:
    found = prove_mutants_c.mutants("far.c", C)
    assert changes(found, 5) == {"if (a <= 3)", "if (a < 4)", "if (!(a < 3))"}
    assert changes(found, 7) == {";"}
    assert changes(found, 8) == {"return a - 1;", "return a + 2;"}
    assert 2 not in found


def test_of_two_that_are_equal_either_may_be_taken() -> None:
    found = prove_mutants_c.mutants(
        "far.c",
        "int f(int a, int b)\n{\n\tif (a > b)\n\t\tb = a;\n\treturn a < b ? b : c;\n\treturn a < b ? b : a;\n}\n",
    )
    assert changes(found, 3) == {"if (!(a > b))"}
    assert "return a <= b ? b : c;" in changes(found, 5)
    assert changes(found, 6) == {"return !(a < b) ? b : a;"}


def test_room_for_one_more_and_what_is_done_without_memory_are_no_changes() -> None:
    found = prove_mutants_c.mutants("far.c", "void *f(int n)\n{\n\treturn calloc(n + 1, 1);\n\tabort();\n}\n")
    assert 4 not in found
    assert changes(found, 3) == {"return calloc(n - 1, 1);", "return calloc(n + 2, 1);"}


def test_the_quickest_test_of_each_file_goes_first() -> None:
    tests = ["a.py::slow", "a.py::quick", "b.py::slower", "a.py::elsewhere"]
    cover = Cover({"far.c": {7: {0, 1, 2}, 9: {3}}}, tests, [2.0, 1.0, 3.0, 0.5], [], True, Path())
    here = Mutant("far.c", 8, "", "", "")
    assert cover.of(here, 10) == ["a.py::quick", "b.py::slower", "a.py::slow"]
    assert cover.of(here, 5) == ["a.py::quick", "b.py::slower"]
    assert cover.of(here, 3) == ["a.py::quick", "a.py::slow"]
    behind = Mutant("far.c", 10, "", "", "")
    assert cover.of(behind, 10) == ["a.py::elsewhere", "a.py::quick", "b.py::slower", "a.py::slow"]


def test_what_an_import_runs_may_be_noticed_by_any_test(tmp_path: Path) -> None:
    (tmp_path / "far.py").write_text("A = 1\ndef b():\n    return A\n")
    cover = Cover({"far.py": {1: {-1}, 3: {1}}}, ["a.py::a", "b.py::b"], [1.0, 2.0], [], False, tmp_path)
    assert cover.of(Mutant("far.py", 1, "", "", ""), 9) == ["b.py::b", "a.py::a"]
    assert cover.of(Mutant("far.py", 1, "", "", ""), 9, {"b.py::b": 9}, ["a.py::a"]) == ["a.py::a", "b.py::b"]
    assert cover.of(Mutant("far.py", 3, "", "", ""), 9, {}, ["a.py::a"]) == ["b.py::b"]


def test_a_mutant_runs_the_tests_that_come_to_its_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """In a tree of their own: one test that notices, one that does not come there, one that stands still, one that
    turns in a loop.
    """
    monkeypatch.setattr(prove_mutants_bench, "STILL", 1)
    (tmp_path / "pytest.ini").touch()  # tests are named from here
    (tmp_path / "far.py").write_text("def a():\n    return 1\n\ndef b():\n    return 2\n")
    (tmp_path / "test_far.py").write_text(
        "import far\ndef test_a():\n    assert far.a() == 1\ndef test_b():\n    far.b()\n"
        "def test_still():\n    import signal\n    while far.b() == 3:\n        signal.pause()\n"
        "def test_endless():\n    while far.b() == 3:\n        pass\n"
    )
    bench = Bench(tmp_path)
    kept = bench.watched(["test_far.py"], partial(WatchPython, files=["far.py"]))
    assert kept["lines"]["far.py"]["2"] == ["test_far.py::test_a"]
    assert sorted(kept["lines"]["far.py"]["5"]) == [f"test_far.py::test_{name}" for name in ("b", "endless", "still")]
    mutant = Mutant("far.py", 2, "", "", "def a():\n    return 9\n\ndef b():\n    return 3\n")
    with bench.changed(mutant):
        verdicts = [bench.verdict([f"test_far.py::test_{name}"], 60) for name in "ab"]
        verdicts.append(bench.verdict(["test_far.py::test_still"], 1))
        verdicts.append(bench.verdict(["test_far.py::test_b", "test_far.py::test_still"], 6000, 1))
        monkeypatch.setattr(prove_mutants_bench, "STILL", 60)
        verdicts.append(bench.verdict(["test_far.py::test_endless"], 1))
        verdicts.append(bench.verdict(["test_far.py::test_b", "test_far.py::test_endless"], 60, 1))
    assert verdicts == [NOTICED, SURVIVED, ENDLESS, ENDLESS, ENDLESS, ENDLESS]
    assert bench.struck["test_far.py::test_a"] == 1, "known by name"
    assert bench.verdict(["test_far.py::test_a"], 60) == SURVIVED, "the file is as it was"


def test_tests_that_have_noticed_most_for_their_time_come_first() -> None:
    cover = Cover({"far.py": {1: {0, 1, 2}}}, ["a", "b", "c"], [0.1, 0.9, 3.9], [], True, Path())
    assert cover.of(Mutant("far.py", 1, "", "", ""), 60) == ["a", "b", "c"]
    assert cover.of(Mutant("far.py", 1, "", "", ""), 60, {"b": 2, "c": 10}) == ["c", "b", "a"]  # 2 and 2.5 a second


def test_verdicts_are_kept_as_they_come(tmp_path: Path) -> None:
    """What was noticed stays so while its file is the same; what survived only while no test is another."""
    judged: list[str] = []

    def proof(tree: str, now: str, answer: str, **tests: str) -> str:
        kept = Kept(tmp_path, "far", Bench(tmp_path, tree, {"a.py": "1", "b.py": "1"} | tests))
        mutant = Mutant("far.py", 1, "", now, now)
        return kept.verdict(mutant, ["a.py::x", "b.py::y"], lambda ran: judged.append(now + "".join(ran)) or answer)[0]

    for tree in ("1", "1", "2"):
        assert proof(tree, "m", NOTICED) == NOTICED
        assert proof(tree, "n", SURVIVED) == SURVIVED
        assert proof(tree, "o", "") == ""
    both = "a.py::xb.py::y"
    assert judged == [f"m{both}", f"n{both}", f"o{both}", f"n{both}"]
    for _ in range(2):
        assert proof("2", "n", SURVIVED, **{"b.py": "2"}) == SURVIVED
    assert judged[4:] == ["nb.py::y"], "the file of tests that is another, and once"
    assert proof("2", "p", SURVIVED) == SURVIVED and judged[-1] == f"p{both}", "another change of the same line"


def test_which_test_comes_where_is_kept_for_the_same_tree_and_test(tmp_path: Path) -> None:
    ran: list[list[str]] = []

    def watch(files: Sequence[str]) -> dict[str, Any]:
        ran.append(list(files))
        tests = [f"{file}::{len(ran)}" for file in files]
        return {"lines": {"far.py": {"1": ["", *tests]}}, "seconds": dict.fromkeys(tests, 1.0), "failed": tests[:1]}

    found = [
        Kept(tmp_path, "far", Bench(tmp_path, tree, {"a.py": "1", "b.py": b})).watched(
            "python", ["a.py", "b.py"], watch
        )
        for tree, b in (("1", "1"), ("1", "1"), ("1", "2"), ("2", "2"))
    ]
    assert ran == [["a.py", "b.py"], ["b.py"], ["a.py", "b.py"]]
    assert found[0] == found[1]
    assert set(found[2]["lines"]["far.py"]["1"]) == {"", "a.py::1", "b.py::2"} == {"", *found[2]["seconds"]}
    assert found[2]["failed"] == ["a.py::1", "b.py::2"]


def test_a_killed_test_leaves_no_folder_of_its_switch(tmp_path: Path) -> None:
    folder = tmp_path / "switch"
    (folder / "ovs").mkdir(parents=True)
    child = os.fork()
    if not child:
        own_switch.removed_behind_us(folder)
        os.kill(os.getpid(), signal.SIGKILL)
    os.waitpid(child, 0)
    assert wait_for(lambda: not folder.exists(), 60)


def test_tests_of_a_package_are_those_that_import_it_themselves_or_through_a_helper() -> None:
    found = importers("results.figures")
    assert "tests/unit/test_results_fidelity.py" in found
    assert "tests/unit/test_units.py" not in found
    assert len(importers("drills")) > 10


@pytest.mark.parametrize(
    ("code", "limit_s", "row"),
    [
        ("print('7 points'); print('all is well')", 60, ("7 points", "proved")),
        ("print('1 wrong'); raise SystemExit(1)", 60, ("1 wrong", "FAILED")),
        ("import time; time.sleep(60)", 0.2, ("-", "time up")),
    ],
)
def test_a_proof_is_summed_up(code: str, limit_s: float, row: tuple[str, str]) -> None:
    found = prove_all.proved("x", [sys.executable, "-c", code], limit_s)
    assert (found.looked_at, found.verdict) == row


def test_all_proofs_are_of_a_night() -> None:
    """Each file that is a verb of its own, and no other."""
    verbs = {
        p.stem.removeprefix("prove_").replace("_", "-") for p in Path(prove_all.__file__).parent.glob("prove_*.py")
    }
    assert set(prove_all.NIGHTLY) == {v for v in verbs if not v.startswith("mutants-")} - {"all"}


@pytest.mark.parametrize(("most", "sanitizers"), [(prove_mutants_bench.MOST_BYTES, False), (-1, True)])
def test_memory_has_a_limit_but_with_sanitizers_whose_shadow_is_large(
    most: int, sanitizers: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RAILBED_FABRICD", "plain")
    (tmp_path / "pytest.ini").touch()
    (tmp_path / "test_far.py").write_text(
        f"import resource\ndef test_a():\n    assert resource.getrlimit(resource.RLIMIT_AS)[0] == {most}\n"
    )
    with prove_mutants_c.sanitized() if sanitizers else nullcontext():
        assert Bench(tmp_path).verdict(["test_far.py"], 60) == SURVIVED


def test_who_fails_without_a_mutant_judges_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RAILBED_FABRICD", "plain")  # as it was, afterwards
    (tmp_path / "pytest.ini").touch()
    (tmp_path / "test_far.py").write_text(
        "import os\ndef test_a():\n    assert os.environ['RAILBED_FABRICD'] == 'plain'\ndef test_b():\n    pass\n"
    )
    bad, good = "test_far.py::test_a", "test_far.py::test_b"
    tests, seconds = [good, bad, "test_far.py::test_none"], [2.0, 1.0, 0.1]
    cover = Cover({"far.c": {1: {0, 1}}}, tests, seconds, [], True, tmp_path)
    with pytest.raises(SystemExit, match=f"with sanitizers {bad} fails without a mutant"):
        prove_mutants.judges(Bench(tmp_path), cover)
    cover.failed.append(bad)
    prove_mutants.judges(Bench(tmp_path), cover)


def test_who_waits_for_a_cpu_does_not_stand_still(monkeypatch: pytest.MonkeyPatch) -> None:
    awake = iter([4.0, 10.0, 11.0, 2.0, 2.0])
    monkeypatch.setattr(prove_mutants_bench, "_awake_s", lambda _: next(awake))
    still = prove_mutants_bench._Still(1)
    began, seconds = still.at, []
    for passed in (4, 10, 12, 20, 25):  # a process ends before 20: what it ran is in no sum any more
        still.look(began + passed)
        seconds.append(round(still.seconds, 3))
    assert seconds == [0, 0, 1, 1, 6]


def test_what_a_process_has_run_is_read() -> None:
    assert 0 < time.thread_time() <= prove_mutants_bench._awake_s(os.getpid())


def test_a_process_that_ends_while_it_is_looked_at_has_run_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    def ended(*_: object) -> object:
        raise FileNotFoundError

    monkeypatch.setattr(Path, "glob", ended)
    assert prove_mutants_bench._awake_s(os.getpid()) == 0
    assert prove_mutants_bench.used_s(os.getpid()) > 0
