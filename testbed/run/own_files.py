"""The files of a user's own, as a run was done with them: copies in its folder of algorithms, and of controls."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from testbed.own.name import parse as control_name
from testbed.own.name import source
from workloads.own.name import parse

if TYPE_CHECKING:
    from testbed.experiment import Experiment


def keep(experiment: Experiment, folder: Path) -> None:
    for name in dict.fromkeys(sending.cc.name for _, sending in experiment.senders()):
        if (control := control_name(name)) is None:
            continue
        _copy(folder / "controls", control.path, control.digest, source(control))
    for step in experiment.workload:
        if (own := parse(str(getattr(step, "algorithm", "")))) is None:
            continue
        from workloads.own import files

        _copy(folder / "algorithms", own.path, own.digest, files.load(str(own)).text)


def _copy(folder: Path, path: str, digest: str, text: bytes) -> None:
    """Where two files have one name, the content tells them apart."""
    folder.mkdir(exist_ok=True)
    copy = folder / Path(path).name
    if copy.exists() and copy.read_bytes() != text:
        copy = copy.with_name(f"{digest[:12]}-{copy.name}")
    copy.write_bytes(text)
