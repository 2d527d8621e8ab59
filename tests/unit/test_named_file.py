"""Files that a user names are ordinary ones, of bounded size: nothing is waited for, whatever is named."""

import os
import signal
from collections.abc import Iterator
from pathlib import Path
from types import FrameType

import pytest

from drills.agents import bench
from drills.sheet.suite import secret_of
from testbed.base.errors import InputError
from testbed.experiment import load
from workloads.base import named_file
from workloads.base.named_file import Folder, Missing, Unreadable

HEAD = "name: t\nfabric: {topology: {star: {hosts: 2}}}\n"
READERS = {
    "experiment": "",
    "flows": "workload: [{flows: NAMED}]",
    "sizes": "workload: [{load: {sizes: NAMED}}]",
    "aicb": "workload: [{aicb: NAMED}]",
    "torch": "workload: [{torch: NAMED, gpu: h100}]",
    "traces": "workload: [{chakra: traces}]",
    "groups": "workload: [{chakra: good, groups: NAMED}]",
    "requests": "workload: [{serve: {model: {layers: 1, hidden: 64, heads: 1}, gpu: h100, requests: {trace: NAMED}}}]",
    "image": "workers: {image: NAMED}\nworkload: [{flows: [{from: 0, to: 1, size: 1KB}]}]",
    "apps": "control: {apps: [NAMED]}\nworkload: [{flows: [{from: 0, to: 1, size: 1KB}]}]",
}


@pytest.fixture(autouse=True)
def deadline() -> Iterator[None]:
    """Whoever waits for a FIFO waits for ever."""

    def over(number: int, frame: FrameType | None) -> None:
        raise AssertionError("it waits")

    before = signal.signal(signal.SIGALRM, over)
    signal.alarm(60)
    yield
    signal.alarm(0)
    signal.signal(signal.SIGALRM, before)


@pytest.fixture(params=["fifo", "/dev/zero", "/proc/kmsg"])
def endless(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    if request.param == "/proc/kmsg" and not os.access(request.param, os.R_OK):
        pytest.skip("/proc/kmsg can only be read by root")
    if request.param == "fifo":
        os.mkfifo(tmp_path / "fifo")
        return tmp_path / "fifo"
    return Path(request.param)


@pytest.mark.parametrize("reader", READERS)
def test_what_has_no_end_is_refused_at_once(tmp_path: Path, endless: Path, reader: str) -> None:
    (tmp_path / "traces").mkdir()
    (tmp_path / "traces" / "t.0.et").symlink_to(endless)
    written = tmp_path / "t.yaml"
    if reader == "experiment":
        written = endless
    else:
        written.write_text(HEAD + READERS[reader].replace("NAMED", str(endless)) + "\n")
    with pytest.raises(InputError):
        load(written)


def test_a_network_in_a_file_too(tmp_path: Path, endless: Path) -> None:
    text = f"name: t\nfabric: {{topology: {{custom: {{file: {endless}}}}}}}\nworkload: []\n"
    (tmp_path / "t.yaml").write_text(text)
    with pytest.raises(InputError):
        load(tmp_path / "t.yaml")


def test_a_secret_and_results_too(tmp_path: Path, endless: Path) -> None:
    with pytest.raises(InputError):
        secret_of(str(endless))
    (tmp_path / bench.RESULTS).symlink_to(endless)
    with pytest.raises(InputError):
        bench.read(tmp_path)


def test_what_is_wrong_is_said(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "fifo")
    (tmp_path / "long").write_bytes(b"x" * 11)
    (tmp_path / "bytes").write_bytes(b"one\ntwo\xff\n")
    (tmp_path / "empty").touch()
    for name, kind, what in (
        ("none", Missing, "there is no such file"),
        (".", Folder, "it is a folder"),
        ("fifo", Unreadable, "it is no ordinary file"),
        ("long", Unreadable, "larger than 10 bytes"),
        ("a\0b", Unreadable, "embedded null byte"),
        ("x" * 300, Unreadable, "File name too long"),
    ):
        with pytest.raises(kind) as wrong:
            named_file.read(tmp_path / name, 10)
        assert wrong.value.what == what
    with pytest.raises(Unreadable, match="not UTF-8 text") as wrong:
        named_file.text(tmp_path / "bytes", 10)
    assert wrong.value.line == 2
    with pytest.raises(Unreadable, match="empty"):
        named_file.check(tmp_path / "empty")
    named_file.check(tmp_path / "long")
    assert named_file.read(tmp_path / "long", 11) == b"x" * 11 and named_file.read(tmp_path / "empty", 11) == b""
