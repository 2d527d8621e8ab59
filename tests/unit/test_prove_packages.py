"""`./setup.sh prove packages`: what it says of ways that agree, differ, fail, or are too large."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests import prove_packages
from tests.parts.privileged_root import privileged
from tests.prove_packages import Failed, Place, Way, prove

PLACE = Place(Path("clone"), Path("scratch"))


def ways(monkeypatch: pytest.MonkeyPatch, **made: Way | Failed) -> list[str]:
    def way(its: Way | Failed) -> Way:
        if isinstance(its, Failed):
            raise its
        return its

    monkeypatch.setattr(prove_packages, "WAYS", {name: lambda _, its=its: way(its) for name, its in made.items()})
    return list(made)


def test_ways_that_agree_are_proved(monkeypatch: pytest.MonkeyPatch) -> None:
    said: list[str] = []
    names = ways(monkeypatch, checkout=Way("5" * 64, [".venv 433 MB"]), wheel=Way("5" * 64))
    assert prove(PLACE, names, said.append) == []
    assert ".venv 433 MB" in said[0] and said[-1] == f"2 of 2 ways to install come to metrics_sha256 {'5' * 64}"


def test_other_figures_a_failure_and_what_is_too_large_are_told(monkeypatch: pytest.MonkeyPatch) -> None:
    large = Way("5" * 64, wrong=[".venv has 451 MB"])
    names = ways(monkeypatch, checkout=large, wheel=Way("6" * 64), image=Failed("no room"))
    said: list[str] = []
    wrong = prove(PLACE, names, said.append)
    assert wrong[:2] == ["checkout: .venv has 451 MB", "image failed"]
    assert "the figures differ" in wrong[2] and "no room" in said[2] and len(wrong) == 3


def test_a_privileged_container_may_what_this_process_may(tmp_path: Path) -> None:
    mount = {"destination": "/sys", "type": "sysfs", "options": ["nosuid", "ro"]}
    of_runc = {"ociVersion": "1", "mounts": [mount], "linux": {"namespaces": [{"type": "network"}], "seccomp": {}}}
    made = privileged(of_runc, tmp_path, ["true"], {"PATH": "/x"})
    assert made["mounts"] == [{**mount, "options": ["nosuid"]}] and "seccomp" not in made["linux"]
    assert "PATH=/x" in made["process"]["env"] and made["linux"]["namespaces"] == [{"type": "network"}]
    bounding = next(line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith("CapBnd"))
    assert len(made["process"]["capabilities"]["bounding"]) == min(41, int(bounding.split()[1], 16).bit_count())
