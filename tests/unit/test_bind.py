"""`workers.bind`: what may be bound, in which order, and what is said of the rest (test_container: real ranks)."""

from __future__ import annotations

import socket
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from testbed.base.errors import InputError
from testbed.experiment import loads
from testbed.machine.mounts import Bind, binds

STAR = "name: x\nfabric: {topology: {star: {hosts: 2}}}\n"


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[Path]:
    """A folder that others may read; in it one that they may also write, and one closed to them."""
    for name, mode in (("read", 0o755), ("write", 0o777), ("closed", 0o700)):
        (tmp_path / name).mkdir()
        (tmp_path / name).chmod(mode)
    (tmp_path / "file").write_text("x")
    (tmp_path / "root").symlink_to("/")
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(str(tmp_path / "socket"))
        yield tmp_path


def load(*paths: object) -> list[str]:
    quoted = ", ".join(f'"{path}"' for path in paths)
    return loads(f"{STAR}workers:\n  bind: [{quoted}]\n", "x.yaml").workers.bind


def test_what_may_be_bound_is_written_as_it_was(folder: Path) -> None:
    given = [f"{folder}/write:rw", f"{folder}/read", f"{folder}/file"]
    assert load(*given) == given
    assert loads(STAR).workers.bind == []


@pytest.mark.parametrize(
    ("path", "what", "hint"),
    [
        ("data", "'data' is not an absolute path", "/home/me/data:rw"),
        ("F/none", "there is no 'F/none'", "a path of this machine"),
        ("F/read:ro", "there is no 'F/read:ro'", "may have :rw behind it"),
        ("F/socket", "is neither a folder nor a file", "name a folder or a file"),
        ("/dev/null", "is neither a folder nor a file", "name a folder or a file"),
        ("F/closed", "'F/closed' cannot be read by ranks", "open it to others: chmod o+rx F/closed"),
        ("F/read:rw", "'F/read' cannot be written by ranks", "chmod o+rwx F/read"),
        ("F/file:rw", "'F/file' cannot be written by ranks", "chmod o+rw F/file"),
        ("/", "'/' would cover '/dev' of the ranks", "name a folder below it"),
        ("F/root", "'/' would cover '/dev' of the ranks", "name a folder below it"),
        ("/etc", "'/etc' would cover '/etc/", "name a folder below it"),
        ("/usr/share", "ranks see '/usr' already", "leave it out"),
        ("/usr/../usr/share", "ranks see '/usr' already", "leave it out"),
        (sys.prefix + "/lib", "already, read-only", "leave it out"),
        ("/tmp", "'/tmp' is each rank's own", "bind a folder that is elsewhere"),
        ("/proc/1", "'/proc' is each rank's own", "bind a folder that is elsewhere"),
    ],
)  # fmt: skip
def test_what_cannot_be_bound(folder: Path, path: str, what: str, hint: str) -> None:
    given, what, hint = (text.replace("F/", f"{folder}/") for text in (path, what, hint))
    with pytest.raises(InputError) as error:
        load(folder / "read", given)
    assert what in error.value.what and hint in error.value.hint
    assert error.value.where == "x.yaml:4: workers.bind[1]"


def test_a_place_is_bound_once(folder: Path) -> None:
    with pytest.raises(InputError, match="is bound twice"):
        load(folder / "write", f"{folder}/read/../write:rw")


def test_folders_are_mounted_before_what_is_in_them() -> None:
    inner, outer = Bind(Path("/data/out"), True), Bind(Path("/data"))
    assert binds(["/data/out:rw", "/data"]) == [outer, inner]
    assert binds(["/data/out", "/data:rw"]) == [Bind(Path("/data"), True), Bind(Path("/data/out"))]
    assert [str(one) for one in (inner, outer)] == ["/data/out:rw", "/data"]
