"""`./setup.sh prove packages`: what it says of ways that agree, differ, fail, or are too large."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from types import SimpleNamespace

import pytest

from tests import prove_packages
from tests.parts.as_allowed import allowed
from tests.parts.container_engines import Engine, EngineError, NoEngine
from tests.parts.privileged_root import privileged
from tests.prove_packages import Failed, Place, Way, image, prove

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


def test_a_runtime_asks_for_nothing_that_root_has_not(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tests.parts.as_allowed.capabilities", lambda: ["CAP_CHOWN"])
    monkeypatch.setattr("resource.getrlimit", lambda _: (20, 100))
    asked = {"type": "RLIMIT_NOFILE", "soft": 50, "hard": 1048576}
    process = {"capabilities": {"bounding": ["CAP_CHOWN", "CAP_SYS_RESOURCE"]}, "rlimits": [asked]}
    made = allowed({"process": process, "root": {"path": "/x"}})
    assert made["process"]["capabilities"] == {"bounding": ["CAP_CHOWN"]} and made["root"] == {"path": "/x"}
    assert made["process"]["rlimits"] == [{"type": "RLIMIT_NOFILE", "soft": 50, "hard": 100}]


@pytest.fixture
def built(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Place:
    """A clone whose image is there, and a root of it by runc with figures of its own."""
    place = Place(tmp_path, tmp_path)
    (tmp_path / "build").mkdir()
    (tmp_path / "build" / "railbed.oci.tar").touch()
    monkeypatch.setattr(prove_packages, "call", lambda *_: "")
    monkeypatch.setattr(prove_packages, "unpack", lambda *_: SimpleNamespace(rootfs=tmp_path, env={}))
    monkeypatch.setattr(prove_packages, "_in_root", lambda *_: "7" * 64)
    return place


class Says(Engine):
    """Its containers print what it is made with; no text: they fail."""

    def run(self, archive: Path, command: str) -> str:
        if not self.command:
            raise EngineError("run ended with 125: no")
        return json.dumps({"metrics_sha256": self.command[0]})


def engines(monkeypatch: pytest.MonkeyPatch, **made: Says | None) -> None:
    @contextmanager
    def engine(name: str, its: Says | None, _: Path) -> Iterator[Engine]:
        if its is None:
            raise NoEngine(f"no {name} here")
        yield its

    monkeypatch.setattr(prove_packages, "ENGINES", {name: partial(engine, name, its) for name, its in made.items()})


def test_an_image_is_run_by_every_engine_that_is_there(monkeypatch: pytest.MonkeyPatch, built: Place) -> None:
    engines(monkeypatch, docker=Says(["5" * 64]), podman=Says(["5" * 64]))
    assert image(built) == Way("5" * 64, ["railbed.oci.tar", "by docker and podman"])
    engines(monkeypatch, docker=Says(["5" * 64]), podman=Says(["6" * 64]))
    assert "the figures differ" in image(built).wrong[0]
    engines(monkeypatch, docker=None, podman=Says(["5" * 64]))
    assert image(built).notes[1:] == ["no docker here", "by podman"]
    engines(monkeypatch, docker=None, podman=None)
    assert image(built) == Way("7" * 64, ["railbed.oci.tar", "no docker here", "no podman here", "by runc"])


def test_an_engine_that_is_there_and_fails_is_a_failure(monkeypatch: pytest.MonkeyPatch, built: Place) -> None:
    engines(monkeypatch, docker=Says([]), podman=Says(["5" * 64]))
    with pytest.raises(Failed, match="docker run ended with 125"):
        image(built)
