"""The files of a user's own, as a run was done with them: copies in its folder of algorithms, controls and policies."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from testbed.own.name import parse as c_name
from testbed.own.name import source
from workloads.own.name import parse

if TYPE_CHECKING:
    from testbed.experiment import Experiment
    from testbed.experiment.blocks.transport import Sending


def keep(experiment: Experiment, folder: Path) -> None:
    for text in dict.fromkeys(c_files(experiment)):
        if c_file := c_name(text):
            _copy(folder / "controls", c_file.path, c_file.digest, source(c_file))
    for step in experiment.workload:
        if (own := parse(str(getattr(step, "algorithm", "")))) is None:
            continue
        from workloads.own import files

        _copy(folder / "algorithms", own.path, own.digest, files.load(str(own)).text)


def of_sender(sending: Sending) -> Iterator[str]:
    yield sending.cc.name
    if sending.multipath:
        yield sending.multipath.policy


def c_files(experiment: Experiment) -> Iterator[str]:
    """What may be a C file of a user's own, as an experiment names it."""
    for _, sending in experiment.senders():
        yield from of_sender(sending)
    if adaptive := experiment.control.routing.adaptive:
        yield adaptive.policy.name


def _copy(folder: Path, path: str, digest: str, text: bytes) -> None:
    """Where two files have one name, the content tells them apart."""
    folder.mkdir(exist_ok=True)
    copy = folder / Path(path).name
    if copy.exists() and copy.read_bytes() != text:
        copy = copy.with_name(f"{digest[:12]}-{copy.name}")
    copy.write_bytes(text)
