"""The comparison with what was before RDMA programs: what it cannot do it says, and its exit code is its verdict."""

from __future__ import annotations

import sys

import pytest

from tests import bench_unused


def test_a_commit_that_is_not_here_is_named_with_what_to_do(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        bench_unused.known("0" * 40)
    assert ended.value.code == 3
    said = capsys.readouterr().err
    assert "0" * 40 in said and "git fetch --unshallow" in said and "--against" in said


def test_what_is_not_installed_is_named(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(bench_unused.shutil, "which", lambda name: None if name == "valgrind" else f"/usr/bin/{name}")
    with pytest.raises(SystemExit) as ended:
        bench_unused.unused()
    assert ended.value.code == 3 and "valgrind is not installed" in capsys.readouterr().err


@pytest.mark.parametrize(("ratio", "code"), [(1.02, 0), (1.03, 0), (1.04, 1)])
def test_the_exit_code_is_the_verdict(
    ratio: float, code: int, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    asked = []

    def unused(against: str) -> dict[str, float]:
        asked.append(against)
        return {"over_before": ratio}

    monkeypatch.setattr(bench_unused, "unused", unused)
    monkeypatch.setattr(sys, "argv", ["bench_unused", "--against", "other"])
    assert bench_unused.main() == code
    assert asked == ["other"] and f"{ratio:.3f}" in capsys.readouterr().out


def test_an_instruction_count_is_read_as_valgrind_writes_it() -> None:
    found = bench_unused._COUNTED.search("==7== \n==7== I   refs:      29,183,290\n")
    assert found and int(found[1].replace(",", "")) == 29_183_290
